// SPDX-License-Identifier: MIT
// Orders about members and block groups that crash replay records beside its workload: one after another,
// each brought on a little before every commit.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "sim/fault_device.h"
#include "tests/crash/crash_replay.h"
#include "tests/crash/workload.h"

namespace cowraid::test {

// Pieces of what stale columns lack, or all of it.
void catch_up(Filesystem& fs, int steps);
uint64_t stale_groups(Filesystem& fs);

class Orders {
public:
    using Devices = std::vector<std::unique_ptr<FaultDevice>>;
    // All outlive it. `report` counts what ended. The last of `devices` is no member where the options ask
    // for members that come or are replaced.
    Orders(const CrashOptions& options, Prng& prng, Devices& devices, CrashReport& report);

    // What is due before a commit of the workload. Fails when the volume does.
    Status step(Filesystem& fs, Workload& workload);
    // A member is out of service, or lacks something.
    [[nodiscard]] bool thin(Filesystem& fs) const { return failing_.value != 0 || stale_groups(fs) > 0; }
    // All is committed: what a scrub repairs from now on is all that rots. A member does, or has not since
    // the scrub's end.
    Status rot(Filesystem& fs);
    // Blocks of a member may be bad.
    [[nodiscard]] bool rotten() const { return rotten_; }
    [[nodiscard]] const std::set<MemberId>& ever_rotten() const { return ever_rotten_; }
    // Members that failed so far.
    [[nodiscard]] const std::set<MemberId>& failed() const { return failed_; }

private:
    void balance(Filesystem& fs);
    void change_table(Filesystem& fs, Workload& workload);
    void begin_replace(Filesystem& fs);
    void continue_replace(Filesystem& fs, Workload& workload);
    void resize(Filesystem& fs);
    void use_spare(Filesystem& fs);
    Status rot_column(Filesystem& fs, const ArrayGroup& group, uint32_t column);
    void scrub(Filesystem& fs);
    [[nodiscard]] MemberRecord some_member(Filesystem& fs);
    std::unique_ptr<BlockDevice> borrow(uint32_t device);

    const CrashOptions& options_;
    Prng& prng_;
    Devices& devices_;
    CrashReport& report_;
    std::vector<uint32_t> device_of_;  // by member id
    uint32_t spare_ = UINT32_MAX;  // index of the device that is no member, if there is one
    bool removes_ = false;  // a removal has begun, and its device is not the spare one yet
    MemberId failing_;  // 0: none waits for a spare
    std::set<MemberId> failed_;
    bool rotten_ = false, mended_ = false;  // not durably, before the next commit
    std::set<MemberId> ever_rotten_;
};

}  // namespace cowraid::test
