// SPDX-License-Identifier: MIT
// A scrub of the mounted volume: who asked for it, where it is, what it found. One at a time.
#pragma once

#include "base/mutex.h"
#include "fs/maintain/scrub_walk.h"

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
    std::vector<VolumeAddress> lost_addresses;  // the first kScrubAddressesMax of the lost blocks

    // What is wrong and stays so.
    [[nodiscard]] bool damaged() const { return unrepaired + lost + unreadable_nodes > 0; }
};
inline constexpr size_t kScrubAddressesMax = 4096;

// Thread-safe.
class Scrub {
public:
    explicit Scrub(Store& store) : store_(store) { }

    // kBusy: one runs or is paused. kReadOnly, kShutdown: nothing is written to the volume, and nobody takes
    // steps.
    Status start(const ScrubOptions& options);
    // kInvalid: there is none to be paused, resumed, cancelled.
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
        ScrubMode mode = ScrubMode::kRepair;
        ScrubPiece piece;
        ScrubReport report;
        ScrubWalkCounts counts;
    };
    bool begin(Step& step);
    bool finish(const Step& step, ScrubStatus& ended);
    void add(const ScrubReport& report, const ScrubWalkCounts& counts) CW_REQUIRES(mutex_);
    void enter_running() CW_REQUIRES(mutex_);
    void leave_running(ScrubState state) CW_REQUIRES(mutex_);
    [[nodiscard]] uint64_t run_ms() const CW_REQUIRES(mutex_);
    [[nodiscard]] uint64_t due_ms() const CW_REQUIRES(mutex_);
    void end(ScrubState state) CW_REQUIRES(mutex_);

    Store& store_;
    Mutex walk_mutex_{LockRank::kScrub};  // held by who finds the next piece, which may read nodes
    mutable Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    ScrubStatus status_ CW_GUARDED_BY(mutex_);
    ScrubPosition position_ CW_GUARDED_BY(mutex_);
    uint64_t
        number_ CW_GUARDED_BY(mutex_) = 0;  // of the scrub: a step of one that was cancelled counts no more
    uint32_t steps_ CW_GUARDED_BY(mutex_) = 0;  // of this scrub, under way
    uint64_t since_ms_ CW_GUARDED_BY(mutex_) = 0;  // when it began to run
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
};

}  // namespace cowraid
