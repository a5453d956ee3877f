// SPDX-License-Identifier: MIT
#include "fs/txn/block_state.h"

#include <bit>
#include <cstring>
#include <ctime>

#include "base/checksum.h"
#include "base/log_count.h"
#include "format/items.h"
#include "format/window_codec.h"

namespace cowraid {

namespace {

Key checksum_key(uint64_t window_address)
{
    return {window_address, static_cast<uint8_t>(ItemType::kChecksums), 0};
}

}  // namespace

Status ArrayNodeReader::read_node(const BlockRef& ref, uint64_t tree_id, AlignedBuffer& out)
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
    const Status status = array_.read({&piece, 1}, &out);
    if (status.err() == Err::kTooManyFaults && damage_ != nullptr)
        damage_->note(ref.address, kNodeBlocks, static_cast<uint64_t>(std::time(nullptr)),
                      DamageList::kByReader);
    return status;
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
            out[done + i] = {.known = (window.mask >> (first + i) & 1) != 0,
                             .checksum = window.values[first + i]};
        done += count;
    }
    return {};
}

void ChecksumLookup::expect(VolumeAddress address, std::span<BlockExpectation> out)
{
    if (lookup(timeline_.view(), address, out).ok())
        return;
    for (BlockExpectation& expectation : out)
        expectation = {.unavailable = true};
}

void ChecksumLookup::unrecoverable(VolumeAddress address)
{
    log_count(LogLevel::kError, "volume", "blocks that cannot be recovered, by address", 1,
              {.first = address.value, .last = address.value + kBlockBytes - 1});
}

bool ChecksumLookup::known_lost(VolumeAddress address)
{
    return damage_ != nullptr && !damage_->empty() && damage_->touches(address, address + kBlockBytes);
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
