// SPDX-License-Identifier: MIT
// Devices in reserve: the superblock has their lines, this the devices of those that are there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "device/block_device.h"
#include "format/superblock_codec.h"

namespace cowraid {

// Whether a device of that size may be a spare: `least_bytes` has the smallest member. kInvalid and `why`.
Status check_spare_size(const std::string& name, uint64_t size_bytes, uint64_t least_bytes, std::string& why);

// Thread-safe.
class Spares {
public:
    void add(MemberId id, std::unique_ptr<BlockDevice> device);
    // The device, for whoever makes it a member: the spare has none from now on. Null: it has none.
    [[nodiscard]] std::unique_ptr<BlockDevice> take(MemberId id);
    // The same device, which stays the spare's. As long as nobody takes it.
    [[nodiscard]] BlockDevice* device(MemberId id) const;
    // It failed when it was to become a member.
    void set_useless(MemberId id);
    // No spare any more; its device, if it had one.
    std::unique_ptr<BlockDevice> remove(MemberId id);
    // The path, also of one that was taken; empty: it is not there.
    [[nodiscard]] std::string path(MemberId id) const;
    [[nodiscard]] bool useless(MemberId id) const;

private:
    struct Spare {
        MemberId id;
        std::unique_ptr<BlockDevice> device;  // null: taken
        std::string path;
        bool useless = false;
    };
    [[nodiscard]] const Spare* find(MemberId id) const CW_REQUIRES(mutex_);

    mutable Mutex mutex_{LockRank::kLeaf};
    std::vector<Spare> spares_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
