// SPDX-License-Identifier: MIT
// Cases in processes of their own, with limits on time and memory.
#pragma once

#include <string>
#include <vector>

#include "base/sanitizer.h"
#include "tests/fuzz/fuzz_case.h"

namespace cowraid::test {

// What such a process does: cases that leave nothing behind that the next one could see.
class CaseWork {
public:
    CaseWork() = default;
    virtual ~CaseWork() = default;
    CaseWork(const CaseWork&) = delete;
    CaseWork& operator=(const CaseWork&) = delete;
    virtual Verdict run(size_t index) = 0;
};

struct CaseOutcome {
    Verdict verdict;
    std::string problem;  // empty: as it should be. A process that dies or does not end is one.
};

// Cases 0 to `count` - 1, one after the other in one process. What has a problem there, and what it left out
// because it died, has another process for itself.
std::vector<CaseOutcome> run_apart(CaseWork& work, size_t count);

}  // namespace cowraid::test
