// SPDX-License-Identifier: MIT
// The trees of the last commit as text or JSON, straight from their nodes: what cannot be read or decoded is
// named, and the rest follows.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/volume/volume.h"
#include "tools/common/report_error.h"

namespace cowraid {

std::vector<std::string> tree_names();

struct TreeDumpOptions {
    std::string_view tree;  // of tree_names(); empty: all of them
    bool headers_only = false;  // of nodes, no items
    bool mounted = false;  // said at the beginning
    OutputFormat format = OutputFormat::kText;
};

// How many nodes could not be read or decoded: that is printed, and no error. kNotFound: there is no such
// tree; nothing is printed. The volume is opened read-only.
Result<uint64_t> dump_trees(Volume& volume, const TreeDumpOptions& options, FILE* out);

// An item of a leaf by its type: the structure that its payload begins with.
std::string item_text(const Key& key, std::span<const std::byte> payload);

}  // namespace cowraid
