// SPDX-License-Identifier: MIT
// Descriptor blocks of the write-intent log between disk and memory.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/uuid.h"
#include "format/intent_log.h"

namespace cowraid {

// Data columns a row may have: as many as the bits of an entry's mark.
inline constexpr uint32_t kMaxIntentColumns = 256;
using ColumnBits = std::bitset<kMaxIntentColumns>;

// One row as one member's log describes it.
struct IntentEntry {
    uint64_t sequence = 0;
    VolumeAddress row;
    uint32_t mapping_version = 0;
    uint32_t parity_column = 0;
    uint32_t partial_block = 0;
    Checksum partial_checksum = 0;
    std::vector<Checksum> checksums;  // by data column
    ColumnBits modified;  // by data column

    friend bool operator==(const IntentEntry&, const IntentEntry&) = default;
};

// What a descriptor block says of itself.
struct IntentHeader {
    Uuid volume_uuid;
    MemberId member;
    uint64_t epoch = 0;
    Generation generation;
    uint64_t floor = 0;
    uint32_t block = 0;
};

struct IntentBlock {
    IntentHeader header;
    std::vector<IntentEntry> entries;
};

// Bytes that an entry takes in a descriptor block.
size_t intent_entry_bytes(size_t data_columns);
// Bytes that a descriptor block has for entries: at least one of any size fits.
inline constexpr size_t kIntentRoomBytes = kBlockBytes - sizeof(DiskIntentHeader);

// Fills `out`, kBlockBytes long. The entries must fit.
void encode_intent_block(const IntentHeader& header, std::span<const IntentEntry> entries,
                         std::span<std::byte> out);

// `expected` names volume, member and block. kNotFound: no descriptor of this place (a partial parity, an
// older volume, never written). kCorrupt: rotten, torn or hostile.
Result<IntentBlock> decode_intent_block(std::span<const std::byte> bytes, const IntentHeader& expected);

}  // namespace cowraid
