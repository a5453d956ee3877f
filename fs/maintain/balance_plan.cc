// SPDX-License-Identifier: MIT
// Whether a balance may begin, and what it would take.
#include "fs/maintain/balance_plan.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "fs/maintain/balance.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

Status refuse_plan(std::string& why, Err err, std::string text)
{
    why = std::move(text);
    return err;
}

// Needed and there, first of two moments at the one of which less is left.
BalancePlan::Room tighter(const BalancePlan::Room& one, const BalancePlan::Room& other)
{
    const auto left = [](const BalancePlan::Room& room) {
        return static_cast<double>(room.there) - static_cast<double>(room.needed);
    };
    return left(one) <= left(other) ? one : other;
}

Status no_room(std::string& why, const std::string& of_what, const BalancePlan::Room& room)
{
    return refuse_plan(why, Err::kNoSpace,
                       "there is no room for " + of_what + ": " + size_text(room.needed) +
                           " would be needed, and there are " + size_text(room.there) + "; remove files of " +
                           size_text(room.needed - room.there) + " or more, or add devices");
}

std::string moved_text(const BalanceOptions& options, const char* content, const Profile& profile)
{
    const std::string member = "member " + std::to_string(options.member.value);
    if (options.shrink_bytes != 0)
        return std::string("the ") + content + " beyond " + size_text(options.shrink_bytes) + " of " + member;
    return options.member.value != 0 ? std::string("the ") + content + " of " + member + " on the others"
                                     : std::string(content) + " as " + profile.name;
}

}  // namespace

Status Balance::assess(const BalanceOptions& options, const BalanceRecord& record, BalancePlan& plan,
                       std::string& why) const
{
    const VolumeProfiles now{store_.volume.superblock().data_profile,
                             store_.volume.superblock().metadata_profile};
    for (const auto& [before, after] :
         {std::pair(now.data, options.profiles.data), std::pair(now.metadata, options.profiles.metadata)})
        CW_TRY(assess_profile(*find_profile(before), *find_profile(after), options.force, why));
    if (options.shrink_bytes != 0)
        CW_TRY(assess_shrinking(options, why));
    else if (options.member.value != 0)
        CW_TRY(assess_removal(options, why));
    assess_tolerance(options, record, plan);
    CW_TRY(assess_room(options, record, plan, why));
    return assess_nodes(options, record, plan, why);
}

// Of the groups there are, those that stay, and new ones.
void Balance::assess_tolerance(const BalanceOptions& options, const BalanceRecord& record,
                               BalancePlan& plan) const
{
    uint32_t now = UINT32_MAX, staying = UINT32_MAX;
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kAllContent)) {
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        if (!group)
            continue;
        const uint32_t missing = store_.volume.array().missing_columns(*group);
        const uint32_t left = group->tolerance - std::min(group->tolerance, missing);
        now = std::min(now, left);
        if (!selects(record, options.profiles, numbers)) {
            staying = std::min(staying, left);
            continue;
        }
        plan.moved_bytes += numbers.live_blocks * kBlockBytes;
        ++plan.group_count;
    }
    const uint32_t made = std::min(find_profile(options.profiles.data)->tolerance,
                                   find_profile(options.profiles.metadata)->tolerance);
    plan.tolerance_before = now;
    plan.tolerance_meanwhile = std::min(now, made);
    plan.tolerance_after = std::min(staying, made);
}

Status Balance::assess_profile(const Profile& now, const Profile& then, bool force, std::string& why) const
{
    if (now.id == then.id)
        return {};
    const size_t members = voter_count(store_.volume.superblock(), store_.volume.missing_members());
    if (members < then.min_members)
        return refuse_plan(why, Err::kInvalid,
                           std::string(then.name) + " needs " + std::to_string(then.min_members) +
                               " devices; the volume has " + std::to_string(members) + " in service");
    if (then.tolerance < now.tolerance && !force)
        return refuse_plan(why, Err::kInvalid,
                           std::string("after converting ") + now.name + " to " + then.name +
                               " the volume survives the loss of " + std::to_string(then.tolerance) +
                               " devices instead of " + std::to_string(now.tolerance) +
                               "; --force does it all the same");
    return {};
}

// The others can have everything, and a majority is left.
Status Balance::assess_removal(const BalanceOptions& options, std::string& why) const
{
    const Volume& volume = store_.volume;
    const std::string member = "member " + std::to_string(options.member.value);
    if (volume.superblock().member(options.member) == nullptr)
        return refuse_plan(why, Err::kInvalid, "there is no " + member + "; see cowraid filesystem show");
    if (volume.superblock().replace.names(options.member))
        return refuse_plan(why, Err::kBusy,
                           member + " is part of a replacement; wait for its end, or cowraid replace cancel");
    if (!volume.may_remove_member(options.member))
        return refuse_plan(why, Err::kInvalid,
                           "without " + member +
                               " too few devices are in service; remove those that are missing "
                               "first, or add one");
    std::vector<MemberId> gone = volume.missing_members();
    gone.push_back(options.member);
    const size_t left = voter_count(volume.superblock(), gone);
    for (const Profile* profile :
         {&volume.data_profile(), &volume.metadata_profile(), &volume.system_profile()})
        if (left < profile->min_members)
            return refuse_plan(why, Err::kInvalid,
                               std::string(profile->name) + " needs " + std::to_string(profile->min_members) +
                                   " devices; without " + member + " there are " + std::to_string(left) +
                                   "; convert first, or add one");
    return {};
}

// Its device can have that size, and all that is said of block groups holds then.
Status Balance::assess_shrinking(const BalanceOptions& options, std::string& why) const
{
    const Volume& volume = store_.volume;
    const MemberRecord* const record = volume.superblock().member(options.member);
    const std::string member = "member " + std::to_string(options.member.value);
    if (record == nullptr)
        return refuse_plan(why, Err::kInvalid, "there is no " + member + "; see cowraid filesystem show");
    if (volume.superblock().replace.names(options.member))
        return refuse_plan(why, Err::kBusy,
                           member + " is part of a replacement; wait for its end, or cowraid replace cancel");
    MemberRecord shrunk = *record;
    if (!shrink_member_layout(shrunk, options.shrink_bytes).ok())
        return refuse_plan(why, Err::kInvalid,
                           member + " has " + size_text(record->size_bytes) +
                               " and can be made smaller, to " + size_text(min_size_of(*record)) +
                               " at least");
    if (!volume.may_shrink(shrunk))
        return refuse_plan(why, Err::kInvalid,
                           "block groups were made for a member of the size of " + member +
                               ", and would be too large for smaller ones");
    return {};
}

// Whether a balance would empty the group.
bool Balance::selects(const BalanceRecord& record, const VolumeProfiles& profiles,
                      const GroupNumbers& numbers) const
{
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
    return group && store_.volume.selects(record, profiles, group->record) &&
           numbers.live_blocks * 100 <= record.usage_max * numbers.total_blocks;
}

// Room for new groups of nodes: for the first one to be emptied now, and in the end for all, beside the data
// that moves as well.
Status Balance::assess_nodes(const BalanceOptions& options, const BalanceRecord& record, BalancePlan& plan,
                             std::string& why) const
{
    const Profile& profile = *find_profile(options.profiles.metadata);
    const Volume& volume = store_.volume;
    uint64_t moving = 0, staying = 0, largest = 0, first = UINT64_MAX;
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupMetadata | kGroupSystem)) {
        if (!selects(record, options.profiles, numbers)) {
            staying += numbers.open() ? numbers.free_row_blocks : 0;
            continue;
        }
        moving += numbers.live_blocks;
        largest = std::max(largest, numbers.total_blocks);
        first = std::min(first, numbers.live_blocks);
    }
    if (moving == 0)
        return {};
    const SpaceNumbers data = store_.allocator.numbers(kGroupData);
    const uint64_t reserved = store_.ledger.reserved_data();
    // New nodes have what is kept for them, or what `left` blocks of data do not need.
    const auto room = [&](bool emptied, uint64_t left, uint64_t to_place, uint64_t in_groups) {
        const bool may_plan = volume.degraded() || volume.keeps_slots_for(kGroupMetadata, options.profiles) ||
                              left > data_beside_nodes(store_, profile);
        return staying + (may_plan
                              ? volume.node_potential_in_balance(record, options.profiles, emptied,
                                                                 to_place - std::min(to_place, in_groups))
                              : 0);
    };
    // What is kept ahead of commits grows with new groups.
    const uint64_t ahead = metadata_ahead(store_, kGroupMetadata);
    const uint64_t left_now = store_.ledger.data_available();
    const uint64_t in_groups = data.free_row_blocks + data.partial_row_blocks;
    const BalancePlan::Room first_one{(ahead / 2 + first * 5 / 3) * kBlockBytes,
                                      room(false, left_now, reserved, in_groups) * kBlockBytes};
    BalancePlan::Room all{(moving + largest + ahead / 2) * kBlockBytes,
                          room(true, left_now, reserved, in_groups) * kBlockBytes};
    if (options.member.value != 0) {
        // Data moves as well, and nodes are planned ahead before it has all moved.
        uint64_t moving_data = 0, staying_data = 0, largest_data = 0;
        for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupData)) {
            const bool moves = selects(record, options.profiles, numbers);
            moving_data += moves ? numbers.live_blocks : 0;
            largest_data = std::max(largest_data, moves ? numbers.live_blocks : 0);
            staying_data +=
                !moves && numbers.open() ? numbers.free_row_blocks + numbers.partial_row_blocks : 0;
        }
        all = {(moving + std::max(largest + ahead / 2, ahead)) * kBlockBytes,
               room(true, plan.left_blocks, reserved + moving_data + largest_data, staying_data) *
                   kBlockBytes};
    }
    plan.metadata = tighter(first_one, all);
    if (plan.metadata.there >= plan.metadata.needed)
        return {};
    return no_room(why, moved_text(options, "metadata", profile), plan.metadata);
}

// Room for the first group there must be now. Room for the last one there must be while its own slots are not
// back; what is in between needs no more, because the emptiest come first.
Status Balance::assess_room(const BalanceOptions& options, const BalanceRecord& record, BalancePlan& plan,
                            std::string& why) const
{
    const Profile& profile = *find_profile(options.profiles.data);
    const size_t left = voter_count(store_.volume.superblock(), {record.removed()});
    const auto members = static_cast<double>(std::max<size_t>(profile.min_members, left));
    const double share = (members - profile.parity) / members / profile.copies;  // of slots that is data
    uint64_t moving = 0, staying = 0,
             largest = 0;  // of these: free, in groups that stay; slots of one, as data
    uint64_t rows = 0;  // free ones in all groups
    uint64_t first = UINT64_MAX, first_rows = 0;  // room for the emptiest, and its own
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupData)) {
        rows += numbers.open() ? numbers.free_row_blocks : 0;
        if (!selects(record, options.profiles, numbers)) {
            staying += numbers.open() ? numbers.free_row_blocks : 0;
            continue;
        }
        moving += numbers.live_blocks;
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        const uint64_t slots = group->geometry.columns() * group->geometry.row_count();
        largest = std::max(largest, static_cast<uint64_t>(share * static_cast<double>(slots)));
        if (numbers.live_blocks > 0 && cleaner_.room_for(numbers) < first) {
            first = cleaner_.room_for(numbers);
            first_rows = numbers.open() ? numbers.free_row_blocks : 0;
        }
    }
    const uint64_t slots_now = store_.volume.potential_in_balance(record, options.profiles, false);
    const uint64_t now = rows - first_rows + slots_now;
    const uint64_t after = staying + store_.volume.potential_in_balance(record, options.profiles, true);
    // By others than the cleaner, which has reserved for a group that is counted here.
    const uint64_t all_reserved = store_.ledger.reserved_data();
    const uint64_t reserved = all_reserved - std::min<uint64_t>(all_reserved, store_.moving_blocks);
    const BalancePlan::Room all{(moving + largest + reserved) * kBlockBytes, after * kBlockBytes};
    plan.left_blocks = after - std::min(after, moving + reserved);
    if (moving > 0)
        plan.data =
            first == UINT64_MAX ? all : tighter({(first + reserved) * kBlockBytes, now * kBlockBytes}, all);
    if (plan.data.there < plan.data.needed)
        return no_room(why, moved_text(options, "data", profile), plan.data);
    const SpaceNumbers data = store_.allocator.numbers(kGroupData);
    plan.offered_blocks = data.free_row_blocks + data.partial_row_blocks + data.degraded_row_blocks +
                          data.degraded_partial_row_blocks + slots_now;
    return store_.ledger.reserved_data() <= plan.offered_blocks
               ? Status()
               : refuse_plan(why, Err::kNoSpace,
                             "there is no room for what is being written; try again, or remove files");
}

}  // namespace cowraid
