// SPDX-License-Identifier: MIT
// Finding directory entries and extended attributes through the buckets of their names (format/name_codec.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/name_codec.h"
#include "fs/txn/item_store.h"

namespace cowraid {

// What one bucket says about a name. `free_cursor` is 0 when the bucket is full.
struct DirentSlot {
    bool found = false;
    Dirent entry;
    uint64_t free_cursor = 0;
};
struct XattrSlot {
    std::vector<uint64_t> cursors;  // of its parts; none: the name is not there
    ItemBytes value;
    std::vector<uint64_t> free_cursors;  // of the bucket, rising

    [[nodiscard]] bool found() const { return !cursors.empty(); }
};
// Scan the bucket of `name`, as of now. Take no locks of their own; what they return stays true only while
// the inode that owns the items is locked. Without that lock an attribute of several parts that somebody
// replaces meanwhile may be found as parts of two values, which no check tells from one, as kCorrupt, or not
// at all. May read nodes. kCorrupt, kIo, kTooManyFaults.
Result<DirentSlot> find_dirent(const ItemStore& store, uint64_t seed, InodeNumber directory,
                               std::string_view name);
Result<XattrSlot> find_xattr(const ItemStore& store, uint64_t seed, InodeNumber inode, std::string_view name);

}  // namespace cowraid
