// SPDX-License-Identifier: MIT
// What crash replay records: small files in the root directory, changed and synced over and over.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "fs/filesystem.h"

namespace cowraid::test {

// A directory as it should be: name to checksum and size of the content.
struct FileState {
    uint64_t size = 0;
    uint64_t checksum = 0;
    friend bool operator==(const FileState&, const FileState&) = default;
};
using DirectoryState = std::map<std::string, FileState>;

class CommitWatcher {
public:
    // An operation had to wait for a commit, which holds `state`.
    virtual void committed_by_operation(DirectoryState state) = 0;

protected:
    ~CommitWatcher() = default;
};

// Drives one filesystem and knows what it must contain.
class Workload {
public:
    Workload(Filesystem& fs, uint64_t seed, CommitWatcher& watcher) : watcher_(watcher), prng_(seed)
    {
        use(fs);
    }
    // The same volume, mounted again.
    void use(Filesystem& fs);

    // Most of what is written from now on can be compressed.
    void write_text(bool on) { text_ = on; }

    // A few random operations. None may fail: nothing is wrong with the members here.
    Status change();
    // Makes a file that needs new block groups, so that the next commit changes the map; and removes it.
    Status grow(size_t bytes);
    Status shrink();
    [[nodiscard]] DirectoryState state() const;
    // After every call of the filesystem, before its change is applied to the state.
    void note_commit();

private:
    Status write();
    Status remove();
    Status rename();
    [[nodiscard]] std::string random_name();

    CommitWatcher& watcher_;
    Filesystem* fs_ = nullptr;
    bool text_ = false;
    Prng prng_;
    std::map<std::string, std::vector<std::byte>> files_;
    uint64_t commits_ = 0;
};

// Reads the root directory of `fs` back. False and a line in `why` when something cannot be read.
bool read_state(Filesystem& fs, DirectoryState& out, std::string& why);

}  // namespace cowraid::test
