// SPDX-License-Identifier: MIT
// Every field of every on-disk structure, as the headers of format/ declare them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cowraid::test {

// One declared field. The table is made from the headers when the program is built.
struct FieldRow {
    const char* structure;
    size_t structure_bytes;
    const char* name;
    const char* type;
    size_t offset;
    size_t bytes;
    size_t element_bytes;  // of an array's element; else the same as `bytes`
};
std::span<const FieldRow> field_rows();

// One integer that a case overwrites: a field, an element of an array, or a piece of a byte string.
struct Leaf {
    std::string structure;
    std::string name;  // "root.address", "epochs[1].epoch", "label", "label.end"
    std::string field;  // without indices: what the table of free fields names
    size_t offset = 0;
    size_t bytes = 0;  // 1 to 8
};

// Structures in the order of the headers, without those that stand only inside others.
std::vector<std::string> fuzzed_structures();
// The leaves of a structure. Long arrays are represented by their first elements and their last one.
std::vector<Leaf> leaves_of(std::string_view structure);
size_t bytes_of_structure(std::string_view structure);

}  // namespace cowraid::test
