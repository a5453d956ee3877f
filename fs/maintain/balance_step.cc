// SPDX-License-Identifier: MIT
// The steps of a balance.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "fs/maintain/balance.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

// Of one commit: 8 MiB. Fewer are not worth the nodes above them.
constexpr uint64_t kNodesMax = 512;
constexpr uint64_t kNodesMin = 8;
// Over all trees: commits between its pieces may have moved what it looked for.
constexpr uint32_t kEmptyPassesMax = 3;

}  // namespace

// Those of a content that the balance empties.
std::vector<GroupNumbers> Balance::chosen(uint32_t content) const
{
    std::vector<GroupNumbers> groups = store_.allocator.group_numbers(content);
    groups.erase(std::remove_if(groups.begin(), groups.end(),
                                [&](const GroupNumbers& numbers) { return !is_in_balance(store_, numbers); }),
                 groups.end());
    return groups;
}

// Its blocks, or some of them, could not be moved.
bool Balance::is_stuck(const GroupNumbers& numbers) const
{
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
    const bool by_cleaner = group && group->record.content == kGroupData;
    return store_.stuck_groups.count(numbers.address) != 0 || cleaner_.is_set_aside(numbers.address) ||
           (by_cleaner && cleaner_.failed()) || empty_groups_.stays(numbers);
}

// This mount cannot empty it, or take it out of the map.
bool Balance::stays(const GroupNumbers& numbers) const
{
    return numbers.broken || (numbers.live_blocks > 0 ? is_stuck(numbers) : empty_groups_.stays(numbers));
}

// What moves, and what others write meanwhile, goes elsewhere as long as there is room.
void Balance::avoid_groups()
{
    for (const GroupNumbers& numbers : chosen(kAllContent))
        store_.allocator.set_avoided(numbers.address, true);
    if (store_.volume.superblock().balance.state != BalanceState::kNone)
        count_left();
}

// Whether other groups have room for so many blocks of nodes of a group, whichever trees they are of, beside
// what commits are kept ahead of.
bool Balance::have_room_for(uint32_t content, uint64_t blocks) const
{
    const auto room_in = [&](uint32_t one) {
        return lasting_room(store_, one) >= metadata_ahead(store_, one) / 2 + blocks * 5 / 4;
    };
    return ((content & kGroupMetadata) == 0 || room_in(kGroupMetadata)) &&
           ((content & kGroupSystem) == 0 || room_in(kGroupSystem));
}

// The emptiest takes no nodes any more, when others have room for what is in it. One at a time, whichever
// trees its nodes are of: what comes free in a closed group is of no use to anybody.
void Balance::close_nodes(uint32_t content)
{
    std::optional<GroupNumbers> next;
    uint32_t next_content = 0;
    for (const GroupNumbers& numbers : chosen(kGroupMetadata | kGroupSystem)) {
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        const bool of_files = (group->record.content & kGroupMetadata) != 0;
        if (is_stuck(numbers) || numbers.planned || numbers.broken)
            continue;
        if (numbers.closed && numbers.live_blocks + numbers.pinned_blocks > 0)
            return;
        if (numbers.closed || of_files != (content == kGroupMetadata) ||
            (next && next->live_blocks <= numbers.live_blocks))
            continue;
        next = numbers;
        next_content = group->record.content;
    }
    if (!next || !have_room_for(next_content, next->live_blocks) ||
        !give_up_node_room(store_, next_content, next->free_row_blocks))
        return;
    store_.allocator.set_group_state(next->address, Allocator::GroupState::kClosed);
    refresh_budget(store_);
}

std::set<VolumeAddress> Balance::node_groups() const
{
    std::set<VolumeAddress> groups;
    for (const uint32_t content : {kGroupMetadata, kGroupSystem})
        for (const GroupNumbers& numbers : chosen(content))
            if (numbers.closed && numbers.live_blocks > 0 && !is_stuck(numbers))
                groups.insert(numbers.address);
    return groups;
}

bool Balance::count_left()
{
    const Superblock& superblock = store_.volume.superblock();
    const VolumeProfiles profiles{superblock.data_profile, superblock.metadata_profile};
    uint64_t blocks = 0;
    uint64_t groups = 0, stuck = 0;
    bool waits_for_commit = false;
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kAllContent)) {
        if (!selects(superblock.balance, profiles, numbers))
            continue;
        ++groups;
        blocks += numbers.live_blocks;
        stuck += stays(numbers) ? 1 : 0;
        waits_for_commit = waits_for_commit || numbers.planned || empty_groups_.waits_for_commit(numbers);
    }
    const uint64_t damaged = stuck > 0 ? damaged_blocks(superblock.balance, profiles) : 0;
    MutexLock lock(mutex_);
    status_.damaged_blocks = damaged;
    // What comes while it rests is more to do, and nothing is undone by it.
    const uint64_t left = blocks * kBlockBytes;
    if (status_.state == BalanceStatus::State::kPaused && left > status_.bytes_left)
        status_.bytes_total += left - status_.bytes_left;
    if (groups > status_.groups_left)
        status_.groups_total += groups - status_.groups_left;
    status_.bytes_left = left;
    status_.groups_left = groups;
    status_.groups_stuck = stuck;
    return waits_for_commit;
}

// The last superblock says so: nobody is told before that.
void Balance::notice_end()
{
    const BalanceStatus now = status();
    if (store_.volume.superblock().balance.state != BalanceState::kNone ||
        now.state != BalanceStatus::State::kRunning)
        return;
    enter(BalanceStatus::State::kFinished, {}, now.profiles);
    if (now.groups_stuck == 0)
        CW_LOG_INFO("balance finished");
    else
        CW_LOG_WARNING("balance finished: %llu block groups could not be emptied",
                       static_cast<unsigned long long>(now.groups_stuck));
}

// Another member failed: this one is needed.
CleanProgress Balance::rest()
{
    const MemberId member = store_.volume.superblock().balance.member;
    CW_LOG_WARNING(
        "the removal of %s is paused: without it too few members are in service; bring back or "
        "replace what is out of service, or add a device, then cowraid balance resume lets it go on; "
        "cowraid balance cancel ends it",
        store_.volume.members().name(member).c_str());
    std::string ignored;
    return change(BalanceStatus::State::kPaused, ignored).ok() ? CleanProgress::kNeedsCommit
                                                               : CleanProgress::kNothing;
}

// What it empties a member for, if it does. False: others are needed, which are not in service.
bool Balance::end_member(const BalanceRecord& record)
{
    if (record.removed().value != 0)
        return store_.volume.remove_member(record.member);
    if (record.shrink_bytes != 0 && !store_.volume.shrink_member(record.member, record.shrink_bytes))
        CW_LOG_WARNING(
            "%s stays as it is: block groups that were made meanwhile are too large for smaller members",
            store_.volume.members().name(record.member).c_str());
    return true;
}

CleanProgress Balance::move_data(uint64_t bytes)
{
    const uint64_t before = cleaner_.counts().moved_blocks, began_ms = monotonic_ms();
    const CleanProgress progress = cleaner_.step({.when = CleanWhen::kBalance, .bytes = bytes});
    const uint64_t moved_bytes = (cleaner_.counts().moved_blocks - before) * kBlockBytes;
    MutexLock lock(mutex_);
    status_.moved_bytes += moved_bytes;
    status_.bytes_left -= std::min(status_.bytes_left, moved_bytes);
    if (moved_bytes > 0)
        set_waits_for_room(false, began_ms);
    return progress;
}

CleanProgress Balance::step(uint64_t bytes)
{
    const BalanceRecord& record = store_.volume.superblock().balance;
    notice_end();
    if (record.state != BalanceState::kRunning || status().state != BalanceStatus::State::kRunning ||
        !store_.service.writing())
        return CleanProgress::kNothing;
    if (store_.volume.balance_ends())
        return CleanProgress::kNeedsCommit;
    if (record.removed().value != 0 && !store_.volume.may_remove_member(record.member))
        return rest();
    // Groups are looked at once between two commits, as long as there are blocks to be moved.
    std::optional<CleanProgress> moved;
    const TransactionId committed = store_.timeline.view().committed->transaction;
    if (std::exchange(looked_, committed) == std::optional(committed)) {
        moved = move_data(bytes);
        if (*moved == CleanProgress::kWorked)
            return *moved;
    }
    avoid_groups();
    close_nodes(kGroupMetadata);
    close_nodes(kGroupSystem);
    const bool waits_for_commit = count_left();
    if (const BalanceStatus now = status(); now.groups_left == now.groups_stuck) {
        if (now.groups_stuck == 0 && !end_member(record))
            return rest();
        reopen_groups();
        cleaner_.drop_finished();
        store_.volume.set_balance({}, now.profiles);
        return CleanProgress::kNeedsCommit;
    }
    CleanProgress progress = moved ? *moved : move_data(bytes);
    // Without a commit nobody plans the groups that nodes wait for.
    if (progress == CleanProgress::kNothing && !waits_for_commit && node_groups().empty())
        plan_ahead(store_).ignore();
    // A changed map: groups of it take blocks, slots of others come free with it.
    if (progress == CleanProgress::kNothing && (waits_for_commit || store_.volume.map_changed()))
        progress = CleanProgress::kNeedsCommit;
    const bool moves = !std::exchange(no_room_for_moves_, false) && !node_groups().empty();
    if (progress != CleanProgress::kWorked && moves) {
        wants_moves_ = store_.timeline.open()->dirty = true;
        progress = CleanProgress::kNeedsCommit;
    }
    MutexLock lock(mutex_);
    set_waits_for_room(progress == CleanProgress::kNothing, monotonic_ms());
    return progress;
}

// Nodes that are still there are in no tree, or below one that cannot be read.
void Balance::end_pass()
{
    position_ = {};
    empty_passes_ = found_any_ ? 0 : empty_passes_ + 1;
    found_any_ = false;
    if (empty_passes_ < kEmptyPassesMax)
        return;
    empty_passes_ = 0;
    for (const VolumeAddress address : node_groups()) {
        CW_LOG_WARNING("block group %llu cannot be emptied: nodes in it cannot be reached; run cowraid check",
                       static_cast<unsigned long long>(address.value));
        store_.stuck_groups.insert(address);
    }
}

void Balance::plan_moves()
{
    if (!std::exchange(wants_moves_, false) ||
        store_.volume.superblock().balance.state != BalanceState::kRunning)
        return;
    const std::set<VolumeAddress> groups = node_groups();
    const View view = store_.timeline.view();
    Transaction& open = *view.open;
    for (uint64_t count = kNodesMax; count >= kNodesMin; count /= 2) {
        ChangeReservation reservation(store_.ledger);
        if (!reservation.take({.moved_nodes = count, .moved_system_nodes = count}, Leave::kReserve))
            continue;
        if (!find_nodes(store_, view, groups, count, position_, open.moved_keys).ok())
            CW_LOG_WARNING("a tree node cannot be read: the block group it is in may stay");
        uint64_t system_nodes = 0;
        for (uint32_t tree = 0; tree < kTreeCount; ++tree)
            if (tree != static_cast<uint32_t>(TreeIndex::kFiles))
                system_nodes += open.moved_keys[tree].size();
        open.emptied_file_nodes = open.moved_keys[static_cast<size_t>(TreeIndex::kFiles)].size();
        open.emptied_system_nodes = system_nodes;
        found_any_ = found_any_ || open.emptied_file_nodes + system_nodes > 0;
        {
            MutexLock lock(mutex_);
            status_.moved_bytes += (open.emptied_file_nodes + system_nodes) * kNodeBytes;
        }
        open.dirty = true;
        if (position_.tree >= kTreeCount)
            end_pass();
        return;
    }
    no_room_for_moves_ = true;
}

}  // namespace cowraid
