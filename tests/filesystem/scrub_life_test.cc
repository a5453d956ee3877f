// SPDX-License-Identifier: MIT
// What outlives a mount: how far a scrub is, what it found, and which blocks are lost.
#include <algorithm>
#include <ctime>

#include "base/log_count.h"
#include "fs/maintain/damaged_files.h"
#include "tests/filesystem/scrub_steps.h"
#include "tests/support/bytes.h"
#include "tests/support/capture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr VolumeShape kShape{4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1c3, 16 * kKiB};

// Asked for two files at a time they are the same.
DamagedFiles damaged(Filesystem& fs)
{
    auto found = find_damaged_files(fs.store, 100);
    REQUIRE(found.ok());
    InodeNumber after{0};
    for (size_t begin = 0; begin < found->files.size(); begin += 2) {
        const auto page = find_damaged_files(fs.store, 2, after);
        REQUIRE(page.ok());
        CHECK(page->file_count == found->file_count - begin);
        REQUIRE(page->files.size() == std::min<size_t>(2, found->files.size() - begin));
        for (size_t index = 0; index < page->files.size(); ++index) {
            CHECK(page->files[index].inode == found->files[begin + index].inode);
            CHECK(page->files[index].paths == found->files[begin + index].paths);
            after = page->files[index].inode;
        }
    }
    return found.take();
}

void remount(SimVolume& volume)
{
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
}

}  // namespace

TEST_CASE("scrub life: it goes on where it was after unmounts, and counts everything once")
{
    SimVolume volume({4, 512 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * kKiB});
    make_and_mount(volume);
    Prng prng(seed());
    for (int index = 0; index < 24; ++index)
        make_file(volume.fs(), ("file" + std::to_string(index)).c_str(), random_content(prng, 4 * kMiB));
    REQUIRE(volume.fs().step(true).ok());
    const ScrubStatus whole = scrub(volume.fs());
    CHECK(whole.heads == 4 * 3);
    CHECK(whole.bytes_done > 100 * kMiB);
    REQUIRE(volume.fs().committer.scrub.start({.limit = 8 * kMiB}).ok());
    const uint64_t started = volume.fs().committer.scrub.status().started;
    int mounts = 0;
    for (bool ended = false; !ended && mounts < 1000; ++mounts) {
        for (int step = 0; step < 3 && !ended; ++step) {
            volume.fs().committer.scrub.step();
            ended = volume.fs().committer.scrub.status().state == ScrubState::kFinished;
        }
        remount(volume);
    }
    CHECK(mounts > 5);
    const ScrubStatus pieces = volume.fs().committer.scrub.status();
    CHECK(pieces.state == ScrubState::kFinished);
    CHECK(pieces.started == started);
    CHECK(pieces.data_blocks == whole.data_blocks);
    CHECK(pieces.parity_blocks == whole.parity_blocks);
    CHECK_FALSE(pieces.damaged());
    for (const uint64_t time : verified_times(volume.fs()))
        CHECK(time >= started);
}

namespace {

// Commits, with two new maps, while a copy is read.
struct CommitInRead {
    Filesystem* fs;
    int calls_max, calls = 0;

    static void call(void* self, uint64_t)
    {
        auto& commit = *static_cast<CommitInRead*>(self);
        if (commit.calls == commit.calls_max)
            return;
        ++commit.calls;
        for (const char* name : {"one", "other"}) {
            make_file(*commit.fs, (name + std::to_string(commit.calls)).c_str(), {});
            commit.fs->volume->renew_map();
            REQUIRE(commit.fs->step(true).ok());
        }
    }
};

}  // namespace

TEST_CASE("scrub life: commits do not wait for superblocks and maps that are read, and what they overtake is "
          "read again")
{
    for (const int calls : {0, 1, 2, 9}) {
        CAPTURE(calls);
        SimVolume volume(kShape);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        make_file(fs, "file", std::vector<std::byte>(300 * kKiB));
        REQUIRE(fs.step(true).ok());
        const MemberRecord& line = fs.volume->superblock().members[1];
        CommitInRead hook{&fs, calls};
        volume.set_slow_hook({CommitInRead::call, &hook});
        std::vector<size_t> slow;
        for (const uint64_t place : line.map_offset) {
            const uint64_t end = place + line.map_bytes;
            slow.push_back(volume.cable(1).add_rule({.action = FaultAction::kSlow,
                                                     .kinds = kFaultReads,
                                                     .begin = place,
                                                     .end = end,
                                                     .delay_microseconds = 1}));
            volume.cable(1).add_rule(
                {.action = FaultAction::kError, .kinds = kFaultReads, .begin = place, .end = end});
        }
        const uint64_t map = fs.volume->superblock().map.generation.value;
        const ScrubStatus status = scrub(fs);
        CHECK(hook.calls == std::min(calls, 3));
        CHECK(volume.cable(1).hits(slow[0]) + volume.cable(1).hits(slow[1]) > 0);
        CHECK(status.state == ScrubState::kFinished);
        CHECK(status.repaired == (calls < 3 ? 1 : 0));
        CHECK(fs.volume->superblock().map.generation.value > map);
        volume.cable(1).remove_all_rules();
        const ScrubStatus again = scrub(fs);
        CHECK(again.repaired == 0);
        CHECK(again.heads == 4 * 3);
    }
}

TEST_CASE("scrub life: while one runs it is known how the one before it ended, and that it is another one")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Scrub& passes = volume.fs().committer.scrub;
    ScrubStatus before;
    CHECK(passes.status(&before).number == 0);
    CHECK(before.state == ScrubState::kNone);
    for (uint64_t number = 1; number <= 3; ++number) {
        REQUIRE(passes.start({}).ok());
        CHECK(passes.status(&before).number == number);
        CHECK(before.number == number - 1);
        CHECK(before.state == (number == 1   ? ScrubState::kNone
                               : number == 2 ? ScrubState::kFinished
                                             : ScrubState::kCancelled));
        CHECK((before.bytes_done > 0) == (number == 2));
        if (number == 2)
            REQUIRE(passes.cancel().ok());
        else
            scrub(volume.fs());
    }
}

TEST_CASE("scrub life: after power cuts it goes on from a commit, and repairs everything")
{
    SimVolume volume({4, 512 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * kKiB});
    make_and_mount(volume);
    Prng prng(seed());
    std::vector<std::vector<std::byte>> contents;
    std::vector<InodeNumber> files;
    for (int index = 0; index < 12; ++index) {
        contents.push_back(random_content(prng, 4 * kMiB));
        files.push_back(make_file(volume.fs(), ("file" + std::to_string(index)).c_str(), contents.back()));
    }
    REQUIRE(volume.fs().step(true).ok());
    const uint64_t begin = slots_offset(volume.fs());
    uint64_t spoilt = 0;
    for (uint64_t at = begin; at < volume.shape().member_bytes; at += 7 * kBlockBytes) {
        std::vector<std::byte> block(kBlockBytes);
        volume.member(2).peek(at, block);
        if (block == std::vector<std::byte>(kBlockBytes))
            continue;
        rot(volume, prng, 2, at);
        ++spoilt;
    }
    REQUIRE(volume.fs().committer.scrub.start({.limit = 8 * kMiB}).ok());
    bool ended = false;
    for (int cuts = 0; !ended && cuts < 200; ++cuts) {
        for (int step = 0; step < 9 && !ended; ++step) {
            volume.fs().committer.scrub.step();
            if (step == 6)
                REQUIRE(volume.fs().step(true).ok());
            ended = volume.fs().committer.scrub.status().state == ScrubState::kFinished;
        }
        if (ended)
            break;
        volume.power_cut(prng);
        mount(volume, manual_options());
        REQUIRE(volume.fs().committer.scrub.status().state == ScrubState::kRunning);
    }
    REQUIRE(ended);
    CHECK(volume.fs().committer.scrub.status().repaired > spoilt / 2);
    const ScrubStatus again = scrub(volume.fs());
    CHECK(again.repaired == 0);
    CHECK_FALSE(again.damaged());
    for (size_t index = 0; index < files.size(); ++index) {
        std::vector<std::byte> read(contents[index].size());
        CHECK(read_file(volume.fs(), files[index], read).ok());
        CHECK(same(read, contents[index]));
    }
}

TEST_CASE("scrub life: files with lost blocks are named by all their paths until they are deleted")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    const InodeNumber folder = volume.fs().names.make_node(kRoot, "folder", S_IFDIR | 0755, 0, {})->inode;
    Victim victim(volume, prng, "victim");
    REQUIRE(volume.fs().names.link(victim.file, folder, "other").ok());
    REQUIRE(volume.fs().step(true).ok());
    CHECK(damaged(volume.fs()).file_count == 0);
    victim.spoil(prng);
    const ScrubStatus status = scrub(volume.fs());
    REQUIRE(status.lost > 20);
    for (int mounts = 0; mounts < 2; ++mounts) {
        CHECK(volume.fs().info().damaged_blocks == status.lost);
        const DamagedFiles found = damaged(volume.fs());
        REQUIRE(found.file_count == 1);
        CHECK(found.files[0].inode == victim.file);
        CHECK(found.files[0].paths == std::vector<std::string>{"/victim", "/folder/other"});
        CHECK(found.files[0].blocks == status.lost);
        CHECK(found.files[0].range.last < victim.content.size());
        remount(volume);
    }
    // Another pass finds the same, once.
    CHECK(scrub(volume.fs()).lost == status.lost);
    CHECK(volume.fs().info().damaged_blocks == status.lost);
    // What is written anew is damaged no more.
    REQUIRE(volume.fs().files.write(victim.file, 0, std::span(victim.content).first(64 * kKiB), {}, {}).ok());
    REQUIRE(volume.fs().step(true).ok());
    CHECK(volume.fs().info().damaged_blocks < status.lost);
    REQUIRE(volume.fs().names.unlink(kRoot, "victim").ok());
    REQUIRE(volume.fs().names.unlink(folder, "other").ok());
    volume.fs().names.forget(victim.file, 1000);
    REQUIRE(volume.fs().step(true).ok());
    CHECK(volume.fs().info().damaged_blocks == 0);
    REQUIRE(volume.fs().step(true).ok());
    remount(volume);
    CHECK(volume.fs().info().damaged_blocks == 0);
    CHECK_FALSE(scrub(volume.fs()).damaged());
    REQUIRE(volume.unmount().ok());
    CheckReport report;
    std::string why;
    REQUIRE(volume.check(report, why).ok());
    CHECK(report.clean());
}

TEST_CASE("scrub life: what is freed while somebody finds it lost is listed until its row was looked at")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, "file", random_content(prng, 300 * kKiB));
    REQUIRE(fs.step(true).ok());
    std::vector<BlockRun> blocks;
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups())
        if (group->record.content == kGroupData && blocks.empty())
            REQUIRE(fs.store.allocator.live_blocks(group->record.address, 8, blocks).ok());
    REQUIRE(!blocks.empty());
    const BlockRun run = blocks.front();
    REQUIRE(run.block_count == 8);
    const auto note = [&](uint64_t count) {
        note_damage(fs.store, run.address, count, 1, DamageList::kByReader);
        REQUIRE(fs.store.damage.block_count() == count);
        REQUIRE(fs.step(true).ok());
        return fs.store.damage.block_count();
    };
    CHECK(note(8) == 8);
    REQUIRE(fs.names.set_attributes(file, {.size_bytes = 0}, {}).ok());
    CHECK(fs.store.damage.block_count() == 8);
    REQUIRE(fs.step(true).ok());
    CHECK(fs.store.damage.empty());
    CHECK(note(8) == 0);
    // Of two files, one of which is there.
    make_file(fs, "other", random_content(prng, 4 * kBlockBytes));
    REQUIRE(fs.step(true).ok());
    const uint64_t left = note(8);
    CHECK(left <= 4);
    CHECK(note(8) == left);
}

TEST_CASE(
    "scrub life: what was freed in a group that is not in memory is listed only until its row was looked at")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, "file", random_content(prng, 300 * kKiB));
    make_file(fs, "other", random_content(prng, 100 * kKiB));
    REQUIRE(fs.step(true).ok());
    std::vector<BlockRun> blocks;
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups())
        if (group->record.content == kGroupData && blocks.empty())
            REQUIRE(fs.store.allocator.live_blocks(group->record.address, 100, blocks).ok());
    REQUIRE(!blocks.empty());
    REQUIRE(fs.step(true).ok());
    fs.store.allocator.evict_idle(0);
    std::vector<BlockRun> live;
    REQUIRE(fs.store.allocator.live_in(blocks.front(), live) == Err::kBusy);
    REQUIRE(fs.names.set_attributes(file, {.size_bytes = 0}, {}).ok());
    std::vector<BlockRun> pinned;
    for (const BlockRun& run : blocks) {
        REQUIRE(fs.store.allocator.live_in(run, live) == Err::kBusy);
        note_damage(fs.store, run.address, run.block_count, 1, DamageList::kByReader);
        REQUIRE(fs.store.allocator.pinned_in(run, pinned).ok());
    }
    uint64_t freed = 0;
    for (const BlockRun& run : pinned)
        freed += run.block_count;
    CHECK(fs.store.damage.block_count() == 100);
    REQUIRE(fs.step(true).ok());
    CHECK(freed >= 75);
    CHECK(freed < 100);
    CHECK(fs.store.damage.block_count() == 100 - freed);  // what the other file has
}

TEST_CASE("scrub life: the names of damaged files are told as long as there is room for them")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    const InodeNumber folder = volume.fs().names.make_node(kRoot, "folder", S_IFDIR | 0755, 0, {})->inode;
    const InodeNumber file = make_file(volume.fs(), "file", random_content(prng, 100));
    for (const char* const name : {"b", "c", "d"})
        REQUIRE(volume.fs().names.link(file, folder, name).ok());
    REQUIRE(volume.fs().step(true).ok());
    const auto named = [&](size_t& bytes_left) {
        Store& store = volume.fs().store;
        return paths_of(store.cache, store.timeline.view().committed->file_tree, file, bytes_left);
    };
    size_t bytes = 1000;
    CHECK(named(bytes).size() == 4);
    CHECK(bytes == 1000 - (5 + 3 * 9));
    bytes = 5 + 2 * 9 + 8;
    const std::vector<std::string> some = named(bytes);
    REQUIRE(some.size() == 4);
    CHECK(some.front() == "/file");
    CHECK(some.back() == "inode " + std::to_string(file.value));
    CHECK(bytes == 0);
    CHECK(named(bytes) == std::vector<std::string>{some.back()});
}

TEST_CASE("scrub life: names too far from the root to be told take of the room for them, too")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    InodeNumber folder = kRoot;
    for (int depth = 0; depth < 300; ++depth)
        folder = volume.fs().names.make_node(folder, "d", S_IFDIR | 0755, 0, {})->inode;
    const InodeNumber file = make_file(volume.fs(), "file", random_content(prng, 100));
    for (const char* const name : {"b", "c", "d"})
        REQUIRE(volume.fs().names.link(file, folder, name).ok());
    REQUIRE(volume.fs().step(true).ok());
    Store& store = volume.fs().store;
    const TreeRoot files = store.timeline.view().committed->file_tree;
    size_t bytes = 10000;
    CHECK(paths_of(store.cache, files, file, bytes) == std::vector<std::string>{"/file"});
    const size_t each = 10000 - 5 - bytes;
    CHECK(each > 3 * 2 * 256);
    // The second one of them does not fit any more.
    bytes = 5 + each / 3 + each / 3 - 1;
    CHECK(paths_of(store.cache, files, file, bytes) ==
          std::vector<std::string>{"/file", "inode " + std::to_string(file.value)});
    CHECK(bytes == 0);
}

// What a write replaces, to the end of the file, need not be read.
TEST_CASE("scrub life: a damaged file takes its content again, with a last block that is not full")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Victim victim(volume, prng, "victim");
    victim.spoil(prng);
    CHECK(scrub(volume.fs()).lost > 20);
    std::vector<std::byte> read(victim.content.size());
    CHECK_FALSE(read_file(volume.fs(), victim.file, read).ok());
    const uint64_t first_lost = damaged(volume.fs()).files.at(0).range.first;
    CHECK_FALSE(
        volume.fs().files.write(victim.file, first_lost, std::span(victim.content).first(10), {}, {}).ok());
    CHECK(volume.fs().committer.scrub.status().damaged());
    REQUIRE(volume.fs().files.write(victim.file, 0, victim.content, {}, {}).ok());
    REQUIRE(volume.fs().step(true).ok());
    CHECK_FALSE(volume.fs().committer.scrub.status().damaged());
    CHECK(read_file(volume.fs(), victim.file, read).ok());
    CHECK(read == victim.content);
    CHECK(volume.fs().info().damaged_blocks == 0);
}

TEST_CASE("scrub life: blocks that are good again leave the list with the next pass")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Victim victim(volume, prng, "victim");
    victim.spoil(prng);
    // A reader finds them, too.
    std::vector<std::byte> read(victim.content.size());
    for (size_t at = 0; at < read.size(); at += kBlockBytes)
        (void)volume.fs()
            .files
            .read(victim.file, at,
                  std::span(read).subspan(at, std::min<size_t>(kBlockBytes, read.size() - at)))
            .ok();
    const uint64_t known = volume.fs().info().damaged_blocks;
    CHECK(known > 20);
    CHECK(scrub(volume.fs()).lost >= known);
    victim.bring_back();
    CHECK(damaged(volume.fs()).file_count == 1);
    // Paused while it looks at them, it is not at its end.
    volume.set_slow_hook(
        {[](void* fs, uint64_t) { static_cast<Filesystem*>(fs)->committer.scrub.pause().ignore(); },
         &volume.fs()});
    ScrubStatus status = volume.fs().scrub_step();
    while (status.heads == 0)
        status = volume.fs().scrub_step();
    const size_t rule = volume.cable(0).add_rule({.action = FaultAction::kSlow,
                                                  .kinds = kFaultReads,
                                                  .begin = slots_offset(volume.fs()),
                                                  .delay_microseconds = 1});
    for (int step = 0; step < 1000 && status.state == ScrubState::kRunning; ++step) {
        volume.fs().committer.scrub.step();
        status = volume.fs().committer.scrub.status();
    }
    CHECK(status.state == ScrubState::kPaused);
    CHECK(volume.fs().info().damaged_blocks > 20);
    volume.cable(0).remove_rule(rule);
    REQUIRE(volume.fs().committer.scrub.resume().ok());
    CHECK_FALSE(scrub(volume.fs()).damaged());
    CHECK(volume.fs().info().damaged_blocks == 0);
    CHECK(read_file(volume.fs(), victim.file, read).ok());
    CHECK(read == victim.content);
}

TEST_CASE("scrub life: damage that was found when the clock was ahead leaves the list, too")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    write_file(fs, "file", random_content(prng, 300'000));
    REQUIRE(fs.step(true).ok());
    constexpr uint64_t kDay = 86400;
    const auto tomorrow = static_cast<uint64_t>(std::time(nullptr)) + kDay;
    fs.store.damage.note(fs.volume->map().groups.back().address, 3, tomorrow, DamageList::kByReader);
    CHECK(fs.info().damaged_blocks == 3);
    CHECK_FALSE(scrub(fs).damaged());
    CHECK(fs.info().damaged_blocks == 0);
}

TEST_CASE("scrub life: superblocks and maps that rot are found on their member and written anew")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    make_file(volume.fs(), "file", random_content(prng, 100 * kKiB));
    REQUIRE(volume.fs().step(true).ok());
    const Superblock& superblock = volume.fs().volume->superblock();
    const uint64_t slot = superblock.generation.value % kSuperblockSlotCount * kSuperblockSlotBytes;
    // A pass begins with nothing to be committed, so that these are the copies that count at its end.
    rot(volume, prng, 1, kSuperblockRingOffset[1] + slot);
    rot(volume, prng, 3, superblock.members[3].map_offset[superblock.map.place]);
    ScrubStatus status;
    REQUIRE(volume.fs().committer.scrub.start({}).ok());
    while (volume.fs().committer.scrub.status().state == ScrubState::kRunning)
        volume.fs().committer.scrub.step();
    status = volume.fs().committer.scrub.status();
    CHECK(status.repaired == 2);
    for (uint32_t member = 0; member < 4; ++member) {
        const MemberCounters counters = volume.fs().volume->members().counters({member + 1});
        const uint64_t expected = member == 1 || member == 3 ? 1 : 0;
        CHECK(counters[static_cast<size_t>(MemberCounter::kSuperblock)] == expected);
    }
    CHECK(scrub(volume.fs()).repaired == 0);
    REQUIRE(volume.unmount().ok());
    CheckReport report;
    std::string why;
    REQUIRE(volume.check(report, why).ok());
    CHECK(report.clean());
}

TEST_CASE("scrub life: blocks that are good again leave the list with a pass of the same second")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Victim victim(volume, prng, "victim");
    victim.spoil(prng);
    // All of it within one second: it begins with a new one.
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const timespec rest{0, 999'999'999 - now.tv_nsec};
    nanosleep(&rest, nullptr);
    REQUIRE(scrub(volume.fs()).lost > 20);
    REQUIRE(volume.fs().info().damaged_blocks > 20);
    victim.bring_back();
    CHECK_FALSE(scrub(volume.fs()).damaged());
    CHECK(volume.fs().info().damaged_blocks == 0);
}

TEST_CASE("scrub life: what a reader lists while a scrub runs that finds it good leaves the list")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Victim victim(volume, prng, "victim");
    Filesystem& fs = volume.fs();
    REQUIRE(fs.committer.scrub.start({}).ok());
    timespec pause{1, 100'000'000};
    nanosleep(&pause, nullptr);
    victim.spoil(prng);
    std::vector<std::byte> read(kBlockBytes);
    for (uint64_t at = 0; at < victim.content.size(); at += kBlockBytes)
        fs.files.read(victim.file, at, read).status().ignore();
    CHECK(fs.info().damaged_blocks > 20);
    victim.bring_back();
    CHECK_FALSE(scrub(fs).damaged());
    CHECK(fs.info().damaged_blocks == 0);
}

TEST_CASE("scrub life: the log names the blocks of a file that a read could not have, and no others")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Victim victim(volume, prng, "pattern");
    victim.spoil(prng);
    Filesystem& fs = volume.fs();
    std::vector<std::byte> read(kBlockBytes * 70);
    std::string logged;
    {
        Captured captured;
        CHECK_FALSE(fs.files.read(victim.file, 0, read).status().ok());
        log_counts(LogCounts::kAll);
        logged = captured.text();
    }
    std::vector<uint64_t> lost;
    for (uint64_t block = 0; block < 70; ++block)
        if (!fs.files.read(victim.file, block * kBlockBytes, std::span(read).first(kBlockBytes))
                 .status()
                 .ok())
            lost.push_back(block);
    log_counts(LogCounts::kAll);
    REQUIRE(lost.size() > 10);
    REQUIRE(lost.size() < 60);
    const std::string line = "/pattern: blocks that cannot be read: " + std::to_string(lost.size()) +
                             ", bytes " + std::to_string(lost.front() * kBlockBytes) + " to " +
                             std::to_string((lost.back() + 1) * kBlockBytes - 1) + "\n";
    CHECK_MESSAGE(logged.find(line) != std::string::npos, logged, " is not ", line);
}

namespace {

// The data group with the first file.
Ref<const ArrayGroup> data_group(Filesystem& fs, VolumeAddress& first_used)
{
    std::vector<BlockRun> blocks;
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups()) {
        if (group->geometry.parity > 0)
            REQUIRE(fs.store.allocator.live_blocks(group->record.address, 1, blocks).ok());
        if (!blocks.empty()) {
            first_used = blocks.front().address;
            return group;
        }
    }
    FAIL("there is none");
    return {};
}

// The block and the parity of its row rot.
void lose(SimVolume& volume, Prng& prng, const ArrayGroup& group, VolumeAddress address)
{
    BlockPlace place = place_of(group.geometry, address - group.record.address);
    for (int side = 0; side < 2; ++side, place.column = group.geometry.data_columns) {
        const uint32_t column = group_column(group.geometry, place.stripe, place.column, 0);
        rot(volume, prng, group.record.columns[column].member.value - 1,
            group.locate(column, column_offset(group.geometry, place)).offset.value);
    }
}

}  // namespace

TEST_CASE("scrub life: a block that is lost among others of a read is listed, and charged once")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, "file", random_content(prng, 300 * kKiB));
    REQUIRE(fs.step(true).ok());
    VolumeAddress first;
    const Ref<const ArrayGroup> group = data_group(fs, first);
    lose(volume, prng, *group, first);
    std::vector<std::byte> read(300 * kKiB);
    CHECK_FALSE(read_file(fs, file, read).ok());
    CHECK(fs.info().damaged_blocks == 1);
    const auto charged = [&] {
        uint64_t sum = 0;
        for (uint32_t member = 1; member <= 4; ++member)
            for (const MemberCounter which : {MemberCounter::kCorruption, MemberCounter::kParity})
                sum += fs.volume->members().counters({member})[static_cast<size_t>(which)];
        return sum;
    };
    const uint64_t before = charged();
    CHECK(before > 0);
    CHECK_FALSE(read_file(fs, file, read).ok());
    CHECK(scrub(fs).lost == 1);
    CHECK(charged() == before);
}

TEST_CASE("scrub life: blocks that a balance finds lost are listed, and no others")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Filesystem& fs = volume.fs();
    const std::vector<std::byte> content = random_content(prng, 300 * kKiB);
    const InodeNumber file = make_file(fs, "file", content);
    REQUIRE(fs.step(true).ok());
    VolumeAddress first;
    const Ref<const ArrayGroup> group = data_group(fs, first);
    // Of one row each.
    const VolumeAddress lost[] = {first, first + 2 * kBlockBytes, first + 3 * kBlockBytes};
    for (const VolumeAddress address : lost)
        lose(volume, prng, *group, address);
    REQUIRE(start_balance(fs, {.profiles = fs.volume->profiles(), .content = kGroupData}).ok());
    CHECK(finish(fs).groups_stuck == 1);
    for (const VolumeAddress address : lost)
        CHECK(fs.store.damage.touches(address, address + kBlockBytes));
    CHECK(fs.info().damaged_blocks == 3);
    CHECK(scrub(fs).lost == 3);
    std::vector<std::byte> read(content.size());
    CHECK_FALSE(read_file(fs, file, read).ok());
    size_t right = 0;
    for (uint64_t offset = 0; offset < content.size(); offset += kBlockBytes) {
        const std::span block = std::span(read).subspan(offset, kBlockBytes);
        right += fs.files.read(file, offset, block).ok() &&
                 same(block, std::span(content).subspan(offset, kBlockBytes));
    }
    CHECK(right == content.size() / kBlockBytes - 3);
}

TEST_CASE("scrub life: blocks that are good again leave the list when a balance moves them")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Filesystem& fs = volume.fs();
    const std::vector<std::byte> content = random_content(prng, 300 * kKiB);
    const InodeNumber file = make_file(fs, "file", content);
    REQUIRE(fs.step(true).ok());
    VolumeAddress first;
    data_group(fs, first);
    note_damage(fs.store, first, 3, 1, DamageList::kByReader);
    REQUIRE(fs.step(true).ok());
    CHECK(fs.info().damaged_blocks == 3);
    REQUIRE(start_balance(fs, {.profiles = fs.volume->profiles(), .content = kGroupData}).ok());
    CHECK(finish(fs).groups_stuck == 0);
    for (int commit = 0; commit < 2; ++commit)
        REQUIRE(fs.step(true).ok());
    CHECK(fs.info().damaged_blocks == 0);
    std::vector<std::byte> read(content.size());
    REQUIRE(read_file(fs, file, read).ok());
    CHECK(same(read, content));
}

TEST_CASE("scrub life: blocks that cannot be read are repaired, not called out of service")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    const std::vector<std::byte> content = random_content(prng, 500 * kKiB);
    const InodeNumber file = make_file(volume.fs(), "file", content);
    REQUIRE(volume.fs().step(true).ok());
    volume.cable(1).add_rule({.action = FaultAction::kLatent,
                              .kinds = kFaultReads,
                              .begin = slots_offset(volume.fs()),
                              .end = volume.shape().member_bytes});
    const ScrubStatus repaired = scrub(volume.fs());
    CHECK(repaired.repaired > 20);
    CHECK(repaired.unverified == 0);
    CHECK_FALSE(repaired.damaged());
    volume.cable(1).remove_all_rules();
    CHECK(scrub(volume.fs()).repaired == 0);
    require_content(volume.fs(), file, content);
}

TEST_CASE("scrub life: error counters outlive a mount that wrote nothing")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Victim victim(volume, prng, "victim");
    Victim other(volume, prng, "other");
    remount(volume);
    victim.spoil(prng);
    REQUIRE(volume.fs().committer.scrub.start({.mode = ScrubMode::kLook}).ok());
    while (volume.fs().committer.scrub.status().state == ScrubState::kRunning)
        volume.fs().committer.scrub.step();
    const auto counted = [&] {
        return volume.fs().volume->members().counters({1})[static_cast<size_t>(MemberCounter::kCorruption)];
    };
    // Readers count without a scrub that writes.
    remount(volume);
    const uint64_t before = counted();
    CHECK(before > 0);
    std::vector<std::byte> read(victim.content.size());
    CHECK_FALSE(read_file(volume.fs(), victim.file, read).ok());
    CHECK(counted() == before);  // it was counted, and is listed
    other.spoil(prng);
    CHECK_FALSE(read_file(volume.fs(), other.file, read).ok());
    const uint64_t after = counted();
    CHECK(after > before);
    remount(volume);
    CHECK(counted() == after);
}

TEST_CASE(
    "scrub life: blocks stay on the list when a member that returns is caught up, or only some are good")
{
    SimVolume volume(kShape);
    make_and_mount(volume);
    Prng prng(seed());
    Victim victim(volume, prng, "victim"), other(volume, prng, "other");
    victim.spoil(prng);
    other.spoil(prng);
    const uint64_t lost = scrub(volume.fs()).lost;
    REQUIRE(lost > 40);
    std::string why;
    REQUIRE_MESSAGE(volume.fs().committer.offline_member({4}, why).ok(), why);
    make_file(volume.fs(), "small", random_content(prng, 10000));
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE_MESSAGE(volume.fs().committer.online_member({4}, nullptr, why).ok(), why);
    for (int step = 0; step < 1000 && volume.fs().catch_up_step().ok(); ++step)
        REQUIRE(volume.fs().step(true).ok());
    CHECK(volume.fs().info().damaged_blocks == lost);
    // One of two is whole again.
    other.bring_back();
    CHECK(scrub(volume.fs()).lost < lost);
    CHECK(volume.fs().info().damaged_blocks == volume.fs().committer.scrub.status().lost);
    const DamagedFiles found = damaged(volume.fs());
    REQUIRE(found.file_count == 1);
    CHECK(found.files[0].inode == victim.file);
}
