// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "alloc/slot_allocator.h"
#include "format/member_layout.h"
#include "tests/support/space_model.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

const Profile& profile(const char* name)
{
    const Profile* found = find_profile(std::string_view(name));
    REQUIRE(found != nullptr);
    return *found;
}

MemberRecord member_of_size(uint32_t id, uint64_t size_bytes)
{
    Result<MemberRecord> record = plan_member_layout(size_bytes);
    REQUIRE(record.ok());
    record->id = {id};
    return *record;
}

// A member with that many slots of 16 MiB.
MemberRecord member_of_slots(uint32_t id, uint64_t slots)
{
    MemberRecord record;
    record.id = {id};
    record.slot_bytes = kMinSlotBytes;
    record.slot_count = slots;
    return record;
}

struct Filled {
    std::vector<GroupRecord> groups;
    uint64_t data_bytes = 0;
};

// Plans until nothing fits. Checks every group and that the forecast was right.
Filled fill(SlotAllocator& slots, const std::vector<MemberRecord>& members, const Profile& wanted)
{
    const uint64_t potential = slots.potential_blocks(wanted, kDefaultChunkBytes);
    Filled filled;
    std::set<std::pair<uint32_t, uint32_t>> taken;
    for (;;) {
        Result<GroupRecord> group = slots.plan_group(wanted, kDefaultChunkBytes);
        if (!group.ok()) {
            CHECK(group.err() == Err::kNoSpace);
            break;
        }
        CHECK(group->profile == wanted.id);
        CHECK(group->columns.size() == group->data_columns * wanted.copies + wanted.parity);
        CHECK(group->columns.size() >= wanted.min_members);
        CHECK(is_power_of_two(group->column_bytes));
        std::set<uint32_t> distinct;
        for (const GroupColumn& column : group->columns) {
            const auto member = std::find_if(members.begin(), members.end(),
                                             [&](const MemberRecord& m) { return m.id == column.member; });
            REQUIRE(member != members.end());
            uint64_t bytes = 0;
            for (const SlotRun& run : column.runs) {
                for (uint32_t slot = run.first_slot; slot < run.first_slot + run.slot_count; ++slot) {
                    if (slot >= member->slot_count || !taken.insert({column.member.value, slot}).second)
                        FAIL_CHECK("slot taken twice, or not there");
                }
                bytes += run.slot_count * member->slot_bytes;
            }
            CHECK(bytes == group->column_bytes);
            CHECK(distinct.insert(column.member.value).second);
        }
        filled.data_bytes += group->data_bytes();
        filled.groups.push_back(std::move(*group));
    }
    CHECK(filled.data_bytes == potential * kBlockBytes);
    CHECK(slots.potential_blocks(wanted, kDefaultChunkBytes) == 0);
    return filled;
}

SlotAllocator with_members(const std::vector<MemberRecord>& members)
{
    SlotAllocator slots;
    for (const MemberRecord& member : members)
        slots.add_member(member, true);
    return slots;
}

// What parity groups as wide as possible, then narrower ones, hold: slots of one size.
uint64_t widest_first(std::vector<uint64_t> slots, uint32_t parity, uint32_t min_members)
{
    std::sort(slots.begin(), slots.end());
    uint64_t data = 0;
    uint64_t level = 0;
    for (size_t index = 0; index < slots.size(); ++index) {
        const uint64_t width = slots.size() - index;
        if (width >= min_members)
            data += (slots[index] - level) * (width - parity);
        level = slots[index];
    }
    return data;
}

// The most copies-fold mirrors that any choice of members allows.
uint64_t mirror_optimum(const std::vector<uint64_t>& slots, uint32_t copies)
{
    uint64_t best = 0;
    for (uint64_t groups = 1;; ++groups) {
        uint64_t room = 0;
        for (const uint64_t count : slots)
            room += std::min(count, groups);
        if (room < groups * copies)
            return best;
        best = groups;
    }
}

}  // namespace

TEST_CASE("uneven members: the capacity of each profile")
{
    struct Row {
        const char* profile;
        std::vector<uint64_t> gib;
        uint64_t slots;  // of data, 16 MiB each: members of 1, 2, 3, 4 GiB have 60, 124, 188, 252
    };
    const Row rows[] = {
        {"raid5", {1, 1, 2, 4}, 60 * 3 + 64 * 1},
        {"raid5", {1, 1, 1, 1}, 60 * 3},
        {"raid5", {1, 4}, 60},
        {"raid5", {4}, 0},
        {"raid6", {1, 1, 2, 4}, 60 * 2},
        {"raid6", {1, 2, 3, 4, 4}, 60 * 3 + 64 * 2 + 64 * 1},
        {"raid6", {4, 4}, 0},
        {"raid1", {1, 1, 2, 4}, 60 + 60 + 124},
        {"raid1", {1, 1, 1}, 90},
        {"raid1", {2, 2, 3}, (124 + 124 + 188) / 2},
        {"raid1c3", {1, 1, 2, 4}, 60 + 60},
        {"raid1c3", {2, 2, 2, 2}, 124 * 4 / 3},
        {"raid1c4", {1, 1, 2, 4}, 60},
        {"raid1c4", {1, 1, 2, 4, 4}, 60 + 60},
        {"raid1c4", {4, 4, 4}, 0},
        {"single", {1, 2, 4}, 60 + 124 + 252},
        {"raid0", {1, 2, 4}, 60 + 124 + 252},
        {"raid10", {1, 1, 2, 4}, 60 * 2 + 64},
        {"raid10", {1, 1, 1}, 90},
        {"raid10", {1, 1, 1, 1, 1}, 150},
        {"raid10", {2, 2, 3}, (124 + 124 + 188) / 2},
        {"raid10", {4}, 0},
    };
    for (const Row& row : rows) {
        CAPTURE(std::string(row.profile));
        CAPTURE(row.slots);
        std::vector<MemberRecord> members;
        for (const uint64_t gib : row.gib)
            members.push_back(member_of_size(static_cast<uint32_t>(members.size() + 1), gib * kGiB));
        SlotAllocator slots = with_members(members);
        const Filled filled = fill(slots, members, profile(row.profile));
        CHECK(filled.data_bytes == row.slots * kMinSlotBytes);
        // The first group is the widest.
        size_t widest = 0;
        for (const GroupRecord& group : filled.groups)
            widest = std::max(widest, group.columns.size());
        if (!filled.groups.empty())
            CHECK(filled.groups[0].columns.size() == widest);
    }
}

TEST_CASE("random members with slots of one size reach the optimum")
{
    const uint64_t seed = test_seed();
    CAPTURE(seed);
    Prng random(seed);
    uint64_t groups = 0;
    for (int round = 0; round < 150; ++round) {
        CAPTURE(round);
        std::vector<MemberRecord> members;
        std::vector<uint64_t> counts;
        const uint64_t count = random.between(1, 9);
        for (uint64_t index = 0; index < count; ++index) {
            counts.push_back(random.between(1, uint64_t{4} << random.below(9)));
            members.push_back(member_of_slots(static_cast<uint32_t>(index + 1), counts.back()));
        }
        for (const char* name : {"single", "raid0", "raid1", "raid1c3", "raid1c4", "raid5", "raid6"}) {
            CAPTURE(std::string(name));
            const Profile& wanted = profile(name);
            SlotAllocator slots = with_members(members);
            const Filled filled = fill(slots, members, wanted);
            const uint64_t expected = wanted.max_columns == 0
                                          ? widest_first(counts, wanted.parity, wanted.min_members)
                                          : mirror_optimum(counts, wanted.copies);
            CHECK(filled.data_bytes == expected * kMinSlotBytes);
            groups += filled.groups.size();
        }
    }
    CHECK(groups > 1000);
}

TEST_CASE("raid10 leaves room on one member at most")
{
    const uint64_t seed = test_seed();
    CAPTURE(seed);
    Prng random(seed);
    uint64_t groups = 0;
    for (int round = 0; round < 150; ++round) {
        CAPTURE(round);
        std::vector<MemberRecord> members;
        std::vector<uint64_t> counts;
        const uint64_t count = random.between(2, 9);
        for (uint64_t index = 0; index < count; ++index) {
            counts.push_back(random.between(1, uint64_t{4} << random.below(9)));
            members.push_back(member_of_slots(static_cast<uint32_t>(index + 1), counts.back()));
        }
        SlotAllocator slots = with_members(members);
        const Filled filled = fill(slots, members, profile("raid10"));
        uint64_t left = 0, with_room = 0;
        for (const MemberRecord& member : members) {
            left += slots.free_bytes(member.id);
            with_room += slots.free_bytes(member.id) > 0;
        }
        CHECK(with_room <= 1);
        CHECK(filled.data_bytes <= mirror_optimum(counts, 2) * kMinSlotBytes);
        uint64_t all = 0;
        for (const uint64_t each : counts)
            all += each * kMinSlotBytes;
        CHECK(2 * filled.data_bytes + left == all);
        for (const GroupRecord& group : filled.groups)
            CHECK(group.columns.size() == 2 * group.data_columns);
        groups += filled.groups.size();
    }
    CHECK(groups > 1000);
}

TEST_CASE("equal mirrors do not strand the last slots of one member")
{
    for (const uint64_t count : {999u, 1000u, 1016u}) {
        for (uint32_t width = 2; width <= 5; ++width) {
            CAPTURE(count);
            CAPTURE(width);
            std::vector<MemberRecord> members;
            for (uint32_t id = 1; id <= width; ++id)
                members.push_back(member_of_slots(id, count));
            SlotAllocator pairs = with_members(members);
            CHECK(fill(pairs, members, profile("raid1")).data_bytes == count * width / 2 * kMinSlotBytes);
            SlotAllocator triples = with_members(members);
            const uint64_t expected = width < 3 ? 0 : count * width / 3;
            CHECK(fill(triples, members, profile("raid1c3")).data_bytes == expected * kMinSlotBytes);
        }
    }
}

TEST_CASE("groups of data leave the slots that are kept for others")
{
    size_t narrow = 0;
    for (uint32_t member_count = 3; member_count <= 9; ++member_count) {
        for (uint64_t slot_count = 2; slot_count <= 6; ++slot_count) {
            for (uint64_t kept_groups = 1; kept_groups <= 4; ++kept_groups) {
                CAPTURE(member_count);
                CAPTURE(slot_count);
                CAPTURE(kept_groups);
                SlotAllocator slots;
                for (uint32_t id = 1; id <= member_count; ++id)
                    slots.add_member(member_of_slots(id, slot_count), true);
                const SlotAllocator::Share kept[] = {
                    {&profile("raid1c3"), kept_groups * kMinSlotBytes / kBlockBytes}};
                if (slots.potential_blocks(profile("raid1c3"), kDefaultChunkBytes) < kept[0].blocks)
                    continue;
                uint64_t left = slots.potential_blocks(profile("raid5"), kDefaultChunkBytes, kept);
                while (left > 0) {
                    const Result<GroupRecord> group =
                        slots.plan_group(profile("raid5"), kDefaultChunkBytes, SlotMembers::kPresent, kept);
                    REQUIRE(group.ok());
                    narrow += group->columns.size() < member_count;
                    left = slots.potential_blocks(profile("raid5"), kDefaultChunkBytes, kept);
                }
                CHECK(slots.potential_blocks(profile("raid1c3"), kDefaultChunkBytes) >= kept[0].blocks);
            }
        }
    }
    CHECK(narrow > 0);
}

TEST_CASE("members with slots of different sizes, of different states")
{
    const uint64_t seed = test_seed();
    CAPTURE(seed);
    Prng random(seed);
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        std::vector<MemberRecord> members;
        SlotAllocator slots;
        std::set<uint32_t> unusable;
        for (uint32_t id = 1; id <= random.between(2, 8); ++id) {
            members.push_back(member_of_size(id, (64 * kMiB << random.below(14)) + random.below(kGiB)));
            slots.add_member(members.back(), true);
            if (random.chance(1, 6)) {
                slots.set_present({id}, false);
                unusable.insert(id);
            }
        }
        const auto& all = profiles();
        const Filled filled = fill(slots, members, all[random.below(all.size())]);
        CHECK(filled.groups.size() <= kMaxGroups / 2);
        for (const GroupRecord& group : filled.groups) {
            for (const GroupColumn& column : group.columns)
                CHECK(!unusable.contains(column.member.value));
        }
    }
}

TEST_CASE("large volumes stay below half of the groups there can be")
{
    struct Row {
        const char* profile;
        uint32_t members;
        uint64_t bytes;
    };
    const Row rows[] = {
        {"raid6", 14, 16 * kTiB},   {"raid1", 14, 16 * kTiB}, {"single", 14, 16 * kTiB},
        {"raid1c3", 60, 20 * kTiB}, {"raid5", 3, 16 * kTiB},  {"single", 1, 16 * kTiB},
        {"single", 240, kGiB},      {"raid1", 240, kGiB},     {"raid6", 200, 2 * kTiB},
        {"raid1", 4, kTiB},         {"raid5", 4, 64 * kMiB},
    };
    for (const Row& row : rows) {
        CAPTURE(std::string(row.profile));
        CAPTURE(row.members);
        CAPTURE(row.bytes);
        std::vector<MemberRecord> members;
        for (uint32_t id = 1; id <= row.members; ++id)
            members.push_back(member_of_size(id, row.bytes));
        SlotAllocator slots = with_members(members);
        const Filled filled = fill(slots, members, profile(row.profile));
        CHECK(filled.groups.size() <= kMaxGroups / 2);
        uint64_t left = 0;
        for (const MemberRecord& member : members)
            left += slots.free_bytes(member.id);
        CHECK(left < profile(row.profile).copies * members[0].slot_bytes);
    }
}

TEST_CASE("columns are small on small volumes and grow with the members")
{
    const std::pair<uint64_t, uint64_t> sizes[] = {{64 * kMiB, 16 * kMiB},
                                                   {kGiB, 16 * kMiB},
                                                   {5 * kGiB, 64 * kMiB},
                                                   {70 * kGiB, kGiB},
                                                   {16 * kTiB, 16 * kGiB}};
    for (const auto& size : sizes) {
        const uint64_t member_bytes = size.first;
        CAPTURE(member_bytes);
        std::vector<MemberRecord> members;
        for (uint32_t id = 1; id <= 4; ++id)
            members.push_back(member_of_size(id, member_bytes));
        SlotAllocator slots = with_members(members);
        CHECK(slots.plan_group(profile("raid6"), kDefaultChunkBytes)->column_bytes == size.second);
    }
}

TEST_CASE("mirrors are spread over the members")
{
    std::vector<MemberRecord> members;
    for (uint32_t id = 1; id <= 5; ++id)
        members.push_back(member_of_slots(id, 640));
    SlotAllocator slots = with_members(members);
    for (int round = 0; round < 10; ++round) {
        REQUIRE(slots.plan_group(profile("raid1"), kDefaultChunkBytes).ok());
        uint64_t least = ~uint64_t{0};
        uint64_t most = 0;
        for (const MemberRecord& member : members) {
            least = std::min(least, slots.free_bytes(member.id));
            most = std::max(most, slots.free_bytes(member.id));
        }
        CHECK(most - least <= 128 * kMiB);  // one column
    }
}

TEST_CASE("a volume that grows never runs out of groups")
{
    SlotAllocator slots;
    std::vector<MemberRecord> members;
    uint64_t groups = 0;
    for (uint32_t id = 1; id <= 12; ++id) {
        members.push_back(member_of_size(id, 16 * kGiB << id));
        slots.add_member(members.back(), true);
        while (slots.plan_group(profile("single"), kDefaultChunkBytes).ok())
            ++groups;
        CHECK(groups < kMaxGroups);
        CHECK(slots.free_bytes({id}) * 100 <= members.back().slot_count * members.back().slot_bytes);
    }
    CHECK(groups > 500);
}

TEST_CASE("a member that grows costs no room, however large it becomes")
{
    for (const char* name : {"single", "raid0", "raid1", "raid1c3", "raid1c4", "raid10", "raid5", "raid6"})
        for (const uint64_t slots_each : {uint64_t{6}, uint64_t{190}, uint64_t{3000}})
            for (const uint64_t factor : {2, 100, 5000}) {
                CAPTURE(std::string(name));
                CAPTURE(slots_each);
                CAPTURE(factor);
                SlotAllocator slots;
                for (uint32_t id = 1; id <= 4; ++id)
                    slots.add_member(member_of_slots(id, slots_each), true);
                const uint64_t before = slots.potential_blocks(profile(name), kDefaultChunkBytes);
                const uint64_t grown = std::min(slots_each * factor, uint64_t{1} << 20);
                CHECK(slots.resize_member(member_of_slots(1, grown)));
                CHECK(slots.potential_blocks(profile(name), kDefaultChunkBytes) >= before);
                CHECK(slots.free_bytes({1}) == grown * kMinSlotBytes);
            }
}

TEST_CASE("slots beyond a limit are for no new group, and go when nobody has them")
{
    SlotAllocator slots = with_members({member_of_slots(1, 10), member_of_slots(2, 10)});
    GroupRecord group;
    group.columns = {{{1}, {{4, 4}}}, {{2}, {{0, 4}}}};
    REQUIRE(slots.take(group).ok());
    slots.set_limit({1}, 5);
    CHECK(slots.free_bytes({1}) == 4 * kMinSlotBytes);
    const uint64_t potential = slots.potential_blocks(profile("raid1"), kDefaultChunkBytes);
    CHECK(potential == 4 * kMinSlotBytes / kBlockBytes);
    std::vector<GroupRecord> made;
    for (int number = 0; number < 20; ++number)
        if (Result<GroupRecord> planned = slots.plan_group(profile("raid1"), kDefaultChunkBytes);
            planned.ok())
            made.push_back(planned.take());
    uint64_t made_blocks = 0;
    for (const GroupRecord& one : made) {
        made_blocks += one.column_bytes / kBlockBytes;
        for (const SlotRun& run : one.columns[0].runs)
            CHECK(run.first_slot + run.slot_count <= 4);
    }
    CHECK(made_blocks == potential);
    CHECK(slots.free_bytes({1}) == 0);
    slots.give_back(group);
    CHECK(slots.free_bytes({1}) == kMinSlotBytes);
    CHECK(slots.resize_member(member_of_slots(1, 5)));
    CHECK_FALSE(slots.resize_member(member_of_slots(1, 5)));
    CHECK(slots.free_bytes({1}) == kMinSlotBytes);
    CHECK(slots.take(group) == Err::kCorrupt);
    slots.set_limit({2}, 3);
    slots.set_limit({2}, UINT64_MAX);
    CHECK(slots.free_bytes({2}) == 6 * kMinSlotBytes);
}

TEST_CASE("existing groups take their slots, once, and give them back")
{
    SlotAllocator slots = with_members({member_of_slots(1, 10), member_of_slots(2, 10)});
    GroupRecord group;
    group.columns = {{{1}, {{0, 2}, {4, 2}}}, {{2}, {{6, 4}}}};
    REQUIRE(slots.take(group).ok());
    CHECK(slots.free_bytes({1}) == 6 * kMinSlotBytes);
    CHECK(slots.take(group) == Err::kCorrupt);
    const auto refused = [&](std::vector<GroupColumn> columns) {
        GroupRecord other;
        other.columns = std::move(columns);
        const bool corrupt = slots.take(other) == Err::kCorrupt;
        return corrupt && slots.free_bytes({1}) == 6 * kMinSlotBytes &&
               slots.free_bytes({2}) == 6 * kMinSlotBytes;
    };
    CHECK(refused({{{1}, {{2, 1}}}, {{2}, {{5, 2}}}}));
    CHECK(refused({{{1}, {{2, 1}, {2, 1}}}}));
    CHECK(refused({{{1}, {{9, 2}}}}));
    CHECK(refused({{{1}, {{0xffffffff, 0xffffffff}}}}));
    CHECK(refused({{{1}, {{2, 1}}}, {{3}, {{0, 1}}}}));
    slots.give_back(group);
    CHECK(slots.free_bytes({1}) == 10 * kMinSlotBytes);
    CHECK(slots.free_bytes({7}) == 0);

    // Gaps that are too short are passed over while one is long enough, and used when none is.
    group.columns = {{{1}, {{1, 1}, {3, 1}, {5, 1}}}, {{2}, {{1, 1}, {3, 1}, {5, 1}}}};
    REQUIRE(slots.take(group).ok());
    std::map<uint64_t, size_t> runs;
    for (;;) {
        const Result<GroupRecord> planned = slots.plan_group(profile("raid5"), kDefaultChunkBytes);
        if (!planned.ok())
            break;
        for (const GroupColumn& column : planned->columns)
            runs[column.runs[0].first_slot] += column.runs.size();
    }
    CHECK(runs.size() == 7);
}

TEST_CASE("slots: members that leave do not make columns too large for those that stay")
{
    constexpr uint64_t kLarge = 26'000'000'000'000, kSmall = 480'000'000'000;
    SlotAllocator slots;
    for (uint32_t id = 1; id <= 10; ++id) {
        slots.add_member(member_of_size(id, kLarge), true);
        slots.set_leaving({id}, true);
    }
    const MemberRecord stays = member_of_size(11, kSmall);
    slots.add_member(stays, true);
    const Result<GroupRecord> group = slots.plan_group(profile("single"), kDefaultChunkBytes);
    REQUIRE(group.ok());
    CHECK(group->columns.front().member == stays.id);
    CHECK(group->column_bytes <= max_column_bytes(stays.slot_count * stays.slot_bytes));
}
