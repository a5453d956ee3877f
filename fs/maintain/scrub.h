// SPDX-License-Identifier: MIT
// A scrub of the mounted volume: who asked for it, where it is, what it found. One at a time of each scope.
// What stale columns lack is written on the way; those of which nothing is left are handed to the volume,
// which calls them current (docs/DESIGN.md, "Members that missed writes").
#pragma once

#include <map>
#include <vector>

#include "base/mutex.h"
#include "fs/maintain/scrub_walk.h"
#include "fs/volume/volume.h"

namespace cowraid {

enum class ScrubState : uint8_t { kNone, kRunning, kPaused, kFinished, kCancelled };
const char* scrub_state_name(ScrubState state);

struct ScrubOptions {
    ScrubMode mode = ScrubMode::kRepair;
    uint64_t limit = 0;  // bytes of members read per second; 0: as fast as they go
};

struct ScrubStatus {
    ScrubState state = ScrubState::kNone;
    ScrubOptions options;
    uint64_t started = 0, ended = 0;  // seconds since 1970; 0: not yet
    uint64_t run_ms = 0;  // that it ran, pauses left out
    // Bytes of members: done, and what a whole pass had to read when it began.
    uint64_t bytes_done = 0, bytes_total = 0;
    // In blocks of 4 KiB; nodes with all copies.
    uint64_t data_blocks = 0, parity_blocks = 0, nodes = 0;
    uint64_t repaired = 0, unrepaired = 0, adopted = 0, lost = 0, unreadable_nodes = 0;
    uint64_t unverified = 0;  // blocks on members that are not in service
    std::vector<VolumeAddress> lost_addresses;  // the first kScrubAddressesMax of the lost blocks

    // What is wrong and stays so.
    [[nodiscard]] bool damaged() const { return unrepaired + lost + unreadable_nodes > 0; }
    // Everything was looked at, and is as it must be.
    [[nodiscard]] bool all_well() const
    {
        return state == ScrubState::kFinished && !damaged() && unverified == 0;
    }
};
inline constexpr size_t kScrubAddressesMax = 4096;

// Thread-safe.
class Scrub {
public:
    Scrub(Store& store, ScrubScope scope) : store_(store), scope_(scope) { }

    // kBusy: one runs or is paused. kReadOnly, kShutdown: nothing is written to the volume, and nobody takes
    // steps. kNotFound: nothing is in its scope.
    Status start(const ScrubOptions& options);
    // kInvalid: there is none to be paused, resumed, cancelled. resume() as start(), too.
    Status pause();
    Status resume();
    Status cancel();
    [[nodiscard]] ScrubStatus status() const;

    // One piece. False: nothing is to be done. Several at a time bring a scrub on: one reads while another
    // verifies. No locks held.
    bool step();
    // Of the threads that take the steps: waits for work, and as long as the limit says. False: stop().
    bool wait();
    void stop();  // a scrub that runs is paused
    void allow();  // after stop(): again

private:
    // What a step works on; `number` is of its scrub.
    struct Step {
        uint64_t number = 0;
        bool noted = false;  // in a Pass
        ScrubOrder order;
        ScrubPiece piece;
        std::vector<StaleColumn> columns;  // of what begins with it
        ScrubReport report;
        ScrubWalkCounts counts;

        // Something is not as it must be, or could not be looked at.
        [[nodiscard]] bool failed() const
        {
            return report.unrepaired + report.unsettled + report.lost.size() + counts.unreadable_nodes > 0;
        }
    };
    // What a pass over one group, or over all nodes, has shown so far.
    struct Pass {
        std::vector<StaleColumn> columns;  // stale when it began
        uint32_t steps = 0;  // under way
        bool begun = false, issued = false, failed = false;

        [[nodiscard]] bool complete() const { return begun && issued && steps == 0; }
    };
    bool begin(Step& step);
    [[nodiscard]] ScrubOrder order() const CW_REQUIRES(mutex_);
    std::vector<StaleColumn> node_columns();
    void note_begun(Step& step, const ScrubPosition& before, const ScrubPosition& after) CW_REQUIRES(mutex_);
    // `current`: columns that a pass without a finding ended for.
    void note_finished(const Step& step, std::vector<StaleColumn>& current) CW_REQUIRES(mutex_);
    bool finish(const Step& step, ScrubStatus& ended, std::vector<StaleColumn>& current);
    void add(const ScrubReport& report, const ScrubWalkCounts& counts) CW_REQUIRES(mutex_);
    void enter_running() CW_REQUIRES(mutex_);
    void leave_running(ScrubState state) CW_REQUIRES(mutex_);
    [[nodiscard]] uint64_t run_ms() const CW_REQUIRES(mutex_);
    [[nodiscard]] uint64_t due_ms() const CW_REQUIRES(mutex_);
    void end(ScrubState state) CW_REQUIRES(mutex_);

    Store& store_;
    const ScrubScope scope_;
    Mutex walk_mutex_{LockRank::kScrub};  // held by who finds the next piece, which may read nodes
    mutable Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    ScrubStatus status_ CW_GUARDED_BY(mutex_);
    ScrubPosition position_ CW_GUARDED_BY(mutex_);
    uint64_t
        number_ CW_GUARDED_BY(mutex_) = 0;  // of the scrub: a step of one that was cancelled counts no more
    uint32_t steps_ CW_GUARDED_BY(mutex_) = 0;  // of this scrub, under way
    // By address of the group, while steps of it are to come; of the nodes under address 0.
    std::map<VolumeAddress, Pass> passes_ CW_GUARDED_BY(mutex_);
    uint64_t since_ms_ CW_GUARDED_BY(mutex_) = 0;  // when it began to run
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
};

}  // namespace cowraid
