// SPDX-License-Identifier: MIT
// Which group, when it may begin, and how it leaves. Moving is in cleaner_move.cc.
#include "fs/maintain/cleaner.h"

#include <algorithm>

#include "base/log.h"
#include "fs/maintain/empty_groups.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/operation.h"
#include "fs/txn/store.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

CleanPressure Cleaner::pressure(bool idle) const
{
    const SpaceNumbers data = store_.allocator.numbers(kGroupData);
    const uint64_t potential = store_.volume.potential_blocks(kGroupData);
    const uint64_t other = store_.volume.potential_blocks(kGroupMetadata);
    const uint64_t dropped = store_.volume.dropped_blocks();  // theirs with the next commit
    const SpaceNumbers metadata = store_.allocator.numbers(kGroupMetadata);
    return {
        .free_blocks = data.free_stripe_blocks + potential + dropped,
        .total_blocks = data.total_blocks + potential + dropped,
        .idle = idle,
        .metadata_short = other + dropped == 0 && metadata.free_row_blocks < metadata.total_blocks / 4,
    };
}

uint64_t Cleaner::stripe_blocks(VolumeAddress group) const
{
    const Ref<const ArrayGroup> found = store_.volume.array().group_at(group);
    return found ? found->geometry.stripe_data_blocks() : 1;
}

// The blocks, rounded up to whole stripes once, and what a tail leaves over.
uint64_t Cleaner::room_for(const GroupNumbers& group) const
{
    return group.live_blocks + 2 * stripe_blocks(group.address);
}

// What moves goes into any group that has room: into one that tolerates less only by a balance, which was
// asked for it.
std::vector<GroupNumbers> Cleaner::candidates(CleanWhen when) const
{
    std::vector<GroupNumbers> groups = store_.allocator.group_numbers(kGroupData);
    uint32_t least = store_.volume.data_profile().tolerance;
    for (const Ref<const ArrayGroup>& group : store_.volume.array().groups())
        if (group->record.content == kGroupData)
            least = std::min(least, group->tolerance);
    const auto unfit = [&](const GroupNumbers& numbers) {
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        const bool leaves = numbers.closed && numbers.live_blocks == 0;  // fs/maintain/empty_groups.h
        return !group || leaves || group->record.content != kGroupData ||
               store_.remap.is_emptying(numbers.address) ||
               (when != CleanWhen::kBalance && group->tolerance > least);
    };
    groups.erase(std::remove_if(groups.begin(), groups.end(), unfit), groups.end());
    return groups;
}

void Cleaner::wait_for_commit(Source& source, Transaction& open)
{
    open.dirty = true;
    source.wait_for = open.id;
}

bool Cleaner::resume(bool& waits)
{
    waits = false;
    for (const GroupRecord& group : store_.volume.map().groups) {
        if ((group.flags & kGroupEmptying) == 0)
            continue;
        const std::optional<GroupNumbers> numbers = store_.allocator.numbers_of(group.address);
        const bool taken = std::any_of(sources_.begin(), sources_.end(),
                                       [&](const Source& source) { return source.group == group.address; });
        if (taken || !numbers || numbers->broken || numbers->live_blocks == 0 || is_set_aside(group.address))
            continue;
        const uint64_t room = room_for(*numbers);
        if (store_.data_turns.exclusive() || !store_.ledger.reserve_data(room)) {
            waits = true;
            continue;
        }
        store_.moving_blocks += room;
        sources_.push_back({.group = group.address, .reserved = room, .next = group.address});
        refresh_budget(store_);
        return true;
    }
    return false;
}

std::optional<VolumeAddress> Cleaner::choose(const Step& step) const
{
    if (step.when == CleanWhen::kMarked || empty_groups_.failed())
        return {};
    const std::vector<GroupNumbers> groups = candidates(step.when);
    if (step.when == CleanWhen::kAny)
        return CleanPolicy::choose_any(groups);
    if (step.when == CleanWhen::kPolicy)
        return policy_.choose(groups, pressure(step.idle));
    // The one that gives its slots back soonest. What holds nothing leaves by itself.
    const GroupNumbers* best = nullptr;
    for (const GroupNumbers& numbers : groups)
        if (!numbers.planned && !numbers.broken && numbers.live_blocks > 0 &&
            is_in_balance(store_, numbers) && (best == nullptr || numbers.live_blocks < best->live_blocks))
            best = &numbers;
    return best == nullptr ? std::optional<VolumeAddress>() : best->address;
}

// What the group offers to others is lost at once, what its blocks need is taken bit by bit: both must be
// there, beyond all that writers have reserved.
bool Cleaner::begin(const Step& step)
{
    const std::optional<VolumeAddress> chosen = choose(step);
    const std::optional<GroupNumbers> numbers =
        chosen ? store_.allocator.numbers_of(*chosen) : std::optional<GroupNumbers>();
    if (!numbers)
        return false;
    const uint64_t offered = numbers->closed ? 0 : numbers->free_row_blocks + numbers->partial_row_blocks;
    const uint64_t room = room_for(*numbers);
    // Writers go without the groups on their way until the slots are back. A balance leaves them half of what
    // there is, beside the group that it cannot do without.
    const uint64_t on_way = emptying_blocks();
    if (on_way > 0 && (step.when != CleanWhen::kBalance ||
                       (on_way + numbers->total_blocks) * 2 > on_way + store_.ledger.data_available()))
        return false;
    // Its blocks go into rows of open groups, where writers are content with partial ones, and with degraded
    // groups.
    const uint64_t own_rows = numbers->open() ? numbers->free_row_blocks : 0;
    const uint64_t rows = store_.allocator.numbers(kGroupData).free_row_blocks +
                          store_.volume.potential_blocks(kGroupData, SlotMembers::kPresent);
    if (rows < own_rows + room + store_.moving_blocks + store_.ledger.dirty_blocks() ||
        store_.data_turns.exclusive() || !store_.ledger.reserve_data(offered + room))
        return false;
    const Ref<Transaction> open = store_.timeline.open();
    if (!is_mutant(CommitMutant::kEmptyingUnmarked))
        store_.volume.set_emptying(*chosen);
    store_.remap.add_emptying(*chosen);
    store_.allocator.set_group_state(*chosen, Allocator::GroupState::kClosed);
    store_.moving_blocks += room;
    refresh_budget(store_);
    store_.ledger.release_data(offered);
    sources_.push_back({.group = *chosen, .reserved = room, .next = *chosen});
    wait_for_commit(sources_.back(), *open);
    return true;
}

// A balance marks the next groups while one moves, so that a commit serves many.
void Cleaner::find_sources(const Step& step)
{
    constexpr uint64_t kBlocksAhead = 512 * kMiB / kBlockBytes;  // live ones
    constexpr int kMarks = 4;  // in one step: each looks at all groups
    bool waits = false;
    for (int marks = 0; marks < kMarks; ++marks) {
        const bool wants =
            sources_.empty() || (step.when == CleanWhen::kBalance && store_.moving_blocks < kBlocksAhead);
        if (!wants || (!resume(waits) && (waits || !begin(step))))
            return;
    }
}

void Cleaner::reserve_for_marked()
{
    for (bool waits = false; resume(waits);)
        continue;
}

uint64_t Cleaner::emptying_blocks() const
{
    uint64_t blocks = 0;
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupData))
        if (store_.remap.is_emptying(numbers.address) && !numbers.broken && !is_set_aside(numbers.address) &&
            !(numbers.live_blocks == 0 && empty_groups_.stays(numbers)))
            blocks += numbers.total_blocks;
    return blocks;
}

// What is left in a group that is being emptied is pinned, or recorded in trees.
bool Cleaner::waits_for_commit() const
{
    const std::vector<GroupNumbers> groups = store_.allocator.group_numbers(kGroupData);
    return std::any_of(groups.begin(), groups.end(), [&](const GroupNumbers& numbers) {
        return store_.remap.is_emptying(numbers.address) && empty_groups_.waits_for_commit(numbers);
    });
}

// It stays marked. Once its files are gone it can leave after all.
void Cleaner::set_aside(Source& source)
{
    CW_LOG_WARNING(
        "block group %llu cannot be emptied: %llu of its blocks cannot be read, or have no logical address",
        static_cast<unsigned long long>(source.group.value),
        static_cast<unsigned long long>(source.unmovable));
    counts_.unmovable_blocks.fetch_add(source.unmovable);
    set_aside_.insert(source.group);
    finish(static_cast<size_t>(&source - sources_.data()));
}

// So many of the blocks reserved for a group are needed no more, or were taken.
void Cleaner::take_reserved(Source& source, uint64_t blocks)
{
    source.reserved -= blocks;
    store_.moving_blocks -= blocks;
}

void Cleaner::finish(size_t index)
{
    const uint64_t left = sources_[index].reserved;
    take_reserved(sources_[index], left);
    store_.ledger.release_data(left);
    sources_.erase(sources_.begin() + static_cast<ptrdiff_t>(index));
    if (sources_.empty())
        batch_ = {};
    refresh_budget(store_);
}

void Cleaner::drop_finished()
{
    for (size_t i = 0; i < sources_.size();) {
        const std::optional<GroupNumbers> numbers = store_.allocator.numbers_of(sources_[i].group);
        if (numbers && numbers->broken)
            set_aside(sources_[i]);
        else if (failed_ || !numbers || numbers->live_blocks == 0)
            finish(i);
        else
            ++i;
    }
}

CleanProgress Cleaner::step(const Step& step)
{
    if (!store_.service.writing())
        return CleanProgress::kNothing;
    drop_finished();
    if (failed_)
        return CleanProgress::kNothing;
    find_sources(step);
    // While somebody reads an older commit another one frees nothing more.
    if (sources_.empty())
        return waits_for_commit() && (step.when != CleanWhen::kPolicy || !store_.timeline.reads_older())
                   ? CleanProgress::kNeedsCommit
                   : CleanProgress::kNothing;
    const View view = store_.timeline.commit_view();
    CW_ASSERT(!view.committing);
    if (view.committed->transaction < sources_.front().wait_for)
        return CleanProgress::kNeedsCommit;
    return move(sources_.front(), view, step.bytes);
}

}  // namespace cowraid
