// SPDX-License-Identifier: MIT
// Items of the root tree and summaries of block groups: what is encoded is decoded, in one length only.
#include <doctest/doctest.h>

#include <algorithm>

#include "format/items.h"
#include "format/tree_codec.h"

using namespace cowraid;

namespace {

// Whether `decode` refuses the payload cut short, too long, and empty.
template <typename Decode> bool refuses_other_lengths(ItemBytes payload, Decode decode)
{
    ItemBytes longer = payload;
    longer.push_back(std::byte{0});
    payload.pop_back();
    return decode(payload).err() == Err::kCorrupt && decode(longer).err() == Err::kCorrupt &&
           decode(ItemBytes()).err() == Err::kCorrupt;
}

}  // namespace

TEST_CASE("root of a tree: the pointer comes back")
{
    BlockRef root;
    root.address = {40960};
    root.generation = {77};
    for (size_t block = 0; block < std::size(root.checksums); ++block)
        root.checksums[block] = {1000 + block};
    const ItemBytes payload = encode_tree_root(root);
    CHECK(payload.size() == sizeof(DiskTreeRoot));
    const Result<BlockRef> decoded = decode_tree_root(payload);
    REQUIRE(decoded.ok());
    CHECK(*decoded == root);
    CHECK(refuses_other_lengths(payload, decode_tree_root));
    CHECK(tree_root_key(4) == Key{4, static_cast<uint8_t>(ItemType::kTreeRoot), 0});
}

TEST_CASE("counters of the volume come back")
{
    const ItemBytes payload = encode_volume_counters({.next_inode = 300,
                                                      .inode_count = 12,
                                                      .reserved_blocks = 7,
                                                      .compressed_file_blocks = 320,
                                                      .compressed_blocks = 45,
                                                      .compression_counted = true});
    CHECK(payload.size() == sizeof(DiskVolume));
    const Result<VolumeCounters> decoded = decode_volume_counters(payload);
    REQUIRE(decoded.ok());
    CHECK(decoded->next_inode == 300);
    CHECK(decoded->inode_count == 12);
    CHECK(decoded->reserved_blocks == 7);
    CHECK(decoded->compressed_file_blocks == 320);
    CHECK(decoded->compressed_blocks == 45);
    CHECK(decoded->compression_counted);
    // As programs wrote it that knew no counts of compressed extents.
    const auto older = encode_volume_counters({.next_inode = 300});
    CHECK(std::all_of(older.begin() + 8, older.end(), [](std::byte byte) { return byte == std::byte{0}; }));
    CHECK_FALSE(decode_volume_counters(older)->compression_counted);
    CHECK(refuses_other_lengths(payload, decode_volume_counters));
    CHECK(volume_key() == Key{0, static_cast<uint8_t>(ItemType::kVolume), 0});
}

TEST_CASE("summary of a block group: its address is the key's")
{
    const VolumeAddress group{1 << 20};
    const ItemBytes payload = encode_group_usage({group, 5, 6, 7});
    CHECK(payload.size() == sizeof(DiskGroupSummary));
    const Result<GroupUsage> decoded = decode_group_usage(group, payload);
    REQUIRE(decoded.ok());
    CHECK(decoded->group_address == group);
    CHECK(decoded->used_blocks == 5);
    CHECK(decoded->free_rows == 6);
    CHECK(decoded->free_stripes == 7);
    CHECK(refuses_other_lengths(payload,
                                [=](const ItemBytes& bytes) { return decode_group_usage(group, bytes); }));
    CHECK(group_usage_key(group) == Key{0, static_cast<uint8_t>(ItemType::kGroupSummary), group.value});
}
