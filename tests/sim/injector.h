// SPDX-License-Identifier: MIT
// Hurts members, never more at a time than the profiles tolerate, but by overload().
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "tests/sim/world.h"

namespace cowraid::test {

class Injector {
public:
    explicit Injector(World& world) : world_(world) { }

    // One fault of a kind chosen by chance, of those that are possible now; on a mounted volume.
    void strike();
    // One member more than the profiles tolerate fails requests of one kind, all at once, until end_faults();
    // those that are hurt are among them. What the members hold is not hurt. Only while none is out of
    // service.
    void overload();
    // Members of which requests failed by overload().
    [[nodiscard]] std::set<uint32_t> overload_hits() const;
    // After an overload: this member lacks what was written since, or may. While more of them do than
    // tolerated, nothing is done to any.
    void left_service(uint32_t member);
    // Ends what is going on: rules of cables, not damage done. Dead members answer again.
    void end_faults();
    void end_faults_of(uint32_t member);
    // It is no member any more.
    void removed(uint32_t member);
    // The disk of one is that of another now.
    void moved(uint32_t from, uint32_t to);
    // Content of a member rots, if that is tolerated.
    void rot();
    // Whether the volume can be written without one more that is not lost yet.
    [[nodiscard]] bool may_lose_more() const;
    // One whose loss leaves a volume that can be written; it counts as lost from now on.
    std::optional<uint32_t> choose_victim_to_lose();
    // Chooses members to leave out of a mount, all of them hurt from now on; none when that is not possible.
    // `how` says whether the volume must stay writable.
    enum class Absence : uint8_t { kReadOnly, kWritable };
    std::vector<uint32_t> choose_absent(Absence how);

    // Members with any fault since the last time all was found well, by index.
    [[nodiscard]] const std::set<uint32_t>& hurt() const { return hurt_; }
    // Members with any fault ever: only they may have errors counted.
    [[nodiscard]] const std::set<uint32_t>& ever_hurt() const { return ever_hurt_; }
    // Whether a member may have gone out of service for good or its superblocks be unreadable.
    [[nodiscard]] bool may_be_degraded() const { return !gone_.empty(); }
    // A check of everything with every member in service found nothing.
    void all_is_well();

private:
    uint32_t some_member();
    std::optional<uint32_t> choose_victim();
    void hit(Event kind, uint32_t victim);
    void disturb(Event kind, uint32_t victim);
    FaultRule rule_for(Event kind, uint32_t victim);
    void overload_member(Event kind, uint32_t victim);

    void rot_bits(uint32_t victim);
    void rot_blocks(uint32_t victim);
    void rot_wide(uint32_t victim);
    void rot_ring(uint32_t victim, uint32_t ring);
    void rot_maps(uint32_t victim);
    void noise(uint32_t victim, uint64_t offset, uint64_t bytes);
    uint64_t used_offset(uint32_t victim);

    struct ActiveRule {
        uint32_t member;
        FaultDevice* cable;
        size_t number;
    };
    ActiveRule add_rule(uint32_t victim, const FaultRule& rule);

    World& world_;
    std::vector<ActiveRule> rules_;
    std::vector<ActiveRule> overload_;  // of these, those of overload()
    std::set<uint32_t> hurt_;
    std::set<uint32_t> ever_hurt_;
    std::set<uint32_t> gone_;  // of the hurt ones: may be out of service
};

}  // namespace cowraid::test
