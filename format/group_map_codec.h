// SPDX-License-Identifier: MIT
// The block-group map between disk and memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "base/uuid.h"
#include "format/group_map.h"
#include "format/superblock_codec.h"

namespace cowraid {

struct SlotRun {
    uint32_t first_slot = 0;
    uint32_t slot_count = 0;

    friend bool operator==(const SlotRun&, const SlotRun&) = default;
};

struct GroupColumn {
    MemberId member;
    std::vector<SlotRun> runs;  // in column order; their bytes add up to column_bytes
    // First commit whose writes the column may have missed; 0: it has everything. In doubt are windows of the
    // free-space tree with a last write of that commit or a later one.
    Generation stale_since;

    [[nodiscard]] bool stale() const { return stale_since.value != 0; }
    friend bool operator==(const GroupColumn&, const GroupColumn&) = default;
};

// One block group. Volume addresses: data columns are interleaved by chunk over
// [address, address + data_columns * column_bytes); parity column p of the same group occupies
// [address + (data_columns + p) * column_bytes, + column_bytes), so that parity blocks have addresses too.
struct GroupRecord {
    VolumeAddress address;
    uint32_t content = 0;  // kGroupData | kGroupMetadata | kGroupSystem
    ProfileId profile = ProfileId::kSingle;
    uint32_t flags = 0;
    uint64_t column_bytes = 0;
    uint32_t chunk_bytes = 0;
    uint32_t data_columns = 0;  // k
    uint32_t mapping_version = 0;
    Generation created_generation;
    uint64_t verified_seconds = 0;  // since 1970; 0: no scrub has found all of it as it must be
    std::vector<GroupColumn> columns;

    // Bytes of user addresses: data_columns * column_bytes.
    [[nodiscard]] uint64_t data_bytes() const { return data_columns * column_bytes; }
    // Bytes of the address range, parity included.
    [[nodiscard]] uint64_t span_bytes() const;

    friend bool operator==(const GroupRecord&, const GroupRecord&) = default;
};

struct GroupMap {
    Generation generation;
    std::vector<GroupRecord> groups;  // by rising address
};

// Checksum stamped; length a multiple of kBlockBytes (zero padded). `map_ref` receives checksum and length.
std::vector<std::byte> encode_group_map(const GroupMap& map, const Uuid& volume_uuid, MapRef& map_ref);

// The largest column that a group of the volume, or of what it is without a member, may have; a larger one
// makes its map invalid.
uint64_t column_bytes_max(const Superblock& superblock, MemberId without = {});

// What encode_group_map() would make of the map with one more group.
uint64_t encoded_bytes(const GroupMap& map, const GroupRecord& another);

// kCorrupt unless the bytes match `expected` and every record is sane: known profile, sizes within bounds,
// address ranges disjoint, members known to `superblock`, slots inside their member and used once, no
// member twice in a group, no column stale from before the group or after the map.
Result<GroupMap> decode_group_map(std::span<const std::byte> bytes, const MapRef& expected,
                                  const Superblock& superblock);

}  // namespace cowraid
