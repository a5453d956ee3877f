// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "raid56/array_state.h"

namespace cowraid {

// Array::read().
Status read_pieces(ArrayState& state, std::span<ReadPiece> pieces);

}  // namespace cowraid
