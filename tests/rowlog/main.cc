// SPDX-License-Identifier: MIT
// The row-log tests. Besides doctest's options: --seed=N, --budget=SECONDS of random programs.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>

#include "tests/rowlog/row_options.h"
#include "tests/support/test_seed.h"

namespace cowraid::test {

namespace {

RowOptions options;

bool take(const char* argument, const char* name, uint64_t& value)
{
    const size_t length = std::strlen(name);
    if (std::strncmp(argument, name, length) != 0)
        return false;
    value = std::strtoull(argument + length, nullptr, 10);
    return true;
}

}  // namespace

const RowOptions& row_options()
{
    return options;
}

}  // namespace cowraid::test

int main(int argc, char** argv)
{
    using namespace cowraid::test;
    options.seed = cowraid::test_seed(options.seed);
    for (int index = 1; index < argc; ++index)
        if (!take(argv[index], "--seed=", options.seed))
            take(argv[index], "--budget=", options.budget_seconds);
    return doctest::Context(argc, argv).run();
}
