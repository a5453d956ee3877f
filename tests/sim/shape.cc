// SPDX-License-Identifier: MIT
#include "tests/sim/shape.h"

#include <algorithm>

#include "format/profile.h"
#include "format/superblock.h"
#include "fs/make_volume.h"

namespace cowraid::test {

namespace {

ProfileId choose_profile(Prng& prng)
{
    const uint64_t choice = prng.below(100);
    if (choice < 36)
        return ProfileId::kRaid6;
    if (choice < 68)
        return ProfileId::kRaid5;
    if (choice < 78)
        return ProfileId::kRaid10;
    if (choice < 86)
        return ProfileId::kRaid1c3;
    if (choice < 92)
        return ProfileId::kRaid1;
    if (choice < 95)
        return ProfileId::kRaid1c4;
    return choice < 98 ? ProfileId::kRaid0 : ProfileId::kSingle;
}

// Mostly what a user gets; otherwise any that tolerates as much as the data.
ProfileId choose_metadata_profile(Prng& prng, ProfileId data, uint32_t member_count)
{
    const ProfileId usual = default_metadata_profile(data, member_count);
    if (!prng.chance(1, 5))
        return usual;
    std::vector<ProfileId> possible;
    for (const Profile& profile : profiles())
        if (profile.min_members <= member_count && profile.tolerance >= find_profile(data)->tolerance)
            possible.push_back(profile.id);
    return possible.empty() ? usual : possible[prng.below(possible.size())];
}

uint32_t choose_width(Prng& prng, const Profile& profile)
{
    // Wide enough to go on without the lost ones, more often than not.
    const uint32_t least = profile.min_members;
    const uint32_t most = profile.max_columns == 0 ? 9 : least + 3;
    return static_cast<uint32_t>(
        std::max(prng.between(least, most), prng.between(least, std::min(most, least + 3))));
}

}  // namespace

MachineShape choose_shape(Prng& prng, std::optional<ProfileId> data_profile)
{
    MachineShape shape;
    shape.data_profile = data_profile.value_or(choose_profile(prng));
    const uint32_t width = choose_width(prng, *find_profile(shape.data_profile));
    shape.metadata_profile = choose_metadata_profile(prng, shape.data_profile, width);
    shape.chunk_bytes = kMinChunkBytes << prng.below(9);
    shape.tight = prng.chance(1, 6);
    for (uint32_t i = 0; i < width; ++i)
        shape.member_bytes.push_back(shape.tight ? 96 * kMiB : prng.between(384, 1024) * kMiB);
    return shape;
}

std::string shape_text(const MachineShape& shape)
{
    return std::string(find_profile(shape.data_profile)->name) + "/" +
           find_profile(shape.metadata_profile)->name + " on " + std::to_string(shape.member_count()) +
           " members, chunk " + std::to_string(shape.chunk_bytes / kKiB) + " KiB" +
           (shape.tight ? ", tight" : "");
}

}  // namespace cowraid::test
