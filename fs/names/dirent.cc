// SPDX-License-Identifier: MIT
#include "fs/names/dirent.h"

#include <algorithm>

namespace cowraid {

namespace {

// Calls take(cursor, payload) for the items of one bucket until it returns true for "that is the one".
// Returns the first cursor that no item has, 0 when there is none before the one that was taken.
template <typename Take> Result<uint64_t> scan_bucket(const ItemStore& store, const Key& first, Take&& take)
{
    uint64_t expected = first.offset;
    const uint64_t last = first.offset + kBucketSlots - 1;
    uint64_t free_cursor = 0;
    ItemScan scan(store, store.view(), first, {first.object, first.type, last});
    while (true) {
        const Status status = scan.next();
        if (status.err() == Err::kNotFound)
            break;
        CW_TRY(status);
        const uint64_t cursor = scan.key().offset;
        if (cursor != expected && free_cursor == 0)
            free_cursor = expected;
        expected = cursor + 1;
        CW_ASSIGN(const bool taken, take(cursor, std::span<const std::byte>(scan.value())));
        if (taken)
            return free_cursor;
    }
    if (free_cursor == 0 && expected <= last)
        free_cursor = expected;
    return free_cursor;
}

}  // namespace

Result<DirentSlot> find_dirent(const ItemStore& store, uint64_t seed, InodeNumber directory,
                               std::string_view name)
{
    DirentSlot slot;
    auto take = [&](uint64_t cursor, std::span<const std::byte> payload) -> Result<bool> {
        CW_ASSIGN(slot.entry, decode_dirent(cursor, payload));
        slot.found = slot.entry.name == name;
        return slot.found;
    };
    const Key first = dirent_key(directory, name_bucket(seed, name));
    CW_ASSIGN(slot.free_cursor, scan_bucket(store, first, take));
    return slot;
}

Result<XattrSlot> find_xattr(const ItemStore& store, uint64_t seed, InodeNumber inode, std::string_view name)
{
    XattrSlot slot;
    const Key first = xattr_key(inode, name_bucket(seed, name));
    const uint64_t end = first.offset + kBucketSlots;
    uint64_t expected = first.offset;
    bool more = false;
    ItemScan scan(store, store.view(), first, xattr_key(inode, end - 1));
    while (true) {
        const Status status = scan.next();
        const bool none = status.err() == Err::kNotFound;
        if (!none)
            CW_TRY(status);
        for (const uint64_t cursor = none ? end : scan.key().offset; expected < cursor; ++expected)
            slot.free_cursors.push_back(expected);
        if (none)
            break;
        ++expected;
        CW_ASSIGN(const XattrPart part, decode_xattr(scan.key().offset, scan.value()));
        if (part.name != name)
            continue;
        if (part.number != slot.cursors.size() || more != slot.found() ||
            slot.value.size() + part.value.size() > kXattrValueBytesMax)
            return Err::kCorrupt;
        more = part.more;
        slot.cursors.push_back(part.cursor);
        slot.value.insert(slot.value.end(), part.value.begin(), part.value.end());
    }
    if (more)
        return Err::kCorrupt;
    return slot;
}

}  // namespace cowraid
