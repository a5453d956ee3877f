// SPDX-License-Identifier: MIT
// Members that come late, as at boot: who is waited for, and how long.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/common/member_search.h"
#include "tools/mount/mount_request.h"

namespace cowraid {

// Without missing_dev_timeout=.
inline constexpr uint32_t kMissingSecondsDefault = 30;

// The members that the newest superblock found calls present, and that were not found. Those that it calls
// missing or failed are not waited for: who mounted the volume without them knew.
std::vector<MemberId> awaited_members(const VolumeMembers& volume);

// How long a mount waits for members, in seconds. Without the option nobody waits at a terminal, where the
// user can try again, and nobody waits for other members than the several that were named.
uint32_t missing_seconds(const MountRequest& request, bool at_terminal);

// find_volume() again and again until nobody is awaited or the time is over: what it found last, be it an
// error. Says at once on standard error who is waited for. `why` on failure.
Result<VolumeMembers> find_volume_in_time(const VolumeSpec& spec, Unusable unusable,
                                          const MountRequest& request, std::string& why);

}  // namespace cowraid
