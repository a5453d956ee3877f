// SPDX-License-Identifier: MIT
// The mount options that say how rows which hold other blocks are written; also changeable while mounted.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "raid56/array.h"

namespace cowraid {

// Whether the option is one of these: stripe_cache_size, stripe_cache_bytes, rmw_level, stripe_io_size, plug.
bool is_partial_write_option(std::string_view name);
// kInvalid with one line in `why`: out of range.
Status set_partial_write_option(std::string_view name, std::string_view value, PartialWriteOptions& options,
                                std::string& why);

}  // namespace cowraid
