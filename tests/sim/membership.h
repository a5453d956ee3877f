// SPDX-License-Identifier: MIT
// Members come, go, leave service, get other disks and other sizes while the volume is used.
#pragma once

#include <optional>

#include "tests/sim/injector.h"
#include "tests/sim/world.h"

namespace cowraid::test {

class Membership {
public:
    Membership(World& world, Injector& injector) : world_(world), injector_(injector) { }

    // One order, chosen by chance, if it is possible now. Afterwards the world may have failed or lost power.
    void step();
    // Brings on, now and then, what is under way or due: copying to another disk, a spare that is to take a
    // place. False: nothing was done.
    bool go_on();
    // Takes notice of a removal, or of a member made smaller, that ended. Call after every operation.
    void settle();
    // After a mount: finds out what became of orders that were cut off.
    void mounted();
    // Only a mount with all disks can say who is a member.
    [[nodiscard]] bool unsettled() const;

private:
    Prng& prng() { return world_.prng; }
    Machine& machine() { return world_.machine; }
    Committer& committer() { return world_.fs().committer; }
    // Members out of service, by index.
    std::vector<uint32_t> out_of_service();
    std::optional<uint32_t> some_out_of_service();
    // After an order, which ends with a commit: whether it was carried out. `excused`: it may be refused.
    bool carried_out(const Status& status, const std::string& why, bool excused);
    [[nodiscard]] bool in_table(uint32_t index);

    // Who is who, by what the volume says: members and spares that are there, by the names of their disks.
    void take_stock();
    [[nodiscard]] bool replacing(uint32_t index);
    // Spoils what is written behind the ends of members: nobody cares.
    void spoil_ends();
    void note_order_cut();

    void add();
    void remove();
    void replace();
    void begin_copy();
    void cancel_copy();
    void copy();
    void change_spares();
    void use_spares();
    void grow(uint32_t index, uint64_t now_bytes);
    void shrink(uint32_t index, uint64_t now_bytes);
    void resize();
    void take_offline();
    void bring_online();

    World& world_;
    Injector& injector_;
    bool cut_ = false;  // power failed in a step that may have been a disk's last or first as a member
    bool shrinks_ = false;  // a member is being made smaller, or was when it was heard of last
};

}  // namespace cowraid::test
