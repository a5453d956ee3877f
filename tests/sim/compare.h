// SPDX-License-Identifier: MIT
// Reads everything a mounted volume holds and compares it with a model.
#pragma once

#include <optional>
#include <string>

#include "base/random.h"
#include "fs/filesystem.h"
#include "tests/sim/model.h"
#include "tests/sim/world.h"

namespace cowraid::test {

// For printf.
inline unsigned long long ull(uint64_t value)
{
    return value;
}
inline unsigned long long ull(InodeNumber inode)
{
    return inode.value;
}

// The first difference, or empty. Names, attributes, content, targets, extended attributes, of everything
// that has a name. The file of `half_changed` may hold anything between the model and its content there; the
// model then learns what it holds.
std::string compare_tree(Filesystem& fs, Prng& prng, Model& model,
                         const std::optional<HalfChanged>& half_changed);
// One inode by its number, with content.
std::string compare_inode(Filesystem& fs, Prng& prng, InodeNumber number, const ModelInode& expected);
// Takes over what the file holds now, if that is between the model and `half_changed`.
std::string adopt_file(Filesystem& fs, Model& model, const HalfChanged& half_changed);

}  // namespace cowraid::test
