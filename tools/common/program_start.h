// SPDX-License-Identifier: MIT
// What every program does first in main(), before anything is opened.
#pragma once

#include <initializer_list>

namespace cowraid {

// Mends what the program inherits and cannot work with: opens /dev/null on closed standard descriptors (a
// member opened there would receive messages), raises the limits of file sizes (members may be image files)
// and of descriptors as far as allowed, lets children be waited for, and gives threads stacks of 8 MiB,
// whatever the limit for the first one's is. Without memory the program ends with one line and `failed_code`;
// so it does at its end when standard output could not be written, unless it failed already.
void start_program(int failed_code);

// What is read from them is empty, and what is written to them goes nowhere.
void redirect_to_null(std::initializer_list<int> descriptors);

}  // namespace cowraid
