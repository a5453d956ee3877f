// SPDX-License-Identifier: MIT
#include "journal/fsync_ring.h"

#include <algorithm>

#include "base/assert.h"
#include "base/log.h"
#include "device/member_batch.h"

namespace cowraid {

namespace {

using CopyState = RecordWrite::CopyState;

}  // namespace

void write_fsync_copies(MemberSet& members, RecordWrite& write)
{
    const iovec blocks{write.blocks.data(), write.blocks.size()};
    MemberBatch writes(members, MemberCounter::kWriteErrors);
    std::vector<RecordWrite::Copy*> asked;
    for (RecordWrite::Copy& copy : write.copies) {
        if (copy.state != CopyState::kChosen)
            continue;
        const IoRequest request{
            .kind = IoKind::kWrite, .offset = copy.offset, .vectors = {&blocks, 1}, .durable = true};
        if (writes.add(copy.member, request))
            asked.push_back(&copy);
        else
            copy.state = CopyState::kLost;
    }
    if (!writes.run("fsync log").ok())
        CW_LOG_ERROR("fsync log: a record is not acknowledged");
    for (size_t index = 0; index < asked.size(); ++index)
        asked[index]->state = writes.ok(index) ? CopyState::kDurable : CopyState::kLost;
}

FsyncRing::FsyncRing(MemberSet& members, const Superblock& superblock, uint32_t tolerance,
                     uint64_t first_sequence, Generation committed)
    : members_(members),
      volume_uuid_(superblock.volume_uuid),
      copies_(tolerance + 1),
      next_sequence_(first_sequence),
      acknowledged_(first_sequence),
      committed_(committed),
      run_generation_(committed),
      run_first_(first_sequence),
      run_before_(committed)
{
    CW_ASSERT(first_sequence > 0);
    for (const MemberRecord& record : superblock.members)
        if (record.id != superblock.replace.target)
            logs_.push_back({MemberRing(record, LogKind::kFsync)});
}

// In service, there to stay, and without a copy of this batch.
bool FsyncRing::usable(const MemberLog& log, const RecordWrite& write) const
{
    const MemberId member = log.ring.member();
    return members_.device(member) != nullptr && !members_.leaving(member) &&
           std::none_of(write.copies.begin(), write.copies.end(),
                        [=](const RecordWrite::Copy& copy) { return copy.member == member; });
}

// Adds copies on as many members as asked for, in turn, so that batches spread over all. A member serves one
// write at a time: a slow one is passed over while it is busy, and a write that fails never stands beside
// one of the same member that seemed to succeed.
Status FsyncRing::choose(RecordWrite& write, uint32_t copies)
{
    const uint32_t block_count = write.header.block_count();
    struct Choice {
        size_t index;
        uint32_t first_block;
    };
    std::vector<Choice> choices;
    bool any_busy = false;
    for (size_t step = 0; step < logs_.size() && choices.size() < copies; ++step) {
        Choice choice{(turn_ + step) % logs_.size(), 0};
        const MemberLog& log = logs_[choice.index];
        if (!usable(log, write))
            continue;
        any_busy = any_busy || log.busy || log.ring.any_held();
        if (!log.busy && log.ring.find_place(block_count, choice.first_block))
            choices.push_back(choice);
    }
    if (choices.size() < copies)
        return any_busy ? Err::kBusy : Err::kNoSpace;
    for (const Choice& choice : choices) {
        MemberLog& log = logs_[choice.index];
        log.busy = true;
        log.ring.take(choice.first_block, block_count, write.header.generation.value);
        write.copies.push_back({log.ring.member(), log.ring.offset_of(choice.first_block)});
        turn_ = choice.index + 1;
    }
    return {};
}

void FsyncRing::block(Err why, Generation until)
{
    blocked_ = why;
    blocked_until_ = std::max(blocked_until_, until);
}

Result<std::unique_ptr<RecordWrite>> FsyncRing::begin(uint32_t record_count, uint32_t content_bytes,
                                                      Generation generation, uint64_t epoch)
{
    if (generation <= committed_ || generation < run_generation_)
        return Err::kStale;
    // More would not be found again.
    CW_ASSERT(generation.value <= committed_.value + kFsyncGenerations);
    auto write = std::make_unique<RecordWrite>();
    FsyncHeader& header = write->header;
    header.content_bytes = content_bytes;
    header.generation = generation;
    const auto in_service =
        static_cast<uint32_t>(std::count_if(logs_.begin(), logs_.end(), [&](const MemberLog& log) {
            return members_.device(log.ring.member()) != nullptr;
        }));
    Status status;
    if (in_service == 0)
        status = Err::kIo;
    else if (!blocked_.ok())
        status = generation <= blocked_until_ ? blocked_ : Err::kBusy;
    else if (next_sequence_ > kMaxFsyncSequence)
        status = Err::kNoSpace;
    else if (waiting_count_ > 0)
        status = Err::kBusy;  // whoever replaces a lost copy holds up all behind it, and comes first
    else
        status = choose(*write, std::min(copies_, in_service));
    if (!status.ok()) {
        if (status.err() == Err::kNoSpace)
            block(Err::kNoSpace, generation);
        return status;
    }
    if (generation > run_generation_) {
        run_before_ = run_generation_;
        run_first_ = next_sequence_;
        run_generation_ = generation;
    }
    header.volume_uuid = volume_uuid_;
    header.epoch = epoch;
    header.generation_first = run_first_;
    header.generation_before = run_before_;
    header.sequence = next_sequence_;
    header.record_count = record_count;
    header.acknowledged = acknowledged_;
    next_sequence_ += record_count;
    write->blocks = AlignedBuffer(size_t{header.block_count()} * kBlockBytes);
    order_.push_back(write.get());
    return write;
}

FsyncRing::Next FsyncRing::fail(RecordWrite& write, Err why)
{
    // What is numbered behind it would stand behind a gap, so nothing more begins before a commit has
    // made this run dead.
    block(why, run_generation_);
    write.result = why;
    write.finished = true;
    return Next::kFinished;
}

FsyncRing::Next FsyncRing::settle(RecordWrite& write)
{
    if (write.waiting)
        --waiting_count_;
    write.waiting = false;
    uint32_t durable = 0;
    for (RecordWrite::Copy& copy : write.copies) {
        CW_ASSERT(copy.state == CopyState::kDurable || copy.state == CopyState::kLost);
        // A member that failed since, whoever noticed, may have lost it again.
        durable += copy.state == CopyState::kDurable && members_.device(copy.member) != nullptr ? 1 : 0;
        for (MemberLog& log : logs_)
            if (!copy.settled && log.ring.member() == copy.member)
                log.busy = false;
        copy.settled = true;
    }
    if (members_.stopped())
        return fail(write, Err::kTooManyFaults);
    const auto others = static_cast<uint32_t>(
        std::count_if(logs_.begin(), logs_.end(), [&](const MemberLog& log) { return usable(log, write); }));
    const uint32_t wanted = std::min(copies_ - std::min(durable, copies_), others);
    if (wanted == 0 && durable == 0)
        return fail(write, Err::kIo);
    const Status status = wanted == 0 ? Status() : choose(write, wanted);
    if (status.err() == Err::kNoSpace)
        return fail(write, Err::kNoSpace);
    write.waiting = status.err() == Err::kBusy;
    waiting_count_ += write.waiting ? 1 : 0;
    if (write.waiting)
        return Next::kWait;
    write.finished = wanted == 0;
    return write.finished ? Next::kFinished : Next::kAgain;
}

bool FsyncRing::answer(RecordWrite& write, Status& result)
{
    if (order_.front() != &write || !write.finished)
        return false;
    order_.pop_front();
    result = write.result;
    // Whatever stopped the members may have cost a copy that was durable.
    if (result.ok() && members_.stopped())
        result = Err::kTooManyFaults;
    if (!result.ok())
        for (RecordWrite* later : order_)
            later->result = result;
    else
        acknowledged_ = write.header.end_sequence();
    return true;
}

void FsyncRing::retire(Generation committed)
{
    committed_ = std::max(committed_, committed);
    for (MemberLog& log : logs_)
        log.ring.free_below(committed_.next().value);
    if (blocked_until_ <= committed_)
        blocked_ = Status();
}

FsyncRing::MemberLog* FsyncRing::find(MemberId member)
{
    const auto at = std::find_if(logs_.begin(), logs_.end(),
                                 [=](const MemberLog& log) { return log.ring.member() == member; });
    return at == logs_.end() ? nullptr : &*at;
}

bool FsyncRing::hold(MemberId member, DeviceOffset first, uint64_t bytes)
{
    MemberLog* const log = find(member);
    return log != nullptr && log->ring.hold(first, bytes, committed_.next().value);
}

void FsyncRing::release(MemberId member, DeviceOffset first)
{
    if (MemberLog* const log = find(member); log != nullptr)
        log->ring.release(first);
}

LogUsage FsyncRing::usage() const
{
    LogUsage usage;
    for (const MemberLog& log : logs_) {
        if (members_.device(log.ring.member()) == nullptr)
            continue;
        uint32_t used = 0;
        for (const MemberRing::Segment& segment : log.ring.segments())
            used += segment.block_count;
        if (used >= usage.used_blocks)
            usage = {used, log.ring.block_count()};
    }
    return usage;
}

}  // namespace cowraid
