// SPDX-License-Identifier: MIT
// What a mounted volume tells about itself; for the control socket, messages and tests.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "base/uuid.h"
#include "device/member_set.h"
#include "format/group_map_codec.h"
#include "format/superblock_codec.h"

namespace cowraid {

struct VolumeStatistics {
    uint64_t block_bytes, total_blocks, free_blocks, available_blocks;
    uint64_t inode_count;
};

struct MemberInfo {
    MemberId id;
    std::string path;  // empty when absent; of one that failed while mounted it stays
    std::string reason;  // why it is not in service or behind: "member 4 " and this; empty when it is not
    bool replaced = false, successor = false;  // of the replacement that is under way
    bool doubtful = false;  // in service, with more errors than the budget has
    uint64_t slow_ms = 0;  // its oldest request waits so long, more than `read_deadline=`; 0: it is not slow
    uint64_t slow_ios = 0;  // that took longer than `slow_io=`, since the mount
    bool unusable = false;  // absent, because its device cannot be used
    uint64_t size_bytes = 0;
    uint64_t used_bytes = 0;  // in slots of block groups
    uint64_t stale_groups = 0, stale_bytes = 0;  // of them, columns that missed writes
    MemberState state = MemberState::kPresent;
    std::array<uint64_t, kMemberCounterCount> counters{};

    [[nodiscard]] bool in_service() const { return state == MemberState::kPresent; }
};

// A device in reserve.
struct SpareInfo {
    MemberId id;
    std::string path;  // empty: it is not there
    uint64_t size_bytes = 0;
    bool useless = false;  // it was to take a member's place and failed
};

struct SpaceInfo {
    ProfileId profile;
    uint32_t content;  // kGroupData | kGroupMetadata | kGroupSystem
    uint64_t total_bytes = 0;  // user addresses of the groups
    uint64_t used_bytes = 0;
    uint64_t raw_bytes = 0;  // on members
};

struct VolumeInfo {
    Uuid uuid;
    std::string label;
    Generation generation;
    uint32_t chunk_bytes = 0;
    ProfileId data_profile = ProfileId::kSingle;
    ProfileId metadata_profile = ProfileId::kSingle;
    bool read_only = false;
    bool degraded = false;
    std::string read_only_reason;
    // What to do about it; without a reason, what else than a remount helps, or empty.
    std::string read_only_step;
    std::string degraded_reason;  // of a volume that was opened so
    std::vector<MemberInfo> members;
    std::vector<SpareInfo> spares;
    std::vector<SpaceInfo> spaces;
    uint64_t unallocated_raw_bytes = 0;
    uint64_t available_bytes = 0;
    uint64_t reserve_bytes = 0;  // kept for deleting on a full volume
    // Of files, stored compressed, and what that takes, parity and copies not counted. Nothing is known of
    // them unless counted: the volume has compressed files from before there were counts.
    bool compression_counted = false;
    uint64_t compressed_file_bytes = 0, compressed_bytes = 0;
    // Members that may fail beside those that are out of service or lack writes: until files are lost, and
    // until nothing can be written any more.
    uint64_t may_fail = 0, may_fail_writing = 0;
    bool beyond_tolerance = false;  // block groups lack more than they tolerate
    uint64_t full_stripes = 0, full_rows = 0, pad_blocks = 0;
    uint64_t data_bytes_written = 0, member_bytes_written = 0;
    // Blocks put into rows that hold others; rows written in place by difference and anew; for that, blocks
    // that the stripe cache had and had not; bytes of log entries; rows that the last mount recovered.
    uint64_t joined_blocks = 0, rmw_rows = 0, rcw_rows = 0;
    uint64_t stripe_cache_hits = 0, stripe_cache_misses = 0, intent_log_bytes = 0, recovered_rows = 0;
    uint64_t checksum_commits = 0;  // that made room in the write-intent log
    uint64_t commits = 0, dirty_bytes = 0;
    // Records of the fsync log and their bytes; calls of fsync that became commits; records that the last
    // mount replayed.
    uint64_t fsync_records = 0, fsync_record_bytes = 0, fsync_commits = 0, replayed_records = 0;
    // Block groups that the cleaner emptied, blocks it moved, blocks it could not read: by this mount.
    uint64_t emptied_groups = 0, moved_blocks = 0, unmovable_blocks = 0;
    uint64_t blocks_reconstructed = 0, blocks_repaired = 0, blocks_unrecoverable = 0;
    // That the list of damage has; those of tree nodes.
    uint64_t damaged_blocks = 0, damaged_node_blocks = 0;
    // Requests to all members, by this program.
    uint64_t device_reads = 0, device_read_bytes = 0, device_writes = 0, device_write_bytes = 0;
    uint64_t device_flushes = 0;
    uint64_t discarded_bytes = 0;  // of members, by this mount
    uint64_t node_cache_hits = 0, node_cache_misses = 0, node_cache_bytes = 0;
};

}  // namespace cowraid
