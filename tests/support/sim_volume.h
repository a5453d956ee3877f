// SPDX-License-Identifier: MIT
// A whole volume on simulated members, without FUSE: made, mounted, cut off, mounted again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "fs/check/check.h"
#include "fs/filesystem.h"
#include "fs/make_volume.h"
#include "sim/borrowed_device.h"
#include "sim/fault_device.h"
#include "sim/sim_device.h"

namespace cowraid::test {

struct VolumeShape {
    uint32_t member_count = 4;
    uint64_t member_bytes = 96 * kMiB;
    ProfileId data_profile = ProfileId::kRaid6;
    ProfileId metadata_profile = ProfileId::kRaid1c3;
    uint32_t chunk_bytes = kDefaultChunkBytes;
    uint64_t intent_log_bytes = 0;  // 0: as the layout has it
    bool compress = false;  // what is made in the root directory
};

class SimVolume {
public:
    // Members without content.
    explicit SimVolume(const VolumeShape& shape);
    ~SimVolume();
    SimVolume(const SimVolume&) = delete;
    SimVolume& operator=(const SimVolume&) = delete;

    Status make(std::string& why);
    // One more device, which mounts find, too; its index.
    uint32_t add_device(uint64_t bytes);
    // Its requests, for somebody else to own.
    std::unique_ptr<BlockDevice> borrow_one(uint32_t index);
    // Leaves out the members whose index (from 0) is in `absent`.
    Status mount(const MountOptions& options, std::string& why, const std::vector<uint32_t>& absent = {});
    // Closes: everything durable.
    Status unmount();
    // Power fails for all members at once; what was not flushed is lost in part.
    void power_cut(Prng& prng, const PowerCutOptions& options = {});
    // The daemon dies; members keep their caches.
    void kill() { fs_.reset(); }

    [[nodiscard]] Filesystem& fs() { return *fs_; }
    [[nodiscard]] bool mounted() const { return fs_ != nullptr; }
    [[nodiscard]] SimDevice& member(uint32_t index) { return *members_[index]; }
    [[nodiscard]] std::vector<const SimDevice*> members() const;
    // What its requests pass through, for faults. Rules last over mounts.
    [[nodiscard]] FaultDevice& cable(uint32_t index) { return *cables_[index]; }
    // What requests call that a rule with kSlow hits, of any member.
    void set_slow_hook(SlowHook hook) { slow_ = hook; }
    [[nodiscard]] uint32_t member_count() const { return static_cast<uint32_t>(members_.size()); }
    [[nodiscard]] const VolumeShape& shape() const { return shape_; }

    // Of all members together.
    [[nodiscard]] PowerSupply& power() { return power_; }

    // Offline check; the volume must not be mounted.
    Status check(CheckReport& report, std::string& why, const std::vector<uint32_t>& absent = {});

    // The members for somebody else, while the volume is not mounted.
    std::vector<std::unique_ptr<BlockDevice>> borrow(const std::vector<uint32_t>& absent);

private:
    static void be_slow(void* self, uint64_t microseconds);

    VolumeShape shape_;
    SlowHook slow_;
    PowerSupply power_;
    std::vector<std::unique_ptr<SimDevice>> members_;
    std::vector<std::unique_ptr<FaultDevice>> cables_;
    std::unique_ptr<Filesystem> fs_;
};

MountOptions manual_options();

// Begins a balance by chance: of data, and perhaps nodes, into another profile, or of everything. What
// tolerates one or two members may become what tolerates the other number, but not fewer than `lacking`, the
// members that are away or damaged, or may be. kBusy: one is under way.
Status begin_balance(Filesystem& fs, Prng& prng, size_t lacking);
// Steps of it, with the commits that it asks for if `commits`, until it ends or has to wait.
void continue_balance(Filesystem& fs, int steps, bool commits);

}  // namespace cowraid::test
