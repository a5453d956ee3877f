// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "raid56/array_state.h"

namespace cowraid {

// Array::write_rows().
Status write_rows_to(ArrayState& state, std::span<RowWrite> writes);
// The same for who holds the locks of all their stripes.
Status write_locked_rows(ArrayState& state, std::span<RowWrite> writes);

}  // namespace cowraid
