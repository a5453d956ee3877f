// SPDX-License-Identifier: MIT
// Collects the names of a directory, for tests that walk a volume.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "fs/filesystem.h"

namespace cowraid::test {

// Takes every entry except "." and "..". It gives no references back: ask for no attributes, since each entry
// would come with one.
class NameSink final : public DirectorySink {
public:
    bool entry(std::string_view name, InodeNumber inode, uint32_t, uint64_t, const Attributes*) override
    {
        if (name != "." && name != "..")
            names.emplace(name, inode);
        return true;
    }

    // In order of the names, not of the cursor.
    std::map<std::string, InodeNumber> names;
};

}  // namespace cowraid::test
