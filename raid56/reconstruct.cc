// SPDX-License-Identifier: MIT
// The reading half of reconstruction. Rows with lost blocks are worked on many at a time: what is missing of
// all of them is read as one batch, classified, and the rows are solved; rows that were not solved read more.
// Of a row no more is read than it takes: k good blocks, data before parity; the rest only when a sibling
// turns out bad or the result does not match.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/checksum.h"
#include "raid56/row_set.h"

namespace cowraid {

namespace {

// Memory for siblings of the rows worked on at a time; at least one row.
constexpr size_t kSiblingBytes = 16 * kMiB;

auto row_order(const LostBlock& lost)
{
    return std::tuple(lost.group->record.address, lost.place.stripe, lost.place.row);
}

// So that a chunk's rows become one request.
auto read_order(const PlacedCell& at)
{
    return std::tuple(at.group->record.address, at.place.stripe, at.place.column, at.place.row);
}

class RowBatch {
public:
    RowBatch(ArrayState& state, const KnownBlocks& known, std::span<LostBlock> lost, Patience patience,
             uint32_t times);
    void run();

private:
    void make_row(std::span<LostBlock> lost);
    void choose_reads();
    void choose_reads_of(Row& row);
    void read_siblings();
    [[nodiscard]] std::vector<StripeKey> stripes() const;
    void solve_rows();
    void count_unsolved();

    ArrayState& state_;
    const KnownBlocks& known_;
    const Patience patience_;
    const uint32_t times_;
    std::vector<RowCell> cells_;
    std::vector<Row> rows_;
    BufferPool::Loan memory_;
    size_t memory_used_ = 0;
    std::vector<PlacedCell> reads_;  // of this round, in the order of their memory
    std::vector<RepairItem> repairs_;
};

// Every cell of the batch once: more is never read.
size_t cells_of(std::span<const LostBlock> lost)
{
    size_t cells = 0;
    for (size_t i = 0; i < lost.size(); ++i)
        if (i == 0 || row_order(lost[i]) != row_order(lost[i - 1]))
            cells += lost[i].group->geometry.columns();
    return cells;
}

RowBatch::RowBatch(ArrayState& state, const KnownBlocks& known, std::span<LostBlock> lost, Patience patience,
                   uint32_t times)
    : state_(state),
      known_(known),
      patience_(patience),
      times_(times),
      cells_(cells_of(lost)),
      memory_(state.buffers, cells_.size() * kBlockBytes)
{
    for (size_t first = 0; first < lost.size();) {
        size_t end = first + 1;
        while (end < lost.size() && row_order(lost[end]) == row_order(lost[first]))
            ++end;
        make_row(lost.subspan(first, end - first));
        first = end;
    }
}

void leave_untried(std::span<LostBlock> lost)
{
    for (LostBlock& block : lost)
        block.untried = true;
}

void RowBatch::make_row(std::span<LostBlock> lost)
{
    const ArrayGroup& group = *lost[0].group;
    const size_t before = rows_.empty() ? 0
                                        : static_cast<size_t>(rows_.back().cells.data() - cells_.data()) +
                                              rows_.back().cells.size();
    Row row{
        .group = &group,
        .stripe = lost[0].place.stripe,
        .row = lost[0].place.row,
        .cells = std::span(cells_).subspan(before, group.geometry.columns()),
        .lost = lost,
    };
    for (uint32_t column = 0; column < row.cells.size(); ++column) {
        RowCell& cell = row.cells[column];
        if (column < row.data_columns())
            cell.memory = known_.find(address_of(group, row.place(column)));
        if (cell.memory != nullptr) {
            cell.state = RowCell::State::kGood;
            continue;
        }
        const BlockLocation at = locate_block(state_, group, row.place(column), 0);
        const bool slow = does_without(state_, patience_, group, row.place(column), 0);
        if (slow || at.device == nullptr)
            cell.state = RowCell::State::kAway;
        if (slow)
            leave_untried(lost);
    }
    // After the siblings: a block that one piece lost may have been good when another piece read it.
    for (const LostBlock& block : lost) {
        RowCell& cell = row.cells[block.place.column];
        if (cell.state == RowCell::State::kGood)
            cell.memory = nullptr;
        cell.cause = block.cause;
        cell.seen = block.seen;
        cell.state = is_bad(block.cause) ? RowCell::State::kBad : RowCell::State::kAway;
    }
    rows_.push_back(row);
}

void RowBatch::choose_reads_of(Row& row)
{
    std::vector<uint32_t> unread;
    for (uint32_t column = 0; column < row.cells.size(); ++column)
        if (row.cells[column].state == RowCell::State::kUnread)
            unread.push_back(column);
    const uint32_t usable = row.usable_count();
    const uint32_t k = row.data_columns();
    if (unread.empty() || usable + row.mismatching_count() + unread.size() < k) {
        row.done = true;
        return;
    }
    // With k usable cells the row was tried and did not come out right: all the rest is needed.
    const size_t needed = usable >= k ? unread.size() : std::min<size_t>(k - usable, unread.size());
    for (size_t i = 0; i < needed; ++i)
        reads_.push_back({row.group, row.place(unread[i]), 0, &row.cells[unread[i]]});
}

void RowBatch::choose_reads()
{
    reads_.clear();
    for (Row& row : rows_)
        if (!row.done)
            choose_reads_of(row);
    // Memory in the order of the members, so that a chunk's rows become one piece of memory.
    std::sort(reads_.begin(), reads_.end(),
              [](const PlacedCell& a, const PlacedCell& b) { return read_order(a) < read_order(b); });
    for (const PlacedCell& read : reads_) {
        read.cell->memory = memory_.data() + memory_used_;
        memory_used_ += kBlockBytes;
    }
    CW_ASSERT(memory_used_ <= cells_.size() * kBlockBytes);
}

// What is late is away, and its memory lost with all that lay beside it: that lies elsewhere now.
void RowBatch::read_siblings()
{
    const bool spare = std::all_of(reads_.begin(), reads_.end(), [&](const PlacedCell& read) {
        return state_.missing_columns(*read.group) < read.group->tolerance;
    });
    if (patience_ != Patience::kDeadline || !spare) {
        read_cells(state_, reads_);
        return;
    }
    const std::byte* const old = memory_.data();
    const size_t bytes = memory_.buffer().size();
    const bool late = read_cells(state_, reads_, &memory_.buffer(), times_);
    for (RowCell& cell : cells_)
        if (memory_.data() != old && cell.memory >= old && cell.memory < old + bytes)
            cell.memory = memory_.data() + (cell.memory - old);
    for (RepairItem& repair : repairs_)
        if (memory_.data() != old && repair.content >= old && repair.content < old + bytes)
            repair.content = memory_.data() + (repair.content - old);
    for (const Row& row : rows_)
        if (late && !row.done)
            leave_untried(row.lost);
}

// What could not be repaired is at least counted, unless it is tried again.
void RowBatch::count_unsolved()
{
    for (const Row& row : rows_)
        for (const LostBlock& lost : row.lost)
            if (!lost.recovered && !lost.untried)
                count_fault(state_, *lost.group, lost.place, 0, lost.cause);
}

std::vector<StripeKey> RowBatch::stripes() const
{
    std::vector<StripeKey> keys;
    for (const Row& row : rows_)
        if (const StripeKey key{row.group->record.address, row.stripe}; keys.empty() || keys.back() != key)
            keys.push_back(key);
    return keys;
}

void RowBatch::solve_rows()
{
    do {
        for (Row& row : rows_)
            if (!row.done)
                solve_row(row, repairs_);
        choose_reads();
        read_siblings();
        ask_about_cells(state_, reads_);
        classify_cells(reads_);
    } while (!reads_.empty());
}

// A row must not change under the eyes that read it column by column, nor between what the verifier says of
// it and the repair. What stale columns lack is left to who fills them, if anybody does: readers need not
// wait for that.
void RowBatch::run()
{
    const std::vector<StripeKey> keys = stripes();
    const StripeLockSet lock(state_.stripe_locks, keys);
    solve_rows();
    count_unsolved();
    if (state_.filling.load(std::memory_order_acquire))
        std::erase_if(repairs_, [&](const RepairItem& item) {
            return locate_block(state_, *item.group, item.place, item.copy).stale;
        });
    repair_blocks(state_, repairs_, Stripes::kLocked, patience_);
}

// After a crash on a read-only array some rows are right in memory only.
std::span<LostBlock> recover_from_memory(ArrayState& state, std::span<LostBlock> lost)
{
    const Ref<RecoveredRows> recovered = state.recovered_rows();
    if (!recovered)
        return lost;
    const auto left = std::partition(lost.begin(), lost.end(), [&](LostBlock& block) {
        const BlockPlace first{block.place.stripe, 0, block.place.row};
        const auto row = recovered->rows.find(address_of(*block.group, first).value);
        if (row == recovered->rows.end())
            return true;
        const std::byte* content = row->second.content.data() + size_t{block.place.column} * kBlockBytes;
        block.recovered = checksum_of(content, kBlockBytes) == block.wanted;
        if (block.recovered)
            std::memcpy(block.memory, content, kBlockBytes);
        return !block.recovered;
    });
    return {lost.begin(), left};
}

}  // namespace

void recover_from_parity(ArrayState& state, const KnownBlocks& known, std::span<LostBlock> all,
                         Patience patience, uint32_t times)
{
    const std::span<LostBlock> lost = recover_from_memory(state, all);
    std::sort(lost.begin(), lost.end(), [](const LostBlock& a, const LostBlock& b) {
        return std::tuple(row_order(a), a.place.column) < std::tuple(row_order(b), b.place.column);
    });
    for (size_t first = 0; first < lost.size();) {
        size_t bytes = 0;
        size_t end = first;
        while (end < lost.size()) {
            const bool new_row = end == first || row_order(lost[end]) != row_order(lost[end - 1]);
            const size_t row_bytes = size_t{lost[end].group->geometry.columns()} * kBlockBytes;
            if (new_row && end != first && bytes + row_bytes > kSiblingBytes)
                break;
            bytes += new_row ? row_bytes : 0;
            ++end;
        }
        RowBatch(state, known, lost.subspan(first, end - first), patience, times).run();
        first = end;
    }
}

}  // namespace cowraid
