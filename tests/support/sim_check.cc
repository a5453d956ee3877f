// SPDX-License-Identifier: MIT
#include "device/assembly.h"
#include "tests/support/sim_volume.h"

namespace cowraid::test {

Status SimVolume::check(CheckReport& report, std::string& why, const std::vector<uint32_t>& absent)
{
    CW_ASSIGN(Assembly assembly, assemble(borrow(absent), why));
    return check_volume(std::move(assembly), {}, report, why);
}

}  // namespace cowraid::test
