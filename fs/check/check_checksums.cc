// SPDX-License-Identifier: MIT
// The checksum tree, and which blocks it must know: data blocks, and every block of a row of a parity group
// that holds a referenced one (parity included).
#include <bit>

#include "alloc/row_mask.h"
#include "format/items.h"
#include "format/window_codec.h"
#include "fs/check/check_passes.h"

namespace cowraid {

namespace {

class ChecksumTreeCheck final : public TreeVisitor {
public:
    explicit ChecksumTreeCheck(CheckContext& context) : context_(context), watch_(context, kGroupSystem) { }

    void node(const Node& node) override { watch_.node(node); }
    void problem(const std::string& text) override { watch_.problem(text); }
    void item(const Key& key, std::span<const std::byte> payload) override;
    [[nodiscard]] bool whole() const { return watch_.whole(); }

private:
    CheckContext& context_;
    NodeWatch watch_;
};

void ChecksumTreeCheck::item(const Key& key, std::span<const std::byte> payload)
{
    BlockWindow window;
    if (key.type != static_cast<uint8_t>(ItemType::kChecksums) || key.offset != 0 ||
        key.object % kChecksumWindowBytes != 0 || key.object >= kMaxVolumeAddress ||
        !decode_checksum_window(payload, window)) {
        context_.findings.add("tree", {}, "checksum tree: the item (%llu %u %llu) is not one",
                              as_ull(key.object), unsigned{key.type}, as_ull(key.offset));
        return;
    }
    const uint32_t outside = context_.census.note_checksums({key.object}, window.mask);
    if (outside > 0)
        context_.findings.add("checksum", {key.object}, "%u checksums of blocks outside every block group",
                              outside);
}

// Bits of the rows of one chunk.
Bits256 column_bits(const Bitmap& bitmap, const Geometry& geometry, uint64_t stripe, uint32_t column)
{
    Bits256 bits;
    const uint64_t first = offset_of(geometry, {stripe, column, 0}) / kBlockBytes;
    for (uint32_t row = 0; row < geometry.rows(); row += 64)
        bits.words[row / 64] = bitmap.bits(first + row, std::min(64u, geometry.rows() - row));
    return bits;
}

// Blocks of a stripe that need a checksum and have none.
struct Uncovered {
    uint64_t block_count = 0;
    VolumeAddress first;
};

void look_at_column(const BlockCensus::Group& group, uint64_t stripe, uint32_t column, const Bits256& needed,
                    Uncovered& uncovered)
{
    const Bits256 have = column_bits(group.checksums, group.geometry(), stripe, column);
    for (uint32_t word = 0; word < needed.words.size(); ++word) {
        const uint64_t lacks = needed.words[word] & ~have.words[word];
        if (lacks == 0)
            continue;
        const uint32_t row = word * 64 + static_cast<uint32_t>(std::countr_zero(lacks));
        if (uncovered.block_count == 0)
            uncovered.first = group.address() + offset_of(group.geometry(), {stripe, column, row});
        uncovered.block_count += static_cast<uint64_t>(std::popcount(lacks));
    }
}

void check_stripe_cover(CheckContext& context, const BlockCensus::Group& group, uint64_t stripe)
{
    const Geometry& geometry = group.geometry();
    const Bits256 rows = used_rows(group.used, geometry, stripe);
    Uncovered uncovered;
    for (uint32_t column = 0; column < geometry.data_columns + geometry.parity; ++column)
        look_at_column(group, stripe, column,
                       geometry.parity > 0 ? rows : column_bits(group.used, geometry, stripe, column),
                       uncovered);
    if (uncovered.block_count > 0)
        context.findings.add("checksum", uncovered.first, "%llu blocks of one stripe have no checksum",
                             as_ull(uncovered.block_count));
}

void check_group_cover(CheckContext& context, const BlockCensus::Group& group)
{
    if (!group.keeps_checksums()) {
        const uint64_t count = group.checksums.count(0, group.checksums.bit_count());
        if (count > 0)
            context.findings.add("checksum", group.address(),
                                 "%llu checksums of blocks in a group that keeps none", as_ull(count));
        return;
    }
    // Where nodes that could not be read may have said more, what is not known is not wrong.
    if (!context.checksum_tree_whole)
        return;
    const uint64_t stripe_count = group.geometry().stripe_count();
    for (uint64_t stripe = group.next_used_stripe(0); stripe < stripe_count;
         stripe = group.next_used_stripe(stripe + 1))
        check_stripe_cover(context, group, stripe);
}

}  // namespace

void check_checksum_tree(CheckContext& context, const TreeRoot& tree)
{
    ChecksumTreeCheck check(context);
    check_tree(context.cache, tree, check).ignore();  // problems went to the visitor
    context.checksum_tree_whole = check.whole();
}

void check_checksum_cover(CheckContext& context)
{
    for (const BlockCensus::Group& group : context.census.groups())
        check_group_cover(context, group);
}

}  // namespace cowraid
