// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstring>

#include "device/assembly.h"
#include "device/superblock_store.h"
#include "sim/fault_device.h"
#include "tests/support/format_sample.h"
#include "tests/support/sample_volume.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// Members 1..3 of a volume behind fault injectors.
struct FaultyVolume {
    SampleVolume volume{9, 3};
    MemberSet members;
    std::vector<FaultDevice*> faults;

    FaultyVolume()
    {
        for (const uint32_t id : volume.all()) {
            auto device =
                std::make_unique<FaultDevice>(std::make_unique<BorrowedDevice>(volume.disk(id)), id);
            faults.push_back(device.get());
            members.add({id}, std::move(device), {});
        }
    }
    [[nodiscard]] uint64_t counter(uint32_t id, MemberCounter kind) const
    {
        return members.counters({id})[static_cast<size_t>(kind)];
    }
};

uint64_t newest_generation(BlockDevice& device)
{
    const Result<RingReading> reading = read_rings(device);
    return reading.ok() ? reading->valid.front().generation.value : 0;
}

}  // namespace

TEST_CASE("rings: eight generations are kept, newest first, in both rings")
{
    SampleVolume volume(1, 2);
    for (int commit = 0; commit < 30; ++commit)
        volume.commit(volume.state, {1, 2});
    const Result<RingReading> reading = read_rings(volume.disk(2));
    REQUIRE(reading.ok());
    REQUIRE(reading->valid.size() == kSuperblockSlotCount);
    for (uint64_t index = 0; index < kSuperblockSlotCount; ++index) {
        CHECK(reading->valid[index].generation.value == 31 - index);
        CHECK(reading->valid[index].member_id == MemberId{2});
    }
    CHECK(reading->damaged_slots == 0);
    CHECK_FALSE(reading->read_error);
    for (const uint32_t ring : {0u, 1u}) {
        SampleVolume copy(1, 2);
        for (uint64_t slot = 0; slot < kSuperblockSlotCount; ++slot)
            volume.rot_slot(1, ring, slot);
        const bool readable = ring == 0;
        CHECK((newest_generation(volume.disk(1)) == 31) == readable);
    }
}

TEST_CASE("rings: a torn write at any sector keeps the commit before")
{
    const uint64_t seed = test_seed(31);
    CAPTURE(seed);
    Prng prng(seed);
    // 60 members, so that a slot has 19 KiB; two laps of the ring, so that old slots lie under the new one.
    Superblock superblock = sample_superblock(prng, 60);
    superblock.created_seconds = 5;
    const auto slot_bytes = [&](uint64_t generation) {
        superblock.generation = {generation};
        superblock.epochs = {{.epoch = 3, .generation = {1}}};
        superblock.root = {};
        superblock.map.generation = {1};
        for (MemberRecord& record : superblock.members) {
            record.state = MemberState::kPresent;
            record.missing_since = {0};
            Prng content(generation * 1000 + record.id.value);  // every sector differs between generations
            for (uint64_t& counter : record.counters)
                counter = content.next();
        }
        return encode_superblock(superblock);
    };
    const auto poke = [&](SimDevice& disk, uint64_t generation, uint64_t from, uint64_t to) {
        const std::vector<std::byte> bytes = slot_bytes(generation);
        const std::span part = std::span(bytes).subspan(from, std::min<uint64_t>(to, bytes.size()) - from);
        for (const uint64_t ring : kSuperblockRingOffset)
            disk.poke(ring + generation % kSuperblockSlotCount * kSuperblockSlotBytes + from, part);
    };
    constexpr uint64_t kLast = 17;
    SimDevice disk("disk", kMinMemberBytes);
    for (uint64_t generation = 1; generation <= kLast; ++generation)
        poke(disk, generation, 0, UINT64_MAX);
    const uint64_t length = slot_bytes(kLast + 1).size();
    REQUIRE(length >= 16 * 1024);
    size_t torn = 0;
    for (uint64_t cut = 512; cut < length; cut += 512) {
        for (const bool first_part : {true, false}) {
            const std::unique_ptr<SimDevice> crashed = disk.clone("crashed");
            poke(*crashed, kLast + 1, first_part ? 0 : cut, first_part ? cut : length);
            CAPTURE(cut);
            const Result<RingReading> reading = read_rings(*crashed);
            REQUIRE(reading.ok());
            // A first part that only lacks the zeros behind the table is whole.
            const uint64_t newest = reading->valid.front().generation.value;
            REQUIRE((newest == kLast || newest == kLast + 1));
            torn += newest == kLast;
        }
    }
    CHECK(torn >= 2 * (length / 512) - 8);
    poke(disk, kLast + 1, 0, UINT64_MAX);
    CHECK(newest_generation(disk) == kLast + 1);
}

TEST_CASE("rings: power cuts while superblocks are written leave the old commit or the new one")
{
    const uint64_t seed = test_seed(32);
    CAPTURE(seed);
    Prng prng(seed);
    size_t kept_old = 0;
    size_t got_new = 0;
    for (int round = 0; round < 200; ++round) {
        SampleVolume volume(seed + static_cast<uint64_t>(round), 3);
        const uint64_t laps = prng.below(10);
        for (uint64_t commit = 0; commit < laps; ++commit)
            volume.commit(volume.state, volume.all());
        const uint64_t before = volume.state.generation.value;
        MemberSet members;
        volume.fill(members, volume.all());
        Superblock next = volume.state;
        next.generation = next.generation.next();
        next.label = "next";
        REQUIRE(write_superblocks(members, next).ok());
        PowerCutOptions cut;
        cut.keep_percent = static_cast<uint32_t>(prng.below(60));
        cut.tear_percent = 40;
        for (const uint32_t id : volume.all())
            volume.disk(id).power_cut(prng, cut);
        std::string why;
        const Result<Assembly> assembly = assemble(volume.devices(volume.all()), why);
        REQUIRE(assembly.ok());
        const uint64_t after = assembly->superblock.generation.value;
        REQUIRE((after == before || after == before + 1));
        REQUIRE(assembly->superblock.label == (after == before ? "" : "next"));
        REQUIRE(assembly->missing().empty());
        (after == before ? kept_old : got_new) += 1;
    }
    CHECK(kept_old > 5);
    CHECK(got_new > 50);
}

TEST_CASE("rings: slots in the wrong place and unreadable sectors count as damage")
{
    SampleVolume volume(2, 2);
    volume.commit(volume.state, {1, 2});
    std::vector<std::byte> slot(kSuperblockSlotBytes);
    volume.disk(1).peek(kSuperblockRingOffset[0] + 2 * kSuperblockSlotBytes, slot);
    volume.disk(1).poke(kSuperblockRingOffset[0] + 5 * kSuperblockSlotBytes, slot);
    Result<RingReading> reading = read_rings(volume.disk(1));
    REQUIRE(reading.ok());
    CHECK(reading->damaged_slots == 1);
    CHECK(reading->damaged_mask[0] == 1u << 5);
    CHECK(reading->damaged_mask[1] == 0);

    FaultDevice bad(volume.disk(2).clone("bad"), 1);
    bad.add_rule({.action = FaultAction::kError,
                  .kinds = kFaultReads,
                  .begin = kSuperblockRingOffset[1],
                  .end = kSuperblockRingOffset[1] + 8 * kSuperblockSlotBytes});
    reading = read_rings(bad);
    REQUIRE(reading.ok());
    CHECK(reading->read_error);
    CHECK(reading->valid.size() == 2);
    CHECK(reading->damaged_mask[1] == 0xff);
    bad.add_rule({.action = FaultAction::kError, .kinds = kFaultReads});
    CHECK(read_rings(bad).err() == Err::kIo);
    bad.add_rule({.action = FaultAction::kGone});
    bad.remove_rule(1);
    bad.remove_rule(0);
    CHECK(read_rings(bad).err() == Err::kMemberGone);
}

TEST_CASE("rings: a member taken into a new volume shows only the new one")
{
    SampleVolume older(3, 2);
    for (int commit = 0; commit < 40; ++commit)
        older.commit(older.state, {1, 2});
    REQUIRE(erase_rings(older.disk(1)).ok());
    CHECK(read_rings(older.disk(1)).err() == Err::kNotFound);
    CHECK(older.disk(1).unflushed_writes() == 0);
}

TEST_CASE("store: a member that cannot be written is counted, marked and left behind")
{
    FaultyVolume faulty;
    faulty.members.set_quorums({{faulty.members.ids(), 2}});
    Superblock next = faulty.volume.state;
    next.generation = {2};
    const FaultRule second_ring{.action = FaultAction::kError,
                                .kinds = kFaultWrites,
                                .begin = kSuperblockRingOffset[1],
                                .end = kSuperblockRingOffset[1] + kMiB};
    faulty.faults[1]->add_rule(second_ring);
    CHECK(write_superblocks(faulty.members, next).ok());
    CHECK(faulty.members.failed({2}));
    CHECK(faulty.members.device({2}) == nullptr);
    CHECK(faulty.counter(2, MemberCounter::kWriteErrors) == 1);
    CHECK(faulty.counter(1, MemberCounter::kWriteErrors) == 0);
    CHECK(newest_generation(faulty.volume.disk(1)) == 2);
    CHECK(newest_generation(faulty.volume.disk(3)) == 2);
    // One of the two that are needed: it stays, nobody says otherwise, and nothing is written any more.
    const size_t rule = faulty.faults[0]->add_rule(second_ring);
    next.generation = {3};
    CHECK(write_superblocks(faulty.members, next).err() == Err::kTooManyFaults);
    CHECK_FALSE(faulty.members.failed({1}));
    CHECK(newest_generation(faulty.volume.disk(3)) == 3);  // those that could be written were
    faulty.faults[0]->remove_rule(rule);
    next.generation = {4};
    CHECK(write_superblocks(faulty.members, next).err() == Err::kTooManyFaults);
    CHECK(newest_generation(faulty.volume.disk(3)) == 3);
}

TEST_CASE("store: a failed flush takes the member out and is not repeated")
{
    FaultyVolume faulty;
    faulty.members.set_quorums({{faulty.members.ids(), 2}});
    const size_t rule = faulty.faults[0]->add_rule({.action = FaultAction::kError, .kinds = kFaultFlushes});
    CHECK(flush_members(faulty.members).ok());
    CHECK(faulty.members.failed({1}));
    CHECK(faulty.counter(1, MemberCounter::kFlushErrors) == 1);
    CHECK(flush_members(faulty.members).ok());
    CHECK(faulty.faults[0]->hits(rule) == 1);
}

TEST_CASE("store: members that fail one flush leave together or not at all, and no later flush counts")
{
    FaultyVolume faulty;
    faulty.members.set_quorums({{faulty.members.ids(), 2}});
    size_t rules[2];
    for (const size_t index : {0, 2})
        rules[index / 2] = faulty.faults[index]->add_rule({.kinds = kFaultFlushes, .limit = 1});
    CHECK(flush_members(faulty.members).err() == Err::kTooManyFaults);
    for (const uint32_t id : {1u, 2u, 3u})
        CHECK_FALSE(faulty.members.failed({id}));
    CHECK(faulty.members.stopped());
    CHECK(flush_members(faulty.members).err() == Err::kTooManyFaults);
    CHECK(faulty.faults[0]->hits(rules[0]) == 1);
    CHECK(faulty.faults[2]->hits(rules[1]) == 1);
}

TEST_CASE("store: every device gets two superblock writes in one batch, nothing is flushed")
{
    FaultyVolume faulty;
    Superblock next = faulty.volume.state;
    next.generation = {2};
    const IoStatistics before = io_statistics();
    REQUIRE(write_superblocks(faulty.members, next).ok());
    const IoStatistics after = io_statistics();
    CHECK(after.batches - before.batches == 1);
    CHECK(after.writes - before.writes == 6);
    CHECK(after.flushes == before.flushes);
    CHECK(faulty.volume.disk(1).unflushed_writes() == 2);
}

TEST_CASE("store: the map is read from the first good copy, bad ones are counted")
{
    FaultyVolume faulty;
    const Superblock& state = faulty.volume.state;
    const uint64_t offset = state.members[0].map_offset[state.map.place];
    const std::byte noise[16] = {std::byte{1}, std::byte{2}};
    faulty.volume.disk(1).poke(offset + 20, noise);
    faulty.faults[1]->add_rule({.action = FaultAction::kError, .kinds = kFaultReads});
    const Result<GroupMap> map = read_group_map(faulty.members, state);
    REQUIRE(map.ok());
    CHECK(map->generation == state.map.generation);
    CHECK(faulty.counter(1, MemberCounter::kSuperblock) == 1);
    CHECK(faulty.counter(2, MemberCounter::kReadErrors) == 1);
    CHECK(faulty.counter(3, MemberCounter::kSuperblock) == 0);
    CHECK_FALSE(faulty.members.failed({2}));  // a read error alone does not cost a member
    faulty.volume.disk(3).poke(offset + 20, noise);
    CHECK(read_group_map(faulty.members, state).err() == Err::kCorrupt);
}

TEST_CASE("store: an old map of a member that was away is not its fault")
{
    FaultyVolume faulty;
    SampleVolume& volume = faulty.volume;
    volume.mount_degraded(volume.state, {2, 3});
    volume.commit(volume.state, {2, 3});
    volume.commit(volume.state, {2, 3});
    const std::byte noise[4] = {std::byte{9}};
    const uint64_t offset = volume.state.members[0].map_offset[volume.state.map.place];
    volume.disk(2).poke(offset + 16, noise);
    CHECK(read_group_map(faulty.members, volume.state).ok());
    CHECK(faulty.counter(1, MemberCounter::kSuperblock) == 0);
    CHECK(faulty.counter(2, MemberCounter::kSuperblock) == 1);
}

TEST_CASE("store: a map longer than a member's room is refused before anything is written")
{
    FaultyVolume faulty;
    const Superblock& state = faulty.volume.state;
    const std::vector<std::byte> bytes(state.members[0].map_bytes + kBlockBytes);
    const uint64_t writes = io_statistics().writes;
    CHECK(write_group_map(faulty.members, state, bytes, 0).err() == Err::kNoSpace);
    CHECK(io_statistics().writes == writes);
    const std::vector<std::byte> fits(state.members[0].map_bytes);
    CHECK(write_group_map(faulty.members, state, fits, 0).ok());
    // The other place, which the superblock names, is untouched.
    CHECK(state.map.place == 1);
    CHECK(read_group_map(faulty.members, state).ok());
}

// What two crashes of two commits with one number can leave of member 3's slot: the first sector of the one,
// and the other sectors, which are the same in both, of the other.
void tear_twice(SampleVolume& volume, bool erase_between)
{
    volume.commit(volume.state, {1, 2, 3});
    Superblock lost = volume.state;
    volume.commit(lost, {1, 2, 3}, {});
    lost.member_id = {3};
    const std::vector<std::byte> bytes = encode_superblock(lost);
    const uint64_t slot = lost.generation.value % kSuperblockSlotCount * kSuperblockSlotBytes;
    volume.disk(3).poke(kSuperblockRingOffset[1] + slot, std::span(bytes).first(512));
    if (erase_between) {
        std::string why;
        Result<Assembly> assembly = assemble(volume.devices({1, 2, 3}), why);
        REQUIRE(assembly.ok());
        CHECK(assembly->superblock.generation == volume.state.generation);
        CHECK(assembly->damaged_rings.empty());  // a crash explains it
        MemberSet members;
        volume.fill(members, {1, 2, 3});
        CHECK(erase_slots(members, {{assembly->members[2].damaged}}).ok());
        CHECK(flush_members(members).ok());
    }
    volume.disk(3).poke(kSuperblockRingOffset[1] + slot + 512, std::span(bytes).subspan(512));
}

TEST_CASE("store: a torn superblock that stays may be completed by the next torn one; erased, it cannot")
{
    SampleVolume left(4, 3);
    tear_twice(left, false);
    CHECK(newest_generation(left.disk(3)) == 3);
    SampleVolume erased(4, 3);
    tear_twice(erased, true);
    CHECK(newest_generation(erased.disk(3)) == 2);
}

TEST_CASE("store: a commit found on one member is brought to all, unchanged")
{
    FaultyVolume faulty;
    SampleVolume& volume = faulty.volume;
    volume.commit(volume.state, {1, 2, 3});
    volume.commit(volume.state, {1, 2, 3}, {3});
    CHECK(newest_generation(volume.disk(1)) == 2);
    const uint64_t slot = kSuperblockRingOffset[1] + volume.state.generation.value * kSuperblockSlotBytes;
    std::byte before[kBlockBytes];
    volume.disk(3).peek(slot, before);
    GroupMap map{.generation = volume.state.map.generation, .groups = {}};
    CHECK(rewrite_commit(faulty.members, volume.state, map).ok());
    std::byte after[kBlockBytes];
    volume.disk(3).peek(slot, after);
    CHECK(std::memcmp(before, after, sizeof before) == 0);
    for (const uint32_t id : volume.all()) {
        CHECK(newest_generation(volume.disk(id)) == 3);
        CHECK(volume.disk(id).unflushed_writes() == 0);
    }
    map.generation = {2};
    CHECK(rewrite_commit(faulty.members, volume.state, map).err() == Err::kCorrupt);
}
