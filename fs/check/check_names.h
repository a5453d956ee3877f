// SPDX-License-Identifier: MIT
// Names across inodes. Every name is stored twice, as an entry of its directory and as a link of its inode;
// the two are compared without a table of names: by sums of seeded hashes while the tree is walked, and only
// when the sums differ by looking every name up. Directories are kept (17 bytes each) to find loops.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fs/check/check_passes.h"
#include "fs/names/dirent.h"

namespace cowraid {

class NameLedger {
public:
    NameLedger();
    void add_entry(uint64_t directory, const Dirent& entry);
    // `mode_type` of the inode.
    void add_link(uint64_t inode, uint64_t sequence, const InodeLink& link, uint32_t mode_type);
    // Entries and links say the same (with a chance of 2^-64 that they do not).
    [[nodiscard]] bool balanced() const { return entry_count_ == link_count_ && sum_ == 0; }

private:
    [[nodiscard]] uint64_t hash(uint64_t directory, const Dirent& entry) const;

    uint64_t seed_;
    uint64_t entry_count_ = 0;
    uint64_t link_count_ = 0;
    uint64_t sum_ = 0;
};

// Looks up the other half of every name of the tree and reports what does not match.
void find_name_damage(CheckContext& context, const TreeRoot& tree);

class DirectoryGraph {
public:
    // A directory with a name, by rising number, and the directory its name stands in.
    void add(uint64_t directory, uint64_t parent);
    // Reports the directories from which the root cannot be reached.
    void check(CheckContext& context);

private:
    enum class Mark : uint8_t { kUnknown, kOnPath, kReachesRoot, kLost };
    [[nodiscard]] size_t find(uint64_t directory) const;
    Mark follow(size_t index);

    std::vector<uint64_t> numbers_, parents_;
    std::vector<Mark> marks_;
    std::vector<size_t> path_;  // scratch of follow()
};

// The names of one bucket after another: places that fit their hash, no name twice.
class BucketCheck {
public:
    // True when the name may stand at the cursor and did not stand in the bucket yet.
    bool accept(uint64_t object, uint64_t seed, uint64_t cursor, std::string_view name);
    // The same for a part of what may have several.
    bool accept_part(uint64_t object, uint64_t seed, const XattrPart& part);
    // Ends the bucket. Whether something accepted since the last call lacks a part.
    bool take_incomplete();

private:
    struct Name {
        std::string text;
        uint32_t part_count;
        bool more;
    };
    void end_bucket();

    uint64_t object_ = 0;
    uint64_t bucket_ = 0;
    std::vector<Name> names_;
    bool incomplete_ = false;
};

}  // namespace cowraid
