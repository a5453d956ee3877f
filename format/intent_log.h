// SPDX-License-Identifier: MIT
// On disk: the write-intent log. Before rows that hold committed blocks are written in place, an entry for
// each is durable on the member of every parity column of the row. A member's log is a ring of blocks; a
// write appends descriptor blocks, each followed by the blocks its entries carry.
#pragma once

#include "base/le.h"
#include "base/units.h"

namespace cowraid {

inline constexpr uint64_t kIntentMagic = 0x474c544e49575243;  // "CRWINTLG"

// A descriptor block: this header, its entries, zeros.
struct DiskIntentHeader {
    le64 checksum;  // xxh3-64 of the rest of the block
    le64 magic;
    uint8_t volume_uuid[16];
    le64 epoch;  // log_epoch of the superblock under which it was written; entries of another are dead
    le64 generation;  // commit that the rows belong to; dead once a superblock has it
    le64 floor;  // entries with a lower sequence are dead, on every member
    le32 member_id;
    le32 block;  // where this block lies, in blocks from the start of the log
    le32 entry_count;
    le32 entry_bytes;  // of all entries together
    uint8_t reserved[56];
};
static_assert(sizeof(DiskIntentHeader) == 128);

// One row: this, the checksums of its data blocks as they are when the write is done, and a bit for each that
// tells whether it was written since all members were last flushed; bits fill whole bytes, lowest first.
struct DiskIntentEntry {
    le64 sequence;  // of the write; the same on all members that have the entry
    le64 row;  // volume address of the row's block in data column 0
    le64 partial_checksum;
    le32 partial_block;  // where the partial parity lies in this log: the row's parity with zeros in
                         // place of the blocks that are marked
    le32 mapping_version;  // of the row's block group
    le16 data_columns;
    uint8_t parity_column;  // whose partial parity this is: 0 is P, 1 is Q
    uint8_t reserved[5];
};
static_assert(sizeof(DiskIntentEntry) == 40);

}  // namespace cowraid
