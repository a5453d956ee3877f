// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_code.h"

#include <bit>
#include <cstring>

#include "base/units.h"
#include "raid56/parity.h"

namespace cowraid::test {

namespace {

// Copies of a row's columns, to be solved in place.
struct Scratch {
    alignas(64) std::byte blocks[kMaxColumns + kMaxParity][kBlockBytes];
    std::array<std::byte*, kMaxColumns> pointers;

    explicit Scratch(const CodeRow& row)
    {
        for (uint32_t column = 0; column < row.column_count(); ++column) {
            pointers[column] = blocks[column];
            std::memcpy(blocks[column], row.columns[column], row.bytes);
        }
    }
    void solve(const CodeRow& row, uint32_t missing)
    {
        std::array<uint32_t, kMaxColumns> erased;
        size_t count = 0;
        for (uint32_t column = 0; column < row.column_count(); ++column)
            if ((missing >> column & 1) != 0)
                erased[count++] = column;
        if (count > 0)
            parity_recover(std::span(pointers).first(row.column_count()), row.data_columns,
                           std::span(erased).first(count), row.bytes);
    }
};

bool readable(const CodeRow& row, uint32_t missing, uint32_t column, std::span<const uint32_t> erasures)
{
    if ((missing >> column & 1) == 0 && std::memcmp(row.columns[column], row.wanted[column], row.bytes) == 0)
        return true;
    missing |= 1u << column;
    for (const uint32_t more : erasures) {
        if ((more & missing) != 0 || static_cast<uint32_t>(std::popcount(more | missing)) > row.parity)
            continue;
        Scratch solved(row);
        solved.solve(row, more | missing);
        if (std::memcmp(solved.blocks[column], row.wanted[column], row.bytes) == 0)
            return true;
    }
    return false;
}

}  // namespace

bool is_code_word(const CodeRow& row, uint32_t missing)
{
    const uint32_t k = row.data_columns;
    Scratch solved(row);
    solved.solve(row, missing);
    std::array<std::byte*, kMaxParity> outputs;
    for (uint32_t p = 0; p < row.parity; ++p)
        outputs[p] = solved.blocks[kMaxColumns + p];
    parity_generate(std::span(solved.pointers).first(k), std::span(outputs).first(row.parity), row.bytes);
    for (uint32_t p = 0; p < row.parity; ++p)
        if (std::memcmp(outputs[p], solved.pointers[k + p], row.bytes) != 0)
            return false;
    for (uint32_t column = 0; column < k; ++column)
        if (row.wanted[column] != nullptr &&
            std::memcmp(solved.blocks[column], row.wanted[column], row.bytes) != 0)
            return false;
    return true;
}

bool all_readable(const CodeRow& row, uint32_t missing, std::span<const uint32_t> erasures)
{
    for (uint32_t column = 0; column < row.data_columns; ++column)
        if (row.wanted[column] != nullptr && !readable(row, missing, column, erasures))
            return false;
    return true;
}

}  // namespace cowraid::test
