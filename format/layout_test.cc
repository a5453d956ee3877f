// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "format/feature_table.h"
#include "format/member_layout.h"
#include "format/profile.h"
#include "format/to_text.h"
#include "tests/support/format_sample.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

struct Zone {
    uint64_t offset, bytes;
};

// Independent of member_layout_valid(): pairs of zones, no sorting.
bool disjoint_and_inside(const MemberRecord& record)
{
    const uint64_t ring = uint64_t{kSuperblockSlotCount} * kSuperblockSlotBytes;
    const Zone zones[] = {{kSuperblockRingOffset[0], ring},
                          {kSuperblockRingOffset[1], ring},
                          {record.map_offset[0], record.map_bytes},
                          {record.map_offset[1], record.map_bytes},
                          {record.intent_log_offset, record.intent_log_bytes},
                          {record.fsync_log_offset, record.fsync_log_bytes},
                          {record.slots_offset, record.slot_bytes * record.slot_count}};
    for (const Zone& a : zones) {
        if (a.bytes == 0 || a.offset + a.bytes > record.size_bytes)
            return false;
        for (const Zone& b : zones) {
            if (&a != &b && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes)
                return false;
        }
    }
    return true;
}

void check_layout(uint64_t size)
{
    CAPTURE(size);
    const Result<MemberRecord> record = plan_member_layout(size);
    REQUIRE(record.ok());
    REQUIRE(disjoint_and_inside(*record));
    REQUIRE(member_layout_valid(*record));
    REQUIRE(record->size_bytes == size);
    REQUIRE(record->slots_offset == (size < kGiB ? 16 * kMiB : size < 64 * kGiB ? 64 * kMiB : 256 * kMiB));
    REQUIRE(is_power_of_two(record->slot_bytes));
    REQUIRE(record->slot_bytes >= kMinSlotBytes);
    REQUIRE(record->slot_bytes <= kMaxSlotBytes);
    REQUIRE((record->slot_bytes == kMaxSlotBytes || record->slot_bytes >= size / 1024));
    REQUIRE((record->slot_bytes == kMinSlotBytes || record->slot_bytes / 2 < divide_up(size, 1024)));
    // No slot that would fit is left out.
    REQUIRE(record->slots_offset + (record->slot_count + 1) * record->slot_bytes > size);
}

}  // namespace

TEST_CASE("member layout: zones never overlap, at any size")
{
    const uint64_t seed = test_seed(21);
    CAPTURE(seed);
    Prng prng(seed);
    for (const uint64_t size :
         {64 * kMiB, 64 * kMiB + 1, 128 * kMiB, kGiB - 1, kGiB, kGiB + 1, 64 * kGiB - 1, 64 * kGiB, kTiB,
          16 * kTiB - 1, 16 * kTiB, 16 * kTiB + 1, 1024 * kTiB, kMaxMemberBytes})
        check_layout(size);
    for (int round = 0; round < 20000; ++round)
        check_layout(std::max(kMinMemberBytes, prng.below(uint64_t{1} << prng.between(27, 53))));
    CHECK(plan_member_layout(kMinMemberBytes)->slot_count == 3);
    CHECK(plan_member_layout(16 * kTiB)->slot_count == 1023);
}

TEST_CASE("member layout: sizes that cannot be members")
{
    for (const uint64_t size :
         {uint64_t{0}, uint64_t{4096}, kMinMemberBytes - 1, kMaxMemberBytes + 1, UINT64_MAX}) {
        CAPTURE(size);
        CHECK(plan_member_layout(size).err() == Err::kInvalid);
    }
}

TEST_CASE("member layout: zones and slots beyond what mkfs makes are refused, however large the member")
{
    // Everything far apart on a member where it really fits.
    MemberRecord good = *plan_member_layout(4096 * kTiB);
    const uint64_t far = 2048 * kTiB;
    good.slot_count = kTiB / good.slot_bytes;
    good.intent_log_offset = far;
    good.fsync_log_offset = far + 512 * kTiB;
    good.map_offset = {far + 1024 * kTiB, far + 1025 * kTiB};
    REQUIRE(member_layout_valid(good));
    const auto refused = [&](auto change) {
        MemberRecord changed = good;
        change(changed);
        return disjoint_and_inside(changed) && !member_layout_valid(changed);
    };
    CHECK(refused([](MemberRecord& record) { record.intent_log_bytes = 400 * kTiB; }));
    CHECK(refused([](MemberRecord& record) { record.intent_log_bytes += kBlockBytes; }));
    CHECK(refused([](MemberRecord& record) { record.fsync_log_bytes = 400 * kTiB; }));
    CHECK(refused([](MemberRecord& record) { record.fsync_log_bytes += kBlockBytes; }));
    CHECK(refused([](MemberRecord& record) { record.map_bytes += kBlockBytes; }));
    // Small slots on a large member: as many as on one that has grown, not more.
    good.slot_bytes = kMinSlotBytes;
    good.slot_count = uint64_t{1} << 20;
    CHECK(member_layout_valid(good));
    CHECK(refused([](MemberRecord& record) { ++record.slot_count; }));
}

TEST_CASE("member layout: the largest column is an eighth of the largest member, and a slot fits")
{
    CHECK(max_column_bytes(48 * kMiB) == kMaxSlotBytes);
    CHECK(max_column_bytes(16 * kTiB) == 2 * kTiB);
    CHECK(max_column_bytes(17 * kTiB) == 4 * kTiB);
}

TEST_CASE("member layout: blocks of all members")
{
    Prng prng(5);
    Superblock superblock = sample_superblock(prng, 2);
    superblock.members[0].size_bytes = 64 * kMiB;
    superblock.members[1].size_bytes = 64 * kMiB + kBlockBytes + 1;
    CHECK(raw_blocks(superblock.members) == 2 * 64 * kMiB / kBlockBytes + 1);
}

TEST_CASE("member layout: the map place holds every group a member can see")
{
    for (const uint64_t size : {kMinMemberBytes, kGiB, 64 * kGiB, 16 * kTiB, 1024 * kTiB}) {
        const MemberRecord record = *plan_member_layout(size);
        const uint64_t groups = std::min<uint64_t>(record.slot_count, kMaxGroups);
        // A group of 16 members whose columns lie in one run each.
        const uint64_t bytes =
            sizeof(DiskGroupMap) +
            groups * (sizeof(DiskGroup) + 16 * (sizeof(DiskGroupColumn) + sizeof(DiskSlotRun)));
        CAPTURE(size);
        CHECK(bytes <= record.map_bytes);
        CHECK(record.map_bytes <= kMaxMapBytes);
    }
}

TEST_CASE("profiles: a consistent table")
{
    CHECK(profiles().size() == 8);
    for (const Profile& profile : profiles()) {
        CAPTURE(profile.name);
        CHECK(find_profile(profile.id) == &profile);
        CHECK(find_profile(std::string_view(profile.name)) == &profile);
        // What the other columns allow to lose; copies and parity are never combined.
        CHECK(profile.tolerance == profile.copies - 1 + profile.parity);
        CHECK((profile.copies == 1 || profile.parity == 0));
        CHECK(profile.min_members >= profile.copies + profile.parity);
        CHECK((profile.max_columns == 0 || profile.max_columns >= profile.min_members));
    }
    for (uint32_t copies = 1; copies <= 4; ++copies)
        CHECK(mirror_of(copies).tolerance == copies - 1);
    CHECK(find_profile(ProfileId{0}) == nullptr);
    CHECK(find_profile(ProfileId{9}) == nullptr);
    CHECK(find_profile("raid7") == nullptr);
    CHECK(find_profile("") == nullptr);
    CHECK(find_profile("raid5")->min_members == 2);
    CHECK(find_profile("raid6")->min_members == 3);
}

TEST_CASE("features: unknown bits keep their class and get a name")
{
    CHECK(unhandled_features(FeatureClass::kRefuse, uint64_t{1} << 63) == uint64_t{1} << 63);
    for (const Feature& feature : features()) {
        const uint64_t bit = uint64_t{1} << feature.bit;
        CAPTURE(feature.name);
        CHECK(feature_names(feature.feature_class, bit) == feature.name);
        CHECK((unhandled_features(feature.feature_class, bit) == 0) ==
              (feature.support == FeatureSupport::kHandled));
        CHECK(std::strlen(feature.reason) > 10);
        CHECK(std::strlen(feature.date) == 10);
    }
    CHECK(feature_names(FeatureClass::kIgnore, uint64_t{1} << 17) == "bit 17");
    CHECK(feature_names(FeatureClass::kRefuse, uint64_t{1} | uint64_t{1} << 63) == "intent_log, bit 63");
    CHECK(feature_names(FeatureClass::kRefuse, 0).empty());
    CHECK(format_versions().back().version == kFormatVersion);
}

TEST_CASE("text: a label from disk cannot drive a terminal")
{
    Prng prng(3);
    Superblock superblock = sample_superblock(prng, 2);
    superblock.label = "evil\n\x07";
    CHECK(to_text(superblock).find("label \"evil\\x0a\\x07\"") != std::string::npos);
    CHECK(member_state_name(MemberState{7}) == std::string("unknown"));
    CHECK(group_content_name(kGroupData | kGroupSystem) == "data|system");
    CHECK(group_content_name(16) == "0x10");
}

TEST_CASE("text: one line per item, every number in it")
{
    DiskInode inode;
    std::memset(&inode, 0, sizeof inode);
    inode.size_bytes = 12345;
    inode.mode = 0100644;
    inode.modified.seconds = static_cast<uint64_t>(int64_t{-5});
    const std::string text = to_text(inode);
    CHECK(text.find("mode 100644") != std::string::npos);
    CHECK(text.find("size 12345") != std::string::npos);
    CHECK(text.find("modified -5.000000000") != std::string::npos);
    DiskExtent extent;
    std::memset(&extent, 0, sizeof extent);
    extent.kind = 2;
    extent.block_count = 9;
    CHECK(to_text(extent) ==
          "kind 2 address 0 generation 0 blocks 9 stored 0 compression 0 more runs 0 from 0");
    CHECK(to_text(BlockRef{}) == "none");
    CHECK(to_text(BlockRef{.address = {4096}, .generation = {2}, .checksums = {255, 1, 2, 3}}) ==
          "address 4096 generation 2 checksums 00000000000000ff 0000000000000001 0000000000000002 "
          "0000000000000003");
}
