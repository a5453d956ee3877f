// SPDX-License-Identifier: MIT
// Cases of several fields that agree with each other: sizes together with places, counts with arrays. Each
// recipe draws its values from a seed; now and then one of them is a little wrong.
#pragma once

#include <cstring>

#include "base/random.h"
#include "tests/fuzz/disk_editor.h"
#include "tests/fuzz/leaf_editor.h"

namespace cowraid::test {

class MultiEdit {
public:
    MultiEdit(DiskEditor& disk, uint64_t seed) : editor(disk), prng(seed), exact_(prng.chance(2, 3)) { }

    // The value itself. In some cases rarely another.
    uint64_t near(uint64_t value);
    // Anything, mostly what is special about numbers.
    uint64_t wild();
    // A number of bytes between two powers of two, in whole blocks; now and then exactly a power of two.
    uint64_t size_between(uint32_t low_shift, uint32_t high_shift);
    [[nodiscard]] bool chance(uint64_t numerator, uint64_t denominator)
    {
        return prng.chance(numerator, denominator);
    }
    template <typename T> const T& any_of(const std::vector<T>& choice)
    {
        return choice[prng.below(choice.size())];
    }

    // Every copy of the superblock says the same.
    [[nodiscard]] DiskSuperblock head();
    void set_head(const DiskSuperblock& changed);
    [[nodiscard]] size_t line_count();  // of members, not of spares
    [[nodiscard]] DiskMember line(size_t index);
    // Behind the last line: one more, which is counted.
    void set_line(size_t index, const DiskMember& changed);
    void set_map(const GroupMap& map);

    // Leaves of a tree.
    [[nodiscard]] std::vector<size_t> leaves(uint64_t tree_id) const;
    [[nodiscard]] std::vector<LeafEntry> entries(size_t node) const { return read_leaf(editor.node(node)); }
    void set_entries(size_t node, std::vector<LeafEntry> changed)
    {
        write_leaf(editor.change_node(node), std::move(changed));
    }

    DiskEditor& editor;
    Prng prng;

private:
    const bool exact_;  // all of the case agrees
};

template <typename T> T structure_at(std::span<const std::byte> bytes, size_t offset = 0)
{
    T structure{};
    if (offset <= bytes.size() && bytes.size() - offset >= sizeof structure)
        std::memcpy(&structure, bytes.data() + offset, sizeof structure);
    return structure;
}

template <typename T> void put_structure(Bytes& bytes, size_t offset, const T& structure)
{
    if (bytes.size() < offset + sizeof structure)
        bytes.resize(offset + sizeof structure);
    std::memcpy(bytes.data() + offset, &structure, sizeof structure);
}

template <typename T> void append_structure(Bytes& bytes, const T& structure)
{
    put_structure(bytes, bytes.size(), structure);
}

struct Recipe {
    const char* name;
    void (*apply)(MultiEdit& edit);
    // Says of used blocks that they are free, which only a full check can tell from the truth.
    bool may_overwrite = false;
    bool log = false;  // forges entries of a log
    bool content_kept = false;  // as in Freedom
};
std::span<const Recipe> size_recipes();
std::span<const Recipe> tree_recipes();
std::span<const Recipe> log_recipes();

}  // namespace cowraid::test
