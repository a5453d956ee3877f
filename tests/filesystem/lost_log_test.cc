// SPDX-License-Identifier: MIT
// What the fsync log holds cannot be applied, or not be committed, since a tree node is lost: a mount for
// writing is refused, names what helps, and is had without the log.
#include <fcntl.h>

#include "tests/filesystem/check_content.h"
#include "tests/filesystem/lost_nodes_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kBlocks = 4000;  // of the file, every other one with content

std::vector<std::byte> block_content(uint64_t number)
{
    Prng prng(number);
    return random_content(prng, kBlockBytes);
}

// Whether the block of the file has that content.
bool has_block(Filesystem& fs, InodeNumber file, uint64_t block, const std::vector<std::byte>& wanted)
{
    std::vector<std::byte> content(kBlockBytes);
    const Result<size_t> read = fs.files.read(file, block * kBlockBytes, content);
    return read.ok() && *read == kBlockBytes && content == wanted;
}

// A volume whose power has failed, with a file of which the log has a change below a leaf that is lost.
struct LostBelow {
    explicit LostBelow(bool with_extents, bool with_rows = false) : volume(kTwoCopies)
    {
        MountOptions options = manual_options();
        options.join_above = 0;
        make_and_mount(volume, options);
        Filesystem& fs = volume.fs();
        if (with_rows)
            make_rows(fs);
        REQUIRE(fs.names.make_node(kRoot, "fragments", S_IFREG | 0644, 0, {}).ok());
        file = fs.names.lookup(kRoot, "fragments")->inode;
        for (uint64_t block = 0; block < kBlocks; block += 2)
            REQUIRE(fs.files.write(file, block * kBlockBytes, block_content(block), {}, {}).ok());
        REQUIRE(fs.step(true).ok());
        // From the second on it is records that fsync writes.
        REQUIRE(fs.committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
        REQUIRE(fs.names.make_node(kRoot, "first", S_IFREG | 0644, 0, {}).ok());
        REQUIRE(fs.committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
        REQUIRE(fs.step(true).ok());
        find_leaf(fs);
        const uint64_t records = fs.info().fsync_records;
        REQUIRE(fs.files.write(file, inside * kBlockBytes, block_content(9999), {}, {}).ok());
        if (with_extents)
            REQUIRE(fs.files
                        .allocate_range(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                        (inside + 2) * kBlockBytes, kBlockBytes)
                        .ok());
        REQUIRE(fs.committer.fsync(file, Committer::SyncWhat::kAll).ok());
        REQUIRE(fs.info().fsync_records == records + 1);
        if (with_rows) {
            make_file(fs, "joining", random_content(prng, 200 * kBlockBytes));
            REQUIRE(fs.step(false).ok());
            REQUIRE(fs.info().joined_blocks > 0);
        }
        volume.power_cut(prng);
    }

    // Rows with room, into which a flush writes in place.
    void make_rows(Filesystem& fs)
    {
        constexpr uint64_t kStripe = 3 * 64 * kKiB, kStripes = 64;
        const InodeNumber rows = make_file(fs, "rows", random_content(prng, kStripes * kStripe));
        REQUIRE(fs.step(true).ok());
        for (uint64_t stripe = 0; stripe < kStripes; ++stripe)
            REQUIRE(fs.files
                        .allocate_range(rows, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, stripe * kStripe,
                                        64 * kKiB)
                        .ok());
    }

    // One with nothing but extents of the file, and a block in the middle of it.
    void find_leaf(Filesystem& fs)
    {
        const std::vector<BlockRef> leaves = nodes_of(fs, TreeIndex::kFiles, Level::kLeaf);
        REQUIRE(leaves.size() > 4);
        const BlockRef& leaf = leaves[leaves.size() / 2];
        const uint64_t tree_id = fs.store.timeline.view().committed->file_tree.tree_id;
        const Result<Ref<const Node>> node = fs.store.cache.get(leaf, tree_id, -1);
        REQUIRE(node.ok());
        const Key key = (*node)->key((*node)->item_count() / 2);
        REQUIRE((*node)->key(0).object == file.value);
        REQUIRE((*node)->key(0).type == static_cast<uint8_t>(ItemType::kExtent));
        REQUIRE(key.object == file.value);
        inside = key.offset / kBlockBytes;
        copies = copies_of(fs, volume, leaf);
    }

    void lose(size_t from_copy)
    {
        for (size_t copy = from_copy; copy < copies.size(); ++copy)
            rot(volume, prng, copies[copy].member, copies[copy].offset);
    }
    void bring_back()
    {
        for (const NodeCopy& copy : copies)
            volume.member(copy.member).poke(copy.offset, copy.content);
    }

    Prng prng{seed()};
    SimVolume volume;
    InodeNumber file;
    uint64_t inside = 0;
    std::vector<NodeCopy> copies;
};

bool contains(const std::string& text, const char* part)
{
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("lost log: what a lost leaf keeps from a commit is refused, and can be left out")
{
    for (const int which : {0, 1, 2, 3}) {
        CAPTURE(which);
        const bool with_rows = which >= 2;
        LostBelow lost(which % 2 == 1, with_rows);
        SimVolume& volume = lost.volume;
        lost.lose(0);
        std::string why;
        MountOptions options = manual_options();
        // These commit rows.
        for (int round = with_rows ? 2 : 0; round < 2; ++round) {
            CHECK(volume.mount(options, why).err() == Err::kTooManyFaults);
            CHECK_MESSAGE(contains(why, "-o drop_fsync_log"), why);
            CHECK_MESSAGE(!contains(why, "members that are missing"), why);
        }
        options.drop_fsync_log = true;
        options.read_only = true;
        REQUIRE_MESSAGE(volume.mount(options, why).ok(), why);
        CHECK((volume.fs().info().recovered_rows > 0) == with_rows);
        volume.kill();
        options.read_only = false;
        REQUIRE_MESSAGE(volume.mount(options, why).ok(), why);
        Filesystem& fs = volume.fs();
        CHECK_FALSE(fs.info().read_only);
        CHECK(fs.info().replayed_records == 0);
        CHECK(has_block(fs, lost.file, 0, block_content(0)));
        // It can be worked with.
        CHECK(scrub(fs).unreadable_nodes == 1);
        make_file(fs, "later", block_content(5));
        REQUIRE(fs.step(true).ok());
        REQUIRE(volume.unmount().ok());
        lost.bring_back();
        mount(volume, manual_options());
        CHECK(has_block(volume.fs(), lost.file, lost.inside, block_content(lost.inside)));
        CHECK(has_block(volume.fs(), lost.file, lost.inside + 2, block_content(lost.inside + 2)));
        REQUIRE(volume.unmount().ok());
        CheckReport report;
        REQUIRE_MESSAGE(volume.check(report, why).ok(), why);
        REQUIRE_CLEAN(report);
    }
}

TEST_CASE("lost log: with a member that was missing nothing is left out")
{
    for (const bool with_extents : {false, true}) {
        CAPTURE(with_extents);
        LostBelow lost(with_extents);
        SimVolume& volume = lost.volume;
        lost.lose(1);
        std::string why;
        CHECK(volume.mount(degraded_options(), why, {lost.copies[0].member}).err() == Err::kTooManyFaults);
        const size_t members = why.find("mount it with the members that are missing");
        const size_t option = why.find("-o drop_fsync_log");
        CHECK_MESSAGE((members != std::string::npos && option != std::string::npos && members < option), why);
        mount(volume, manual_options());
        CHECK(volume.fs().info().replayed_records == 1);
        CHECK(has_block(volume.fs(), lost.file, lost.inside, block_content(9999)));
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("lost log: it is left out of a volume without a member")
{
    LostBelow lost(false);
    SimVolume& volume = lost.volume;
    lost.lose(1);
    MountOptions options = degraded_options();
    options.drop_fsync_log = true;
    mount(volume, options, {lost.copies[0].member});
    CHECK_FALSE(volume.fs().info().read_only);
    make_file(volume.fs(), "later", block_content(5));
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    CHECK(volume.fs().info().replayed_records == 0);
    CHECK(has_block(volume.fs(), lost.file, lost.inside, block_content(lost.inside)));
    CHECK(volume.fs().names.lookup(kRoot, "later").ok());
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("lost log: a volume that a remount could not commit says what helps")
{
    LostBelow lost(false);
    lost.lose(0);
    SimVolume& volume = lost.volume;
    MountOptions options = manual_options();
    options.read_only = true;
    mount(volume, options);
    CHECK(has_block(volume.fs(), lost.file, 0, block_content(0)));
    std::string why;
    CHECK(volume.fs().committer.remount(false, why).err() == Err::kTooManyFaults);
    CHECK_MESSAGE(contains(why, "-o drop_fsync_log"), why);
    CHECK_MESSAGE(contains(volume.fs().info().read_only_step, "-o drop_fsync_log"),
                  volume.fs().info().read_only_step);
    CHECK_FALSE(volume.fs().committer.remount(false, why).ok());
    CHECK_MESSAGE(contains(why, "-o drop_fsync_log"), why);
    volume.kill();
}

TEST_CASE("lost log: a record between the pieces of a truncation can be replayed")
{
    constexpr uint64_t kRuns = 700;  // three pieces
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
    make_and_mount(volume, manual_options());
    Filesystem& fs = volume.fs();
    const std::vector<std::byte> block(kBlockBytes, std::byte{7});
    const auto make = [&](const char* name, uint64_t runs) {
        const InodeNumber file = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {})->inode;
        for (uint64_t run = 0; run < runs; ++run)
            REQUIRE(fs.files.write(file, 2 * run * kBlockBytes, block, {}, {}).ok());
        return file;
    };
    const InodeNumber first = make("first", kRuns), file = make("file", kRuns);
    REQUIRE(fs.step(true).ok());
    SetAttributes empty;
    empty.size_bytes = 0;
    REQUIRE(fs.names.set_attributes(first, empty, {}).ok());  // the volume has the feature now
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.files.write(file, 10 * kBlockBytes, block, {}, {}).ok());
    const InodeNumber synced = make("synced", 1);
    REQUIRE(fs.committer.fsync(synced, Committer::SyncWhat::kAll).ok());
    const auto change = fs.names.begin_set_attributes(file, empty, {});
    REQUIRE(change.ok());
    while (fs.names.get_attributes(file)->size_bytes != 0)
        REQUIRE(*(*change)->step() == Progress::kMore);
    const uint64_t records = fs.info().fsync_records;
    REQUIRE(fs.files.write(synced, kBlockBytes, block, {}, {}).ok());
    REQUIRE(fs.committer.fsync(synced, Committer::SyncWhat::kAll).ok());
    REQUIRE(fs.info().fsync_records > records);
    Image image = Image::copy_of(volume);
    const std::unique_ptr<Filesystem> again = image.open_core();
    CHECK(again->info().replayed_records > 0);
    CHECK(again->names.lookup(kRoot, "file")->size_bytes == 0);
    CHECK(again->names.lookup(kRoot, "synced")->size_bytes == 2 * kBlockBytes);
    REQUIRE(again->step(true).ok());
    CHECK(again->names.get_attributes(file)->block_count_512 == 0);
    REQUIRE(again->close().ok());
    REQUIRE_CLEAN(image.check());
}
