// SPDX-License-Identifier: MIT
// Blocks of rows in memory, of many rows at a time: read as one batch, compared with what they must hold, and
// solved from one another. Who writes in place, solves, checks or repairs rows begins with these.
#pragma once

#include <span>

#include "raid56/repair.h"

namespace cowraid {

// One block of a row, or a copy of one, as a call knows it.
struct RowCell {
    enum class State : uint8_t {
        kUnread,
        kAway,  // its member is missing
        kGood,  // what it must be
        kUnknown,  // read, but nobody says what it must be
        kBad,  // unreadable, or not what it must be
    };
    State state = State::kUnread;
    std::byte* memory = nullptr;
    BlockExpectation expected;
    FaultCause cause = FaultCause::kMissing;  // of a bad cell
    Checksum seen = 0;

    // Good or unknown: what it holds may serve as input.
    [[nodiscard]] bool usable() const { return state == State::kGood || state == State::kUnknown; }
};

// A cell and where it belongs. Both it and its group stay where they are.
struct PlacedCell {
    const ArrayGroup* group = nullptr;
    BlockPlace place;
    uint32_t copy = 0;
    RowCell* cell = nullptr;
};

// Reads the cells into their memory, as one batch. Afterwards they are unknown, bad (unreadable) or away.
// With `lease`, in which all memory lies, they are not waited for longer than readers wait: true if any are
// late, which are away then. *lease and the memory of the cells are others afterwards, as IoPlan::may_leave()
// says, which `times` is for, too.
// What lies between them on a member is read, too, only where that saves a request and nobody wants it.
enum class Gaps : uint8_t { kKept, kBridged };
bool read_cells(ArrayState& state, std::span<const PlacedCell> cells, AlignedBuffer* lease = nullptr,
                uint32_t times = 1, Gaps gaps = Gaps::kKept);
// Asks the verifier what they must hold. As for it, no mutex of the array is held.
void ask_about_cells(ArrayState& state, std::span<const PlacedCell> cells);
// Compares what was read with what is expected: unknown cells of which something is known become good or bad.
void classify_cells(std::span<const PlacedCell> cells);

// One row with lost blocks: k + m cells by logical column.
struct Row {
    const ArrayGroup* group = nullptr;
    uint64_t stripe = 0;
    uint32_t row = 0;
    std::span<RowCell> cells;
    std::span<LostBlock> lost;
    bool done = false;  // solved, or beyond hope

    [[nodiscard]] uint32_t data_columns() const { return group->geometry.data_columns; }
    [[nodiscard]] BlockPlace place(uint32_t column) const { return {stripe, column, row}; }
    // Cells that may serve as input: good or unknown.
    [[nodiscard]] uint32_t usable_count() const;
    // Cells that were read and are not what they must be, those of lost blocks left out.
    [[nodiscard]] uint32_t mismatching_count() const;
};

// Tries to solve the row's lost blocks from its usable cells: every choice of k of them, those of unknown
// content left out first, until each lost block matches its checksum. When all of the row has been read and
// that was not enough, cells that mismatch are inputs, too: what is recorded of free blocks and of parity may
// be older than what they hold, and the lost block's own checksum decides. At most k + 1 choices, since a
// block is lost. Then also solves bad siblings and adds what is to be rewritten to `repairs` (their content
// stays in the cells' and the reader's memory). Sets row.done when nothing is lost any more.
void solve_row(Row& row, std::vector<RepairItem>& repairs);

// Every copy of the blocks of all pieces, read as one batch and compared.
class CopyBatch {
public:
    // Pieces that are no data of a group have the result kInvalid; those under parity are left out.
    // `times`: as for IoPlan::may_leave().
    CopyBatch(ArrayState& state, std::span<CopiedBlocks> pieces, uint32_t times);

    struct Block {
        CopiedBlocks* piece;
        std::span<const PlacedCell> copies;
    };
    [[nodiscard]] std::span<const Block> blocks() const { return blocks_; }
    // Some were not waited for: of no use then.
    [[nodiscard]] bool late() const { return late_; }

private:
    const Ref<const GroupList> list_;
    std::vector<RowCell> cells_;
    std::vector<PlacedCell> placed_;
    std::vector<Block> blocks_;
    BufferPool::Loan loan_;
    bool late_ = false;
};

}  // namespace cowraid
