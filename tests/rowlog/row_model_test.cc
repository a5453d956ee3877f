// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_model.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace cowraid::test;

namespace {

constexpr uint32_t kMembersMax = 8;

using Writes = std::vector<std::vector<uint32_t>>;

// One- and two-block writes, all sequences of two of them, and some of three.
std::vector<Writes> all_writes(uint32_t data_columns)
{
    Writes single;
    for (uint32_t a = 0; a < data_columns; ++a) {
        single.push_back({a});
        for (uint32_t b = a + 1; b < data_columns; ++b)
            single.push_back({a, b});
    }
    std::vector<Writes> sequences;
    for (const auto& one : single)
        sequences.push_back({one});
    // An address is written once between free and free: the second write takes other blocks.
    for (const auto& one : single)
        for (const auto& two : single) {
            bool apart = true;
            for (const uint32_t column : two)
                apart = apart && std::find(one.begin(), one.end(), column) == one.end();
            if (apart)
                sequences.push_back({one, two});
        }
    if (data_columns >= 3) {
        sequences.push_back({{0}, {1}, {2}});
        sequences.push_back({{2}, {0}, {1}});
    }
    return sequences;
}

}  // namespace

TEST_CASE("row log: no crash, loss or rot loses a committed or acknowledged block")
{
    uint64_t checks = 0, states = 0;
    for (const uint32_t parity : {1u, 2u})
        for (uint32_t data_columns = 2; data_columns + parity <= kMembersMax; ++data_columns)
            for (const Writes& writes : all_writes(data_columns)) {
                const RowReport report = enumerate_row({data_columns, parity, writes});
                CAPTURE(data_columns);
                CAPTURE(parity);
                CAPTURE(report.first_loss);
                REQUIRE(report.losses == 0);
                checks += report.checks;
                states += report.states;
            }
    MESSAGE("states " << states << ", checks " << checks);
    CHECK(checks > 1000000);
}

TEST_CASE("row log: every wrong protocol loses something")
{
    for (auto mutant = static_cast<uint32_t>(RowMutant::kNone) + 1;
         mutant < static_cast<uint32_t>(RowMutant::kCount); ++mutant) {
        CAPTURE(mutant);
        uint64_t losses = 0;
        for (const uint32_t parity : {1u, 2u})
            for (const Writes& writes : all_writes(3))
                losses += enumerate_row({3, parity, writes, static_cast<RowMutant>(mutant)}).losses;
        CHECK(losses > 0);
    }
}
