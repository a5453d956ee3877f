// SPDX-License-Identifier: MIT
// A simulated machine: members with faults behind one power supply, and the volume mounted from them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fs/check/check.h"
#include "fs/filesystem.h"
#include "sim/fault_device.h"
#include "sim/sim_device.h"
#include "tests/support/sim_volume.h"

namespace cowraid::test {

struct MachineShape {
    std::vector<uint64_t> member_bytes;
    ProfileId data_profile = ProfileId::kRaid6;
    ProfileId metadata_profile = ProfileId::kRaid1c3;
    uint32_t chunk_bytes = kDefaultChunkBytes;
    // Little room: operations may meet a full volume.
    bool tight = false;

    [[nodiscard]] uint32_t member_count() const { return static_cast<uint32_t>(member_bytes.size()); }
    // Members that may be hurt at any time.
    [[nodiscard]] uint32_t tolerance() const;
    // Members a writable volume needs.
    [[nodiscard]] uint32_t writable_minimum() const;
};

// Passes on to a disk that outlives it, and remembers where it was written, for aiming at what is in use.
class PluggedDisk final : public BlockDevice {
public:
    static constexpr uint64_t kUnitBytes = 16 * 1024;

    explicit PluggedDisk(SimDevice& disk) : disk_(disk), seen_(divide_up(disk.size_bytes(), kUnitBytes)) { }
    [[nodiscard]] uint64_t size_bytes() const override { return disk_.size_bytes(); }
    [[nodiscard]] const char* name() const override { return disk_.name(); }
    void perform(IoRequest& request) override;
    // Offsets of units that were written, in the order of their first write.
    [[nodiscard]] const std::vector<uint64_t>& written() const { return written_; }

private:
    SimDevice& disk_;
    std::vector<bool> seen_;
    std::vector<uint64_t> written_;
};

class Machine {
public:
    Machine(const MachineShape& shape, uint64_t seed);
    ~Machine();
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    Status make(std::string& why);
    Status mount(const MountOptions& options, std::string& why, const std::vector<uint32_t>& absent = {});
    Status unmount();
    // The daemon dies; the members go on.
    void kill() { fs_.reset(); }
    // Power fails (if it is still there) and returns: members lose what they had not stored.
    void power_cycle(Prng& prng, const PowerCutOptions& options);
    Status check(CheckReport& report, std::string& why);

    [[nodiscard]] Filesystem& fs() { return *fs_; }
    [[nodiscard]] bool mounted() const { return fs_ != nullptr; }
    [[nodiscard]] PowerSupply& power() { return power_; }
    [[nodiscard]] const MachineShape& shape() const { return shape_; }
    [[nodiscard]] uint32_t member_count() const { return shape_.member_count(); }
    // What the platters hold, the cable and its faults, where it was written. By index, from 0.
    [[nodiscard]] SimDevice& disk(uint32_t index) { return *members_[index].disk; }
    [[nodiscard]] std::vector<const SimDevice*> disks() const;
    [[nodiscard]] FaultDevice& cable(uint32_t index) { return *members_[index].cable; }
    [[nodiscard]] const std::vector<uint64_t>& written(uint32_t index) const
    {
        return members_[index].plug->written();
    }

private:
    struct Member {
        std::unique_ptr<SimDevice> disk;
        std::unique_ptr<FaultDevice> cable;
        PluggedDisk* plug = nullptr;  // inside the cable
    };
    std::vector<std::unique_ptr<BlockDevice>> plug_in(const std::vector<uint32_t>& absent);

    const MachineShape shape_;
    PowerSupply power_;
    std::vector<Member> members_;
    std::unique_ptr<Filesystem> fs_;
};

}  // namespace cowraid::test
