// SPDX-License-Identifier: MIT
// A leaf of a tree as a list of items, so that items can be added, removed and made longer.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "format/items.h"
#include "format/key.h"

namespace cowraid::test {

struct LeafEntry {
    Key key;
    std::vector<std::byte> payload;
};

std::vector<LeafEntry> read_leaf(std::span<const std::byte> image);
// By rising key. Entries for which there is no room are left out, the last ones first; entries of one key
// stay as they are.
void write_leaf(std::span<std::byte> image, std::vector<LeafEntry> entries);

}  // namespace cowraid::test
