// SPDX-License-Identifier: MIT
// Simulated members with superblocks and maps on them, for tests: commits and degraded mounts as the
// filesystem would make them, but told which members each step reaches.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/superblock_store.h"
#include "sim/borrowed_device.h"
#include "sim/sim_device.h"

namespace cowraid::test {

using Ids = std::vector<uint32_t>;

inline Ids ids_of(const std::vector<MemberId>& members)
{
    Ids ids;
    for (const MemberId member : members)
        ids.push_back(member.value);
    return ids;
}

class SampleVolume {
public:
    // Members 1..member_count on disks "/dev/m1"..; commit 1 is on all of them.
    SampleVolume(uint64_t seed, uint32_t member_count);

    [[nodiscard]] SimDevice& disk(uint32_t id) { return *disks_[id - 1]; }
    [[nodiscard]] Ids all() const;
    // Devices for assemble(); the disks stay here.
    [[nodiscard]] std::vector<std::unique_ptr<BlockDevice>> devices(const Ids& ids);
    // Members with these disks; the others of the table are absent.
    void fill(MemberSet& members, const Ids& ids);

    // The next commit of `history`, with new trees and a map, written to members `ids` only.
    void commit(Superblock& history, const Ids& ids) { commit(history, ids, ids); }
    // As above, but a crash lets the superblock reach only `reached` of them.
    void commit(Superblock& history, const Ids& ids, const Ids& reached);
    // A commit that records member states and epochs: the trees stay.
    void commit_states(Superblock& history, const Ids& ids, const Ids& reached);
    // What every mount does first: the chosen commit again, unchanged.
    void rewrite(const Superblock& history, const Ids& ids);
    // What a mount with only `ids` records in its first commit: the others missing, a new epoch.
    void mount_degraded(Superblock& history, const Ids& ids);
    // What the commit after a member failed at run time records.
    void fail(Superblock& history, uint32_t id);
    // A member that caught up.
    void restore(Superblock& history, uint32_t id);
    // Overwrites slot `generation` % 8 in the given ring with random bytes.
    void rot_slot(uint32_t id, uint32_t ring, uint64_t generation);

    Superblock state;  // the history all members share at first
    Prng prng;

private:
    std::vector<std::unique_ptr<SimDevice>> disks_;
};

}  // namespace cowraid::test
