// SPDX-License-Identifier: MIT
// The trees of the last commit as text, straight from their nodes: what cannot be read or decoded is named,
// and the rest follows.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "fs/volume/volume.h"

namespace cowraid {

struct TreeDumpOptions {
    std::string_view tree;  // "root", "checksum", "free-space", "remap" or "file"; empty: all of them
    bool headers_only = false;  // of nodes, no items
};

// kNotFound: there is no such tree. Damage is printed, and no error. The volume is opened read-only.
Status dump_trees(Volume& volume, const TreeDumpOptions& options, FILE* out);

// An item of a leaf by its type: the structure that its payload begins with.
std::string item_text(const Key& key, std::span<const std::byte> payload);

}  // namespace cowraid
