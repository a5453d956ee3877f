// SPDX-License-Identifier: MIT
// Which sanitizer a build has.
#pragma once

#if defined(__has_feature)
#define CW_HAS_FEATURE(name) __has_feature(name)
#else
#define CW_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || CW_HAS_FEATURE(address_sanitizer)
#define CW_ADDRESS_SANITIZER 1
#else
#define CW_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || CW_HAS_FEATURE(thread_sanitizer)
#define CW_THREAD_SANITIZER 1
#else
#define CW_THREAD_SANITIZER 0
#endif

namespace cowraid {

inline constexpr bool kAddressSanitizer = CW_ADDRESS_SANITIZER != 0;
// Either of the two, which reserve much address space, trace and fork.
inline constexpr bool kSanitized = kAddressSanitizer || CW_THREAD_SANITIZER != 0;

}  // namespace cowraid
