// SPDX-License-Identifier: MIT
// Writes in place as the array offers them: their start and options, the way to the plug, flushes by others.
// What becomes of a batch is in partial_write.cc.
#include "base/assert.h"
#include "device/superblock_store.h"
#include "raid56/partial_write.h"

namespace cowraid {

namespace {

Status check_options(const PartialWriteOptions& options)
{
    const bool good = options.stripe_cache_size >= 17 && options.stripe_cache_size <= 32768 &&
                      is_power_of_two(options.stripe_io_bytes) && options.stripe_io_bytes >= kBlockBytes &&
                      options.stripe_io_bytes <= kMaxChunkBytes && options.rmw_level <= RmwLevel::kPrefer;
    return good ? Err::kOk : Err::kInvalid;
}

// What a flush from now on covers.
uint64_t begin_flush(PartialWrites& partial)
{
    partial.barrier.close();
    return partial.log.flush_covers();
}

}  // namespace

PartialWrites::PartialWrites(ArrayState& array_state, IntentLog& intent_log,
                             const PartialWriteOptions& chosen)
    : state(array_state),
      log(intent_log),
      cache({chosen.stripe_cache_size, chosen.stripe_cache_bytes}),
      rmw_level(chosen.rmw_level),
      stripe_io_bytes(chosen.stripe_io_bytes),
      options(chosen),
      plug(*this, chosen.plug)
{
}

Status PartialWrites::flush_all()
{
    barrier.close();
    const Status flushed = flush_members(state.members);
    if (flushed.ok())
        cache.end_age();
    bump(counters.flushes, 1);
    barrier.open();
    return flushed;
}

Status Array::start_partial_writes(IntentLog& log, const PartialWriteOptions& options)
{
    CW_ASSERT(!state_->partial);
    CW_TRY(check_options(options));
    auto partial = std::make_unique<PartialWrites>(*state_, log, options);
    CW_TRY(partial->plug.start(options.worker_count));
    state_->partial.set(std::move(partial));
    return {};
}

std::optional<PartialWriteOptions> Array::partial_write_options() const
{
    if (!state_->partial)
        return std::nullopt;
    MutexLock lock(state_->partial->options_mutex);
    return state_->partial->options;
}

Status Array::set_partial_write_options(const PartialWriteOptions& options)
{
    CW_TRY(check_options(options));
    if (!state_->partial)
        return Err::kInvalid;
    PartialWrites& partial = *state_->partial;
    {
        MutexLock lock(partial.options_mutex);
        partial.options = options;
    }
    partial.cache.set_limits({options.stripe_cache_size, options.stripe_cache_bytes});
    partial.rmw_level.store(options.rmw_level, std::memory_order_relaxed);
    partial.stripe_io_bytes.store(options.stripe_io_bytes, std::memory_order_relaxed);
    partial.plug.set_enabled(options.plug);
    return {};
}

void Array::keep_buffers(size_t bytes)
{
    state_->buffers.keep_at_most(bytes);
}

Status Array::write_blocks(std::span<BlockWrite> writes, const WriteOrigin& origin)
{
    WriteRequest request;
    request.writes = writes;
    request.origin = origin;
    submit(request);
    return wait(request);
}

void Array::submit(WriteRequest& request)
{
    state_->partial->plug.submit(request);
}

Status Array::wait(WriteRequest& request)
{
    return state_->partial->plug.wait(request);
}

PartialWriteStatistics Array::partial_write_statistics() const
{
    if (!state_->partial)
        return {};
    const PartialWrites::Counters& counters = state_->partial->counters;
    return {
        .rows = count_of(counters.rows),
        .rmw_rows = count_of(counters.rmw_rows),
        .rcw_rows = count_of(counters.rcw_rows),
        .full_rows = count_of(counters.full_rows),
        .blocks_read = count_of(counters.blocks_read),
        .cache_hits = count_of(counters.cache_hits),
        .cache_misses = count_of(counters.cache_misses),
        .log_batches = count_of(counters.log_batches),
        .log_bytes = count_of(counters.log_bytes),
        .flushes = count_of(counters.flushes),
        .repaired_rows = count_of(counters.repaired_rows),
        .requests = count_of(counters.requests),
        .batches = count_of(counters.batches),
    };
}

Array::FlushBarrier::FlushBarrier(Array& array)
    : covered(array.state_->partial ? begin_flush(*array.state_->partial) : 0), state_(*array.state_)
{
}

Array::FlushBarrier::~FlushBarrier()
{
    if (state_.partial)
        state_.partial->barrier.open();
}

void Array::FlushBarrier::flushed()
{
    if (state_.partial)
        state_.partial->cache.end_age();
}

void Array::retire(uint64_t covered)
{
    if (state_->partial)
        state_->partial->log.retire(covered);
}

}  // namespace cowraid
