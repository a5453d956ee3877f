// SPDX-License-Identifier: MIT
// On disk: the fsync log. Records that replay at mount what fsync acknowledged since the last commit. A
// member's log is a ring of blocks; a batch of records is the same contiguous blocks on several members.
#pragma once

#include "base/le.h"
#include "base/units.h"

namespace cowraid {

inline constexpr uint64_t kFsyncMagic = 0x474f4c5953465243;  // "CRFSYLOG"
inline constexpr uint32_t kMaxFsyncRecordBytes = 1 * kMiB;
inline constexpr uint64_t kMaxFsyncSequence = uint64_t{1} << 62;
// Generations that records can belong to beyond the last commit: the one being committed, the open one.
inline constexpr uint32_t kFsyncGenerations = 2;

// Every block of a batch begins with this, so that no content of a user ever stands where a header is looked
// for. The blocks of a batch differ in `block_index` and `checksum` only.
struct DiskFsyncBlock {
    le64 checksum;  // xxh3-64 of the rest of the block
    le64 magic;
    uint8_t volume_uuid[16];
    le64 epoch;  // newest of the superblock under which it was written
    le64 generation;  // commit that the records belong to; dead once that is durable
    le64 generation_first;  // sequence of the first record of this generation
    le64 generation_before;  // generation of the record before that one
    le64 sequence;  // of the batch's first record; the others follow without a gap
    le64 content_checksum;  // xxh3-64 of the content
    le32 record_count;
    le32 content_bytes;  // of the batch
    le32 block_count;  // of the batch
    le32 block_index;  // of this block in the batch
    le64 acknowledged;  // sequence below which all was durable when the batch was begun; 0: unknown
    uint8_t reserved[24];
};
static_assert(sizeof(DiskFsyncBlock) == 128);

// The content of a batch is its records, each behind one of these.
struct DiskFsyncRecord {
    le32 bytes;
    uint8_t reserved[4];
};
static_assert(sizeof(DiskFsyncRecord) == 8);

// A record of a filesystem: the volume's counters, then what changed since the record before it.
struct DiskFsyncState {
    le64 next_inode;  // as in DiskVolume
    le64 inode_count;
    le64 reserved_blocks;
    le32 entry_count;
    le32 reserved;
};
static_assert(sizeof(DiskFsyncState) == 32);

enum class FsyncEntryKind : uint8_t {
    kPut = 1,  // an item of the file tree; `count` bytes of payload follow
    kErased = 2,  // that item is gone
    kBlocks = 3,  // `count` blocks of a file; their content follows
    kDropped = 4,  // what earlier records say of these blocks of a file is over
};

struct DiskFsyncEntry {
    le64 object;  // of the item's key; inode
    le64 offset;  // of the item's key; first block of the file
    le64 count;
    uint8_t kind;  // FsyncEntryKind
    uint8_t type;  // of the item's key; 0 for blocks
    uint8_t reserved[6];
};
static_assert(sizeof(DiskFsyncEntry) == 32);

}  // namespace cowraid
