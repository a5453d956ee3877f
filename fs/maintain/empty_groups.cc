// SPDX-License-Identifier: MIT
#include "fs/maintain/empty_groups.h"

#include <algorithm>

#include "base/log.h"
#include "fs/maintain/group_leftovers.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/operation.h"
#include "fs/txn/store.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

// A group made in its place would have all its members, or be wider. The next one may be planned before its
// slots are back: for one that is no wider the group is not given up, as that one would be given up in turn.
bool EmptyGroups::replaceable(VolumeAddress address) const
{
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(address);
    const Volume::PlannedWidths widths = store_.volume.planned_widths(address);
    if (store_.volume.array().missing_columns(*group) > 0)
        return widths.without > 0;
    const uint32_t width = group->record.data_columns;
    return widths.without > width && (widths.now == 0 || widths.now > width);
}

// Data could not have its slots: they are kept for nodes.
bool EmptyGroups::kept(uint32_t content, uint64_t blocks) const
{
    return content != kGroupData && !store_.volume.degraded() &&
           store_.allocator.numbers(content).whole_blocks <
               store_.volume.metadata_kept_blocks(content) + blocks;
}

// Nothing that was reserved, and nothing that is pending, needs the free rows of a group of this size. That
// writers are offered somewhat less than there is keeps no group.
bool EmptyGroups::give_up_room(uint32_t content, uint64_t blocks)
{
    if (content != kGroupData)
        return give_up_node_room(store_, content, blocks);
    return store_.ledger.try_give_up_room(blocks);
}

// Those that the balance under way empties; and whether it has closed them, so that they offer nothing.
std::map<VolumeAddress, bool> EmptyGroups::in_balance(uint32_t content) const
{
    std::map<VolumeAddress, bool> groups;
    if (store_.volume.superblock().balance.state != BalanceState::kRunning)
        return groups;
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(content))
        if (is_in_balance(store_, numbers))
            groups.emplace(numbers.address, numbers.closed);
    return groups;
}

bool EmptyGroups::is_leaving(VolumeAddress group) const
{
    return leaving_.count(group) != 0;
}

bool EmptyGroups::stays(const GroupNumbers& group) const
{
    return stays_.count(group.address) != 0 || (failed() && !group.closed);
}

bool EmptyGroups::waits_for_commit(const GroupNumbers& group) const
{
    return group.closed && !group.broken && group.live_blocks == 0 && !stays(group) &&
           (!no_room_ || store_.timeline.open()->dirty);
}

void EmptyGroups::choose(uint32_t content)
{
    const bool runs = store_.volume.superblock().balance.state == BalanceState::kRunning;
    const std::map<VolumeAddress, bool> balanced = in_balance(content);
    const uint64_t file_nodes = nodes_to_move(store_, kGroupMetadata);
    const uint64_t system_nodes = nodes_to_move(store_, kGroupSystem);
    bool given = false;
    for (const VolumeAddress address : store_.allocator.empty_groups(content)) {
        // A group that holds data and nodes is chosen once.
        if (is_leaving(address) || stays_.count(address) != 0)
            continue;
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(address);
        if (content == kGroupSystem && (group->record.content & kGroupMetadata) != 0)
            continue;
        const uint64_t blocks = group->geometry.data_blocks();
        const auto chosen = balanced.find(address);
        if (store_.remap.is_emptying(address) || (chosen != balanced.end() && chosen->second)) {
            leaving_.insert(address);
            continue;
        }
        if (failed())
            continue;
        const bool is_whole = store_.volume.array().missing_columns(*group) == 0;
        // What plan_ahead() looks at; a group for nodes of all trees is of both contents.
        const uint64_t reserved = store_.ledger.reserved_data();
        const auto spare_in = [&](uint32_t one) {
            if ((group->record.content & one) == 0)
                return true;
            const uint64_t ahead =
                one == kGroupData
                    ? std::max(data_ahead(store_), reserved)
                    : metadata_ahead(store_, one) + (one == kGroupMetadata ? file_nodes : system_nodes);
            const uint64_t room = lasting_room(store_, one) +
                                  (is_whole ? 0 : store_.allocator.numbers(one).degraded_row_blocks);
            return !kept(one, blocks) && room >= ahead + blocks;
        };
        const bool spare = chosen != balanced.end() ||
                           (spare_in(kGroupData) && spare_in(kGroupMetadata) && spare_in(kGroupSystem));
        // What a balance waits for is not given up for a wider one: the next plan, with its slots not back
        // yet, may be no wider, and so on.
        const bool awaited = (content == kGroupData && runs) ||
                             ((group->record.content & kGroupMetadata) != 0 && file_nodes > 0) ||
                             ((group->record.content & kGroupSystem) != 0 && system_nodes > 0);
        // A writer who waits alone gets what there is for data.
        if ((!spare && ((awaited && is_whole) || !replaceable(address))) ||
            (content == kGroupData && store_.data_turns.exclusive()))
            continue;
        if (!give_up_room(content == kGroupData ? kGroupData : group->record.content, blocks))
            continue;
        store_.allocator.set_group_state(address, Allocator::GroupState::kClosed);
        leaving_.insert(address);
        given = true;
    }
    if (given)
        refresh_budget(store_);
}

void EmptyGroups::drop(std::span<const VolumeAddress> groups)
{
    store_.volume.drop_groups(groups);
    for (const VolumeAddress address : groups) {
        if (!store_.remap.is_emptying(address))
            continue;
        store_.remap.remove_emptying(address);
        ++emptied_groups_;
        CW_LOG_INFO("block group %llu is emptied and leaves the volume",
                    static_cast<unsigned long long>(address.value));
    }
}

// Those of which nothing is recorded leave the map; of what is recorded about others a commit's share leaves
// the trees.
void EmptyGroups::leave(const View& view)
{
    GroupLeftovers left;
    uint64_t coming = 0;
    std::vector<VolumeAddress> gone;
    const size_t count = leaving_.size();
    std::erase_if(leaving_, [&](VolumeAddress address) {
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(address);
        // What a scrub recorded of it last comes into the trees first, and leaves them with the rest; so does
        // what was dropped for a discard, which changes the same items.
        const VolumeAddress end = group ? address + group->record.span_bytes() : address;
        if (group && (view.open->checksums.any_in(address, end) || view.open->dropped.any_in(address, end))) {
            view.open->dirty = true;
            return false;
        }
        const Result<LeftoverShare> share = is_mutant(CommitMutant::kLeftoversStay)
                                                ? Result<LeftoverShare>(LeftoverShare::kNone)
                                                : find_leftovers(store_, view, address, left);
        if (share.ok() && *share != LeftoverShare::kNone) {
            const bool is_data = (group->record.content & kGroupData) != 0;
            coming += *share == LeftoverShare::kAll && is_data ? group->geometry.data_blocks() : 0;
            return false;
        }
        const Status status = share.ok() ? store_.allocator.remove_group(address) : share.status();
        if (status.ok()) {
            gone.push_back(address);
            return true;
        }
        stays_.insert(address);
        CW_LOG_ERROR("block group %llu holds nothing and stays: %s; cowraid balance start or resume, and the "
                     "next mount, try again",
                     static_cast<unsigned long long>(address.value), err_text(status.err()));
        return true;
    });
    drop(gone);
    const size_t found = left.count();
    no_room_ = found > 0 && !erase_leftovers(store_, *view.open, std::move(left));
    leaving_blocks_ = view.open->left_count == found ? coming : 0;
    if (leaving_.size() == count && (found == 0 || no_room_))
        return;
    view.open->dirty = true;
    wait_for_ = view.open->id;
}

bool EmptyGroups::wants_commit() const
{
    return (!leaving_.empty() && !no_room_) || store_.timeline.view().committed->transaction < wait_for_;
}

void EmptyGroups::step()
{
    const View view = store_.timeline.commit_view();
    // While a mount recovers, the open transaction may know of rows in groups that hold nothing.
    if (!store_.service.writing() || view.committed->transaction < wait_for_)
        return;
    if (is_mutant(CommitMutant::kDroppedPinned))
        store_.allocator.release(view.committed->transaction, view.committed->generation);
    if (leaving_.empty()) {
        choose(kGroupData);
        choose(kGroupMetadata);
        choose(kGroupSystem);
    }
    if (!leaving_.empty())
        leave(view);
}

}  // namespace cowraid
