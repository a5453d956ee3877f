// SPDX-License-Identifier: MIT
// What a leaf will hold after a batch of updates, described by pieces: runs of old items, which are copied as
// a whole, and single new ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "btree/cow_tree.h"
#include "format/key.h"

namespace cowraid {

// Points into the images and updates it was made from.
struct LeafPiece {
    // Items [first, first + count) of this image; null: one new item, described by the fields below.
    const std::byte* image = nullptr;
    uint32_t first = 0;
    uint32_t count = 1;
    Key key{};
    std::span<const std::byte> payload{};

    // Room the piece takes in a leaf.
    [[nodiscard]] uint32_t bytes() const;
};

struct LeafMerge {
    std::vector<LeafPiece> pieces;  // by rising key
    uint64_t bytes = 0;  // room all pieces take
    bool changed = false;  // false: the updates leave the leaf as it is

    // Adds items of an image behind what is there already.
    void add_run(const std::byte* image, uint32_t first, uint32_t count);
    void add_item(const Key& key, std::span<const std::byte> payload);
    void clear();

    std::vector<std::vector<std::byte>> combined;  // payloads made by the Combiner
};

// Merges `updates`, sorted by key, into the items of `image` (null: no items). An update that would leave its
// item as it is does not count as a change, unless it is kMove. kTooBig when the combiner makes more than
// kMaxItemBytes; its errors.
Status merge_leaf(const std::byte* image, std::span<const TreeUpdate> updates, Combiner* combiner,
                  LeafMerge& out);

}  // namespace cowraid
