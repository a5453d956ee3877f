// SPDX-License-Identifier: MIT
// The arithmetic half of reconstruction: one row, memory only.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/checksum.h"
#include "raid56/parity.h"
#include "raid56/row_set.h"

namespace cowraid {

namespace {

bool is_lost(const Row& row, uint32_t column)
{
    return std::any_of(row.lost.begin(), row.lost.end(),
                       [&](const LostBlock& lost) { return lost.place.column == column; });
}

bool mismatches(const Row& row, uint32_t column)
{
    const RowCell& cell = row.cells[column];
    return cell.state == RowCell::State::kBad && cell.cause == FaultCause::kWrong && !is_lost(row, column);
}

class RowTrial {
public:
    enum class Inputs : uint8_t { kUsable, kMismatchingToo };
    RowTrial(Row& row, std::vector<RepairItem>& repairs, Inputs inputs);
    void run();

private:
    [[nodiscard]] bool next_choice();
    void choose_inputs();
    void solve(std::span<const uint32_t> wanted, std::span<std::byte* const> outputs);
    [[nodiscard]] bool accept_lost();
    void solve_siblings();
    void add_repair(uint32_t column, const std::byte* content, Checksum checksum, FaultCause cause,
                    Checksum seen, RepairItem::Authority authority);

    Row& row_;
    std::vector<RepairItem>& repairs_;
    std::vector<uint32_t> candidates_;  // columns that may be inputs, in the order in which they are left out
    std::vector<uint32_t> left_out_;  // indexes into candidates_, rising
    std::vector<uint32_t> erased_;  // columns that are not inputs, rising
};

RowTrial::RowTrial(Row& row, std::vector<RepairItem>& repairs, Inputs inputs) : row_(row), repairs_(repairs)
{
    // What mismatches is left out first, then what is unknown, and of equals parity before data.
    for (const RowCell::State state : {RowCell::State::kBad, RowCell::State::kUnknown, RowCell::State::kGood})
        for (auto column = static_cast<uint32_t>(row.cells.size()); column-- > 0;)
            if (row.cells[column].state == state &&
                (state != RowCell::State::kBad ||
                 (inputs == Inputs::kMismatchingToo && mismatches(row, column))))
                candidates_.push_back(column);
    for (uint32_t i = 0; i < candidates_.size() - row.data_columns(); ++i)
        left_out_.push_back(i);
}

// The next subset in lexicographic order; false after the last.
bool RowTrial::next_choice()
{
    for (size_t at = left_out_.size(); at-- > 0;) {
        if (left_out_[at] >= candidates_.size() - (left_out_.size() - at))
            continue;
        ++left_out_[at];
        for (size_t behind = at + 1; behind < left_out_.size(); ++behind)
            left_out_[behind] = left_out_[behind - 1] + 1;
        return true;
    }
    return false;
}

void RowTrial::choose_inputs()
{
    std::array<bool, kMaxDataColumns + kMaxParity> input{};
    for (const uint32_t column : candidates_)
        input[column] = true;
    for (const uint32_t index : left_out_)
        input[candidates_[index]] = false;
    erased_.clear();
    for (uint32_t column = 0; column < row_.cells.size(); ++column)
        if (!input[column])
            erased_.push_back(column);
}

void RowTrial::solve(std::span<const uint32_t> wanted, std::span<std::byte* const> outputs)
{
    std::array<std::byte*, kMaxDataColumns + kMaxParity> columns{};
    for (uint32_t column = 0; column < row_.cells.size(); ++column)
        columns[column] = row_.cells[column].memory;
    for (size_t i = 0; i < wanted.size(); ++i)
        columns[wanted[i]] = outputs[i];
    parity_recover_wanted(std::span(columns).first(row_.cells.size()), row_.data_columns(), erased_, wanted,
                          kBlockBytes);
}

// Solves the lost columns and takes those that match. True when one did, so that the inputs are right.
bool RowTrial::accept_lost()
{
    alignas(kBlockBytes) std::array<std::byte, kMaxParity * kBlockBytes> memory;
    std::vector<uint32_t> wanted;
    std::vector<std::byte*> outputs;
    for (const LostBlock& lost : row_.lost)
        if (!lost.recovered && (wanted.empty() || wanted.back() != lost.place.column))
            wanted.push_back(lost.place.column);
    for (size_t i = 0; i < wanted.size(); ++i)
        outputs.push_back(memory.data() + i * kBlockBytes);
    solve(wanted, outputs);
    bool any = false;
    for (size_t i = 0; i < wanted.size(); ++i) {
        const Checksum checksum = checksum_of(outputs[i], kBlockBytes);
        for (LostBlock& lost : row_.lost) {
            if (lost.recovered || lost.place.column != wanted[i] || lost.wanted != checksum)
                continue;
            std::memcpy(lost.memory, outputs[i], kBlockBytes);
            lost.recovered = true;
            any = true;
            if (is_bad(lost.cause))
                add_repair(wanted[i], lost.memory, checksum, lost.cause, lost.seen, authority_for(lost));
        }
    }
    return any;
}

void RowTrial::add_repair(uint32_t column, const std::byte* content, Checksum checksum, FaultCause cause,
                          Checksum seen, RepairItem::Authority authority)
{
    repairs_.push_back({
        .group = row_.group,
        .place = row_.place(column),
        .content = content,
        .checksum = checksum,
        .cause = cause,
        .seen = seen,
        .authority = authority,
    });
}

// Siblings that were found bad on the way, where it is known what they must be. Their content is solved into
// their own cell: what was there is wrong.
void RowTrial::solve_siblings()
{
    std::vector<uint32_t> wanted;
    std::vector<std::byte*> outputs;
    for (const uint32_t column : erased_) {
        const RowCell& cell = row_.cells[column];
        if (cell.state != RowCell::State::kBad || !cell.expected.known || is_lost(row_, column))
            continue;
        wanted.push_back(column);
        outputs.push_back(cell.memory);
    }
    solve(wanted, outputs);
    for (size_t i = 0; i < wanted.size(); ++i) {
        const RowCell& cell = row_.cells[wanted[i]];
        const Checksum checksum = checksum_of(outputs[i], kBlockBytes);
        if (checksum == cell.expected.checksum)
            add_repair(wanted[i], outputs[i], checksum, cell.cause, cell.seen,
                       RepairItem::Authority::kVerifier);
    }
}

void RowTrial::run()
{
    std::vector<uint32_t> right;  // the columns that were no inputs when a block came out right
    do {
        choose_inputs();
        if (accept_lost() && right.empty())
            right = erased_;
        row_.done = std::all_of(row_.lost.begin(), row_.lost.end(),
                                [](const LostBlock& lost) { return lost.recovered; });
    } while (!row_.done && next_choice());
    // Last: it overwrites what further choices would need.
    if (row_.done) {
        erased_ = right;
        solve_siblings();
    }
}

}  // namespace

uint32_t Row::usable_count() const
{
    return static_cast<uint32_t>(
        std::count_if(cells.begin(), cells.end(), [](const RowCell& cell) { return cell.usable(); }));
}

uint32_t Row::mismatching_count() const
{
    uint32_t count = 0;
    for (uint32_t column = 0; column < cells.size(); ++column)
        count += mismatches(*this, column) ? 1 : 0;
    return count;
}

void solve_row(Row& row, std::vector<RepairItem>& repairs)
{
    const uint32_t usable = row.usable_count();
    if (usable >= row.data_columns())
        RowTrial(row, repairs, RowTrial::Inputs::kUsable).run();
    const bool all_read = std::none_of(row.cells.begin(), row.cells.end(), [](const RowCell& cell) {
        return cell.state == RowCell::State::kUnread;
    });
    const uint32_t mismatching = row.mismatching_count();
    if (!row.done && all_read && mismatching > 0 && usable + mismatching >= row.data_columns())
        RowTrial(row, repairs, RowTrial::Inputs::kMismatchingToo).run();
}

}  // namespace cowraid
