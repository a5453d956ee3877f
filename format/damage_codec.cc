// SPDX-License-Identifier: MIT
#include "format/damage_codec.h"

#include <cstring>

#include "format/items.h"
#include "format/superblock_codec.h"

namespace cowraid {

Key damage_key(VolumeAddress first)
{
    return {0, static_cast<uint8_t>(ItemType::kDamaged), first.value};
}

ItemBytes encode_damage(const DamageRecord& record)
{
    const DiskDamage disk{record.found_seconds, record.block_count};
    ItemBytes bytes(sizeof disk);
    std::memcpy(bytes.data(), &disk, sizeof disk);
    return bytes;
}

Result<DamageRecord> decode_damage(std::span<const std::byte> payload)
{
    DiskDamage disk;
    if (payload.size() != sizeof disk)
        return Err::kCorrupt;
    std::memcpy(&disk, payload.data(), sizeof disk);
    if (disk.block_count == 0 || disk.block_count > kMaxVolumeAddress / kBlockBytes)
        return Err::kCorrupt;
    return DamageRecord{disk.found_seconds, disk.block_count};
}

}  // namespace cowraid
