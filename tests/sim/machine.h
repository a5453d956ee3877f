// SPDX-License-Identifier: MIT
// A simulated machine: members with faults behind one power supply, and the volume mounted from them.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/assembly.h"
#include "fs/check/check.h"
#include "fs/filesystem.h"
#include "sim/fault_device.h"
#include "sim/sim_device.h"
#include "tests/support/recorded.h"
#include "tests/support/sim_volume.h"

namespace cowraid::test {

struct MachineShape {
    std::vector<uint64_t> member_bytes;
    ProfileId data_profile = ProfileId::kRaid6;
    ProfileId metadata_profile = ProfileId::kRaid1c3;
    uint32_t chunk_bytes = kDefaultChunkBytes;
    // Little room: operations may meet a full volume.
    bool tight = false;

    // Members that it is made with.
    [[nodiscard]] uint32_t member_count() const { return static_cast<uint32_t>(member_bytes.size()); }
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

// What the disk of an index is to the volume. Its member, or spare, has the number index + 1.
enum class Place : uint8_t {
    kNone,  // nothing yet, or no more
    kJoining,  // power failed while it was added: only a mount can say
    kMember,
    kTarget,  // of the replacement that is under way
    kSpare,  // waits for a member to fail
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

    // A member is being removed, or was when it was heard of last: as many must be left without it.
    bool removing = false;

    [[nodiscard]] Filesystem& fs() { return *fs_; }
    [[nodiscard]] bool mounted() const { return fs_ != nullptr; }
    [[nodiscard]] PowerSupply& power() { return power_; }
    [[nodiscard]] const MachineShape& shape() const { return shape_; }
    // Members that may be hurt now: by the last commit that was acknowledged, and by one that was not and of
    // which something is on a member.
    [[nodiscard]] uint32_t tolerance() const { return std::min(acknowledged_tolerance_, tolerance_now()); }
    // A commit was.
    void acknowledged() { acknowledged_tolerance_ = tolerance_now(); }
    // Indexes of members.
    [[nodiscard]] std::vector<uint32_t> members() const;
    [[nodiscard]] uint32_t member_count() const { return static_cast<uint32_t>(members().size()); }
    // Indexes that there ever were: some have no disk.
    [[nodiscard]] uint32_t disk_count() const { return static_cast<uint32_t>(members_.size()); }
    [[nodiscard]] Place place(uint32_t index) const { return members_[index].place; }
    void set_place(uint32_t index, Place place) { members_[index].place = place; }
    // The first index of that place.
    [[nodiscard]] std::optional<uint32_t> find(Place place) const;
    // From now on there is such an index, with an empty disk unless `bytes` is 0.
    void add_disk(uint32_t index, uint64_t bytes);
    // An empty disk in the place of another, which stays plugged in.
    void exchange_disk(uint32_t index, uint64_t bytes);
    [[nodiscard]] bool exchanged(uint32_t index) const { return members_[index].old != nullptr; }
    // The index that has the disk of that name now, not as its old one.
    [[nodiscard]] std::optional<uint32_t> holder_of(const std::string& name) const;
    // Of all disks that there ever were only that of the name goes on there (empty: the one it has now).
    void settle(uint32_t index, const std::string& name, Place place);
    // Its disk is the volume's no more.
    void forget(uint32_t index) { members_[index] = {}; }
    // The disk's requests for the volume to own.
    std::unique_ptr<BlockDevice> borrow(uint32_t index);
    // What the platters hold, the cable and its faults, where it was written. By index, from 0.
    [[nodiscard]] SimDevice& disk(uint32_t index) { return *members_[index].now->disk; }
    [[nodiscard]] std::vector<const SimDevice*> disks() const;
    [[nodiscard]] FaultDevice& cable(uint32_t index) { return *members_[index].now->cable; }
    [[nodiscard]] const std::vector<uint64_t>& written(uint32_t index) const
    {
        return members_[index].now->plug->written();
    }

private:
    struct Disk {
        std::unique_ptr<SimDevice> disk;
        std::unique_ptr<FaultDevice> cable;
        PluggedDisk* plug = nullptr;  // inside the cable
    };
    struct Member {
        Disk* now = nullptr;
        Disk* old = nullptr;
        Place place = Place::kNone;
    };
    Disk* make_disk(const std::string& name, uint64_t bytes);
    [[nodiscard]] Strangers strangers() const;
    [[nodiscard]] uint32_t tolerance_now() const { return tolerance_of(read_recorded(disks())); }
    std::vector<std::unique_ptr<BlockDevice>> plug_in(const std::vector<uint32_t>& absent);

    const MachineShape shape_;
    PowerSupply power_;
    const uint64_t seed_;
    std::vector<std::unique_ptr<Disk>> disks_;  // all that there ever were: a mount may still use them
    std::vector<Member> members_;
    std::unique_ptr<Filesystem> fs_;
    uint32_t acknowledged_tolerance_ = UINT32_MAX;
};

}  // namespace cowraid::test
