// SPDX-License-Identifier: MIT
// What callers say and learn about an inode.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>

#include "base/units.h"
#include "fs/txn/long_change.h"

namespace cowraid {

// Who asks, for ownership of new files and for clearing set-id bits. Permissions are checked by the kernel
// (default_permissions); nothing here does.
struct Caller {
    uint32_t uid = 0;
    uint32_t gid = 0;
    uint32_t umask = 0;
    // Set-id bits that a file loses when the caller writes to it or changes its size: who has CAP_FSETID,
    // and which groups somebody is in, the front end knows.
    uint32_t cleared_mode_bits = 0;
    // CAP_FOWNER and CAP_LINUX_IMMUTABLE of somebody else than root; asked only where flags are set.
    bool has_fowner = false, has_linux_immutable = false;
};

struct Attributes {
    InodeNumber inode;
    uint64_t size_bytes = 0;
    uint64_t block_count_512 = 0;
    uint64_t rdev = 0;
    uint64_t generation = 0;
    uint32_t mode = 0;
    uint32_t uid = 0;
    uint32_t gid = 0;
    uint32_t link_count = 0;
    timespec accessed{}, modified{}, changed{}, created{};
    // block_count_512 is a bound until the next flush: data in memory may be new, or overwrite.
    bool block_count_estimated = false;
};

// A change of attributes, the size among them.
struct AttributeChange : public LongChange {
    Attributes attributes;  // afterwards, once it is done
};

struct SetAttributes {
    std::optional<uint32_t> mode, uid, gid;
    std::optional<uint64_t> size_bytes;
    std::optional<timespec> accessed, modified, changed;
    bool modified_now = false;
    bool accessed_now = false;
};

}  // namespace cowraid
