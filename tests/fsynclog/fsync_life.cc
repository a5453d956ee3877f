// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tests/fsynclog/fsync_world.h"

namespace cowraid::test {

FsyncLife::FsyncLife(FsyncWorld& world, FsyncMask faulty, FsyncMask absent)
    : world_(world),
      prng_(world.prng_),
      members_(world.attach(absent, 0)),
      ring_(*members_, world.superblock_, world.is(FsyncMutant::kOneCopy) ? 0 : world.tolerance_,
            world.next_sequence_, world.committed_),
      open_(world.committed_.next())
{
    add_faults(faulty, absent);
}

void FsyncLife::add_faults(FsyncMask faulty, FsyncMask absent)
{
    for (uint32_t index = 0; index < world_.count(); ++index) {
        if (!world_.in(faulty & ~absent, index))
            continue;
        const uint32_t kinds = prng_.chance(1, 2) ? kFaultWrites : kFaultFlushes;
        constexpr FaultAction kActions[] = {FaultAction::kError, FaultAction::kError, FaultAction::kLost,
                                            FaultAction::kGone,  FaultAction::kTorn,  FaultAction::kBitFlip};
        const FaultAction action = kActions[prng_.below(std::size(kActions))];
        const bool writes = action == FaultAction::kTorn || action == FaultAction::kBitFlip;
        world_.faults_[index]->add_rule(
            {.action = action,
             .kinds = writes ? kFaultWrites : kinds,
             .skip = prng_.below(10),
             .permille = static_cast<uint32_t>(prng_.between(30, 1000)),
             .error = action == FaultAction::kTorn && prng_.chance(1, 2) ? Err::kOk : Err::kIo});
    }
}

void FsyncLife::start_write()
{
    std::vector<LoggedRecord> records(prng_.between(1, 4));
    uint32_t content_bytes = 0;
    std::vector<std::span<const std::byte>> views;
    const bool late = closing_.has_value() && prng_.chance(1, 4);
    for (LoggedRecord& record : records) {
        record.bytes.resize(prng_.chance(1, 8) ? prng_.below(20000) : prng_.below(400));
        record.generation = late ? *closing_ : open_;
        prng_.fill(record.bytes.data(), record.bytes.size());
        content_bytes += fsync_record_room(record.bytes.size());
        views.emplace_back(record.bytes);
    }
    const auto count = static_cast<uint32_t>(records.size());
    const uint64_t epoch = world_.superblock_.log_epoch;
    const bool force = late && world_.is(FsyncMutant::kStaleTaken);
    auto write = ring_.begin(count, content_bytes, force ? open_ : records[0].generation, epoch);
    if (!write.ok()) {
        world_.report_.refusals += write.err() == Err::kNoSpace ? 1 : 0;
        if (write.err() == Err::kNoSpace && prng_.chance(1, 2))
            step_commit();
        if (write.err() == Err::kIo)
            world_.lost("refused with members in service", 0);
        return;
    }
    FsyncHeader& header = (*write)->header;
    if (force)
        header.generation = records[0].generation;
    if (header.generation_before >= header.generation)
        header.generation_before = {header.generation.value - 1};
    encode_fsync_batch(header, views, (*write)->blocks.span());
    for (uint32_t index = 0; index < count; ++index) {
        records[index].sequence = header.sequence + index;
        world_.logged_.push_back(std::move(records[index]));
    }
    world_.report_.appended += count;
    pending_.push_back({.write = write.take()});
}

void FsyncLife::advance(size_t index)
{
    PendingBatch& batch = pending_[index];
    RecordWrite& write = *batch.write;
    switch (batch.step) {
    case PendingBatch::Step::kWrite:
        for (const RecordWrite::Copy& copy : write.copies) {
            const MemberRecord& record = *world_.superblock_.member(copy.member);
            world_.report_.wraps += copy.offset.value == record.fsync_log_offset ? 1 : 0;
        }
        write_fsync_copies(*members_, write);
        batch.step = PendingBatch::Step::kSettle;
        break;
    case PendingBatch::Step::kSettle:
        finish(index);
        break;
    case PendingBatch::Step::kFinished:
        if (Status result; ring_.answer(write, result))
            acknowledge(index, result);
        break;
    }
}

void FsyncLife::finish(size_t index)
{
    PendingBatch& batch = pending_[index];
    switch (ring_.settle(*batch.write)) {
    case FsyncRing::Next::kFinished:
        batch.step = PendingBatch::Step::kFinished;
        if (world_.is(FsyncMutant::kAckOutOfOrder))
            for (LoggedRecord& record : world_.logged_)
                if (record.sequence >= batch.write->header.sequence &&
                    record.sequence < batch.write->header.end_sequence())
                    record.acknowledged = batch.write->result.ok();
        break;
    case FsyncRing::Next::kAgain:
        ++world_.report_.replaced;
        batch.step = PendingBatch::Step::kWrite;
        break;
    case FsyncRing::Next::kWait:
        break;
    }
}

void FsyncLife::acknowledge(size_t index, Status result)
{
    const FsyncHeader& header = pending_[index].write->header;
    if (result.err() == Err::kIo)
        world_.lost("failed with members in service", header.sequence);
    for (LoggedRecord& record : world_.logged_) {
        if (record.sequence < header.sequence || record.sequence >= header.end_sequence())
            continue;
        record.acknowledged = record.acknowledged || result.ok();
        world_.report_.acknowledged += result.ok() ? 1 : 0;
    }
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
}

// A generation is closed, its commit is durable, the log hears of it.
void FsyncLife::step_commit()
{
    if (!closing_.has_value()) {
        closing_ = open_;
        open_ = open_.next();
        if (world_.is(FsyncMutant::kReuseEarly))
            ring_.retire(*closing_);
    } else if (!durable_) {
        durable_ = true;
        world_.committed_ = *closing_;
        world_.superblock_.generation = *closing_;
    } else {
        ring_.retire(*closing_);
        closing_.reset();
        durable_ = false;
    }
}

void FsyncLife::go()
{
    const uint64_t steps = prng_.between(20, 200);
    const uint64_t commit_every = prng_.between(3, 20);
    if (prng_.chance(3, 4))
        world_.power_.arm(prng_.between(1, 120));
    for (uint64_t step = 0; step < steps && world_.power_.on(); ++step) {
        if (prng_.chance(1, commit_every)) {
            step_commit();
        } else if (pending_.empty() || prng_.chance(1, 5)) {
            start_write();
        } else {
            advance(prng_.below(pending_.size()));
        }
    }
}

}  // namespace cowraid::test
