// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/units.h"
#include "format/key.h"

namespace cowraid {

// Blocks side by side that could not be had from any redundancy.
struct DamageRecord {
    uint64_t found_seconds = 0;  // since 1970
    uint64_t block_count = 0;
};

// `first`: where the first block is.
Key damage_key(VolumeAddress first);
ItemBytes encode_damage(const DamageRecord& record);
// kCorrupt for what no list has: another length, no blocks, more than addresses reach.
Result<DamageRecord> decode_damage(std::span<const std::byte> payload);

}  // namespace cowraid
