// SPDX-License-Identifier: MIT
#include "btree/leaf_merge.h"

#include <algorithm>

#include "base/assert.h"
#include "btree/node_image.h"

namespace cowraid {

uint32_t LeafPiece::bytes() const
{
    if (image != nullptr)
        return leaf_run_bytes(image, first, count);
    return static_cast<uint32_t>(sizeof(DiskLeafItem) + payload.size());
}

void LeafMerge::add_run(const std::byte* image, uint32_t first, uint32_t count)
{
    if (count == 0)
        return;
    bytes += leaf_run_bytes(image, first, count);
    if (!pieces.empty() && pieces.back().image == image &&
        pieces.back().first + pieces.back().count == first) {
        pieces.back().count += count;
        return;
    }
    pieces.push_back({.image = image, .first = first, .count = count});
}

void LeafMerge::add_item(const Key& key, std::span<const std::byte> payload)
{
    bytes += sizeof(DiskLeafItem) + payload.size();
    pieces.push_back({.key = key, .payload = payload});
}

void LeafMerge::clear()
{
    pieces.clear();
    combined.clear();
    bytes = 0;
    changed = false;
}

namespace {

struct Outcome {
    bool present;  // the item exists afterwards
    std::span<const std::byte> payload;
};

Result<Outcome> outcome_of(const TreeUpdate& update, bool was_present, std::span<const std::byte> old_value,
                           Combiner* combiner, LeafMerge& out)
{
    switch (update.kind) {
    case TreeUpdate::Kind::kErase:
        return Outcome{false, {}};
    case TreeUpdate::Kind::kPut:
        CW_ASSERT(update.value.size() <= kMaxItemBytes);
        return Outcome{true, update.value};
    case TreeUpdate::Kind::kMove:
        return Outcome{was_present, old_value};
    case TreeUpdate::Kind::kCombine:
        break;
    }
    CW_ASSERT(combiner != nullptr);
    std::vector<std::byte> made;
    CW_TRY(combiner->combine(update.key, old_value, update.value, made));
    if (made.size() > kMaxItemBytes)
        return Err::kTooBig;
    if (made.empty())
        return Outcome{false, {}};
    out.combined.push_back(std::move(made));  // its bytes stay where they are when `combined` grows
    return Outcome{true, out.combined.back()};
}

}  // namespace

Status merge_leaf(const std::byte* image, std::span<const TreeUpdate> updates, Combiner* combiner,
                  LeafMerge& out)
{
    const uint32_t count = image == nullptr ? 0 : node_header(image).item_count.get();
    const DiskLeafItem* items = image == nullptr ? nullptr : leaf_items(image);
    uint32_t position = 0;  // first old item not yet dealt with
    for (const TreeUpdate& update : updates) {
        const uint32_t found = lower_bound_in(items, position, count, update.key);
        out.add_run(image, position, found - position);
        position = found;
        const bool was_present = found < count && key_of(items[found]) == update.key;
        const std::span<const std::byte> old_value =
            was_present ? leaf_payload(image, found) : std::span<const std::byte>{};
        CW_ASSIGN(const Outcome outcome, outcome_of(update, was_present, old_value, combiner, out));
        out.changed = out.changed || update.kind == TreeUpdate::Kind::kMove;
        if (outcome.present == was_present && std::ranges::equal(outcome.payload, old_value))
            continue;  // the next run takes the old item along
        out.changed = true;
        if (outcome.present)
            out.add_item(update.key, outcome.payload);
        if (was_present)
            ++position;
    }
    out.add_run(image, position, count - position);
    return {};
}

}  // namespace cowraid
