// SPDX-License-Identifier: MIT
// One simulated run: the machine, what the volume must hold now, and what it must hold after a crash.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/sim/events.h"
#include "tests/sim/machine.h"
#include "tests/sim/model.h"

namespace cowraid::test {

// Whether an operation may be refused for lack of space.
enum class Growth : uint8_t { kNone, kSome };

// A file that a call of several steps was changing when power failed or space ran out: any of its bytes may
// be old, new or zero, and the bits of its mode that the change clears may be there or not.
struct HalfChanged {
    InodeNumber inode;
    FileContent after;
    uint32_t cleared_mode_bits = 0;
};

class World {
public:
    World(const MachineShape& shape, uint64_t seed, EventCounts& events_of_run);

    Prng prng;
    const bool compresses;  // files, where the volume is not mounted for reading
    Machine machine;
    EventCounts& events;
    Model now;
    Model durable;  // what a crash leaves, unless it interrupts a commit
    std::map<uint64_t, uint64_t> references;  // lookup references held
    std::optional<HalfChanged> half_changed;
    bool in_commit = false;  // the call under way, or the last one, was asked to commit

    Filesystem& fs() { return machine.fs(); }

    // What is being done, for the story of a failure. printf-like.
    [[gnu::format(printf, 2, 3)]] void note(const char* format, ...);
    // The first violation counts; the run ends. printf-like.
    [[gnu::format(printf, 2, 3)]] void violation(const char* format, ...);
    [[nodiscard]] bool failed() const { return !violation_.empty(); }
    // More members failed than the volume can do without, and it says so. Nothing is acknowledged any more.
    [[nodiscard]] bool stopped();
    bool overloaded = false;  // stopping is right
    [[nodiscard]] const std::string& violation_text() const { return violation_; }
    // The last things that were done, one per line.
    [[nodiscard]] std::string story() const;
    void tell_everything() { verbose_ = true; }

    [[nodiscard]] bool power_lost() { return !machine.power().on(); }
    // After a mount.
    void mounted();
    // Call after every call into the filesystem, before the model learns of its change: what returned before
    // it is durable if it committed. False when power was lost or the run has failed.
    bool returned() { return returned(Event::kImplicitCommit); }
    bool returned(Event commit_kind);
    // returned(), and compares the result with the model's. True when the call succeeded.
    bool settle(const char* what, Err got, Err expected, Growth growth = Growth::kNone);
    // Everything that was done is durable.
    void committed()
    {
        durable = now;
        machine.acknowledged();
    }

    void hold(InodeNumber inode) { ++references[inode.value]; }
    void let_go(InodeNumber inode, uint64_t count);
    // Removes the inode from the model if it has neither name nor user.
    void drop_if_unused(InodeNumber inode);

private:
    // By the shape of the volume, whichever members are away, and by what it says of itself.
    [[nodiscard]] bool space_is_short();

    std::vector<std::string> notes_;  // a ring
    size_t next_note_ = 0;
    std::string violation_;
    uint64_t commits_ = 0;
    bool verbose_ = false;
};

}  // namespace cowraid::test
