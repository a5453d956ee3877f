// SPDX-License-Identifier: MIT
// Small volumes of every kind, for tests that go through all of them.
#pragma once

#include "tests/support/sim_volume.h"

namespace cowraid::test {

inline constexpr uint64_t kMemberBytes = 160 * kMiB;
inline constexpr VolumeShape kRaid5{4, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB};
inline constexpr VolumeShape kRaid6{5, kMemberBytes, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * kKiB};
inline constexpr VolumeShape kNodesUnderParity{5, kMemberBytes, ProfileId::kRaid6, ProfileId::kRaid6,
                                               16 * kKiB};
inline constexpr VolumeShape kMirrors{3, kMemberBytes, ProfileId::kRaid1, ProfileId::kRaid1, 16 * kKiB};
inline constexpr VolumeShape kPairs{5, kMemberBytes, ProfileId::kRaid10, ProfileId::kRaid10, 16 * kKiB};
inline constexpr VolumeShape kStriped{3, kMemberBytes, ProfileId::kRaid0, ProfileId::kRaid1, 16 * kKiB};
inline constexpr VolumeShape kSingle{2, kMemberBytes, ProfileId::kSingle, ProfileId::kRaid1, 16 * kKiB};

}  // namespace cowraid::test
