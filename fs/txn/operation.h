// SPDX-License-Identifier: MIT
// One changing operation: admitted, inside the gate, on behalf of the open transaction.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "fs/txn/long_change.h"
#include "fs/txn/store.h"

namespace cowraid {

class Operation {
public:
    // kShrink operations (unlink, truncate down, removing attributes) are admitted on a full volume from
    // the reserve; kGrow ones get kNoSpace before that; kMinor ones (times of access) rather than wait.
    enum class Kind : uint8_t { kGrow, kShrink, kMinor };

    explicit Operation(Store& store) : store_(store) { }
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    // Must be called without locks held; may wait for a commit when metadata space is short. kReadOnly,
    // kShutdown, kNoSpace, kWouldWait (fs/txn/no_wait.h). `item_count` is the most items the operation will
    // put or erase, `data_blocks` how many blocks in a row it will make dirty, `freed_blocks` how many blocks
    // of files it will free at most, when they are more than some for each item.
    Status begin(Kind kind, uint32_t item_count, uint64_t data_blocks = 0, uint64_t freed_blocks = 0);
    // As begin(Kind::kGrow, 1, data_blocks), and reserves rows for that data in the same step. kBusy: it
    // cannot be had at once, and nothing was done; the caller reserves the data and calls begin().
    Status begin_write(uint64_t data_blocks);
    // Its changes are in memory: lets go of what it reserved for them, with what else `change` says, in one
    // step. Nothing may be put or erased afterwards.
    void settle(LedgerChange change);
    // Leaves the gate early.
    void end();

    // After begin(): changes on behalf of the open transaction.
    [[nodiscard]] Transaction& transaction() { return *transaction_; }
    void put(const Key& key, std::span<const std::byte> value);
    void erase(const Key& key);
    // The number of the change that it makes; 0 before the first put() or erase().
    [[nodiscard]] uint64_t change() const { return change_; }

private:
    void note_change();
    void reserve_for(uint32_t item_count, uint64_t data_blocks, uint64_t freed_blocks);
    Status admit(Kind kind);
    Status enter();

    Store& store_;
    Transaction* transaction_ = nullptr;
    PendingChanges reserved_;
    bool settled_ = false;
    uint64_t change_ = 0;  // its number, once it changed something
};

timespec current_time();

// Reserves rows for as many blocks of data; commits that may bring room back: what overwrites free, and what
// others only wait to write. kNoSpace, kReadOnly, kShutdown, kWouldWait. No locks held.
Status reserve_data(Store& store, uint64_t blocks);

// Blocks of data that are reserved, until somebody takes them over, or for as long as it lives.
class DataReservation {
public:
    explicit DataReservation(Store& store) : store_(store) { }
    ~DataReservation() { store_.ledger.release_data(blocks_); }
    DataReservation(const DataReservation&) = delete;
    DataReservation& operator=(const DataReservation&) = delete;

    // As reserve_data().
    Status get(uint64_t blocks);
    // Where there is no room it comes out of the slack: for what may not fail.
    Status get_anyway(uint64_t blocks);
    [[nodiscard]] uint64_t blocks() const { return blocks_; }
    // `blocks` of them are the caller's now.
    void take_over(uint64_t blocks);

private:
    Store& store_;
    uint64_t blocks_ = 0;
};

}  // namespace cowraid
