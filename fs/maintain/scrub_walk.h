// SPDX-License-Identifier: MIT
// The way of a scrub through a mounted volume, a bounded piece at a time: mirrored nodes of all trees in key
// order, then the rows in use of every other block group in address order.
#pragma once

#include <cstdint>

#include "fs/txn/store.h"

namespace cowraid {

// Where the next piece begins. Holds nothing: commits may come between two pieces.
struct ScrubPosition {
    uint32_t tree = 0;  // of the trees of a commit; behind the last one: rows
    Key key{};  // nodes below begin here
    VolumeAddress group;  // the first one at or after this address
    uint64_t stripe = 0;
    bool done = false;

    friend bool operator==(const ScrubPosition&, const ScrubPosition&) = default;
};

// What is said of whole pieces that could not be looked at.
struct ScrubWalkCounts {
    uint64_t nodes = 0;  // with all their copies
    uint64_t unreadable_nodes = 0;  // what is below them was not reached
};

// Carries out one piece and moves the position behind it; kScrubPieceBytes of all members at most, roughly.
// What the last commit refers to is scrubbed; what came since will be. An error means that a tree could not
// be read: the piece is left out, the position is behind it all the same. No locks held.
inline constexpr uint64_t kScrubPieceBytes = 32 * kMiB;
Status scrub_piece(Store& store, ScrubMode mode, ScrubPosition& position, ScrubReport& report,
                   ScrubWalkCounts& counts);

// Bytes of all members, roughly, that a whole pass reads.
uint64_t scrub_bytes(Store& store);

}  // namespace cowraid
