// SPDX-License-Identifier: MIT
// Whether a balance may begin, and what it would take.
#include "fs/maintain/balance_plan.h"

#include <algorithm>
#include <iterator>
#include <tuple>
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

std::string files_to_remove(const BalancePlan::Room& room)
{
    return "remove files of " + size_text(room.needed - room.there) + " or more, or add devices";
}

Status no_room(std::string& why, const std::string& of_what, const BalancePlan::Room& room,
               const std::string& advice)
{
    return refuse_plan(why, Err::kNoSpace,
                       "there is no room for " + of_what + ": " + size_text(room.needed) +
                           " would be needed, and there are " + size_text(room.there) + "; " + advice);
}

// Half of what is kept ahead of commits, in a group that adds to it: by a quarter of its size.
uint64_t grown_ahead(const Store& store, uint32_t content, uint64_t leaving_blocks)
{
    const uint64_t ahead = metadata_ahead(store, content, leaving_blocks);
    const uint64_t whole = store.allocator.numbers(content).whole_blocks;
    return std::max(ahead / 2, std::min((whole - std::min(whole, leaving_blocks)) / 3, ahead * 2 / 3));
}

// Of one content.
struct Conversion {
    const char* content;
    const Profile *now, *then;  // of new groups
    const Profile* moves;  // which tolerates most, of groups that are emptied; null: none
    const Profile* into;  // which tolerates least, of groups that take it
};

// Data that moves, and what is free for it in groups that stay.
struct MovingData {
    std::vector<VolumeAddress> groups;
    uint64_t blocks = 0, largest = 0, staying = 0;
};

template <typename Moves> MovingData moving_data(const Store& store, Moves moves)
{
    MovingData data;
    for (const GroupNumbers& numbers : store.allocator.group_numbers(kGroupData)) {
        if (moves(numbers)) {
            data.groups.push_back(numbers.address);
            data.blocks += numbers.live_blocks;
            data.largest = std::max(data.largest, numbers.live_blocks);
        } else if (numbers.open()) {
            data.staying += numbers.free_row_blocks + numbers.partial_row_blocks;
        }
    }
    return data;
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
        CW_TRY(assess_profile(*find_profile(before), *find_profile(after), why));
    if (options.shrink_bytes != 0)
        CW_TRY(assess_shrinking(options, why));
    else if (options.member.value != 0)
        CW_TRY(assess_removal(options, why));
    CW_TRY(assess_tolerance(options, record, plan, why));
    CW_TRY(assess_room(options, record, plan, why));
    return assess_nodes(options, record, plan, why);
}

// Of the groups there are, those that stay, and new ones. What moves, and what is written from now on, loses
// tolerance only by force.
Status Balance::assess_tolerance(const BalanceOptions& options, const BalanceRecord& record,
                                 BalancePlan& plan, std::string& why) const
{
    uint32_t now = UINT32_MAX, staying = UINT32_MAX;
    const Profile* const then_data = find_profile(options.profiles.data);
    const Profile* const then_metadata = find_profile(options.profiles.metadata);
    Conversion data{"data", &store_.volume.data_profile(), then_data, nullptr, then_data};
    Conversion metadata{"metadata", &store_.volume.metadata_profile(), then_metadata, nullptr, then_metadata};
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kAllContent)) {
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        if (!group)
            continue;
        const uint32_t missing = store_.volume.array().missing_columns(*group);
        const uint32_t left = group->tolerance - std::min(group->tolerance, missing);
        now = std::min(now, left);
        const Profile* const profile = find_profile(group->record.profile);
        Conversion& of = (group->record.content & kGroupData) != 0 ? data : metadata;
        if (!selects(record, options.profiles, numbers)) {
            staying = std::min(staying, left);
            const bool takes = numbers.open() && numbers.free_row_blocks + numbers.partial_row_blocks > 0;
            if (takes && profile->tolerance < of.into->tolerance)
                of.into = profile;
            continue;
        }
        plan.moved_bytes += numbers.live_blocks * kBlockBytes;
        ++plan.group_count;
        if (numbers.live_blocks > 0 && (of.moves == nullptr || profile->tolerance > of.moves->tolerance))
            of.moves = profile;
    }
    const uint32_t made = std::min(then_data->tolerance, then_metadata->tolerance);
    plan.tolerance_before = now;
    plan.tolerance_meanwhile = std::min(now, made);
    plan.tolerance_after = std::min(staying, made);
    std::string lowered, kept;
    for (const Conversion& one : {data, metadata}) {
        const bool moved_lower = one.moves != nullptr && one.moves->tolerance > one.into->tolerance;
        const Profile& from = moved_lower ? *one.moves : *one.now;
        const Profile& to = moved_lower ? *one.into : *one.then;
        if (to.tolerance >= from.tolerance)
            continue;
        lowered += std::string(lowered.empty() ? "" : ", ") + one.content + " as " + to.name +
                   " instead of " + from.name;
        kept += std::string(kept.empty() ? "cowraid balance start" : "") + " -" + one.content[0] +
                "convert=" + from.name;
    }
    // The columns of a member that is out of service are missing already: its removal is not made to wait.
    const bool is_out =
        options.member.value != 0 && store_.volume.members().device(options.member) == nullptr;
    if (options.force || is_out || lowered.empty())
        return {};
    return refuse_plan(
        why, Err::kInvalid,
        lowered + ": the volume survives the loss of " + count_text(plan.tolerance_after, "device") +
            (plan.tolerance_after < now ? " instead of " + std::to_string(now)
                                        : ", but what is moved or written survives that of fewer than now") +
            (options.member.value == 0 ? "; --force does it all the same"
                                       : "; " + kept + " first keeps it as it is"));
}

Status Balance::assess_profile(const Profile& now, const Profile& then, std::string& why) const
{
    if (now.id == then.id)
        return {};
    const size_t members = voter_count(store_.volume.superblock(), store_.volume.missing_members());
    if (members < then.min_members)
        return refuse_plan(why, Err::kInvalid,
                           std::string(then.name) + " needs " + std::to_string(then.min_members) +
                               " devices; the volume has " + std::to_string(members) + " in service");
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
                           "without " + member + " too few devices are in service; " +
                               (volume.missing_members().empty() ? "add one first"
                                : status().active()
                                    ? "bring back or replace what is out of service, or add a "
                                      "device; cowraid balance cancel keeps the member"
                                    : "remove those that are missing first, or add one"));
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

// Those that leave as soon as it begins: they hold nothing, and what is pending has room in the others.
Balance::EmptyNodes Balance::empty_nodes(const BalanceOptions& options, const BalanceRecord& record) const
{
    EmptyNodes empty;
    uint64_t file_rows = 0, system_rows = 0;  // in the others
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupMetadata | kGroupSystem)) {
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        if (!group || !numbers.open())
            continue;
        const bool leaves =
            numbers.live_blocks + numbers.pinned_blocks == 0 && selects(record, options.profiles, numbers);
        if ((group->record.content & kGroupMetadata) != 0)
            (leaves ? empty.file_blocks : file_rows) +=
                leaves ? numbers.total_blocks : numbers.free_row_blocks;
        if ((group->record.content & kGroupSystem) != 0)
            (leaves ? empty.system_blocks : system_rows) +=
                leaves ? numbers.total_blocks : numbers.free_row_blocks;
        if (leaves)
            empty.groups.push_back(numbers.address);
    }
    const bool suffice = file_rows >= metadata_ahead(store_, kGroupMetadata, empty.file_blocks) &&
                         system_rows >= metadata_ahead(store_, kGroupSystem, empty.system_blocks);
    std::sort(empty.groups.begin(), empty.groups.end());
    return suffice ? empty : EmptyNodes();
}

// Of groups of nodes: what is in those that it empties, and what is free in the others.
struct Balance::NodeNumbers {
    EmptyNodes empty;
    uint64_t moving = 0, largest = 0;
    uint64_t first = UINT64_MAX;  // in the emptiest
    uint64_t first_of_files = UINT64_MAX, first_of_system = UINT64_MAX;  // in that which has such nodes
    uint64_t staying = 0, staying_for_files = 0, staying_for_system = 0;
};

Balance::NodeNumbers Balance::node_numbers(const BalanceOptions& options, const BalanceRecord& record) const
{
    NodeNumbers nodes{.empty = empty_nodes(options, record)};
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupMetadata | kGroupSystem)) {
        if (nodes.empty.has(numbers.address))
            continue;
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        const uint32_t content = group ? group->record.content : 0;
        const uint64_t free_blocks = numbers.open() ? numbers.free_row_blocks : 0;
        const bool moves = selects(record, options.profiles, numbers);
        for (const auto& [one, first, staying] :
             {std::tuple(kGroupMetadata | kGroupSystem, &nodes.first, &nodes.staying),
              std::tuple(uint32_t{kGroupMetadata}, &nodes.first_of_files, &nodes.staying_for_files),
              std::tuple(uint32_t{kGroupSystem}, &nodes.first_of_system, &nodes.staying_for_system)}) {
            if ((content & one) == 0)
                continue;
            *first = moves ? std::min(*first, numbers.live_blocks) : *first;
            *staying += moves ? 0 : free_blocks;
        }
        nodes.moving += moves ? numbers.live_blocks : 0;
        nodes.largest = moves ? std::max(nodes.largest, numbers.total_blocks) : nodes.largest;
    }
    return nodes;
}

// Data groups that -dusage= would empty first, and where what is in them goes.
struct Balance::Packing {
    std::vector<VolumeAddress> groups;
    uint64_t placed_blocks = 0;  // in them, and as much as one of them holds: its slots come free last
    uint64_t free_blocks = 0;  // in them
};

Balance::Packing Balance::packing(uint64_t usage_most) const
{
    Packing packing;
    uint64_t largest = 0;
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupData)) {
        if (!numbers.open() || numbers.live_blocks == 0 ||
            numbers.live_blocks * 100 > usage_most * numbers.total_blocks)
            continue;
        packing.groups.push_back(numbers.address);
        packing.placed_blocks += numbers.live_blocks;
        packing.free_blocks += numbers.free_row_blocks + numbers.partial_row_blocks;
        largest = std::max(largest, numbers.total_blocks);
    }
    std::sort(packing.groups.begin(), packing.groups.end());
    packing.placed_blocks += largest;
    return packing;
}

// The slots of groups of nodes, as a balance asks for them.
struct Balance::NodeSlots {
    bool emptied;  // of the groups that it empties as well
    uint64_t left_blocks;  // of data
    uint64_t to_place, in_groups;  // data beside nodes, and what of it groups that are there have room for
};

// New nodes have what is kept for them, or what data that is left does not need.
uint64_t Balance::node_slots(const BalanceOptions& options, const BalanceRecord& record, const NodeSlots& of,
                             Volume::NodeDemand demand) const
{
    const Volume& volume = store_.volume;
    if (demand.files && !volume.degraded() && !volume.keeps_slots_for(kGroupMetadata, options.profiles) &&
        of.left_blocks <= data_beside_nodes(store_, *find_profile(options.profiles.metadata)))
        return 0;
    demand.data_blocks = of.to_place - std::min(of.to_place, of.in_groups);
    return volume.node_potential_in_balance(record, options.profiles, of.emptied, demand);
}

// For the first group to be emptied now, and in the end for all, beside the data that moves as well.
BalancePlan::Room Balance::room_for_nodes(const BalanceOptions& options, const BalanceRecord& record,
                                          const BalancePlan& plan, const Packing& packed) const
{
    const NodeNumbers nodes = node_numbers(options, record);
    const bool apart = find_profile(options.profiles.metadata)->parity > 0;
    const bool of_files = !apart || nodes.first_of_files != UINT64_MAX;
    const uint64_t ahead = metadata_ahead(store_, kGroupMetadata, nodes.empty.file_blocks);
    const SpaceNumbers data = store_.allocator.numbers(kGroupData);
    const uint64_t free_blocks = data.free_row_blocks + data.partial_row_blocks;
    NodeSlots slots{.emptied = false,
                    .left_blocks = store_.ledger.data_available(),
                    .to_place = store_.ledger.reserved_data() + packed.placed_blocks,
                    .in_groups = free_blocks - std::min(free_blocks, packed.free_blocks)};
    Volume::NodeDemand demand{.data_blocks = 0, .system_blocks = 0, .files = of_files, .leaving = {}};
    std::set_union(packed.groups.begin(), packed.groups.end(), nodes.empty.groups.begin(),
                   nodes.empty.groups.end(), std::back_inserter(demand.leaving));
    BalancePlan::Room tightest{0, UINT64_MAX};
    // Where other trees than those of files have groups of their own, they need these at the same time. What
    // is kept ahead of commits grows with new groups.
    const auto add_first = [&] {
        if (apart && nodes.first_of_system != UINT64_MAX) {
            const uint64_t needed =
                grown_ahead(store_, kGroupSystem, nodes.empty.system_blocks) + nodes.first_of_system * 5 / 3;
            demand.system_blocks = needed - std::min(needed, nodes.staying_for_system);
            demand.files = false;
            tightest = tighter(tightest, {needed * kBlockBytes, (nodes.staying_for_system +
                                                                 node_slots(options, record, slots, demand)) *
                                                                    kBlockBytes});
            demand.files = of_files;
        }
        if (!of_files)
            return;
        const uint64_t first = apart ? nodes.first_of_files : nodes.first;
        const uint64_t staying = apart ? nodes.staying_for_files : nodes.staying;
        tightest = tighter(tightest, {(ahead / 2 + first * 5 / 3) * kBlockBytes,
                                      (staying + node_slots(options, record, slots, demand)) * kBlockBytes});
    };
    add_first();
    const MovingData moving = moving_data(
        store_, [&](const GroupNumbers& numbers) { return selects(record, options.profiles, numbers); });
    if (options.member.value == 0 && moving.blocks > 0) {
        // Data takes slots that come free first: when all of it has moved nodes may still be where they are.
        const auto before = std::pair(slots, std::exchange(demand.leaving, moving.groups));
        demand.leaving.insert(demand.leaving.end(), nodes.empty.groups.begin(), nodes.empty.groups.end());
        std::sort(demand.leaving.begin(), demand.leaving.end());
        slots = {.emptied = false,
                 .left_blocks = UINT64_MAX,
                 .to_place = store_.ledger.reserved_data() + moving.blocks,
                 .in_groups = moving.staying};
        add_first();
        std::tie(slots, demand.leaving) = before;
    }
    slots.emptied = true;
    BalancePlan::Room all{(nodes.moving + nodes.largest + ahead / 2) * kBlockBytes, 0};
    if (options.member.value != 0) {
        // Data moves as well, and nodes are planned ahead before it has all moved.
        slots.left_blocks = plan.left_blocks;
        slots.to_place += moving.blocks + moving.largest;
        slots.in_groups = moving.staying;
        all.needed = (nodes.moving + std::max(nodes.largest + ahead / 2, ahead)) * kBlockBytes;
    }
    all.there = (nodes.staying + node_slots(options, record, slots, demand)) * kBlockBytes;
    return tighter(tightest, all);
}

// Slots come free only with whole groups of data: by packing them, where that suffices.
std::string Balance::advice_for_nodes(const BalanceOptions& options, const BalanceRecord& record,
                                      const BalancePlan& plan) const
{
    if (options.member.value != 0)
        return files_to_remove(plan.metadata);
    if (packing(100).groups.empty())
        return "add devices";
    const std::string command = "cowraid balance start -dusage=";
    for (uint64_t usage = 10; usage < 100; usage += 10) {
        const Packing packed = packing(usage);
        if (packed.groups.empty())
            continue;
        const BalancePlan::Room room = room_for_nodes(options, record, plan, packed);
        if (room.there >= room.needed)
            return command + std::to_string(usage) +
                   " makes room for it: it packs data into fewer block groups";
    }
    return "remove files and pack the others into fewer block groups (" + command + "90), or add devices";
}

Status Balance::assess_nodes(const BalanceOptions& options, const BalanceRecord& record, BalancePlan& plan,
                             std::string& why) const
{
    if (node_numbers(options, record).moving == 0)
        return {};
    plan.metadata = room_for_nodes(options, record, plan, {});
    if (plan.metadata.there >= plan.metadata.needed)
        return {};
    return no_room(why, moved_text(options, "metadata", *find_profile(options.profiles.metadata)),
                   plan.metadata, advice_for_nodes(options, record, plan));
}

// As plan_nodes_for_balance() leaves it behind the last group.
MetadataNeed Balance::nodes_after(const BalanceOptions& options) const
{
    const auto in_groups = [&](uint64_t blocks, uint32_t content) {
        return blocks * 4 / 3 + metadata_ahead(store_, content) * 2 / 3;
    };
    const uint64_t all = store_.allocator.numbers(kGroupMetadata | kGroupSystem).used_blocks;
    if (find_profile(options.profiles.metadata)->parity == 0)
        return {in_groups(all, kGroupMetadata), 0};
    const uint64_t files = store_.allocator.numbers(kGroupMetadata).used_blocks;
    return {in_groups(files, kGroupMetadata), in_groups(all - files, kGroupSystem)};
}

// What moves, and what it moves to.
Balance::DataNumbers Balance::data_numbers(const BalanceOptions& options, const BalanceRecord& record) const
{
    const Profile& profile = *find_profile(options.profiles.data);
    const size_t left = voter_count(store_.volume.superblock(), {record.removed()});
    const auto members = static_cast<double>(std::max<size_t>(profile.min_members, left));
    const double share = (members - profile.parity) / members / profile.copies;  // of slots that is data
    DataNumbers data;
    for (const GroupNumbers& numbers : store_.allocator.group_numbers(kGroupData)) {
        const uint64_t rows = numbers.open() ? numbers.free_row_blocks : 0;
        if (!selects(record, options.profiles, numbers)) {
            data.room.rows += rows;
            continue;
        }
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(numbers.address);
        const uint64_t slots = group->geometry.columns() * group->geometry.row_count();
        data.largest = std::max(data.largest, static_cast<uint64_t>(share * static_cast<double>(slots)));
        data.moving += numbers.live_blocks;
        data.room.moves.push_back(
            {group, numbers.live_blocks,
             numbers.live_blocks > 0 ? cleaner_.room_for(numbers) - numbers.live_blocks : 0, rows});
    }
    // By others than the cleaner, which has reserved for a group that is counted here.
    const uint64_t reserved = store_.ledger.reserved_data();
    data.room.reserved = reserved - std::min<uint64_t>(reserved, store_.moving_blocks);
    data.room.slack = kDataSlackBlocks;
    data.room.nodes = nodes_after(options);
    return data;
}

// Of the blocks that move: those without which all others could, if whole rows of them were taken from all
// groups alike.
uint64_t Balance::too_many(const BalanceOptions& options, const BalanceRecord& record,
                           const DataNumbers& data) const
{
    if (store_.volume.has_room_for(record, options.profiles, data.room))
        return 0;
    uint64_t too_few = 0, enough = data.moving;
    while (enough - too_few > kMiB / kBlockBytes) {
        const uint64_t less = too_few + (enough - too_few) / 2;
        Volume::DataMoves room = data.room;
        for (Volume::DataMove& move : room.moves) {
            const auto taken =
                static_cast<uint64_t>(static_cast<double>(move.blocks) * static_cast<double>(less) /
                                      static_cast<double>(data.moving));
            move.blocks -= taken;
            move.own_rows += taken;
        }
        (store_.volume.has_room_for(record, options.profiles, room) ? enough : too_few) = less;
    }
    return enough;
}

Status Balance::assess_room(const BalanceOptions& options, const BalanceRecord& record, BalancePlan& plan,
                            std::string& why) const
{
    const DataNumbers data = data_numbers(options, record);
    // The slots of the last group that is emptied are not back yet.
    const uint64_t needed = data.moving + data.largest + data.room.reserved;
    const uint64_t after =
        data.room.rows + store_.volume.potential_after_balance(record, options.profiles, data.room.nodes);
    plan.left_blocks = after - std::min(after, data.moving + data.room.reserved);
    const uint64_t removed = too_many(options, record, data);
    if (data.moving > 0)
        plan.data = {needed * kBlockBytes,
                     (removed > 0 ? std::min(after, needed - removed) : after) * kBlockBytes};
    if (plan.data.there < plan.data.needed)
        return no_room(why, moved_text(options, "data", *find_profile(options.profiles.data)), plan.data,
                       files_to_remove(plan.data));
    const SpaceNumbers numbers = store_.allocator.numbers(kGroupData);
    plan.offered_blocks = numbers.free_row_blocks + numbers.partial_row_blocks + numbers.degraded_row_blocks +
                          numbers.degraded_partial_row_blocks +
                          store_.volume.potential_in_balance(record, options.profiles);
    return store_.ledger.reserved_data() <= plan.offered_blocks
               ? Status()
               : refuse_plan(why, Err::kNoSpace,
                             "there is no room for what is being written; try again, or remove files");
}

}  // namespace cowraid
