// SPDX-License-Identifier: MIT
// A case in a process of its own, with limits on time and memory.
#pragma once

#include <string>

#include "base/sanitizer.h"
#include "tests/fuzz/fuzz_case.h"

namespace cowraid::test {

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
