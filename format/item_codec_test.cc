// SPDX-License-Identifier: MIT
// Inode and extent items: what decoding takes, and what it refuses.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstring>

#include "format/extent_codec.h"
#include "format/inode_codec.h"
#include "format/items.h"
#include "format/superblock_codec.h"

using namespace cowraid;

namespace {

InodeAttributes directory_attributes()
{
    InodeAttributes attributes;
    attributes.mode = S_IFDIR | 0755;
    attributes.link_count = 2;
    attributes.parent = kRootInode;
    return attributes;
}

Err decoded(const InodeAttributes& attributes)
{
    return decode_inode(encode_inode(attributes)).err();
}

Err decoded(uint64_t file_block, const DiskExtent& extent)
{
    return decode_extent(file_block, std::as_bytes(std::span(&extent, 1))).err();
}

}  // namespace

TEST_CASE("an inode with flags nobody defined is refused")
{
    InodeAttributes attributes = directory_attributes();
    CHECK(decoded(attributes) == Err::kOk);
    attributes.flags = kInodeFlagsMask;
    CHECK(decoded(attributes) == Err::kOk);
    for (uint64_t flag = kInodeFlagsMask + 1; flag != 0; flag <<= 1) {
        attributes.flags = flag | kInodeImmutable;
        CHECK(decoded(attributes) == Err::kCorrupt);
    }
}

TEST_CASE("a directory stands in an inode that can be one, nothing else in any")
{
    InodeAttributes attributes = directory_attributes();
    for (const uint64_t parent : {uint64_t{0}, kRootInode - 1, kMaxInode + 1, UINT64_MAX}) {
        attributes.parent = parent;
        CHECK(decoded(attributes) == Err::kCorrupt);
    }
    attributes.parent = kMaxInode;
    CHECK(decoded(attributes) == Err::kOk);
    attributes.mode = S_IFREG | 0644;
    CHECK(decoded(attributes) == Err::kCorrupt);
    attributes.parent = 0;
    CHECK(decoded(attributes) == Err::kOk);
}

TEST_CASE("an extent ends where files end, and only compressed ones begin inside")
{
    constexpr uint64_t kLastBlock = uint64_t{INT64_MAX} / kBlockBytes;
    DiskExtent extent{};
    extent.address = uint64_t{7} * kBlockBytes;
    extent.block_count = 2;
    extent.disk_blocks = 2;
    extent.kind = static_cast<uint8_t>(ExtentKind::kData);
    CHECK(decoded(0, extent) == Err::kOk);
    CHECK(decoded(kLastBlock - 1, extent) == Err::kOk);
    CHECK(decoded(kLastBlock, extent) == Err::kCorrupt);
    CHECK(decoded(kLastBlock + 1, extent) == Err::kCorrupt);
    extent.offset_blocks = 1;
    CHECK(decoded(0, extent) == Err::kCorrupt);
}

TEST_CASE("an inline frame comes back as it was, and names no blocks")
{
    FileExtent extent{.file_block = 7, .block_count = 3, .generation = {9}};
    extent.compression = Compression::kZstdInline;
    extent.offset_blocks = 7;
    for (const size_t bytes : {size_t{1}, size_t{kInlineBytesMax}}) {
        extent.inline_frame.assign(bytes, std::byte{5});
        const Result<FileExtent> back = decode_extent(7, encode_extent(extent));
        REQUIRE(back.ok());
        CHECK(back->same_frame(extent));
        CHECK(back->inline_frame == extent.inline_frame);
        CHECK(back->block_count == 3);
        CHECK(back->stored_blocks() == 0);
        CHECK(back->counted_blocks() == 1);
        CHECK(back->stored_runs().empty());
    }
    FileExtent other = extent;
    other.inline_frame.back() = std::byte{6};
    CHECK_FALSE(other.same_frame(extent));
    const ItemBytes whole = encode_extent(extent);
    const auto refused = [&](auto change) {
        ItemBytes payload = whole;
        DiskExtent disk;
        std::memcpy(&disk, payload.data(), sizeof disk);
        change(disk, payload);
        std::memcpy(payload.data(), &disk, sizeof disk);
        return decode_extent(7, payload).err() == Err::kCorrupt;
    };
    CHECK_FALSE(refused([](DiskExtent&, ItemBytes&) {}));
    CHECK(refused([](DiskExtent&, ItemBytes& payload) { payload.push_back({}); }));
    CHECK(refused([](DiskExtent&, ItemBytes& payload) { payload.resize(sizeof(DiskExtent)); }));
    CHECK(refused([](DiskExtent& disk, ItemBytes&) { disk.address = kBlockBytes; }));
    CHECK(refused([](DiskExtent& disk, ItemBytes&) { disk.disk_blocks = 1; }));
    CHECK(refused([](DiskExtent& disk, ItemBytes&) { disk.more_runs = 1; }));
    CHECK(refused([](DiskExtent& disk, ItemBytes&) { disk.block_count = kFrameBlocksMax; }));
    CHECK(refused([](DiskExtent& disk, ItemBytes&) { disk.offset_blocks = 6; }));  // all of a small file
    CHECK(refused([](DiskExtent& disk, ItemBytes&) { disk.compression = 3; }));
    CHECK(refused(
        [](DiskExtent& disk, ItemBytes&) { disk.kind = static_cast<uint8_t>(ExtentKind::kReserved); }));
}

TEST_CASE("an extent has no more blocks than are ever written as one, and ends where addresses do")
{
    DiskExtent extent{};
    const auto decoded_with = [&](uint64_t address, uint32_t blocks) {
        extent.address = address;
        extent.block_count = blocks;
        extent.disk_blocks = blocks;
        extent.kind = static_cast<uint8_t>(ExtentKind::kData);
        return decoded(0, extent);
    };
    CHECK(decoded_with(kBlockBytes, kMaxExtentBlocks) == Err::kOk);
    CHECK(decoded_with(kBlockBytes, kMaxExtentBlocks + 1) == Err::kCorrupt);
    CHECK(decoded_with(kBlockBytes, UINT32_MAX) == Err::kCorrupt);
    CHECK(decoded_with(kMaxVolumeAddress - kBlockBytes, 1) == Err::kOk);
    CHECK(decoded_with(kMaxVolumeAddress - kBlockBytes, 2) == Err::kCorrupt);
    // The last blocks of all: an address behind them is 0 again.
    CHECK(decoded_with(uint64_t{0} - 2 * kBlockBytes, 1) == Err::kCorrupt);
    extent.kind = static_cast<uint8_t>(ExtentKind::kReserved);
    extent.address = 0;
    extent.disk_blocks = 0;
    extent.block_count = kMaxExtentBlocks;
    CHECK(decoded(0, extent) == Err::kOk);
    extent.block_count = kMaxExtentBlocks + 1;
    CHECK(decoded(0, extent) == Err::kCorrupt);
}
