// SPDX-License-Identifier: MIT
// Members that come back to a volume that is mounted.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "control/control_client.h"
#include "format/superblock_codec.h"

namespace cowraid {

// A device of nobody that says it is a member. kBusy: somebody has it.
Result<UniqueFd> open_returning(const std::string& path, std::string& why);

// Whether the mounted volume does without what has this superblock, a member or a spare.
bool is_away(ControlClient& client, const Superblock& own);

// Where anything is away searches once, as a mount does: what is away and found takes part again, but for the
// paths in `left_out`. A line for each device about which there is something to say.
std::vector<std::string> bring_back_found(ControlClient& client, const Uuid& volume,
                                          const std::vector<std::string>& left_out);

}  // namespace cowraid
