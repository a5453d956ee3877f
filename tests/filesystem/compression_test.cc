// SPDX-License-Identifier: MIT
// Compressed files in whole volumes: what is stored, what is cut out of it, what is left after crashes.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>

#include "format/feature_table.h"
#include "format/items.h"
#include "fs/file_extents.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

MountOptions compressing(MountOptions options = manual_options())
{
    options.compression = {.on = true, .level = 1};
    return options;
}

std::vector<std::byte> text_content(Prng& prng, size_t bytes)
{
    std::vector<std::byte> content(bytes);
    fill_text(prng, content);
    return content;
}

std::vector<std::byte> some_content(Prng& prng, size_t bytes)
{
    if (prng.chance(1, 8))
        return std::vector<std::byte>(bytes);
    return prng.chance(1, 4) ? random_content(prng, bytes) : text_content(prng, bytes);
}

uint64_t stored_blocks(Filesystem& fs, const std::string& name)
{
    const Result<Attributes> found = fs.names.lookup(kRoot, name);
    REQUIRE(found.ok());
    fs.names.forget(found->inode, 1);
    return found->block_count_512 / 8;
}

// Of the file's extents those that are kept in nodes; what is in memory is none.
uint64_t inline_extents(Filesystem& fs, InodeNumber file)
{
    const Result<FileExtents> found = list_file_extents(fs, file, 0, 1000);
    REQUIRE(found.ok());
    return static_cast<uint64_t>(
        std::count_if(found->extents.begin(), found->extents.end(),
                      [](const ListedExtent& extent) { return extent.inline_frame; }));
}

uint64_t inline_extents(Filesystem& fs, const std::string& name)
{
    return inline_extents(fs, find_file(fs, name));
}

uint64_t checked_data_blocks(SimVolume& volume)
{
    CheckReport report;
    std::string why;
    const Status checked = volume.check(report, why);
    REQUIRE_MESSAGE(checked.ok(), why);
    REQUIRE_MESSAGE(report.findings.empty(), report.findings.front().text);
    return report.data_blocks;
}

void require_counted(SimVolume& volume, uint64_t file_blocks, uint64_t blocks)
{
    const VolumeInfo info = volume.fs().info();
    REQUIRE(info.compression_counted);
    REQUIRE(info.compressed_file_bytes == file_blocks * kBlockBytes);
    REQUIRE(info.compressed_bytes == blocks * kBlockBytes);
}

// Nothing of them is left, and the volume is clean.
void remove_all(SimVolume& volume, const Contents& contents)
{
    for (const auto& [name, content] : contents)
        REQUIRE(volume.fs().names.unlink(kRoot, name).ok());
    for (int commits = 0; commits < 3; ++commits)
        REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.unmount().ok());
    CHECK(checked_data_blocks(volume) == 0);
}

const VolumeShape kShapes[] = {
    {4, 128 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * 1024},
    {5, 128 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 4 * 1024},
    {1, 128 * kMiB, ProfileId::kSingle, ProfileId::kSingle, 64 * 1024},
    {5, 160 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6, 64 * 1024},
};

// Nothing is dirty: only what fallocate reserved has a place set aside.
void check_reservations(Filesystem& filesystem)
{
    CHECK(filesystem.store.ledger.dirty_blocks() == 0);
    CHECK(filesystem.store.ledger.reserved_data() == static_cast<uint64_t>(filesystem.files.reserved_blocks));
}

}  // namespace

TEST_CASE("compression: text is stored smaller, random bytes as they are, and both come back")
{
    for (const VolumeShape& shape : kShapes) {
        CAPTURE(static_cast<uint32_t>(shape.data_profile));
        Prng prng(seed());
        SimVolume volume(shape);
        make_and_mount(volume, compressing());
        const uint64_t text_blocks = 5 * kMiB / kBlockBytes;
        Contents contents;
        contents["text"] = text_content(prng, 5 * kMiB);
        contents["random"] = random_content(prng, 3 * kMiB + 17);
        contents["small"] = text_content(prng, 700);
        contents["two blocks"] = text_content(prng, 8000);
        contents["odd"] = text_content(prng, 300'001);
        for (const auto& [name, content] : contents)
            write_file(volume.fs(), name, content);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.fs().step(true).ok());
        require_contents(volume.fs(), contents);
        CHECK(stored_blocks(volume.fs(), "text") < text_blocks / 2);
        CHECK(stored_blocks(volume.fs(), "random") == divide_up(contents["random"].size(), kBlockBytes));
        CHECK(stored_blocks(volume.fs(), "small") == 1);
        CHECK(stored_blocks(volume.fs(), "two blocks") == 1);
        REQUIRE(volume.unmount().ok());
        checked_data_blocks(volume);
        // Who does not compress reads it all the same.
        mount(volume, manual_options());
        require_contents(volume.fs(), contents);
        CHECK((volume.fs().volume->superblock().incompat_features & feature_bit("zstd")) != 0);
        remove_all(volume, contents);
    }
}

TEST_CASE("compression: a volume without compressed files stays readable by programs without it")
{
    SimVolume volume(kShapes[0]);
    make_and_mount(volume, compressing());
    Prng prng(seed());
    write_file(volume.fs(), "random", random_content(prng, kMiB));
    REQUIRE(volume.fs().step(true).ok());
    CHECK((volume.fs().volume->superblock().incompat_features & feature_bit("zstd")) == 0);
}

TEST_CASE("compression: what of small files fits is kept in nodes, and takes no blocks")
{
    for (const VolumeShape& shape : kShapes) {
        CAPTURE(static_cast<uint32_t>(shape.data_profile));
        Prng prng(seed());
        SimVolume volume(shape);
        make_and_mount(volume, compressing());
        Contents contents;
        contents["one block"] = text_content(prng, 700);
        contents["whole block"] = text_content(prng, kBlockBytes);
        contents["same words"] = std::vector<std::byte>(size_t{kFrameBlocksMax} * kBlockBytes, std::byte{7});
        for (const auto& [name, content] : contents)
            write_file(volume.fs(), name, content);
        Contents in_blocks;
        in_blocks["random"] = random_content(prng, 3000);
        in_blocks["too large"] = text_content(prng, 20 * kBlockBytes);
        in_blocks["too long"] =
            std::vector<std::byte>(size_t{kFrameBlocksMax + 1} * kBlockBytes, std::byte{7});
        for (const auto& [name, content] : in_blocks)
            write_file(volume.fs(), name, content);
        REQUIRE(volume.fs().step(true).ok());
        check_reservations(volume.fs());
        uint64_t blocks = 0;
        for (const auto& file : contents) {
            CAPTURE(file.first);
            CHECK(inline_extents(volume.fs(), file.first) == 1);
            CHECK(stored_blocks(volume.fs(), file.first) == 1);
        }
        for (const auto& [name, content] : in_blocks) {
            CHECK(inline_extents(volume.fs(), name) == 0);
            blocks += stored_blocks(volume.fs(), name);
        }
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        CHECK(checked_data_blocks(volume) == blocks);
        mount(volume, manual_options());
        CHECK((volume.fs().volume->superblock().incompat_features & feature_bit("inline_frames")) != 0);
        contents.merge(in_blocks);
        require_contents(volume.fs(), contents);
        remove_all(volume, contents);
    }
}

TEST_CASE(
    "compression: what is cut out of an inline frame leaves the rest, also by a replay of the fsync log")
{
    SimVolume volume(kShapes[0]);
    make_and_mount(volume, compressing());
    Prng prng(seed());
    // Few words: 20 blocks of them are below kInlineBytesMax.
    std::vector<std::byte> content(20 * kBlockBytes);
    for (size_t i = 0; i < content.size(); ++i)
        content[i] = static_cast<std::byte>('a' + i / 1000 % 20);
    write_file(volume.fs(), "f", content);
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(inline_extents(volume.fs(), "f") == 1);
    require_counted(volume, 20, 1);
    const InodeNumber file = find_file(volume.fs(), "f");
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const auto clear = [&](uint64_t first, uint64_t count) {
        REQUIRE(volume.fs().files.allocate_range(file, punch, first * kBlockBytes, count * kBlockBytes).ok());
        std::fill_n(content.begin() + static_cast<ptrdiff_t>(first * kBlockBytes), count * kBlockBytes,
                    std::byte{});
    };
    clear(5, 2);
    const auto block = random_content(prng, kBlockBytes);
    REQUIRE(volume.fs().files.write(file, 12 * kBlockBytes, block, {}, {}).ok());
    std::copy(block.begin(), block.end(), content.begin() + 12 * kBlockBytes);
    REQUIRE(volume.fs().step(true).ok());
    require_content(volume.fs(), file, content);
    CHECK(inline_extents(volume.fs(), "f") == 3);
    CHECK(stored_blocks(volume.fs(), "f") == 2);
    require_counted(volume, 17, 1);
    // Two commits begin the log.
    for (int logged = 0; logged < 3; ++logged) {
        clear(14 + static_cast<uint64_t>(logged), 1);
        REQUIRE(volume.fs().committer.fsync(file, Committer::SyncWhat::kAll).ok());
    }
    volume.kill();
    volume.power_cut(prng);
    mount(volume, compressing());
    REQUIRE(volume.fs().info().replayed_records > 0);
    require_content(volume.fs(), find_file(volume.fs(), "f"), content);
    REQUIRE(volume.fs().step(true).ok());
    require_counted(volume, 14, 1);
    REQUIRE(volume.unmount().ok());
    CHECK(checked_data_blocks(volume) == 1);
    mount(volume, compressing());
    SetAttributes shorter;
    shorter.size_bytes = 5;
    REQUIRE(volume.fs().names.set_attributes(find_file(volume.fs(), "f"), shorter, {}).ok());
    content.resize(5);
    REQUIRE(volume.fs().step(true).ok());
    require_content(volume.fs(), find_file(volume.fs(), "f"), content);
    require_counted(volume, 1, 1);
    remove_all(volume, {{"f", {}}});
}

TEST_CASE("compression: small files go into blocks before they take the room for nodes")
{
    SimVolume volume(kShapes[0]);
    make_and_mount(volume, compressing());
    Prng prng(seed());
    const uint64_t fills = volume.fs().info().available_bytes / (8 * kMiB) - 2;
    Contents contents;
    for (uint64_t i = 0; i < fills; ++i) {
        const std::string name = "random" + std::to_string(i);
        contents[name] = random_content(prng, 8 * kMiB);
        write_file(volume.fs(), name, contents[name]);
        REQUIRE(volume.fs().step(true).ok());
    }
    REQUIRE(volume.fs().volume->potential_blocks(kGroupMetadata) == 0);
    uint64_t made = 0, kept = 0;
    const auto make_small = [&] {
        const std::string name = "small" + std::to_string(made++);
        contents[name] = random_content(prng, 1900);
        contents[name].resize(3000);
        write_file(volume.fs(), name, contents[name]);
        return name;
    };
    for (std::string last; kept == made; kept += inline_extents(volume.fs(), last)) {
        REQUIRE(made < 20'000);
        for (int i = 1; i < 50; ++i, ++kept)
            make_small();
        last = make_small();
        REQUIRE(volume.fs().step(true).ok());
    }
    CHECK(made > 50);
    check_reservations(volume.fs());
    // There is room for others, in nodes and in rows.
    for (int i = 0; i < 500; ++i)
        make_small();
    REQUIRE(volume.fs().step(true).ok());
    CHECK(volume.fs().statistics().available_blocks > 0);
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    checked_data_blocks(volume);
    mount(volume, compressing());
    remove_all(volume, contents);
}

TEST_CASE("compression: a replay frees small files with the same content each for itself")
{
    SimVolume volume(kShapes[0]);
    make_and_mount(volume, compressing());
    Prng prng(seed());
    const auto content = text_content(prng, 3000);
    const std::vector<std::string> names = {"a", "b", "c"};
    for (const std::string& name : names)
        write_file(volume.fs(), name, content);
    REQUIRE(volume.fs().step(true).ok());
    require_counted(volume, 3, 3);
    const uint64_t commits = volume.fs().info().commits;
    write_file(volume.fs(), "logged", random_content(prng, kBlockBytes));
    const InodeNumber logged = find_file(volume.fs(), "logged");
    for (const std::string& name : names) {
        REQUIRE(volume.fs().committer.fsync(logged, Committer::SyncWhat::kAll).ok());
        SetAttributes empty;
        empty.size_bytes = 0;
        REQUIRE(volume.fs().names.set_attributes(find_file(volume.fs(), name), empty, {}).ok());
    }
    REQUIRE(volume.fs().committer.fsync(logged, Committer::SyncWhat::kAll).ok());
    REQUIRE(volume.fs().info().commits <= commits + 1);  // with which the log begins
    volume.kill();
    volume.power_cut(prng);
    mount(volume, compressing());
    REQUIRE(volume.fs().info().replayed_records > 0);
    REQUIRE(volume.fs().step(true).ok());
    require_counted(volume, 0, 0);
    REQUIRE(volume.unmount().ok());
    CHECK(checked_data_blocks(volume) == 1);
}

TEST_CASE("compression: a flush begins early, and is a commit beside many items")
{
    SimVolume volume(kShapes[0]);
    make_and_mount(volume, compressing());
    Prng prng(seed());
    const auto content = text_content(prng, kMiB);
    write_file(volume.fs(), "f", {});
    const auto write_all = [&](uint64_t mebibytes) {
        const InodeNumber file = find_file(volume.fs(), "f");
        for (uint64_t i = 0; i < mebibytes; ++i)
            REQUIRE(volume.fs().files.write(file, i * kMiB, content, {}, {}).ok());
    };
    write_all(63);
    CHECK(volume.fs().store.ledger.dirty_blocks() == 63 * kMiB / kBlockBytes);
    write_all(66);
    CHECK(volume.fs().store.ledger.dirty_blocks() <= 3 * kMiB / kBlockBytes);
    REQUIRE(volume.unmount().ok());
    MountOptions options = compressing();
    options.dirty_bytes_max = 16 * kMiB;
    mount(volume, options);
    const uint64_t commits = volume.fs().info().commits;
    write_all(9);
    CHECK(volume.fs().store.ledger.dirty_blocks() <= 2 * kMiB / kBlockBytes);
    CHECK(volume.fs().info().commits == commits);
    for (int i = 0; i < 3000; ++i)
        write_file(volume.fs(), "empty" + std::to_string(i), {});
    REQUIRE(volume.fs().store.timeline.open()->items.byte_count() > 512 * kKiB);
    CHECK(volume.fs().info().commits == commits);
    write_all(9);
    CHECK(volume.fs().info().commits == commits + 1);
    REQUIRE(volume.unmount().ok());
    checked_data_blocks(volume);
}

TEST_CASE("compression: what is cut out of a frame leaves the rest, and the last part frees it")
{
    SimVolume volume(kShapes[0]);
    make_and_mount(volume, compressing());
    Prng prng(seed());
    auto content = text_content(prng, size_t{kFrameBlocksMax} * kBlockBytes);
    write_file(volume.fs(), "f", content);
    REQUIRE(volume.fs().step(true).ok());
    const InodeNumber file = find_file(volume.fs(), "f");
    const uint64_t frame_blocks = stored_blocks(volume.fs(), "f");
    REQUIRE(frame_blocks > 0);
    REQUIRE(frame_blocks < kFrameBlocksMax / 2);
    // One block in its middle, then holes on both sides of it, from one block to the next.
    const auto block = random_content(prng, kBlockBytes);
    REQUIRE(volume.fs().files.write(file, 16 * kBlockBytes, block, {}, {}).ok());
    std::copy(block.begin(), block.end(), content.begin() + 16 * kBlockBytes);
    REQUIRE(volume.fs().step(true).ok());
    require_content(volume.fs(), file, content);
    CHECK(stored_blocks(volume.fs(), "f") == frame_blocks + 1);
    for (const uint64_t hole : {3, 30, 15, 17, 0, 31}) {
        REQUIRE(volume.fs()
                    .files
                    .allocate_range(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, hole * kBlockBytes,
                                    kBlockBytes)
                    .ok());
        std::fill_n(content.begin() + static_cast<ptrdiff_t>(hole * kBlockBytes), kBlockBytes, std::byte{});
        REQUIRE(volume.fs().step(true).ok());
        require_content(volume.fs(), file, content);
        CHECK(stored_blocks(volume.fs(), "f") == frame_blocks + 1);
    }
    REQUIRE(volume.unmount().ok());
    checked_data_blocks(volume);
    mount(volume, compressing());
    const InodeNumber again = find_file(volume.fs(), "f");
    require_content(volume.fs(), again, content);
    // All that is left of the frame but its last part, and then that.
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    REQUIRE(volume.fs().files.allocate_range(again, punch, 0, 29 * kBlockBytes).ok());
    CHECK(stored_blocks(volume.fs(), "f") == frame_blocks);
    SetAttributes shorter;
    shorter.size_bytes = 29 * kBlockBytes;
    REQUIRE(volume.fs().names.set_attributes(again, shorter, {}).ok());
    CHECK(stored_blocks(volume.fs(), "f") == 0);
    REQUIRE(volume.unmount().ok());
    CHECK(checked_data_blocks(volume) == 0);
}

TEST_CASE("compression: the volume counts what is compressed, over remounts and a replay of the fsync log")
{
    SimVolume volume(kShapes[0]);
    make_and_mount(volume, compressing());
    Prng prng(seed());
    const size_t frame_bytes = size_t{kFrameBlocksMax} * kBlockBytes;
    write_file(volume.fs(), "f", text_content(prng, 3 * frame_bytes));
    write_file(volume.fs(), "g", text_content(prng, frame_bytes));
    write_file(volume.fs(), "random", random_content(prng, frame_bytes));
    REQUIRE(volume.fs().step(true).ok());
    const uint64_t of_f = stored_blocks(volume.fs(), "f"), of_g = stored_blocks(volume.fs(), "g");
    require_counted(volume, 4 * kFrameBlocksMax, of_f + of_g);
    REQUIRE(volume.unmount().ok());
    checked_data_blocks(volume);
    mount(volume, manual_options());
    require_counted(volume, 4 * kFrameBlocksMax, of_f + of_g);
    // A part of the first frame goes, and all of the second one, in two pieces; neither with a commit.
    const InodeNumber file = find_file(volume.fs(), "f");
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    const uint64_t commits = volume.fs().info().commits;
    write_file(volume.fs(), "logged", random_content(prng, kBlockBytes));
    for (const auto& [first, count] : {std::pair<uint64_t, uint64_t>{3, 4}, {32, 10}, {42, 22}}) {
        REQUIRE(volume.fs().files.allocate_range(file, punch, first * kBlockBytes, count * kBlockBytes).ok());
        REQUIRE(volume.fs().committer.fsync(file, Committer::SyncWhat::kAll).ok());
    }
    const uint64_t left = stored_blocks(volume.fs(), "f");
    REQUIRE(left < of_f);
    const uint64_t made = volume.fs().info().commits - commits;
    volume.kill();
    volume.power_cut(prng);
    mount(volume, manual_options());
    REQUIRE(made <= 1);  // with which the log begins
    REQUIRE(volume.fs().info().replayed_records >= 2);
    REQUIRE(volume.fs().step(true).ok());
    require_counted(volume, 4 * kFrameBlocksMax - 36, left + of_g);
    for (const char* const name : {"f", "g", "random", "logged"})
        REQUIRE(volume.fs().names.unlink(kRoot, name).ok());
    for (int commits_more = 0; commits_more < 3; ++commits_more)
        REQUIRE(volume.fs().step(true).ok());
    require_counted(volume, 0, 0);
    REQUIRE(volume.unmount().ok());
    CHECK(checked_data_blocks(volume) == 0);
}

TEST_CASE("compression: zeros become holes, and what is reserved there stays so")
{
    SimVolume volume(kShapes[0]);
    make_and_mount(volume, compressing());
    Prng prng(seed());
    const size_t frame_bytes = size_t{kFrameBlocksMax} * kBlockBytes;
    write_file(volume.fs(), "zeros", std::vector<std::byte>(kMiB + 100));
    REQUIRE(volume.fs().step(true).ok());
    check_reservations(volume.fs());
    CHECK(stored_blocks(volume.fs(), "zeros") == 1);  // a last block by itself is stored
    CHECK((volume.fs().volume->superblock().incompat_features & feature_bit("zstd")) == 0);
    write_file(volume.fs(), "one block of zeros", std::vector<std::byte>(kBlockBytes));
    REQUIRE(volume.fs().step(true).ok());
    CHECK(stored_blocks(volume.fs(), "one block of zeros") == 1);
    REQUIRE(volume.fs().names.unlink(kRoot, "one block of zeros").ok());
    // Over data: a frame, half of one, and blocks that are not compressed.
    auto content = text_content(prng, 2 * frame_bytes);
    const auto plain = random_content(prng, frame_bytes);
    content.insert(content.end(), plain.begin(), plain.end());
    write_file(volume.fs(), "over", content);
    REQUIRE(volume.fs().step(true).ok());
    check_reservations(volume.fs());
    const InodeNumber over = find_file(volume.fs(), "over");
    const uint64_t before = stored_blocks(volume.fs(), "over");
    const size_t first = frame_bytes / 2, bytes = 2 * frame_bytes;
    std::fill_n(content.begin() + static_cast<ptrdiff_t>(first), bytes, std::byte{});
    const std::vector<std::byte> zeros(bytes);
    REQUIRE(volume.fs().files.write(over, first, zeros, {}, {}).ok());
    // Reserved, a part of it written before.
    write_file(volume.fs(), "reserved", {});
    const InodeNumber reserved = find_file(volume.fs(), "reserved");
    REQUIRE(volume.fs().files.allocate_range(reserved, 0, 0, 4 * frame_bytes).ok());
    REQUIRE(volume.fs().files.write(reserved, frame_bytes, random_content(prng, frame_bytes), {}, {}).ok());
    REQUIRE(volume.fs().step(true).ok());
    check_reservations(volume.fs());
    REQUIRE(volume.fs().files.reserved_blocks == 3 * kFrameBlocksMax);
    REQUIRE(volume.fs().files.write(reserved, first, zeros, {}, {}).ok());
    REQUIRE(volume.fs().step(true).ok());
    check_reservations(volume.fs());
    require_content(volume.fs(), over, content);
    CHECK(stored_blocks(volume.fs(), "over") < before - kFrameBlocksMax / 2);
    CHECK(stored_blocks(volume.fs(), "over") >= kFrameBlocksMax / 2);
    require_content(volume.fs(), reserved, std::vector<std::byte>(4 * frame_bytes));
    CHECK(stored_blocks(volume.fs(), "reserved") == 3 * kFrameBlocksMax);
    CHECK(volume.fs().files.reserved_blocks == 3 * kFrameBlocksMax);
    REQUIRE(volume.unmount().ok());
    checked_data_blocks(volume);
    // Who does not compress stores them.
    mount(volume, manual_options());
    require_content(volume.fs(), find_file(volume.fs(), "over"), content);
    write_file(volume.fs(), "plain", std::vector<std::byte>(kMiB));
    REQUIRE(volume.fs().step(true).ok());
    check_reservations(volume.fs());
    CHECK(stored_blocks(volume.fs(), "plain") == kMiB / kBlockBytes);
    Contents all;
    for (const char* const name : {"zeros", "over", "reserved", "plain"})
        all[name] = {};
    remove_all(volume, all);
}

TEST_CASE("compression: a volume with frames that nobody counted says nothing of them")
{
    SimVolume volume(kShapes[0]);
    make_and_mount(volume, compressing());
    CHECK(volume.fs().info().compression_counted);
    Prng prng(seed());
    write_file(volume.fs(), "f", text_content(prng, kMiB));
    // As a program leaves it that does not know the counts.
    volume.fs().files.compression_counted = false;
    REQUIRE(volume.fs().step(true).ok());
    REQUIRE(volume.unmount().ok());
    checked_data_blocks(volume);
    for (int mounts = 0; mounts < 2; ++mounts) {
        mount(volume, compressing());
        CHECK_FALSE(volume.fs().info().compression_counted);
        CHECK(volume.fs().info().compressed_file_bytes == 0);
        REQUIRE(volume.fs().names.unlink(kRoot, "f").ok());
        write_file(volume.fs(), "f", text_content(prng, kMiB));
        REQUIRE(volume.unmount().ok());
        checked_data_blocks(volume);
    }
}

TEST_CASE("compression: what is made in a volume that was made for it is compressed")
{
    VolumeShape shape = kShapes[1];
    shape.compress = true;
    SimVolume volume(shape);
    std::string why;
    REQUIRE(volume.make(why).ok());
    checked_data_blocks(volume);
    mount(volume, manual_options());
    CHECK((volume.fs().volume->superblock().incompat_features & feature_bit("inode_flags")) != 0);
    CHECK(*volume.fs().names.get_flags(kRoot) == kInodeCompress);
    Prng prng(seed());
    write_file(volume.fs(), "f", text_content(prng, kMiB));
    REQUIRE(volume.fs().step(true).ok());
    CHECK(stored_blocks(volume.fs(), "f") < kMiB / kBlockBytes / 2);
    CHECK(*volume.fs().names.get_flags(find_file(volume.fs(), "f")) == kInodeCompress);
}

TEST_CASE("compression: a volume that random bytes fill takes what it promised, and is emptied again")
{
    for (const ProfileId profile : {ProfileId::kRaid5, ProfileId::kRaid1}) {
        Prng prng(seed());
        SimVolume volume({4, 128 * kMiB, profile, ProfileId::kRaid1, 16 * 1024});
        std::string why;
        REQUIRE(volume.make(why).ok());
        MountOptions options = compressing();
        options.dirty_bytes_max = kGiB;
        mount(volume, options);
        Contents contents;
        for (int file = 0;; ++file) {
            const std::string name = "file" + std::to_string(file);
            const auto content = random_content(prng, 1 + prng.below(3 * kMiB));
            const Result<Attributes> made = volume.fs().names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
            if (made.err() == Err::kNoSpace)
                break;
            REQUIRE(made.ok());
            const Result<size_t> written = volume.fs().files.write(made->inode, 0, content, {}, {});
            volume.fs().names.forget(made->inode, 1);
            contents[name] = written.ok() ? content : std::vector<std::byte>();
            if (!written.ok()) {
                REQUIRE(written.err() == Err::kNoSpace);
                break;
            }
        }
        CHECK(contents.size() > 40);
        REQUIRE(volume.fs().step(true).ok());
        REQUIRE(volume.fs().store.service.writing());
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        checked_data_blocks(volume);
        mount(volume, options);
        remove_all(volume, contents);
    }
}

TEST_CASE("compression: random writes, holes, truncates, crashes and lost members equal a byte array")
{
    for (uint64_t round = 0; round < 3; ++round) {
        CAPTURE(round);
        Prng prng(seed() + round);
        const VolumeShape& shape = kShapes[prng.below(2)];
        SimVolume volume(shape);
        make_and_mount(volume, compressing());
        write_file(volume.fs(), "f", {});
        std::vector<std::byte> model;
        uint64_t crashes = 0, inlined = 0;
        for (int step = 0; step < 400; ++step) {
            CAPTURE(step);
            const InodeNumber file = find_file(volume.fs(), "f");
            const uint64_t kind = prng.below(14);
            if (kind < 7) {
                // A small file stays one for some steps.
                const bool small = model.size() < 30'000 && prng.chance(7, 8);
                const bool whole = small && prng.chance(1, 2);
                const uint64_t offset = whole ? 0 : prng.below(small ? 20'000 : 2 * kMiB);
                const uint64_t bytes = 1 + prng.below(!small && prng.chance(1, 3) ? 400'000 : 9000);
                const auto data = whole ? text_content(prng, std::max<size_t>(model.size(), bytes))
                                        : some_content(prng, bytes);
                REQUIRE(volume.fs().files.write(file, offset, data, {}, {}).ok());
                model.resize(std::max<size_t>(model.size(), offset + data.size()));
                std::copy(data.begin(), data.end(), model.begin() + static_cast<ptrdiff_t>(offset));
            } else if (kind == 7) {
                SetAttributes change;
                change.size_bytes = prng.below(prng.chance(1, 2) ? 10'000 : 2 * kMiB);
                REQUIRE(volume.fs().names.set_attributes(file, change, {}).ok());
                model.resize(*change.size_bytes);
            } else if (kind < 10) {
                const int mode = kind == 8 ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0;
                const uint64_t offset = prng.below(2 * kMiB), length = 1 + prng.below(100'000);
                REQUIRE(volume.fs().files.allocate_range(file, mode, offset, length).ok());
                if (mode == 0)
                    model.resize(std::max<size_t>(model.size(), offset + length));
                else if (offset < model.size())
                    std::memset(model.data() + offset, 0, std::min<size_t>(length, model.size() - offset));
            } else if (kind == 10) {
                REQUIRE(volume.fs().step(prng.chance(1, 2)).ok());
                inlined += inline_extents(volume.fs(), file);
            } else if (kind == 11) {
                REQUIRE(volume.fs().committer.fsync(file, Committer::SyncWhat::kAll).ok());
            } else if (kind == 12) {
                inlined += inline_extents(volume.fs(), file);
                REQUIRE(volume.unmount().ok());
                checked_data_blocks(volume);
                const bool degraded = prng.chance(1, 2);
                if (degraded) {
                    MountOptions options = degraded_options();
                    options.read_only = true;
                    mount(volume, options, {static_cast<uint32_t>(prng.below(shape.member_count))});
                    require_content(volume.fs(), find_file(volume.fs(), "f"), model);
                    REQUIRE(volume.unmount().ok());
                }
                mount(volume, prng.chance(1, 4) ? manual_options() : compressing());
            } else {
                REQUIRE(volume.fs().committer.fsync(file, Committer::SyncWhat::kAll).ok());
                volume.kill();
                volume.power_cut(prng);
                mount(volume, compressing());
                ++crashes;
            }
            if (step % 16 == 0)
                require_content(volume.fs(), find_file(volume.fs(), "f"), model);
        }
        CHECK(crashes > 5);
        CHECK(inlined > 1);
        require_content(volume.fs(), find_file(volume.fs(), "f"), model);
        REQUIRE(volume.unmount().ok());
        checked_data_blocks(volume);
    }
}
