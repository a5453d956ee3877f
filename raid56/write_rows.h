// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "raid56/array_state.h"

namespace cowraid {

// As Array::write_rows(), for who holds the locks of all their stripes.
Status write_locked_rows(ArrayState& state, std::span<RowWrite> writes);

}  // namespace cowraid
