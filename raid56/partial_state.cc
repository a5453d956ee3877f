// SPDX-License-Identifier: MIT
#include "device/superblock_store.h"
#include "raid56/partial_write.h"

namespace cowraid {

PartialWrites::PartialWrites(ArrayState& array_state, IntentLog& intent_log,
                             const PartialWriteOptions& chosen)
    : state(array_state),
      log(intent_log),
      cache({chosen.stripe_cache_size, chosen.stripe_cache_bytes}),
      rmw_level(chosen.rmw_level),
      stripe_io_bytes(chosen.stripe_io_bytes),
      now(chosen),
      plug(*this, chosen)
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

uint64_t PartialWrites::begin_flush()
{
    barrier.close();
    return log.flush_covers();
}

PartialWriteOptions PartialWrites::options() const
{
    MutexLock lock(options_mutex);
    return now;
}

void PartialWrites::set_options(const PartialWriteOptions& options)
{
    {
        MutexLock lock(options_mutex);
        now = options;
    }
    cache.set_limits({options.stripe_cache_size, options.stripe_cache_bytes});
    rmw_level.store(options.rmw_level, std::memory_order_relaxed);
    stripe_io_bytes.store(options.stripe_io_bytes, std::memory_order_relaxed);
    plug.set_enabled(options.plug);
}

PartialWriteStatistics PartialWrites::statistics() const
{
    const auto get = [](const std::atomic<uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    return {
        .rows = get(counters.rows),
        .rmw_rows = get(counters.rmw_rows),
        .rcw_rows = get(counters.rcw_rows),
        .full_rows = get(counters.full_rows),
        .blocks_read = get(counters.blocks_read),
        .cache_hits = get(counters.cache_hits),
        .cache_misses = get(counters.cache_misses),
        .log_batches = get(counters.log_batches),
        .log_bytes = get(counters.log_bytes),
        .flushes = get(counters.flushes),
        .repaired_rows = get(counters.repaired_rows),
        .requests = get(counters.requests),
        .batches = get(counters.batches),
    };
}

Status check_options(const PartialWriteOptions& options)
{
    const bool good = options.stripe_cache_size >= 17 && options.stripe_cache_size <= 32768 &&
                      is_power_of_two(options.stripe_io_bytes) && options.stripe_io_bytes >= kBlockBytes &&
                      options.stripe_io_bytes <= kMaxChunkBytes && options.rmw_level <= RmwLevel::kPrefer;
    return good ? Err::kOk : Err::kInvalid;
}

}  // namespace cowraid
