// SPDX-License-Identifier: MIT
// From a set of erased columns to the coefficients that compute them from the surviving ones.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "raid56/parity.h"

namespace cowraid {

// Coefficient of data column `column` in parity `parity`: 1 for P, 2^column for Q.
uint8_t parity_coefficient(uint32_t parity, uint32_t column);

// Every wanted column as a sum over exactly k surviving columns.
struct RecoveryMatrix {
    std::vector<uint32_t> inputs;  // k surviving columns: data by rising number, then parity
    std::vector<uint8_t> coefficients;  // wanted.size() rows of k
};

// `erased` and `wanted` as for parity_recover_wanted(); `m` parity columns.
RecoveryMatrix make_recovery_matrix(uint32_t k, uint32_t m, std::span<const uint32_t> erased,
                                    std::span<const uint32_t> wanted);

}  // namespace cowraid
