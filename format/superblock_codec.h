// SPDX-License-Identifier: MIT
// Superblock between disk and memory. Decoding validates everything that needs no other structure.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "base/uuid.h"
#include "format/group_map.h"
#include "format/key.h"
#include "format/superblock.h"

namespace cowraid {

// One per block of a node.
using NodeChecksums = std::array<Checksum, kNodeBlocks>;

// Where a tree node is and what it must contain. address 0: no node.
struct BlockRef {
    VolumeAddress address;
    Generation generation;
    NodeChecksums checksums{};

    friend bool operator==(const BlockRef&, const BlockRef&) = default;
};

// Points to no node and is all zero, or to a whole block, written by a commit up to `newest`.
bool block_ref_valid(const BlockRef& ref, Generation newest);

BlockRef decode(const DiskBlockRef& disk);
DiskBlockRef encode(const BlockRef& ref);

// One line of the member table.
struct MemberRecord {
    MemberId id;
    MemberState state = MemberState::kPresent;
    Uuid uuid;
    uint64_t size_bytes = 0;
    Generation missing_since;  // 0 while present
    uint64_t slots_offset = 0;
    uint64_t slot_bytes = 0;
    uint64_t slot_count = 0;
    std::array<uint64_t, 2> map_offset{};
    uint64_t map_bytes = 0;
    uint64_t intent_log_offset = 0;
    uint64_t intent_log_bytes = 0;
    uint64_t fsync_log_offset = 0;
    uint64_t fsync_log_bytes = 0;
    std::array<uint64_t, kMemberCounterCount> counters{};

    friend bool operator==(const MemberRecord&, const MemberRecord&) = default;
};

// The line of a spare.
MemberRecord spare_record(MemberId id, const Uuid& uuid, uint64_t size_bytes);

struct EpochRecord {
    uint64_t epoch = 0;
    Generation generation;
};

struct MapRef {
    Generation generation;
    Checksum checksum = 0;
    uint32_t bytes = 0;
    uint32_t place = 0;
};

// A balance that is under way (DiskBalance).
struct BalanceRecord {
    BalanceState state = BalanceState::kNone;
    uint32_t content = 0;  // 0 only without one
    uint32_t usage_max = 0;  // percent, up to 100
    MemberId member;  // that is to be removed or made smaller, or 0
    Generation before;
    uint64_t total_bytes = 0;
    uint64_t shrink_bytes = 0;  // the size that `member` gets; 0: it is removed

    // That is to be removed, or 0.
    [[nodiscard]] MemberId removed() const { return shrink_bytes == 0 ? member : MemberId{}; }

    friend bool operator==(const BalanceRecord&, const BalanceRecord&) = default;
};

// By ScrubMemberNumber.
struct ScrubMemberNumbers {
    std::array<uint64_t, kScrubMemberNumberCount> numbers{};

    uint64_t& operator[](ScrubMemberNumber which) { return numbers[static_cast<size_t>(which)]; }
    uint64_t operator[](ScrubMemberNumber which) const { return numbers[static_cast<size_t>(which)]; }
    ScrubMemberNumbers& operator+=(const ScrubMemberNumbers& more);
    friend bool operator==(const ScrubMemberNumbers&, const ScrubMemberNumbers&) = default;
};
// Of members of which there is something to say.
using ScrubbedMembers = std::map<MemberId, ScrubMemberNumbers>;
ScrubbedMembers& operator+=(ScrubbedMembers& sum, const ScrubbedMembers& more);

// The last scrub (DiskScrub).
struct ScrubRecord {
    ScrubState state = ScrubState::kNone;
    uint32_t flags = 0;  // kScrub...
    uint64_t limit = 0;
    uint64_t started = 0, ended = 0, run_ms = 0;
    uint64_t verified_before = 0, bytes_max = 0;
    std::array<uint64_t, kScrubNumberCount> numbers{};
    ScrubbedMembers members;  // in the lines of the member table
    Key key;
    uint32_t tree = 0;
    VolumeAddress group;
    uint64_t stripe = 0;

    // With the position, and what was counted until there, of an earlier state of the same scrub.
    void stay_at(const ScrubRecord& earlier);

    friend bool operator==(const ScrubRecord&, const ScrubRecord&) = default;
};

// A member that is being replaced (DiskReplace).
struct ReplaceRecord {
    MemberId source;  // 0: none is
    MemberId target;
    uint64_t started = 0;

    [[nodiscard]] bool active() const { return source.value != 0; }
    // Whether the member is one of the two.
    [[nodiscard]] bool names(MemberId id) const { return active() && (id == source || id == target); }

    friend bool operator==(const ReplaceRecord&, const ReplaceRecord&) = default;
};

struct Superblock {
    Uuid volume_uuid;
    uint64_t incompat_features = 0;
    uint64_t readonly_features = 0;
    uint64_t compat_features = 0;
    Generation generation;
    std::vector<EpochRecord> epochs;  // newest first, at least one, at most kEpochHistoryCount
    MemberId member_id;  // whose copy this is
    uint32_t next_member_id = 1;
    uint32_t chunk_bytes = kDefaultChunkBytes;
    ProfileId data_profile = ProfileId::kSingle;
    ProfileId metadata_profile = ProfileId::kSingle;
    uint64_t next_group_address = 0;
    uint64_t created_seconds = 0;
    BlockRef root;
    MapRef map;
    uint64_t name_hash_seed = 0;
    uint32_t live_logs = 0;  // kLiveIntentLog | kLiveFsyncLog
    // Commits that wrote trees. Unlike generations it is not raised by other superblocks; a replay of the
    // fsync log may skip numbers.
    uint64_t tree_commits = 0;
    // What entries of the logs are known by: the newest epoch when the logs last held nothing. Not 0.
    uint64_t log_epoch = 0;
    // The mount that made this commit ended with it, after it was durable on all members.
    bool unmounted = false;
    BalanceRecord balance;
    ScrubRecord scrub;
    ReplaceRecord replace;
    std::string label;
    std::vector<MemberRecord> members;  // by rising id
    // Devices in reserve, by rising id: no id of a member; only id, state, uuid and size count.
    std::vector<MemberRecord> spares;

    [[nodiscard]] const MemberRecord* spare(MemberId id) const;
    // This copy is on a spare. It is as old as that: nobody writes newer ones there.
    [[nodiscard]] bool on_spare() const { return spare(member_id) != nullptr; }
    [[nodiscard]] const MemberRecord* member(MemberId id) const;
    [[nodiscard]] MemberRecord* member(MemberId id);
};

// Where everything lies on a member of `size_bytes`; kInvalid below kMinMemberBytes and above
// kMaxMemberBytes. Fills the layout fields of a MemberRecord (offsets, slot size and count); id, uuid and
// state are the caller's.
Result<MemberRecord> plan_member_layout(uint64_t size_bytes);

// The slots that a member has once its device has `size_bytes`; kInvalid, and nothing changes, when these are
// no more than it had, or the device is larger than a member can be.
Status grow_member_layout(MemberRecord& record, uint64_t size_bytes);

// The slots that a member keeps with a smaller size; kInvalid, and nothing changes, when that is not smaller,
// or smaller than a member can be. All but slots lies where it lay.
Status shrink_member_layout(MemberRecord& record, uint64_t size_bytes);
// The smallest size of such a member.
uint64_t min_size_of(const MemberRecord& record);

// Beyond this a generation can only be forged; the limit keeps next() and sums from wrapping.
inline constexpr uint64_t kMaxGeneration = (uint64_t{1} << 62) - 1;
// No map is longer, so that a forged length cannot ask for memory that nobody has.
inline constexpr uint32_t kMaxMapBytes = 64 * kMiB;
// Volume addresses end here, so that an address plus a length never wraps.
inline constexpr uint64_t kMaxVolumeAddress = uint64_t{1} << 62;

// The bytes of one ring slot (a multiple of kBlockBytes, at most kSuperblockSlotBytes), checksum stamped.
// Asserts that decode_superblock() would accept them: what cannot be read back is never written.
std::vector<std::byte> encode_superblock(const Superblock& superblock);

// kNotFound: not a superblock at all (magic). kCorrupt: torn, rotten or hostile. kUnsupported: a newer
// format version or an unknown incompatible feature (peek_superblock() tells which).
Result<Superblock> decode_superblock(std::span<const std::byte> slot);

// The fields that keep their place in every format version, so that a program can say why it refuses.
struct SuperblockIdentity {
    uint32_t version = 0;
    Uuid volume_uuid;
    uint64_t incompat_features = 0;
    uint64_t readonly_features = 0;
    uint64_t compat_features = 0;
    Generation generation;
};

// What a label may be when it is given: UTF-8 without control characters, shorter than kLabelBytes. Labels
// of other programs are read whatever they are, and made printable.
bool label_is_valid(std::string_view label);

// Bytes of the superblock that starts with `head`, as it claims: not verified. 0 when there is none.
uint32_t claimed_superblock_bytes(std::span<const std::byte> head);

// kNotFound and kCorrupt (checksum) as for decode_superblock(); any version and feature is fine.
Result<SuperblockIdentity> peek_superblock(std::span<const std::byte> slot);

}  // namespace cowraid
