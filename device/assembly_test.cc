// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "device/assembly.h"
#include "sim/fault_device.h"
#include "tests/support/probed_device.h"
#include "tests/support/sample_volume.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint32_t kMemberCount = 4;

// What a scenario leaves on the members, and which are given to assemble().
struct Arranged {
    SampleVolume volume{77, kMemberCount};
    std::vector<std::unique_ptr<BlockDevice>> devices;
    AssemblyOptions options;
    // Filled by scenarios that expect a certain first missed commit.
    uint64_t missed_from = 0;

    void give(const Ids& ids)
    {
        for (auto& device : volume.devices(ids))
            devices.push_back(std::move(device));
    }
    // All; of member 3 foreign_content() answers `err`.
    void give_probed(Err err)
    {
        give({1, 2, 4});
        devices.push_back(std::make_unique<ProbedDevice>(volume.disk(3).clone("/dev/m3"), err));
    }
};

struct Scenario {
    const char* name;
    void (*arrange)(Arranged& arranged);
    uint64_t generation = 0;  // refused
    Ids stale = {};
    Ids missing = {};  // stale ones included
    Ids damaged = {};
    std::vector<const char*> said = {};  // parts of `why`, or of the notes
    Err err = Err::kOk;
};

void commits(SampleVolume& volume, Superblock& state, const Ids& ids, int count)
{
    while (count-- > 0)
        volume.commit(state, ids);
}

// Degraded mounts that end before their first commit.
void mounts(SampleVolume& volume, Superblock& state, const Ids& ids, int count)
{
    while (count-- > 0) {
        volume.mount_degraded(state, ids);
        volume.commit_states(state, ids, ids);
    }
}

// A degraded mount and its commits.
void go_on(SampleVolume& volume, Superblock& state, const Ids& ids, int count)
{
    volume.mount_degraded(state, ids);
    commits(volume, state, ids, count);
}

// A slot of an older, larger-numbered volume in every ring slot that is blank.
void leave_older_volume(SampleVolume& volume, uint32_t id)
{
    SampleVolume older(5, kMemberCount);  // created before seed 77's
    older.state.generation = {1000};
    commits(older, older.state, older.all(), kSuperblockSlotCount);
    for (const uint64_t ring : kSuperblockRingOffset) {
        for (uint64_t slot = 0; slot < kSuperblockSlotCount; ++slot) {
            std::byte now[8];
            volume.disk(id).peek(ring + slot * kSuperblockSlotBytes, now);
            if (now[0] != std::byte{0} || now[7] != std::byte{0})
                continue;
            std::vector<std::byte> bytes(kSuperblockSlotBytes);
            older.disk(id).peek(ring + slot * kSuperblockSlotBytes, bytes);
            volume.disk(id).poke(ring + slot * kSuperblockSlotBytes, bytes);
        }
    }
}

// Rewrites fields of both copies of slot `generation` of a member, with a fitting checksum.
void forge(SampleVolume& volume, uint32_t id, uint64_t generation, void (*change)(DiskSuperblock& disk))
{
    for (const uint64_t ring : kSuperblockRingOffset) {
        const uint64_t offset = ring + generation % kSuperblockSlotCount * kSuperblockSlotBytes;
        std::vector<std::byte> bytes(kSuperblockSlotBytes);
        volume.disk(id).peek(offset, bytes);
        DiskSuperblock disk;
        std::memcpy(&disk, bytes.data(), sizeof disk);
        change(disk);
        std::memcpy(bytes.data(), &disk, sizeof disk);
        disk.checksum = checksum_of(bytes.data() + 8, disk.bytes - 8);
        std::memcpy(bytes.data(), &disk.checksum, 8);
        volume.disk(id).poke(offset, bytes);
    }
}

const Scenario kHealthy[] = {
    {.name = "healthy",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 20);
             a.give({3, 1, 4, 2});
         },
     .generation = 21},
    {.name = "one member not given",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 3);
             a.give({1, 2, 4});
         },
     .generation = 4,
     .missing = {3}},
    {.name = "only one given",
     .arrange = [](Arranged& a) { a.give({2}); },
     .generation = 1,
     .missing = {1, 3, 4}},
    {.name = "crash between superblock writes: one is behind",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 9);
             a.volume.commit(a.volume.state, {1, 2, 4});
             a.give({1, 2, 3, 4});
         },
     .generation = 11},
    {.name = "crash between superblock writes: one is ahead",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 9);
             a.volume.commit(a.volume.state, {4});
             a.give({1, 2, 3, 4});
         },
     .generation = 11},
    {.name = "crash in the first commit of a degraded mount",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 5);
             a.volume.mount_degraded(a.volume.state, {1, 2, 3});
             a.volume.commit(a.volume.state, {1});
             a.give({1, 2, 3});
         },
     .generation = 7,
     .missing = {4}},
    {.name = "crashes in the first commits of two degraded mounts in a row",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 5);
             a.volume.mount_degraded(a.volume.state, {1, 2, 3});
             a.volume.commit(a.volume.state, {1});
             a.volume.mount_degraded(a.volume.state, {1, 2, 3});
             a.volume.commit(a.volume.state, {2});
             a.give({1, 2, 3});
         },
     .generation = 8,
     .missing = {4}},
    {.name = "a copy that knows of a failure outranks its equals",
     .arrange =
         [](Arranged& a) {
             Superblock before = a.volume.state;
             a.volume.fail(a.volume.state, 4);
             a.volume.commit_states(a.volume.state, {2}, {2});
             a.volume.commit_states(before, {1, 3, 4}, {1, 3, 4});
             a.give({1, 2, 3, 4});
             a.missed_from = 2;
         },
     .generation = 2,
     .stale = {4},
     .missing = {4}},
};

const Scenario kStale[] = {
    {.name = "away during a degraded mount",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 5);
             go_on(a.volume, a.volume.state, {1, 2, 4}, 12);
             a.give({1, 2, 3, 4});
             a.missed_from = 7;
         },
     .generation = 18,
     .stale = {3},
     .missing = {3},
     .said = {"member 3 was away since commit 7 (/dev/m3)"}},
    {.name = "taken out at run time",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 5);
             a.volume.fail(a.volume.state, 2);
             commits(a.volume, a.volume.state, {1, 3, 4}, 2);
             a.give({1, 2, 3, 4});
             a.missed_from = 7;
         },
     .generation = 8,
     .stale = {2},
     .missing = {2},
     .said = {"member 2 failed since commit 7 (/dev/m2)"}},
    {.name = "stale member and head absent members disagree: the table of the newest commit counts",
     .arrange =
         [](Arranged& a) {
             go_on(a.volume, a.volume.state, {1, 2, 3}, 3);
             go_on(a.volume, a.volume.state, {1, 2}, 3);
             a.give({2, 3, 4});
         },
     .generation = 7,
     .stale = {3, 4},
     .missing = {1, 3, 4},
     .said = {"member 1 is absent", "member 3 was away"}},
    {.name = "a commit nobody acknowledged on a member that was then away",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 5);
             Superblock crashed = a.volume.state;
             a.volume.commit(crashed, {1});
             go_on(a.volume, a.volume.state, {2, 3, 4}, 4);
             a.give({1, 2, 3, 4});
             a.missed_from = 7;
         },
     .generation = 10,
     .stale = {1},
     .missing = {1}},
    {.name = "came back and missed the commit that says so",
     .arrange =
         [](Arranged& a) {
             go_on(a.volume, a.volume.state, {1, 2, 3}, 5);
             a.volume.restore(a.volume.state, 4);
             a.volume.commit(a.volume.state, {1, 2, 3});
             a.give({1, 2, 3, 4});
             a.missed_from = 2;
         },
     .generation = 7,
     .stale = {4},
     .missing = {4}},
    {.name = "an image restored from before the last epoch, listed as present",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 2);
             const std::unique_ptr<SimDevice> image = a.volume.disk(3).clone("image");
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 4);
             go_on(a.volume, a.volume.state, {1, 2, 3}, 4);
             std::vector<std::byte> head(kMinHeadBytes);
             image->peek(0, head);
             a.volume.disk(3).poke(0, head);
             a.give({1, 2, 3});
             a.missed_from = 4;
         },
     .generation = 11,
     .stale = {3},
     .missing = {3, 4}},
    {.name = "away for more degraded mounts than the history holds",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 2);
             for (uint32_t mount = 0; mount < kEpochHistoryCount + 6; ++mount) {
                 a.volume.mount_degraded(a.volume.state, {1, 2, 3});
                 a.volume.commit(a.volume.state, {1, 2, 3});
             }
             a.give({1, 2, 3, 4});
             a.missed_from = 4;
             a.options.named = {"/dev/m4"};
         },
     .generation = 73,
     .stale = {4},
     .missing = {4}},
    {.name = "who is away for longer than the history goes back may be anybody",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 2);
             mounts(a.volume, a.volume.state, {1, 2, 3}, kEpochHistoryCount);
             a.give({1, 2, 3, 4});
             a.options.named = {"/dev/m1"};
         },
     .generation = 67,
     .missing = {4},
     .said = {"member 4 was away for more degraded mounts than the volume remembers (/dev/m4)"}},
    {.name = "away for 200 degraded mounts that ended before their first commit",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 2);
             mounts(a.volume, a.volume.state, {1, 2, 3}, 200);
             a.give({1, 2, 3, 4});
             a.missed_from = 4;
             a.options.named = {"/dev/m4"};
         },
     .generation = 203,
     .stale = {4},
     .missing = {4}},
};

const Scenario kDamaged[] = {
    {.name = "newest slot rotten on one member: its older slot does not outvote the others",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 11);
             a.volume.rot_slot(2, 0, 12);
             a.volume.rot_slot(2, 1, 12);
             a.give({1, 2, 3, 4});
         },
     .generation = 12},
    {.name = "one copy of the newest slot torn, and one of an older slot rotten",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 11);
             a.volume.rot_slot(2, 1, 12);
             a.volume.rot_slot(4, 1, 11);
             a.give({1, 2, 3, 4});
         },
     .generation = 12,
     .damaged = {4}},
    {.name = "a copy of the commit that a mount ended with is rotten",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 10);
             a.volume.state.unmounted = true;
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 1);
             a.volume.rot_slot(2, 1, 12);
             a.give({1, 2, 3, 4});
         },
     .generation = 12,
     .damaged = {2}},
    {.name = "a member lacks the commit that a mount ended with",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 10);
             a.volume.state.unmounted = true;
             a.volume.commit(a.volume.state, {1, 2, 3, 4}, {1, 2, 4});
             a.give({1, 2, 3, 4});
         },
     .generation = 12,
     .damaged = {3}},
    {.name = "newest slot rotten right after a new epoch",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 5);
             go_on(a.volume, a.volume.state, {1, 2, 3}, 1);
             a.volume.rot_slot(1, 0, 7);
             a.volume.rot_slot(1, 1, 7);
             a.give({1, 2, 3});
         },
     .generation = 7,
     .missing = {4}},
    {.name = "a torn slot of the next commit is nobody's fault",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 11);
             for (const uint32_t id : {1u, 2u, 3u, 4u})
                 a.volume.rot_slot(id, 0, 13);
             a.give({1, 2, 3, 4});
         },
     .generation = 12},
    {.name = "all rings damaged but one slot of one member",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 11);
             for (const uint32_t id : {1u, 2u, 3u, 4u}) {
                 for (uint32_t ring = 0; ring < kSuperblockRingCount; ++ring) {
                     for (uint64_t slot = 0; slot < kSuperblockSlotCount; ++slot) {
                         if (id != 3 || ring != 1 || slot != 12 % kSuperblockSlotCount)
                             a.volume.rot_slot(id, ring, slot);
                     }
                 }
             }
             a.give({1, 2, 3, 4});
         },
     .generation = 12,
     .missing = {1, 2, 4},
     .damaged = {3},
     .said = {"/dev/m1 carries no cowraid superblock: left out"}},
    {.name = "writes of one member were lost for five commits",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 5);
             commits(a.volume, a.volume.state, {1, 2, 4}, 5);
             a.give({1, 2, 3, 4});
             a.missed_from = 7;
         },
     .generation = 11,
     .stale = {3},
     .missing = {3},
     .damaged = {3},
     .said = {"member 3 stopped at commit 6 (/dev/m3)"}},
    {.name = "a copy of older days than the rings of the others go back to",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 5);
             commits(a.volume, a.volume.state, {1, 2, 4}, 12);
             a.give({1, 2, 3, 4});
             a.missed_from = 1;
         },
     .generation = 18,
     .stale = {3},
     .missing = {3},
     .damaged = {3},
     .said = {"member 3 stopped at commit 6 (/dev/m3)"}},
    {.name = "slots of an older volume in the other ring slots",
     .arrange =
         [](Arranged& a) {
             a.volume.commit(a.volume.state, {1, 2, 3, 4});
             for (const uint32_t id : {1u, 2u, 3u, 4u})
                 leave_older_volume(a.volume, id);
             a.give({1, 2, 3, 4});
         },
     .generation = 2},
    {.name = "a member wiped with zeros",
     .arrange =
         [](Arranged& a) {
             CHECK(erase_rings(a.volume.disk(2)).ok());
             a.give({1, 2, 3, 4});
         },
     .generation = 1,
     .missing = {2},
     .said = {"member 2 is overwritten: /dev/m2 carries no cowraid superblock"}},
    {.name = "a member that answers nothing",
     .arrange =
         [](Arranged& a) {
             a.give({1, 2, 4});
             auto gone = std::make_unique<FaultDevice>(a.volume.disk(3).clone("/dev/m3"), 1);
             gone->add_rule({.action = FaultAction::kGone});
             a.devices.push_back(std::move(gone));
         },
     .generation = 1,
     .missing = {3},
     .said = {"member 3 is unreadable: /dev/m3 cannot be read"}},
    {.name = "a bad sector in the newest slot",
     .arrange =
         [](Arranged& a) {
             a.give({1, 2, 4});
             auto bad = std::make_unique<FaultDevice>(a.volume.disk(3).clone("/dev/m3"), 1);
             bad->add_rule({.action = FaultAction::kLatent,
                            .begin = kSuperblockRingOffset[0] + kSuperblockSlotBytes,
                            .end = kSuperblockRingOffset[0] + kSuperblockSlotBytes + 512});
             a.devices.push_back(std::move(bad));
         },
     .generation = 1,
     .damaged = {3}},
    {.name = "a bad sector where a member keeps nothing",
     .arrange = [](Arranged& a) { a.give_probed(Err::kIo); },
     .generation = 1},
    {.name = "a member that cannot be looked at for what is not ours",
     .arrange = [](Arranged& a) { a.give_probed(Err::kAccess); },
     .generation = 1,
     .missing = {3},
     .said = {"/dev/m3 cannot be read through the page cache"}},
    {.name = "a member that shrank",
     .arrange =
         [](Arranged& a) {
             auto smaller = std::make_unique<SimDevice>("/dev/small", kMinMemberBytes - kMiB);
             std::vector<std::byte> head(kMinHeadBytes);
             a.volume.disk(1).peek(0, head);
             smaller->poke(0, head);
             a.give({2, 3, 4});
             a.devices.push_back(std::move(smaller));
         },
     .generation = 1,
     .missing = {1},
     .said = {"member 1 is shrunken: /dev/small needs 64 MiB, has 63 MiB"}},
    {.name = "a member that was removed",
     .arrange =
         [](Arranged& a) {
             a.volume.state.members.erase(a.volume.state.members.begin() + 2);
             a.volume.commit(a.volume.state, {1, 2, 4});
             a.give({1, 2, 3, 4});
         },
     .generation = 2,
     .said = {"/dev/m3 was member 3 and has been removed: left out"}},
};

// Members 1 to 3 of a volume, and member 4 with a superblock of a much later commit that knows only itself.
void forge_a_volume_of_one(Arranged& arranged)
{
    commits(arranged.volume, arranged.volume.state, {1, 2, 3, 4}, 3);
    Superblock forged = arranged.volume.state;
    forged.generation = {1000};
    forged.members.erase(forged.members.begin(), forged.members.begin() + 3);
    arranged.volume.commit(forged, {4});
}

void another_third_device(Arranged& a)
{
    Superblock other = a.volume.state;
    other.members[2].uuid.bytes[0] ^= 1;
    a.volume.commit_states(other, {3}, {3});
    a.volume.commit_states(a.volume.state, {1, 2, 4}, {1, 2, 4});
    a.give({1, 2, 3, 4});
}

constexpr const char* kKeepFirst = ". To keep /dev/m1 /dev/m2: mount.cowraid -o degraded=force /dev/m1 "
                                   "/dev/m2 DIR && cowraid replace start -B "
                                   "-f 3 /dev/m3 DIR && cowraid replace start -B -f 4 /dev/m4 DIR";
constexpr const char* kKeepSecond = ". To keep /dev/m3 /dev/m4: mount.cowraid -o degraded=force /dev/m3 "
                                    "/dev/m4 DIR && cowraid replace start -B "
                                    "-f 1 /dev/m1 DIR && cowraid replace start -B -f 2 /dev/m2 DIR";

const Scenario kRefused[] = {
    {.name = "a named member that was removed",
     .arrange =
         [](Arranged& a) {
             a.volume.state.members.erase(a.volume.state.members.begin() + 2);
             a.volume.commit(a.volume.state, {1, 2, 4});
             a.options.named = {"/dev/m3"};
             a.give({1, 2, 3, 4});
         },
     .said = {"/dev/m3 was member 3 and has been removed: leave it out"},
     .err = Err::kInvalid},
    {.name = "one device with a newer commit turns the others out",
     .arrange =
         [](Arranged& a) {
             forge_a_volume_of_one(a);
             a.give({1, 2, 3, 4});
         },
     .said = {"/dev/m4 has the newest commit", "does not know member"},
     .err = Err::kInvalid},
    {.name = "one device with a newer commit turns a single other out",
     .arrange =
         [](Arranged& a) {
             forge_a_volume_of_one(a);
             a.give({2, 4});
         },
     .said = {"/dev/m4 has the newest commit", "does not know member 2"},
     .err = Err::kInvalid},
    {.name = "both halves written",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 3);
             Superblock other = a.volume.state;
             go_on(a.volume, a.volume.state, {1, 2}, 5);
             go_on(a.volume, other, {3, 4}, 2);
             a.give({1, 2, 3, 4});
         },
     .said = {"split brain: /dev/m1 /dev/m2 and /dev/m3 /dev/m4 were", kKeepFirst, kKeepSecond},
     .err = Err::kInvalid},
    {.name = "one half written, the other mounted 200 times without a commit and then written",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 3);
             Superblock other = a.volume.state;
             mounts(a.volume, a.volume.state, {1, 2}, 200);
             commits(a.volume, a.volume.state, {1, 2}, 2);
             mounts(a.volume, other, {3, 4}, 1);
             commits(a.volume, other, {3, 4}, 2);
             a.give({1, 2, 3, 4});
         },
     .said = {"split brain: /dev/m1 /dev/m2 and /dev/m3 /dev/m4 were", kKeepFirst, kKeepSecond},
     .err = Err::kInvalid},
    {.name = "both halves mounted 200 times without a commit and then written",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 3);
             Superblock other = a.volume.state;
             mounts(a.volume, a.volume.state, {1, 2}, 200);
             mounts(a.volume, other, {3, 4}, 200);
             commits(a.volume, a.volume.state, {1, 2}, 2);
             commits(a.volume, other, {3, 4}, 1);
             a.give({1, 2, 3, 4});
         },
     .said = {"split brain: /dev/m1 /dev/m2 and /dev/m3 /dev/m4 were", kKeepFirst, kKeepSecond},
     .err = Err::kInvalid},
    {.name = "both halves written, one of each given",
     .arrange =
         [](Arranged& a) {
             Superblock other = a.volume.state;
             go_on(a.volume, a.volume.state, {1, 2}, 1);
             go_on(a.volume, other, {3, 4}, 1);
             a.give({2, 3});
         },
     .said = {"split brain: ", "/dev/m2", "/dev/m3"},
     .err = Err::kInvalid},
    {.name = "went on without a failed member, which was then mounted alone",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 3);
             Superblock alone = a.volume.state;
             a.volume.fail(a.volume.state, 4);
             commits(a.volume, a.volume.state, {1, 2, 3}, 5);
             go_on(a.volume, alone, {4}, 9);
             a.give({1, 2, 3, 4});
         },
     .said = {"split brain: ",
              "To keep /dev/m1 /dev/m2 /dev/m3: mount.cowraid -o degraded /dev/m1 /dev/m2 "
              "/dev/m3 DIR && cowraid replace start -B -f 4 /dev/m4 DIR",
              ". Of /dev/m4 only 1 of 4 members are here: attach more of them, or read what they have with "
              "-o ro,rescue"},
     .err = Err::kInvalid},
    {.name = "the same with a single commit on each side",
     .arrange =
         [](Arranged& a) {
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 3);
             Superblock alone = a.volume.state;
             a.volume.fail(a.volume.state, 4);
             a.volume.commit(a.volume.state, {1, 2, 3});
             go_on(a.volume, alone, {4}, 1);
             a.give({1, 2, 3, 4});
         },
     .said = {"split brain: "},
     .err = Err::kInvalid},
    {.name = "an image of all members written apart: one commit number, two contents",
     .arrange =
         [](Arranged& a) {
             Superblock other = a.volume.state;
             a.volume.commit(a.volume.state, {1, 2});
             other.root = {.address = {kBlockBytes}, .generation = {2}, .checksums = {1}};
             a.volume.commit(other, {3, 4});
             a.give({1, 2, 3, 4});
         },
     .said = {"split brain: "},
     .err = Err::kInvalid},
    {.name = "the same, and one side went on",
     .arrange =
         [](Arranged& a) {
             Superblock other = a.volume.state;
             commits(a.volume, a.volume.state, {1, 2}, 4);
             other.root = {.address = {kBlockBytes}, .generation = {2}, .checksums = {1}};
             a.volume.commit(other, {3, 4});
             a.give({1, 2, 3, 4});
         },
     .said = {"split brain: /dev/m1 /dev/m2 and /dev/m3 /dev/m4"},
     .err = Err::kInvalid},
    {.name = "a clone beside its original",
     .arrange =
         [](Arranged& a) {
             a.give({1, 2, 3, 4});
             a.devices.push_back(a.volume.disk(2).clone("/dev/copy"));
         },
     .said = {"/dev/m2", "/dev/copy", "both are member 2"},
     .err = Err::kInvalid},
    {.name = "a stale clone beside its original",
     .arrange =
         [](Arranged& a) {
             a.devices.push_back(a.volume.disk(2).clone("/dev/copy"));
             commits(a.volume, a.volume.state, {1, 2, 3, 4}, 4);
             a.give({1, 2, 3, 4});
         },
     .said = {"/dev/m2", "/dev/copy", "both are member 2"},
     .err = Err::kInvalid},
    {.name = "a member of another volume",
     .arrange =
         [](Arranged& a) {
             SampleVolume other(123, 4);
             a.devices.push_back(other.disk(3).clone("/dev/foreign"));
             a.give({1, 2, 4});
         },
     .said = {"/dev/foreign belongs to volume ", "members of one volume"},
     .err = Err::kInvalid},
    {.name = "another device under a known member id",
     .arrange = another_third_device,
     .generation = 2,
     .missing = {3},
     .said = {"/dev/m3 was member 3 and is being replaced: left out", "member 3 is absent"}},
    {.name = "another device under a known member id, named",
     .arrange = [](Arranged& a) { another_third_device(a), a.options.named = {"/dev/m3"}; },
     .said = {"/dev/m3 says it is member 3", "another device"},
     .err = Err::kInvalid},
    {.name = "a blank device too many",
     .arrange =
         [](Arranged& a) {
             a.give({1, 2, 3, 4});
             a.devices.push_back(std::make_unique<SimDevice>("/dev/blank", kGiB));
         },
     .said = {"/dev/blank carries no cowraid superblock", "leave it out"},
     .err = Err::kInvalid},
    {.name = "only blank devices",
     .arrange = [](Arranged& a) { a.devices.push_back(std::make_unique<SimDevice>("/dev/blank", kGiB)); },
     .said = {"no superblock of a cowraid volume on /dev/blank", "mkfs.cowraid"},
     .err = Err::kNotFound},
    {.name = "a device smaller than a superblock",
     .arrange =
         [](Arranged& a) { a.devices.push_back(std::make_unique<SimDevice>("/dev/tiny", kBlockBytes)); },
     .said = {"/dev/tiny"},
     .err = Err::kNotFound},
    {.name = "no devices at all",
     .arrange = [](Arranged&) {},
     .said = {"name at least one member"},
     .err = Err::kNotFound},
    {.name = "a newer format version",
     .arrange =
         [](Arranged& a) {
             a.volume.commit(a.volume.state, {1, 2, 3, 4});
             forge(a.volume, 3, 2, [](DiskSuperblock& disk) { disk.version = 4; });
             a.give({1, 2, 3, 4});
         },
     .said = {"/dev/m3 needs format version 4, this program knows 3: use a newer version"},
     .err = Err::kUnsupported},
    {.name = "a feature this version does not handle",
     .arrange =
         [](Arranged& a) {
             a.volume.commit(a.volume.state, {1, 2, 3, 4});
             forge(a.volume, 1, 2, [](DiskSuperblock& disk) { disk.incompat_features = 2 | 1u << 30; });
             a.give({1});
         },
     .said = {"/dev/m1 needs features fsync_log, bit 30"},
     .err = Err::kUnsupported},
};

void check_accepted(const Scenario& scenario, const Arranged& arranged, const Assembly& assembly)
{
    CHECK(assembly.superblock.generation.value == scenario.generation);
    CHECK(ids_of(assembly.missing()) == scenario.missing);
    CHECK(ids_of(assembly.damaged_rings) == scenario.damaged);
    CHECK(assembly.members.size() == assembly.superblock.members.size());
    CHECK(assembly.usable_count() == assembly.members.size() - scenario.missing.size());
    Ids stale;
    for (const AssembledMember& member : assembly.members) {
        if (!member.stale)
            continue;
        stale.push_back(member.id.value);
        CHECK(member.device != nullptr);
        const MemberRecord* record = assembly.superblock.member(member.id);
        if (record->state != MemberState::kPresent)
            CHECK(member.missed_from == record->missing_since);
        CHECK(member.missed_from.value != 0);
        if (arranged.missed_from != 0)
            CHECK(member.missed_from.value == arranged.missed_from);
    }
    CHECK(stale == scenario.stale);
    // It must be possible to write it again as it is.
    CHECK(decode_superblock(encode_superblock(assembly.superblock)).ok());
}

void check(const Scenario& scenario)
{
    CAPTURE(std::string(scenario.name));
    Arranged arranged;
    scenario.arrange(arranged);
    std::string why;
    const Result<Assembly> assembly = assemble(std::move(arranged.devices), why, arranged.options);
    CAPTURE(why);
    CHECK(assembly.err() == scenario.err);
    std::string said = why;
    if (assembly.ok()) {
        check_accepted(scenario, arranged, *assembly);
        for (const std::string& note : assembly->notes)
            said += note + "\n";
        for (const AssembledMember& member : assembly->members) {
            CHECK(member.reason.text.empty() == (member.device != nullptr && !member.stale));
            if (!member.reason.text.empty())
                said += "member " + std::to_string(member.id.value) + " " + member.reason.text + "\n";
        }
    } else {
        CHECK(why.find('\n') == std::string::npos);
    }
    for (const char* part : scenario.said) {
        CAPTURE(std::string(part));
        CAPTURE(said);
        CHECK(said.find(part) != std::string::npos);
    }
    CHECK((said.empty() == scenario.said.empty() || !scenario.missing.empty()));
}

}  // namespace

TEST_CASE("assembly: healthy volumes and crashes")
{
    for (const Scenario& scenario : kHealthy)
        check(scenario);
}

TEST_CASE("assembly: members that missed commits")
{
    for (const Scenario& scenario : kStale)
        check(scenario);
}

TEST_CASE("assembly: damage")
{
    for (const Scenario& scenario : kDamaged)
        check(scenario);
}

TEST_CASE("assembly: refusals")
{
    for (const Scenario& scenario : kRefused)
        check(scenario);
}

TEST_CASE("assembly: the order of devices does not matter")
{
    for (const Scenario& scenario : kStale) {
        CAPTURE(std::string(scenario.name));
        Arranged arranged;
        scenario.arrange(arranged);
        std::reverse(arranged.devices.begin(), arranged.devices.end());
        std::string why;
        const Result<Assembly> assembly = assemble(std::move(arranged.devices), why, arranged.options);
        REQUIRE(assembly.ok());
        check_accepted(scenario, arranged, *assembly);
    }
}
