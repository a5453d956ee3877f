// SPDX-License-Identifier: MIT
// Members come, go, leave service and get other disks while the volume is used.
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
    // Takes notice of a removal that ended. Call after every operation.
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

    void add();
    void remove();
    void replace();
    void take_offline();
    void bring_online();

    World& world_;
    Injector& injector_;
};

}  // namespace cowraid::test
