// SPDX-License-Identifier: MIT
// Tree nodes of which no copy is left: listed as damage, charged once, and to nobody who never had them.
#include "fs/maintain/damaged_files.h"
#include "tests/filesystem/fill_steps.h"
#include "tests/filesystem/lost_nodes_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

std::vector<MemberCounters> all_counters(Filesystem& fs)
{
    std::vector<MemberCounters> counters;
    for (const MemberInfo& member : fs.info().members)
        counters.push_back(member.counters);
    return counters;
}

uint64_t corruption(Filesystem& fs, uint32_t member)
{
    return all_counters(fs)[member][static_cast<size_t>(MemberCounter::kCorruption)];
}

// In a folder; with the root's leaf lost not even its name is found.
Status change_something(Filesystem& fs, InodeNumber folder, const char* name)
{
    CW_TRY(fs.names.make_node(folder, name, S_IFREG | 0644, 0, {}).status());
    return fs.step(true);
}

void mount_again(SimVolume& volume)
{
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
}

}  // namespace

TEST_CASE("lost nodes: one is listed over mounts, charged once, named, and gone when a copy is there again")
{
    SimVolume volume(kTwoCopies);
    make_and_mount(volume);
    make_folders(volume.fs());
    const std::vector<BlockRef> leaves = file_leaves(volume.fs());
    const BlockRef victim = leaves[leaves.size() / 2];
    const std::vector<NodeCopy> copies = copies_of(volume.fs(), volume, victim);
    mount_again(volume);
    Prng prng(seed());
    for (const NodeCopy& copy : copies)
        rot(volume, prng, copy.member, copy.offset);
    std::vector<MemberCounters> counters;
    for (int pass = 0; pass < 4; ++pass) {
        CAPTURE(pass);
        if (pass == 2)
            mount_again(volume);
        const ScrubStatus status = scrub(volume.fs());
        REQUIRE(volume.fs().step(true).ok());
        CHECK(status.unreadable_nodes == 1);
        CHECK(status.lost == 0);
        CHECK(status.repaired == 0);
        CHECK(status.damaged());
        const VolumeInfo info = volume.fs().info();
        CHECK(info.damaged_blocks == kNodeBlocks);
        CHECK(info.damaged_node_blocks == kNodeBlocks);
        const auto found = find_damaged_files(volume.fs().store, 10);
        REQUIRE(found.ok());
        CHECK(found->file_count == 0);
        REQUIRE(found->node_count == 1);
        CHECK(found->nodes[0].tree == TreeIndex::kFiles);
        CHECK(found->nodes[0].first_inode.value >= kRootInode);
        CHECK(found->nodes[0].first_inode <= found->nodes[0].last_inode);
        CHECK(found->nodes[0].last_inode.value < kRootInode + kFolders * (kFilesEach + 1) + 1);
        for (uint32_t member = 0; member < volume.member_count(); ++member) {
            const bool guilty = std::any_of(copies.begin(), copies.end(),
                                            [=](const NodeCopy& copy) { return copy.member == member; });
            const ScrubMemberNumbers of_member = found_on(status, member);
            CHECK(of_member[ScrubMemberNumber::kLost] == (guilty && pass == 0 ? 1 : 0));
            CHECK(of_member[ScrubMemberNumber::kWrong] == (guilty && pass == 0 ? 1 : 0));
            CHECK(corruption(volume.fs(), member) == (guilty ? 1 : 0));
        }
        if (pass > 0)
            CHECK(all_counters(volume.fs()) == counters);
        counters = all_counters(volume.fs());
    }
    volume.member(copies[1].member).poke(copies[1].offset, copies[1].content);
    let_a_second_pass();
    const ScrubStatus healed = scrub(volume.fs());
    CHECK(healed.repaired == 1);
    CHECK_FALSE(healed.damaged());
    CHECK(volume.fs().info().damaged_blocks == 0);
    require_quiet(scrub(volume.fs()));
    REQUIRE(volume.unmount().ok());
    CheckReport report;
    std::string why;
    REQUIRE(volume.check(report, why).ok());
    CHECK(report.clean());
}

TEST_CASE("lost nodes: who reads one puts it on the list, and charges its members once")
{
    SimVolume volume(kTwoCopies);
    make_and_mount(volume);
    make_folders(volume.fs());
    const std::vector<BlockRef> leaves = file_leaves(volume.fs());
    const std::vector<NodeCopy> copies = copies_of(volume.fs(), volume, leaves[leaves.size() / 2]);
    mount_again(volume);
    Prng prng(seed());
    for (const NodeCopy& copy : copies)
        rot(volume, prng, copy.member, copy.offset);
    uint64_t failed = 0;
    for (int round = 0; round < 3; ++round) {
        for (int folder = 0; folder < kFolders; ++folder) {
            const auto at = volume.fs().names.lookup(kRoot, "folder" + std::to_string(folder));
            REQUIRE(at.ok());
            for (int file = 0; file < kFilesEach; ++file)
                failed += volume.fs().names.lookup(at->inode, long_name(file)).ok() ? 0 : 1;
        }
        CHECK(failed > 0);
        for (const NodeCopy& copy : copies)
            CHECK(corruption(volume.fs(), copy.member) == 1);
        CHECK(volume.fs().info().damaged_node_blocks == kNodeBlocks);
        mount_again(volume);
    }
    CHECK(scrub(volume.fs()).unreadable_nodes == 1);
    for (const NodeCopy& copy : copies)
        CHECK(corruption(volume.fs(), copy.member) == 1);
}

TEST_CASE("lost nodes: a list that no commit can hold is no reason to stop writing")
{
    SimVolume volume(kTwoCopies);
    make_and_mount(volume);
    make_folders(volume.fs());
    const InodeNumber folder =
        volume.fs().names.lookup(kRoot, "folder" + std::to_string(kFolders - 1))->inode;
    // Items of the list would be in it.
    const std::vector<NodeCopy> copies = copies_of(volume.fs(), volume, file_leaves(volume.fs()).front());
    mount_again(volume);
    Prng prng(seed());
    for (const NodeCopy& copy : copies)
        rot(volume, prng, copy.member, copy.offset);
    volume.fs().store.cache.clear();  // from there it would be written anew
    const ScrubStatus status = scrub(volume.fs());
    CHECK(status.unreadable_nodes == 1);
    REQUIRE(volume.fs().step(true).ok());
    CHECK(volume.fs().info().damaged_node_blocks == kNodeBlocks);
    CHECK(volume.fs().store.damage.full());
    REQUIRE(change_something(volume.fs(), folder, "later").ok());
    REQUIRE(volume.fs().step(true).ok());
    CHECK_FALSE(volume.fs().store.damage.changed());
    CHECK(volume.fs().store.service.check_writable().ok());
}

namespace {

// A volume of which one member was lost, whose place a new device takes while a node that it had a copy of is
// lost, or cannot be read for a time, on the other one.
struct FilledBeside {
    explicit FilledBeside(bool for_a_time) : world(kTwoCopies)
    {
        world.mount();
        make_folders(*world.fs);
        const std::vector<BlockRef> leaves = file_leaves(*world.fs);
        const std::vector<NodeCopy> copies = copies_of(*world.fs, world.volume, leaves[leaves.size() / 2]);
        filled = copies[0].member;
        survivor = copies[1].member;
        content = copies[1];
        world.unmount();
        world.mount(degraded_options(), {filled});
        world.write("without", 300 * kKiB);
        world.unmount();
        world.mount(degraded_options(), {filled});
        if (for_a_time)
            rule = world.volume.cable(survivor).add_rule({.action = FaultAction::kLatent,
                                                          .kinds = kFaultReads,
                                                          .begin = content.offset,
                                                          .end = content.offset + kBlockBytes});
        else
            rot(world.volume, world.prng, survivor, content.offset);
        replace(world, filled);
    }

    StaleWorld world;
    uint32_t filled = 0, survivor = 0;
    NodeCopy content;  // of the survivor
    size_t rule = 0;
};

}  // namespace

TEST_CASE("lost nodes: a member that was filled beside one is current, and is never charged for it")
{
    FilledBeside beside(false);
    StaleWorld& world = beside.world;
    const ScrubStatus filled = catch_up(world);
    CHECK(filled.unreadable_nodes == 1);
    CHECK(filled.lost == 0);
    CHECK(world.stale_groups() == 0);
    CHECK(world.fs->info().damaged_node_blocks == kNodeBlocks);
    CHECK(world.wrong_blocks(beside.filled) == 0);
    CHECK(world.wrong_blocks(beside.survivor) == 1);
    for (int mount = 0; mount < 2; ++mount) {
        for (int pass = 0; pass < 2; ++pass) {
            const ScrubStatus again = scrub_all(world);
            CHECK(again.unreadable_nodes == 1);
            CHECK(again.repaired + again.unrepaired + again.adopted + again.lost == 0);
            CHECK(world.wrong_blocks(beside.filled) == 0);
            CHECK(world.wrong_blocks(beside.survivor) == 1);
        }
        world.unmount();
        world.mount();
        CHECK(world.stale_groups() == 0);
        CHECK(world.fs->info().damaged_node_blocks == kNodeBlocks);
    }
    // The one copy that is to be had again brings back the other.
    world.volume.member(beside.survivor).poke(beside.content.offset, beside.content.content);
    let_a_second_pass();
    const ScrubStatus healed = scrub_all(world);
    CHECK(healed.repaired == 1);
    CHECK_FALSE(healed.damaged());
    CHECK(world.fs->store.damage.empty());
    require_quiet(scrub_all(world));
    CHECK(world.wrong_blocks(beside.survivor) == 1);
    world.unmount();
    CHECK(world.check().clean());
}

TEST_CASE("lost nodes: no power cut leaves a member current beside one that is not listed")
{
    FilledBeside beside(false);
    StaleWorld& world = beside.world;
    const int cuts = cut_fillings(world, kCutStep, [&](const ScrubStatus& filled) {
        CHECK(filled.unreadable_nodes == 1);
        if (world.stale_groups() == 0)
            CHECK(world.fs->info().damaged_node_blocks == kNodeBlocks);
    });
    CHECK(cuts > 10 / kCutStep);
    CHECK(scrub_all(world).unreadable_nodes == 1);
    CHECK(world.wrong_blocks(beside.filled) == 0);
}

TEST_CASE("lost nodes: one that can be read again before the end is filled in, too")
{
    FilledBeside beside(true);
    StaleWorld& world = beside.world;
    Scrub& filling = world.fs->committer.catch_up;
    REQUIRE(filling.start({.limit = 8 * kMiB}).ok());  // in pieces
    for (int step = 0; step < 1000 && filling.status().unreadable_nodes == 0; ++step)
        REQUIRE(filling.step());
    REQUIRE(filling.status().state == ScrubState::kRunning);
    CHECK(world.info_of(beside.filled).stale_groups > 0);
    world.volume.cable(beside.survivor).remove_rule(beside.rule);
    for (int round = 0; round < 3 && world.stale_groups() > 0; ++round)
        catch_up(world);
    CHECK(world.stale_groups() == 0);
    CHECK(world.fs->store.damage.empty());
    require_quiet(scrub_all(world));
    CHECK(world.wrong_blocks(beside.filled) == 0);
    CHECK(world.read_back() == 0);
}

namespace {

// A volume of which a node in the middle of the file tree is lost, once another member was without something
// for a while: its place has a new device, or it is back.
struct FilledBelow {
    static constexpr uint32_t kFilled = 1;

    explicit FilledBelow(bool anew) : world(kTwoCopies)
    {
        world.mount();
        world.write("before", 2 * kMiB);
        make_three_levels(*world.fs, world.prng);
        world.fail_writes(kFilled);
        world.write("without", 300 * kKiB);
        world.unmount();
        if (anew) {
            world.mount(degraded_options(), {kFilled});
            replace(world, kFilled);
        } else {
            world.mount();
        }
        const std::vector<BlockRef> inner = nodes_of(*world.fs, TreeIndex::kFiles, Level::kInner);
        REQUIRE(inner.size() > 1);
        copies = copies_of(*world.fs, world.volume, inner.back());
        for (const NodeCopy& copy : copies)
            rot(world.volume, world.prng, copy.member, copy.offset);
        world.fs->store.cache.clear();
        REQUIRE(world.info_of(kFilled).stale_groups > 0);
    }
    // On all members, or on all but the filled one.
    void give_back(bool everywhere)
    {
        for (const NodeCopy& copy : copies)
            if (everywhere || copy.member != kFilled)
                world.volume.member(copy.member).poke(copy.offset, copy.content);
        world.fs->store.cache.clear();
    }

    StaleWorld world;
    std::vector<NodeCopy> copies;
};

}  // namespace

TEST_CASE("lost nodes: what is below one a new member gets from another copy, and is current")
{
    FilledBelow below(true);
    StaleWorld& world = below.world;
    const ScrubStatus filled = catch_up(world);
    CHECK(filled.unreadable_nodes == 1);
    CHECK(filled.lost == 0);
    CHECK(world.stale_groups() == 0);
    CHECK(world.wrong_blocks(FilledBelow::kFilled) == 0);
    below.give_back(false);
    let_a_second_pass();
    const ScrubStatus healed = scrub_all(world);
    CHECK(healed.repaired <= 1);
    CHECK_FALSE(healed.damaged());
    require_quiet(scrub_all(world));
    CHECK(world.fs->store.damage.empty());
    CHECK(world.read_back() == 0);
    world.unmount();
    CHECK(world.check().clean());
    // Its copies are the only ones of some nodes.
    for (const uint32_t away : {0u, 2u, 3u}) {
        world.mount(degraded_options(), {away});
        CHECK(world.read_back() == 0);
        CHECK_FALSE(scrub_all(world).damaged());
        world.unmount();
        world.mount();
        while (world.stale_groups() > 0)
            catch_up(world);
        world.unmount();
    }
}

TEST_CASE("lost nodes: a new member that another device failed to replace is filled below one as before")
{
    FilledBelow below(true);
    StaleWorld& world = below.world;
    Committer& committer = world.fs->committer;
    const MemberId filled{FilledBelow::kFilled + 1};
    const MemberRecord line = *world.fs->volume->superblock().member(filled);
    std::string why;
    REQUIRE_MESSAGE(committer.offline_member(filled, why).ok(), why);
    // It can be written until the first block-group map.
    const uint32_t device = world.volume.add_device(line.size_bytes);
    world.volume.cable(device).add_rule(
        {.kinds = kFaultWrites,
         .begin = std::min(line.map_offset[0], line.map_offset[1]),
         .end = std::max(line.map_offset[0], line.map_offset[1]) + line.map_bytes});
    CHECK(committer.replace_member(filled, world.volume.borrow_one(device), why).err() == Err::kIo);
    REQUIRE(world.fs->volume->superblock().member(filled)->uuid == line.uuid);
    why.clear();
    REQUIRE_MESSAGE(committer.online_member(filled, nullptr, why).ok(), why);
    CHECK(catch_up(world).unreadable_nodes == 1);
    CHECK(world.stale_groups() == 0);
    CHECK(world.wrong_blocks(FilledBelow::kFilled) == 0);
}

// A commit that recorded anew what the leaf says would need it.
TEST_CASE("lost nodes: leaves of checksums end no writing while a new member is filled, and its columns wait")
{
    StaleWorld world(kTwoCopies);
    world.mount();
    world.write("before", 24 * kMiB);
    world.unmount();
    world.mount(degraded_options(), {FilledBelow::kFilled});
    replace(world, FilledBelow::kFilled);
    const std::vector<BlockRef> leaves = nodes_of(*world.fs, TreeIndex::kChecksums, Level::kLeaf);
    REQUIRE(leaves.size() > 3);
    for (const BlockRef& leaf : leaves) {
        CAPTURE(leaf.address.value);
        const std::vector<NodeCopy> copies = copies_of(*world.fs, world.volume, leaf);
        for (const NodeCopy& copy : copies)
            rot(world.volume, world.prng, copy.member, copy.offset);
        world.fs->store.cache.clear();
        catch_up(world);
        CHECK(world.fs->store.service.check_writable().ok());
        CHECK(world.stale_groups() > 0);
        for (const NodeCopy& copy : copies)
            if (copy.member != FilledBelow::kFilled)
                world.volume.member(copy.member).poke(copy.offset, copy.content);
        world.fs->store.cache.clear();
    }
    let_a_second_pass();
    CHECK_FALSE(catch_up(world).damaged());
    CHECK(world.stale_groups() == 0);
    CHECK_FALSE(scrub_all(world).damaged());  // brings the other copies of the leaves back
    CHECK(world.read_back() == 0);
    world.unmount();
    CHECK(world.check().clean());
}

TEST_CASE("lost nodes: a member that was away may have what no other has, and stays as it is below one")
{
    FilledBelow below(false);
    StaleWorld& world = below.world;
    const uint64_t stale = world.info_of(FilledBelow::kFilled).stale_groups;
    CHECK(catch_up(world).unreadable_nodes == 1);
    const uint64_t left = world.info_of(FilledBelow::kFilled).stale_groups;
    CHECK(left > 0);
    CHECK(left < stale);
    below.give_back(true);
    let_a_second_pass();
    CHECK_FALSE(catch_up(world).damaged());
    CHECK(world.stale_groups() == 0);
    CHECK(world.read_back() == 0);
    CHECK(world.wrong_blocks(FilledBelow::kFilled) == 0);
}
