// SPDX-License-Identifier: MIT
// How superblocks of one volume relate: which history contains which, who went its own way, who missed
// commits. Pure functions over decoded superblocks; docs/FORMAT.md explains epochs.
#pragma once

#include <optional>

#include "device/superblock_store.h"
#include "format/superblock_codec.h"

namespace cowraid {

// Whether `a` was written later than `b`, by generation; of two copies of one generation the one that knows
// of more absent members. A strict order among superblocks of one volume and one epoch.
bool newer_commit(const Superblock& a, const Superblock& b);

// Whether `head` knows of everything `other` can have recorded: other's newest epoch is in head's history,
// or fell off its end and other's last commit is older than all that head lists.
bool history_covers(const Superblock& head, const Superblock& other);

// Whether `other`, though covered, has acknowledged commits that are not part of head's past: it went on in
// an epoch after head's side had left it, or both have the same commit number of the same epoch with
// different content. `head` is the newest superblock of `head_reading`, its older slots are compared too.
bool diverged(const RingReading& head_reading, const Superblock& other);

// The first commit whose writes the member behind `other` may have missed; none when it took part in all of
// them. `other` must be covered and not diverged, and its member must have a line in head's table.
std::optional<Generation> missed_from(const Superblock& head, const Superblock& other);

}  // namespace cowraid
