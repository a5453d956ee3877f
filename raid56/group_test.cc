// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "raid56/group_table.h"
#include "tests/support/array_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

TEST_CASE("groups are found by any address of their span and refused when they overlap")
{
    TestVolume volume({ProfileId::kRaid6, 3, 16384});
    const VolumeAddress begin = TestVolume::kGroup;
    const uint64_t span = volume.group_record.span_bytes();
    CHECK(volume.array->group_at(begin)->record == volume.group_record);
    CHECK(volume.array->group_at(begin + (span - 1)));
    CHECK_FALSE(volume.array->group_at(begin + span));
    CHECK_FALSE(volume.array->group_at({begin.value - 1}));
    GroupRecord other = volume.group_record;
    for (const uint64_t address : {begin.value, begin.value + span - 4096, begin.value - span + 4096}) {
        other.address = {address};
        CHECK(volume.array->add_group(other, volume.superblock).err() == Err::kInvalid);
    }
    other.address = begin + span;
    CHECK(volume.array->add_group(other, volume.superblock).ok());
    other.address = {begin.value - span};
    CHECK(volume.array->add_group(other, volume.superblock).ok());
    const Groups all = volume.array->groups();
    CHECK(all.size() == 3);
    CHECK(&*all.begin() == &*volume.array->groups().begin());  // looked at, not copied
    const Ref<const ArrayGroup> held = volume.array->group_at(begin);
    const VolumeAddress gone[] = {{begin.value - span}, begin, begin + 2 * span};
    volume.array->remove_groups(gone);
    CHECK(all.size() == 3);
    CHECK(volume.array->groups().size() == 1);
    CHECK_FALSE(volume.array->group_at(begin));
    CHECK(held->record.address == begin);
    CHECK(volume.array->group_at(begin + span)->record.address == begin + span);
}

TEST_CASE("a record that contradicts itself or the member table is refused")
{
    const TestVolume volume({ProfileId::kRaid6, 3, 16384});
    const auto refused = [&](void (*spoil)(GroupRecord&)) {
        GroupRecord record = volume.group_record;
        spoil(record);
        return make_array_group(record, volume.superblock).err() == Err::kInvalid;
    };
    CHECK(make_array_group(volume.group_record, volume.superblock).ok());
    CHECK(refused([](GroupRecord& r) { r.profile = static_cast<ProfileId>(77); }));
    CHECK(refused([](GroupRecord& r) { r.chunk_bytes = 0; }));
    CHECK(refused([](GroupRecord& r) { r.chunk_bytes = 12288; }));
    CHECK(refused([](GroupRecord& r) { r.chunk_bytes = 2 * kMaxChunkBytes; }));
    CHECK(refused([](GroupRecord& r) { r.data_columns = 0; }));
    CHECK(refused([](GroupRecord& r) { r.data_columns = 4; }));
    CHECK(refused([](GroupRecord& r) { r.data_columns = UINT32_MAX - 1; }));
    CHECK(refused([](GroupRecord& r) { r.column_bytes = 0; }));
    CHECK(refused([](GroupRecord& r) { r.column_bytes -= 4096; }));
    CHECK(refused([](GroupRecord& r) { r.column_bytes = uint64_t{1} << 62; }));
    CHECK(refused([](GroupRecord& r) { r.address = {UINT64_MAX - 4095}; }));
    CHECK(refused([](GroupRecord& r) { r.address = {}; }));
    CHECK(refused([](GroupRecord& r) { r.columns[1].member = {99}; }));
    CHECK(refused([](GroupRecord& r) { r.columns[1].member = r.columns[0].member; }));
    CHECK(refused([](GroupRecord& r) { r.columns[0].runs = {{4, 3}}; }));
    CHECK(refused([](GroupRecord& r) { r.columns[0].runs = {{1, 2}}; }));
    CHECK(refused([](GroupRecord& r) { r.columns[0].runs = {{UINT32_MAX, 3}}; }));
    CHECK(refused([](GroupRecord& r) { r.columns[0].runs = {{1, 0}, {1, 3}}; }));
    CHECK(refused([](GroupRecord& r) { r.columns.pop_back(); }));
    CHECK(refused([](GroupRecord& r) { r.columns.clear(); }));
}

TEST_CASE("neighbouring slot runs become one extent, others keep their order")
{
    TestVolume volume({ProfileId::kRaid5, 2, 65536});
    volume.group_record.columns[0].runs = {{2, 1}, {3, 1}, {0, 1}};
    const Result<Ref<const ArrayGroup>> made = make_array_group(volume.group_record, volume.superblock);
    REQUIRE(made.ok());
    const ArrayGroup& group = **made;
    const uint64_t slots = volume.superblock.members[0].slots_offset;
    const uint64_t slot = TestVolume::kSlotBytes;
    REQUIRE(group.extents[0].size() == 2);
    CHECK(group.locate(0, 0).offset.value == slots + 2 * slot);
    CHECK(group.locate(0, 0).bytes == 2 * slot);
    CHECK(group.locate(0, slot).bytes == slot);
    CHECK(group.locate(0, 2 * slot - 4096).bytes == 4096);
    CHECK(group.locate(0, 2 * slot).offset.value == slots);
    CHECK(group.locate(0, 3 * slot - 4096).offset.value == slots + slot - 4096);
}
