// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/checksum.h"
#include "format/to_text.h"
#include "tests/support/format_sample.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

struct MapSample {
    Superblock superblock;
    GroupMap map;
    MapRef ref;
    std::vector<std::byte> bytes;
};

MapSample make_sample(Prng& prng, size_t members, size_t groups)
{
    MapSample sample;
    sample.superblock = sample_superblock(prng, members);
    sample.map = sample_group_map(prng, sample.superblock, groups);
    sample.bytes = encode_group_map(sample.map, sample.superblock.volume_uuid, sample.ref);
    return sample;
}

Result<GroupMap> decode(const MapSample& sample)
{
    return decode_group_map(sample.bytes, sample.ref, sample.superblock);
}

void restamp(MapSample& sample)
{
    const le64 checksum = checksum_of(sample.bytes.data() + 8, sample.bytes.size() - 8);
    std::memcpy(sample.bytes.data(), &checksum, sizeof checksum);
    sample.ref.checksum = checksum;
}

// Three members of three slots of 16 MiB and one raid5 group of two slots per member.
MapSample small_sample()
{
    Prng prng(1);
    MapSample sample;
    sample.superblock = sample_superblock(prng, 3);
    for (MemberRecord& record : sample.superblock.members) {
        const MemberRecord plan = *plan_member_layout(kMinMemberBytes);
        const MemberRecord old = record;
        record = plan;
        record.id = old.id;
        record.uuid = old.uuid;
    }
    sample.superblock.next_group_address = kGiB;
    GroupRecord group{.address = {kMiB}, .content = kGroupData, .profile = ProfileId::kRaid5};
    group.column_bytes = 32 * kMiB;
    group.chunk_bytes = 64 * kKiB;
    group.data_columns = 2;
    group.created_generation = {1};
    for (const MemberRecord& record : sample.superblock.members)
        group.columns.push_back(
            {record.id, {{.first_slot = 0, .slot_count = 1}, {.first_slot = 2, .slot_count = 1}}});
    sample.map = {.generation = {1}, .groups = {group}};
    return sample;
}

// What decoding says about the map as it is now.
Err verdict(MapSample& sample)
{
    sample.bytes = encode_group_map(sample.map, sample.superblock.volume_uuid, sample.ref);
    return decode(sample).err();
}

}  // namespace

TEST_CASE("group map: round trip of random content")
{
    const uint64_t seed = test_seed(11);
    CAPTURE(seed);
    Prng prng(seed);
    size_t groups = 0;
    for (int round = 0; round < 300; ++round) {
        const MapSample sample = make_sample(prng, prng.between(1, 12), prng.below(60));
        REQUIRE(sample.bytes.size() % kBlockBytes == 0);
        REQUIRE(sample.ref.bytes == sample.bytes.size());
        const Result<GroupMap> decoded = decode(sample);
        REQUIRE(decoded.ok());
        REQUIRE(decoded->generation == sample.map.generation);
        REQUIRE(decoded->groups == sample.map.groups);
        REQUIRE(to_text(*decoded) == to_text(sample.map));
        groups += decoded->groups.size();
    }
    CHECK(groups > 1000);
}

TEST_CASE("group map: every flipped byte is noticed, padding included")
{
    const uint64_t seed = test_seed(12);
    CAPTURE(seed);
    Prng prng(seed);
    MapSample sample = make_sample(prng, 6, 30);
    size_t rejected = 0;
    for (std::byte& byte : sample.bytes) {
        const std::byte kept = byte;
        byte ^= static_cast<std::byte>(1u << prng.below(8));
        rejected += !decode(sample).ok();
        byte = kept;
    }
    CHECK(rejected == sample.bytes.size());
    CHECK(decode(sample).ok());
}

TEST_CASE("group map: hostile fields under a good checksum are refused or read faithfully")
{
    const uint64_t seed = test_seed(13);
    CAPTURE(seed);
    Prng prng(seed);
    const MapSample good = make_sample(prng, 6, 60);
    REQUIRE(good.map.groups.size() >= 3);
    size_t end = good.bytes.size();
    while (good.bytes[end - 1] == std::byte{0})
        --end;
    size_t refused = 0;
    size_t tried = 0;
    for (const size_t width : {size_t{4}, size_t{8}}) {
        for (size_t offset = 8; offset < end + 8; offset += 4) {
            uint64_t old = 0;
            std::memcpy(&old, good.bytes.data() + offset, width);
            for (const uint64_t value : {uint64_t{0}, uint64_t{1}, UINT64_MAX, UINT64_MAX - 1, prng.next(),
                                         old + 1, old - 1, old ^ (uint64_t{1} << prng.below(64))}) {
                MapSample sample = good;
                std::memcpy(sample.bytes.data() + offset, &value, width);
                restamp(sample);
                const Result<GroupMap> decoded = decode(sample);
                ++tried;
                refused += !decoded.ok();
                if (!decoded.ok())
                    continue;
                MapRef again;
                const std::vector<std::byte> bytes =
                    encode_group_map(*decoded, sample.superblock.volume_uuid, again);
                CAPTURE(offset);
                CAPTURE(value);
                // Reserved bytes are not kept; everything else is.
                REQUIRE(bytes.size() == sample.bytes.size());
                REQUIRE(decode_group_map(bytes, again, sample.superblock)->groups == decoded->groups);
            }
        }
    }
    CHECK(tried > 1000);
    CHECK(refused > tried / 3);
}

TEST_CASE("group map: random bytes under a good checksum never crash")
{
    const uint64_t seed = test_seed(14);
    CAPTURE(seed);
    Prng prng(seed);
    const MapSample good = make_sample(prng, 8, 40);
    for (int round = 0; round < 3000; ++round) {
        MapSample sample = good;
        for (uint64_t count = prng.between(1, 4); count > 0; --count) {
            const size_t from = prng.between(48, sample.bytes.size() - 1);
            prng.fill(sample.bytes.data() + from,
                      std::min<size_t>(prng.between(1, 16), sample.bytes.size() - from));
        }
        restamp(sample);
        const Err err = decode(sample).err();
        REQUIRE((err == Err::kOk || err == Err::kCorrupt));
    }
}

TEST_CASE("group map: a copy of another commit or volume is not taken")
{
    Prng prng(test_seed(15));
    const MapSample good = make_sample(prng, 5, 10);
    REQUIRE(decode(good).ok());
    MapSample other = good;
    other.ref.generation = other.ref.generation.next();
    CHECK(decode(other).err() == Err::kCorrupt);
    other = good;
    other.ref.checksum += 1;
    CHECK(decode(other).err() == Err::kCorrupt);
    other = good;
    other.ref.bytes += kBlockBytes;
    CHECK(decode(other).err() == Err::kCorrupt);
    other.bytes.resize(other.bytes.size() + kBlockBytes);
    CHECK(decode(other).err() == Err::kCorrupt);
    other = good;
    other.superblock.volume_uuid.bytes[3] ^= 1;
    CHECK(decode(other).err() == Err::kCorrupt);
    other = good;
    other.bytes.pop_back();
    CHECK(decode(other).err() == Err::kCorrupt);
}

TEST_CASE("group map: what is refused")
{
    const MapSample good = small_sample();
    MapSample sample = good;
    REQUIRE(verdict(sample) == Err::kOk);
    const auto refused = [&](auto change) {
        MapSample changed = good;
        change(changed, changed.map.groups[0]);
        return verdict(changed) == Err::kCorrupt;
    };
    CHECK(refused([](MapSample&, GroupRecord& group) { group.content = 0; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.content = 8; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.content = kGroupSystem; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.flags = 16; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.profile = ProfileId{99}; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.profile = ProfileId::kRaid6; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.address = {0}; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.address = {4095}; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.address = {UINT64_MAX - 4095}; }));
    CHECK(
        refused([](MapSample&, GroupRecord& group) { group.address = {kGiB}; }));  // ends behind next address
    CHECK(refused([](MapSample&, GroupRecord& group) { group.chunk_bytes = 3 * 4096; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.column_bytes = 48 * kMiB; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.column_bytes = 0; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.created_generation = {2}; }));
    CHECK(refused(
        [](MapSample&, GroupRecord& group) { group.columns[1].stale_since = {2}; }));  // after the map
    CHECK(refused([](MapSample& changed, GroupRecord& group) {  // before the group
        changed.map.generation = group.created_generation = {5};
        group.columns[1].stale_since = {4};
    }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.columns[1].member = group.columns[0].member; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.columns[1].member = {77777}; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.columns[1].runs[1].first_slot = 3; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.columns[1].runs[1].first_slot = 0; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.columns[1].runs[1].slot_count = UINT32_MAX; }));
    CHECK(refused([](MapSample&, GroupRecord& group) { group.columns[1].runs.clear(); }));
    CHECK(refused([](MapSample& changed, GroupRecord& group) { changed.map.groups.push_back(group); }));
    CHECK(refused([](MapSample& changed, GroupRecord& group) {  // same slots at another address
        GroupRecord second = group;
        second.address = group.address + group.span_bytes();
        changed.map.groups.push_back(second);
    }));
}

TEST_CASE("group map: the target of a replacement has no column")
{
    MapSample sample = small_sample();
    std::vector<MemberRecord>& members = sample.superblock.members;
    members.push_back(members.back());
    members.back().id = {members.back().id.value + 1};
    sample.superblock.replace = {.source = members[0].id, .target = members[3].id};
    CHECK(verdict(sample) == Err::kOk);
    sample.map.groups[0].columns[1].member = members[3].id;
    CHECK(verdict(sample) == Err::kCorrupt);
    sample.superblock.replace = {};
    CHECK(verdict(sample) == Err::kOk);
}

TEST_CASE("group map: a column is bounded by the largest member, not by its runs")
{
    // One member of 2^20 slots of 16 MiB, and a group of one column over many of them.
    MapSample sample = small_sample();
    for (MemberRecord& record : sample.superblock.members) {
        record.size_bytes = 32 * kTiB;
        record.slot_count = uint64_t{1} << 20;
    }
    sample.superblock.next_group_address = kMaxVolumeAddress;
    GroupRecord& group = sample.map.groups[0];
    const auto with_slots = [&](uint32_t slots) {
        group.column_bytes = slots * kMinSlotBytes;
        for (GroupColumn& column : group.columns)
            column.runs = {{.first_slot = 0, .slot_count = slots}};
        return verdict(sample);
    };
    CHECK(with_slots(1u << 17) == Err::kOk);  // an eighth
    CHECK(with_slots((1u << 17) + 1) == Err::kCorrupt);
    CHECK(with_slots(1u << 20) == Err::kCorrupt);
}

TEST_CASE("group map: an empty map and a full one")
{
    Prng prng(test_seed(16));
    MapSample sample = make_sample(prng, 2, 0);
    CHECK(sample.bytes.size() == kBlockBytes);
    CHECK(decode(sample)->groups.empty());

    // As many groups as a map may have, each on one slot of a member with 16,384 of them.
    MemberRecord& record = sample.superblock.members[0];
    const MemberRecord plan = *plan_member_layout(256 * kTiB);
    REQUIRE(plan.slot_count > kMaxGroups);
    record.slots_offset = plan.slots_offset;
    record.slot_bytes = plan.slot_bytes;
    record.slot_count = plan.slot_count;
    GroupRecord group{.address = {kMiB}, .content = kGroupData, .profile = ProfileId::kSingle};
    group.column_bytes = plan.slot_bytes;
    group.chunk_bytes = kDefaultChunkBytes;
    group.data_columns = 1;
    group.created_generation = {1};
    for (uint32_t slot = 0; slot < kMaxGroups; ++slot) {
        group.columns = {{record.id, {{.first_slot = slot, .slot_count = 1}}}};
        sample.map.groups.push_back(group);
        group.address = group.address + group.span_bytes();
    }
    sample.superblock.next_group_address = group.address.value;
    CHECK(verdict(sample) == Err::kOk);
    CHECK(sample.bytes.size() <= plan.map_bytes);
}
