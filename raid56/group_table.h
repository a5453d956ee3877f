// SPDX-License-Identifier: MIT
// The block groups in memory: resolved to device offsets, sorted by address, replaced as a whole.
#pragma once

#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/ref.h"
#include "base/status.h"
#include "raid56/array.h"

namespace cowraid {

// Resolves a record against the member table. kInvalid when they contradict each other: the record may come
// from a hostile disk.
Result<Ref<const ArrayGroup>> make_array_group(const GroupRecord& record, const Superblock& superblock);

// Thread-safe. A reader holds the list it started with, however the table changes meanwhile.
class GroupTable {
public:
    GroupTable();

    [[nodiscard]] Ref<const GroupList> list() const;
    // kInvalid when its address range overlaps that of another group.
    Status add(Ref<const ArrayGroup> group);
    // Those that begin at one of the addresses, which rise; one change for all of them.
    void remove(std::span<const VolumeAddress> addresses);
    // Each takes the place of the group that begins at its address, if there is one.
    void replace(std::span<const Ref<const ArrayGroup>> groups);

private:
    mutable Mutex mutex_{LockRank::kGroupMap};
    Ref<const GroupList> list_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
