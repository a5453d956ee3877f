// SPDX-License-Identifier: MIT
// Which group, when it may begin, and how it leaves. Moving is in cleaner_move.cc.
#include "fs/maintain/cleaner.h"

#include <algorithm>

#include "base/log.h"
#include "fs/maintain/group_leftovers.h"
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
    const SpaceNumbers metadata = store_.allocator.numbers(kGroupMetadata);
    return {
        .free_blocks = data.free_stripe_blocks + potential,
        .total_blocks = data.total_blocks + potential,
        .idle = idle,
        .metadata_short = other == 0 && metadata.free_row_blocks < metadata.total_blocks / 4,
    };
}

GroupNumbers Cleaner::numbers_of(VolumeAddress group) const
{
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupData))
        if (numbers.address == group)
            return numbers;
    return {};
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

std::vector<GroupNumbers> Cleaner::candidates() const
{
    std::vector<GroupNumbers> groups = store_.allocator.group_numbers(kGroupData);
    const auto unfit = [&](const GroupNumbers& numbers) {
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        const bool leaves = numbers.closed && numbers.live_blocks == 0;  // fs/maintain/empty_groups.h
        return !group || leaves || group->record.content != kGroupData ||
               store_.remap.is_emptying(numbers.address);
    };
    groups.erase(std::remove_if(groups.begin(), groups.end(), unfit), groups.end());
    return groups;
}

void Cleaner::wait_for_commit(Transaction& open)
{
    open.dirty = true;
    wait_for_ = open.id;
}

bool Cleaner::resume(bool& waits)
{
    waits = false;
    for (const GroupRecord& group : store_.volume.map().groups) {
        if ((group.flags & kGroupEmptying) == 0)
            continue;
        const GroupNumbers numbers = numbers_of(group.address);
        if (numbers.broken || (set_aside_.count(group.address) != 0 && numbers.live_blocks > 0))
            continue;
        const uint64_t room = room_for(numbers);
        if (store_.data_turns.exclusive() || !store_.ledger.reserve_data(room)) {
            waits = true;
            continue;
        }
        store_.moving_blocks = room;
        group_ = next_ = group.address;
        refresh_budget(store_);
        return true;
    }
    return false;
}

std::optional<VolumeAddress> Cleaner::choose(CleanWhen when, bool idle) const
{
    const std::vector<GroupNumbers> groups = candidates();
    if (when == CleanWhen::kAny)
        return CleanPolicy::choose_any(groups);
    if (when == CleanWhen::kPolicy)
        return policy_.choose(groups, pressure(idle));
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
bool Cleaner::begin(CleanWhen when, bool idle)
{
    const std::optional<VolumeAddress> chosen = choose(when, idle);
    if (!chosen)
        return false;
    const GroupNumbers numbers = numbers_of(*chosen);
    const uint64_t own_rows = numbers.closed ? 0 : numbers.free_row_blocks;
    const uint64_t offered = numbers.closed ? 0 : own_rows + numbers.partial_row_blocks;
    const uint64_t room = room_for(numbers);
    // Its blocks go into rows, where writers are content with partial ones.
    const uint64_t rows = store_.allocator.numbers(kGroupData).free_row_blocks +
                          store_.volume.potential_blocks(kGroupData, SlotMembers::kPresent);
    if (rows < own_rows + room + store_.ledger.dirty_blocks() || store_.data_turns.exclusive() ||
        !store_.ledger.reserve_data(offered + room))
        return false;
    const Ref<Transaction> open = store_.timeline.open();
    if (!is_mutant(CommitMutant::kEmptyingUnmarked))
        store_.volume.set_emptying(*chosen);
    store_.remap.add_emptying(*chosen);
    store_.allocator.set_group_state(*chosen, Allocator::GroupState::kClosed);
    store_.moving_blocks = room;
    refresh_budget(store_);
    store_.ledger.release_data(offered);
    group_ = next_ = *chosen;
    wait_for_commit(*open);
    return true;
}

// Nothing refers to the group any more, but what is recorded about it.
CleanProgress Cleaner::leave_trees(const View& view)
{
    if (is_mutant(CommitMutant::kLeftoversStay))
        return leave_map();
    GroupLeftovers left;
    if (const Status status = find_leftovers(store_, view, group_, left); !status.ok()) {
        failed_ = true;
        CW_LOG_ERROR("emptying block groups ends for this mount: %s", err_text(status.err()));
        return CleanProgress::kNothing;
    }
    if (left.count() == 0)
        return leave_map();
    Transaction& open = *view.open;
    if (!erase_leftovers(store_, open, std::move(left)))
        return open.dirty ? CleanProgress::kNeedsCommit : CleanProgress::kNothing;
    wait_for_commit(open);
    return CleanProgress::kNeedsCommit;
}

CleanProgress Cleaner::leave_map()
{
    if (!store_.volume.drop_group(group_, store_.allocator).ok())
        return CleanProgress::kNeedsCommit;
    store_.remap.remove_emptying(group_);
    counts_.emptied_groups.fetch_add(1);
    CW_LOG_INFO("block group %llu is emptied and leaves the volume",
                static_cast<unsigned long long>(group_.value));
    store_.timeline.open()->dirty = true;
    finish_group();
    return CleanProgress::kWorked;
}

// It stays marked. Once its files are gone it can leave after all.
void Cleaner::set_aside()
{
    CW_LOG_WARNING(
        "block group %llu cannot be emptied: %llu of its blocks cannot be read, or have no logical address",
        static_cast<unsigned long long>(group_.value), static_cast<unsigned long long>(unmovable_));
    counts_.unmovable_blocks.fetch_add(unmovable_);
    set_aside_.insert(group_);
    finish_group();
}

void Cleaner::finish_group()
{
    group_ = next_ = {};
    unmovable_ = 0;
    moved_any_ = false;
    store_.ledger.release_data(store_.moving_blocks);
    store_.moving_blocks = 0;
    refresh_budget(store_);
}

CleanProgress Cleaner::step(CleanWhen when, bool idle)
{
    if (!store_.service.writing() || failed_)
        return CleanProgress::kNothing;
    bool waits;
    if (!group_.valid() && !resume(waits) && (waits || !begin(when, idle)))
        return CleanProgress::kNothing;
    const View view = store_.timeline.commit_view();
    CW_ASSERT(!view.committing);
    if (view.committed->transaction < wait_for_)
        return CleanProgress::kNeedsCommit;
    const GroupNumbers numbers = numbers_of(group_);
    if (numbers.broken) {
        set_aside();
        return CleanProgress::kWorked;
    }
    if (numbers.live_blocks > 0)
        return move(view);
    if (numbers.pinned_blocks > 0) {
        if (!is_mutant(CommitMutant::kDroppedPinned))
            return CleanProgress::kNeedsCommit;
        store_.allocator.release(view.committed->transaction, view.committed->generation);
    }
    return leave_trees(view);
}

}  // namespace cowraid
