// SPDX-License-Identifier: MIT
// What the superblock says of a scrub, and when it is to say something new.
#include "base/clock.h"
#include "fs/maintain/scrub.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

// While nobody else commits anything, the position of a scrub that runs is made durable so often.
constexpr uint64_t kTakeMs = 30000;

// In the order that docs/FORMAT.md gives.
constexpr uint64_t ScrubStatus::*kNumbers[] = {
    &ScrubStatus::bytes_done,
    &ScrubStatus::bytes_total,
    &ScrubStatus::data_blocks,
    &ScrubStatus::parity_blocks,
    &ScrubStatus::nodes,
    &ScrubStatus::heads,
    &ScrubStatus::repaired,
    &ScrubStatus::unrepaired,
    &ScrubStatus::adopted,
    &ScrubStatus::lost,
    &ScrubStatus::unreadable_nodes,
    &ScrubStatus::unverified,
    &ScrubStatus::earlier_unrepaired,
};
// Behind them: ScrubPosition::round.
constexpr size_t kRoundNumber = std::size(kNumbers);
static_assert(kRoundNumber < kScrubNumberCount);

ScrubOptions::Plan plan_of(const ScrubRecord& record)
{
    if ((record.flags & kScrubNewOnly) != 0)
        return ScrubOptions::Plan::kNew;
    if ((record.flags & kScrubDamagedOnly) != 0)
        return ScrubOptions::Plan::kBad;
    return record.bytes_max > 0 ? ScrubOptions::Plan::kPercent : ScrubOptions::Plan::kFull;
}

}  // namespace

void Scrub::begin_position(const ScrubSelection& selection)
{
    selection_ = selection;
    const VolumeAddress round = position_.round;
    position_ = {};
    position_.round = round;
    if (selection.bytes_max > 0)
        position_.group = position_.round = round;
}

// All before it has ended.
const ScrubPosition& Scrub::durable_position() const
{
    return issued_.empty() ? position_ : issued_.begin()->second.before;
}

void Scrub::load(const ScrubRecord& record)
{
    status_.state = record.state;
    status_.options.mode = (record.flags & kScrubLooks) != 0 ? ScrubMode::kLook : ScrubMode::kRepair;
    status_.options.limit = record.limit;
    status_.options.plan = plan_of(record);
    status_.options.percent = 0;  // not recorded
    status_.started = record.started;
    status_.ended = record.ended;
    status_.run_ms = record.run_ms;
    for (size_t index = 0; index < std::size(kNumbers); ++index)
        status_.*kNumbers[index] = record.numbers[index];
    status_.members = record.members;
    unreached_ = status_.unreadable_nodes > 0;
    selection_ = {.verified_before = record.verified_before,
                  .bytes_max = record.bytes_max,
                  .new_only = (record.flags & kScrubNewOnly) != 0,
                  .damaged_only = (record.flags & kScrubDamagedOnly) != 0};
    bytes_begun_ = status_.bytes_done;
    const bool rows_done = (record.flags & kScrubRowsDone) != 0;
    position_ = {.tree = record.tree,
                 .key = record.key,
                 .group = record.group,
                 .stripe = rows_done ? 0 : record.stripe,
                 .rows_done = rows_done,
                 .head = rows_done ? static_cast<uint32_t>(record.stripe) : 0,
                 .round = {record.numbers[kRoundNumber]}};
    if ((record.flags & kScrubGroupWell) != 0)
        passes_[position_.in_trees() ? VolumeAddress{} : position_.group] = {
            .columns = {}, .begun = true, .seconds = record.started};
    since_ms_ = monotonic_ms();
}

ScrubRecord Scrub::record() const
{
    if (status_.state == ScrubState::kNone)
        return {};
    const ScrubPosition& position = durable_position();
    const auto pass = passes_.find(position.in_trees() ? VolumeAddress{} : position.group);
    const bool well =
        pass != passes_.end() && pass->second.begun && !pass->second.failed && !pass->second.unverified;
    const bool rows_done = position.rows_done || is_mutant(CommitMutant::kScrubAhead);
    ScrubRecord record{
        .state = status_.state,
        .flags = (status_.options.mode == ScrubMode::kLook ? kScrubLooks : 0) |
                 (rows_done ? kScrubRowsDone : 0) | (selection_.new_only ? kScrubNewOnly : 0) |
                 (selection_.damaged_only ? kScrubDamagedOnly : 0) | (well ? kScrubGroupWell : 0),
        .limit = status_.options.limit,
        .started = status_.started,
        .ended = status_.ended,
        .run_ms = run_ms(),
        .verified_before = selection_.verified_before,
        .bytes_max = selection_.bytes_max,
        .numbers = {},
        .members = status_.members,
        .key = position.key,
        .tree = position.tree,
        .group = position.group,
        .stripe = rows_done ? position.head : position.stripe,
    };
    for (size_t index = 0; index < std::size(kNumbers); ++index)
        record.numbers[index] = status_.*kNumbers[index];
    record.numbers[kRoundNumber] = position.round.value;
    return record;
}

Scrub::Progress Scrub::take_progress()
{
    MutexLock lock(mutex_);
    taken_ms_ = monotonic_ms();
    return {record(), std::exchange(verified_, {})};
}

bool Scrub::wants_commit() const
{
    MutexLock lock(mutex_);
    const ScrubRecord& durable = store_.volume.superblock().scrub;
    if (stopped_ || status_.state != ScrubState::kRunning)
        return !verified_.empty() || record() != durable;
    if (durable.state != status_.state || durable.started != status_.started)
        return true;
    return store_.options.manual_commit || monotonic_ms() - taken_ms_ >= kTakeMs;
}

}  // namespace cowraid
