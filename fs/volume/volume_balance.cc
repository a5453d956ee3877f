// SPDX-License-Identifier: MIT
// What a balance says of groups: which it empties, and as what new ones are made meanwhile; and what a scrub
// says of them.
#include <algorithm>
#include <iterator>

#include "format/feature_table.h"
#include "fs/volume/volume.h"

namespace cowraid {

VolumeProfiles Volume::profiles() const
{
    MutexLock lock(mutex_);
    return {shown_.data_profile, shown_.metadata_profile};
}

void Volume::set_balance(const BalanceRecord& balance, const VolumeProfiles& profiles)
{
    commit_thread_.assert_here();
    next_.balance = balance;
    next_.incompat_features &= ~(feature_bit("chosen") | feature_bit("shrink"));
    if (balance.shrink_bytes != 0)
        next_.incompat_features |= feature_bit("shrink");
    if ((balance.content & kBalanceChosen) == 0)
        chosen_.clear();
    else
        next_.incompat_features |= feature_bit("chosen");
    for (GroupRecord& group : map_.groups) {
        group.flags &= ~kGroupChosen;
        group.flags |= chosen_.count(group.address) != 0 ? kGroupChosen : 0;
    }
    next_.data_profile = profiles.data;
    next_.metadata_profile = profiles.metadata;
    map_changed_ = true;
}

void Volume::note_scrub(const ScrubRecord& scrub, std::span<const VerifiedGroup> groups)
{
    commit_thread_.assert_here();
    next_.scrub = scrub;
    for (const VerifiedGroup& verified : groups)
        for (GroupRecord& group : map_.groups) {
            const bool mirrored_nodes =
                find_profile(group.profile)->parity == 0 && group.content != kGroupData;
            if (group.address != verified.address && (verified.address.valid() || !mirrored_nodes))
                continue;
            group.verified_seconds = verified.seconds;
            map_changed_ = true;
            newly_stale_.push_back(group);
        }
    publish_stale();
}

uint64_t Volume::first_emptied_slot(const BalanceRecord& balance) const
{
    const MemberRecord* const member = committed_.member(balance.member);
    MemberRecord shrunk = member != nullptr ? *member : MemberRecord();
    return shrink_member_layout(shrunk, balance.shrink_bytes).ok() ? shrunk.slot_count : 0;
}

bool Volume::selects(const BalanceRecord& balance, const VolumeProfiles& profiles,
                     const GroupRecord& group) const
{
    commit_thread_.assert_here();
    if (balance.state == BalanceState::kNone || (group.content & balance.content & kAllContent) == 0 ||
        ((balance.content & kBalanceChosen) != 0 && chosen_.count(group.address) == 0))
        return false;
    // Also those that are too large for the members that are left.
    if (balance.removed().value != 0 && group.column_bytes > column_bytes_max(next_, balance.member))
        return true;
    if (balance.member.value != 0)
        return std::any_of(group.columns.begin(), group.columns.end(),
                           [&, first = first_emptied_slot(balance)](const GroupColumn& column) {
                               return column.member == balance.member &&
                                      std::any_of(
                                          column.runs.begin(), column.runs.end(), [=](const SlotRun& run) {
                                              return run.first_slot + uint64_t{run.slot_count} > first;
                                          });
                           });
    if (balance.before.value != 0)
        return group.created_generation < balance.before;
    if ((group.content & kGroupData) != 0)
        return group.profile != profiles.data;
    const Profile& metadata = *find_profile(profiles.metadata);
    if (metadata.parity == 0)
        return group.profile != metadata.id || (group.content & kGroupMetadata) == 0;
    const bool is_system = group.content == kGroupSystem;
    return group.profile != (is_system ? system_profile_of(metadata) : metadata).id;
}

std::vector<VolumeAddress> Volume::emptied_groups(const BalanceRecord& balance,
                                                  const VolumeProfiles& profiles, uint32_t content) const
{
    std::vector<VolumeAddress> groups;
    for (const GroupRecord& group : map_.groups)
        if ((group.content & content) != 0 && selects(balance, profiles, group))
            groups.push_back(group.address);
    return groups;
}

SlotAllocator Volume::slots_in_balance(const BalanceRecord& balance,
                                       const std::vector<VolumeAddress>& emptied) const
{
    note_present();
    SlotAllocator slots = slots_;
    if (balance.removed().value != 0)
        slots.set_leaving(balance.member, true);
    else if (balance.shrink_bytes != 0)
        slots.set_limit(balance.member, first_emptied_slot(balance));
    for (const GroupRecord& group : map_.groups)
        if (std::binary_search(emptied.begin(), emptied.end(), group.address))
            slots.give_back(group);
    return slots;
}

uint64_t Volume::potential_in_balance(const BalanceRecord& balance, const VolumeProfiles& profiles) const
{
    commit_thread_.assert_here();
    MutexLock lock(mutex_);
    // What moves goes to groups of present members (Cleaner::begin()).
    return slots_in_balance(balance, {})
        .potential_blocks(*find_profile(profiles.data), identity_.chunk_bytes,
                          left_for_nodes_after(profiles, {}, {}), SlotMembers::kPresent);
}

uint64_t Volume::potential_after_balance(const BalanceRecord& balance, const VolumeProfiles& profiles,
                                         const MetadataNeed& nodes) const
{
    commit_thread_.assert_here();
    const std::vector<VolumeAddress> emptied = emptied_groups(balance, profiles, kAllContent);
    MutexLock lock(mutex_);
    return slots_in_balance(balance, emptied)
        .potential_blocks(*find_profile(profiles.data), identity_.chunk_bytes,
                          left_for_nodes_after(profiles, nodes, emptied), SlotMembers::kPresent);
}

std::vector<SlotAllocator::Share>
Volume::left_for_nodes_after(const VolumeProfiles& profiles, const MetadataNeed& nodes,
                             const std::vector<VolumeAddress>& emptied) const
{
    const Profile& metadata = *find_profile(profiles.metadata);
    MetadataNeed need = metadata_need_of(*find_profile(profiles.data), metadata, SlotMembers::kPresent);
    need.file_blocks = std::max(need.file_blocks, nodes.file_blocks);
    need.system_blocks = std::max(need.system_blocks, nodes.system_blocks);
    return left_for_nodes(need, metadata, nullptr, emptied);
}

bool Volume::has_room_for(const BalanceRecord& balance, const VolumeProfiles& profiles,
                          const DataMoves& moves) const
{
    commit_thread_.assert_here();
    const std::vector<VolumeAddress> nodes = emptied_groups(balance, profiles, kGroupMetadata | kGroupSystem);
    std::vector<VolumeAddress> gone = nodes;
    if (!gone.empty())
        gone.pop_back();  // of the last one the slots are not back yet
    MutexLock lock(mutex_);
    const Profile& data = *find_profile(profiles.data);
    return fit_beside(data, moves, slots_in_balance(balance, {}), left_for_nodes_after(profiles, {}, {})) &&
           (nodes.empty() || fit_beside(data, moves, slots_in_balance(balance, gone),
                                        left_for_nodes_after(profiles, moves.nodes, nodes)));
}

bool Volume::fit_beside(const Profile& data, const DataMoves& all, const SlotAllocator& free,
                        const std::vector<SlotAllocator::Share>& nodes)
{
    SlotForecast slots = free.forecast(SlotMembers::kPresent);
    for (const SlotAllocator::Share& share : nodes)
        slots.make_groups(*share.profile, share.blocks);
    std::vector<DataMove> moves = all.moves;
    std::stable_sort(moves.begin(), moves.end(),
                     [](const DataMove& a, const DataMove& b) { return a.blocks < b.blocks; });
    uint64_t rows = all.rows;
    uint64_t lent = 0;  // free rows of groups that will be emptied
    for (const DataMove& move : moves)
        lent += move.own_rows;
    for (DataMove& move : moves) {
        const uint64_t asked = move.blocks + (move.blocks > 0 ? move.margin : 0) + all.reserved;
        const uint64_t needed = asked > 0 ? asked + all.slack : 0;  // as of Ledger::reserve_data()
        lent -= std::min(lent, move.own_rows);
        if (rows < needed)
            rows += slots.make_groups(data, needed - rows);
        if (rows + lent < needed)
            return false;
        const uint64_t again = move.blocks - std::min(rows, move.blocks);  // moved once more with the last
        rows -= move.blocks - again;
        lent -= again;
        moves.back().blocks += again;
        slots.give_back(move.group->record);
    }
    return true;
}

uint64_t Volume::node_potential_in_balance(const BalanceRecord& balance, const VolumeProfiles& profiles,
                                           bool emptied, const NodeDemand& demand) const
{
    commit_thread_.assert_here();
    const uint32_t content = balance.member.value != 0 ? kAllContent : kGroupMetadata | kGroupSystem;
    const std::vector<VolumeAddress> emptied_ones = emptied_groups(balance, profiles, emptied ? content : 0);
    std::vector<VolumeAddress> leaving;
    std::set_union(emptied_ones.begin(), emptied_ones.end(), demand.leaving.begin(), demand.leaving.end(),
                   std::back_inserter(leaving));
    MutexLock lock(mutex_);
    const SlotAllocator slots = slots_in_balance(balance, leaving);
    const Profile& metadata = *find_profile(profiles.metadata);
    const Profile& system = system_profile_of(metadata);
    const auto potential = [&](const Profile& profile, const std::vector<SlotAllocator::Share>& beside) {
        return slots.potential_blocks(profile, identity_.chunk_bytes, beside, SlotMembers::kPresent);
    };
    std::vector<SlotAllocator::Share> beside{{find_profile(profiles.data), demand.data_blocks}};
    if (metadata.parity == 0 || !demand.files)
        return potential(system, beside);
    if (demand.system_blocks > 0) {
        if (potential(system, beside) < demand.system_blocks)
            return 0;
        beside.push_back({&system, demand.system_blocks});
    }
    return potential(metadata, beside);
}

}  // namespace cowraid
