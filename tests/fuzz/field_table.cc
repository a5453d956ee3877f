// SPDX-License-Identifier: MIT
#include "tests/fuzz/field_table.h"

#include <algorithm>

#include "base/assert.h"

namespace cowraid::test {

namespace {

// Elements of a long array that stand for all of it, and the last one.
constexpr size_t kFirstElements = 3;
constexpr size_t kShortArray = 8;
constexpr size_t kMaxLeafBytes = 8;

bool is_nested(std::string_view structure)
{
    const std::span<const FieldRow> rows = field_rows();
    return std::any_of(rows.begin(), rows.end(), [=](const FieldRow& row) { return structure == row.type; });
}

struct Prefix {
    std::string structure;
    std::string name, field;
    size_t offset = 0;
};

void expand(std::string_view structure, const Prefix& prefix, std::vector<Leaf>& leaves);

// Byte strings are no numbers: their first and last bytes are overwritten.
void expand_bytes(const FieldRow& row, const Prefix& at, std::vector<Leaf>& leaves)
{
    const size_t bytes = std::min(row.bytes, kMaxLeafBytes);
    leaves.push_back({at.structure, at.name, at.field, at.offset, bytes});
    if (row.bytes > kMaxLeafBytes)
        leaves.push_back({at.structure, at.name + ".end", at.field, at.offset + row.bytes - bytes, bytes});
}

void expand_element(const FieldRow& row, const Prefix& at, std::vector<Leaf>& leaves)
{
    if (std::string_view(row.type).starts_with("Disk"))
        expand(row.type, {at.structure, at.name + ".", at.field + ".", at.offset}, leaves);
    else
        leaves.push_back({at.structure, at.name, at.field, at.offset, row.element_bytes});
}

void expand_row(const FieldRow& row, const Prefix& prefix, std::vector<Leaf>& leaves)
{
    const Prefix at{prefix.structure, prefix.name + row.name, prefix.field + row.name,
                    prefix.offset + row.offset};
    const size_t count = row.bytes / row.element_bytes;
    if (row.element_bytes == 1 && count > 1)
        return expand_bytes(row, at, leaves);
    if (count == 1)
        return expand_element(row, at, leaves);
    for (size_t i = 0; i < count; ++i) {
        if (count > kShortArray && i >= kFirstElements && i + 1 < count)
            continue;
        expand_element(row,
                       {at.structure, at.name + "[" + std::to_string(i) + "]", at.field,
                        at.offset + i * row.element_bytes},
                       leaves);
    }
}

void expand(std::string_view structure, const Prefix& prefix, std::vector<Leaf>& leaves)
{
    for (const FieldRow& row : field_rows())
        if (structure == row.structure)
            expand_row(row, prefix, leaves);
}

}  // namespace

std::vector<std::string> fuzzed_structures()
{
    std::vector<std::string> structures;
    for (const FieldRow& row : field_rows())
        if ((structures.empty() || structures.back() != row.structure) && !is_nested(row.structure))
            structures.emplace_back(row.structure);
    return structures;
}

std::vector<Leaf> leaves_of(std::string_view structure)
{
    std::vector<Leaf> leaves;
    expand(structure, {std::string(structure), "", "", 0}, leaves);
    CW_ASSERT(!leaves.empty());
    return leaves;
}

size_t bytes_of_structure(std::string_view structure)
{
    for (const FieldRow& row : field_rows())
        if (structure == row.structure)
            return row.structure_bytes;
    return 0;
}

}  // namespace cowraid::test
