// SPDX-License-Identifier: MIT
// The way of a scrub through a mounted volume, a bounded piece at a time: mirrored nodes of all trees in key
// order, then the rows in use of every other block group in address order, then the heads of members
// (fs/maintain/scrub_heads.h).
#pragma once

#include <cstdint>
#include <optional>

#include "alloc/bitmap.h"
#include "fs/txn/store.h"

namespace cowraid {

enum class ScrubScope : uint8_t {
    kAll,
    kStale,  // what stale columns of members in service may lack
    kReplaced,  // what is to be copied of a member that is being replaced
};

// Groups under parity and of data, those first that can lose least.
struct GroupOrder : RefCounted<GroupOrder> {
    std::vector<VolumeAddress> groups;
    std::vector<VolumeAddress> rising;  // the same
};

// Which block groups a scrub reads; all that is not in block groups, and mirrored nodes, it always reads.
struct ScrubSelection {
    uint64_t verified_before = 0;  // seconds since 1970; 0: any
    uint64_t bytes_max = 0;  // behind so many bytes of members it begins no other group; 0: no limit
    bool new_only = false, damaged_only = false;
    // Trees could not be read, so that nobody knows what is in use, or what it must be. Who copies takes what
    // the source has there, unverified; who fills, of mirrored nodes what another copy has.
    bool as_it_is = false;
    Ref<const GroupOrder> first;  // these come before all others; null: none

    [[nodiscard]] bool takes_all() const
    {
        return verified_before == 0 && bytes_max == 0 && !new_only && !damaged_only;
    }
};

// Of rows, read in one turn of all members while users wait; of nodes, which lie apart, half as much.
inline constexpr uint64_t kHeldBackBytes = 2 * kMiB;
// What a member would read in the time that one request takes for something that lies apart, roughly.
inline constexpr uint64_t kSeekBytes = 64 * kKiB;
inline constexpr WorkTurns::Room kRoomForSingles{.held_back = kHeldBackBytes, .quiet = kHeldBackBytes};

inline BackgroundWork work_of(ScrubScope scope)
{
    if (scope == ScrubScope::kAll)
        return BackgroundWork::kScrub;
    return scope == ScrubScope::kStale ? BackgroundWork::kCatchUp : BackgroundWork::kCopy;
}

struct ScrubOrder {
    ScrubMode mode = ScrubMode::kRepair;
    ScrubScope scope = ScrubScope::kAll;
    ScrubSelection selection;
    uint64_t bytes_begun = 0;  // by pieces before this one
    uint64_t piece_bytes = 32 * kMiB;  // of all members, roughly; at least a window of the free-space tree
};

// Where the next piece begins. Holds nothing: commits may come between two pieces.
struct ScrubPosition {
    bool mirrors_done = false;  // rows of groups with mirrored nodes, before all nodes: copied as they are
    uint32_t tree = 0;  // of the trees of a commit; behind the last one: rows
    Key key{};  // nodes below begin here
    uint32_t of_first = 0;  // of the groups that come before the others
    VolumeAddress group;  // that one, or the first one at or after this address
    uint64_t stripe = 0;
    bool rows_done = false;
    uint32_t head = 0;  // piece of the heads
    bool done = false;
    // Passes by percent go round the groups, by address: where this one begins, from there to the last group
    // and on from the first. From when its rows are done: where the next one begins.
    VolumeAddress round;

    [[nodiscard]] bool in_trees() const { return tree < kTreeCount; }
    [[nodiscard]] bool at_begin() const
    {
        ScrubPosition begin;
        begin.round = round;
        begin.group = group == round ? round : VolumeAddress{};
        return *this == begin;
    }
    friend bool operator==(const ScrubPosition&, const ScrubPosition&) = default;
};

// What is said of whole pieces that could not be looked at.
struct ScrubWalkCounts {
    uint64_t heads = 0;  // copies of the superblock and of the block-group map
    uint64_t head_bytes = 0;
    uint64_t nodes = 0;  // with all their copies
    uint64_t unreadable_nodes = 0;
    bool unreached = false;  // there are nodes below one that is unreadable
    std::vector<BlockRef> lost_nodes;  // of the unreadable ones, those that redundancy does not have any more
};

// Used blocks of a run of stripes, as a commit has them, and those rows with one that are in scope.
struct UsedBlocks {
    uint64_t first_stripe = 0, stripe_count = 0;
    Bitmap used;
    std::vector<StripeRows> rows;
    uint64_t left_out_bytes = 0;  // in rows of these stripes that are not among `rows`, parity included
    bool unknown = false;  // nobody says what is used: all of it may be
};

// Rows of one group, to be scrubbed by scrub_rows(). What the last commit refers to is in it; what came since
// will be in a later pass.
struct ScrubPiece {
    View view;  // keeps the addresses from being reused
    std::optional<uint32_t> head;  // a piece of the heads, and nothing else
    Ref<const ArrayGroup> group;  // null: of no group
    uint64_t bytes = 0;  // of members, roughly
    UsedBlocks blocks;
    Generation since;  // rows of windows that were last written before this commit are left out
    bool first = false, last = false;  // of the group; the last one has no rows
};

// Moves the position behind the next piece. Nodes are scrubbed at once; heads and rows are what the caller
// gets. An error means that a tree could not be read: the piece is left out. No locks held.
Status next_piece(Store& store, const ScrubOrder& order, ScrubPosition& position, ScrubPiece& piece,
                  WorkTurns& turns, ScrubReport& report, ScrubWalkCounts& counts);
// Several pieces at a time may be under way. No locks held.
void scrub_rows(Store& store, const ScrubOrder& order, const ScrubPiece& piece, WorkTurns& turns,
                ScrubReport& report);

// Mirrored groups with nodes: of these the verifier knows nothing, pointers tell. Their columns have all when
// every tree was walked.
bool has_mirrored_nodes(const ArrayGroup& group);
bool in_scope(Store& store, ScrubScope scope, const ArrayGroup& group);
// Of groups in scope, when it begins. Null for a scrub of all: that one goes on by address after a mount.
Ref<const GroupOrder> order_by_margin(Store& store, ScrubScope scope);

// Bytes of all members, roughly, that a whole pass reads; at most.
uint64_t scrub_bytes(Store& store, ScrubScope scope, const ScrubSelection& selection);
// Of all that is not mirrored nodes.
uint64_t bytes_of_percent(Store& store, uint64_t percent);
// The first group at or behind the address, else the first one of all.
VolumeAddress begin_of_round(Store& store, VolumeAddress address);

}  // namespace cowraid
