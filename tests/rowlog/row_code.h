// SPDX-License-Identifier: MIT
// A row as a later reader finds it: which blocks it can still have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cowraid::test {

inline constexpr uint32_t kMaxColumns = 8;

struct CodeRow {
    uint32_t data_columns = 0;
    uint32_t parity = 0;
    size_t bytes = 0;  // of a block: at most 4096
    std::array<const std::byte*, kMaxColumns> columns{};  // of missing ones: anything
    std::array<const std::byte*, kMaxColumns> wanted{};  // what is promised; null: nothing

    [[nodiscard]] uint32_t column_count() const { return data_columns + parity; }
};

// The columns that are not missing belong to one code word, and it has all that is promised. Then it survives
// any loss that parity tolerates.
bool is_code_word(const CodeRow& row, uint32_t missing);

// Every promised block is there, or solved with some choice of further erasures, the way a read would go.
// `erasures`: all sets of at most as many columns as there is parity.
bool all_readable(const CodeRow& row, uint32_t missing, std::span<const uint32_t> erasures);

}  // namespace cowraid::test
