// SPDX-License-Identifier: MIT
// What the targets and the maker of their corpus share: bits of an input's first byte, and the volume that
// the rest of the input belongs to. Without a bit the field is the input's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.h"
#include "base/uuid.h"
#include "format/group_map_codec.h"
#include "format/node.h"
#include "format/superblock.h"
#include "format/superblock_codec.h"
#include "tests/support/format_sample.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace cowraid {

inline constexpr uint8_t kFitChecksum = 1;
// All bytes of the structure are the input's, from the first on.
inline constexpr uint8_t kRaw = 2;

inline Uuid fuzz_uuid()
{
    Uuid uuid;
    uuid.bytes.fill(7);
    return uuid;
}

namespace superblock_input {

inline constexpr uint8_t kFitLengths = 4;  // magic, version, and the number of members
// Of DiskSuperblock; the rest is reserved.
inline constexpr size_t kFieldBytes = offsetof(DiskSuperblock, reserved2);

}  // namespace superblock_input

namespace group_map_input {

// The volume that the map belongs to. `prng` is ready for sample_group_map().
inline Superblock superblock_of(Prng& prng, uint8_t number)
{
    Superblock superblock = sample_superblock(prng, 1 + number % 8);
    superblock.next_group_address = kMaxVolumeAddress;
    return superblock;
}

inline Superblock superblock_of(uint8_t number)
{
    Prng prng(number % 64);
    return superblock_of(prng, number % 64);
}

}  // namespace group_map_input

namespace node_input {

inline constexpr uint8_t kPackPayloads = 4;  // offsets of payloads follow from their lengths
inline constexpr uint64_t kNodesMax = 4;
inline constexpr Generation kNewest{5};

// Node `index` of the input.
constexpr VolumeAddress address_of(uint64_t index)
{
    return {(index + 1) * kNodeBytes};
}

}  // namespace node_input

// Members with small logs, as a superblock describes them.
namespace log_input {

inline constexpr uint32_t kMembers = 2;
inline constexpr uint32_t kLogBlocks = 16;
inline constexpr uint64_t kLogOffset = 64 * kKiB;
inline constexpr uint64_t kEpoch = 77;
inline constexpr Generation kCommitted{5};
inline constexpr uint8_t kFitIdentity = 4;  // magic, volume and place
inline constexpr uint8_t kFitContent = 8;  // checksum of a batch's content

inline Superblock superblock_with_logs()
{
    Superblock superblock;
    superblock.volume_uuid = fuzz_uuid();
    superblock.generation = kCommitted;
    superblock.root.generation = kCommitted;
    superblock.epochs = {{kEpoch, {1}}};
    superblock.log_epoch = kEpoch;
    for (uint32_t id = 1; id <= kMembers; ++id) {
        MemberRecord record;
        record.id = {id};
        record.intent_log_offset = kLogOffset;
        record.intent_log_bytes = uint64_t{kLogBlocks} * kBlockBytes;
        record.fsync_log_offset = record.intent_log_offset;
        record.fsync_log_bytes = record.intent_log_bytes;
        superblock.members.push_back(record);
    }
    return superblock;
}

}  // namespace log_input

namespace item_input {

enum class Structure : uint8_t {
    kInode,
    kExtent,
    kDirent,
    kLink,
    kXattr,
    kChecksums,
    kRemap,
    kSpace,
    kPrinted,
    kAcl,
    kDamage,
    kTreeRoot,
    kVolume,
    kGroupSummary,
    kCount,
};

}  // namespace item_input

namespace frame_input {

inline constexpr uint8_t kFitLength = 1;  // the frame's length is that of the rest
inline constexpr uint8_t kAnswer = 2;  // read as an answer, not as a request

}  // namespace frame_input

}  // namespace cowraid
