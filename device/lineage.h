// SPDX-License-Identifier: MIT
// How superblocks of one volume relate: which history contains which, who went its own way, who missed
// commits. Pure functions over decoded superblocks; docs/FORMAT.md explains epochs.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "device/superblock_store.h"
#include "format/superblock_codec.h"

namespace cowraid {

// Whether `a` was written later than `b`, by generation; of two copies of one generation the one that knows
// of more absent members. A strict order among superblocks of one volume and one epoch.
bool newer_commit(const Superblock& a, const Superblock& b);

// Whether the newest commit of `other` is part of the past of head's newest, or can be given up: it changed
// nothing but member states, or was never acknowledged. False: each side holds acknowledged commits of its
// own, or nobody can tell. `all` has the rings of every member at hand, head and other included: what they
// recorded, and what not, is evidence.
bool follows(const RingReading& head, const RingReading& other, std::span<const RingReading* const> all);

// Whether `other` was written in an epoch that head's history holds. Its uuids everybody can read, its epochs
// only who may read a member: a device without one is a stranger's, or was away for longer than that.
bool shares_epoch(const Superblock& head, const Superblock& other);

// Why a device is left out: of one without such an epoch, and of a spare, when the members went back to an
// older state, or on without what it was at.
inline constexpr const char* kForgotten = "was away for more degraded mounts than the volume remembers";
inline constexpr const char* kOfLaterCommit = "was at a later commit than the members";

// What is said of a device without such an epoch that says it is `place`, like "member 1".
std::string stranger_text(const std::string& device, const std::string& place);

// The first commit whose writes the member behind `other` may have missed; none when it took part in all of
// them. `other` must follow head's newest, and its member must have a line in head's table.
std::optional<Generation> missed_from(const RingReading& head, const Superblock& other);

// Whether `own` says that its device took the place of a member, of which `head`, a later commit, knows
// nothing: there the device is the target still.
bool took_over_in_vain(const Superblock& head, const Superblock& own);

// Then it is the target again, if its rings say since when: that it took over is no longer in `own`.
void forget_take_over(RingReading& own, const Superblock& head);

}  // namespace cowraid
