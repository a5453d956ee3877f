// SPDX-License-Identifier: MIT
#include "journal/fsync_log.h"

namespace cowraid {

void FsyncLog::add_member(const MemberRecord& record)
{
    MutexLock lock(mutex_);
    ring_.add_member(record);
}

Status FsyncLog::append(std::span<const std::byte> record, Generation generation, uint64_t epoch)
{
    if (record.size() > kMaxFsyncRecordBytes)
        return Err::kTooBig;
    Waiter own{.record = record, .generation = generation, .epoch = epoch, .status = {}};
    MutexLock lock(mutex_);
    queue_.push_back(&own);
    // Whoever is first in the queue leads the next batch, as soon as there are members for it; who arrives
    // meanwhile queues up behind and goes with it. So batches grow with the number of callers by themselves.
    while (!own.done)
        if (queue_.empty() || queue_.front() != &own || !lead())
            changed_.wait(mutex_);
    return own.status;
}

// The first in the queue, and those behind it that go well with it.
std::vector<FsyncLog::Waiter*> FsyncLog::take_batch(uint32_t& content_bytes)
{
    std::vector<Waiter*> batch;
    for (Waiter* waiter : queue_) {
        const uint32_t bytes = fsync_record_room(waiter->record.size());
        if (content_bytes + bytes > kMaxFsyncContentBytes || waiter->epoch != queue_.front()->epoch ||
            waiter->generation != queue_.front()->generation)
            break;
        content_bytes += bytes;
        batch.push_back(waiter);
    }
    return batch;
}

// False when the batch has to wait for members. Lets go of the lock while it is written.
bool FsyncLog::lead()
{
    uint32_t content_bytes = 0;
    const std::vector<Waiter*> batch = take_batch(content_bytes);
    const Waiter& first = *batch.front();
    Result<std::unique_ptr<RecordWrite>> write = Err::kShutdown;
    if (!stopped_)
        write =
            ring_.begin(static_cast<uint32_t>(batch.size()), content_bytes, first.generation, first.epoch);
    if (write.err() == Err::kBusy)
        return false;
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(batch.size()));
    const Status status = write.ok() ? write_copies(**write, batch) : write.status();
    for (Waiter* waiter : batch) {
        waiter->status = status;
        waiter->done = true;
    }
    changed_.notify_all();
    return true;
}

Status FsyncLog::write_copies(RecordWrite& write, std::span<Waiter* const> batch)
{
    ++counts_.batches;
    counts_.records += batch.size();
    changed_.notify_all();  // another leads now, if there are members enough
    mutex_.unlock();
    std::vector<std::span<const std::byte>> records;
    for (const Waiter* waiter : batch)
        records.push_back(waiter->record);
    encode_fsync_batch(write.header, records, write.blocks.span());
    mutex_.lock();
    FsyncRing::Next next = FsyncRing::Next::kAgain;
    while (next != FsyncRing::Next::kFinished) {
        if (next == FsyncRing::Next::kWait) {
            changed_.wait(mutex_);
        } else {
            mutex_.unlock();
            write_fsync_copies(members_, write);
            mutex_.lock();
        }
        next = ring_.settle(write);
        changed_.notify_all();
    }
    Status result;
    while (!ring_.answer(write, result))
        changed_.wait(mutex_);
    return result;
}

void FsyncLog::retire(Generation committed)
{
    MutexLock lock(mutex_);
    ring_.retire(committed);
    changed_.notify_all();
}

bool FsyncLog::hold(MemberId member, DeviceOffset first, uint64_t bytes)
{
    MutexLock lock(mutex_);
    return ring_.hold(member, first, bytes);
}

void FsyncLog::release(MemberId member, DeviceOffset first)
{
    MutexLock lock(mutex_);
    ring_.release(member, first);
    changed_.notify_all();
}

void FsyncLog::set_tolerance(uint32_t tolerance)
{
    MutexLock lock(mutex_);
    ring_.set_tolerance(tolerance);
}

void FsyncLog::stop()
{
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
}

LogUsage FsyncLog::usage() const
{
    MutexLock lock(mutex_);
    return ring_.usage();
}

FsyncLog::Counts FsyncLog::counts() const
{
    MutexLock lock(mutex_);
    return counts_;
}

}  // namespace cowraid
