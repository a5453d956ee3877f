// SPDX-License-Identifier: MIT
// What happens when the system gives no memory. Sizes that come from a member can ask for more than there is;
// without exceptions nobody can go on, so the process ends with one line. What it had made durable stays.
#pragma once

#include <cstdint>

namespace cowraid {

// Ends the process with one line for the log and the exit code that end_when_out_of_memory() was given.
[[noreturn]] void out_of_memory();

// From now on operator new ends so, too. Before other threads start.
void end_when_out_of_memory(int exit_code);

// Three quarters of the memory that this process may have, of the machine or of its memory cgroups: the usual
// bound of a process.
uint64_t usual_memory_bytes();

// The process takes no more than `bytes` of memory for its data; the line that ends it says so and names
// `next_step` (kept, not copied). A lower limit stays. False when the system refuses. In a build with a
// sanitizer nothing is limited.
[[nodiscard]] bool limit_memory(uint64_t bytes, const char* next_step);

}  // namespace cowraid
