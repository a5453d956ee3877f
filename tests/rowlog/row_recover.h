// SPDX-License-Identifier: MIT
// From a crash state to what recovery makes of it, by the real recover_row() (raid56/row_recovery.h).
#pragma once

#include "tests/rowlog/row_world.h"

namespace cowraid::test {

// Scans the logs of the members that are not `missing`, recovers every row and leaves what is then on the
// members in `state`, and in `recorded` what the trees say then. `kept`: by row, the data columns that the
// trees refer to. `world.run.mutant` may do it wrong.
void recover_state(RowWorld& world, State& state, Recorded& recorded, const RowMasks& kept, Mask missing);

// The log cells on present members that hold a descriptor of `state`, as places.
std::vector<uint32_t> descriptors_of(const RowWorld& world, const State& state, Mask missing);

}  // namespace cowraid::test
