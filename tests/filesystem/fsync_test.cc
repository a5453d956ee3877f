// SPDX-License-Identifier: MIT
// fsync on simulated members: what it acknowledged is there after a crash, exactly, and nothing else is.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <string>

#include "format/fsync_record.h"
#include "fs/files/extents.h"
#include "fs/volume/volume.h"
#include "journal/fsync_log.h"
#include "journal/fsync_scan.h"
#include "tests/filesystem/tree_text.h"
#include "tests/filesystem/volume_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using What = Committer::SyncWhat;

const VolumeShape kFsyncShapes[] = {
    {4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024},
    {5, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024},
    {4, 96 * kMiB, ProfileId::kRaid10, ProfileId::kRaid10, 64 * 1024},
    {7, 96 * kMiB, ProfileId::kRaid1c4, ProfileId::kRaid1c4, 64 * 1024},
};

// Short forms of calls that must succeed.
class ManyFiles {
public:
    ManyFiles(Filesystem& fs, Prng& prng) : fs_(fs), prng_(prng) { }

    Filesystem& fs() { return fs_; }
    InodeNumber make(const char* name, uint32_t mode = S_IFREG | 0644, InodeNumber parent = kRoot)
    {
        const Result<Attributes> made = fs_.names.make_node(parent, name, mode, 0, {});
        REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
        return made->inode;
    }
    InodeNumber find(const char* name, InodeNumber parent = kRoot)
    {
        const Result<Attributes> found = fs_.names.lookup(parent, name);
        REQUIRE_MESSAGE(found.ok(), err_text(found.err()));
        return found->inode;
    }
    void write(InodeNumber inode, uint64_t offset, size_t bytes)
    {
        std::vector<std::byte> content(bytes);
        prng_.fill(content.data(), bytes);
        const Result<size_t> written = fs_.files.write(inode, offset, content, {}, {});
        REQUIRE_MESSAGE(written.ok(), err_text(written.err()));
    }
    void resize(InodeNumber inode, uint64_t size)
    {
        SetAttributes change;
        change.size_bytes = size;
        REQUIRE(fs_.names.set_attributes(inode, change, {}).ok());
    }
    void allocate(InodeNumber inode, int mode, uint64_t offset, uint64_t length)
    {
        REQUIRE(fs_.files.allocate_range(inode, mode, offset, length).ok());
    }
    void xattr(InodeNumber inode, const char* name, const char* value)
    {
        REQUIRE(fs_.names.set_xattr(inode, name, std::as_bytes(std::span(std::string_view(value))), 0).ok());
    }

private:
    Filesystem& fs_;
    Prng& prng_;
};

// What is committed before each scenario.
void populate(ManyFiles& files)
{
    files.write(files.make("old"), 0, 300000);
    files.write(files.make("second"), 0, 9000);
    files.write(files.find("old"), 400000, 5000);
    files.make("dir", S_IFDIR | 0755);
    files.allocate(files.make("reserved"), 0, 0, 1 * kMiB);
    files.xattr(files.find("second"), "user.kept", "yes");
}

struct Scenario {
    const char* name;
    void (*change)(ManyFiles&);
};

const Scenario kScenarios[] = {
    {"create",
     [](ManyFiles& files) {
         files.make("new");
     }},
    {"create and write",
     [](ManyFiles& files) {
         files.write(files.make("written"), 0, 12345);
     }},
    {"create in a new directory",
     [](ManyFiles& files) {
         files.write(files.make("f", S_IFREG | 0600, files.make("d", S_IFDIR | 0700)), 0, 5);
     }},
    {"append",
     [](ManyFiles& files) {
         files.write(files.find("old"), 405000, 7000);
     }},
    {"overwrite",
     [](ManyFiles& files) {
         files.write(files.find("old"), 70000, 9999);
     }},
    {"write behind the end",
     [](ManyFiles& files) {
         files.write(files.find("second"), 100000, 10);
     }},
    {"rename",
     [](ManyFiles& files) {
         REQUIRE(files.fs().names.rename(kRoot, "old", files.find("dir"), "moved", 0).ok());
     }},
    {"rename over another",
     [](ManyFiles& files) {
         REQUIRE(files.fs().names.rename(kRoot, "old", kRoot, "second", 0).ok());
     }},
    {"replace by a new file",
     [](ManyFiles& files) {
         files.write(files.make("temporary"), 0, 5000);
         REQUIRE(files.fs().names.rename(kRoot, "temporary", kRoot, "old", 0).ok());
     }},
    {"unlink",
     [](ManyFiles& files) {
         files.fs().names.forget(files.find("old"), 3);
         REQUIRE(files.fs().names.unlink(kRoot, "old").ok());
         REQUIRE(files.fs().step(false).ok());
     }},
    {"unlink while in use",
     [](ManyFiles& files) {
         REQUIRE(files.fs().names.unlink(kRoot, "old").ok());
     }},
    {"rmdir",
     [](ManyFiles& files) {
         REQUIRE(files.fs().names.rmdir(kRoot, "dir").ok());
     }},
    {"truncate to nothing",
     [](ManyFiles& files) {
         files.resize(files.find("old"), 0);
     }},
    {"truncate inside a block",
     [](ManyFiles& files) {
         files.resize(files.find("old"), 123456);
     }},
    {"truncate and grow again",
     [](ManyFiles& files) {
         files.resize(files.find("old"), 10001);
         files.resize(files.find("old"), 200000);
     }},
    {"write and truncate",
     [](ManyFiles& files) {
         files.write(files.find("old"), 0, 50000);
         files.resize(files.find("old"), 20000);
     }},
    {"hard links",
     [](ManyFiles& files) {
         REQUIRE(files.fs().names.link(files.find("old"), files.find("dir"), "again").ok());
         REQUIRE(files.fs().names.unlink(kRoot, "old").ok());
     }},
    {"attributes",
     [](ManyFiles& files) {
         SetAttributes change;
         change.mode = 0400;
         change.uid = 1000;
         REQUIRE(files.fs().names.set_attributes(files.find("old"), change, {}).ok());
     }},
    {"extended attributes",
     [](ManyFiles& files) {
         files.xattr(files.find("second"), "user.new", "value");
         REQUIRE(files.fs().names.remove_xattr(files.find("second"), "user.kept").ok());
     }},
    {"symbolic link",
     [](ManyFiles& files) {
         REQUIRE(files.fs().names.make_symlink(kRoot, "link", "../to/where", {}).ok());
     }},
    {"fallocate",
     [](ManyFiles& files) {
         files.allocate(files.find("second"), 0, 0, 500000);
     }},
    {"write into reserved space",
     [](ManyFiles& files) {
         files.write(files.find("reserved"), 100000, 30000);
     }},
    {"punch holes",
     [](ManyFiles& files) {
         files.allocate(files.find("old"), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 50000, 100000);
         files.allocate(files.find("reserved"), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 65536);
     }},
    {"zero a range",
     [](ManyFiles& files) {
         files.allocate(files.find("old"), FALLOC_FL_ZERO_RANGE, 1000, 80000);
     }},
};

void check(SimVolume& volume)
{
    CheckReport report;
    std::string why;
    REQUIRE_MESSAGE(volume.check(report, why).ok(), why);
    if (!report.clean())
        FAIL_CHECK(report.findings.front().kind << ": " << report.findings.front().text);
}

// A mounted volume with something in it, whose fsync log is ready for use.
void start(SimVolume& volume, Prng& prng)
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    mount(volume, manual_options());
    ManyFiles files(volume.fs(), prng);
    populate(files);
    REQUIRE(volume.fs().committer.fsync(kRoot, What::kAll).ok());
    CHECK(volume.fs().info().fsync_commits == 1);
}

// By a record, without a commit.
void fsync_by_record(Filesystem& fs)
{
    const VolumeInfo before = fs.info();
    REQUIRE(fs.committer.fsync(kRoot, What::kAll).ok());
    const VolumeInfo after = fs.info();
    CHECK(after.fsync_records == before.fsync_records + 1);
    CHECK(after.commits == before.commits);
}

// Mounts without the members in `absent`: the volume shows `tree`. Leaves it mounted.
void expect_mounted(SimVolume& volume, const std::string& tree, const MountOptions& options,
                    const std::vector<uint32_t>& absent = {})
{
    CAPTURE(options.read_only);
    CAPTURE(absent.size());
    mount(volume, options, absent);
    REQUIRE(tree_text(volume.fs()) == tree);
}

// Power fails; the next mount shows `tree`, the text of what must not be lost. Leaves the volume mounted.
void expect_after_power_cut(SimVolume& volume, Prng& prng, const std::string& tree,
                            const MountOptions& options = manual_options(),
                            const std::vector<uint32_t>& absent = {})
{
    volume.power_cut(prng);
    expect_mounted(volume, tree, options, absent);
}

// Mounts without the members in `absent`: read-only, which replays `records`, then for writing; the volume
// shows `tree` each time, after a commit, and from the commit. Leaves it unmounted and, when whole, clean.
void expect_replay(SimVolume& volume, const std::string& tree, uint64_t records,
                   const std::vector<uint32_t>& absent = {})
{
    MountOptions options = manual_options();
    options.degraded = !absent.empty();
    options.read_only = true;
    expect_mounted(volume, tree, options, absent);
    CHECK(volume.fs().info().replayed_records == records);
    CHECK(volume.fs().close().ok());
    volume.kill();
    options.read_only = false;
    expect_mounted(volume, tree, options, absent);
    REQUIRE(volume.fs().step(true).ok());
    CHECK(tree_text(volume.fs()) == tree);
    REQUIRE(volume.unmount().ok());
    expect_mounted(volume, tree, options, absent);
    CHECK(volume.fs().info().replayed_records == 0);
    REQUIRE(volume.unmount().ok());
    if (absent.empty())
        check(volume);
}

// Power fails; `tree` comes back by a replay of `records`. Leaves the volume as expect_replay() does.
void expect_replay_after_power_cut(SimVolume& volume, Prng& prng, const std::string& tree, uint64_t records,
                                   const std::vector<uint32_t>& absent = {})
{
    volume.power_cut(prng);
    expect_replay(volume, tree, records, absent);
}

}  // namespace

TEST_CASE("fsync: a power cut keeps what it acknowledged and nothing else")
{
    for (const VolumeShape& shape : kFsyncShapes)
        for (const Scenario& scenario : kScenarios) {
            CAPTURE(shape.member_count);
            CAPTURE(scenario.name);
            Prng prng(seed());
            SimVolume volume(shape);
            start(volume, prng);
            ManyFiles files(volume.fs(), prng);
            scenario.change(files);
            fsync_by_record(volume.fs());
            const std::string tree = tree_text(volume.fs());
            files.write(files.make("lost"), 0, 5000);
            files.resize(files.find("second"), 1);
            expect_replay_after_power_cut(volume, prng, tree, 1);
        }
}

TEST_CASE("fsync: members lost with the power take nothing with them")
{
    for (const VolumeShape& shape : kFsyncShapes)
        for (uint32_t first = 0; first < shape.member_count; ++first) {
            std::vector<uint32_t> absent;
            for (uint32_t lost = 0; lost < find_profile(shape.data_profile)->tolerance; ++lost)
                absent.push_back((first + 2 * lost) % shape.member_count);
            CAPTURE(shape.member_count);
            CAPTURE(first);
            Prng prng(seed() + first);
            SimVolume volume(shape);
            start(volume, prng);
            ManyFiles files(volume.fs(), prng);
            for (const Scenario& scenario : {kScenarios[1], kScenarios[3], kScenarios[13], kScenarios[19]}) {
                scenario.change(files);
                fsync_by_record(volume.fs());
            }
            expect_replay_after_power_cut(volume, prng, tree_text(volume.fs()), 4, absent);
        }
}

TEST_CASE("fsync: scenarios one after another, with commits and crashes between")
{
    for (uint64_t round = 0; round < 12; ++round) {
        CAPTURE(round);
        Prng prng(seed() + round);
        SimVolume volume(kFsyncShapes[round % std::size(kFsyncShapes)]);
        start(volume, prng);
        std::set<size_t> done;
        while (done.size() < 8) {
            const size_t choice = prng.below(std::size(kScenarios));
            // These take away what others need.
            const std::string name = kScenarios[choice].name;
            if (name.find("rename") == 0 || name.find("unlink") == 0 || name == "hard links" ||
                name == "rmdir" || !done.insert(choice).second)
                continue;
            ManyFiles files(volume.fs(), prng);
            kScenarios[choice].change(files);
            REQUIRE(volume.fs().committer.fsync(kRoot, What::kAll).ok());
            if (prng.chance(1, 3))
                REQUIRE(volume.fs().step(true).ok());
            if (prng.chance(2, 3))
                continue;
            const std::string tree = tree_text(volume.fs());
            files.write(files.find("old"), 0, 100);
            expect_after_power_cut(volume, prng, tree);
        }
        REQUIRE(volume.unmount().ok());
        check(volume);
    }
}

TEST_CASE("fsync: a crash inside the mount that replays repeats the replay")
{
    Prng prng(seed());
    SimVolume volume(kFsyncShapes[1]);
    start(volume, prng);
    ManyFiles files(volume.fs(), prng);
    kScenarios[1].change(files);
    fsync_by_record(volume.fs());
    kScenarios[5].change(files);
    fsync_by_record(volume.fs());
    const std::string tree = tree_text(volume.fs());
    volume.power_cut(prng);
    // Power fails after every number of writes and flushes that a mount can make.
    uint64_t crashes = 0;
    MountOptions read_only = manual_options();
    read_only.read_only = true;
    while (true) {
        CAPTURE(crashes);
        std::string why;
        volume.power().arm(crashes + 1);
        const bool mounted = volume.mount(manual_options(), why).ok();
        if (volume.power().on()) {
            volume.power().turn_on();
            REQUIRE_MESSAGE(mounted, why);
            break;
        }
        ++crashes;
        volume.kill();
        volume.power_cut(prng);
        volume.power().turn_on();
        expect_mounted(volume, tree, read_only);
        volume.kill();
    }
    CHECK(crashes > 20);
    CHECK(tree_text(volume.fs()) == tree);
    expect_replay_after_power_cut(volume, prng, tree, 0);
}

TEST_CASE("fsync: what a record cannot carry becomes a commit")
{
    Prng prng(seed());
    SimVolume volume(kFsyncShapes[0]);
    start(volume, prng);
    ManyFiles files(volume.fs(), prng);
    files.write(files.make("large"), 0, 3 * kMiB);
    REQUIRE(volume.fs().committer.fsync(kRoot, What::kAll).ok());
    CHECK(volume.fs().info().fsync_records == 0);
    CHECK(volume.fs().info().fsync_commits == 2);
    files.write(files.find("large"), 5, 10000);
    REQUIRE(volume.fs().step(false).ok());  // data goes to members
    REQUIRE(volume.fs().committer.fsync(kRoot, What::kAll).ok());
    CHECK(volume.fs().info().fsync_records == 0);
    CHECK(volume.fs().info().fsync_commits == 3);
    files.write(files.find("large"), 50, 10000);
    fsync_by_record(volume.fs());
    expect_replay_after_power_cut(volume, prng, tree_text(volume.fs()), 1);
}

TEST_CASE("fsync: after more pieces of files than are told apart all of it is committed")
{
    Prng prng(seed());
    SimVolume volume(kFsyncShapes[0]);
    start(volume, prng);
    ManyFiles files(volume.fs(), prng);
    const InodeNumber pieces = files.make("pieces");
    for (int64_t i = 0; i < ChangeTracker::kRangesMax + 10; ++i)
        files.write(pieces, static_cast<uint64_t>(2 * i) * kBlockBytes, 10);
    files.resize(pieces, 0);  // so that a record would have room
    files.write(files.make("late"), 0, 5000);
    const VolumeInfo before = volume.fs().info();
    REQUIRE(volume.fs().committer.fsync(kRoot, What::kAll).ok());
    CHECK(volume.fs().info().fsync_records == before.fsync_records);
    CHECK(volume.fs().info().fsync_commits == before.fsync_commits + 1);
    const std::string tree = tree_text(volume.fs());
    expect_after_power_cut(volume, prng, tree);
    REQUIRE(volume.fs().step(true).ok());
    // Fewer go by a record again.
    ManyFiles after(volume.fs(), prng);
    after.write(after.find("late"), 5000, 10);
    fsync_by_record(volume.fs());
    expect_replay_after_power_cut(volume, prng, tree_text(volume.fs()), 1);
}

TEST_CASE("fsync: nothing to do is nothing done")
{
    Prng prng(seed());
    SimVolume volume(kFsyncShapes[0]);
    start(volume, prng);
    ManyFiles files(volume.fs(), prng);
    const auto writes = [&] {
        const VolumeInfo info = volume.fs().info();
        return info.fsync_records + info.commits;
    };
    const InodeNumber old = files.find("old");
    const uint64_t before = writes();
    REQUIRE(volume.fs().committer.fsync(old, What::kAll).ok());
    REQUIRE(volume.fs().committer.fsync(old, What::kData).ok());
    CHECK(writes() == before);
    // Times are for fsync, not for fdatasync.
    SetAttributes touch;
    touch.modified = timespec{1000, 0};
    REQUIRE(volume.fs().names.set_attributes(old, touch, {}).ok());
    REQUIRE(volume.fs().committer.fsync(old, What::kData).ok());
    CHECK(writes() == before);
    REQUIRE(volume.fs().committer.fsync(old, What::kAll).ok());
    CHECK(writes() == before + 1);
    // Data of another file is not for fdatasync of this one; its own is, and so is its size.
    files.write(files.find("second"), 0, 10);
    REQUIRE(volume.fs().committer.fsync(old, What::kData).ok());
    CHECK(writes() == before + 1);
    files.write(old, 0, 10);
    REQUIRE(volume.fs().committer.fsync(old, What::kData).ok());
    CHECK(writes() == before + 2);
    files.resize(old, 7);
    REQUIRE(volume.fs().committer.fsync(old, What::kData).ok());
    CHECK(writes() == before + 3);
    REQUIRE(volume.fs().committer.fsync(old, What::kData).ok());
    CHECK(writes() == before + 3);
}

TEST_CASE("fsync: a full ring becomes a commit, and the log goes on")
{
    Prng prng(seed());
    SimVolume volume(kFsyncShapes[0]);
    start(volume, prng);
    ManyFiles files(volume.fs(), prng);
    const InodeNumber file = files.make("file");
    // Each round is nearly the longest record; the ring of so small a member is 7 MiB.
    for (int round = 0; round < 60; ++round) {
        files.write(file, 0, 900 * 1024);
        REQUIRE(volume.fs().committer.fsync(file, What::kAll).ok());
    }
    const VolumeInfo info = volume.fs().info();
    CHECK(info.fsync_records > 40);
    CHECK(info.fsync_commits > 3);
    expect_after_power_cut(volume, prng, tree_text(volume.fs()));
    REQUIRE(volume.unmount().ok());
    check(volume);
}

TEST_CASE("fsync: a volume mounted read-only shows the log and leaves it, and may be written to later")
{
    Prng prng(seed());
    SimVolume volume(kFsyncShapes[0]);
    start(volume, prng);
    ManyFiles files(volume.fs(), prng);
    kScenarios[1].change(files);
    fsync_by_record(volume.fs());
    const std::string tree = tree_text(volume.fs());
    MountOptions options = manual_options();
    options.read_only = true;
    expect_after_power_cut(volume, prng, tree, options);
    std::string why;
    REQUIRE_MESSAGE(volume.fs().committer.remount(false, why).ok(), why);
    CHECK(tree_text(volume.fs()) == tree);
    ManyFiles again(volume.fs(), prng);
    again.write(again.find("written"), 3, 50000);
    fsync_by_record(volume.fs());
    const std::string later = tree_text(volume.fs());
    REQUIRE(volume.fs().committer.remount(true, why).ok());
    REQUIRE(volume.fs().committer.remount(false, why).ok());
    again.write(again.find("written"), 3, 50000);
    REQUIRE(volume.fs().committer.fsync(kRoot, What::kAll).ok());
    again.write(again.find("written"), 3, 50000);
    fsync_by_record(volume.fs());
    const std::string last = tree_text(volume.fs());
    CHECK(last != later);
    expect_replay_after_power_cut(volume, prng, last, 1);
}

namespace {

// Appends records that nobody has written to the log of a volume that is not mounted.
void forge(SimVolume& volume, std::initializer_list<std::vector<std::byte>> records)
{
    std::string why;
    Result<Assembly> assembly = assemble(volume.borrow({}), why);
    REQUIRE(assembly.ok());
    Result<std::unique_ptr<Volume>> opened = Volume::open(assembly.take(), manual_options(), why);
    REQUIRE(opened.ok());
    const Superblock& superblock = (*opened)->superblock();
    REQUIRE((*opened)->fsync_log_live());
    const Generation committed{superblock.tree_commits};
    FsyncScan scan((*opened)->members(), superblock, committed);
    REQUIRE(scan.batches().empty());
    FsyncLog log((*opened)->members(), superblock, 1, scan.next_sequence(), committed);
    for (const std::vector<std::byte>& record : records)
        REQUIRE(log.append(record, committed.next(), superblock.log_epoch).ok());
}

// Where the log of a volume that is not mounted has the batch.
std::vector<FsyncScan::Batch::Copy> copies_of(SimVolume& volume, size_t batch)
{
    std::string why;
    Result<Assembly> assembly = assemble(volume.borrow({}), why);
    REQUIRE(assembly.ok());
    MountOptions options = manual_options();
    options.read_only = true;
    Result<std::unique_ptr<Volume>> opened = Volume::open(assembly.take(), options, why);
    REQUIRE(opened.ok());
    const Superblock& superblock = (*opened)->superblock();
    FsyncScan scan((*opened)->members(), superblock, {superblock.tree_commits});
    REQUIRE(scan.batches().size() > batch);
    return scan.batches()[batch].copies;
}

struct Forgery {
    const char* name;
    void (*fill)(FsyncRecordEncoder&, InodeNumber file, InodeNumber directory);
};

ItemTable::Change put_extent(InodeNumber inode, const FileExtent& extent)
{
    return {extent_key(inode, extent.file_block), false, encode_extent(extent)};
}

const std::vector<std::byte> kOneBlock(kBlockBytes, std::byte{7});

const Forgery kForgeries[] = {
    {"an extent of somebody else's block",
     [](FsyncRecordEncoder& encoder, InodeNumber file, InodeNumber) {
         CHECK(encoder.add_item(put_extent(file, {0, 1, ExtentKind::kData, {kBlockBytes * 5000}, {2}})));
     }},
    {"a reservation over data",
     [](FsyncRecordEncoder& encoder, InodeNumber file, InodeNumber) {
         CHECK(encoder.add_item(put_extent(file, {1, 1, ExtentKind::kReserved, {}, {}})));
     }},
    {"data of a directory",
     [](FsyncRecordEncoder& encoder, InodeNumber, InodeNumber directory) {
         CHECK(encoder.add_blocks({directory, 0, 1, kOneBlock.data()}));
     }},
    {"data of no inode",
     [](FsyncRecordEncoder& encoder, InodeNumber file, InodeNumber) {
         CHECK(encoder.add_item({inode_key(file), true, {}}));
         CHECK(encoder.add_blocks({file, 0, 1, kOneBlock.data()}));
     }},
    {"data behind the end",
     [](FsyncRecordEncoder& encoder, InodeNumber file, InodeNumber) {
         CHECK(encoder.add_blocks({file, 1000, 1, kOneBlock.data()}));
     }},
};

}  // namespace

TEST_CASE("fsync: a log that contradicts the trees is refused, and can be left out")
{
    for (const Forgery& forgery : kForgeries) {
        CAPTURE(forgery.name);
        Prng prng(seed());
        SimVolume volume(kFsyncShapes[0]);
        start(volume, prng);
        ManyFiles files(volume.fs(), prng);
        const std::string tree = tree_text(volume.fs());
        FsyncRecordEncoder encoder;
        forgery.fill(encoder, files.find("old"), files.find("dir"));
        volume.power_cut(prng);
        forge(volume, {encoder.finish({.next_inode = 400, .inode_count = 6, .reserved_blocks = 256})});
        std::string why;
        CHECK_FALSE(volume.mount(manual_options(), why).ok());
        CHECK(why.find("contradicts") != std::string::npos);
        MountOptions options = manual_options();
        options.read_only = true;
        CHECK_FALSE(volume.mount(options, why).ok());
        options.rescue = true;
        expect_mounted(volume, tree, options);
        // Writing would give up what the log holds.
        CHECK_FALSE(volume.fs().committer.remount(false, why).ok());
        volume.kill();
        CHECK_FALSE(volume.mount(manual_options(), why).ok());
    }
}

// The number would be given again, with what the first record says of it.
TEST_CASE("fsync: a log whose next inode number falls from one record to the next is refused")
{
    for (const uint64_t first : {uint64_t{2000}, uint64_t{400}}) {
        CAPTURE(first);
        Prng prng(seed());
        SimVolume volume(kFsyncShapes[0]);
        start(volume, prng);
        ManyFiles files(volume.fs(), prng);
        InodeAttributes attributes;
        attributes.mode = S_IFREG | 0666;
        attributes.link_count = 1;
        FsyncRecordEncoder one, other;
        CHECK(one.add_item({inode_key({399}), false, encode_inode(attributes)}));
        volume.power_cut(prng);
        forge(volume, {one.finish({.next_inode = first, .inode_count = 7, .reserved_blocks = 256}),
                       other.finish({.next_inode = 400, .inode_count = 7, .reserved_blocks = 256})});
        std::string why;
        const bool mounted = volume.mount(manual_options(), why).ok();
        CHECK(mounted == (first == 400));
        CHECK((mounted || why.find("contradicts") != std::string::npos));
    }
}

TEST_CASE("fsync: a record that does not decode is refused, and can be left out")
{
    Prng prng(seed());
    SimVolume volume(kFsyncShapes[0]);
    start(volume, prng);
    const std::string tree = tree_text(volume.fs());
    volume.power_cut(prng);
    forge(volume, {std::vector<std::byte>(500, std::byte{3})});
    std::string why;
    CHECK(volume.mount(manual_options(), why).err() == Err::kCorrupt);
    MountOptions options = manual_options();
    options.drop_fsync_log = true;
    expect_mounted(volume, tree, options);
    REQUIRE(volume.unmount().ok());
    expect_mounted(volume, tree, manual_options());
}

// Of a record in the middle all copies rot, or all but one, whose member is away.
TEST_CASE("fsync: what it acknowledged and no member has is refused, and can be left out")
{
    constexpr size_t kLost = 2;
    for (const VolumeShape& shape : kFsyncShapes)
        for (const bool absent : {false, true}) {
            CAPTURE(find_profile(shape.data_profile)->name);
            CAPTURE(absent);
            Prng prng(seed());
            SimVolume volume(shape);
            start(volume, prng);
            ManyFiles files(volume.fs(), prng);
            std::vector<std::string> trees;  // by records before
            for (const char* const name : {"a", "b", "c", "d", "e"}) {
                trees.push_back(tree_text(volume.fs()));
                files.write(files.make(name), 0, 5000);
                fsync_by_record(volume.fs());
            }
            const std::string last = tree_text(volume.fs());
            volume.power_cut(prng);
            const std::vector<FsyncScan::Batch::Copy> copies = copies_of(volume, kLost);
            for (size_t copy = absent ? 1 : 0; copy < copies.size(); ++copy)
                volume.member(copies[copy].member.value - 1)
                    .poke(copies[copy].offset.value, std::vector<std::byte>(kBlockBytes, std::byte{7}));
            const std::vector<uint32_t> away(absent ? 1 : 0, copies[0].member.value - 1);
            MountOptions options = absent ? degraded_options() : manual_options();
            std::string why;
            CHECK(volume.mount(options, why, away).err() == Err::kCorrupt);
            CHECK(why.find("something that fsync acknowledged") != std::string::npos);
            CHECK((why.find("with the members that are missing") != std::string::npos) == absent);
            options.read_only = true;
            CHECK_FALSE(volume.mount(options, why, away).ok());
            options.rescue = true;
            expect_mounted(volume, trees[kLost], options, away);
            volume.kill();
            if (absent) {
                expect_mounted(volume, last, manual_options());
                continue;
            }
            options = manual_options();
            options.drop_fsync_log = true;
            expect_mounted(volume, trees[kLost], options);
            REQUIRE(volume.unmount().ok());
            expect_mounted(volume, trees[kLost], manual_options());
            REQUIRE(volume.unmount().ok());
            check(volume);
        }
}

TEST_CASE("fsync: a full volume that comes back without a member has what was acknowledged")
{
    for (uint32_t absent = 0; absent < 5; ++absent) {
        CAPTURE(absent);
        Prng prng(seed() + absent);
        SimVolume volume(kFsyncShapes[absent % std::size(kFsyncShapes)]);
        start(volume, prng);
        ManyFiles files(volume.fs(), prng);
        const InodeNumber file = files.make("filler");
        std::vector<std::byte> content(900 * 1024);
        uint64_t written = 0;
        while (volume.fs().files.write(file, written, content, {}, {}).ok()) {
            written += content.size();
            if (written > 10 * kMiB)
                REQUIRE(volume.fs().step(true).ok());
        }
        REQUIRE(volume.fs().step(true).ok());
        // Room for a few records more.
        files.resize(file, written - 8 * content.size());
        REQUIRE(volume.fs().step(true).ok());
        REQUIRE(volume.fs().step(true).ok());
        const InodeNumber last = files.make("last");
        REQUIRE(volume.fs().committer.fsync(kRoot, What::kAll).ok());
        for (uint64_t at = 0; at < 6; ++at) {
            prng.fill(content.data(), content.size());
            if (volume.fs().files.write(last, at * content.size(), content, {}, {}).ok())
                REQUIRE(volume.fs().committer.fsync(last, What::kAll).ok());
        }
        const std::string tree = tree_text(volume.fs());
        MountOptions options = manual_options();
        options.degraded = true;
        options.dirty_bytes_max = 1 * kMiB;  // less than what comes back
        expect_after_power_cut(volume, prng, tree, options, {absent % volume.member_count()});
        CHECK(volume.fs().info().replayed_records > 5);
        volume.kill();
        expect_mounted(volume, tree, options, {absent % volume.member_count()});
        volume.kill();
        expect_mounted(volume, tree, options);
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("fsync: what was acknowledged outlives any number of mounts that die before their first commit")
{
    Prng prng(seed());
    SimVolume volume(kFsyncShapes[0]);
    start(volume, prng);
    ManyFiles files(volume.fs(), prng);
    kScenarios[1].change(files);
    fsync_by_record(volume.fs());
    const std::string tree = tree_text(volume.fs());
    volume.power_cut(prng);
    MountOptions options = manual_options();
    options.degraded = true;
    std::string why;
    // Each stamps an epoch, of which a superblock holds 64.
    for (int round = 0; round < 200; ++round) {
        volume.power().arm(27);
        CHECK_FALSE(volume.mount(options, why, {0}).ok());
        volume.kill();
        volume.power_cut(prng);
        volume.power().turn_on();
    }
    options.read_only = true;
    expect_mounted(volume, tree, options, {0});
    CHECK(volume.fs().info().replayed_records == 1);
    CHECK(volume.fs().close().ok());
    volume.kill();
    options.read_only = false;
    expect_mounted(volume, tree, options, {0});
    CHECK(volume.fs().info().replayed_records == 1);
    REQUIRE(volume.unmount().ok());
    // The history does not know the member any more that was away.
    expect_mounted(volume, tree, options);
    CHECK(volume.fs().info().degraded);
    REQUIRE(volume.unmount().ok());
}
