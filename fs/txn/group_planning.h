// SPDX-License-Identifier: MIT
// How many block groups there should be: room ahead of the writers, published by a commit before it is
// needed, and a reserve of metadata so that a full volume can still delete.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "fs/txn/store.h"

namespace cowraid {

// Plans groups while the free room of published ones is short of what the next commits may need. Plans are
// in the map of the next commit and take data after it.
Status plan_ahead(Store& store);
// Blocks in free rows that groups for data should have, and those for metadata or system trees.
uint64_t data_ahead(const Store& store);
// `leaving_blocks`: in groups of that content that leave.
uint64_t metadata_ahead(const Store& store, uint32_t content, uint64_t leaving_blocks = 0);
// Data blocks that are not offered to anybody who reserves: a flush rounds up to whole rows once; two may be
// under way.
inline constexpr uint64_t kDataSlackBlocks = 2 * 64;
// Room for data that must be left before a group for nodes is made beyond what is kept for them: it may cost
// a group of data on each member that it is on.
uint64_t data_beside_nodes(const Store& store, const Profile& profile);
// Whether the balance under way empties the group. Commit thread.
bool is_in_balance(const Store& store, const GroupNumbers& numbers);
// Free room of one content in groups that take blocks and stay: that are not avoided. What is for nodes of
// all trees counts for both contents.
uint64_t lasting_room(const Store& store, uint32_t content);
// What the next group of nodes that the balance empties, and can, needs elsewhere: what is in it, and copies
// of nodes above. Walks all groups. Commit thread.
uint64_t nodes_to_move(const Store& store, uint32_t content);
// Whether there are groups, or will be, for nodes of file trees alone or of the other trees alone.
bool nodes_apart(const Store& store);
// Plans data groups until `wanted_blocks` are free or the slots for data run out. For `taken_blocks` of them,
// which writers were told are safe: opens degraded groups, then takes any slots, those of members that are
// away too. The caller publishes the map.
Status plan_for(Store& store, uint64_t wanted_blocks, uint64_t taken_blocks);
// Groups with columns on members out of service, or out of date, become degraded: they take blocks only where
// others do not suffice. Those that have all their columns again are open again. Mount, every commit and
// flush.
void sort_degraded_groups(Store& store);
// Opens degraded groups for nodes until others and they have `node_blocks` in free rows. The caller publishes
// the map.
void open_node_groups(Store& store, uint64_t node_blocks);
// `blocks` of free rows of a group of that content, for nodes, are about to close; the budget is without
// them. False: a commit of what is pending may need them; nothing is changed. Commit thread.
[[nodiscard]] bool give_up_node_room(Store& store, uint32_t content, uint64_t blocks);
// What slots can hold of data once the largest operation has room for its nodes. Nothing: no commit makes
// that room, so that data cannot be written either.
std::optional<uint64_t> potential_with_nodes(const Store& store);
// By how many blocks the capacity falls when data groups that hold nothing and lack a member have given their
// slots back: groups made in their place, of members that are present, have fewer data columns.
enum class Emptied : uint8_t {
    kOffered,  // groups whose room is offered to writers
    kAll,  // those on their way to be empty or out of the map, too
};
uint64_t narrowing_blocks(const Store& store, Emptied emptied);
// Recomputes what can be reserved. `taken_blocks` of reserved data have just been taken from the
// allocator.
void refresh_budget(Store& store, uint64_t taken_blocks = 0);

}  // namespace cowraid
