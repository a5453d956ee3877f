// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstring>

#include "base/checksum.h"
#include "base/random.h"
#include "format/fsync_codec.h"

using namespace cowraid;

namespace {

struct BatchSample {
    FsyncHeader header;
    std::vector<std::vector<std::byte>> records;
    std::vector<std::byte> blocks;

    BatchSample(Prng& prng, size_t record_count, size_t record_bytes_max)
    {
        header.volume_uuid = uuid_random();
        header.epoch = prng.next();
        header.generation = {prng.between(2, 1u << 30)};
        header.generation_before = {prng.below(header.generation.value)};
        header.sequence = prng.between(1, uint64_t{1} << 40);
        header.generation_first = prng.between(1, header.sequence);
        std::vector<std::span<const std::byte>> views;
        for (size_t index = 0; index < record_count; ++index) {
            auto& record = records.emplace_back(prng.between(0, record_bytes_max));
            prng.fill(record.data(), record.size());
            header.content_bytes += fsync_record_room(record.size());
        }
        for (const auto& record : records)
            views.emplace_back(record);
        header.record_count = static_cast<uint32_t>(record_count);
        blocks.resize(size_t{header.block_count()} * kBlockBytes);
        encode_fsync_batch(header, views, blocks);
    }
    [[nodiscard]] std::span<std::byte> block(size_t index)
    {
        return std::span(blocks).subspan(index * kBlockBytes, kBlockBytes);
    }
};

void stamp(std::span<std::byte> block)
{
    const le64 checksum(checksum_of(block.subspan(sizeof(le64))));
    std::memcpy(block.data(), &checksum, sizeof checksum);
}

}  // namespace

TEST_CASE("fsync batch: what was encoded comes back, block by block and whole")
{
    Prng prng(6);
    size_t long_ones = 0;
    for (int round = 0; round < 200; ++round) {
        BatchSample sample(prng, prng.between(1, 12), prng.chance(1, 4) ? 40000 : 300);
        long_ones += sample.header.block_count() > 1 ? 1 : 0;
        for (uint32_t index = 0; index < sample.header.block_count(); ++index) {
            const auto block = decode_fsync_block(sample.block(index), sample.header.volume_uuid);
            REQUIRE(block.ok());
            CHECK(block->header == sample.header);
            CHECK(block->block_index == index);
        }
        const auto content = decode_fsync_batch(sample.blocks, sample.header);
        REQUIRE(content.ok());
        REQUIRE(content->records.size() == sample.records.size());
        for (size_t index = 0; index < sample.records.size(); ++index)
            CHECK(std::equal(content->records[index].begin(), content->records[index].end(),
                             sample.records[index].begin(), sample.records[index].end()));
    }
    CHECK(long_ones > 20);
}

TEST_CASE("fsync batch: the longest record and the empty one")
{
    FsyncHeader header;
    header.generation = {1};
    header.sequence = header.generation_first = 1;
    header.record_count = 1;
    header.content_bytes = kMaxFsyncContentBytes;
    const std::vector<std::byte> record(kMaxFsyncRecordBytes, std::byte{7});
    std::vector<std::byte> blocks(size_t{header.block_count()} * kBlockBytes);
    const std::span<const std::byte> view(record);
    encode_fsync_batch(header, {&view, 1}, blocks);
    const auto content = decode_fsync_batch(blocks, header);
    REQUIRE(content.ok());
    REQUIRE(content->records[0].size() == kMaxFsyncRecordBytes);
    CHECK(std::memcmp(content->records[0].data(), record.data(), record.size()) == 0);

    header.content_bytes = fsync_record_room(0);
    blocks.resize(kBlockBytes);
    const std::span<const std::byte> nothing;
    encode_fsync_batch(header, {&nothing, 1}, blocks);
    const auto empty = decode_fsync_batch(blocks, header);
    REQUIRE(empty.ok());
    REQUIRE(empty->records.size() == 1);
    CHECK(empty->records[0].empty());
}

TEST_CASE("fsync batch: another volume's block is none of this log; every flipped bit is told")
{
    Prng prng(7);
    BatchSample sample(prng, 3, 5000);
    CHECK(decode_fsync_block(sample.block(0), uuid_random()).err() == Err::kNotFound);
    for (size_t bit = 0; bit < sizeof(DiskFsyncBlock) * 8; ++bit) {
        std::byte damaged[kBlockBytes];
        std::memcpy(damaged, sample.blocks.data(), kBlockBytes);
        damaged[bit / 8] ^= std::byte{1} << (bit % 8);
        CHECK_FALSE(decode_fsync_block(damaged, sample.header.volume_uuid).ok());
    }
    for (int round = 0; round < 300; ++round) {
        const size_t at = prng.below(sample.blocks.size());
        sample.blocks[at] ^= std::byte{1} << (round % 8);
        CHECK(decode_fsync_batch(sample.blocks, sample.header).err() == Err::kCorrupt);
        sample.blocks[at] ^= std::byte{1} << (round % 8);
    }
    CHECK(decode_fsync_batch(sample.blocks, sample.header).ok());
}

TEST_CASE("fsync batch: blocks of another batch, or in another order, are not this batch")
{
    Prng prng(8);
    BatchSample sample(prng, 4, 0);
    while (sample.header.block_count() != 3)
        sample = BatchSample(prng, 4, 4000);
    std::vector<std::byte> swapped = sample.blocks;
    std::swap_ranges(swapped.begin() + kBlockBytes, swapped.begin() + 2 * kBlockBytes,
                     swapped.begin() + 2 * kBlockBytes);
    CHECK(decode_fsync_batch(swapped, sample.header).err() == Err::kCorrupt);
    FsyncHeader other = sample.header;
    other.content_checksum ^= 1;
    CHECK(decode_fsync_batch(sample.blocks, other).err() == Err::kCorrupt);
}

TEST_CASE("fsync batch: hostile fields under right checksums are refused or harmless")
{
    Prng prng(9);
    size_t refused = 0;
    for (int round = 0; round < 4000; ++round) {
        BatchSample sample(prng, prng.between(1, 5), 200);
        const size_t at = prng.between(offsetof(DiskFsyncBlock, epoch), sizeof(DiskFsyncBlock) + 7);
        sample.blocks[at] = static_cast<std::byte>(prng.below(256));
        const bool content_too = prng.chance(1, 2);
        if (content_too) {
            const auto content =
                std::span(sample.blocks).subspan(sizeof(DiskFsyncBlock), sample.header.content_bytes);
            const le64 checksum(checksum_of(content));
            std::memcpy(sample.blocks.data() + offsetof(DiskFsyncBlock, content_checksum), &checksum,
                        sizeof checksum);
        }
        stamp(sample.block(0));
        const auto block = decode_fsync_block(sample.block(0), sample.header.volume_uuid);
        if (!block.ok()) {
            ++refused;
            continue;
        }
        CHECK(block->header.sequence > 0);
        CHECK(block->header.sequence <= kMaxFsyncSequence);
        CHECK(block->header.block_count() <= divide_up(kMaxFsyncContentBytes, kFsyncRoomBytes));
        CHECK(block->header.generation_before < block->header.generation);
        if (block->header.block_count() != sample.header.block_count())
            continue;
        const auto content = decode_fsync_batch(sample.blocks, block->header);
        refused += content.ok() ? 0 : 1;
        if (content.ok())
            CHECK(content->records.size() == block->header.record_count);
    }
    CHECK(refused > 1000);
}
