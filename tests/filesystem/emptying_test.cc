// SPDX-License-Identifier: MIT
// Block groups that are being emptied: how they leave or stay, how many are at once, and what others have
// meanwhile.
#include <doctest/doctest.h>
#include <linux/falloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "fs/txn/group_planning.h"
#include "tests/filesystem/volume_contents.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kSize = 160 * kMiB;  // of a member
constexpr uint64_t kBig = 16 * kMiB;  // of a step while nobody writes

VolumeShape shape_of(uint32_t members, ProfileId data, ProfileId metadata = ProfileId::kRaid1)
{
    return {members, kSize, data, metadata, 16 * kKiB};
}

BalanceOptions everything(Filesystem& fs)
{
    return {.profiles = fs.volume->profiles(), .content = kGroupData};
}

BalanceOptions into(ProfileId data)
{
    return {.profiles = {data, ProfileId::kRaid1}, .content = kGroupData, .convert = true, .force = true};
}

// Marked, whatever is in them.
std::vector<GroupNumbers> emptying_groups(Filesystem& fs)
{
    std::vector<GroupNumbers> groups = fs.store.allocator.group_numbers(kGroupData);
    std::erase_if(groups, [&](auto& group) { return !fs.store.remap.is_emptying(group.address); });
    return groups;
}

bool holds_nothing(const GroupNumbers& group)
{
    return group.live_blocks == 0;
}

CleanProgress cleaner_step(Filesystem& fs, CleanWhen when, uint64_t bytes = CleanPolicy::kStepBytes)
{
    const CleanProgress progress = fs.committer.cleaner.step({.when = when, .bytes = bytes});
    if (progress == CleanProgress::kNeedsCommit)
        REQUIRE(fs.step(true).ok());
    return progress;
}

CleanProgress balance_step(Filesystem& fs)
{
    const CleanProgress progress = fs.committer.balance.step(kBig);
    if (progress == CleanProgress::kNeedsCommit)
        REQUIRE(fs.step(true).ok());
    return progress;
}

void punch_file(Filesystem& fs, InodeNumber inode, uint64_t offset, uint64_t bytes)
{
    REQUIRE(fs.files.allocate_range(inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes).ok());
}

// A file of which one block in sixteen is left: groups that are nearly empty, none that is.
Contents thin_file(Filesystem& fs, Prng& prng, uint64_t bytes)
{
    Contents contents;
    contents["thin"] = random_content(prng, bytes);
    write_file(fs, "thin", contents["thin"]);
    REQUIRE(fs.step(true).ok());
    for (uint64_t offset = 0; offset < bytes; offset += 64 * kKiB) {
        punch_file(fs, find_file(fs, "thin"), offset, 60 * kKiB);
        memset(contents["thin"].data() + offset, 0, 60 * kKiB);
    }
    for (int commit = 0; commit < 3; ++commit)
        REQUIRE(fs.step(true).ok());
    return contents;
}

struct SpoiltLeaf {
    uint32_t member;
    uint64_t offset;
    std::vector<std::byte> before = std::vector<std::byte>(kBlockBytes);
};

// Overwrites leaves of the checksum tree: those with nothing but blocks of the group, or (null) all. Which.
std::vector<SpoiltLeaf> spoil_leaves(SimVolume& volume, const GroupNumbers* group, Prng& prng)
{
    struct Head {
        DiskNodeHeader node;
        DiskLeafItem items[(kBlockBytes - sizeof(DiskNodeHeader)) / sizeof(DiskLeafItem)];
    };
    static Head head;
    std::vector<SpoiltLeaf> leaves;
    for (uint32_t member = 0; member < volume.member_count(); ++member)
        for (uint64_t offset = 0; offset < kSize; offset += kBlockBytes) {
            volume.member(member).peek(offset, std::as_writable_bytes(std::span(&head, 1)));
            const uint64_t items = std::min<uint64_t>(head.node.item_count, std::size(head.items));
            if (head.node.magic != kNodeMagic || head.node.tree_id != kChecksumTree || head.node.level != 0 ||
                items == 0)
                continue;
            const uint64_t begin = group == nullptr ? 0 : group->address.value;
            const uint64_t end = group == nullptr ? UINT64_MAX : begin + group->total_blocks * kBlockBytes;
            if (head.items[0].object < begin || head.items[items - 1].object >= end)
                continue;
            leaves.push_back({member, offset});
            volume.member(member).peek(offset, leaves.back().before);
            volume.member(member).poke(offset, random_content(prng, kBlockBytes));
        }
    return leaves;
}

// A balance under way in which so many groups hold nothing any more and wait for the commit.
void empty_several(Filesystem& fs, ptrdiff_t wanted)
{
    REQUIRE(start_balance(fs, everything(fs)).ok());
    for (int step = 0; step < 200; ++step) {
        const std::vector<GroupNumbers> groups = emptying_groups(fs);
        if (std::count_if(groups.begin(), groups.end(), holds_nothing) >= wanted)
            return;
        REQUIRE(balance_step(fs) != CleanProgress::kNothing);
    }
    FAIL("they are not emptied together");
}

// A balance under way that has marked several groups with something in them.
void mark_several(Filesystem& fs)
{
    REQUIRE(start_balance(fs, everything(fs)).ok());
    for (int step = 0; step < 10; ++step) {
        const std::vector<GroupNumbers> groups = emptying_groups(fs);
        if (groups.size() - std::count_if(groups.begin(), groups.end(), holds_nothing) > 1)
            return;
        balance_step(fs);
    }
    FAIL("there is one at a time");
}

}  // namespace

TEST_CASE("emptying: what is recorded about one group cannot be read; the others leave, and no more begin")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    make_and_mount(volume);
    const Contents contents = thin_file(volume.fs(), prng, 200 * kMiB);
    empty_several(volume.fs(), 3);
    std::vector<GroupNumbers> groups = emptying_groups(volume.fs());
    const size_t marked = groups.size();
    const GroupNumbers bad = *std::find_if(groups.begin(), groups.end(), holds_nothing);
    REQUIRE(volume.unmount().ok());
    REQUIRE_FALSE(spoil_leaves(volume, &bad, prng).empty());
    mount(volume, manual_options());
    const BalanceStatus status = finish(volume.fs());
    CHECK(status.state == BalanceStatus::State::kFinished);
    CHECK(status.groups_stuck == status.groups_left);
    for (int step = 0; step < 50; ++step)
        cleaner_step(volume.fs(), CleanWhen::kAny);
    groups = emptying_groups(volume.fs());
    REQUIRE(groups.size() == 1);
    CHECK(groups.front().address == bad.address);
    CHECK(volume.fs().info().emptied_groups + 1 <= marked);
    CHECK(volume.fs().committer.empty_groups.failed());
    CHECK_FALSE(volume.fs().store.service.stopped());
    require_contents(volume.fs(), contents);
}

TEST_CASE("emptying: a tree that cannot be read costs one group, not one after the other")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    make_and_mount(volume);
    thin_file(volume.fs(), prng, 200 * kMiB);
    REQUIRE(volume.unmount().ok());
    REQUIRE_FALSE(spoil_leaves(volume, nullptr, prng).empty());
    mount(volume, manual_options());
    for (int step = 0; step < 100; ++step)
        cleaner_step(volume.fs(), CleanWhen::kAny);
    CHECK(emptying_groups(volume.fs()).size() == 1);
    CHECK(volume.fs().committer.cleaner.failed());
    CHECK(volume.fs().store.moving_blocks == 0);
    CHECK(volume.fs().store.ledger.reserved_data() == 0);
}

TEST_CASE("emptying: writers keep half of the room while a balance is several groups ahead, and what df says")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Contents contents = thin_file(fs, prng, 320 * kMiB);
    const Result<Attributes> made = fs.names.make_node(kRoot, "room", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    const uint64_t before = fs.store.ledger.data_available();
    REQUIRE(start_balance(fs, everything(fs)).ok());
    size_t most = 0;
    uint64_t least = before;
    for (int step = 0; step < 2000 && fs.committer.balance.status().state == BalanceStatus::State::kRunning;
         ++step) {
        balance_step(fs);
        const size_t groups = emptying_groups(fs).size();
        least = std::min(least, fs.store.ledger.data_available());
        if (groups <= most && step % 16 != 0)
            continue;
        most = std::max(most, groups);
        // It is what can be had.
        const uint64_t bytes = fs.statistics().available_blocks * kBlockBytes / 100 * 95;
        REQUIRE(fs.files.allocate_range(made->inode, 0, 0, bytes).ok());
        punch_file(fs, made->inode, 0, bytes);
    }
    MESSAGE(most, " groups at once, ", least * 100 / before, " % left");
    CHECK(fs.committer.balance.status().state == BalanceStatus::State::kFinished);
    CHECK(most > 1);
    CHECK(least * 20 >= before * 9);
    require_contents(fs, contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

namespace {

// While a step writes what it has read, ranges of the file are given up: in the first three every fourth.
struct Puncher {
    Filesystem* fs;
    std::vector<std::byte>* content;
    uint64_t range_bytes;
    uint64_t calls = 0;
    std::atomic<bool> armed{false};

    void punch_some()
    {
        const InodeNumber inode = find_file(*fs, "whole");
        constexpr uint64_t kFirst[] = {0, 3, 2};
        if (calls == std::size(kFirst))
            return;
        uint64_t number = kFirst[calls++];
        for (uint64_t at = 0; at + range_bytes <= content->size(); at += range_bytes, ++number)
            if (number % 4 == 0) {
                punch_file(*fs, inode, at, range_bytes);
                memset(content->data() + at, 0, range_bytes);
            }
    }
    static void call(void* self, uint64_t)
    {
        auto* puncher = static_cast<Puncher*>(self);
        if (puncher->armed.exchange(false))
            std::thread([puncher] { puncher->punch_some(); }).join();
    }
};

}  // namespace

TEST_CASE("emptying: what is freed between reading and switching stays freed, at either place")
{
    struct Case {
        ProfileId from, to;
        uint64_t range_bytes;
    };
    for (const Case& one : {Case{ProfileId::kRaid5, ProfileId::kRaid1, 7 * kMiB},
                            Case{ProfileId::kSingle, ProfileId::kSingle, kMiB},
                            Case{ProfileId::kRaid5, ProfileId::kRaid6, 20 * kKiB},
                            Case{ProfileId::kRaid1, ProfileId::kRaid5, 8 * kKiB}}) {
        CAPTURE(std::string(find_profile(one.to)->name));
        Prng prng(seed());
        SimVolume volume(shape_of(4, one.from));
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Contents contents;
        contents["whole"] = random_content(prng, 90 * kMiB);
        write_file(fs, "whole", contents["whole"]);
        REQUIRE(fs.step(true).ok());
        Puncher puncher{&fs, &contents["whole"], one.range_bytes};
        for (uint32_t member = 0; member < volume.member_count(); ++member)
            volume.cable(member).add_rule(
                {.action = FaultAction::kSlow, .kinds = kFaultWrites, .delay_microseconds = 1});
        volume.set_slow_hook({Puncher::call, &puncher});
        REQUIRE(start_balance(fs, one.from == one.to ? everything(fs) : into(one.to)).ok());
        for (int step = 0; step < 500; ++step) {
            if (fs.committer.balance.status().state != BalanceStatus::State::kRunning)
                break;
            puncher.armed = true;
            const CleanProgress progress = fs.committer.balance.step(10 * kMiB);
            puncher.armed = false;
            if (progress == CleanProgress::kNeedsCommit)
                REQUIRE(fs.step(true).ok());
        }
        CHECK(fs.committer.balance.status().state == BalanceStatus::State::kFinished);
        CHECK(puncher.calls > 1);
        require_contents(fs, contents);
        const uint64_t live =
            static_cast<uint64_t>(std::count_if(contents["whole"].begin(), contents["whole"].end(),
                                                [](std::byte byte) { return byte != std::byte{0}; }));
        CHECK(fs.store.allocator.numbers(kGroupData).used_blocks * kBlockBytes < live / 100 * 101);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

namespace {

// An unmounted volume whose cancelled balance has left marked groups behind.
Contents leave_marked(SimVolume& volume, Prng& prng)
{
    make_and_mount(volume);
    const Contents contents = thin_file(volume.fs(), prng, 240 * kMiB);
    mark_several(volume.fs());
    std::string why;
    REQUIRE(volume.fs().committer.balance.cancel(why).ok());
    REQUIRE(volume.unmount().ok());
    return contents;
}

}  // namespace

TEST_CASE("emptying: marked groups go on when the balance is cancelled and the cleaner is off")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    const Contents contents = leave_marked(volume, prng);
    MountOptions options;
    options.clean = false;
    options.commit_seconds = 1;
    mount(volume, options);
    for (int tenths = 0; tenths < 1200 && volume.fs().store.moving_blocks > 0; ++tenths)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(volume.fs().store.moving_blocks == 0);
    CHECK(volume.fs().info().moved_blocks > 10);
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    const std::vector<GroupNumbers> groups = emptying_groups(volume.fs());
    CHECK(std::all_of(groups.begin(), groups.end(), holds_nothing));
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("emptying: a tree that could not be read for a while stops it for a while only")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    const Contents contents = leave_marked(volume, prng);
    const std::vector<SpoiltLeaf> spoilt = spoil_leaves(volume, nullptr, prng);
    REQUIRE_FALSE(spoilt.empty());
    MountOptions options;
    options.clean = false;
    options.commit_seconds = 1;
    options.retry_seconds = 1;
    mount(volume, options);
    // It ends with the first node that it cannot read.
    const auto await_end = [&] {
        for (int tenths = 0; tenths < 300 && volume.fs().store.moving_blocks > 0; ++tenths)
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
    };
    await_end();
    REQUIRE(volume.fs().store.moving_blocks == 0);
    REQUIRE(volume.fs().info().moved_blocks == 0);
    for (const SpoiltLeaf& leaf : spoilt)
        volume.member(leaf.member).poke(leaf.offset, leaf.before);
    for (int tenths = 0; tenths < 300 && volume.fs().info().moved_blocks == 0; ++tenths)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(volume.fs().info().moved_blocks > 0);
    await_end();
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("emptying: nothing stays reserved when a balance ends without another step of the cleaner")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    thin_file(fs, prng, 240 * kMiB);
    mark_several(fs);
    CHECK(fs.store.moving_blocks > 0);
    REQUIRE(fs.names.unlink(kRoot, "thin").ok());
    for (int commit = 0; commit < 12; ++commit) {
        write_file(fs, "file" + std::to_string(commit), random_content(prng, kBlockBytes));
        REQUIRE(fs.step(true).ok());
    }
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    CHECK(fs.store.moving_blocks == 0);
    CHECK(fs.store.ledger.reserved_data() == 0);
}

TEST_CASE("emptying: the next mount keeps the room for all marked groups before anybody writes")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    make_and_mount(volume);
    thin_file(volume.fs(), prng, 240 * kMiB);
    mark_several(volume.fs());
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    uint64_t live = 0;
    for (const GroupNumbers& group : emptying_groups(volume.fs()))
        live += group.live_blocks;
    CHECK(live > 0);
    CHECK(volume.fs().store.moving_blocks >= live);
}

TEST_CASE("emptying: groups that hold nothing leave with one commit, however many there are")
{
    SimVolume volume({8, 16 * kGiB, ProfileId::kSingle, ProfileId::kRaid1, kDefaultChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const Contents contents = fill(fs, prng, kMiB);
    size_t planned = 0;
    while (
        planned < 2000 &&
        fs.volume->plan_group(kGroupData, SlotMembers::kPresent, Slots::kBesideKept, fs.store.allocator).ok())
        ++planned;
    REQUIRE(planned > 600);
    const size_t before = fs.volume->map().groups.size();
    const Groups held = fs.volume->array().groups();
    int commits = 0;
    for (; commits < 20 && (commits == 0 || fs.volume->map().groups.size() > 200); ++commits)
        REQUIRE(fs.step(true).ok());
    MESSAGE(before, " groups, ", fs.volume->map().groups.size(), " after ", commits, " commits");
    CHECK(commits == 1);
    CHECK(held.size() == before);  // who looks at them sees what was there
    CHECK(fs.volume->array().groups().size() == fs.volume->map().groups.size());
    require_contents(fs, contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

// A scrub holds its view until its piece ends, and records until then. What it recorded last is in the open
// transaction when the group comes free.
TEST_CASE("emptying: a group waits for the commit of checksums that were recorded in it last")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const Contents contents = fill(fs, prng, 20 * kMiB);
    REQUIRE(fs.step(true).ok());
    View pin = fs.store.timeline.view();
    empty_several(fs, 1);
    for (int commit = 0; commit < 3; ++commit)
        REQUIRE(fs.step(true).ok());
    const std::vector<GroupNumbers> groups = emptying_groups(fs);
    const auto emptied = std::find_if(groups.begin(), groups.end(), holds_nothing);
    REQUIRE(emptied != groups.end());
    const VolumeAddress first = emptied->address, last = first + (emptied->total_blocks - 1) * kBlockBytes;
    const uint64_t checksum = 1;
    const Ref<Transaction> open = fs.store.timeline.open();
    open->checksums.put(first, std::span(&checksum, 1));
    open->checksums.put(last, std::span(&checksum, 1));
    open->dirty = true;
    pin = {};
    for (int commit = 0; commit < 5 && fs.volume->array().group_at(first); ++commit)
        REQUIRE(fs.step(true).ok());
    CHECK(!fs.volume->array().group_at(first));
    continue_balance(fs, 1000, true);
    require_contents(fs, contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("emptying: but for a balance one group at a time, until its slots are back")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const Contents contents = thin_file(fs, prng, 120 * kMiB);
    for (int step = 0; step < 500 && fs.info().emptied_groups < 3; ++step) {
        cleaner_step(fs, CleanWhen::kAny);
        CHECK(emptying_groups(fs).size() <= 1);
    }
    CHECK(fs.info().emptied_groups == 3);
    require_contents(fs, contents);
}

TEST_CASE("emptying: without room for nodes nobody asks for one commit after the other")
{
    Prng prng(seed());
    SimVolume volume(shape_of(4, ProfileId::kRaid5));
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    thin_file(fs, prng, 120 * kMiB);
    const auto is_emptied = [&] {
        const std::vector<GroupNumbers> groups = emptying_groups(fs);
        return std::any_of(groups.begin(), groups.end(), holds_nothing);
    };
    REQUIRE(start_balance(fs, everything(fs)).ok());
    for (int step = 0; step < 500 && !is_emptied(); ++step)
        balance_step(fs);
    REQUIRE(is_emptied());
    PendingChanges all;
    all.bytes = 1024 * kGiB;
    fs.store.ledger.reserve_changes_anyway(all);
    int steps = 0;
    while (steps < 50 && balance_step(fs) != CleanProgress::kNothing)
        ++steps;
    CHECK(steps < 50);
    CHECK(fs.info().emptied_groups == 0);
    fs.store.ledger.apply({.released_changes = all});
    REQUIRE(fs.step(true).ok());
    CHECK(finish(fs).state == BalanceStatus::State::kFinished);
    CHECK(fs.info().emptied_groups > 0);
}

TEST_CASE("emptying: a step is bounded by pieces as well as by bytes, and one lost block costs one request")
{
    Prng prng(seed());
    SimVolume volume(shape_of(3, ProfileId::kSingle));
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Contents contents = thin_file(fs, prng, 100 * kMiB);
    std::vector<std::byte> whole = random_content(prng, 40 * kMiB);
    write_file(fs, "whole", whole);
    REQUIRE(fs.step(true).ok());
    std::vector<std::byte> block(kBlockBytes);
    bool spoilt = false;
    for (uint32_t member = 0; member < 3 && !spoilt; ++member)
        for (uint64_t offset = kMiB; offset < kSize && !spoilt; offset += kBlockBytes) {
            volume.member(member).peek(offset, block);
            spoilt = std::equal(block.begin(), block.end(), whole.begin() + 21 * kMiB);
            if (spoilt)
                volume.member(member).poke(offset, random_content(prng, kBlockBytes));
        }
    REQUIRE(spoilt);
    REQUIRE(start_balance(fs, everything(fs)).ok());
    uint64_t most_moved = 0, most_reads = 0;
    for (int step = 0; step < 1000 && fs.committer.balance.status().state == BalanceStatus::State::kRunning;
         ++step) {
        const uint64_t moved = fs.info().moved_blocks;
        const uint64_t reads = fs.info().device_reads;
        const CleanProgress progress = fs.committer.balance.step(kBig);
        most_moved = std::max(most_moved, fs.info().moved_blocks - moved);
        most_reads = std::max(most_reads, fs.info().device_reads - reads);
        if (progress == CleanProgress::kNeedsCommit)
            REQUIRE(fs.step(true).ok());
    }
    MESSAGE(most_moved, " blocks and ", most_reads, " requests at most in a step");
    CHECK(fs.committer.balance.status().groups_stuck == 1);
    CHECK(most_moved > 1000);
    CHECK(most_reads < 1000);
    require_contents(fs, contents);
    CHECK_FALSE(fs.files.read(find_file(fs, "whole"), 21 * kMiB, block).ok());
}

namespace {

MemberId add_device(SimVolume& volume, uint64_t bytes)
{
    std::string why;
    const auto added = volume.fs().committer.add_member(volume.borrow_one(volume.add_device(bytes)), why);
    REQUIRE_MESSAGE(added.ok(), why);
    REQUIRE(volume.fs().step(true).ok());
    return *added;
}

// Slots of it that no group has.
uint64_t free_slots(Filesystem& fs, MemberId member)
{
    uint64_t slots = 0;
    for (const MemberRecord& record : fs.volume->member_table())
        slots += record.id == member ? record.slot_count : 0;
    for (const GroupRecord& group : fs.volume->map().groups)
        for (const GroupColumn& column : group.columns)
            for (const SlotRun& run : column.runs)
                slots -= column.member == member ? run.slot_count : 0;
    return slots;
}

// The newest one on the member.
VolumeAddress last_group_on(Filesystem& fs, MemberId member)
{
    VolumeAddress last;
    for (const GroupRecord& group : fs.volume->map().groups)
        if (group.content == kGroupData &&
            std::any_of(group.columns.begin(), group.columns.end(),
                        [=](const GroupColumn& column) { return column.member == member; }))
            last = group.address;
    REQUIRE(last.valid());
    return last;
}

}  // namespace

// Two members with much room, two with room for a few columns. The slots of an empty group on one of these
// come back one commit after it is given up, and the next one is needed before.
TEST_CASE("emptying: groups do not take the place of each other for ever")
{
    Prng prng(seed());
    SimVolume volume({2, 256 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Contents contents;
    const auto add_file = [&] {
        const std::string name = "file" + std::to_string(contents.size());
        contents[name] = random_content(prng, kMiB);
        write_file(fs, name, contents[name]);
        return name;
    };
    const auto live_blocks = [&](VolumeAddress group) {
        return fs.store.allocator.numbers_of(group)->live_blocks;
    };
    const MemberId one = add_device(volume, 64 * kMiB);
    std::vector<std::string> in_group;
    while (free_slots(fs, one) > 0 || live_blocks(last_group_on(fs, one)) == 0) {
        in_group = {add_file()};
        REQUIRE(fs.step(true).ok());
    }
    const VolumeAddress group = last_group_on(fs, one);
    const MemberId other = add_device(volume, 64 * kMiB);
    while (free_slots(fs, other) > 1 || lasting_room(fs.store, kGroupData) > data_ahead(fs.store) / 2 + 256) {
        const uint64_t before = live_blocks(group);
        const std::string name = add_file();
        REQUIRE(fs.step(true).ok());
        if (live_blocks(group) > before)
            in_group.push_back(name);
    }
    REQUIRE(free_slots(fs, other) == 1);
    for (const std::string& name : in_group) {
        REQUIRE(fs.names.unlink(kRoot, name).ok());
        contents.erase(name);
    }
    contents["more"] = random_content(prng, 8 * kMiB);
    write_file(fs, "more", contents["more"]);
    REQUIRE(fs.step(true).ok());
    for (int commit = 0; commit < 10; ++commit)
        REQUIRE(fs.step(true).ok());
    const Superblock before = fs.volume->superblock();
    for (int commit = 0; commit < 20; ++commit)
        REQUIRE(fs.step(true).ok());
    CHECK(fs.volume->superblock().next_group_address == before.next_group_address);
    CHECK(fs.volume->superblock().generation.value == before.generation.value);
    require_contents(fs, contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}
