// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "raid56/array_state.h"

namespace cowraid {

// Array::check_stripes().
Status check_stripes_of(ArrayState& state, VolumeAddress group_address, uint64_t first_stripe,
                        uint64_t stripe_count, std::vector<BadBlock>& found);

// Array::check_copies().
Status check_copies_of(ArrayState& state, VolumeAddress address, std::span<const Checksum> checksums,
                       std::vector<BadBlock>& found);

}  // namespace cowraid
