// SPDX-License-Identifier: MIT
#include "raid56/geometry.h"

#include "base/assert.h"
#include "format/profile.h"

namespace cowraid {

Geometry geometry_of(const GroupRecord& group)
{
    const Profile* profile = find_profile(group.profile);
    CW_ASSERT(profile != nullptr);
    return {
        .data_columns = profile->parity > 0 ? group.data_columns : 1,
        .parity = profile->parity,
        .copies = profile->copies,
        .sets = profile->parity > 0 ? 1 : group.data_columns,
        .chunk_bytes = group.chunk_bytes,
        .column_bytes = group.column_bytes,
    };
}

BlockPlace place_of(const Geometry& geometry, uint64_t offset)
{
    const uint64_t data_bytes = geometry.data_blocks() * kBlockBytes;
    BlockPlace place;
    if (offset < data_bytes) {
        const uint64_t stripe_bytes = uint64_t{geometry.data_columns} * geometry.chunk_bytes;
        place.stripe = offset / stripe_bytes;
        place.column = static_cast<uint32_t>(offset % stripe_bytes / geometry.chunk_bytes);
    } else {
        const uint64_t behind = offset - data_bytes;
        CW_ASSERT(behind < geometry.parity * geometry.column_bytes);
        place.stripe = behind % geometry.column_bytes / geometry.chunk_bytes;
        place.column = geometry.data_columns + static_cast<uint32_t>(behind / geometry.column_bytes);
    }
    // Everything before this chunk is a multiple of the chunk in either part.
    place.row = static_cast<uint32_t>(offset % geometry.chunk_bytes / kBlockBytes);
    return place;
}

uint64_t offset_of(const Geometry& geometry, const BlockPlace& place)
{
    const uint64_t in_chunk = uint64_t{place.row} * kBlockBytes;
    if (place.column >= geometry.data_columns)
        return place.column * geometry.column_bytes + place.stripe * geometry.chunk_bytes + in_chunk;
    return (place.stripe * geometry.data_columns + place.column) * geometry.chunk_bytes + in_chunk;
}

uint32_t group_column(const Geometry& geometry, uint64_t stripe, uint32_t column, uint32_t copy)
{
    const uint32_t columns = geometry.columns();
    const uint64_t turned = uint64_t{column} * geometry.copies + copy + geometry.turn_of(stripe) % columns;
    return geometry.set_of(stripe) * columns + static_cast<uint32_t>(turned % columns);
}

uint64_t column_offset(const Geometry& geometry, const BlockPlace& place)
{
    return geometry.turn_of(place.stripe) * geometry.chunk_bytes + uint64_t{place.row} * kBlockBytes;
}

}  // namespace cowraid
