// SPDX-License-Identifier: MIT
#include "raid56/plug.h"

#include <sys/prctl.h>

#include <algorithm>

#include "base/assert.h"
#include "base/clock.h"
#include "raid56/partial_write.h"

namespace cowraid {

namespace {

bool same_origin(const WriteOrigin& a, const WriteOrigin& b)
{
    return a.generation == b.generation && a.epoch == b.epoch && a.sink == b.sink;
}

}  // namespace

Status Plug::start(uint32_t worker_count)
{
    workers_ = std::vector<Thread>(worker_count);
    for (Thread& worker : workers_)
        CW_TRY(worker.start(worker_main, this));
    return {};
}

Plug::~Plug()
{
    {
        MutexLock lock(worker_mutex_);
        stopping_ = true;
        worker_wake_.notify_all();
    }
    for (Thread& worker : workers_)
        worker.join();
    for (Shard& shard : shards_) {
        MutexLock lock(shard.mutex);
        CW_ASSERT(shard.pending.empty() && shard.busy.empty());
    }
}

size_t Plug::shard_index(const StripeKey& key)
{
    return stripe_hash({key.group, key.stripe / kShardStripes}) >> 32 & (kShards - 1);
}

Plug::RequestShard& Plug::shard_of(const WriteRequest& request)
{
    return requests_[reinterpret_cast<uintptr_t>(&request) / sizeof(WriteRequest) % kShards];
}

Status Plug::resolve(const ArrayState& state, const BlockWrite& write, const ArrayGroup*& group)
{
    if (state.read_only.load(std::memory_order_acquire))
        return Err::kReadOnly;
    if (group == nullptr || group->geometry.parity == 0)
        return Err::kInvalid;
    const uint64_t offset = write.address - group->record.address;
    const uint64_t bytes = uint64_t{write.block_count} * kBlockBytes;
    const uint64_t room = group->record.data_bytes();
    const bool inside = offset < room && bytes <= room - offset;
    return inside && bytes > 0 && offset % kBlockBytes == 0 ? Err::kOk : Err::kInvalid;
}

// Appends the blocks of a write to `parts`, one for each stripe.
void Plug::cut(WriteRequest& request, uint32_t write, const ArrayGroup& group,
               std::vector<PendingStripe>& parts) const
{
    const BlockWrite& what = request.writes[write];
    const uint64_t offset = what.address - group.record.address;
    for (uint32_t i = 0; i < what.block_count; ++i) {
        const BlockPlace place = place_of(group.geometry, offset + uint64_t{i} * kBlockBytes);
        const StripeKey key{group.record.address, place.stripe};
        if (parts.empty() || parts.back().key != key)
            parts.push_back({key, Ref<const ArrayGroup>(&group), request.origin, {}});
        parts.back().blocks.push_back(
            {place.row, place.column, what.memory + size_t{i} * kBlockBytes, &request, write, {}});
    }
}

void Plug::submit(WriteRequest& request)
{
    const Ref<const GroupList> list = partial_.state.groups.list();
    std::vector<PendingStripe> parts;
    for (uint32_t write = 0; write < request.writes.size(); ++write) {
        BlockWrite& what = request.writes[write];
        const ArrayGroup* group = list->find(what.address);
        what.result = resolve(partial_.state, what, group);
        if (what.result.ok())
            cut(request, write, *group, parts);
    }
    request.blocks_left = 0;
    request.shards = 0;
    for (const PendingStripe& part : parts) {
        request.blocks_left += part.blocks.size();
        request.shards |= 1u << shard_index(part.key);
    }
    request.poked = false;
    request.done = parts.empty();
    bump(partial_.counters.requests, 1);
    for (PendingStripe& part : parts)
        add(std::move(part));
}

void Plug::add(PendingStripe part)
{
    Shard& shard = shards_[shard_index(part.key)];
    const uint64_t now = monotonic_ns();
    bool wake = false;
    {
        MutexLock lock(shard.mutex);
        const bool was_due = !shard.pending.empty() && due(shard, now);
        if (shard.pending.empty()) {
            shard.first_ns = now;
            wake = true;
        }
        shard.last_ns = now;
        shard.blocks += part.blocks.size();
        std::vector<PendingStripe>& waiting = shard.pending[part.key];
        const bool merge = enabled_.load(std::memory_order_relaxed) && !waiting.empty() &&
                           same_origin(waiting.back().origin, part.origin);
        if (merge)
            waiting.back().blocks.insert(waiting.back().blocks.end(), part.blocks.begin(), part.blocks.end());
        else
            waiting.push_back(std::move(part));
        shard.has_full_stripe = shard.has_full_stripe || waiting.back().full();
        wake = wake || (!was_due && due(shard, now));
    }
    if (wake)
        wake_worker();
}

bool Plug::due(const Shard& shard, uint64_t now) const
{
    return !enabled_.load(std::memory_order_relaxed) || shard.has_full_stripe ||
           shard.blocks * kBlockBytes >= kShardBytes || now >= shard.last_ns + kIdleNs ||
           now >= shard.first_ns + kPatienceNs;
}

// Stripes that nobody works on, of one origin; they are busy now.
std::vector<PendingStripe> Plug::take(Shard& shard)
{
    const bool together = enabled_.load(std::memory_order_relaxed);
    std::vector<PendingStripe> batch;
    uint64_t rows = 0;
    MutexLock lock(shard.mutex);
    for (auto next = shard.pending.begin(); next != shard.pending.end() && rows < kBatchRows;) {
        std::vector<PendingStripe>& waiting = next->second;
        const bool fits =
            batch.empty() || (together && same_origin(batch.front().origin, waiting.front().origin));
        if (!fits || shard.busy.contains(next->first)) {
            ++next;
            continue;
        }
        rows += std::min<uint64_t>(waiting.front().blocks.size(), waiting.front().group->geometry.rows());
        shard.blocks -= waiting.front().blocks.size();
        shard.busy.insert(next->first);
        batch.push_back(std::move(waiting.front()));
        waiting.erase(waiting.begin());
        next = waiting.empty() ? shard.pending.erase(next) : std::next(next);
    }
    shard.has_full_stripe = false;
    for (const auto& [key, waiting] : shard.pending)
        for (const PendingStripe& stripe : waiting)
            shard.has_full_stripe = shard.has_full_stripe || stripe.full();
    return batch;
}

// Hands the stripes over to whoever waits with more for them.
void Plug::finish(Shard& shard, std::span<const PendingStripe> batch)
{
    std::vector<WriteRequest*> waiting;
    {
        MutexLock lock(shard.mutex);
        for (const PendingStripe& stripe : batch) {
            shard.busy.erase(stripe.key);
            const auto next = shard.pending.find(stripe.key);
            if (next == shard.pending.end())
                continue;
            for (const PendingBlock& block : next->second.front().blocks)
                if (waiting.empty() || waiting.back() != block.request)
                    waiting.push_back(block.request);
        }
        // Requests cannot end while they are pending here.
        for (WriteRequest* request : waiting)
            poke(*request);
    }
    if (!waiting.empty())
        wake_worker();
}

void Plug::poke(WriteRequest& request)
{
    RequestShard& shard = shard_of(request);
    MutexLock lock(shard.mutex);
    request.poked = true;
    shard.changed.notify_all();
}

void Plug::complete(std::span<PendingStripe> batch)
{
    for (PendingStripe& stripe : batch) {
        for (size_t first = 0; first < stripe.blocks.size();) {
            WriteRequest& request = *stripe.blocks[first].request;
            RequestShard& shard = shard_of(request);
            MutexLock lock(shard.mutex);
            for (; first < stripe.blocks.size() && stripe.blocks[first].request == &request; ++first) {
                Status& result = request.writes[stripe.blocks[first].write].result;
                if (result.ok())
                    result = stripe.blocks[first].result;
                --request.blocks_left;
            }
            if (request.blocks_left > 0)
                continue;
            request.done = true;
            shard.changed.notify_all();
        }
    }
}

bool Plug::work(Shard& shard)
{
    std::vector<PendingStripe> batch = take(shard);
    if (batch.empty())
        return false;
    bump(partial_.counters.batches, 1);
    write_stripes_in_place(partial_, batch);
    finish(shard, batch);
    complete(batch);
    return true;
}

Status Plug::wait(WriteRequest& request)
{
    RequestShard& own = shard_of(request);
    for (;;) {
        bool worked = false;
        {
            MutexLock lock(own.mutex);
            if (request.done)
                break;
        }
        for (uint32_t i = 0; i < kShards; ++i)
            worked = ((request.shards >> i & 1) != 0 && work(shards_[i])) || worked;
        MutexLock lock(own.mutex);
        while (!worked && !request.done && !request.poked)
            own.changed.wait(own.mutex);
        request.poked = false;
        if (request.done)
            break;
    }
    for (const BlockWrite& write : request.writes)
        if (!write.result.ok())
            return write.result;
    return {};
}

bool Plug::work_on_due(bool& any_waits)
{
    bool worked = false;
    for (Shard& shard : shards_) {
        bool open = false;
        {
            MutexLock lock(shard.mutex);
            any_waits = any_waits || !shard.pending.empty();
            open = !shard.pending.empty() && due(shard, monotonic_ns());
        }
        worked = (open && work(shard)) || worked;
    }
    return worked;
}

void Plug::run_worker()
{
    for (;;) {
        bool any_waits = false;
        if (work_on_due(any_waits))
            continue;
        MutexLock lock(worker_mutex_);
        if (stopping_)
            return;
        if (!work_waits_ && any_waits)
            worker_wake_.wait_for(worker_mutex_, 1);
        else if (!work_waits_)
            worker_wake_.wait(worker_mutex_);
        work_waits_ = false;
    }
}

void* Plug::worker_main(void* self)
{
    // Memory reclaim must not wait for writes that this very thread carries out.
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);  // refused without privilege: then there is no such writeback
    pthread_setname_np(pthread_self(), "cowraid-partial");
    static_cast<Plug*>(self)->run_worker();
    return nullptr;
}

void Plug::wake_worker()
{
    MutexLock lock(worker_mutex_);
    work_waits_ = true;
    worker_wake_.notify_one();
}

}  // namespace cowraid
