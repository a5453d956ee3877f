// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace cowraid {

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text_format(const char* format, ...);

}  // namespace cowraid
