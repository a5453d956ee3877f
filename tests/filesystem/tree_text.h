// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "format/items.h"
#include "fs/filesystem.h"

namespace cowraid::test {

// Everything that a user sees of the volume, as text: names, attributes with times but not the access time,
// content, extended attributes, targets. Two volumes that hold the same give the same text. What cannot be
// read says so.
std::string tree_text(Filesystem& fs);

}  // namespace cowraid::test
