// SPDX-License-Identifier: MIT
// Offline check: reads everything, changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/assembly.h"

namespace cowraid {

struct CheckFinding {
    // Stable words: "tree", "inode", "directory", "extent", "remap", "space", "checksum", "parity", "pad"
    // (blocks of a parity row that nothing refers to), "superblock", "map", "member",
    // "file" (names one of which blocks are lost).
    std::string kind;
    std::string text;  // one line
    uint64_t address = 0;  // volume address, when there is one
    uint32_t member = 0;  // member id, when there is one
    uint64_t block_count = 0;  // bad blocks of that member, when it is about such
    bool repairable = false;  // redundancy is there: reading or scrubbing heals it
};

struct CheckReport {
    std::vector<CheckFinding> findings;
    uint64_t inodes = 0, directories = 0, files = 0, extents = 0, nodes = 0;
    uint64_t data_blocks = 0, checksums_verified = 0, parity_rows_verified = 0;
    // No findings: the map says that members missed writes, and redundancy carries what is old.
    uint64_t stale_columns = 0, stale_blocks = 0;
    // No findings either: rows that the write-intent log names, which a mount recovers.
    uint64_t recovered_rows = 0;

    [[nodiscard]] bool clean() const { return findings.empty(); }
};

// Told how far the reading of stored blocks is, in bytes of members; by the thread that checks.
class CheckProgress {
public:
    virtual ~CheckProgress() = default;
    virtual void at(uint64_t done_bytes, uint64_t total_bytes) = 0;
};

struct CheckOptions {
    bool verify_data = true;  // read every block under parity or checksum, not only the trees
    CheckProgress* progress = nullptr;  // told, unless null
};

// Trees (structure, keys, references), inodes (link counts, sizes, block counts, names both ways, orphans),
// extents (no block owned twice, all inside groups), free space (recorded = referenced), checksums of every
// block that has one, parity blocks, superblock and map copies. kIo when the volume cannot be opened at all;
// `why` says so in one line.
Status check_volume(Assembly assembly, const CheckOptions& options, CheckReport& report, std::string& why);

}  // namespace cowraid
