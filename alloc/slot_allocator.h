// SPDX-License-Identifier: MIT
// Which slots of which member are taken, and where a new block group would go.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "alloc/slot_plan.h"
#include "base/status.h"
#include "format/group_map_codec.h"
#include "format/profile.h"
#include "format/superblock_codec.h"

namespace cowraid {

// Members that new groups may take.
enum class SlotMembers : uint8_t {
    kPresent,
    kPresentFirst,  // all of them once those that are present have no room for a group
    kAll,  // in each group at most as many that are away as its profile tolerates
};

// What groups could be made while others give their slots back: a count, no slots are taken. Microseconds per
// group and member.
class SlotForecast {
public:
    // Makes groups of `profile` until they hold so many blocks of data, or there is no room. What they hold.
    uint64_t make_groups(const Profile& profile, uint64_t blocks);
    void give_back(const GroupRecord& group);

private:
    friend class SlotAllocator;
    std::vector<MemberRoom> room_;
    uint64_t group_count_ = 0;
};

// Not thread-safe: guarded by its owner. Copies are for asking what would be left.
class SlotAllocator {
public:
    // Each member once.
    void add_member(const MemberRecord& member, bool present);
    // It has as many slots as before, or another number: true. Those that go are free.
    bool resize_member(const MemberRecord& member);
    // No new group takes its slots from that number on, as if there were none.
    void set_limit(MemberId member, uint64_t slots);
    // All its slots are free.
    void remove_member(MemberId member);
    // True when that is new.
    bool set_present(MemberId member, bool present);
    // No new group takes any of its slots.
    void set_leaving(MemberId member, bool leaving);
    // Marks the slots of an existing group; kCorrupt, and nothing is marked, when one is taken twice or does
    // not exist.
    Status take(const GroupRecord& group);
    void give_back(const GroupRecord& group);

    // Groups of a profile that are to come first, until they hold so many blocks.
    struct Share {
        const Profile* profile;
        uint64_t blocks;
    };
    // A new group of `profile` from free slots of `members` beside `kept`, those with most free space, as
    // wide as the profile allows; column size from the members' slot sizes and the volume's size
    // (slot_plan.h), so that the volume never needs more than kMaxGroups groups. Takes the slots. Fills
    // everything but address, content, flags, generation. kNoSpace when fewer than min_members members have
    // room.
    Result<GroupRecord> plan_group(const Profile& profile, uint32_t chunk_bytes,
                                   SlotMembers members = SlotMembers::kPresent,
                                   std::span<const Share> kept = {});
    // Data columns that plan_group() would give it; 0 for kNoSpace.
    [[nodiscard]] uint32_t planned_width(const Profile& profile, std::span<const Share> kept = {}) const;
    // Blocks of data that groups of `profile` could still hold beside `kept`: what plan_group() would give
    // until kNoSpace, without taking it. Takes about a microsecond per member and group.
    [[nodiscard]] uint64_t potential_blocks(const Profile& profile, uint32_t chunk_bytes,
                                            std::span<const Share> kept = {},
                                            SlotMembers members = SlotMembers::kPresent) const;
    [[nodiscard]] uint64_t free_bytes(MemberId member) const;
    // A slot that no group has, and that one may get.
    [[nodiscard]] bool is_free(MemberId member, uint64_t slot) const;
    [[nodiscard]] SlotForecast forecast(SlotMembers members) const;

private:
    struct Member {
        MemberRecord record;
        bool present;
        bool leaving;
        uint64_t limit;  // slots that groups may take are below it
        std::vector<bool> taken;
        uint64_t free_slots;  // below the limit

        void count_free();
    };
    enum class Mark : uint8_t { kFree, kTaken };

    [[nodiscard]] Member* find(MemberId id);
    [[nodiscard]] const Member* find(MemberId id) const;
    static bool mark(Member& member, const std::vector<SlotRun>& runs, Mark mark);
    static std::vector<SlotRun> pick_slots(const Member& member, uint64_t count);
    [[nodiscard]] std::vector<MemberRoom> rooms(SlotMembers members) const;
    [[nodiscard]] std::optional<GroupShape> shape_beside(std::span<const Share> kept, const Profile& profile,
                                                         SlotMembers members) const;

    std::vector<Member> members_;
    uint64_t group_count_ = 0;
};

}  // namespace cowraid
