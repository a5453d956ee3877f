// SPDX-License-Identifier: MIT
// The room of extended attributes that were removed: it is in nodes, and must become room for data. The room
// of a file whose removal met an error that went away.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "fs/names/removal.h"
#include "tests/filesystem/check_content.h"
#include "tests/filesystem/lost_nodes_steps.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr VolumeShape kFourOfRaid5{4, 128 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes};
constexpr uint64_t kAttributeBytes = 120 * kMiB;  // most slots become metadata
constexpr uint64_t kNsPerSecond = 1000000000;

// Of groups for nodes.
uint64_t node_bytes(Filesystem& fs)
{
    uint64_t bytes = 0;
    for (const SpaceInfo& space : fs.info().spaces)
        bytes += (space.content & kGroupMetadata) != 0 ? space.total_bytes : 0;
    return bytes;
}

// A volume full of attributes, all of one file, and of data.
class FullVolume {
public:
    explicit FullVolume(const MountOptions& options) : volume(kFourOfRaid5)
    {
        std::string why;
        REQUIRE_MESSAGE(volume.make(why).ok(), why);
        mount(volume, options);
        fresh_blocks = total_blocks();
        const InodeNumber file = make("attributes");
        fill_attributes(file);
        fs().names.forget(file, 1);
        REQUIRE(fs().committer.sync().ok());
        data = make("data");
        while (write_more() == Err::kOk) { }
        REQUIRE(fs().committer.sync().ok());
        REQUIRE(total_blocks() < fresh_blocks / 4);
    }

    Filesystem& fs() { return volume.fs(); }
    uint64_t total_blocks() { return fs().statistics().total_blocks; }
    void remove_attributes() { REQUIRE(fs().names.unlink(kRoot, "attributes").ok()); }
    // A MiB more of data.
    Err write_more()
    {
        std::vector<std::byte> content(kMiB);
        Prng(data_bytes + 1).fill(content.data(), content.size());
        const Result<size_t> written = fs().files.write(data, data_bytes, content, {}, {});
        data_bytes += written.ok() ? content.size() : 0;
        return written.err();
    }
    // Data that is written from now on until there is no room.
    uint64_t write_all()
    {
        const uint64_t before = data_bytes;
        Err err = Err::kOk;
        while (err == Err::kOk)
            err = write_more();
        REQUIRE(err == Err::kNoSpace);
        return data_bytes - before;
    }
    void unmount_and_check()
    {
        std::vector<std::byte> wanted(kMiB), got(kMiB);
        for (uint64_t offset = 0; offset < data_bytes; offset += kMiB) {
            Prng(offset + 1).fill(wanted.data(), wanted.size());
            REQUIRE(fs().files.read(data, offset, got).ok());
            REQUIRE(same(got, wanted));
        }
        REQUIRE(volume.unmount().ok());
        REQUIRE_CLEAN(Image::copy_of(volume).check());
    }

    SimVolume volume;
    uint64_t fresh_blocks = 0;
    InodeNumber data;
    uint64_t data_bytes = 0;

private:
    InodeNumber make(const char* name)
    {
        const Result<Attributes> made = fs().names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        REQUIRE_MESSAGE(made.ok(), err_text(made.err()));
        return made->inode;
    }
    void fill_attributes(InodeNumber file)
    {
        Prng prng(seed());
        for (uint64_t bytes = 0, number = 0; bytes < kAttributeBytes; ++number) {
            const std::vector<std::byte> value(4096 + prng.below(56 * kKiB), std::byte{1});
            const Status put = fs().names.set_xattr(file, "user.x" + std::to_string(number), value, 0);
            REQUIRE_MESSAGE(put.ok(), err_text(put.err()));
            bytes += value.size();
        }
    }
};

// An unlinked file whose removal cannot read a leaf of extents.
class UnreadableExtents {
public:
    explicit UnreadableExtents(const MountOptions& options) : volume(kTwoCopies)
    {
        make_and_mount(volume);
        REQUIRE(fs().step(true).ok());
        before = fs().statistics();
        const Result<Attributes> made = fs().names.make_node(kRoot, "file", S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        for (uint64_t extent = 0; extent < kExtents; ++extent)
            REQUIRE(fs().files.allocate_range(made->inode, 0, 2 * extent * kBlockBytes, kBlockBytes).ok());
        fs().names.forget(made->inode, 1);
        REQUIRE(fs().step(true).ok());
        const std::vector<BlockRef> leaves = nodes_of(fs(), TreeIndex::kFiles, Level::kLeaf);
        REQUIRE(leaves.size() > 8);
        copies = copies_of(fs(), volume, leaves[leaves.size() / 2]);
        REQUIRE(copies.size() == 2);
        REQUIRE(volume.unmount().ok());
        mount(volume, options);  // with no leaf in memory
        fail_reads();
        REQUIRE(fs().names.unlink(kRoot, "file").ok());
    }

    Filesystem& fs() { return volume.fs(); }
    void fail_reads()
    {
        for (const NodeCopy& copy : copies)
            volume.cable(copy.member)
                .add_rule({.kinds = kFaultReads, .begin = copy.offset, .end = copy.offset + kBlockBytes});
    }
    void end_faults()
    {
        for (const NodeCopy& copy : copies)
            volume.cable(copy.member).remove_all_rules();
    }
    uint64_t failed_reads()
    {
        return volume.cable(copies[0].member).hits(FaultAction::kError) +
               volume.cable(copies[1].member).hits(FaultAction::kError);
    }
    // Until the removal has failed once more and the thread has nothing to do; how many reads have failed.
    uint64_t wait_for_failure(uint64_t failed_before)
    {
        for (int look = 0; look < 6000 && failed_reads() == failed_before; ++look)
            usleep(10'000);
        usleep(300'000);
        const uint64_t failed = failed_reads();
        CHECK(failed > failed_before);
        return failed;
    }
    uint64_t orphans()
    {
        const auto type = static_cast<uint8_t>(ItemType::kOrphan);
        ItemScan scan(fs().store.items, fs().store.items.view(), {0, type, 0}, {0, type, UINT64_MAX});
        uint64_t count = 0;
        while (scan.next().ok())
            ++count;
        return count;
    }
    void require_removed()
    {
        CHECK(orphans() == 0);
        CHECK(fs().statistics().inode_count == before.inode_count);
        CHECK(fs().statistics().free_blocks == before.free_blocks);
        CHECK(fs().statistics().available_blocks == before.available_blocks);
        REQUIRE(volume.unmount().ok());
        REQUIRE_CLEAN(Image::copy_of(volume).check());
    }

    SimVolume volume;
    VolumeStatistics before;
    std::vector<NodeCopy> copies;

private:
    static constexpr uint64_t kExtents = 6000;
};

// The clock makes no commit.
MountOptions options_without_clock()
{
    MountOptions options;
    options.commit_seconds = 300;
    return options;
}

}  // namespace

TEST_CASE("removed room: who writes right after attributes were removed gets their room")
{
    MountOptions options = options_without_clock();
    for (const bool threads : {false, true}) {
        CAPTURE(threads);
        options.manual_commit = !threads;
        FullVolume full(options);
        REQUIRE(full.write_more() == Err::kNoSpace);
        full.remove_attributes();
        REQUIRE(full.fs().committer.sync().ok());
        const uint64_t written = full.write_all();
        MESSAGE((written / kMiB), " MiB");
        CHECK(written >= kFourOfRaid5.member_bytes);
        full.unmount_and_check();
    }
}

TEST_CASE("removed room: groups of nodes that are empty leave together")
{
    FullVolume full(manual_options());
    full.remove_attributes();
    for (int commits = 0; commits < 3; ++commits)
        REQUIRE(full.fs().step(true).ok());
    MESSAGE((full.total_blocks() / 256), " of ", (full.fresh_blocks / 256), " MiB");
    CHECK(full.total_blocks() >= full.fresh_blocks / 4 * 3);
    full.unmount_and_check();
}

TEST_CASE("removed room: it is reported soon, whoever waits for a commit")
{
    FullVolume full(options_without_clock());
    full.remove_attributes();
    const uint64_t begin = monotonic_ns();
    while (full.total_blocks() < full.fresh_blocks / 2 && monotonic_ns() - begin < 30 * kNsPerSecond)
        usleep(10000);
    MESSAGE((full.total_blocks() / 256), " of ", (full.fresh_blocks / 256), " MiB after ",
            ((monotonic_ns() - begin) / 1000000), " ms");
    CHECK(full.total_blocks() >= full.fresh_blocks / 2);
    full.unmount_and_check();
}

TEST_CASE("removed room: groups that data could not have stay with the nodes")
{
    SimVolume volume({8, 256 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kDefaultChunkBytes});
    make_and_mount(volume);
    const Result<Attributes> file = volume.fs().names.make_node(kRoot, "attributes", S_IFREG | 0644, 0, {});
    REQUIRE(file.ok());
    const std::vector<std::byte> value(56 * kKiB, std::byte{1});
    for (int number = 0; number < 700; ++number)
        REQUIRE(volume.fs().names.set_xattr(file->inode, "user.x" + std::to_string(number), value, 0).ok());
    REQUIRE(volume.fs().step(true).ok());
    const uint64_t full = node_bytes(volume.fs());
    REQUIRE(volume.fs().names.unlink(kRoot, "attributes").ok());
    volume.fs().names.forget(file->inode, 1);
    for (int change = 0; change < 6; ++change) {
        REQUIRE(volume.fs().names.make_node(kRoot, "f" + std::to_string(change), S_IFREG | 0644, 0, {}).ok());
        REQUIRE(volume.fs().step(true).ok());
    }
    MESSAGE((full / kMiB), " MiB, then ", (node_bytes(volume.fs()) / kMiB));
    CHECK(node_bytes(volume.fs()) == full);
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("removed room: a removal that met an unreadable node goes on when it can be read")
{
    UnreadableExtents file(manual_options());
    for (int tries = 0; tries < 4; ++tries) {
        const uint64_t failed = file.failed_reads(), commits = file.fs().committer.commit_count;
        CHECK_FALSE(file.fs().step(true).ok());
        CHECK(file.failed_reads() > failed);
        CHECK((tries < 3 || file.fs().committer.commit_count == commits));  // nothing is left to be changed
        CHECK(file.orphans() == 1);
    }
    file.end_faults();
    for (int commits = 0; commits < 2; ++commits)
        REQUIRE(file.fs().step(true).ok());
    file.require_removed();
}

TEST_CASE("removed room: a removal that failed is tried again after a pause")
{
    MountOptions options;
    options.retry_seconds = 1;
    UnreadableExtents file(options);
    file.wait_for_failure(0);
    file.end_faults();
    for (int look = 0; look < 6000 && file.orphans() > 0; ++look)
        usleep(10'000);
    REQUIRE(file.fs().committer.sync().ok());
    file.require_removed();
}

TEST_CASE("removed room: a removal that failed keeps no thread busy, and is tried again by a mount")
{
    MountOptions options;
    options.retry_seconds = 3600;
    UnreadableExtents file(options);
    file.wait_for_failure(0);
    usleep(300'000);  // of all copies
    std::string why;
    REQUIRE(file.fs().committer.sync().ok());  // looks at neighbours of nodes that shrank
    uint64_t failed = file.failed_reads();
    usleep(300'000);
    CHECK(file.failed_reads() == failed);
    REQUIRE(file.fs().committer.remount(true, why).ok());
    CHECK(file.failed_reads() == failed);
    REQUIRE(file.fs().committer.remount(false, why).ok());
    failed = file.wait_for_failure(failed);
    REQUIRE(file.volume.unmount().ok());
    mount(file.volume, options);
    file.wait_for_failure(failed);
    CHECK(file.orphans() == 1);
    file.end_faults();
    usleep(300'000);
    REQUIRE(file.fs().names.removals.retry().ok());
    REQUIRE(finish_removals(file.fs().names).ok());
    CHECK(file.orphans() == 0);
    REQUIRE(file.fs().committer.sync().ok());
    file.require_removed();
}
