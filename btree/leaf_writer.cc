// SPDX-License-Identifier: MIT
#include "btree/leaf_writer.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "btree/node_image.h"

namespace cowraid {

namespace {

// Nodes filled by appending keep a little room: an item that grows should not split them at once.
constexpr uint64_t append_fill(uint64_t room)
{
    return room - room / 20;
}

// A wide split aims at four fifths, so that the parts do not all overflow again with the next update.
constexpr uint64_t wide_split_fill(uint64_t room)
{
    return room - room / 5;
}

// One leaf under construction: items grow up, payloads down.
class LeafWriter {
public:
    LeafWriter() : image_(kNodeBytes) { }

    [[nodiscard]] uint32_t used_bytes() const
    {
        return static_cast<uint32_t>(count_ * sizeof(DiskLeafItem)) + kNodeBytes - floor_;
    }
    [[nodiscard]] bool takes(uint64_t bytes, uint64_t target) const
    {
        const uint64_t used = used_bytes();
        return used == 0 || (used + bytes <= kNodeRoomBytes && used + bytes / 2 <= target);
    }
    void append_run(const std::byte* source, uint32_t first, uint32_t count);
    void append_item(const Key& key, std::span<const std::byte> payload);
    AlignedBuffer finish();

private:
    DiskLeafItem* items_end()
    {
        return reinterpret_cast<DiskLeafItem*>(image_.data() + sizeof(DiskNodeHeader)) + count_;
    }

    AlignedBuffer image_;
    uint32_t count_ = 0;
    uint32_t floor_ = kNodeBytes;  // where the payloads begin
};

void LeafWriter::append_run(const std::byte* source, uint32_t first, uint32_t count)
{
    CW_ASSERT(used_bytes() + leaf_run_bytes(source, first, count) <= kNodeRoomBytes);
    const uint32_t end = payload_end(source, first);
    const uint32_t begin = payload_end(source, first + count);
    const uint32_t shift = floor_ - end;  // modulo 2^32, as is the sum below
    floor_ -= end - begin;
    std::memcpy(image_.data() + floor_, source + begin, end - begin);
    DiskLeafItem* items = items_end();
    std::memcpy(items, leaf_items(source) + first, count * sizeof(DiskLeafItem));
    for (uint32_t i = 0; i < count; ++i)
        items[i].data_offset = static_cast<uint16_t>(items[i].data_offset + shift);
    count_ += count;
}

void LeafWriter::append_item(const Key& key, std::span<const std::byte> payload)
{
    CW_ASSERT(used_bytes() + sizeof(DiskLeafItem) + payload.size() <= kNodeRoomBytes);
    const auto bytes = static_cast<uint16_t>(payload.size());
    floor_ -= bytes;
    if (bytes != 0)
        std::memcpy(image_.data() + floor_, payload.data(), bytes);
    *items_end() = {.object = key.object,
                    .offset = key.offset,
                    .type = key.type,
                    .reserved1 = 0,
                    .data_offset = static_cast<uint16_t>(floor_),
                    .data_bytes = bytes,
                    .reserved2 = {}};
    ++count_;
}

AlignedBuffer LeafWriter::finish()
{
    DiskNodeHeader header{};
    header.item_count = count_;
    std::memcpy(image_.data(), &header, sizeof header);
    auto* gap = reinterpret_cast<std::byte*>(items_end());
    std::memset(gap, 0, static_cast<size_t>(image_.data() + floor_ - gap));
    return std::move(image_);
}

// The pieces of a merge, eaten from the front.
class PieceReader {
public:
    explicit PieceReader(const LeafMerge& merge) : pieces_(merge.pieces), remaining_bytes_(merge.bytes)
    {
        if (!pieces_.empty())
            piece_ = pieces_.front();
    }

    [[nodiscard]] bool done() const { return pieces_.empty(); }
    [[nodiscard]] uint64_t remaining_bytes() const { return remaining_bytes_; }
    // Moves as many items of the first piece as the writer takes. False when it took none.
    bool feed(LeafWriter& writer, uint64_t target);

private:
    void consume(uint32_t count, uint64_t bytes);

    std::span<const LeafPiece> pieces_;
    LeafPiece piece_;  // what is left of pieces_.front()
    uint64_t remaining_bytes_;
};

void PieceReader::consume(uint32_t count, uint64_t bytes)
{
    remaining_bytes_ -= bytes;
    piece_.first += count;
    piece_.count -= count;
    if (piece_.count > 0)
        return;
    pieces_ = pieces_.subspan(1);
    if (!pieces_.empty())
        piece_ = pieces_.front();
}

bool PieceReader::feed(LeafWriter& writer, uint64_t target)
{
    const uint32_t bytes = piece_.bytes();
    const LeafPiece piece = piece_;
    if (piece.image == nullptr) {
        if (!writer.takes(bytes, target))
            return false;
        writer.append_item(piece.key, piece.payload);
        consume(1, bytes);
        return true;
    }
    if (writer.used_bytes() + bytes <= std::min<uint64_t>(target, kNodeRoomBytes)) {
        writer.append_run(piece.image, piece.first, piece.count);
        consume(piece.count, bytes);
        return true;
    }
    const uint32_t item_bytes = leaf_run_bytes(piece.image, piece.first, 1);
    if (!writer.takes(item_bytes, target))
        return false;
    writer.append_run(piece.image, piece.first, 1);
    consume(1, item_bytes);
    return true;
}

}  // namespace

uint64_t fill_target(uint64_t remaining, uint64_t room, FillMode mode)
{
    if (remaining <= room)
        return room;
    if (mode == FillMode::kAppend)
        return append_fill(room);
    const uint64_t parts = std::max(divide_up(remaining, room), remaining / wide_split_fill(room));
    return divide_up(remaining, parts);
}

bool append_overflows(uint64_t used_bytes, uint64_t piece_bytes)
{
    return used_bytes + piece_bytes > kNodeRoomBytes || used_bytes >= append_fill(kNodeRoomBytes);
}

void write_leaves(const LeafMerge& merge, FillMode mode, std::vector<AlignedBuffer>& images)
{
    PieceReader pieces(merge);
    while (!pieces.done()) {
        const uint64_t target = fill_target(pieces.remaining_bytes(), kNodeRoomBytes, mode);
        LeafWriter writer;
        while (!pieces.done() && pieces.feed(writer, target))
            continue;
        images.push_back(writer.finish());
    }
}

}  // namespace cowraid
