// SPDX-License-Identifier: MIT
// What members that are absent or behind mean for a volume, and how that is said.
#pragma once

#include <string>
#include <vector>

#include "device/assembly.h"
#include "device/member_set.h"
#include "format/group_map_codec.h"
#include "fs/volume/mount_options.h"

namespace cowraid {

// "1 more member may fail": what the block groups can still do without, columns that lack something counted.
// When they lack too much, which profile is beyond what it tolerates. Says so when fewer suffice for reading
// than for writing, which `needed` are.
std::string tolerance_text(const Superblock& superblock, const GroupMap& map,
                           const std::vector<MemberId>& missing, size_t needed);

// "member 2 is absent, member 3 was away since commit 7 (/dev/sdc), member 4 is without writes it missed":
// what keeps members from having everything. Empty when all have. The assembly's devices may be in `members`
// already. Nothing depends on the target of `replace`.
std::string lacking_text(const Assembly& assembly, const ReplaceRecord& replace, const MemberSet& members,
                         const GroupMap& map);

// Members with a say in whether the volume may be written, and with columns, the `missing` left out: all but
// the target of a replacement, which may come, be away and go without any consequence for the others.
size_t voter_count(const Superblock& superblock, const std::vector<MemberId>& missing = {});

// Of so many voters, those that must be there for writing: a majority, or with `half` half of them. Without
// that two halves could both go on.
size_t needed_for_writing(size_t voters, bool half);

// As many voters of `table` must stay as are a majority in `majority_of`; where the map says that the target
// of a replacement has all, it stands in for its source.
MemberSet::Quorum quorum_for_writing(const Superblock& table, const Superblock& majority_of,
                                     const GroupMap& map, bool half);

// Members without `replaced`, the device of which may take itself for that member still: as many must stay
// that the others, and it, are no majority by the table that it knows.
MemberSet::Quorum quorum_without(const Superblock& table, MemberId replaced);

// What to do where too few members are there for writing. `half`: as many as -o degraded=force needs.
std::string step_for_too_few(const char* needed, bool half);

// Why the volume cannot be mounted without the `missing` members, or empty. Fills `read_only`: why it cannot
// be written so.
// `lacking` is what lacking_text() says. `replaced`: of quorum_without(), unless 0.
std::string assess_missing(const Superblock& superblock, const GroupMap& map,
                           const std::vector<MemberId>& missing, MemberId replaced,
                           const std::string& lacking, const MountOptions& options,
                           ReadOnlyReason& read_only);

}  // namespace cowraid
