// SPDX-License-Identifier: MIT
// A file of the filesystem under test, the ways it is open, and its model.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/unique_fd.h"
#include "tests/fileops/file_model.h"
#include "tests/fileops/history.h"

namespace cowraid::test {

enum class Way : uint8_t { kBuffered, kDirect, kAppend };
constexpr int kWayCount = 3;

class OpenFile {
public:
    static constexpr size_t kHandlesMax = 5;

    // Makes the file; it must not be there.
    OpenFile(std::string path, uint64_t base, History& history);
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile() { unmap(); }

    // One of its descriptors of that kind. Opens one when there is none.
    int descriptor(Way way, Prng& random);
    // Closes a descriptor, unless it is the last one, and opens one.
    void reopen(Prng& random);
    // Shared; from the base to the limit.
    std::span<std::byte> mapping(Prng& random);
    void unmap();

    FileModel model;
    std::string path;  // empty: it has no name any more

private:
    struct Handle {
        Way way;
        UniqueFd fd;
    };
    void open(Way way);

    History& history_;
    std::vector<Handle> handles_;
    std::span<std::byte> mapping_;
};

}  // namespace cowraid::test
