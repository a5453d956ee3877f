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
    bool try_claim(Kind kind);
    Status admit(Kind kind);

    Store& store_;
    Ref<Transaction> transaction_;
    PendingChanges claimed_;
    uint64_t change_ = 0;  // its number, once it changed something
};

timespec current_time();

// Promises room for as many blocks of data if it is there and nobody else waits alone for any.
bool promise_at_once(Store& store, uint64_t blocks);
// Promises room for as many blocks of data; commits that may bring space back: what
// overwrites free, and what others only wait to write. kNoSpace, kReadOnly, kShutdown, kWouldWait. No locks
// held.
Status promise_data(Store& store, uint64_t blocks);

// Blocks of data that were promised, returned unless somebody takes them over.
class DataPromise {
public:
    explicit DataPromise(Store& store) : store_(store) { }
    ~DataPromise() { store_.space.return_data(blocks_); }
    DataPromise(const DataPromise&) = delete;
    DataPromise& operator=(const DataPromise&) = delete;

    // As promise_data().
    Status get(uint64_t blocks);
    // Where there is no room it comes out of the slack: for what may not fail.
    Status get_by_force(uint64_t blocks);
    [[nodiscard]] uint64_t blocks() const { return blocks_; }
    // `blocks` of them are the caller's now.
    void take_over(uint64_t blocks);

private:
    Store& store_;
    uint64_t blocks_ = 0;
};

// What a change of as many items takes, whatever is in them.
PendingChanges changes_of_items(uint32_t item_count);
// What erasing so many items of the checksum or free-space tree takes that are neighbours.
PendingChanges changes_of_left(uint64_t item_count);
// What is in one transaction; its dirty data is not.
PendingChanges changes_in(const Transaction& transaction);
// What the commits under way and to come must find room for, claims of operations not counted.
PendingChanges pending_changes(Store& store);

}  // namespace cowraid
