// SPDX-License-Identifier: MIT
// Assertions are for our own mistakes and stay on in release builds; faults of the world are Status values.
#pragma once

namespace cowraid {

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace cowraid

#define CW_ASSERT(expression)                                                                                \
    ((expression) ? (void)0 : ::cowraid::assertion_failed(#expression, __FILE__, __LINE__))

// For checks that cost more than the code they guard; off in release builds.
#ifdef COWRAID_DEBUG
#define CW_DEBUG_ASSERT(expression) CW_ASSERT(expression)
#else
#define CW_DEBUG_ASSERT(expression) ((void)sizeof(!(expression)))
#endif
