// SPDX-License-Identifier: MIT
// What a balance says of groups: which it empties, and as what new ones are made meanwhile; and what a scrub
// says of them.
#include <algorithm>

#include "format/feature_table.h"
#include "fs/volume/volume.h"

namespace cowraid {

VolumeProfiles Volume::profiles() const
{
    MutexLock lock(mutex_);
    return {committed_.data_profile, committed_.metadata_profile};
}

void Volume::set_balance(const BalanceRecord& balance, const VolumeProfiles& profiles)
{
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

// Others plan by them.
void Volume::profiles_are_committed()
{
    if (committed_.data_profile == next_.data_profile &&
        committed_.metadata_profile == next_.metadata_profile)
        return;
    MutexLock lock(mutex_);
    committed_.data_profile = next_.data_profile;
    committed_.metadata_profile = next_.metadata_profile;
    forget_potential();
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
    if (balance.state == BalanceState::kNone || (group.content & balance.content & kAllContent) == 0 ||
        ((balance.content & kBalanceChosen) != 0 && chosen_.count(group.address) == 0))
        return false;
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

// Those of groups of `emptied_content` that the balance empties are free.
SlotAllocator Volume::slots_in_balance(const BalanceRecord& balance, const VolumeProfiles& profiles,
                                       uint32_t emptied_content) const
{
    note_present();
    SlotAllocator slots = slots_;
    if (balance.removed().value != 0)
        slots.set_leaving(balance.member, true);
    else if (balance.shrink_bytes != 0)
        slots.set_limit(balance.member, first_emptied_slot(balance));
    for (const GroupRecord& group : map_.groups)
        if ((group.content & emptied_content) != 0 && selects(balance, profiles, group))
            slots.give_back(group);
    return slots;
}

uint64_t Volume::potential_in_balance(const BalanceRecord& balance, const VolumeProfiles& profiles,
                                      bool emptied) const
{
    MutexLock lock(mutex_);
    const bool removal = balance.member.value != 0;
    const SlotAllocator slots = slots_in_balance(balance, profiles,
                                                 !emptied  ? 0
                                                 : removal ? kAllContent
                                                           : kGroupData);
    const Profile& data = *find_profile(profiles.data);
    const Profile& metadata = *find_profile(profiles.metadata);
    const MetadataNeed need = metadata_need_of(data, metadata, SlotMembers::kPresentFirst);
    return slots.potential_blocks(
        data, committed_.chunk_bytes,
        left_for_nodes(need, metadata, nullptr, emptied && removal ? balance : BalanceRecord(), profiles),
        SlotMembers::kPresentFirst);
}

uint64_t Volume::node_potential_in_balance(const BalanceRecord& balance, const VolumeProfiles& profiles,
                                           bool emptied, uint64_t data_blocks) const
{
    MutexLock lock(mutex_);
    const uint32_t nodes = kGroupMetadata | kGroupSystem;
    const SlotAllocator slots = slots_in_balance(balance, profiles,
                                                 !emptied                    ? 0
                                                 : balance.member.value != 0 ? kAllContent
                                                                             : nodes);
    const Profile& metadata = *find_profile(profiles.metadata);
    const Profile& system = system_profile_of(metadata);
    std::vector<SlotAllocator::Share> beside{{find_profile(profiles.data), data_blocks}};
    if (metadata.parity > 0) {
        if (slots.potential_blocks(system, committed_.chunk_bytes, beside, SlotMembers::kPresentFirst) == 0)
            return 0;
        beside.push_back({&system, 1});
    }
    return slots.potential_blocks(metadata, committed_.chunk_bytes, beside, SlotMembers::kPresentFirst);
}

}  // namespace cowraid
