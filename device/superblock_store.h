// SPDX-License-Identifier: MIT
// Superblock rings and block-group maps on members: reading the best, writing all.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/block_device.h"
#include "device/member_set.h"
#include "format/group_map_codec.h"
#include "format/superblock_codec.h"

namespace cowraid {

// What the rings of one device say.
struct RingReading {
    std::vector<Superblock> valid;  // every slot that decodes, newest generation first, duplicates dropped
    // The same, of slots by which this device, as its uuid says, was another member before: the target of a
    // replacement.
    std::vector<Superblock> before;
    uint32_t damaged_slots = 0;  // slots that are neither valid nor blank nor from an older volume
    std::array<uint32_t, kSuperblockRingCount> damaged_mask{};  // the same per ring, one bit per slot
    bool read_error = false;  // part of the rings could not be read
};

// Reads both rings of a device. Where slots of several volumes are found, the one created last counts, and
// within it the member id of its newest slot (RingReading::before has others). kNotFound: no valid slot of
// any volume (not a member). kUnsupported: the newest valid slot is of another format. kIo: nothing could be
// read. kMemberGone.
Result<RingReading> read_rings(BlockDevice& device);

// Why read_rings() answered kUnsupported: the format version or the features by name, and what to do.
std::string unsupported_reason(BlockDevice& device);

// Overwrites both rings with zeros and flushes. mkfs does this before the first superblock: nothing else
// keeps a slot of an older volume from looking like a commit of the new one when clocks go backwards.
Status erase_rings(BlockDevice& device);

// Writes `superblock` (its member_id set per member) into both rings of every member that `members` has in
// service, or of those in `only` unless that is empty, as one batch, without flushing. Members that fail are
// counted and handed to MemberSet::fail() together; kTooManyFaults when the volume cannot do without them,
// and, with nothing written, after any such failure. Both copies of a slot are in flight at once: to change
// the content of a generation that was ever acknowledged, raise the generation; only identical bytes may be
// written again.
Status write_superblocks(MemberSet& members, const Superblock& superblock,
                         std::span<const MemberId> only = {});

// Makes the device spare `id` of `superblock`, which has a line of it: that superblock goes into both of its
// rings, which must be blank, and is flushed. kIo, kMemberGone.
Status write_spare(BlockDevice& device, const Superblock& superblock, MemberId id);

// Gives the spare the newer superblock of a later commit, unless that would overwrite the one that it has:
// power may fail. kIo, kMemberGone; kNotFound: it has none.
Status move_spare(BlockDevice& device, const Superblock& superblock, MemberId id);

// Writes map bytes into place `place` of every member in service, as one batch, without flushing. Failure
// as for write_superblocks(). kNoSpace, with nothing written, when the map is longer than the room that a
// member has for it.
Status write_group_map(MemberSet& members, const Superblock& superblock, std::span<const std::byte> bytes,
                       uint32_t place);

// Slots of one member that hold neither a superblock nor zeros: one bit per slot, per ring.
struct DamagedSlots {
    MemberId member;
    std::array<uint32_t, kSuperblockRingCount> slots{};
};

// Overwrites the slots with zeros, as one batch, without flushing; failures as for write_superblocks(). A
// slot that one crash tore must not stay: the next commit of the same number may be torn as well, and leave
// the sectors in place that the first one lacked.
Status erase_slots(MemberSet& members, std::span<const DamagedSlots> damaged);

// What a mount does before it makes a commit: makes the commit it found durable on every member in service,
// map and superblock, byte for byte as it was. After a crash it may be on one member only, while the others
// still name the map place that the next commit overwrites. kCorrupt when `map` is not the one that
// `superblock` names; failures as for write_superblocks() and flush_members().
// Superblocks go to those in `only` unless that is empty.
Status rewrite_commit(MemberSet& members, const Superblock& superblock, const GroupMap& map,
                      std::span<const MemberId> only = {});

// The map that `superblock` names, from the first member whose copy is right. Bad copies are counted.
Result<GroupMap> read_group_map(MemberSet& members, const Superblock& superblock);

// What is wrong with a member's copy, in one of its rings, of the superblock that counts, or with its copy of
// the map that this names; null: nothing. Nothing is counted.
const char* superblock_copy_fault(BlockDevice& device, const Superblock& chosen, const MemberRecord& record,
                                  uint32_t ring);
// Whether power failed while the superblock that counts was written, for all that the ring says: it has none
// of that commit, and the one of the commit before is right.
bool power_cut_explains(BlockDevice& device, const Superblock& chosen, uint32_t ring);
const char* map_copy_fault(BlockDevice& device, const Superblock& chosen, const MemberRecord& record);

// Flushes every member in service as one batch. A member whose flush failed is never asked again: failures as
// for write_superblocks().
Status flush_members(MemberSet& members);

}  // namespace cowraid
