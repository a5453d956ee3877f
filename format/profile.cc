// SPDX-License-Identifier: MIT
#include "format/profile.h"

#include <algorithm>
#include <array>

#include "base/assert.h"

namespace cowraid {

namespace {

// Fewest members as btrfs has them: raid5 on two and raid6 on three are mirrors in all but name.
// Id, name, title, copies, parity, min_members, max_columns, tolerance.
constexpr std::array<Profile, 8> kProfiles = {{
    {ProfileId::kSingle, "single", "single", 1, 0, 1, 1, 0},
    {ProfileId::kRaid0, "raid0", "RAID0", 1, 0, 1, 0, 0},
    {ProfileId::kRaid1, "raid1", "RAID1", 2, 0, 2, 2, 1},
    {ProfileId::kRaid1c3, "raid1c3", "RAID1C3", 3, 0, 3, 3, 2},
    {ProfileId::kRaid1c4, "raid1c4", "RAID1C4", 4, 0, 4, 4, 3},
    {ProfileId::kRaid10, "raid10", "RAID10", 2, 0, 2, 0, 1},
    {ProfileId::kRaid5, "raid5", "RAID5", 1, 1, 2, 0, 1},
    {ProfileId::kRaid6, "raid6", "RAID6", 1, 2, 3, 0, 2},
}};

}  // namespace

std::span<const Profile> profiles()
{
    return kProfiles;
}

const Profile* find_profile(ProfileId id)
{
    const auto found = std::find_if(kProfiles.begin(), kProfiles.end(),
                                    [id](const Profile& profile) { return profile.id == id; });
    return found == kProfiles.end() ? nullptr : &*found;
}

const Profile* find_profile(std::string_view name)
{
    const auto found = std::find_if(kProfiles.begin(), kProfiles.end(),
                                    [name](const Profile& profile) { return profile.name == name; });
    return found == kProfiles.end() ? nullptr : &*found;
}

const Profile& mirror_of(size_t copies)
{
    const auto found = std::find_if(kProfiles.begin(), kProfiles.end(), [=](const Profile& profile) {
        return profile.copies == copies && profile.max_columns == copies;
    });
    CW_ASSERT(found != kProfiles.end());
    return *found;
}

}  // namespace cowraid
