// SPDX-License-Identifier: MIT
// On disk: what tree items hold. Keys are (object, type, offset); docs/FORMAT.md lists them tree by tree.
#pragma once

#include "base/le.h"
#include "base/units.h"
#include "format/superblock.h"

namespace cowraid {

inline constexpr uint64_t kRootInode = 256;
inline constexpr uint64_t kMaxInode = (uint64_t{1} << 42) - 1;
inline constexpr uint32_t kMaxNameBytes = 255;
inline constexpr uint32_t kMaxSymlinkBytes = 4095;
inline constexpr uint32_t kMaxLinks = 65000;

// Item types. The comment gives object and offset of the key.
enum class ItemType : uint8_t {
    // root tree
    kTreeRoot = 1,  // tree id, 0: DiskTreeRoot
    kVolume = 2,  // 0, 0: DiskVolume
    // file trees
    kInode = 16,  // inode, 0: DiskInode
    kLink = 17,  // inode, link sequence: DiskLink + name; one per name of the inode
    kDirent = 18,  // directory, cursor: DiskDirent + name; cursor = name hash << 8 | collision number
    kXattr = 19,  // inode, name hash << 8 | collision number: DiskXattr + name + value
    kSymlink = 20,  // inode, 0: the target
    kExtent = 21,  // inode, file offset: DiskExtent
    kOrphan = 22,  // 0, inode: nothing; unlinked while open, removed at the next mount
    kDamaged = 23,  // 0, address: DiskDamage; where blocks are that no redundancy brings back
    // checksum tree
    kChecksums = 32,  // address of the window, 0: DiskChecksumWindow + checksums
    // free-space tree
    kGroupSummary = 48,  // 0, group address: DiskGroupSummary
    kSpaceWindow = 49,  // group address, first stripe: DiskSpaceWindow + bitmap
    // remap tree
    kMovedTo = 64,  // address of the window, 0: DiskRemapWindow + addresses; where its blocks are now
    kMovedFrom = 65,  // address of the window, 0: the same; what its blocks are called by files
};

struct DiskTreeRoot {
    DiskBlockRef root;  // address 0: empty tree
    le64 reserved;
};
static_assert(sizeof(DiskTreeRoot) == 56);

struct DiskVolume {
    le64 next_inode;
    le64 inode_count;
    le64 reserved_blocks;  // reserved by fallocate, not written yet; the sum over all extents of that kind
    le64 compressed_file_blocks;  // blocks of files in compressed extents
    le64 compressed_blocks;  // their stored blocks, those of a frame once
    uint8_t compression_counted;  // 1: the two say how it is; 0: the volume has frames from before them
    uint8_t reserved[23];
};
static_assert(sizeof(DiskVolume) == 64);

struct DiskTime {
    le64 seconds;  // signed, since 1970
    le32 nanoseconds;
};
static_assert(sizeof(DiskTime) == 12);

struct DiskInode {
    le64 size_bytes;
    le64 data_blocks;  // 4 KiB blocks stored or reserved, as st_blocks * 8
    le64 generation;  // commit that created it, for file handles
    le64 rdev;
    le32 mode;
    le32 uid;
    le32 gid;
    le32 link_count;
    DiskTime accessed;
    DiskTime modified;
    DiskTime changed;
    DiskTime created;
    le64 next_link_sequence;
    le64 flags;
    le64 parent;  // directories: the one parent
    uint8_t reserved[40];
};
static_assert(sizeof(DiskInode) == 160);

// Of DiskInode.flags.
inline constexpr uint64_t kInodeImmutable = 1;  // nothing of it changes, no name of it comes or goes
inline constexpr uint64_t kInodeAppend = 2;  // content is only appended, names in it only come
inline constexpr uint64_t kInodeNoDump = 4;  // programs that save files leave it out
inline constexpr uint64_t kInodeNoAccessTime = 8;  // reading does not change the access time
// What is written to the file is compressed, or is not, whatever the mount says. At most one of them.
inline constexpr uint64_t kInodeCompress = 16;
inline constexpr uint64_t kInodeNoCompress = 32;
inline constexpr uint64_t kInodeUserFlags = 63;  // those that users set
// A truncation under way, or broken off: what is behind the end is nobody's content, and goes before the file
// grows. Such a file has an orphan mark.
inline constexpr uint64_t kInodeCut = 64;
inline constexpr uint64_t kInodeFlagsMask = 127;  // flags that this version knows

struct DiskLink {
    le64 parent;
    le64 cursor;  // of the parent's DiskDirent
    le16 name_bytes;
    // name follows
};
static_assert(sizeof(DiskLink) == 18);

struct DiskDirent {
    le64 inode;
    le64 link_sequence;  // of the inode's DiskLink
    le32 mode_type;  // S_IFMT bits
    le16 name_bytes;
    // name follows
};
static_assert(sizeof(DiskDirent) == 22);

// A value that does not fit into one item is cut into parts, numbered from 0 in rising cursors of one bucket.
inline constexpr uint8_t kXattrPartMask = 0x7f;
inline constexpr uint8_t kXattrMore = 0x80;  // another part follows

struct DiskXattr {
    uint8_t name_bytes;
    uint8_t part;  // kXattrPartMask | kXattrMore
    le16 value_bytes;  // of this part
    // name, value follow
};
static_assert(sizeof(DiskXattr) == 4);

// Value of the extended attributes system.posix_acl_access and system.posix_acl_default, as setxattr(2) has
// it.
inline constexpr uint32_t kAclVersion = 2;

struct DiskAcl {
    le32 version;  // kAclVersion
    // DiskAclEntry entries[] follow
};
static_assert(sizeof(DiskAcl) == 4);

struct DiskAclEntry {
    le16 tag;  // AclTag (format/acl_codec.h)
    le16 permissions;  // bits of "others" in a mode
    le32 id;  // of the user or group that the tag names, if it does
};
static_assert(sizeof(DiskAclEntry) == 8);

enum class ExtentKind : uint8_t {
    kData = 1,
    kReserved = 2,  // fallocate: reads as zeros, rows are reserved, address 0
};

enum class Compression : uint8_t {
    kNone = 0,
    kZstd = 1,  // the stored blocks are one zstd frame and zeros behind it
    kZstdInline = 2,  // the frame follows in the item; address, disk_blocks and more_runs are 0
};

struct DiskExtent {
    le64 address;  // volume address; contiguous
    le64 generation;  // commit that wrote it
    le32 block_count;  // of the file
    le32 disk_blocks;  // stored; of a compressed extent all blocks of its frame
    uint8_t kind;  // ExtentKind
    uint8_t compression;  // Compression
    le16 more_runs;  // of a compressed extent: so many DiskExtentRun follow
    le32 offset_blocks;  // into what the frame holds; 0 when not compressed
};
static_assert(sizeof(DiskExtent) == 32);

// Where the blocks of a frame go on that are not behind those before them.
struct DiskExtentRun {
    le64 address;
    le32 block_count;
    le32 reserved;
};
static_assert(sizeof(DiskExtentRun) == 16);

// Blocks side by side that could not be had from any redundancy. No file is named: whose they are is told by
// the extents.
struct DiskDamage {
    le64 found_seconds;  // since 1970
    le64 block_count;
};
static_assert(sizeof(DiskDamage) == 16);

// Checksums of up to 64 blocks whose addresses share address / 256 KiB. Bit i of the mask: block i has a
// checksum; the checksums follow in bit order.
inline constexpr uint32_t kChecksumWindowBlocks = 64;
inline constexpr uint64_t kChecksumWindowBytes = uint64_t{kChecksumWindowBlocks} * kBlockBytes;
struct DiskChecksumWindow {
    le64 mask;
    // le64 checksums[popcount(mask)] follow
};
static_assert(sizeof(DiskChecksumWindow) == 8);

struct DiskGroupSummary {
    le64 used_blocks;  // blocks the commit refers to
    le64 free_rows;  // rows without a used block
    le64 free_stripes;
    uint8_t reserved[40];
};
static_assert(sizeof(DiskGroupSummary) == 64);

// Allocation state of a run of stripes (alloc/space_window.h gives the run length). The bitmap has one bit
// per data block in address order, set when used; it is absent when no block or every block is used.
struct DiskSpaceWindow {
    le64 last_write;  // generation of the last commit that wrote into the run
    le32 block_count;
    le32 used_count;
    // bitmap follows, (block_count + 7) / 8 bytes
};
static_assert(sizeof(DiskSpaceWindow) == 16);

// Other addresses of up to 64 blocks whose own addresses share address / 256 KiB, as runs of blocks that
// stand together in both. The address of each run's first block follows, in bit order.
struct DiskRemapWindow {
    le64 mask;  // bit i: block i of the window has another address
    le64 starts;  // those of them that begin a run; every one behind a block without begins one
    // le64 addresses[popcount(starts)] follow
};
static_assert(sizeof(DiskRemapWindow) == 16);

}  // namespace cowraid
