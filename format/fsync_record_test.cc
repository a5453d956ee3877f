// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstring>

#include "base/random.h"
#include "format/extent_codec.h"
#include "format/fsync_record.h"
#include "format/inode_codec.h"
#include "format/items.h"

using namespace cowraid;

namespace {

constexpr VolumeCounters kCounters{.next_inode = 300, .inode_count = 12, .reserved_blocks = 7};

ItemChange put(uint64_t object, ItemType type, uint64_t offset, ItemBytes value)
{
    return {{object, static_cast<uint8_t>(type), offset}, false, std::move(value)};
}

ItemBytes inode_payload()
{
    InodeAttributes attributes;
    attributes.mode = S_IFREG | 0644;
    attributes.link_count = 1;
    return encode_inode(attributes);
}

// One of everything.
std::vector<std::byte> sample_record(const std::vector<std::byte>& content)
{
    FsyncRecordEncoder encoder;
    const FileExtent extent{4, 2, ExtentKind::kData, {40960}, {9}};
    CHECK(encoder.add_item(put(280, ItemType::kInode, 0, inode_payload())));
    CHECK(encoder.add_item(put(280, ItemType::kExtent, 4 * kBlockBytes, encode_extent(extent))));
    CHECK(encoder.add_item(put(0, ItemType::kOrphan, 281, {})));
    CHECK(encoder.add_item({{256, static_cast<uint8_t>(ItemType::kDirent), 77}, true, {}}));
    CHECK(encoder.add_blocks({{280}, 6, content.size() / kBlockBytes, content.data()}));
    CHECK(encoder.add_blocks({{280}, 100, kMaxFileBlocks - 100, nullptr}));
    return encoder.finish(kCounters);
}

std::vector<std::byte> random_bytes(Prng& prng, size_t count)
{
    std::vector<std::byte> bytes(count);
    prng.fill(bytes.data(), count);
    return bytes;
}

}  // namespace

TEST_CASE("fsync record: what is encoded is decoded")
{
    Prng prng(1);
    const std::vector<std::byte> content = random_bytes(prng, 3 * kBlockBytes);
    const std::vector<std::byte> bytes = sample_record(content);
    const Result<FsyncRecord> record = decode_fsync_record(bytes);
    REQUIRE(record.ok());
    CHECK(record->counters.next_inode == 300);
    CHECK(record->counters.inode_count == 12);
    CHECK(record->counters.reserved_blocks == 7);
    REQUIRE(record->items.size() == 4);
    CHECK(record->items[0].key == Key{280, static_cast<uint8_t>(ItemType::kInode), 0});
    CHECK(ItemBytes(record->items[0].payload.begin(), record->items[0].payload.end()) == inode_payload());
    CHECK(record->items[3].erased);
    REQUIRE(record->blocks.size() == 2);
    CHECK(record->blocks[0].first_block == 6);
    CHECK(record->blocks[0].block_count == 3);
    CHECK(std::memcmp(record->blocks[0].content, content.data(), content.size()) == 0);
    CHECK(record->blocks[1].content == nullptr);
    CHECK(record->blocks[1].block_count == kMaxFileBlocks - 100);
}

TEST_CASE("fsync record: what no filesystem can have written is refused")
{
    const auto refused = [](const ItemChange& change) {
        FsyncRecordEncoder encoder;
        REQUIRE(encoder.add_item(change));
        return decode_fsync_record(encoder.finish(kCounters)).err() == Err::kCorrupt;
    };
    CHECK_FALSE(refused(put(299, ItemType::kInode, 0, inode_payload())));
    CHECK(refused(put(300, ItemType::kInode, 0, inode_payload())));
    CHECK(refused(put(255, ItemType::kInode, 0, inode_payload())));
    CHECK(refused(put(299, ItemType::kInode, 1, inode_payload())));
    CHECK(refused(put(299, ItemType::kInode, 0, ItemBytes(159))));
    CHECK(refused(put(299, ItemType::kExtent, 100, encode_extent({0, 1, ExtentKind::kReserved, {}, {}}))));
    CHECK(refused(put(299, ItemType::kChecksums, 0, {})));
    CHECK(refused(put(1, ItemType::kOrphan, 299, {})));
    CHECK(refused(put(0, ItemType::kOrphan, 300, {})));
    CHECK(refused(put(299, ItemType::kXattr, 5, ItemBytes(9000))));
    const auto refused_blocks = [](const LoggedBlocks& blocks) {
        FsyncRecordEncoder encoder;
        REQUIRE(encoder.add_blocks(blocks));
        return decode_fsync_record(encoder.finish(kCounters)).err() == Err::kCorrupt;
    };
    CHECK(refused_blocks({{300}, 0, 1, nullptr}));
    CHECK(refused_blocks({{299}, 0, 0, nullptr}));
    CHECK(refused_blocks({{299}, kMaxFileBlocks, 1, nullptr}));
    CHECK(refused_blocks({{299}, 5, UINT64_MAX, nullptr}));
}

TEST_CASE("fsync record: damage is refused or harmless")
{
    Prng prng(2);
    const std::vector<std::byte> bytes = sample_record(random_bytes(prng, kBlockBytes));
    for (size_t length = 0; length < bytes.size(); length += length < 700 ? 1 : 97)
        CHECK_FALSE(decode_fsync_record(std::span(bytes).first(length)).ok());
    uint64_t refused = 0;
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::byte> damaged = bytes;
        for (uint64_t count = prng.between(1, 3); count > 0; --count)
            damaged[prng.below(600)] = static_cast<std::byte>(prng.below(256));
        const Result<FsyncRecord> record = decode_fsync_record(damaged);
        refused += record.ok() ? 0 : 1;
        if (!record.ok())
            continue;
        // What is accepted lies inside the bytes.
        for (const FsyncRecord::Item& item : record->items)
            CHECK((item.payload.empty() ||
                   (item.payload.data() >= damaged.data() &&
                    item.payload.data() + item.payload.size() <= damaged.data() + damaged.size())));
        for (const LoggedBlocks& blocks : record->blocks)
            CHECK((blocks.content == nullptr ||
                   blocks.content + blocks.block_count * kBlockBytes <= damaged.data() + damaged.size()));
    }
    CHECK(refused > 5000);
}

TEST_CASE("fsync record: the longest one fits, one byte more does not")
{
    FsyncRecordEncoder encoder;
    while (encoder.room() > 9000)
        REQUIRE(encoder.add_item(put(299, ItemType::kXattr, encoder.room(), ItemBytes(8000))));
    const size_t left = encoder.room() - sizeof(DiskFsyncEntry);
    CHECK_FALSE(encoder.add_item(put(299, ItemType::kXattr, 1, ItemBytes(left + 1))));
    CHECK(encoder.add_item(put(299, ItemType::kXattr, 1, ItemBytes(left > 8000 ? 8000 : left))));
    CHECK(decode_fsync_record(encoder.finish(kCounters)).ok());
}
