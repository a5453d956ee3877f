// SPDX-License-Identifier: MIT
// Runs cases of several fields under the limits that check and mount keep, whatever an image says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_case.h"

namespace cowraid::test {

using Subjects = std::vector<std::unique_ptr<FuzzSubject>>;

// Prints problems and counts. The exit code.
int run_multi(const Subjects& subjects, uint64_t seed, uint64_t cases);
// One case again, as printed: "multi:SHAPE:RECIPE:SEED". In this process, so that a debugger sees it.
int repeat_multi(const Subjects& subjects, const std::string& id);

}  // namespace cowraid::test
