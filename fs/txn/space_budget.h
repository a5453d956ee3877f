// SPDX-License-Identifier: MIT
// Space promised before it is taken. Data: every dirty block and every block that fallocate promised has a
// place in a free row. Metadata: the nodes that a commit of everything pending could need.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "base/units.h"
#include "fs/volume/node_bound.h"

namespace cowraid {

// How much of the room for nodes a claim leaves alone. Commits of checksums may use what is left: it is back
// after the commit that they precede.
enum class Leave : uint8_t {
    kReserve,  // what is kept back for operations that free space
    kMoves,  // where nodes have parity, half of that: for nodes to be moved, which is what frees rows there
    kNothing,  // moves themselves
};

class SpaceBudget {
public:
    // Commit thread.
    void set_metadata_room(const MetadataRoom& room);

    // Promises data blocks; false when they are not there. Forced promises always succeed: zeroing the tail
    // of a truncated file, writes into space that fallocate promised already.
    [[nodiscard]] bool promise_data(uint64_t blocks);
    void force_data(uint64_t blocks);
    void return_data(uint64_t blocks);
    // In one step: `blocks` of the promises were taken from the allocator, which with the slots now offers
    // `room`, what is kept back left out. Commit thread.
    void data_taken(uint64_t blocks, uint64_t room);
    // The promises must be content with `room` at most from now on, until data_taken(). False, and nothing
    // changes, when they are more. Commit thread.
    [[nodiscard]] bool try_lower_room(uint64_t room);
    // Blocks that a new writer could still get.
    [[nodiscard]] uint64_t data_available() const;

    // An operation claims what it is about to change, and gives that up when its changes are pending. Changes
    // only ever go from claims over dirty data to items of a transaction: whoever reads claim_mark(), then
    // how much is dirty, then the transactions, misses none.
    struct ClaimMark {
        PendingChanges given_up;
    };
    [[nodiscard]] ClaimMark claim_mark() const;
    // Claims `own` if a commit of it, of `pending`, read since `mark`, and of all claims since then surely
    // fits beside what it must leave.
    [[nodiscard]] bool try_claim(const PendingChanges& own, const PendingChanges& pending,
                                 const ClaimMark& mark, Leave leave);
    void claim(const PendingChanges& own);
    void give_up(const PendingChanges& own);
    // Whether `changes` would fit if nothing else were pending and `returning` blocks were free again.
    [[nodiscard]] bool fits_alone(const PendingChanges& changes, uint64_t returning) const;
    [[nodiscard]] MetadataRoom metadata_room() const;

private:
    [[nodiscard]] bool fits(PendingChanges pending, const ClaimMark& mark, Leave leave) const
        CW_REQUIRES(mutex_);

    mutable Mutex mutex_{LockRank::kLeaf};
    uint64_t data_room_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t promised_ CW_GUARDED_BY(mutex_) = 0;
    MetadataRoom room_ CW_GUARDED_BY(mutex_);
    // Sums of all claims ever made, and of those given up: the difference is what is claimed now.
    PendingChanges made_ CW_GUARDED_BY(mutex_);
    PendingChanges given_up_ CW_GUARDED_BY(mutex_);
};

// A claim for as long as it lives.
class SpaceClaim {
public:
    explicit SpaceClaim(SpaceBudget& budget) : budget_(budget) { }
    ~SpaceClaim() { budget_.give_up(own_); }
    SpaceClaim(const SpaceClaim&) = delete;
    SpaceClaim& operator=(const SpaceClaim&) = delete;

    // As SpaceBudget::try_claim(), once.
    [[nodiscard]] bool take(const PendingChanges& own, const PendingChanges& pending,
                            const SpaceBudget::ClaimMark& mark, Leave leave);

private:
    SpaceBudget& budget_;
    PendingChanges own_;
};

// Where those pass who want room. One who never got any closes it, so that what commits make free is left for
// that one, and the answer after them is final: also for others who came before it and want as much.
class RoomGate {
public:
    [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_acquire); }
    void wait_open();
    // How often somebody closed it.
    [[nodiscard]] uint64_t closings() const { return closings_.load(std::memory_order_acquire); }
    // Whether somebody who closed it after closings() said `mark` was refused `wanted`, or less: all that was
    // freed before then was in the commits that were made alone.
    [[nodiscard]] bool refused_since(uint64_t mark, uint64_t wanted) const;
    // Waits while another has it closed. False, and not closed: refused_since().
    [[nodiscard]] bool close(uint64_t mark, uint64_t wanted);
    void open();
    void open_refused(uint64_t wanted);

private:
    [[nodiscard]] bool refused(uint64_t mark, uint64_t wanted) const CW_REQUIRES(mutex_);

    mutable Mutex mutex_{LockRank::kLeaf};
    CondVar opened_;
    std::atomic<bool> closed_{false};  // changed under the mutex, as the next
    std::atomic<uint64_t> closings_{0};
    // Of the last that ended in a refusal: its number, and what was wanted.
    uint64_t refused_closing_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t refused_wanted_ CW_GUARDED_BY(mutex_) = 0;
};

}  // namespace cowraid
