// SPDX-License-Identifier: MIT
#include "fs/maintain/group_leftovers.h"

#include <algorithm>

#include "fs/txn/operation.h"
#include "fs/txn/store.h"

namespace cowraid {

namespace {

// Windows of checksums that leave their tree in one commit: some 4 MiB of leaves.
constexpr size_t kWindowsPerCommit = 8192;

// Appends the keys of items in [from, end] that are there, at most `max` in `keys`.
Status find_keys(NodeCache& cache, const TreeRoot& tree, const Key& from, const Key& end, size_t max,
                 std::vector<Key>& keys)
{
    TreeCursor cursor(cache, tree);
    CW_TRY(cursor.seek(from));
    while (cursor.valid() && cursor.key() <= end && keys.size() < max) {
        keys.push_back(cursor.key());
        CW_TRY(cursor.next());
    }
    return {};
}

}  // namespace

Result<LeftoverShare> find_leftovers(Store& store, const View& view, VolumeAddress address,
                                     GroupLeftovers& left)
{
    const size_t room = kWindowsPerCommit - left.checksums.size();
    if (room == 0)
        return LeftoverShare::kSome;
    const Ref<const ArrayGroup> group = store.volume.array().group_at(address);
    if (!group)
        return Err::kNotFound;
    const uint64_t end = address.value + group->record.span_bytes();
    const auto checksums = static_cast<uint8_t>(ItemType::kChecksums);
    const auto windows = static_cast<uint8_t>(ItemType::kSpaceWindow);
    const auto summary = static_cast<uint8_t>(ItemType::kGroupSummary);
    const TreeRoot& space = view.committed->free_space_tree;
    const Key summary_key{0, summary, address.value};
    GroupLeftovers own;
    CW_TRY(find_keys(store.cache, view.committed->checksum_tree, {address.value, checksums, 0},
                     {end - 1, checksums, 0}, room, own.checksums));
    const bool is_all = own.checksums.size() < room;
    if (is_all) {
        CW_TRY(find_keys(store.cache, space, summary_key, summary_key, SIZE_MAX, own.windows));
        CW_TRY(find_keys(store.cache, space, {address.value, windows, 0},
                         {address.value, windows, UINT64_MAX}, SIZE_MAX, own.windows));
    }
    left.checksums.insert(left.checksums.end(), own.checksums.begin(), own.checksums.end());
    left.windows.insert(left.windows.end(), own.windows.begin(), own.windows.end());
    return own.count() == 0 ? LeftoverShare::kNone : is_all ? LeftoverShare::kAll : LeftoverShare::kSome;
}

Status find_checksums(Store& store, const View& view, VolumeAddress first, VolumeAddress end,
                      std::vector<Key>& out)
{
    const auto type = static_cast<uint8_t>(ItemType::kChecksums);
    return find_keys(store.cache, view.committed->checksum_tree,
                     {round_down(first.value, kChecksumWindowBytes), type, 0}, {end.value - 1, type, 0},
                     SIZE_MAX, out);
}

bool erase_leftovers(Store& store, Transaction& open, GroupLeftovers left)
{
    constexpr size_t kFewest = 64;
    if (open.left_count > 0)
        return false;
    ChangeReservation reservation(store.ledger);
    while (!reservation.take(changes_of_left(left.count()), Leave::kMoves)) {
        if (left.checksums.size() <= kFewest)
            return false;
        left.windows.clear();
        left.checksums.resize(left.checksums.size() / 2);
    }
    std::sort(left.windows.begin(), left.windows.end());
    open.left_count = left.count();
    open.left_checksums = std::move(left.checksums);
    open.left_windows = std::move(left.windows);
    open.dirty = true;
    return true;
}

}  // namespace cowraid
