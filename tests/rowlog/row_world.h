// SPDX-License-Identifier: MIT
// Rows of a stripe on members with volatile caches: what partial writes under the write-intent log do, event
// by event, and what the members hold. Entries go through the real codec (format/intent_codec.h).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "format/intent_codec.h"
#include "tests/rowlog/row_code.h"
#include "tests/rowlog/row_mutant.h"

namespace cowraid::test {

inline constexpr size_t kContentBytes = 64;  // of a block: the mathematics does not care
inline constexpr uint32_t kMaxRows = 2;

struct alignas(64) Content {
    std::byte bytes[kContentBytes];
};

// What becomes of a block that rots.
Content rotten(Content content);

using Mask = uint32_t;  // of columns or members
using RowMasks = std::array<Mask, kMaxRows>;

// Partial writes that share an append; afterwards perhaps a commit: a flush of all members, then the
// checksums of all rows are recorded, at one moment, which acknowledges. The log is full: the same, without
// acknowledging anything.
struct RowStep {
    std::array<Mask, kMaxRows> written{};  // data columns, by row
    bool flush = false;
    bool log_full = false;
};

struct RowRun {
    uint32_t data_columns = 3;
    uint32_t parity = 1;
    uint32_t rows = 1;  // each rotated by one member against the one before
    std::vector<RowStep> steps;  // the last ends with a flush in any case
    Mask missing = 0;  // members that are away from the start
    uint32_t max_faults = 2;  // rotten blocks and unreadable logs at a time; never more than parity
    uint32_t nested_depth = 0;  // how often power may fail again inside recovery
    // What is written differs from what was there as rot does, so that sums come out right by chance.
    bool similar = false;
    RowMutant mutant = RowMutant::kNone;
    uint64_t seed = 1;
};

// What a block on a member may hold. Value 0 was never written.
struct Value {
    Content content{};
    Checksum checksum = 0;
    bool is_descriptor = false;
    IntentBlock block;  // of a descriptor, decoded
    uint32_t renumbered = 0;  // of a descriptor: the value it becomes when a sequence rots unnoticed
};

// Index of a value by place: member * cells() + cell. Cells: one block of each row, then the log.
using State = std::vector<uint16_t>;

struct Event {
    enum class Kind : uint8_t { kWrite, kFlush, kAcknowledge } kind;
    uint32_t member = 0;
    uint32_t place = 0;  // kWrite
    uint16_t value = 0;
    std::array<Mask, kMaxRows> columns{};  // kAcknowledge
    uint32_t recorded = 0;  // kAcknowledge: index into RowWorld::recorded
};

// What the trees say each block of each row holds, by logical column: indexes of values.
using Recorded = std::array<std::array<uint16_t, kMaxColumns>, kMaxRows>;

class RowWorld {
public:
    explicit RowWorld(const RowRun& run);

    [[nodiscard]] uint32_t members() const { return run.data_columns + run.parity; }
    [[nodiscard]] uint32_t cells() const { return run.rows + slot_count() * slot_cells(); }
    [[nodiscard]] uint32_t slot_count() const { return static_cast<uint32_t>(run.steps.size()); }
    [[nodiscard]] uint32_t slot_cells() const { return 1 + run.rows; }  // a descriptor, partial parities
    [[nodiscard]] uint32_t member_of(uint32_t row, uint32_t column) const
    {
        return (column + row) % members();
    }
    [[nodiscard]] uint32_t row_place(uint32_t row, uint32_t column) const
    {
        return member_of(row, column) * cells() + row;
    }
    [[nodiscard]] uint32_t log_place(uint32_t member, uint32_t log_cell) const
    {
        return member * cells() + run.rows + log_cell;
    }
    [[nodiscard]] const Value& value(uint32_t index) const { return values_[index]; }
    uint16_t intern(const Content& content);
    // A descriptor of that member and log cell without entries, its floor above all entries.
    uint16_t dead_descriptor(uint32_t member, uint32_t log_cell);

    const RowRun& run;
    State start;
    std::vector<Event> events;
    std::array<std::vector<uint16_t>, kMaxRows> first, target;  // data blocks before and after, by column
    std::array<Mask, kMaxRows> touched{};
    std::vector<Recorded> recorded;  // the first is there from the start

private:
    struct Row {
        std::vector<uint16_t> now;
        Mask modified = 0;
        Mask unacknowledged = 0;
    };

    void fill_rows();
    std::vector<uint16_t> parity_of(const std::vector<uint16_t>& data, Mask left_out);
    void push_write(uint32_t place, uint16_t value);
    void append(const RowStep& step, uint32_t slot);
    void write_in_place(const RowStep& step);
    void flush_all(bool acknowledge, const RowStep& unwritten);
    void make_room();
    uint32_t record();
    void take(uint32_t row, const RowStep& step);
    uint16_t add_descriptor(uint32_t member, uint32_t log_cell, std::span<const IntentEntry> entries,
                            uint64_t floor);
    [[nodiscard]] IntentHeader header_of(uint32_t member, uint32_t log_cell, uint64_t floor) const;

    Prng prng_;
    std::vector<Value> values_;
    std::unordered_map<Checksum, uint16_t> by_checksum_;
    std::unordered_map<uint32_t, uint16_t> dead_;  // by member and log cell
    std::array<Row, kMaxRows> rows_;
    uint64_t sequence_ = 0;
    uint64_t floor_ = 1;
};

// The sets of at most `size` of `members`, the empty one first, in an order that does not change.
std::vector<Mask> small_sets(uint32_t members, uint32_t size);

// For messages: "3+2 missing 0: 1 F 2 |": masks of columns by row, F for a flush.
std::string describe(const RowRun& run);

}  // namespace cowraid::test
