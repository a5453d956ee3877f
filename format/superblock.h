// SPDX-License-Identifier: MIT
// On disk: the superblock, its ring, and the member table it carries. docs/FORMAT.md explains each field.
#pragma once

#include <cstdint>

#include "base/le.h"
#include "base/units.h"

namespace cowraid {

inline constexpr uint64_t kSuperblockMagic = 0x3144494152574f43;  // "COWRAID1"
inline constexpr uint32_t kFormatVersion = 3;

// Each member carries the superblock in two rings at fixed offsets; generation g is in slot g % slots of
// both, so that a torn write never hits the last good one.
inline constexpr uint64_t kSuperblockRingOffset[] = {64 * kKiB, 12 * kMiB};
inline constexpr uint32_t kSuperblockRingCount = 2;
inline constexpr uint32_t kSuperblockSlotBytes = 64 * kKiB;
inline constexpr uint32_t kSuperblockSlotCount = 8;
// Nothing but superblock rings, block-group maps and logs lies below this; the smallest member's head.
inline constexpr uint64_t kMinHeadBytes = 16 * kMiB;
inline constexpr uint64_t kMinMemberBytes = 64 * kMiB;
inline constexpr uint64_t kMaxMemberBytes = 8192 * kTiB;
inline constexpr uint64_t kMinSlotBytes = 16 * kMiB;
inline constexpr uint64_t kMaxSlotBytes = 16 * kGiB;

inline constexpr uint32_t kMinChunkBytes = 4 * kKiB;
inline constexpr uint32_t kMaxChunkBytes = 1 * kMiB;
inline constexpr uint32_t kDefaultChunkBytes = 64 * kKiB;

inline constexpr uint32_t kLabelBytes = 256;  // with the terminating zero
inline constexpr uint32_t kEpochHistoryCount = 64;
inline constexpr uint32_t kMemberCounterCount = 8;
inline constexpr uint32_t kScrubMemberNumberCount = 7;

// Pointer to a tree node: where, from which commit, and the checksum of each of its blocks.
struct DiskBlockRef {
    le64 address;
    le64 generation;
    le64 checksums[kNodeBlocks];
};
static_assert(sizeof(DiskBlockRef) == 48);

enum class MemberState : uint32_t {
    kPresent = 1,  // took part in the last commit
    kMissing = 2,  // absent since `missing_since`; stale for what was written from then on
    kFailed = 3,  // taken out of service after errors since `missing_since`
    kSpare = 4,  // no member: a device that waits to take the place of one that fails
};

struct DiskMember {
    le32 member_id;
    le32 state;  // MemberState
    uint8_t uuid[16];
    le64 size_bytes;
    le64 missing_since;  // generation of the first commit without it; 0 while present
    le64 slots_offset;  // device offset of slot 0
    le64 slot_bytes;  // power of two
    le64 slot_count;
    le64 map_offset[2];  // the two places of the block-group map
    le64 map_bytes;  // room of each
    le64 intent_log_offset;
    le64 intent_log_bytes;
    le64 fsync_log_offset;
    le64 fsync_log_bytes;
    le64 counters[kMemberCounterCount];
    le64 scrubbed[kScrubMemberNumberCount];  // ScrubMemberNumber: what the last scrub found on it
    uint8_t reserved[16];
};
static_assert(sizeof(DiskMember) == 256);

// A random number stamped by every degraded read-write mount, and the generation it began with. A member
// whose newest epoch is not in the history of another's superblock was written on its own: split brain.
struct DiskEpoch {
    le64 epoch;
    le64 generation;
};

// Set in a superblock before the first entry of that log is written.
inline constexpr uint32_t kLiveIntentLog = 1;
inline constexpr uint32_t kLiveFsyncLog = 2;
inline constexpr uint32_t kLiveLogsMask = kLiveIntentLog | kLiveFsyncLog;

enum class BalanceState : uint32_t { kNone = 0, kRunning = 1, kPaused = 2 };

// Which block groups are being emptied, into groups made as new ones are made now. Mounts go on with it.
// Of the groups that its other fields tell only those with kGroupChosen.
inline constexpr uint32_t kBalanceChosen = 8;

struct DiskBalance {
    le32 state;  // BalanceState
    le32 content;  // kGroupData | ...: groups that may hold any of it; and kBalanceChosen
    le32 usage_max;  // percent: groups with more of their blocks in use stay
    le32 member;  // groups with a column on it, which leaves the volume or is smaller at the end; 0: on any
    le64 before;  // groups made by earlier commits than this one; 0: of another profile than new ones
    le64 total_bytes;  // in use in these groups when it began
};
static_assert(sizeof(DiskBalance) == 32);

enum class ScrubState : uint32_t { kNone = 0, kRunning = 1, kPaused = 2, kFinished = 3, kCancelled = 4 };

// Flags of a scrub.
inline constexpr uint32_t kScrubLooks = 1;  // it repairs nothing
inline constexpr uint32_t kScrubRowsDone = 2;  // only superblocks, maps and logs are left
inline constexpr uint32_t kScrubDamagedOnly = 4;  // only block groups with blocks that were found lost
inline constexpr uint32_t kScrubGroupWell = 8;  // all of `group` before `stripe` was as it must be
inline constexpr uint32_t kScrubNewOnly = 16;  // only block groups that no scrub has verified
inline constexpr uint32_t kScrubFlagsMask = 31;
inline constexpr uint32_t kScrubNumberCount = 16;

// What a scrub counts of each member, in blocks; of superblocks, maps and parts of logs each is one. Errors
// are those that the member was charged with.
enum class ScrubMemberNumber : uint8_t {
    kVerified = 0,  // read and compared
    kUnverified = 1,  // not read: it was not in service
    kReadErrors = 2,
    kWrong = 3,  // checksums that did not fit
    kHeads = 4,  // bad copies of superblocks and block-group maps
    kCorrected = 5,  // of the errors: rewritten, and read back
    kLost = 6,  // of the errors: no redundancy has what belongs there
};
static_assert(static_cast<size_t>(ScrubMemberNumber::kLost) + 1 == kScrubMemberNumberCount);

// The last scrub: what was asked for, how far it is, what it found. Mounts go on with one that runs.
struct DiskScrub {
    le32 state;  // ScrubState
    le32 flags;  // kScrub...
    le64 limit;  // bytes of members read per second; 0: as fast as they go
    le64 started;  // seconds since 1970, as is `ended`
    le64 ended;
    le64 run_ms;
    le64 verified_before;  // groups verified at that time or later, up to now, are left out; 0: none
    le64 bytes_max;  // it ends when so many bytes of members were verified; 0: when all were
    le64 numbers[kScrubNumberCount];
    le64 key_object;  // where in the trees it goes on
    le64 key_offset;
    uint8_t key_type;
    uint8_t reserved[3];
    le32 tree;
    le64 group;  // and where in the block groups
    le64 stripe;  // of `group`, or of what is left a piece
};
static_assert(sizeof(DiskScrub) == 224);

// A device that is about to take the place of a member in service. Mounts go on with it.
struct DiskReplace {
    le32 source;  // the member to be replaced; 0: none is
    le32 target;  // the member that takes over its line: of the same layout, without a column
    le64 started;  // seconds since 1970
};
static_assert(sizeof(DiskReplace) == 16);

struct DiskSuperblock {
    le64 checksum;  // xxh3-64 of the `bytes - 8` bytes after this field
    le64 magic;
    le32 version;
    le32 bytes;  // this structure and the member table behind it
    uint8_t volume_uuid[16];
    le64 incompat_features;
    le64 readonly_features;
    le64 compat_features;
    le64 generation;
    le64 epoch;
    le32 member_id;  // of the member that carries this copy
    le32 member_count;
    le32 next_member_id;
    le32 block_bytes;
    le32 node_bytes;
    le32 chunk_bytes;
    le32 data_profile;  // ProfileId
    le32 metadata_profile;  // ProfileId
    le64 next_group_address;
    le64 created_seconds;  // since 1970
    DiskBlockRef root;  // root tree; address 0 in a volume without trees yet
    le64 map_generation;
    le64 map_checksum;
    le32 map_bytes;
    le32 map_place;  // 0 or 1
    le64 name_hash_seed;
    uint8_t label[kLabelBytes];
    le32 epoch_count;
    le32 live_logs;  // which logs may hold live entries: kLive... bits; 0 after a clean unmount
    DiskEpoch epochs[kEpochHistoryCount];  // newest first
    le64 tree_commits;  // commits that wrote trees, this one included; records of the fsync log count by it
    le64 log_epoch;  // that entries of the logs carry; 0 in older volumes: the epoch the trees were committed
                     // under
    le32 unmounted;  // 1: the mount that made this commit ended with it; else 0
    DiskBalance balance;  // all zero: none is under way
    DiskScrub scrub;  // all zero: there was none
    DiskReplace replace;  // all zero: none is under way
    le32 spare_count;  // lines behind those of the members
    le64 shrink_bytes;  // size that balance.member gets when the balance ends; 0: it is removed, or none
    uint8_t reserved2[2296];
    // DiskMember members[member_count] follows, then DiskMember spares[spare_count], of which only id, state,
    // uuid and size count: the rest is zero.
};
static_assert(sizeof(DiskSuperblock) == 4096);

inline constexpr uint32_t kMaxMembers = (kSuperblockSlotBytes - sizeof(DiskSuperblock)) / sizeof(DiskMember);

}  // namespace cowraid
