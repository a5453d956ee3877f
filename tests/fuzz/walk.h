// SPDX-License-Identifier: MIT
// What a user sees of a mounted volume, and what a user does to it.
#pragma once

#include <map>
#include <string>

#include "fs/filesystem.h"

namespace cowraid::test {

// One name. Equal when the user sees the same.
struct Seen {
    Err err = Err::kOk;  // of the first call that failed
    uint64_t content = 0;  // hash over type, size, bytes, target, extended attributes, entries
    uint64_t attributes = 0;  // hash over what stat(2) says besides
    bool regular = false;

    friend bool operator==(const Seen&, const Seen&) = default;
};

struct WalkResult {
    std::map<std::string, Seen> seen;  // by path
    uint64_t errors = 0;
    bool endless = false;  // gave up
};

// Looks at everything: names, attributes, bytes, targets, extended attributes, statfs, info.
WalkResult walk(Filesystem& fs);

// Uses everything below "used", makes new files, commits. Errors are answers, and counted.
struct SessionOptions {
    bool fill = false;  // writes until there is no space
};
struct SessionResult {
    uint64_t calls = 0;
    uint64_t errors = 0;
    std::string first_error;
};
SessionResult use_volume(Filesystem& fs, const SessionOptions& options);
// Removes everything that can be reached.
void remove_everything(Filesystem& fs);

}  // namespace cowraid::test
