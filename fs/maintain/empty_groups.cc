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

// A group made in its place now would have all its members, or be wider.
bool EmptyGroups::replaceable(VolumeAddress address) const
{
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(address);
    const uint32_t width = store_.volume.planned_width_without(address);
    return store_.volume.array().missing_columns(*group) > 0 ? width > 0 : width > group->record.data_columns;
}

// Data could not have its slots: they are kept for nodes.
bool EmptyGroups::kept(uint32_t content, uint64_t blocks) const
{
    return content != kGroupData && !store_.volume.degraded() &&
           store_.allocator.numbers(content).whole_blocks <
               store_.volume.metadata_kept_blocks(content) + blocks;
}

// Nothing that was reserved, and nothing that is pending, needs the free rows of a group of this size.
bool EmptyGroups::give_up_room(uint32_t content, uint64_t blocks)
{
    if (content == kGroupData)
        return store_.ledger.reserve_data(blocks);
    return give_up_node_room(store_, content, blocks);
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
    return std::find(leaving_.begin(), leaving_.end(), group) != leaving_.end();
}

void EmptyGroups::let_go(VolumeAddress address, uint32_t content, uint64_t blocks)
{
    leaving_.push_back(address);
    if (content == kGroupData)
        leaving_blocks_ += blocks;
}

void EmptyGroups::choose(uint32_t content)
{
    const std::map<VolumeAddress, bool> balanced = in_balance(content);
    const uint64_t file_nodes = nodes_to_move(store_, kGroupMetadata);
    const uint64_t system_nodes = nodes_to_move(store_, kGroupSystem);
    for (const VolumeAddress address : store_.allocator.empty_groups(content)) {
        // A group that holds data and nodes is chosen once.
        if (is_leaving(address))
            continue;
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(address);
        if (content == kGroupSystem && (group->record.content & kGroupMetadata) != 0)
            continue;
        const uint64_t blocks = group->geometry.data_blocks();
        const auto chosen = balanced.find(address);
        if (store_.remap.is_emptying(address) || (chosen != balanced.end() && chosen->second)) {
            let_go(address, content, blocks);
            continue;
        }
        const bool is_whole = store_.volume.array().missing_columns(*group) == 0;
        // What plan_ahead() looks at; a group for nodes of all trees is of both contents.
        const auto spare_in = [&](uint32_t one) {
            if ((group->record.content & one) == 0)
                return true;
            const uint64_t ahead =
                one == kGroupData
                    ? data_ahead(store_)
                    : metadata_ahead(store_, one) + (one == kGroupMetadata ? file_nodes : system_nodes);
            const uint64_t room = lasting_room(store_, one) +
                                  (is_whole ? 0 : store_.allocator.numbers(one).degraded_row_blocks);
            return !kept(one, blocks) && room >= ahead + blocks;
        };
        const bool spare = chosen != balanced.end() ||
                           (spare_in(kGroupData) && spare_in(kGroupMetadata) && spare_in(kGroupSystem));
        // A writer who waits alone gets what there is for data.
        if ((!spare && !replaceable(address)) || (content == kGroupData && store_.data_turns.exclusive()))
            continue;
        const bool given = give_up_room(content == kGroupData ? kGroupData : group->record.content, blocks);
        if (given) {
            store_.allocator.set_group_state(address, Allocator::GroupState::kClosed);
            let_go(address, content, blocks);
        }
        refresh_budget(store_);
        if (given && content == kGroupData)
            store_.ledger.release_data(blocks);
    }
}

// A commit's share of what is recorded about them, or they themselves.
Status EmptyGroups::leave(const View& view)
{
    GroupLeftovers left;
    for (const VolumeAddress address : leaving_)
        if (!is_mutant(CommitMutant::kLeftoversStay))
            CW_TRY(find_leftovers(store_, view, address, left));
    if (left.count() > 0) {
        if (erase_leftovers(store_, *view.open, std::move(left)))
            wait_for_ = view.open->id;
        return {};
    }
    for (const VolumeAddress address : leaving_) {
        CW_TRY(store_.volume.drop_group(address, store_.allocator));
        if (!store_.remap.is_emptying(address))
            continue;
        store_.remap.remove_emptying(address);
        ++emptied_groups_;
        CW_LOG_INFO("block group %llu is emptied and leaves the volume",
                    static_cast<unsigned long long>(address.value));
    }
    leaving_.clear();
    leaving_blocks_ = 0;
    view.open->dirty = true;
    wait_for_ = view.open->id;
    return {};
}

bool EmptyGroups::wants_commit() const
{
    return (!leaving_.empty() && !failed_) || store_.timeline.view().committed->transaction < wait_for_;
}

void EmptyGroups::step()
{
    const View view = store_.timeline.commit_view();
    // While a mount recovers, the open transaction may know of rows in groups that hold nothing.
    if (!store_.service.writing() || failed_ || view.committed->transaction < wait_for_)
        return;
    if (is_mutant(CommitMutant::kDroppedPinned))
        store_.allocator.release(view.committed->transaction, view.committed->generation);
    if (leaving_.empty()) {
        choose(kGroupData);
        choose(kGroupMetadata);
        choose(kGroupSystem);
        std::sort(leaving_.begin(), leaving_.end());
    }
    if (leaving_.empty())
        return;
    if (const Status status = leave(view); !status.ok()) {
        failed_ = true;
        CW_LOG_ERROR("empty block groups stay for this mount: %s", err_text(status.err()));
    }
}

}  // namespace cowraid
