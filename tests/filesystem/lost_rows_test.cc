// SPDX-License-Identifier: MIT
// Rows of which too much is lost take no new blocks: these go elsewhere, and where there is no elsewhere a
// replay waits in its log.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "fs/volume/volume.h"
#include "tests/filesystem/check_content.h"
#include "tests/support/capture.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr VolumeShape kShape{4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024};
constexpr uint64_t kChunkBlocks = 16;
constexpr uint64_t kStripeBlocks = 3 * kChunkBlocks;
constexpr size_t kLoggedBytes = 900000;  // more than rounding leaves on a full volume

std::vector<std::byte> pattern(uint64_t number, size_t bytes)
{
    std::vector<std::byte> content(bytes);
    Prng(number).fill(content.data(), bytes);
    return content;
}

bool mount(SimVolume& volume, std::string& why)
{
    return volume.mount(manual_options(), why).ok();
}

// A mounted volume that is full, but for a third of every row and `free_stripes` at the end of the file
// "full".
void make_full(SimVolume& volume, uint64_t free_stripes)
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    REQUIRE_MESSAGE(mount(volume, why), why);
    Filesystem& fs = volume.fs();
    const InodeNumber full = fs.names.make_node(kRoot, "full", S_IFREG | 0644, 0, {})->inode;
    uint64_t stripes = 0;
    while (fs.files
               .write(full, stripes * kStripeBlocks * kBlockBytes,
                      pattern(stripes, kStripeBlocks * kBlockBytes), {}, {})
               .ok())
        if (++stripes % 64 == 0)
            REQUIRE(fs.step(true).ok());
    uint64_t blocks = stripes * kStripeBlocks;
    while (fs.files.write(full, blocks * kBlockBytes, pattern(blocks, kBlockBytes), {}, {}).ok())
        if (++blocks % 16 == 0)
            REQUIRE(fs.step(true).ok());
    REQUIRE(fs.step(true).ok());
    for (uint64_t stripe = 0; stripe < stripes; ++stripe)
        REQUIRE(fs.files
                    .allocate_range(full, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                    stripe * kStripeBlocks * kBlockBytes, kChunkBlocks * kBlockBytes)
                    .ok());
    SetAttributes change;
    change.size_bytes = (stripes - free_stripes) * kStripeBlocks * kBlockBytes;
    if (free_stripes > 0)
        REQUIRE(fs.names.set_attributes(full, change, {}).ok());
    REQUIRE(fs.step(true).ok());
}

// Such a volume with a record of the fsync log that has the file "logged". Power has failed since.
void make_crashed(SimVolume& volume, uint64_t free_stripes)
{
    make_full(volume, free_stripes);
    Filesystem& fs = volume.fs();
    REQUIRE(fs.committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
    REQUIRE(fs.names.make_node(kRoot, "first", S_IFREG | 0644, 0, {}).ok());
    REQUIRE(fs.committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
    const uint64_t records = fs.info().fsync_records;
    const InodeNumber logged = fs.names.make_node(kRoot, "logged", S_IFREG | 0644, 0, {})->inode;
    REQUIRE(fs.files.write(logged, 0, pattern(7777, kLoggedBytes), {}, {}).ok());
    REQUIRE(fs.committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
    REQUIRE(fs.info().fsync_records == records + 1);
    Prng prng(1);
    volume.power_cut(prng);
}

#ifdef COWRAID_MUTANTS
constexpr uint64_t kRowsBlocks = 64 * kStripeBlocks;

// A volume with rows that were written in place after the last commit, beside the file "rows". With a record
// of the fsync log that has the file "logged", where wanted. Power has failed since.
void make_crashed_in_place(SimVolume& volume, bool logged)
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    MountOptions options = manual_options();
    options.join_above = 0;
    REQUIRE_MESSAGE(volume.mount(options, why).ok(), why);
    Filesystem& fs = volume.fs();
    const InodeNumber rows = fs.names.make_node(kRoot, "rows", S_IFREG | 0644, 0, {})->inode;
    REQUIRE(fs.files.write(rows, 0, pattern(1, kRowsBlocks * kBlockBytes), {}, {}).ok());
    REQUIRE(fs.step(true).ok());
    for (uint64_t block = 0; block < kRowsBlocks; block += kStripeBlocks)
        REQUIRE(fs.files
                    .allocate_range(rows, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block * kBlockBytes,
                                    kChunkBlocks * kBlockBytes)
                    .ok());
    REQUIRE(fs.committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
    if (logged) {
        const InodeNumber file = fs.names.make_node(kRoot, "logged", S_IFREG | 0644, 0, {})->inode;
        REQUIRE(fs.files.write(file, 0, pattern(7777, kLoggedBytes), {}, {}).ok());
        REQUIRE(fs.committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
        REQUIRE(fs.info().fsync_records == 1);
    }
    const InodeNumber lost = fs.names.make_node(kRoot, "lost", S_IFREG | 0644, 0, {})->inode;
    REQUIRE(fs.files.write(lost, 0, pattern(2, 200 * kBlockBytes), {}, {}).ok());
    REQUIRE(fs.step(false).ok());
    REQUIRE(fs.info().joined_blocks > 0);
    Prng prng(1);
    volume.power_cut(prng);
}

void require_rows(Filesystem& fs)
{
    const Result<Attributes> found = fs.names.lookup(kRoot, "rows");
    REQUIRE(found.ok());
    std::vector<std::byte> wanted = pattern(1, kRowsBlocks * kBlockBytes);
    for (uint64_t block = 0; block < kRowsBlocks; block += kStripeBlocks)
        std::fill_n(wanted.begin() + block * kBlockBytes, kChunkBlocks * kBlockBytes, std::byte{0});
    std::vector<std::byte> content(wanted.size());
    const Result<size_t> read = fs.files.read(found->inode, 0, content);
    REQUIRE((read.ok() && *read == content.size()));
    CHECK(content == wanted);
    fs.names.forget(found->inode, 1);
}
#endif

// Where the blocks of the file "full" lie.
std::vector<StoredAt> places_of_data(SimVolume& volume)
{
    Image image = Image::copy_of(volume);
    const std::unique_ptr<Volume> opened = image.open_volume();
    std::vector<StoredAt> places;
    for (const StoredItem& item : file_tree_items(image)) {
        if (item.key.type != static_cast<uint8_t>(ItemType::kExtent))
            continue;
        const Result<FileExtent> extent = decode_extent(item.key.offset / kBlockBytes, item.payload);
        REQUIRE(extent.ok());
        for (uint64_t block = 0; extent->kind == ExtentKind::kData && block < extent->block_count; ++block)
            places.push_back(image.locate(*opened, extent->address + block * kBlockBytes));
    }
    return places;
}

// Swaps the blocks' content for its complement; twice is as before.
void flip(SimVolume& volume, std::span<const StoredAt> places)
{
    std::vector<std::byte> block(kBlockBytes);
    for (const StoredAt& place : places) {
        volume.member(place.member).peek(place.offset, block);
        for (std::byte& byte : block)
            byte = ~byte;
        volume.member(place.member).poke(place.offset, block);
    }
}

void require_logged(Filesystem& fs)
{
    const Result<Attributes> found = fs.names.lookup(kRoot, "logged");
    REQUIRE(found.ok());
    std::vector<std::byte> content(kLoggedBytes);
    const Result<size_t> read = fs.files.read(found->inode, 0, content);
    REQUIRE((read.ok() && *read == kLoggedBytes));
    CHECK(content == pattern(7777, kLoggedBytes));
    fs.names.forget(found->inode, 1);
}

}  // namespace

TEST_CASE("blocks whose rows are lost go into free rows")
{
    SimVolume volume(kShape);
    make_crashed(volume, 8);
    const std::vector<StoredAt> data = places_of_data(volume);
    REQUIRE(data.size() > 10000);
    flip(volume, data);
    std::string why;
    REQUIRE_MESSAGE(mount(volume, why), why);
    CHECK(!volume.fs().info().read_only);
    CHECK(volume.fs().info().replayed_records > 0);
    require_logged(volume.fs());
    REQUIRE(volume.unmount().ok());
    REQUIRE_MESSAGE(mount(volume, why), why);
    CHECK(volume.fs().info().replayed_records == 0);
    require_logged(volume.fs());
    REQUIRE(volume.unmount().ok());
}

TEST_CASE("a replay that finds no place is shown read-only, and done by a later mount")
{
    SimVolume volume(kShape);
    make_crashed(volume, 0);
    const std::vector<StoredAt> data = places_of_data(volume);
    REQUIRE(data.size() > 10000);
    flip(volume, data);
    std::string why;
    for (int round = 0; round < 2; ++round) {
        REQUIRE_MESSAGE(mount(volume, why), why);
        CHECK(volume.fs().info().read_only);
        CHECK(volume.fs().info().read_only_reason == "no room for what the logs hold");
        CHECK(
            volume.fs().info().read_only_step.starts_with("unmount it and mount it with -o drop_fsync_log"));
        CHECK(volume.fs().info().replayed_records > 0);
        require_logged(volume.fs());
        CHECK_FALSE(volume.fs().committer.remount(false, why).ok());
        CHECK_MESSAGE(why.find("-o drop_fsync_log") != std::string::npos, why);
        CHECK(volume.unmount().ok());
    }
    // Whatever was wrong with the members is no more.
    flip(volume, data);
    REQUIRE_MESSAGE(mount(volume, why), why);
    CHECK(!volume.fs().info().read_only);
    require_logged(volume.fs());
    REQUIRE(volume.unmount().ok());
    CheckReport report;
    REQUIRE_MESSAGE(volume.check(report, why).ok(), why);
    REQUIRE_CLEAN(report);
}

TEST_CASE("a replay that finds no place can be left out")
{
    SimVolume volume(kShape);
    make_crashed(volume, 0);
    flip(volume, places_of_data(volume));
    MountOptions options = manual_options();
    options.drop_fsync_log = true;
    std::string why;
    REQUIRE_MESSAGE(volume.mount(options, why).ok(), why);
    CHECK(!volume.fs().info().read_only);
    CHECK(volume.fs().info().replayed_records == 0);
    CHECK(volume.fs().names.lookup(kRoot, "logged").err() == Err::kNotFound);
    REQUIRE(volume.unmount().ok());
    REQUIRE_MESSAGE(mount(volume, why), why);
    CHECK(!volume.fs().info().read_only);
    REQUIRE(volume.unmount().ok());
}

#ifdef COWRAID_MUTANTS
TEST_CASE("a mount that finds no room to commit recovered rows is read-only, and done by a later mount")
{
    for (const bool logged : {false, true}) {
        CAPTURE(logged);
        SimVolume volume(kShape);
        make_crashed_in_place(volume, logged);
        std::string why;
        for (int round = 0; round < 2; ++round) {
            const MutantScope full(CommitMutant::kNoRoom);
            REQUIRE_MESSAGE(mount(volume, why), why);
            const VolumeInfo info = volume.fs().info();
            CHECK(info.read_only);
            CHECK(info.read_only_reason == "no room for what the logs hold");
            CHECK(info.recovered_rows > 0);
            CHECK(info.replayed_records == (logged ? 1 : 0));
            require_rows(volume.fs());
            if (logged)
                require_logged(volume.fs());
            CHECK(volume.fs().names.make_node(kRoot, "new", S_IFREG | 0644, 0, {}).err() == Err::kReadOnly);
            CHECK(volume.unmount().ok());
        }
        REQUIRE_MESSAGE(mount(volume, why), why);
        CHECK(!volume.fs().info().read_only);
        CHECK(volume.fs().info().recovered_rows > 0);
        require_rows(volume.fs());
        if (logged)
            require_logged(volume.fs());
        REQUIRE(volume.unmount().ok());
        CheckReport report;
        REQUIRE_MESSAGE(volume.check(report, why).ok(), why);
        REQUIRE_CLEAN(report);
    }
}

TEST_CASE("a remount that finds no room to commit recovered rows leaves everything as it was")
{
    for (const bool logged : {false, true}) {
        CAPTURE(logged);
        SimVolume volume(kShape);
        make_crashed_in_place(volume, logged);
        MountOptions reading = manual_options();
        reading.read_only = true;
        std::string why;
        REQUIRE_MESSAGE(volume.mount(reading, why).ok(), why);
        Filesystem& fs = volume.fs();
        const uint64_t rows = fs.info().recovered_rows;
        CHECK(rows > 0);
        {
            const MutantScope full(CommitMutant::kNoRoom);
            REQUIRE(fs.committer.remount(false, why).err() == Err::kNoSpace);
        }
        // A mount commits rows before it has the records.
        CHECK(why.ends_with("; unmount it and mount it for writing, which takes less room") == logged);
        CHECK(fs.info().read_only);
        CHECK(fs.info().recovered_rows == rows);
        require_rows(fs);
        if (!logged) {
            // No superblock says so.
            Captured log;
            const MemberId member{2};
            CHECK(fs.store.volume.members().fail(std::span(&member, 1)));
            CHECK(log.text().find("failed: out of service") != std::string::npos);
            volume.kill();
            continue;
        }
        require_logged(fs);
        REQUIRE(volume.unmount().ok());
        REQUIRE_MESSAGE(mount(volume, why), why);
        CHECK(!volume.fs().info().read_only);
        require_rows(volume.fs());
        require_logged(volume.fs());
        REQUIRE(volume.unmount().ok());
        CheckReport report;
        REQUIRE_MESSAGE(volume.check(report, why).ok(), why);
        REQUIRE_CLEAN(report);
    }
}
#endif

TEST_CASE("blocks that find no place because rows are lost: whoever waits is told of a fault")
{
    SimVolume volume(kShape);
    make_full(volume, 0);
    REQUIRE(volume.unmount().ok());
    std::string why;
    MountOptions options;
    options.commit_seconds = 300;
    options.clean = false;
    REQUIRE_MESSAGE(volume.mount(options, why).ok(), why);
    Filesystem& fs = volume.fs();
    const InodeNumber late = fs.names.make_node(kRoot, "late", S_IFREG | 0644, 0, {})->inode;
    REQUIRE(fs.files.write(late, 0, pattern(1, kLoggedBytes), {}, {}).ok());
    // As a fault of too many members would have it.
    const std::vector<StoredAt> data = places_of_data(volume);
    REQUIRE(data.size() > 10000);
    flip(volume, data);
    CHECK(fs.committer.sync() == Status(Err::kShutdown));
    CHECK(fs.info().read_only_reason == "a commit failed");
    CHECK(fs.committer.fsync(late, Committer::SyncWhat::kAll) == Status(Err::kShutdown));
    CHECK(fs.files.write(late, 0, pattern(1, kBlockBytes), {}, {}).err() == Err::kShutdown);
    volume.kill();
}
