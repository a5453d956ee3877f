// SPDX-License-Identifier: MIT
// What is recorded about block groups that hold nothing: items of the checksum and free-space trees. They
// leave their trees in a commit before the groups leave the map (I-30).
#pragma once

#include <vector>

#include "fs/txn/transaction.h"

namespace cowraid {

struct Store;

struct GroupLeftovers {
    std::vector<Key> checksums, windows;

    [[nodiscard]] size_t count() const { return checksums.size() + windows.size(); }
};

enum class LeftoverShare : uint8_t { kNone, kSome, kAll };
// Appends what the commit of `view` has about the group: checksums up to a commit's share, windows only
// behind the last of the group's checksums. How much of it there is, and is in `left` now; kNone: there is
// nothing. An error, with which `left` stays as it was, means that a tree could not be read.
Result<LeftoverShare> find_leftovers(Store& store, const View& view, VolumeAddress group,
                                     GroupLeftovers& left);

// Appends the keys of windows with checksums of blocks in [first, end) that the commit of `view` has.
Status find_checksums(Store& store, const View& view, VolumeAddress first, VolumeAddress end,
                      std::vector<Key>& out);

// Has the open transaction erase them, as much as a commit has room for, the reserve included: it frees
// nodes. False: there is no room, or the transaction erases others already. Commit thread.
bool erase_leftovers(Store& store, Transaction& open, GroupLeftovers left);

}  // namespace cowraid
