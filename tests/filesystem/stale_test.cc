// SPDX-License-Identifier: MIT
// Members that missed writes and come back: what they lack is on record, and nothing of it is served (I-32).
#include <fcntl.h>

#include "fs/commit/committer.h"
#include "tests/filesystem/stale_world.h"

using namespace cowraid;
using namespace cowraid::test;

TEST_CASE("a member that failed comes back, serves what it has, and is charged for nothing")
{
    for (const VolumeShape& shape : {kStaleRaid5, kStaleRaid6}) {
        CAPTURE(static_cast<uint32_t>(shape.data_profile));
        StaleWorld world(shape);
        fail_while_writing(world, {1});
        const CheckReport report = world.check();
        CHECK(report.stale_columns > 0);
        CHECK(report.stale_blocks > 0);
        // The member table alone: no mount has let it take part again yet.
        CHECK(report.findings.size() == 1);
        world.mount();
        CHECK(world.info_of(1).state == MemberState::kPresent);
        CHECK(world.info_of(1).stale_groups > 0);
        CHECK(world.info_of(1).stale_bytes >= 16 * kMiB);
        CHECK(!world.fs->info().degraded);
        CHECK(world.read_back() == 0);
        CHECK(world.wrong_blocks(1) == 0);
        world.write("later", kMiB);
        world.unmount();
        const CheckReport again = world.check();
        CHECK(again.clean());
        CHECK(again.stale_columns > 0);
        // Nobody catches up: what was read has been written anew.
        CHECK(again.stale_blocks < report.stale_blocks);
        world.mount();
        CHECK(world.read_back() == 0);
        CHECK(world.wrong_blocks(1) == 0);
        world.unmount();
    }
}

TEST_CASE("a stale column counts as missing when a mount decides what can be done without")
{
    StaleWorld world(kStaleRaid5);
    fail_while_writing(world, {1});
    world.mount();
    world.unmount();
    std::string why;
    CHECK(world.try_mount(degraded_options(), {2}, why).err() == Err::kInvalid);
    CHECK_MESSAGE(why.find("member 2 is without writes it missed, ") != std::string::npos, why);
    CHECK_MESSAGE(why.find("member 3 is absent: more than raid5 tolerates") != std::string::npos, why);
    CHECK(world.try_mount(degraded_options(), {1}, why).ok());
    CHECK(world.read_back() == 0);
    MountOptions rescue = degraded_options();
    rescue.read_only = rescue.rescue = true;
    why.clear();
    const Status rescued = world.try_mount(rescue, {2}, why);
    REQUIRE_MESSAGE(rescued.ok(), why);
    world.read_back();
    world.mount();
    CHECK(world.read_back() == 0);

    StaleWorld six(kStaleRaid6);
    fail_while_writing(six, {1});
    six.mount();
    six.unmount();
    six.mount(degraded_options(), {2});
    CHECK(six.read_back() == 0);
    six.fs.reset();
    CHECK(six.try_mount(degraded_options(), {2, 3}, why).err() == Err::kInvalid);
    six.mount(degraded_options(), {1, 2});
    CHECK(six.read_back() == 0);
}

TEST_CASE("with a stale column of raid5 another member's failure stops the volume, and loses nothing")
{
    StaleWorld world(kStaleRaid5);
    fail_while_writing(world, {1});
    world.mount();
    world.fail_writes(2);
    ManyFiles acknowledged = world.files;
    CHECK_FALSE(world.try_write("too much", 2 * kMiB).ok());
    world.fs.reset();
    world.files = acknowledged;
    world.mount();
    CHECK(world.info_of(1).state == MemberState::kPresent);
    CHECK(world.info_of(2).state == MemberState::kPresent);
    CHECK(world.info_of(2).stale_groups == 0);
    CHECK(world.read_back() == 0);
}

TEST_CASE("a member that was away while nothing was written to its block groups is current")
{
    StaleWorld world(kStaleRaid5);
    write_before(world);
    world.mount(degraded_options(), {1});
    world.write("new groups", kMiB);
    world.unmount();
    world.mount();
    CHECK(world.info_of(1).state == MemberState::kPresent);
    CHECK(world.info_of(1).stale_groups == 0);
    world.unmount();
    CHECK(world.check().clean());
    world.mount(degraded_options(), {2});
    CHECK(world.read_back() == 0);
}

TEST_CASE("a reopened group takes blocks only after its absent columns are stale on the members")
{
    StaleWorld world(kStaleRaid5);
    write_before(world);
    Image image = Image::copy_of(world.volume);
    std::unique_ptr<Filesystem> core = image.open_core({1});
    const auto closed = [&] {
        return core->store.allocator.numbers(kGroupData).free_row_blocks;
    };
    // An empty one would leave.
    VolumeAddress address;
    for (const GroupNumbers& group : core->store.allocator.group_numbers(kGroupData))
        if (group.degraded && group.live_blocks > 0 && group.free_row_blocks > 0)
            address = group.address;
    REQUIRE(address.valid());
    const uint64_t before = closed();
    core->volume->reopen_group(address, core->store.allocator);
    CHECK(core->volume->map_changed());
    CHECK(closed() == before);
    // A map without new trees; a commit closes the group again when it has what it needs.
    const Generation generation = core->volume->superblock().generation.next();
    uint64_t covered = 0;
    REQUIRE(core->volume
                ->make_durable(Volume::MapWrite::kNow, generation, core->volume->superblock().root, covered)
                .ok());
    core->volume->commit_done(core->store.allocator);
    CHECK(closed() > before);
    core.reset();
    std::unique_ptr<Volume> volume = image.open_volume();
    size_t stale = 0;
    for (const GroupRecord& group : volume->map().groups)
        for (const GroupColumn& column : group.columns) {
            if (!column.stale())
                continue;
            ++stale;
            CHECK(group.address == address);
            CHECK(column.member == MemberId{2});
            CHECK(column.stale_since <= generation);
            CHECK(column.stale_since > group.created_generation);
        }
    CHECK(stale == 1);
}

TEST_CASE("a reopened group that is closed before its commit stays closed")
{
    StaleWorld world(kStaleRaid5);
    write_before(world);
    Image image = Image::copy_of(world.volume);
    const std::unique_ptr<Filesystem> core = image.open_core({1});
    Allocator& allocator = core->store.allocator;
    std::vector<VolumeAddress> degraded;
    for (const GroupNumbers& group : allocator.group_numbers(kAllContent))
        if (group.degraded && group.live_blocks > 0)
            degraded.push_back(group.address);
    REQUIRE(degraded.size() > 1);
    for (const VolumeAddress address : degraded)
        core->volume->reopen_group(address, allocator);
    // As the cleaner closes what it empties.
    allocator.set_group_state(degraded[1], Allocator::GroupState::kClosed);
    const Generation generation = core->volume->superblock().generation.next();
    uint64_t covered = 0;
    REQUIRE(core->volume
                ->make_durable(Volume::MapWrite::kNow, generation, core->volume->superblock().root, covered)
                .ok());
    core->volume->commit_done(allocator);
    CHECK(allocator.numbers_of(degraded[0])->open());
    CHECK(allocator.numbers_of(degraded[1])->closed);
}

TEST_CASE("the commit that a mount found is written again bit for bit, whatever the mount learns")
{
    StaleWorld world(kStaleRaid5);
    write_before(world);
    // An older copy of member 2, from before a degraded mount that it took part in.
    const std::unique_ptr<SimDevice> old = world.volume.member(1).clone("old");
    world.mount(degraded_options(), {3});
    world.write("degraded", kMiB);
    world.write("more", kMiB);
    world.unmount();
    world.mount();
    world.write("whole", kMiB);
    world.unmount();
    std::vector<std::byte> bytes(old->size_bytes());
    old->peek(0, bytes);
    world.volume.member(1).poke(0, bytes);

    Image image = Image::copy_of(world.volume);
    const Generation found = image.open_volume()->superblock().generation;
    const uint64_t offset =
        kSuperblockRingOffset[0] + found.value % kSuperblockSlotCount * kSuperblockSlotBytes;
    std::vector<std::byte> was(2 * kBlockBytes), is(2 * kBlockBytes);
    world.volume.member(0).peek(offset, was);
    world.mount();
    world.volume.member(0).peek(offset, is);
    CHECK(was == is);
    CHECK(world.info_of(1).state == MemberState::kPresent);
    CHECK(world.info_of(1).stale_groups > 0);
    CHECK(world.read_back() == 0);
    CHECK(world.wrong_blocks(1) == 0);
    world.unmount();
    CHECK(world.check().clean());
}

TEST_CASE("a rotten copy of the superblock is counted after an unmount, not after a crash")
{
    for (const bool unmounted : {true, false}) {
        CAPTURE(unmounted);
        StaleWorld world(kStaleRaid5);
        world.mount();
        world.write("file", kMiB);
        if (unmounted)
            world.unmount();
        else
            world.fs.reset();
        const Superblock found = Image::copy_of(world.volume).open_volume()->superblock();
        CHECK(found.unmounted == unmounted);
        const uint64_t slot = found.generation.value % kSuperblockSlotCount * kSuperblockSlotBytes;
        const std::byte rot[] = {std::byte{0xff}, std::byte{0x11}};
        world.volume.member(1).poke(kSuperblockRingOffset[1] + slot + 600, rot);
        world.mount();
        const auto counters = world.info_of(1).counters;
        CHECK(counters[static_cast<size_t>(MemberCounter::kSuperblock)] == (unmounted ? 1 : 0));
        CHECK(world.read_back() == 0);
        world.unmount();
        CHECK(world.check().clean());
    }
}

// Every member stops at the same request of the commit that records a failure.
TEST_CASE("a crash at any request of the commit that records a failed member: nothing old is served")
{
    size_t cut = 0, refused = 0, recorded = 0;
    for (uint64_t limit = 0; limit < 400; ++limit) {
        CAPTURE(limit);
        StaleWorld world({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
        world.mount();
        world.write("before", kMiB);
        world.fail_writes(1);
        for (const uint32_t member : {0u, 2u, 3u})
            world.faults[member]->add_rule(
                {.action = FaultAction::kGone, .kinds = kFaultWrites | kFaultFlushes, .skip = limit});
        const ManyFiles acknowledged = world.files;
        const bool done = world.try_write("after", kMiB).ok();
        if (!done)
            world.files = acknowledged;
        cut += !done;
        world.fs.reset();
        world.volume.power_cut(world.prng);
        world.mount();
        CHECK(world.info_of(1).state == MemberState::kPresent);
        recorded += world.info_of(1).stale_groups > 0;
        CHECK(world.read_back() == 0);
        world.unmount();
        CHECK(world.check().clean());
        std::string why;
        for (const uint32_t absent : {0u, 2u, 3u}) {
            MountOptions options = degraded_options();
            options.read_only = true;
            const Status mounted = world.try_mount(options, {absent}, why);
            refused += !mounted.ok();
            if (mounted.ok())
                CHECK(world.read_back() == 0);
            else
                CHECK_MESSAGE(why.find("without writes it missed") != std::string::npos, why);
        }
        if (done)
            break;
    }
    CHECK(cut > 5);
    CHECK(recorded > 0);
    CHECK(refused > 0);
}

namespace {

constexpr uint64_t kChunkBytes = 64 * kKiB;
constexpr uint64_t kStripeBytes = 3 * kChunkBytes;  // of data, in volumes as kStaleRaid5 and kStaleRaid6

// A file "full" that takes all room, but for the first chunk of every stripe.
InodeNumber fill_but_holes(StaleWorld& world)
{
    Filesystem& fs = *world.fs;
    const InodeNumber inode = fs.names.make_node({kRootInode}, "full", S_IFREG | 0644, 0, {})->inode;
    std::vector<std::byte>& content = world.files["full"];
    std::vector<std::byte> stripe(kStripeBytes);
    for (;;) {
        world.prng.fill(stripe.data(), stripe.size());
        if (!fs.files.write(inode, content.size(), stripe, {}, {}).ok())
            break;
        content.insert(content.end(), stripe.begin(), stripe.end());
        if (content.size() % (64 * kStripeBytes) == 0)
            REQUIRE(fs.step(true).ok());
    }
    REQUIRE(fs.step(true).ok());
    for (uint64_t at = 0; at < content.size(); at += kStripeBytes) {
        REQUIRE(
            fs.files.allocate_range(inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, kChunkBytes).ok());
        std::memset(content.data() + at, 0, kChunkBytes);
    }
    REQUIRE(fs.step(true).ok());
    return inode;
}

// Writes the holes of stripes [begin, end).
void fill_holes(StaleWorld& world, InodeNumber inode, uint64_t begin, uint64_t end)
{
    std::vector<std::byte>& content = world.files["full"];
    for (uint64_t at = begin * kStripeBytes; at < end * kStripeBytes; at += kStripeBytes) {
        const std::span<std::byte> chunk = std::span(content).subspan(at, kChunkBytes);
        world.prng.fill(chunk.data(), chunk.size());
        REQUIRE(world.fs->files.write(inode, at, chunk, {}, {}).ok());
    }
}

// All that was written into rows of others reaches the members, but no commit does.
void flush_and_cut_power(StaleWorld& world)
{
    const VolumeInfo before = world.fs->info();
    REQUIRE(world.fs->step(false).ok());
    const VolumeInfo after = world.fs->info();
    CHECK(after.rmw_rows + after.rcw_rows > before.rmw_rows + before.rcw_rows);
    world.fs.reset();
    world.volume.power_cut(world.prng, {.keep_percent = 100, .tear_percent = 0});
}

// Whether a column of the member is stale since its group could be written first, and not as that of a new
// device is.
bool stale_as_a_whole(SimVolume& volume, MemberId member)
{
    Image image = Image::copy_of(volume);
    const std::unique_ptr<Volume> opened = image.open_volume();
    bool any = false;
    for (const GroupRecord& group : opened->map().groups)
        for (const GroupColumn& column : group.columns)
            any = any || (column.member == member && column.stale_since == group.created_generation.next());
    return any;
}

}  // namespace

TEST_CASE("a member that fails within a flush has missed writes, also when power fails before the commit")
{
    StaleWorld world(kStaleRaid5);
    world.mount();
    const InodeNumber inode = fill_but_holes(world);
    // From now on superblocks call the write-intent log live, so that the next flush writes rows at once.
    fill_holes(world, inode, 0, 32);
    REQUIRE(world.fs->step(true).ok());
    const ManyFiles acknowledged = world.files;
    world.fail_writes(1);
    fill_holes(world, inode, 32, 64);
    world.files = acknowledged;
    flush_and_cut_power(world);
    world.mount();
    CHECK(world.info_of(1).state == MemberState::kPresent);
    CHECK(world.info_of(1).stale_groups > 0);
    CHECK(world.read_back() == 0);
    CHECK(world.wrong_blocks(1) == 0);
    world.unmount();
    CHECK(world.check().clean());
}

// Rows whose other parity was stale and away had their entries on this member alone.
TEST_CASE(
    "a member that may have had the only log entries of a row is not current after a recovery without it")
{
    StaleWorld world(kStaleRaid6);
    world.mount();
    world.fs->names.forget(fill_but_holes(world), 1);
    world.unmount();
    world.mount(degraded_options(), {1});
    const InodeNumber inode = world.fs->names.lookup({kRootInode}, "full")->inode;
    fill_holes(world, inode, 0, 32);
    REQUIRE(world.fs->step(true).ok());
    CHECK(world.fs->info().rmw_rows + world.fs->info().rcw_rows > 0);
    world.fs.reset();
    world.volume.power_cut(world.prng);
    CHECK_FALSE(stale_as_a_whole(world.volume, {3}));
    world.mount(degraded_options(), {2});
    CHECK(world.info_of(1).stale_groups > 0);
    CHECK(world.read_back() == 0);
    world.unmount();
    CHECK(stale_as_a_whole(world.volume, {3}));
    world.mount();
    CHECK(world.read_back() == 0);
    world.unmount();
    CHECK(world.check().clean());
}

TEST_CASE("a member that lost exactly the last commit is stale once that commit is confirmed")
{
    StaleWorld world(kStaleRaid5);
    write_before(world);
    world.mount();
    world.write("before", kMiB);
    const std::unique_ptr<SimDevice> old = world.volume.member(1).clone("old");
    world.write("after", 2 * kMiB);
    REQUIRE(world.fs->confirm().ok());
    world.fs.reset();
    world.volume.power_cut(world.prng);
    std::vector<std::byte> bytes(old->size_bytes());
    old->peek(0, bytes);
    world.volume.member(1).poke(0, bytes);
    // With another one away more is lost than raid5 tolerates.
    std::string why;
    CHECK(world.try_mount(degraded_options(), {2}, why).err() == Err::kInvalid);
    CHECK_MESSAGE(why.find("member 2 stopped at commit ") != std::string::npos, why);
    world.mount();
    CHECK(world.info_of(1).stale_groups > 0);
    CHECK(world.read_back() == 0);
    CHECK(world.wrong_blocks(1) == 0);
    world.unmount();
    CHECK(world.try_mount(degraded_options(), {2}, why).err() == Err::kInvalid);
    CHECK(world.check().clean());
}

TEST_CASE("a copy of a member of older days has missed what came since, though no table says so")
{
    StaleWorld world(kStaleRaid5);
    write_before(world);
    const std::unique_ptr<SimDevice> old = world.volume.member(1).clone("old");
    world.mount();
    world.write("after", 2 * kMiB);
    world.write("before", kMiB);
    world.unmount();
    std::vector<std::byte> bytes(old->size_bytes());
    old->peek(0, bytes);
    world.volume.member(1).poke(0, bytes);
    world.mount();
    CHECK(world.info_of(1).state == MemberState::kPresent);
    CHECK(world.info_of(1).stale_groups > 0);
    CHECK(world.wrong_blocks(1) == 0);
    world.unmount();
    std::string why;
    CHECK(world.try_mount(degraded_options(), {2}, why).err() == Err::kInvalid);
    CHECK_MESSAGE(why.find("member 2 is without writes it missed, ") != std::string::npos, why);
    world.mount();
    CHECK(world.read_back() == 0);
    CHECK(world.wrong_blocks(1) == 0);
    world.unmount();
    CHECK(world.check().clean());
}
