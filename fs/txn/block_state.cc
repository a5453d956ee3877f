// SPDX-License-Identifier: MIT
#include "fs/txn/block_state.h"

#include <bit>
#include <cstring>

#include "base/checksum.h"
#include "base/log_count.h"
#include "format/items.h"
#include "fs/txn/block_codec.h"

namespace cowraid {

namespace {

Key checksum_key(uint64_t window_address)
{
    return {window_address, static_cast<uint8_t>(ItemType::kChecksums), 0};
}

}  // namespace

Status ArrayNodeReader::read_node(const BlockRef& ref, uint64_t tree_id, std::span<std::byte> out)
{
    // Under parity a read may ask for checksums: the trees that lead to them would wait for themselves.
    if (tree_id < kFirstFileTree) {
        const Ref<const ArrayGroup> group = array_.group_at(ref.address);
        if (group && group->geometry.parity > 0)
            return Err::kCorrupt;
    }
    ReadPiece piece{.address = ref.address,
                    .block_count = kNodeBlocks,
                    .memory = out.data(),
                    .checksums = ref.checksums.data(),
                    .source = ChecksumSource::kPointer};
    return array_.read({&piece, 1});
}

Status ChecksumLookup::lookup(const View& view, VolumeAddress address, std::span<BlockExpectation> out)
{
    size_t done = 0;
    while (done < out.size()) {
        const uint64_t at = address.value + done * kBlockBytes;
        const uint64_t window_address = round_down(at, kChecksumWindowBytes);
        const size_t first = (at - window_address) / kBlockBytes;
        const size_t count = std::min<size_t>(out.size() - done, kChecksumWindowBlocks - first);
        const uint64_t wanted = (count == 64 ? UINT64_MAX : (uint64_t{1} << count) - 1) << first;

        BlockWindow window;
        view.open->checksums.merge_into({window_address}, window);
        if (view.committing && (window.mask & wanted) != wanted)
            view.committing->checksums.merge_into({window_address}, window);
        if ((window.mask & wanted) != wanted) {
            std::vector<std::byte> payload;
            const Status found =
                tree_lookup(cache_, view.committed->checksum_tree, checksum_key(window_address), payload);
            BlockWindow stored;
            if (found.ok() && decode_checksum_window(payload, stored))
                window.fill_from(stored);
            else if (found.err() != Err::kNotFound)
                return found.ok() ? Status(Err::kCorrupt) : found;
        }
        for (size_t i = 0; i < count; ++i)
            out[done + i] = {(window.mask >> (first + i) & 1) != 0, window.values[first + i]};
        done += count;
    }
    return {};
}

void ChecksumLookup::expect(VolumeAddress address, std::span<BlockExpectation> out)
{
    if (lookup(timeline_.view(), address, out).ok())
        return;
    for (BlockExpectation& expectation : out)
        expectation = {};
}

void ChecksumLookup::unrecoverable(VolumeAddress address)
{
    log_count(LogLevel::kError, "volume", "blocks that cannot be recovered, by address", 1,
              {.first = address.value, .last = address.value + kBlockBytes - 1});
}

std::vector<std::byte> encode_space_window(const SpaceWindow& window, Generation committing)
{
    std::vector<std::byte> payload(sizeof(DiskSpaceWindow) + window.bitmap.size());
    DiskSpaceWindow disk;
    disk.last_write = window.written ? committing.value : window.last_write.value;
    disk.block_count = window.block_count;
    disk.used_count = window.used_count;
    std::memcpy(payload.data(), &disk, sizeof disk);
    if (!window.bitmap.empty())
        std::memcpy(payload.data() + sizeof disk, window.bitmap.data(), window.bitmap.size());
    return payload;
}

Result<SpaceWindow> decode_space_window(VolumeAddress group_address, uint64_t first_stripe,
                                        std::span<const std::byte> payload)
{
    DiskSpaceWindow disk;
    if (payload.size() < sizeof disk)
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    SpaceWindow window;
    window.group_address = group_address;
    window.first_stripe = first_stripe;
    window.last_write = {disk.last_write};
    window.block_count = disk.block_count;
    window.used_count = disk.used_count;
    const bool uniform = window.used_count == 0 || window.used_count == window.block_count;
    const size_t bitmap_bytes = uniform ? 0 : (size_t{window.block_count} + 7) / 8;
    if (window.used_count > window.block_count || payload.size() != sizeof disk + bitmap_bytes)
        return Err::kCorrupt;
    const auto* bits = reinterpret_cast<const uint8_t*>(payload.data() + sizeof disk);
    window.bitmap.assign(bits, bits + bitmap_bytes);
    uint32_t used = 0;
    for (const uint8_t byte : window.bitmap)
        used += static_cast<uint32_t>(std::popcount(byte));
    if (!uniform && used != window.used_count)
        return Err::kCorrupt;
    return window;
}

Status TreeSpaceSource::load_windows(VolumeAddress group_address, std::vector<SpaceWindow>& out)
{
    const View view = timeline_.view();
    const auto type = static_cast<uint8_t>(ItemType::kSpaceWindow);
    TreeCursor cursor(cache_, view.committed->free_space_tree);
    CW_TRY(cursor.seek({group_address.value, type, 0}));
    while (cursor.valid() && cursor.key().object == group_address.value && cursor.key().type == type) {
        CW_ASSIGN(SpaceWindow window,
                  decode_space_window(group_address, cursor.key().offset, cursor.payload()));
        out.push_back(std::move(window));
        CW_TRY(cursor.next());
    }
    return {};
}

}  // namespace cowraid
