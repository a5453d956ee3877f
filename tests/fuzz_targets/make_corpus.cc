// SPDX-License-Identifier: MIT
// Writes the corpus of the targets into the tree: make_corpus tests/fuzz_targets/corpus
#include <sys/stat.h>

#include <cstdio>
#include <string>

#include "base/zstd_frame.h"
#include "btree/node_image.h"
#include "format/damage_codec.h"
#include "format/fsync_codec.h"
#include "format/fsync_record.h"
#include "format/intent_codec.h"
#include "format/tree_codec.h"
#include "format/window_codec.h"
#include "fs/files/extents.h"
#include "fs/files/inode.h"
#include "fs/names/dirent.h"
#include "fs/txn/block_state.h"
#include "tests/fuzz_targets/fuzz_input.h"
#include "tests/fuzz_targets/targets.h"
#include "tests/support/bytes.h"

using namespace cowraid;

namespace {

using Bytes = std::span<const std::byte>;

class Seed {
public:
    template <typename Number> Seed& number(Number value)
    {
        return bytes(std::as_bytes(std::span(&value, 1)));
    }
    Seed& bytes(Bytes more)
    {
        bytes_.insert(bytes_.end(), more.begin(), more.end());
        return *this;
    }
    Seed& text(std::string_view more) { return bytes(std::as_bytes(std::span(more))); }
    // Into the folder's next file.
    void save(const std::string& folder, uint32_t number) const
    {
        mkdir(folder.c_str(), 0777);
        FILE* file = fopen((folder + "/" + std::to_string(number)).c_str(), "wb");
        CW_ASSERT(file != nullptr);
        CW_ASSERT(fwrite(bytes_.data(), 1, bytes_.size(), file) == bytes_.size() && fclose(file) == 0);
    }

private:
    std::vector<std::byte> bytes_;
};

void make_superblocks(const std::string& folder)
{
    using namespace superblock_input;
    for (uint32_t number = 0; number < 8; ++number) {
        Prng prng(number);
        const std::vector<std::byte> slot = encode_superblock(sample_superblock(prng, 1 + number));
        const auto disk = load_front<DiskSuperblock>(slot);
        const auto fit = static_cast<uint8_t>(number == 0 ? kRaw : kFitLengths | kFitChecksum);
        Seed seed;
        seed.number(fit);
        if (number == 0)
            seed.bytes(slot);
        else
            seed.bytes(Bytes(slot).first(kFieldBytes))
                .bytes(Bytes(slot).first(disk.bytes).subspan(sizeof(DiskSuperblock)));
        seed.save(folder, number);
    }
}

void make_group_maps(const std::string& folder)
{
    for (uint8_t number = 0; number < 12; ++number) {
        Prng prng(number);
        Superblock superblock = group_map_input::superblock_of(prng, number);
        const GroupMap map = sample_group_map(prng, superblock, 1 + number);
        MapRef ref;
        const std::vector<std::byte> encoded = encode_group_map(map, superblock.volume_uuid, ref);
        Seed seed;
        seed.number(number == 0 ? kRaw : kFitChecksum).number(number);
        if (number != 0)
            seed.number(static_cast<uint16_t>(map.groups.size()));
        uint64_t bytes = sizeof(DiskGroupMap);
        for (size_t group = 0; group < map.groups.size(); ++group)
            bytes += load_front<DiskGroup>(Bytes(encoded).subspan(bytes)).record_bytes;
        if (number == 0)
            seed.bytes(encoded);
        else
            seed.bytes(Bytes(encoded).first(bytes).subspan(sizeof(DiskGroupMap)));
        seed.save(folder, number);
    }
}

// A leaf of `count` items of `payload_bytes` each, whose keys begin at `first`.
void add_leaf(Seed& seed, uint64_t first, uint16_t count, uint16_t payload_bytes)
{
    seed.number(static_cast<uint8_t>(kFitChecksum | node_input::kPackPayloads));
    seed.number(uint8_t{kRootTree}).number(uint8_t{0}).number(count);
    seed.number(static_cast<uint16_t>(count * sizeof(DiskLeafItem)));
    seed.number(static_cast<uint16_t>(16));
    for (uint16_t i = 0; i < count; ++i) {
        DiskLeafItem item{};
        item.object = first + i;
        item.type = static_cast<uint8_t>(1 + i % 3);
        item.offset = uint64_t{i} * 4096;
        item.data_bytes = payload_bytes;
        seed.number(item);
    }
    seed.text("0123456789abcdef");
}

// A node of `level` above nodes `first_child` and following.
void add_parent(Seed& seed, uint8_t level, uint64_t first_child, uint16_t count)
{
    seed.number(static_cast<uint8_t>(kFitChecksum));
    seed.number(uint8_t{kRootTree}).number(level).number(count);
    seed.number(static_cast<uint16_t>(count * sizeof(DiskChildItem))).number(uint16_t{0});
    for (uint16_t i = 0; i < count; ++i) {
        DiskChildItem item{};
        item.object = (first_child + i) * 100;
        item.child.address = node_input::address_of(first_child + i).value;
        item.child.generation = node_input::kNewest.value;
        seed.number(item);
    }
}

void make_nodes(const std::string& folder)
{
    for (uint16_t number = 0; number < 5; ++number) {
        Seed leaf;
        add_leaf(leaf, 7, static_cast<uint16_t>(1 + number * 4), static_cast<uint16_t>(number * 100));
        leaf.save(folder, number);
    }
    Seed two_levels;
    add_parent(two_levels, 1, 1, 3);
    for (uint64_t leaf = 1; leaf <= 3; ++leaf)
        add_leaf(two_levels, leaf * 100, 4, 60);
    two_levels.save(folder, 5);
    Seed three_levels;
    add_parent(three_levels, 2, 1, 1);
    add_parent(three_levels, 1, 2, 2);
    add_leaf(three_levels, 200, 2, 8000);
    add_leaf(three_levels, 300, 9, 1);
    three_levels.save(folder, 6);
}

ItemBytes sample_inode()
{
    return encode_inode({.size_bytes = 12345, .mode = 0100644, .link_count = 1, .next_link_sequence = 2});
}

ItemBytes sample_extent()
{
    return encode_extent({.file_block = 3, .block_count = 9, .address = {64 * kMiB}, .generation = {4}});
}

FileExtent sample_frame()
{
    FileExtent extent{.file_block = 70, .block_count = 9, .address = {64 * kMiB}, .generation = {4}};
    extent.compression = Compression::kZstd;
    extent.offset_blocks = 6;
    extent.frame = {{{64 * kMiB}, 3}, {{80 * kMiB}, 1}};
    return extent;
}

FileExtent sample_inline()
{
    FileExtent extent{.file_block = 6, .block_count = 9, .generation = {4}};
    extent.compression = Compression::kZstdInline;
    extent.offset_blocks = 6;
    extent.inline_frame.assign(50, std::byte{5});
    return extent;
}

// Frames of some blocks: of text, of zeros, of random bytes; and one of which the end is missing.
void make_compressed(const std::string& folder)
{
    uint32_t number = 0;
    Prng prng(5);
    ZstdCompressor compressor;
    const auto save = [&](uint8_t offset, uint8_t blocks, Bytes stored) {
        Seed seed;
        seed.number(offset).number(uint8_t(blocks - 1)).bytes(stored);
        seed.save(folder, number++);
    };
    for (const size_t block_count : {size_t{2}, size_t{7}}) {
        std::vector<std::byte> content(block_count * kBlockBytes), stored(content.size() + kBlockBytes);
        for (size_t kind = 0; kind < 3; ++kind) {
            if (kind == 1)
                test::fill_text(prng, content);
            else if (kind == 2)
                prng.fill(content.data(), kBlockBytes);
            const size_t bytes = compressor.compress(content, 1, stored);
            save(0, static_cast<uint8_t>(block_count), Bytes(stored).first(bytes));
            save(1, 1, Bytes(stored).first(bytes));
            save(0, 1, Bytes(stored).first(bytes / 2));
            save(0x80, static_cast<uint8_t>(block_count), Bytes(stored).first(bytes));
        }
    }
}

void make_items(const std::string& folder)
{
    using item_input::Structure;
    uint32_t number = 0;
    const auto save = [&](Structure structure, uint64_t object, uint64_t offset, Bytes payload) {
        Seed seed;
        seed.number(structure).number(object).number(offset).bytes(payload);
        seed.save(folder, number++);
    };
    save(Structure::kInode, 300, 0, sample_inode());
    save(Structure::kExtent, 300, 3, sample_extent());
    save(Structure::kExtent, 300, 3,
         encode_extent({.file_block = 3, .block_count = 9, .kind = ExtentKind::kReserved}));
    const uint64_t cursor = name_bucket(1, "name");
    save(Structure::kDirent, 256, cursor, encode_dirent({cursor, {300}, 1, 0100000, "name"}));
    save(Structure::kLink, 300, 1, encode_link({{256}, cursor, "name"}));
    const std::vector<std::byte> value(20);
    save(Structure::kXattr, 300, cursor, encode_xattr("user.x", value)[0]);
    BlockWindow window{.mask = 0x70f, .values = {}};
    for (size_t i = 0; i < kChecksumWindowBlocks; ++i)
        window.values[i] = (i + 1) * kBlockBytes;
    save(Structure::kChecksums, 0, 0, encode_checksum_window(window));
    save(Structure::kRemap, 0, 0, encode_remap_window(window));
    SpaceWindow space{.last_write = {3}, .block_count = 48, .used_count = 9, .bitmap = {255, 1, 0, 0, 0, 0}};
    save(Structure::kSpace, kMiB, 0, encode_space_window(space, {4}));
    space = {.last_write = {3}, .block_count = 12288, .used_count = 3, .bitmap = {}};
    space.bitmap.resize(1536);
    space.bitmap[700] = 7;
    save(Structure::kSpace, kMiB, 0, encode_space_window(space, {4}));
    save(Structure::kPrinted, 0, 0, sample_inode());
    save(Structure::kExtent, 300, 70, encode_extent(sample_frame()));
    save(Structure::kExtent, 300, 6, encode_extent(sample_inline()));
    save(Structure::kDamage, 0, 64 * kMiB, encode_damage({1'700'000'000, 3}));
    save(Structure::kTreeRoot, kChecksumTree, 0,
         encode_tree_root({.address = {64 * kMiB}, .generation = {4}, .checksums = {5, 6}}));
    save(Structure::kVolume, 0, 0,
         encode_volume_counters({.next_inode = 300,
                                 .inode_count = 9,
                                 .reserved_blocks = 5,
                                 .compressed_file_blocks = 8,
                                 .compressed_blocks = 2,
                                 .compression_counted = true}));
    save(Structure::kGroupSummary, 0, kMiB, encode_group_usage({{kMiB}, 12, 30, 7}));
}

void add_block(Seed& seed, uint8_t place, uint8_t fit, Bytes block)
{
    size_t bytes = block.size();
    while (bytes > 0 && block[bytes - 1] == std::byte{0})
        --bytes;
    seed.number(place).number(static_cast<uint8_t>(fit | kFitChecksum | log_input::kFitIdentity));
    seed.number(static_cast<uint16_t>(bytes)).bytes(block.first(bytes));
}

void add_intents(Seed& seed, uint32_t member, uint32_t block, std::vector<IntentEntry> entries)
{
    const IntentHeader header{.volume_uuid = fuzz_uuid(),
                              .member = {member + 1},
                              .epoch = log_input::kEpoch,
                              .generation = log_input::kCommitted.next(),
                              .floor = 1,
                              .block = block};
    std::vector<std::byte> out(kBlockBytes);
    encode_intent_block(header, entries, out);
    add_block(seed, static_cast<uint8_t>(member * log_input::kLogBlocks + block), 0, out);
}

IntentEntry sample_entry(uint64_t sequence, size_t columns)
{
    IntentEntry entry{.sequence = sequence, .row = {sequence % 1000 * kMiB}, .partial_block = 1};
    entry.checksums.resize(columns, sequence);
    entry.modified[0] = true;
    return entry;
}

void make_intents(const std::string& folder)
{
    Seed one;
    add_intents(one, 0, 0, {sample_entry(1, 2)});
    one.save(folder, 0);
    Seed several;
    for (uint32_t member = 0; member < log_input::kMembers; ++member) {
        add_intents(several, member, 0, {sample_entry(1, 3), sample_entry(2, 3)});
        add_intents(several, member, 3, {sample_entry(3 + member, 9)});
    }
    several.save(folder, 1);
    Seed empty;
    add_intents(empty, 1, 5, {});
    empty.save(folder, 2);
    Seed last;
    add_intents(last, 0, 2, {sample_entry(UINT64_MAX / 2, 2)});
    last.save(folder, 3);
}

std::vector<std::byte> sample_record(bool with_blocks)
{
    static const std::vector<std::byte> content(kBlockBytes);
    FsyncRecordEncoder encoder;
    CW_ASSERT(encoder.add_item({inode_key({300}), false, sample_inode()}));
    CW_ASSERT(encoder.add_item({extent_key({300}, 3), false, sample_extent()}));
    CW_ASSERT(encoder.add_item({orphan_key({301}), true, {}}));
    CW_ASSERT(encoder.add_blocks({{300}, 7, 2, nullptr}));
    if (with_blocks)
        CW_ASSERT(encoder.add_blocks({{300}, 7, 1, content.data()}));
    return encoder.finish({.next_inode = 400, .inode_count = 9, .reserved_blocks = 0});
}

// Returns the sequence behind the batch.
uint64_t add_batch(Seed& seed, uint8_t place, uint64_t sequence,
                   const std::vector<std::vector<std::byte>>& records)
{
    FsyncHeader header{.volume_uuid = fuzz_uuid(),
                       .epoch = log_input::kEpoch,
                       .generation = log_input::kCommitted.next(),
                       .generation_first = 1,
                       .generation_before = log_input::kCommitted,
                       .sequence = sequence,
                       .record_count = static_cast<uint32_t>(records.size())};
    std::vector<Bytes> spans(records.begin(), records.end());
    for (const Bytes record : spans)
        header.content_bytes += fsync_record_room(record.size());
    std::vector<std::byte> blocks(size_t{header.block_count()} * kBlockBytes);
    encode_fsync_batch(header, spans, blocks);
    for (uint32_t block = 0; block < header.block_count(); ++block)
        add_block(seed, static_cast<uint8_t>(place + block), log_input::kFitContent,
                  Bytes(blocks).subspan(size_t{block} * kBlockBytes, kBlockBytes));
    return header.end_sequence();
}

void make_fsyncs(const std::string& folder)
{
    Seed one;
    add_batch(one, 0, 1, {sample_record(false)});
    one.save(folder, 0);
    Seed several;
    const uint64_t second = add_batch(several, 0, 1, {sample_record(false), sample_record(false)});
    add_batch(several, 1, second, {sample_record(false)});
    add_batch(several, log_input::kLogBlocks + 3, 1, {sample_record(false), sample_record(false)});
    several.save(folder, 1);
    Seed blocks;
    add_batch(blocks, 2, 1, {sample_record(true)});
    blocks.save(folder, 2);
    Seed last;
    add_batch(last, 0, kMaxFsyncSequence, {sample_record(false)});
    last.save(folder, 3);
}

void make_frames(const std::string& folder)
{
    const char* const bodies[] = {
        R"({"command":"status"})",
        R"({"command":"scrub","volume":"\u00e9\\x","members":[1,2,{"id":3}]})",
        R"({"ok":true,"result":{"members":[{"id":1,"size":1.5e9,"path":null}]}})",
        R"({"ok":false,"error":{"code":"EROFS","message":"read-only"}})",
    };
    uint32_t number = 0;
    for (const std::string_view body : bodies) {
        Seed one;
        one.number(static_cast<uint8_t>(number | frame_input::kFitLength)).text(body);
        one.save(folder, number++);
    }
    Seed two;
    two.number(uint8_t{0});
    for (int i = 0; i < 2; ++i)
        two.number(static_cast<uint32_t>(std::string_view(bodies[0]).size())).text(bodies[0]);
    two.save(folder, number++);
    Seed deep;
    constexpr size_t kDepth = 1500;
    deep.number(frame_input::kFitLength).text("{\"a\":" + std::string(kDepth, '['));
    deep.text(std::string(kDepth, ']') + "}").save(folder, number);
}

}  // namespace

int main(int argument_count, char** arguments)
{
    if (argument_count != 2) {
        fprintf(stderr, "usage: make_corpus FOLDER\n");
        return 2;
    }
    const std::string folder = arguments[1];
    mkdir(folder.c_str(), 0777);
    make_superblocks(folder + "/superblock");
    make_group_maps(folder + "/group_map");
    make_nodes(folder + "/node");
    make_items(folder + "/item");
    make_intents(folder + "/intent");
    make_fsyncs(folder + "/fsync");
    make_frames(folder + "/frame");
    make_compressed(folder + "/compressed");
    return 0;
}
