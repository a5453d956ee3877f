// SPDX-License-Identifier: MIT
// Which slots of which member are taken, and where a new block group would go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "format/group_map_codec.h"
#include "format/profile.h"
#include "format/superblock_codec.h"

namespace cowraid {

// Not thread-safe: guarded by its owner.
class SlotAllocator {
public:
    // Members with `usable` false keep their slots but get no new groups.
    void add_member(const MemberRecord& member, bool usable);
    void set_usable(MemberId member, bool usable);
    // Marks the slots of an existing group; kCorrupt when one is taken twice.
    Status take(const GroupRecord& group);
    void give_back(const GroupRecord& group);

    // A new group of `profile` from free slots of usable members, most free space first, as wide as the
    // profile allows; column size from the members' slot sizes and the volume's size (docs/DESIGN.md), so
    // that the volume never needs more than kMaxGroups groups. Takes the slots. Fills everything but
    // address, content, flags, generation. kNoSpace when fewer than min_members members have room.
    Result<GroupRecord> plan_group(const Profile& profile, uint32_t chunk_bytes);

    // Blocks of data that groups of `profile` could still hold: plans until nothing fits, without taking.
    [[nodiscard]] uint64_t potential_blocks(const Profile& profile, uint32_t chunk_bytes) const;
    [[nodiscard]] uint64_t free_bytes(MemberId member) const;

private:
    struct Member {
        MemberRecord record;
        bool usable;
        std::vector<bool> taken;
        uint64_t free_slots;
    };
    [[nodiscard]] Member* find(MemberId id);
    std::vector<Member> members_;
};

}  // namespace cowraid
