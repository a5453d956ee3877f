// SPDX-License-Identifier: MIT
// A case in a process of its own, with limits on time and memory.
#pragma once

#include <string>

#include "tests/fuzz/fuzz_case.h"

namespace cowraid::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// What such a process does.
class CaseWork {
public:
    CaseWork() = default;
    virtual ~CaseWork() = default;
    CaseWork(const CaseWork&) = delete;
    CaseWork& operator=(const CaseWork&) = delete;
    virtual Verdict run() = 0;
};

// Returns the problem, empty when there is none. A process that dies or does not end is one.
std::string run_apart(CaseWork& work, Verdict& verdict);

}  // namespace cowraid::test
