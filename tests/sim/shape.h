// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "base/random.h"
#include "tests/sim/machine.h"

namespace cowraid::test {

// Profile, width, sizes and chunk by chance; the data profile may be given.
MachineShape choose_shape(Prng& prng, std::optional<ProfileId> data_profile);
std::string shape_text(const MachineShape& shape);

}  // namespace cowraid::test
