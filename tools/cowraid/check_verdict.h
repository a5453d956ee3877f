// SPDX-License-Identifier: MIT
// What a check found, in one sentence for who has to do something about it.
#pragma once

#include <map>
#include <string>

#include "fs/check/check.h"

namespace cowraid {

// "member 2 (/dev/sdb) is damaged in 54 blocks; nothing is lost; mount it and run cowraid scrub". "clean"
// when there is nothing. `paths`: of members, by id. `mounted`: now.
std::string check_verdict(const CheckReport& report, const std::map<uint32_t, std::string>& paths,
                          bool mounted = false);

}  // namespace cowraid
