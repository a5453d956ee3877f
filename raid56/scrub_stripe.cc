// SPDX-License-Identifier: MIT
// One stripe under its lock: read the rows, examine each from all of its cells, rewrite what is wrong, tell
// what is right and recorded otherwise.
#include "raid56/scrub_stripe.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "raid56/parity.h"
#include "raid56/partial_write.h"

namespace cowraid {

namespace {

bool has_away(std::span<const RowCell> cells)
{
    return std::any_of(cells.begin(), cells.end(),
                       [](const RowCell& cell) { return cell.state == RowCell::State::kAway; });
}

bool is_recorded(const RowCell& cell, Checksum checksum)
{
    return cell.expected.known && cell.expected.checksum == checksum;
}

// One row with all its cells: data columns and their copies side by side, then parity.
struct ScrubRow {
    uint32_t row = 0;
    std::span<RowCell> cells;
    std::span<std::byte> parity;  // memory for what parity must be
    bool told = false;  // something was recorded anew
    bool unsettled = false;  // left alone although something in it is not as recorded
    bool free_left = false;  // free blocks are among that
    bool beyond = false;  // for good: blocks in use are lost, and no member is away
    bool examined = false;
    bool source_bad = false;  // what is copied is not there, or wrong
    bool source_away = false;  // it did not answer, and may have blocks in use that nobody else has
};

class StripeScrub {
public:
    StripeScrub(ScrubCall& call, uint64_t stripe, const RowsOfStripe& rows);
    // False: a member was late (IoPlan::may_leave()), and nothing was done.
    [[nodiscard]] bool run(uint32_t times);

private:
    [[nodiscard]] BlockPlace place(const ScrubRow& row, uint32_t column) const
    {
        return {stripe_, column, row.row};
    }
    [[nodiscard]] VolumeAddress address(const ScrubRow& row, uint32_t column) const
    {
        return address_of(call_.group, place(row, column));
    }
    [[nodiscard]] PlacedCell placed(const ScrubRow& row, uint32_t column, uint32_t copy = 0) const
    {
        return {&call_.group, place(row, column), copy, &row.cells[column * geometry_.copies + copy]};
    }
    [[nodiscard]] bool read(uint32_t times);
    [[nodiscard]] bool in_use(const ScrubRow& row, uint32_t column) const;
    [[nodiscard]] bool row_in_use(const ScrubRow& row) const;
    // mirrors
    void examine_copies(ScrubRow& row, uint32_t column);
    // parity
    void examine(ScrubRow& row);
    [[nodiscard]] bool parity_in_doubt(const ScrubRow& row) const;
    void solve(ScrubRow& row, bool only_used);
    bool lose_used(ScrubRow& row);
    [[nodiscard]] bool has_others(const ScrubRow& row) const;
    [[nodiscard]] bool may_tell(const ScrubRow& row);
    void read_again(ScrubRow& row);
    void choose_free(ScrubRow& row);
    void fit_free(ScrubRow& row);
    [[nodiscard]] bool fit(ScrubRow& row, uint32_t wanted);
    void parity_of(ScrubRow& row, std::span<std::byte* const> columns);
    bool settle_free(ScrubRow& row);
    void settle_parity(ScrubRow& row);
    void settle(ScrubRow& row, uint32_t column, const std::byte* content, bool right, bool charged);

    void tell(ScrubRow& row, uint32_t column, Checksum checksum);
    std::byte* wanted_content(ScrubRow& row, uint32_t index);
    void copy(const MemberCopy& copy, bool only_told);
    void copy_told();
    void distrust_cache(const ScrubRow& row);
    void examine_row(ScrubRow& row);

    ScrubCall& call_;
    const Geometry& geometry_;
    const uint64_t stripe_;
    const StripeKey key_;
    const StripeLockSet lock_;
    const Ref<RecoveredRows> recovered_;  // a read-only array has these rows in memory only
    std::vector<ScrubRow> rows_;
    std::vector<RowCell> cells_;
    BufferPool::Loan loan_;
    ScrubRepairs repairs_;
};

StripeScrub::StripeScrub(ScrubCall& call, uint64_t stripe, const RowsOfStripe& rows)
    : call_(call),
      geometry_(call.group.geometry),
      stripe_(stripe),
      key_{call.group.record.address, stripe},
      lock_(call.state.stripe_locks, std::span(&key_, 1)),
      recovered_(call.state.recovered_rows()),
      cells_(rows.count() * geometry_.columns()),
      loan_(call.state.buffers, rows.count() * (geometry_.columns() + geometry_.parity) * kBlockBytes),
      repairs_(call.state, call.mode, call.report)
{
    std::byte* memory = loan_.data();
    size_t first = 0;
    for (uint32_t row = 0; row < geometry_.rows(); ++row) {
        if (!rows[row])
            continue;
        const std::span<RowCell> cells = std::span(cells_).subspan(first, geometry_.columns());
        for (RowCell& cell : cells)
            cell.memory = std::exchange(memory, memory + kBlockBytes);
        rows_.push_back({row, cells, {memory, size_t{geometry_.parity} * kBlockBytes}});
        memory += size_t{geometry_.parity} * kBlockBytes;
        first += geometry_.columns();
    }
}

bool StripeScrub::read(uint32_t times)
{
    std::vector<PlacedCell> cells;
    for (uint32_t column = 0; column < geometry_.columns(); ++column)
        for (const ScrubRow& row : rows_)
            cells.push_back(placed(row, column / geometry_.copies, column % geometry_.copies));
    if (read_cells(call_.state, cells, &loan_.buffer(), times))
        return false;
    // In service all the same: it did not answer just now, and may lack what it was to get.
    for (const PlacedCell& at : cells)
        if (at.cell->state == RowCell::State::kAway &&
            locate_block(call_.state, *at.group, at.place, at.copy).device != nullptr)
            ++call_.report.unsettled;
    ask_about_cells(call_.state, cells);
    classify_cells(cells);
    return true;
}

bool StripeScrub::in_use(const ScrubRow& row, uint32_t column) const
{
    return call_.sink.in_use(address(row, column));
}

// A row may have become free since it was chosen.
bool StripeScrub::row_in_use(const ScrubRow& row) const
{
    for (uint32_t column = 0; column < geometry_.data_columns; ++column)
        if (in_use(row, column) || call_.sink.may_be_used(address(row, column)))
            return true;
    return false;
}

// Of a block that nobody misses nothing is said, unless there is a good copy.
void StripeScrub::examine_copies(ScrubRow& row, uint32_t column)
{
    std::vector<PlacedCell> copies;
    bool good = false;
    for (uint32_t copy = 0; copy < geometry_.copies; ++copy) {
        copies.push_back(placed(row, column, copy));
        good = good || copies.back().cell->state == RowCell::State::kGood;
    }
    if (good || (copies.front().cell->expected.known && in_use(row, column)))
        repairs_.examine_copies(copies);
}

// A crash while all parity was away took the row's log entries with it: nobody could mend what it left in
// free blocks.
bool StripeScrub::parity_in_doubt(const ScrubRow& row) const
{
    for (uint32_t column = geometry_.data_columns; column < row.cells.size(); ++column) {
        const BlockLocation at = locate_block(call_.state, call_.group, place(row, column), 0);
        if (at.device != nullptr && !at.stale)
            return false;
    }
    return true;
}

// Solves what is bad or away, or of it only what is in use. What comes out right is good from now on.
void StripeScrub::solve(ScrubRow& row, bool only_used)
{
    std::vector<LostBlock> lost;
    for (uint32_t column = 0; column < row.cells.size(); ++column) {
        const RowCell& cell = row.cells[column];
        if (cell.usable() || !cell.expected.known ||
            (only_used && (column >= geometry_.data_columns || !in_use(row, column))))
            continue;
        const bool away = cell.state == RowCell::State::kAway;
        lost.push_back({.group = &call_.group,
                        .place = place(row, column),
                        .memory = cell.memory,
                        .wanted = cell.expected.checksum,
                        .cause = away ? FaultCause::kMissing : cell.cause,
                        .seen = cell.seen});
    }
    if (lost.empty())
        return;
    Row solved{.group = &call_.group, .stripe = stripe_, .row = row.row, .cells = row.cells, .lost = lost};
    std::vector<RepairItem>& items = repairs_.items();
    const size_t before = items.size();
    solve_row(solved, items);
    const bool in_doubt = parity_in_doubt(row);
    for (size_t index = before; index < items.size(); ++index) {
        const uint32_t column = items[index].place.column;
        items[index].authority = RepairItem::Authority::kReader;
        items[index].charged = !in_doubt || column >= geometry_.data_columns || in_use(row, column);
        row.cells[column].state = RowCell::State::kGood;
    }
    for (const LostBlock& block : lost)
        if (block.recovered)
            row.cells[block.place.column].state = RowCell::State::kGood;
}

// True when blocks in use are beyond redundancy: nothing else of the row is touched then.
bool StripeScrub::lose_used(ScrubRow& row)
{
    bool any = false;
    for (uint32_t column = 0; column < geometry_.data_columns; ++column) {
        const RowCell& cell = row.cells[column];
        if (cell.usable() || !in_use(row, column))
            continue;
        any = true;
        call_.report.lost.push_back(address(row, column));
    }
    for (uint32_t column = 0; any && column < row.cells.size(); ++column)
        repairs_.count_bad(placed(row, column));
    return any;
}

// True when a transaction may count on a block that could not be had. It may be about to be written, so that
// it is not lost; and it is not free to be anything, so that the row is left alone.
bool StripeScrub::has_others(const ScrubRow& row) const
{
    for (uint32_t column = 0; column < geometry_.data_columns; ++column)
        if (row.cells[column].state != RowCell::State::kGood && call_.sink.may_be_used(address(row, column)))
            return true;
    return false;
}

// Not of a row with live log entries: their partial parities are of what was recorded before. Nor while a
// member is away: its column would lack what the map does not know of.
bool StripeScrub::may_tell(const ScrubRow& row)
{
    if (call_.mode == ScrubMode::kLook)
        return call_.copy == nullptr;  // nothing is recorded
    if (!call_.sink.may_record() || has_away(row.cells))
        return false;
    if (!call_.state.partial)
        return true;
    StripeCache& cache = call_.state.partial->cache;
    CachedStripe& cached = cache.pin(key_, call_.group.record.mapping_version, geometry_.rows());
    const bool live = cached.rows[row.row] && cached.rows[row.row]->live_age == cache.age();
    cache.unpin(cached);
    return !live;
}

// Attempts to solve may have left something else in the memory of cells that are not good.
void StripeScrub::read_again(ScrubRow& row)
{
    std::vector<PlacedCell> cells;
    for (uint32_t column = 0; column < row.cells.size(); ++column)
        if (row.cells[column].state != RowCell::State::kGood)
            cells.push_back(placed(row, column));
    read_cells(call_.state, cells);
    for (const PlacedCell& at : cells)
        if (at.cell->usable())
            at.cell->seen = checksum_of(at.cell->memory, kBlockBytes);
}

std::vector<std::byte*> columns_of(const ScrubRow& row)
{
    std::vector<std::byte*> columns;
    columns.reserve(row.cells.size());
    for (const RowCell& cell : row.cells)
        columns.push_back(cell.memory);
    return columns;
}

// Free blocks that cannot be read get what makes the row fit the parity that there is, so that nothing else
// of it must change; zeros where parity does not suffice.
void StripeScrub::choose_free(ScrubRow& row)
{
    std::vector<uint32_t> wanted, erased;
    const std::vector<std::byte*> columns = columns_of(row);
    for (uint32_t column = 0; column < geometry_.data_columns; ++column)
        if (!row.cells[column].usable())
            wanted.push_back(column);
    if (wanted.empty())
        return;
    erased = wanted;
    size_t inputs = 0;
    for (uint32_t column = geometry_.data_columns; column < row.cells.size(); ++column) {
        if (row.cells[column].usable() && inputs < wanted.size())
            ++inputs;
        else
            erased.push_back(column);
    }
    if (inputs == wanted.size())
        parity_recover_wanted(columns, geometry_.data_columns, erased, wanted, kBlockBytes);
    for (const uint32_t column : wanted)
        if (inputs < wanted.size())
            std::memset(columns[column], 0, kBlockBytes);
}

// What parity must be of these data columns, into the row's memory for it.
void StripeScrub::parity_of(ScrubRow& row, std::span<std::byte* const> columns)
{
    const std::vector<const std::byte*> data(columns.begin(), columns.begin() + geometry_.data_columns);
    std::vector<std::byte*> parity;
    for (uint32_t p = 0; p < geometry_.parity; ++p)
        parity.push_back(row.parity.data() + size_t{p} * kBlockBytes);
    parity_generate(data, parity, kBlockBytes);
}

// Whether another content of that one column makes the row fit all parity that there is: then it has it.
bool StripeScrub::fit(ScrubRow& row, uint32_t wanted)
{
    BufferPool::Loan loan(call_.state.buffers, kBlockBytes);
    std::vector<std::byte*> columns = columns_of(row);
    columns[wanted] = loan.data();
    std::vector<uint32_t> erased{wanted};
    for (uint32_t column = geometry_.data_columns + 1; column < columns.size(); ++column)
        erased.push_back(column);
    parity_recover_wanted(columns, geometry_.data_columns, erased, std::span(&wanted, 1), kBlockBytes);
    parity_of(row, columns);
    for (uint32_t column = geometry_.data_columns; column < columns.size(); ++column)
        if (std::memcmp(row.parity.data() + size_t{column - geometry_.data_columns} * kBlockBytes,
                        columns[column], kBlockBytes) != 0)
            return false;
    RowCell& cell = row.cells[wanted];
    if (std::memcmp(cell.memory, loan.data(), kBlockBytes) != 0) {
        std::memcpy(cell.memory, loan.data(), kBlockBytes);
        cell.state = RowCell::State::kBad;
        cell.cause = FaultCause::kWrong;
    }
    return true;
}

// A free block that alone does not fit gets what fits, which two parities show. They stay, and what else of
// the row is lost can be had with them whatever a power cut leaves of the repair: new parity may be torn, and
// then neither the old nor the new row is there.
void StripeScrub::fit_free(ScrubRow& row)
{
    if (geometry_.parity < 2 ||
        !std::all_of(row.cells.begin(), row.cells.end(), [](const RowCell& cell) { return cell.usable(); }))
        return;
    for (uint32_t column = 0; column < geometry_.data_columns; ++column)
        if (row.cells[column].state != RowCell::State::kGood && fit(row, column))
            return;
}

// Free blocks that are not what is recorded of them, and cannot be made so: a crash left them. Nobody needs
// them but parity. False: they are there, and nobody can say what they are to be.
bool StripeScrub::settle_free(ScrubRow& row)
{
    const bool all_good =
        std::all_of(row.cells.begin(), row.cells.begin() + geometry_.data_columns,
                    [](const RowCell& cell) { return cell.state == RowCell::State::kGood; });
    if (all_good || has_away(row.cells) || call_.copy != nullptr)
        return all_good;
    choose_free(row);
    fit_free(row);
    for (uint32_t column = 0; column < geometry_.data_columns; ++column) {
        const RowCell& cell = row.cells[column];
        if (cell.state != RowCell::State::kGood)
            settle(row, column, cell.memory, cell.state != RowCell::State::kBad,
                   cell.cause == FaultCause::kReadError);
    }
    return true;
}

// Parity follows from the data. A member is charged where what is recorded says so, too.
void StripeScrub::settle_parity(ScrubRow& row)
{
    parity_of(row, columns_of(row));
    for (uint32_t p = 0; p < geometry_.parity; ++p) {
        const uint32_t column = geometry_.data_columns + p;
        const RowCell& cell = row.cells[column];
        const std::byte* const parity = row.parity.data() + size_t{p} * kBlockBytes;
        const bool right = cell.usable() && std::memcmp(parity, cell.memory, kBlockBytes) == 0;
        settle(row, column, parity, right,
               cell.state == RowCell::State::kBad || is_recorded(cell, checksum_of(parity, kBlockBytes)));
    }
}

// A cell must hold `content`. Where that is not recorded and may not be now, the row is left to a later pass:
// what is wrong in it counts as not repaired.
void StripeScrub::settle(ScrubRow& row, uint32_t column, const std::byte* content, bool right, bool charged)
{
    const RowCell& cell = row.cells[column];
    const Checksum checksum = checksum_of(content, kBlockBytes);
    const bool recorded = is_recorded(cell, checksum);
    const bool wrong = !right && cell.state != RowCell::State::kAway;
    if (row.free_left || (!recorded && !may_tell(row))) {
        row.free_left = row.free_left || column < geometry_.data_columns;
        row.unsettled = row.unsettled || row.free_left || !right;
        // A column that is being filled may still lack that.
        const bool lacks = locate_block(call_.state, call_.group, place(row, column), 0).stale;
        call_.report.unrepaired += wrong && call_.copy == nullptr && !lacks ? 1 : 0;
        return;
    }
    if (wrong)
        repairs_.add(placed(row, column), content, charged);
    if (!recorded)
        tell(row, column, checksum);
}

void StripeScrub::tell(ScrubRow& row, uint32_t column, Checksum checksum)
{
    if (call_.mode == ScrubMode::kLook) {
        ++call_.report.unsettled;
        return;
    }
    row.told = true;
    ++call_.report.adopted;
    call_.sink.record(address(row, column), std::span(&checksum, 1));
}

void StripeScrub::examine(ScrubRow& row)
{
    solve(row, false);
    solve(row, true);
    const bool known = std::all_of(row.cells.begin(), row.cells.begin() + geometry_.data_columns,
                                   [](const RowCell& cell) { return cell.expected.known; });
    // What is recorded of parity may be in a tree node that is lost: a commit could not record it anew.
    const bool unavailable = std::any_of(row.cells.begin(), row.cells.end(),
                                         [](const RowCell& cell) { return cell.expected.unavailable; });
    // Without a checksum of every data block the row was never written as a whole, or nobody can say.
    const bool lost = lose_used(row);
    row.beyond = lost && known && !has_away(row.cells);
    row.unsettled = lost || !known || unavailable || has_others(row);
    if (row.unsettled)
        return;
    read_again(row);
    row.unsettled = !settle_free(row);
    if (!row.unsettled)
        settle_parity(row);
}

// What writes in place remember of the row went by what was recorded; what its log entries say goes on.
void StripeScrub::distrust_cache(const ScrubRow& row)
{
    if (!call_.state.partial)
        return;
    StripeCache& cache = call_.state.partial->cache;
    CachedStripe& cached = cache.pin(key_, call_.group.record.mapping_version, geometry_.rows());
    if (cached.rows[row.row]) {
        cached.rows[row.row]->present.reset();
        cached.rows[row.row]->checksums_known = false;
    }
    cache.unpin(cached);
}

// What the cell must hold. Where nobody can say, what it holds, or another copy that is not stale; null: none
// can be read.
std::byte* StripeScrub::wanted_content(ScrubRow& row, uint32_t index)
{
    const bool settled = row.examined && geometry_.parity > 0 && !row.unsettled;
    if (settled && index >= geometry_.data_columns)
        return row.parity.data() + size_t{index - geometry_.data_columns} * kBlockBytes;
    if (settled || row.cells[index].state == RowCell::State::kGood)
        return row.cells[index].memory;
    const uint32_t first = index / geometry_.copies * geometry_.copies;
    for (const RowCell& copy : row.cells.subspan(first, geometry_.copies))
        if (copy.state == RowCell::State::kGood)
            return copy.memory;
    RowCell& cell = row.cells[index];
    const PlacedCell at = placed(row, index / geometry_.copies, index % geometry_.copies);
    read_cells(call_.state, std::span(&at, 1));
    const auto is_stale = [&](uint32_t copy) {
        return call_.group.record.columns[group_column(geometry_, at.place.stripe, at.place.column, copy)]
            .stale();
    };
    if (cell.usable() && !is_stale(at.copy))
        return cell.memory;
    for (uint32_t copy = 0; copy < geometry_.copies; ++copy)
        if (row.cells[first + copy].usable() && !is_stale(copy))
            return row.cells[first + copy].memory;
    return cell.usable() ? cell.memory : nullptr;
}

// What the member holds that is copied, or is to hold; of rows that are as recorded, or of those that were
// recorded anew.
void StripeScrub::copy(const MemberCopy& copy, bool only_told)
{
    const std::optional<uint32_t> cell = find_source_cell(call_.group, stripe_, copy.source);
    if (!cell)
        return;
    const uint32_t index = *cell;
    TargetWrites writes(call_.state, copy);
    uint64_t away = 0;
    for (ScrubRow& row : rows_) {
        const bool wanted = row.examined && (row.told || !only_told);
        std::byte* const content = wanted && !row.source_away ? wanted_content(row, index) : nullptr;
        if (content == nullptr) {
            away += wanted && row.cells[index].state == RowCell::State::kAway ? 1 : 0;
            continue;
        }
        const BlockPlace at = place(row, index / geometry_.copies);
        writes.add(locate_block(call_.state, call_.group, at, index % geometry_.copies).offset, content,
                   kBlockBytes);
        if (!only_told && row.source_bad && row.cells[index].state != RowCell::State::kUnknown)
            ++call_.report.repaired;
    }
    const bool stored = writes.run();
    if (!only_told)
        call_.report.unsettled = away + (stored ? 0 : 1);
}

// Of rows that were not as recorded a successor has what its member had. A power cut may have left of a
// repair of both what the one wrote and not the other: nobody would write it again.
void StripeScrub::copy_told()
{
    const MemberSet& members = call_.state.members;
    for (const GroupColumn& column : call_.group.record.columns) {
        const BlockDevice* const device = members.device(column.member);
        const MemberSet::Mirror successor =
            device == nullptr ? MemberSet::Mirror() : members.mirror_of(column.member, device);
        if (successor.device != nullptr)
            copy({column.member, successor.id}, true);
    }
}

void StripeScrub::examine_row(ScrubRow& row)
{
    const RowCell* const source =
        call_.copy == nullptr ? nullptr
                              : &row.cells[*find_source_cell(call_.group, stripe_, call_.copy->source)];
    row.source_bad = source != nullptr && !source->usable();
    if (!row_in_use(row) || (recovered_ && recovered_->rows.contains(address(row, 0).value)))
        return;
    const size_t lost = call_.report.lost.size();
    for (uint32_t column = 0; geometry_.parity == 0 && column < geometry_.data_columns; ++column)
        examine_copies(row, column);
    if (geometry_.parity > 0)
        examine(row);
    row.examined = true;
    row.source_away =
        source != nullptr && source->state == RowCell::State::kAway && call_.report.lost.size() > lost;
    if (row.source_away)
        call_.report.lost.resize(lost);  // nobody knows
    if (row.told)
        distrust_cache(row);
    call_.report.unsettled += row.unsettled && !row.beyond ? 1 : 0;
}

bool StripeScrub::run(uint32_t times)
{
    if (!read(times))
        return false;
    for (ScrubRow& row : rows_)
        examine_row(row);
    repairs_.carry_out(Stripes::kLocked);
    if (call_.copy != nullptr)
        copy(*call_.copy, false);
    else if (std::any_of(rows_.begin(), rows_.end(), [](const ScrubRow& row) { return row.told; }))
        copy_told();
    return true;
}

}  // namespace

bool ScrubCall::await(MemberId member)
{
    report.given_up = report.given_up || !sink.await(member);
    return !report.given_up;
}

bool ScrubCall::await()
{
    const std::vector<GroupColumn>& columns = group.record.columns;
    return std::all_of(columns.begin(), columns.end(),
                       [&](const GroupColumn& column) { return await(column.member); }) &&
           (copy == nullptr || await(copy->target));
}

std::optional<uint32_t> find_source_cell(const ArrayGroup& group, uint64_t stripe, MemberId source)
{
    const Geometry& geometry = group.geometry;
    for (uint32_t index = 0; index < geometry.columns(); ++index) {
        const uint32_t column =
            group_column(geometry, stripe, index / geometry.copies, index % geometry.copies);
        if (group.record.columns[column].member == source)
            return index;
    }
    return std::nullopt;
}

void TargetWrites::add(DeviceOffset offset, std::byte* memory, uint64_t bytes)
{
    if (device_ != nullptr)
        plan_.add({copy_.target, device_, offset, memory, bytes, 0, {}});
}

bool TargetWrites::run()
{
    plan_.run();
    const bool stored = std::all_of(plan_.parts().begin(), plan_.parts().end(),
                                    [](const IoPart& part) { return part.result.ok(); });
    if (!stored && members_.device(copy_.target) == device_ && !members_.fail({&copy_.target, 1}))
        return false;  // nothing is acknowledged any more
    return stored && device_ != nullptr;
}

void ScrubRepairs::add(const PlacedCell& at, const std::byte* content, bool charged)
{
    const RowCell& cell = *at.cell;
    items_.push_back({
        .group = at.group,
        .place = at.place,
        .copy = at.copy,
        .content = content,
        .checksum = checksum_of(content, kBlockBytes),
        .cause = cell.state == RowCell::State::kBad ? cell.cause : FaultCause::kWrong,
        .seen = cell.seen,
        .authority = RepairItem::Authority::kReader,
        .charged = charged,
    });
}

void ScrubRepairs::count_bad(const PlacedCell& at)
{
    if (at.cell->state != RowCell::State::kBad)
        return;
    ++report_.lost_on[locate_block(state_, *at.group, at.place, at.copy).member];
    if (count_fault(state_, *at.group, at.place, at.copy, at.cell->cause))
        ++charge(*at.group, at.place, at.copy, at.cell->cause)[ScrubMemberNumber::kLost];
}

// Its numbers, in which the fault is counted.
ScrubMemberNumbers& ScrubRepairs::charge(const ArrayGroup& group, const BlockPlace& place, uint32_t copy,
                                         FaultCause cause)
{
    ScrubMemberNumbers& numbers = report_.members[locate_block(state_, group, place, copy).member];
    ++numbers[cause == FaultCause::kReadError ? ScrubMemberNumber::kReadErrors : ScrubMemberNumber::kWrong];
    return numbers;
}

bool ScrubRepairs::examine_copies(std::span<const PlacedCell> copies)
{
    const auto good = std::find_if(copies.begin(), copies.end(), [](const PlacedCell& at) {
        return at.cell->state == RowCell::State::kGood;
    });
    if (good == copies.end())
        report_.lost.push_back(address_of(*copies[0].group, copies[0].place));
    for (const PlacedCell& at : copies) {
        if (good == copies.end()) {
            count_bad(at);
            report_.unsettled += at.cell->state == RowCell::State::kAway ? 1 : 0;
        } else if (at.cell->state == RowCell::State::kBad)
            add(at, good->cell->memory, true);
    }
    return good != copies.end();
}

void ScrubRepairs::carry_out(Stripes stripes)
{
    const auto of_stale = [&](const RepairItem& item) {
        return locate_block(state_, *item.group, item.place, item.copy).stale;
    };
    const size_t wanted = items_.size();
    report_.unfilled += static_cast<uint64_t>(std::count_if(items_.begin(), items_.end(), of_stale));
    size_t repaired = 0;
    if (mode_ == ScrubMode::kRepair) {
        repaired = repair_blocks(state_, items_, stripes);
        report_.unfilled -=
            static_cast<uint64_t>(std::count_if(items_.begin(), items_.end(), [&](const RepairItem& item) {
                return item.right && of_stale(item);
            }));
    } else {
        for (RepairItem& item : items_)
            item.counted =
                item.charged && count_fault(state_, *item.group, item.place, item.copy, item.cause);
    }
    for (const RepairItem& item : items_)
        if (item.counted)
            charge(*item.group, item.place, item.copy, item.cause)[ScrubMemberNumber::kCorrected] +=
                item.right ? 1 : 0;
    report_.repaired += repaired;
    report_.unrepaired += wanted - repaired;
}

void scrub_stripe(ScrubCall& call, uint64_t stripe, const RowsOfStripe& rows)
{
    const auto examine = [&](uint32_t times) {
        call.sink.begin_stripe(address_of(call.group, {stripe, 0, 0}));
        const bool on_time = StripeScrub(call, stripe, rows).run(times);
        call.sink.end_stripe();
        return on_time;
    };
    if (!read_until_on_time(examine, [&] { return call.await(); }))
        call.report.given_up = true;
}

}  // namespace cowraid
