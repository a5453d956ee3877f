// SPDX-License-Identifier: MIT
// Freezes the on-disk structures: a change of any size or offset is a new format version, never an accident.
// docs/FORMAT.md lists the same numbers with their meaning.
#include <cstddef>
#include <type_traits>

#include "format/fsync_log.h"
#include "format/group_map.h"
#include "format/intent_log.h"
#include "format/items.h"
#include "format/node.h"
#include "format/superblock.h"

namespace cowraid {

// No alignment, so that it may lie anywhere in a buffer; no padding, so that every byte has a name.
#define CW_STRUCT(type, bytes)                                                                               \
    static_assert(sizeof(type) == (bytes) && alignof(type) == 1);                                            \
    static_assert(std::has_unique_object_representations_v<type> && std::is_trivially_copyable_v<type> &&    \
                  std::is_standard_layout_v<type>)

#define CW_FIELD(type, field, offset, bytes)                                                                 \
    static_assert(offsetof(type, field) == (offset) && sizeof(type::field) == (bytes))

CW_STRUCT(DiskBlockRef, 48);
CW_FIELD(DiskBlockRef, address, 0, 8);
CW_FIELD(DiskBlockRef, generation, 8, 8);
CW_FIELD(DiskBlockRef, checksums, 16, 32);

CW_STRUCT(DiskMember, 256);
CW_FIELD(DiskMember, member_id, 0, 4);
CW_FIELD(DiskMember, state, 4, 4);
CW_FIELD(DiskMember, uuid, 8, 16);
CW_FIELD(DiskMember, size_bytes, 24, 8);
CW_FIELD(DiskMember, missing_since, 32, 8);
CW_FIELD(DiskMember, slots_offset, 40, 8);
CW_FIELD(DiskMember, slot_bytes, 48, 8);
CW_FIELD(DiskMember, slot_count, 56, 8);
CW_FIELD(DiskMember, map_offset, 64, 16);
CW_FIELD(DiskMember, map_bytes, 80, 8);
CW_FIELD(DiskMember, intent_log_offset, 88, 8);
CW_FIELD(DiskMember, intent_log_bytes, 96, 8);
CW_FIELD(DiskMember, fsync_log_offset, 104, 8);
CW_FIELD(DiskMember, fsync_log_bytes, 112, 8);
CW_FIELD(DiskMember, counters, 120, 64);
CW_FIELD(DiskMember, scrubbed, 184, 56);
CW_FIELD(DiskMember, reserved, 240, 16);

CW_STRUCT(DiskEpoch, 16);
CW_FIELD(DiskEpoch, epoch, 0, 8);
CW_FIELD(DiskEpoch, generation, 8, 8);

CW_STRUCT(DiskBalance, 32);
CW_FIELD(DiskBalance, state, 0, 4);
CW_FIELD(DiskBalance, content, 4, 4);
CW_FIELD(DiskBalance, usage_max, 8, 4);
CW_FIELD(DiskBalance, member, 12, 4);
CW_FIELD(DiskBalance, before, 16, 8);
CW_FIELD(DiskBalance, total_bytes, 24, 8);

CW_STRUCT(DiskScrub, 224);
CW_FIELD(DiskScrub, state, 0, 4);
CW_FIELD(DiskScrub, flags, 4, 4);
CW_FIELD(DiskScrub, limit, 8, 8);
CW_FIELD(DiskScrub, started, 16, 8);
CW_FIELD(DiskScrub, ended, 24, 8);
CW_FIELD(DiskScrub, run_ms, 32, 8);
CW_FIELD(DiskScrub, verified_before, 40, 8);
CW_FIELD(DiskScrub, bytes_max, 48, 8);
CW_FIELD(DiskScrub, numbers, 56, 128);
CW_FIELD(DiskScrub, key_object, 184, 8);
CW_FIELD(DiskScrub, key_offset, 192, 8);
CW_FIELD(DiskScrub, key_type, 200, 1);
CW_FIELD(DiskScrub, reserved, 201, 3);
CW_FIELD(DiskScrub, tree, 204, 4);
CW_FIELD(DiskScrub, group, 208, 8);
CW_FIELD(DiskScrub, stripe, 216, 8);

CW_STRUCT(DiskReplace, 16);
CW_FIELD(DiskReplace, source, 0, 4);
CW_FIELD(DiskReplace, target, 4, 4);
CW_FIELD(DiskReplace, started, 8, 8);

CW_STRUCT(DiskSuperblock, 4096);
CW_FIELD(DiskSuperblock, checksum, 0, 8);
CW_FIELD(DiskSuperblock, magic, 8, 8);
CW_FIELD(DiskSuperblock, version, 16, 4);
CW_FIELD(DiskSuperblock, bytes, 20, 4);
CW_FIELD(DiskSuperblock, volume_uuid, 24, 16);
CW_FIELD(DiskSuperblock, incompat_features, 40, 8);
CW_FIELD(DiskSuperblock, readonly_features, 48, 8);
CW_FIELD(DiskSuperblock, compat_features, 56, 8);
CW_FIELD(DiskSuperblock, generation, 64, 8);
CW_FIELD(DiskSuperblock, epoch, 72, 8);
CW_FIELD(DiskSuperblock, member_id, 80, 4);
CW_FIELD(DiskSuperblock, member_count, 84, 4);
CW_FIELD(DiskSuperblock, next_member_id, 88, 4);
CW_FIELD(DiskSuperblock, block_bytes, 92, 4);
CW_FIELD(DiskSuperblock, node_bytes, 96, 4);
CW_FIELD(DiskSuperblock, chunk_bytes, 100, 4);
CW_FIELD(DiskSuperblock, data_profile, 104, 4);
CW_FIELD(DiskSuperblock, metadata_profile, 108, 4);
CW_FIELD(DiskSuperblock, next_group_address, 112, 8);
CW_FIELD(DiskSuperblock, created_seconds, 120, 8);
CW_FIELD(DiskSuperblock, root, 128, 48);
CW_FIELD(DiskSuperblock, map_generation, 176, 8);
CW_FIELD(DiskSuperblock, map_checksum, 184, 8);
CW_FIELD(DiskSuperblock, map_bytes, 192, 4);
CW_FIELD(DiskSuperblock, map_place, 196, 4);
CW_FIELD(DiskSuperblock, name_hash_seed, 200, 8);
CW_FIELD(DiskSuperblock, label, 208, 256);
CW_FIELD(DiskSuperblock, epoch_count, 464, 4);
CW_FIELD(DiskSuperblock, live_logs, 468, 4);
CW_FIELD(DiskSuperblock, epochs, 472, 1024);
CW_FIELD(DiskSuperblock, tree_commits, 1496, 8);
CW_FIELD(DiskSuperblock, log_epoch, 1504, 8);
CW_FIELD(DiskSuperblock, unmounted, 1512, 4);
CW_FIELD(DiskSuperblock, balance, 1516, 32);
CW_FIELD(DiskSuperblock, scrub, 1548, 224);
CW_FIELD(DiskSuperblock, replace, 1772, 16);
CW_FIELD(DiskSuperblock, spare_count, 1788, 4);
CW_FIELD(DiskSuperblock, shrink_bytes, 1792, 8);
CW_FIELD(DiskSuperblock, reserved2, 1800, 2296);

CW_STRUCT(DiskGroupMap, 64);
CW_FIELD(DiskGroupMap, checksum, 0, 8);
CW_FIELD(DiskGroupMap, magic, 8, 8);
CW_FIELD(DiskGroupMap, volume_uuid, 16, 16);
CW_FIELD(DiskGroupMap, generation, 32, 8);
CW_FIELD(DiskGroupMap, bytes, 40, 4);
CW_FIELD(DiskGroupMap, group_count, 44, 4);
CW_FIELD(DiskGroupMap, reserved, 48, 16);

CW_STRUCT(DiskGroup, 64);
CW_FIELD(DiskGroup, record_bytes, 0, 4);
CW_FIELD(DiskGroup, content, 4, 4);
CW_FIELD(DiskGroup, profile, 8, 4);
CW_FIELD(DiskGroup, flags, 12, 4);
CW_FIELD(DiskGroup, address, 16, 8);
CW_FIELD(DiskGroup, column_bytes, 24, 8);
CW_FIELD(DiskGroup, chunk_bytes, 32, 4);
CW_FIELD(DiskGroup, data_columns, 36, 4);
CW_FIELD(DiskGroup, column_count, 40, 4);
CW_FIELD(DiskGroup, mapping_version, 44, 4);
CW_FIELD(DiskGroup, created_generation, 48, 8);
CW_FIELD(DiskGroup, verified_seconds, 56, 8);

CW_STRUCT(DiskGroupColumn, 16);
CW_FIELD(DiskGroupColumn, member_id, 0, 4);
CW_FIELD(DiskGroupColumn, run_count, 4, 4);
CW_FIELD(DiskGroupColumn, stale_since, 8, 8);

CW_STRUCT(DiskSlotRun, 8);
CW_FIELD(DiskSlotRun, first_slot, 0, 4);
CW_FIELD(DiskSlotRun, slot_count, 4, 4);

CW_STRUCT(DiskNodeHeader, 64);
CW_FIELD(DiskNodeHeader, magic, 0, 8);
CW_FIELD(DiskNodeHeader, volume_uuid, 8, 16);
CW_FIELD(DiskNodeHeader, address, 24, 8);
CW_FIELD(DiskNodeHeader, generation, 32, 8);
CW_FIELD(DiskNodeHeader, tree_id, 40, 8);
CW_FIELD(DiskNodeHeader, level, 48, 2);
CW_FIELD(DiskNodeHeader, reserved, 50, 2);
CW_FIELD(DiskNodeHeader, item_count, 52, 4);
CW_FIELD(DiskNodeHeader, reserved2, 56, 8);

CW_STRUCT(DiskLeafItem, 24);
CW_FIELD(DiskLeafItem, object, 0, 8);
CW_FIELD(DiskLeafItem, offset, 8, 8);
CW_FIELD(DiskLeafItem, type, 16, 1);
CW_FIELD(DiskLeafItem, reserved1, 17, 1);
CW_FIELD(DiskLeafItem, data_offset, 18, 2);
CW_FIELD(DiskLeafItem, data_bytes, 20, 2);
CW_FIELD(DiskLeafItem, reserved2, 22, 2);

CW_STRUCT(DiskChildItem, 72);
CW_FIELD(DiskChildItem, object, 0, 8);
CW_FIELD(DiskChildItem, offset, 8, 8);
CW_FIELD(DiskChildItem, type, 16, 1);
CW_FIELD(DiskChildItem, reserved, 17, 7);
CW_FIELD(DiskChildItem, child, 24, 48);

CW_STRUCT(DiskTreeRoot, 56);
CW_FIELD(DiskTreeRoot, root, 0, 48);
CW_FIELD(DiskTreeRoot, reserved, 48, 8);

CW_STRUCT(DiskVolume, 64);
CW_FIELD(DiskVolume, next_inode, 0, 8);
CW_FIELD(DiskVolume, inode_count, 8, 8);
CW_FIELD(DiskVolume, reserved_blocks, 16, 8);
CW_FIELD(DiskVolume, compressed_file_blocks, 24, 8);
CW_FIELD(DiskVolume, compressed_blocks, 32, 8);
CW_FIELD(DiskVolume, compression_counted, 40, 1);
CW_FIELD(DiskVolume, reserved, 41, 23);

CW_STRUCT(DiskTime, 12);
CW_FIELD(DiskTime, seconds, 0, 8);
CW_FIELD(DiskTime, nanoseconds, 8, 4);

CW_STRUCT(DiskInode, 160);
CW_FIELD(DiskInode, size_bytes, 0, 8);
CW_FIELD(DiskInode, data_blocks, 8, 8);
CW_FIELD(DiskInode, generation, 16, 8);
CW_FIELD(DiskInode, rdev, 24, 8);
CW_FIELD(DiskInode, mode, 32, 4);
CW_FIELD(DiskInode, uid, 36, 4);
CW_FIELD(DiskInode, gid, 40, 4);
CW_FIELD(DiskInode, link_count, 44, 4);
CW_FIELD(DiskInode, accessed, 48, 12);
CW_FIELD(DiskInode, modified, 60, 12);
CW_FIELD(DiskInode, changed, 72, 12);
CW_FIELD(DiskInode, created, 84, 12);
CW_FIELD(DiskInode, next_link_sequence, 96, 8);
CW_FIELD(DiskInode, flags, 104, 8);
CW_FIELD(DiskInode, parent, 112, 8);
CW_FIELD(DiskInode, reserved, 120, 40);

CW_STRUCT(DiskLink, 18);
CW_FIELD(DiskLink, parent, 0, 8);
CW_FIELD(DiskLink, cursor, 8, 8);
CW_FIELD(DiskLink, name_bytes, 16, 2);

CW_STRUCT(DiskDirent, 22);
CW_FIELD(DiskDirent, inode, 0, 8);
CW_FIELD(DiskDirent, link_sequence, 8, 8);
CW_FIELD(DiskDirent, mode_type, 16, 4);
CW_FIELD(DiskDirent, name_bytes, 20, 2);

CW_STRUCT(DiskXattr, 4);
CW_FIELD(DiskXattr, name_bytes, 0, 1);
CW_FIELD(DiskXattr, part, 1, 1);
CW_FIELD(DiskXattr, value_bytes, 2, 2);

CW_STRUCT(DiskAcl, 4);
CW_FIELD(DiskAcl, version, 0, 4);

CW_STRUCT(DiskAclEntry, 8);
CW_FIELD(DiskAclEntry, tag, 0, 2);
CW_FIELD(DiskAclEntry, permissions, 2, 2);
CW_FIELD(DiskAclEntry, id, 4, 4);

CW_STRUCT(DiskExtent, 32);
CW_FIELD(DiskExtent, address, 0, 8);
CW_FIELD(DiskExtent, generation, 8, 8);
CW_FIELD(DiskExtent, block_count, 16, 4);
CW_FIELD(DiskExtent, disk_blocks, 20, 4);
CW_FIELD(DiskExtent, kind, 24, 1);
CW_FIELD(DiskExtent, compression, 25, 1);
CW_FIELD(DiskExtent, more_runs, 26, 2);
CW_FIELD(DiskExtent, offset_blocks, 28, 4);

CW_STRUCT(DiskExtentRun, 16);
CW_FIELD(DiskExtentRun, address, 0, 8);
CW_FIELD(DiskExtentRun, block_count, 8, 4);
CW_FIELD(DiskExtentRun, reserved, 12, 4);

CW_STRUCT(DiskDamage, 16);
CW_FIELD(DiskDamage, found_seconds, 0, 8);
CW_FIELD(DiskDamage, block_count, 8, 8);

CW_STRUCT(DiskChecksumWindow, 8);
CW_FIELD(DiskChecksumWindow, mask, 0, 8);

CW_STRUCT(DiskGroupSummary, 64);
CW_FIELD(DiskGroupSummary, used_blocks, 0, 8);
CW_FIELD(DiskGroupSummary, free_rows, 8, 8);
CW_FIELD(DiskGroupSummary, free_stripes, 16, 8);
CW_FIELD(DiskGroupSummary, reserved, 24, 40);

CW_STRUCT(DiskSpaceWindow, 16);
CW_FIELD(DiskSpaceWindow, last_write, 0, 8);
CW_FIELD(DiskSpaceWindow, block_count, 8, 4);
CW_FIELD(DiskSpaceWindow, used_count, 12, 4);

CW_STRUCT(DiskRemapWindow, 16);
CW_FIELD(DiskRemapWindow, mask, 0, 8);
CW_FIELD(DiskRemapWindow, starts, 8, 8);

CW_STRUCT(DiskIntentHeader, 128);
CW_FIELD(DiskIntentHeader, checksum, 0, 8);
CW_FIELD(DiskIntentHeader, magic, 8, 8);
CW_FIELD(DiskIntentHeader, volume_uuid, 16, 16);
CW_FIELD(DiskIntentHeader, epoch, 32, 8);
CW_FIELD(DiskIntentHeader, generation, 40, 8);
CW_FIELD(DiskIntentHeader, floor, 48, 8);
CW_FIELD(DiskIntentHeader, member_id, 56, 4);
CW_FIELD(DiskIntentHeader, block, 60, 4);
CW_FIELD(DiskIntentHeader, entry_count, 64, 4);
CW_FIELD(DiskIntentHeader, entry_bytes, 68, 4);
CW_FIELD(DiskIntentHeader, reserved, 72, 56);

CW_STRUCT(DiskIntentEntry, 40);
CW_FIELD(DiskIntentEntry, sequence, 0, 8);
CW_FIELD(DiskIntentEntry, row, 8, 8);
CW_FIELD(DiskIntentEntry, partial_checksum, 16, 8);
CW_FIELD(DiskIntentEntry, partial_block, 24, 4);
CW_FIELD(DiskIntentEntry, mapping_version, 28, 4);
CW_FIELD(DiskIntentEntry, data_columns, 32, 2);
CW_FIELD(DiskIntentEntry, parity_column, 34, 1);
CW_FIELD(DiskIntentEntry, reserved, 35, 5);

CW_STRUCT(DiskFsyncBlock, 128);
CW_FIELD(DiskFsyncBlock, checksum, 0, 8);
CW_FIELD(DiskFsyncBlock, magic, 8, 8);
CW_FIELD(DiskFsyncBlock, volume_uuid, 16, 16);
CW_FIELD(DiskFsyncBlock, epoch, 32, 8);
CW_FIELD(DiskFsyncBlock, generation, 40, 8);
CW_FIELD(DiskFsyncBlock, generation_first, 48, 8);
CW_FIELD(DiskFsyncBlock, generation_before, 56, 8);
CW_FIELD(DiskFsyncBlock, sequence, 64, 8);
CW_FIELD(DiskFsyncBlock, content_checksum, 72, 8);
CW_FIELD(DiskFsyncBlock, record_count, 80, 4);
CW_FIELD(DiskFsyncBlock, content_bytes, 84, 4);
CW_FIELD(DiskFsyncBlock, block_count, 88, 4);
CW_FIELD(DiskFsyncBlock, block_index, 92, 4);
CW_FIELD(DiskFsyncBlock, acknowledged, 96, 8);
CW_FIELD(DiskFsyncBlock, reserved, 104, 24);

CW_STRUCT(DiskFsyncRecord, 8);
CW_FIELD(DiskFsyncRecord, bytes, 0, 4);
CW_FIELD(DiskFsyncRecord, reserved, 4, 4);

CW_STRUCT(DiskFsyncState, 32);
CW_FIELD(DiskFsyncState, next_inode, 0, 8);
CW_FIELD(DiskFsyncState, inode_count, 8, 8);
CW_FIELD(DiskFsyncState, reserved_blocks, 16, 8);
CW_FIELD(DiskFsyncState, entry_count, 24, 4);
CW_FIELD(DiskFsyncState, reserved, 28, 4);

CW_STRUCT(DiskFsyncEntry, 32);
CW_FIELD(DiskFsyncEntry, object, 0, 8);
CW_FIELD(DiskFsyncEntry, offset, 8, 8);
CW_FIELD(DiskFsyncEntry, count, 16, 8);
CW_FIELD(DiskFsyncEntry, kind, 24, 1);
CW_FIELD(DiskFsyncEntry, type, 25, 1);
CW_FIELD(DiskFsyncEntry, reserved, 26, 6);

#undef CW_FIELD
#undef CW_STRUCT

}  // namespace cowraid
