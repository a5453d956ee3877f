// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "base/checksum.h"
#include "format/feature_table.h"
#include "format/to_text.h"
#include "tests/support/format_sample.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

Result<Superblock> decode(const std::vector<std::byte>& bytes)
{
    return decode_superblock(bytes);
}

void restamp(std::vector<std::byte>& bytes)
{
    DiskSuperblock disk;
    std::memcpy(&disk, bytes.data(), sizeof disk);
    const bool plausible = disk.bytes >= sizeof disk && disk.bytes <= bytes.size();
    const size_t length = plausible ? disk.bytes.get() : bytes.size();
    const le64 checksum = checksum_of(bytes.data() + 8, length - 8);
    std::memcpy(bytes.data(), &checksum, sizeof checksum);
}

template <typename T> T get(const std::vector<std::byte>& bytes, size_t offset)
{
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

template <typename T> void set(std::vector<std::byte>& bytes, size_t offset, T value)
{
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    restamp(bytes);
}

constexpr size_t kMember0 = sizeof(DiskSuperblock);

// Decodes to the same bytes or is refused; anything else is a lost or misread field.
bool refused_or_faithful(const std::vector<std::byte>& bytes)
{
    const Result<Superblock> decoded = decode(bytes);
    if (!decoded.ok())
        return decoded.err() == Err::kCorrupt || decoded.err() == Err::kNotFound ||
               decoded.err() == Err::kUnsupported;
    const Result<Superblock> again = decode(encode_superblock(*decoded));
    return again.ok() && to_text(*again) == to_text(*decoded);
}

}  // namespace

TEST_CASE("superblock: round trip of random content")
{
    const uint64_t seed = test_seed(1);
    CAPTURE(seed);
    Prng prng(seed);
    int with_spares = 0, on_spares = 0;
    for (int round = 0; round < 400; ++round) {
        const Superblock superblock = sample_superblock(prng);
        const std::vector<std::byte> bytes = encode_superblock(superblock);
        REQUIRE(bytes.size() % kBlockBytes == 0);
        REQUIRE(bytes.size() <= kSuperblockSlotBytes);
        const Result<Superblock> decoded = decode(bytes);
        REQUIRE(decoded.ok());
        REQUIRE(encode_superblock(*decoded) == bytes);
        REQUIRE(to_text(*decoded) == to_text(superblock));
        REQUIRE(decoded->label == superblock.label);
        REQUIRE(decoded->epochs.size() == superblock.epochs.size());
        REQUIRE(decoded->members.size() == superblock.members.size());
        REQUIRE(decoded->spares == superblock.spares);
        REQUIRE(decoded->on_spare() == superblock.on_spare());
        with_spares += superblock.spares.empty() ? 0 : 1;
        on_spares += superblock.on_spare() ? 1 : 0;
    }
    CHECK(with_spares > 50);
    CHECK(on_spares > 10);
}

TEST_CASE("superblock: what a scrub found is in the lines of members, and nowhere without a scrub")
{
    Prng prng(test_seed(10));
    Superblock superblock = sample_superblock(prng, 3);
    superblock.scrub = {.state = ScrubState::kFinished, .started = 7};
    superblock.scrub.members[superblock.members[0].id].numbers = {1, 2, 3, 4, 5, 6, 7};
    superblock.scrub.members[superblock.members[2].id][ScrubMemberNumber::kLost] = UINT64_MAX;
    std::vector<std::byte> bytes = encode_superblock(superblock);
    const Result<Superblock> decoded = decode(bytes);
    REQUIRE(decoded.ok());
    CHECK(decoded->scrub == superblock.scrub);
    CHECK(decoded->members == superblock.members);
    // A member that left takes its figures along.
    superblock.scrub.members[{superblock.next_member_id}].numbers = {1};
    CHECK(encode_superblock(superblock) == bytes);
    set(bytes, offsetof(DiskSuperblock, scrub), DiskScrub{});
    const Result<Superblock> without = decode(bytes);
    REQUIRE(without.ok());
    CHECK(without->scrub == ScrubRecord());
}

TEST_CASE("superblock: lines of spares that are refused")
{
    Prng prng(test_seed(9));
    Superblock superblock = sample_superblock(prng, 2);
    superblock.incompat_features |= feature_bit("spares");
    const uint32_t id = superblock.next_member_id++;
    Uuid uuid;
    prng.fill(uuid.bytes.data(), uuid.bytes.size());
    superblock.spares = {spare_record({id}, uuid, kMinMemberBytes)};
    superblock.member_id = {id};
    const std::vector<std::byte> good = encode_superblock(superblock);
    REQUIRE(decode(good).ok());
    CHECK(decode(good)->on_spare());
    CHECK(get<uint32_t>(good, 20) == 4096 + 3 * 256);
    const auto refused = [&](size_t offset, auto value) {
        std::vector<std::byte> bytes = good;
        set(bytes, offset, value);
        return decode(bytes).err() == Err::kCorrupt;
    };
    const size_t line = kMember0 + 2 * sizeof(DiskMember);
    CHECK(refused(line + offsetof(DiskMember, member_id), superblock.members[1].id.value));
    CHECK(refused(line + offsetof(DiskMember, member_id), superblock.next_member_id));
    for (const uint32_t state : {0u, 1u, 2u, 3u, 5u})
        CHECK(refused(line + offsetof(DiskMember, state), state));
    CHECK(refused(line + offsetof(DiskMember, size_bytes), kMinMemberBytes - 1));
    CHECK(refused(line + offsetof(DiskMember, size_bytes), kMaxMemberBytes + 1));
    for (const size_t field : {offsetof(DiskMember, missing_since), offsetof(DiskMember, slots_offset),
                               offsetof(DiskMember, slot_count), offsetof(DiskMember, map_bytes),
                               offsetof(DiskMember, fsync_log_bytes), offsetof(DiskMember, counters)})
        CHECK(refused(line + field, uint64_t{1}));
    // One member may not be called a spare, nor a spare a member.
    CHECK(refused(offsetof(DiskSuperblock, spare_count), 0u));
    CHECK(refused(offsetof(DiskSuperblock, spare_count), 2u));
    CHECK(refused(kMember0 + offsetof(DiskMember, state), uint32_t{4}));
    CHECK(refused(offsetof(DiskSuperblock, incompat_features), uint64_t{0}));
}

TEST_CASE("superblock: the largest member table fills the slot")
{
    Prng prng(test_seed(2));
    const std::vector<std::byte> bytes = encode_superblock(sample_superblock(prng, kMaxMembers));
    CHECK(bytes.size() == kSuperblockSlotBytes);
    CHECK(decode(bytes)->members.size() == kMaxMembers);
}

TEST_CASE("superblock: bytes are where the specification says, reserved ones zero")
{
    Prng prng(test_seed(3));
    const Superblock superblock = sample_superblock(prng, 3);
    const std::vector<std::byte> bytes = encode_superblock(superblock);
    CHECK(std::memcmp(bytes.data() + 8, "COWRAID1", 8) == 0);
    CHECK(get<uint32_t>(bytes, 16) == kFormatVersion);
    CHECK(get<uint32_t>(bytes, 20) == 4096 + 3 * 256);
    CHECK(get<uint64_t>(bytes, offsetof(DiskSuperblock, generation)) == superblock.generation.value);
    CHECK(get<uint32_t>(bytes, kMember0) == superblock.members[0].id.value);
    const auto zero = [&](size_t offset, size_t length) {
        for (size_t index = offset; index < offset + length; ++index) {
            if (bytes[index] != std::byte{0})
                return false;
        }
        return true;
    };
    CHECK(zero(offsetof(DiskSuperblock, reserved2), sizeof(DiskSuperblock::reserved2)));
    for (size_t member = 0; member < 3; ++member)
        CHECK(zero(kMember0 + member * 256 + offsetof(DiskMember, reserved), sizeof(DiskMember::reserved)));
    CHECK(zero(4096 + 3 * 256, bytes.size() - 4096 - 3 * 256));
}

TEST_CASE("superblock: every flipped byte is noticed")
{
    const uint64_t seed = test_seed(4);
    CAPTURE(seed);
    Prng prng(seed);
    std::vector<std::byte> bytes = encode_superblock(sample_superblock(prng, 5));
    const size_t length = get<uint32_t>(bytes, 20);
    size_t rejected = 0;
    for (size_t index = 0; index < length; ++index) {
        const std::byte kept = bytes[index];
        bytes[index] ^= static_cast<std::byte>(1u << prng.below(8));
        rejected += !decode(bytes).ok();
        bytes[index] = kept;
    }
    CHECK(rejected == length);
    CHECK(decode(bytes).ok());
}

TEST_CASE("superblock: every cut is noticed")
{
    Prng prng(test_seed(5));
    std::vector<std::byte> bytes = encode_superblock(sample_superblock(prng, 20));
    const size_t length = get<uint32_t>(bytes, 20);
    for (size_t left : {size_t{0}, size_t{1}, size_t{8}, size_t{4095}, size_t{4096}, length - 1}) {
        CAPTURE(left);
        CHECK_FALSE(decode_superblock(std::span(bytes).first(left)).ok());
    }
    CHECK(decode_superblock(std::span(bytes).first(length)).ok());
}

TEST_CASE("superblock: hostile fields under a good checksum are refused or read faithfully")
{
    const uint64_t seed = test_seed(6);
    CAPTURE(seed);
    Prng prng(seed);
    const std::vector<std::byte> good = encode_superblock(sample_superblock(prng, 3));
    const size_t length = get<uint32_t>(good, 20);
    size_t refused = 0;
    size_t tried = 0;
    // Every field is 4 or 8 bytes wide and aligned to 4, so that each is hit whole.
    for (const size_t width : {size_t{4}, size_t{8}}) {
        for (size_t offset = 8; offset + width <= length; offset += 4) {
            const uint64_t old = width == 4 ? get<uint32_t>(good, offset) : get<uint64_t>(good, offset);
            for (const uint64_t value : {uint64_t{0}, uint64_t{1}, UINT64_MAX, UINT64_MAX - 1, prng.next(),
                                         old + 1, old - 1, old ^ (uint64_t{1} << prng.below(64))}) {
                std::vector<std::byte> bytes = good;
                if (width == 4)
                    set(bytes, offset, static_cast<uint32_t>(value));
                else
                    set(bytes, offset, value);
                CAPTURE(offset);
                CAPTURE(value);
                REQUIRE(refused_or_faithful(bytes));
                refused += !decode(bytes).ok();
                ++tried;
            }
        }
    }
    CHECK(tried > 10000);
    CHECK(refused > 1000);
}

TEST_CASE("superblock: random bytes under a good checksum never crash")
{
    const uint64_t seed = test_seed(7);
    CAPTURE(seed);
    Prng prng(seed);
    const std::vector<std::byte> good = encode_superblock(sample_superblock(prng, 4));
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::byte> bytes = good;
        for (uint64_t count = prng.between(1, 6); count > 0; --count) {
            const size_t from = prng.between(16, bytes.size() - 1);
            prng.fill(bytes.data() + from, std::min<size_t>(prng.between(1, 40), bytes.size() - from));
        }
        restamp(bytes);
        REQUIRE(refused_or_faithful(bytes));
    }
}

TEST_CASE("superblock: what is refused, and how")
{
    Prng prng(test_seed(8));
    Superblock superblock = sample_superblock(prng, 3);
    superblock.generation = {50};
    superblock.epochs = {{.epoch = 11, .generation = {20}}, {.epoch = 12, .generation = {1}}};
    superblock.root = {.address = {kBlockBytes}, .generation = {50}, .checksums = {1}};
    superblock.map.generation = {50};
    for (MemberRecord& record : superblock.members) {
        record.state = MemberState::kPresent;
        record.missing_since = {0};
    }
    const std::vector<std::byte> good = encode_superblock(superblock);
    REQUIRE(decode(good).ok());
    const auto with32 = [&](size_t offset, uint32_t value) {
        std::vector<std::byte> bytes = good;
        set(bytes, offset, value);
        return decode(bytes).err();
    };
    const auto with64 = [&](size_t offset, uint64_t value) {
        std::vector<std::byte> bytes = good;
        set(bytes, offset, value);
        return decode(bytes).err();
    };
    const size_t epoch0 = offsetof(DiskSuperblock, epochs);
    CHECK(with64(offsetof(DiskSuperblock, magic), 1) == Err::kNotFound);
    CHECK(with32(offsetof(DiskSuperblock, version), 0) == Err::kCorrupt);
    CHECK(with32(offsetof(DiskSuperblock, version), kFormatVersion - 1) == Err::kUnsupported);
    CHECK(with32(offsetof(DiskSuperblock, version), kFormatVersion + 1) == Err::kUnsupported);
    CHECK(with64(offsetof(DiskSuperblock, incompat_features), uint64_t{1} << 40) == Err::kUnsupported);
    CHECK(with64(offsetof(DiskSuperblock, readonly_features), UINT64_MAX) == Err::kOk);
    CHECK(with64(offsetof(DiskSuperblock, generation), 0) == Err::kCorrupt);
    CHECK(with64(offsetof(DiskSuperblock, generation), 49) == Err::kCorrupt);  // root and map are younger
    CHECK(with64(offsetof(DiskSuperblock, generation), kMaxGeneration + 1) == Err::kCorrupt);
    CHECK(with64(offsetof(DiskSuperblock, epoch), 12) == Err::kCorrupt);
    CHECK(with64(epoch0 + 8, 51) == Err::kCorrupt);  // began after this commit
    CHECK(with64(epoch0 + 24, 21) == Err::kCorrupt);  // older epoch began later
    CHECK(with64(epoch0 + 16, 11) == Err::kCorrupt);  // twice
    CHECK(with32(offsetof(DiskSuperblock, member_id), superblock.next_member_id) == Err::kCorrupt);
    CHECK(with32(offsetof(DiskSuperblock, next_member_id), superblock.members[2].id.value) == Err::kCorrupt);
    CHECK(with32(offsetof(DiskSuperblock, chunk_bytes), 12288) == Err::kCorrupt);
    CHECK(with32(offsetof(DiskSuperblock, data_profile), 9) == Err::kCorrupt);
    CHECK(with32(offsetof(DiskSuperblock, node_bytes), 8192) == Err::kCorrupt);
    CHECK(with64(offsetof(DiskSuperblock, root), superblock.next_group_address) == Err::kCorrupt);
    CHECK(with32(offsetof(DiskSuperblock, map_place), 2) == Err::kCorrupt);
    CHECK(with32(offsetof(DiskSuperblock, map_bytes), 0xfffff000) == Err::kCorrupt);
    CHECK(with32(kMember0 + 256, superblock.members[0].id.value) == Err::kCorrupt);
    CHECK(with32(kMember0 + offsetof(DiskMember, state), 2) == Err::kCorrupt);  // missing since never
    CHECK(with64(kMember0 + offsetof(DiskMember, missing_since), 5) == Err::kCorrupt);
    CHECK(with64(kMember0 + offsetof(DiskMember, slot_count), UINT64_MAX) == Err::kCorrupt);
    CHECK(with64(kMember0 + offsetof(DiskMember, slot_bytes), 24 * kMiB) == Err::kCorrupt);
    CHECK(with64(kMember0 + offsetof(DiskMember, map_offset), 64 * kKiB) == Err::kCorrupt);  // on the ring
    CHECK(with64(kMember0 + offsetof(DiskMember, fsync_log_offset),
                 superblock.members[0].intent_log_offset) == Err::kCorrupt);
    std::vector<std::byte> unterminated = good;
    for (size_t index = 0; index < kLabelBytes; ++index)
        unterminated.at(offsetof(DiskSuperblock, label) + index) = std::byte{'x'};
    restamp(unterminated);
    CHECK(decode(unterminated).err() == Err::kCorrupt);
}

TEST_CASE("superblock: identity is readable in formats we do not know")
{
    Prng prng(test_seed(9));
    const Superblock superblock = sample_superblock(prng, 2);
    std::vector<std::byte> bytes = encode_superblock(superblock);
    set(bytes, offsetof(DiskSuperblock, version), uint32_t{7});
    set(bytes, offsetof(DiskSuperblock, incompat_features), uint64_t{5});
    CHECK(decode(bytes).err() == Err::kUnsupported);
    const Result<SuperblockIdentity> identity = peek_superblock(bytes);
    REQUIRE(identity.ok());
    CHECK(identity->version == 7);
    CHECK(identity->generation == superblock.generation);
    CHECK(identity->volume_uuid == superblock.volume_uuid);
    CHECK(feature_names(FeatureClass::kRefuse, identity->incompat_features) == "intent_log, zstd");
    bytes[100] ^= std::byte{1};
    CHECK(peek_superblock(bytes).err() == Err::kCorrupt);
}

TEST_CASE("superblock: what a label may be")
{
    CHECK(label_is_valid(""));
    CHECK(label_is_valid("Müll 東京"));
    CHECK(label_is_valid(std::string(kLabelBytes - 1, 'a')));
    CHECK_FALSE(label_is_valid(std::string(kLabelBytes, 'a')));
    for (const char* label : {"a\nb", "a\tb", "\x1b[2J", "\x7f", "\xff", "a\u202eb"})
        CHECK_FALSE(label_is_valid(label));
}

TEST_CASE("superblock: logs of 400 TiB on a sparse member are refused")
{
    Prng prng(test_seed(7));
    Superblock superblock = sample_superblock(prng, 1);
    MemberRecord& record = superblock.members[0];
    const MemberId id = record.id;
    const Uuid uuid = record.uuid;
    record = *plan_member_layout(4096 * kTiB);
    record.id = id;
    record.uuid = uuid;
    record.slot_count = kTiB / record.slot_bytes;
    record.intent_log_offset = 2048 * kTiB;
    std::vector<std::byte> bytes = encode_superblock(superblock);
    REQUIRE(decode(bytes).ok());
    set(bytes, kMember0 + offsetof(DiskMember, intent_log_bytes), le64{400 * kTiB});
    CHECK(decode(bytes).err() == Err::kCorrupt);
}

TEST_CASE("superblock: a balance of chosen groups needs its feature, for older programs")
{
    Prng prng(test_seed(10));
    Superblock superblock = sample_superblock(prng, 2);
    superblock.balance = {.state = BalanceState::kRunning,
                          .content = kGroupData | kBalanceChosen,
                          .usage_max = 100,
                          .member = {},
                          .before = superblock.generation,
                          .total_bytes = 0};
    superblock.incompat_features |= feature_bit("chosen");
    std::vector<std::byte> bytes = encode_superblock(superblock);
    CHECK(decode(bytes).ok());
    set(bytes, offsetof(DiskSuperblock, incompat_features),
        le64{superblock.incompat_features & ~feature_bit("chosen")});
    CHECK(decode(bytes).err() == Err::kCorrupt);
}

TEST_CASE(
    "superblock: a member that is made smaller has room for a slot, and the feature, for older programs")
{
    Prng prng(test_seed(11));
    Superblock superblock = sample_superblock(prng, 2);
    const MemberId id = superblock.members[0].id;
    const Uuid uuid = superblock.members[0].uuid;
    superblock.members[0] = *plan_member_layout(kGiB);
    superblock.members[0].id = id;
    superblock.members[0].uuid = uuid;
    superblock.replace = {};
    superblock.balance = {.state = BalanceState::kRunning,
                          .content = kAllContent,
                          .usage_max = 100,
                          .member = id,
                          .before = {},
                          .total_bytes = 0,
                          .shrink_bytes = 512 * kMiB};
    superblock.incompat_features |= feature_bit("shrink");
    const std::vector<std::byte> good = encode_superblock(superblock);
    const Result<Superblock> back = decode(good);
    REQUIRE(back.ok());
    CHECK(back->balance == superblock.balance);
    const auto refused = [&](size_t offset, auto value) {
        std::vector<std::byte> bytes = good;
        set(bytes, offset, value);
        return decode(bytes).err() == Err::kCorrupt;
    };
    CHECK(refused(offsetof(DiskSuperblock, incompat_features),
                  le64{superblock.incompat_features & ~feature_bit("shrink")}));
    for (const uint64_t bytes : {uint64_t{1}, 64 * kMiB, kGiB, kGiB + kMiB, UINT64_MAX})
        CHECK(refused(offsetof(DiskSuperblock, shrink_bytes), le64{bytes}));
    CHECK(refused(offsetof(DiskSuperblock, balance) + offsetof(DiskBalance, member), le32{0}));
    CHECK(refused(sizeof(DiskSuperblock) + offsetof(DiskMember, slot_bytes), le64{0}));
}
