// SPDX-License-Identifier: MIT
// What malloc keeps for the next user (decision 0010), given back.
#pragma once

namespace cowraid {

// Gives free memory of malloc back to the kernel, as far as whole pages of it are free. Takes milliseconds
// per 100 MiB, for which others that need fresh memory wait: for a process that is idle. Thread-safe.
void malloc_release();

}  // namespace cowraid
