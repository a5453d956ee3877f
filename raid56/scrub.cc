// SPDX-License-Identifier: MIT
// A scrub's first look: rows by large requests on all members, every block hashed, parity computed from the
// same buffers. It takes no lock, so that writers go on. Where it sees something wrong, which may be a write
// under way, it looks again under the stripe's lock: what only stale columns lack is solved from the buffers,
// for many stripes at once, and anything else is left to scrub_stripe().
#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "raid56/io_plan.h"
#include "raid56/parity.h"
#include "raid56/scrub_stripe.h"

namespace cowraid {

namespace {

// All columns of the rows read at a time; at least one run.
constexpr uint64_t kReadBytesMax = 8 * kMiB;

// What is written to one member while its stripes are locked: readers and writers may need them.
constexpr uint64_t kFilledRowsMax = 2 * kMiB / kBlockBytes;

// One run of rows in memory.
struct ScannedRun {
    StripeRows rows;
    uint64_t memory = 0;  // byte of the loan: columns of row_count blocks each; copies lie side by side
    size_t first_expected = 0;  // answers by logical column
    RowsOfStripe suspicious;
};

class ScrubScan {
public:
    ScrubScan(ScrubCall& call, std::span<const StripeRows> rows);
    void run();

private:
    // Columns as they lie in memory: logical ones times copies.
    [[nodiscard]] uint32_t columns() const { return geometry_.columns(); }
    [[nodiscard]] uint32_t logical_columns() const { return geometry_.data_columns + geometry_.parity; }
    [[nodiscard]] std::byte* block(const ScannedRun& run, uint32_t column, uint32_t row)
    {
        return loan_.data() + run.memory + (size_t{column} * run.rows.row_count + row) * kBlockBytes;
    }
    [[nodiscard]] Checksum& found(const ScannedRun& run, uint32_t column, uint32_t row)
    {
        return found_[run.memory / kBlockBytes + size_t{column} * run.rows.row_count + row];
    }
    [[nodiscard]] BlockExpectation& expected(const ScannedRun& run, uint32_t column, uint32_t row)
    {
        return expected_[run.first_expected + size_t{column / geometry_.copies} * run.rows.row_count + row];
    }

    [[nodiscard]] bool read(uint32_t times);
    void note_unread(const IoPart& part);
    void ask(const ScannedRun& run);
    void compare();
    void compare_column(ScannedRun& run, uint32_t column);
    void note_blank(ScannedRun& run, uint32_t column);
    void compare_parity(ScannedRun& run);
    [[nodiscard]] RowsOfStripe parity_mismatches(const ScannedRun& run, uint32_t first_row,
                                                 uint32_t row_count);
    [[nodiscard]] bool fill();
    void fill_runs(std::span<const size_t> indexes);
    [[nodiscard]] bool solve_stale(size_t index, uint32_t row, IoPlan& writes);
    void count_verified(const ScannedRun& run, uint32_t column, bool in_service);
    [[nodiscard]] bool data_known(const ScannedRun& run, uint32_t row);

    ScrubCall& call_;
    const Geometry& geometry_;
    std::vector<ScannedRun> runs_;
    std::vector<BlockExpectation> expected_;
    std::vector<Checksum> found_;  // by block in memory: of what was read where something known is wanted
    const bool fills_;  // what stale columns lack is written
    std::vector<bool> there_;  // by run and column: it was read
    std::vector<bool> blank_;  // the same: it is filled, and there was nothing to read
    std::vector<bool> in_service_;  // the same: its member was asked and did not go meanwhile
    BufferPool::Loan loan_;
};

uint64_t blocks_of(std::span<const StripeRows> rows)
{
    uint64_t blocks = 0;
    for (const StripeRows& run : rows)
        blocks += run.row_count;
    return blocks;
}

ScrubScan::ScrubScan(ScrubCall& call, std::span<const StripeRows> rows)
    : call_(call),
      geometry_(call.group.geometry),
      expected_(blocks_of(rows) * logical_columns()),
      found_(blocks_of(rows) * geometry_.columns()),
      fills_(call.mode == ScrubMode::kRepair && geometry_.parity > 0 &&
             !call.state.read_only.load(std::memory_order_acquire)),
      there_(rows.size() * geometry_.columns(), false),
      blank_(there_),
      in_service_(there_),
      loan_(call.state.buffers, blocks_of(rows) * geometry_.columns() * kBlockBytes)
{
    uint64_t before = 0;
    for (const StripeRows& run : rows) {
        runs_.push_back({run, before * columns() * kBlockBytes, before * logical_columns(), {}});
        before += run.row_count;
    }
}

// False: a member was late.
bool ScrubScan::read(uint32_t times)
{
    there_.assign(there_.size(), false);
    in_service_ = blank_ = there_;
    IoPlan plan(IoKind::kRead, call_.state.members);
    plan.forbid_bridges();
    plan.reserve(there_.size());
    plan.may_leave(loan_.buffer(), times);
    for (size_t index = 0; index < runs_.size(); ++index) {
        const StripeRows& rows = runs_[index].rows;
        for (uint32_t column = 0; column < columns(); ++column) {
            const BlockPlace place{rows.stripe, column / geometry_.copies, rows.first_row};
            const BlockLocation at = locate_block(call_.state, call_.group, place, column % geometry_.copies);
            if (at.device == nullptr)
                continue;
            const size_t owner = index * columns() + column;
            in_service_[owner] = true;
            blank_[owner] = fills_ && at.blank;
            there_[owner] = !blank_[owner];
            if (there_[owner])
                plan.add({at.member,
                          at.device,
                          at.offset,
                          block(runs_[index], column, 0),
                          uint64_t{rows.row_count} * kBlockBytes,
                          static_cast<uint32_t>(owner),
                          {}});
        }
    }
    plan.run();
    const std::span<const IoPart> parts = plan.parts();
    if (std::any_of(parts.begin(), parts.end(),
                    [](const IoPart& part) { return part.result == Status(Err::kWouldWait); }))
        return false;
    for (const IoPart& part : parts)
        if (!part.result.ok())
            note_unread(part);
    return true;
}

void ScrubScan::note_unread(const IoPart& part)
{
    there_[part.owner] = false;
    ScannedRun& run = runs_[part.owner / columns()];
    // It was there when the request was made.
    const bool gone = part.result == Status(Err::kMemberGone);
    in_service_[part.owner] = !gone;
    call_.report.unsettled += gone ? 1 : 0;
    for (uint32_t row = 0; !gone && row < run.rows.row_count; ++row)
        run.suspicious[row] = true;
}

// Data columns of a whole stripe adjoin.
void ScrubScan::ask(const ScannedRun& run)
{
    BlockVerifier* verifier = call_.state.verifier.load(std::memory_order_acquire);
    if (verifier == nullptr)
        return;
    const uint32_t count = run.rows.row_count;
    for (uint32_t column = 0; column < logical_columns();) {
        const bool adjoin = count == geometry_.rows() && column == 0;
        const uint32_t end = adjoin ? geometry_.data_columns : column + 1;
        const BlockPlace place{run.rows.stripe, column, run.rows.first_row};
        verifier->expect(address_of(call_.group, place),
                         std::span(expected_).subspan(run.first_expected + size_t{column} * count,
                                                      size_t{end - column} * count));
        column = end;
    }
}

// The worker of a device has just written the memory, on another processor.
void fetch_ahead(const std::byte* block)
{
    constexpr size_t kLineBytes = 64;
    for (size_t at = 0; at < kBlockBytes; at += kLineBytes)
        __builtin_prefetch(block + at, 0, 2);
}

void ScrubScan::compare_column(ScannedRun& run, uint32_t column)
{
    for (uint32_t row = 0; row < run.rows.row_count; ++row) {
        if (row + 1 < run.rows.row_count)
            fetch_ahead(block(run, column, row + 1));
        const BlockExpectation& wanted = expected(run, column, row);
        if (!wanted.known)
            continue;
        found(run, column, row) = checksum_of(block(run, column, row), kBlockBytes);
        if (found(run, column, row) != wanted.checksum)
            run.suspicious[row] = true;
    }
}

// Parity can be had from the data, whatever is recorded of it.
void ScrubScan::note_blank(ScannedRun& run, uint32_t column)
{
    for (uint32_t row = 0; row < run.rows.row_count; ++row)
        if (expected(run, column, row).known || (column >= geometry_.data_columns && data_known(run, row)))
            run.suspicious[row] = true;
}

bool ScrubScan::data_known(const ScannedRun& run, uint32_t row)
{
    for (uint32_t column = 0; column < geometry_.data_columns; ++column)
        if (!expected(run, column, row).known)
            return false;
    return true;
}

// Rows, of some that adjoin, of which parity is not that of their data.
RowsOfStripe ScrubScan::parity_mismatches(const ScannedRun& run, uint32_t first_row, uint32_t row_count)
{
    const size_t bytes = size_t{row_count} * kBlockBytes;
    std::vector<const std::byte*> data;
    for (uint32_t column = 0; column < geometry_.data_columns; ++column)
        data.push_back(block(run, column, first_row));
    BufferPool::Loan loan(call_.state.buffers, geometry_.parity * bytes);
    std::vector<std::byte*> parity;
    for (uint32_t p = 0; p < geometry_.parity; ++p)
        parity.push_back(loan.data() + p * bytes);
    parity_generate(data, parity, bytes);
    RowsOfStripe rows;
    for (uint32_t row = 0; row < row_count; ++row)
        for (uint32_t p = 0; p < geometry_.parity; ++p)
            if (std::memcmp(parity[p] + size_t{row} * kBlockBytes,
                            block(run, geometry_.data_columns + p, first_row + row), kBlockBytes) != 0)
                rows[first_row + row] = true;
    return rows;
}

// Parity is what the data says, whatever its checksum: checksums written from a wrong parity would agree.
void ScrubScan::compare_parity(ScannedRun& run)
{
    const RowsOfStripe wrong = parity_mismatches(run, 0, run.rows.row_count);
    for (uint32_t row = 0; row < run.rows.row_count; ++row)
        if (wrong[row] && data_known(run, row))
            run.suspicious[row] = true;
}

void ScrubScan::compare()
{
    for (size_t index = 0; index < runs_.size(); ++index) {
        ScannedRun& run = runs_[index];
        bool all = true;
        for (uint32_t column = 0; column < columns(); ++column) {
            if (there_[index * columns() + column])
                compare_column(run, column);
            else if (blank_[index * columns() + column])
                note_blank(run, column);
            all = all && there_[index * columns() + column];
        }
        if (geometry_.parity > 0 && all)
            compare_parity(run);
        for (uint32_t column = 0; column < columns(); ++column)
            count_verified(run, column, in_service_[index * columns() + column]);
    }
}

// What could not be read is examined and repaired by scrub_stripe().
void ScrubScan::count_verified(const ScannedRun& run, uint32_t column, bool in_service)
{
    uint64_t& count = !in_service                                          ? call_.report.unverified
                      : column < geometry_.data_columns * geometry_.copies ? call_.report.data_blocks
                                                                           : call_.report.parity_blocks;
    const BlockPlace first{run.rows.stripe, column / geometry_.copies, run.rows.first_row};
    uint64_t& of_member =
        call_.report.members[locate_block(call_.state, call_.group, first, column % geometry_.copies).member]
                            [in_service ? ScrubMemberNumber::kVerified : ScrubMemberNumber::kUnverified];
    for (uint32_t row = 0; row < run.rows.row_count; ++row) {
        const bool known = expected(run, column, row).known;
        count += known ? 1 : 0;
        of_member += known ? 1 : 0;
        // Its checksum could not be had just now.
        if (!known && column < geometry_.data_columns * geometry_.copies &&
            call_.sink.in_use(address_of(
                call_.group, {run.rows.stripe, column / geometry_.copies, run.rows.first_row + row})))
            ++call_.report.unsettled;
    }
}

// Makes the row right in memory and plans to write what stale columns lack of it. False: something else is
// wrong in it, or not known, or nothing is.
bool ScrubScan::solve_stale(size_t index, uint32_t row, IoPlan& writes)
{
    const ScannedRun& run = runs_[index];
    std::vector<std::byte*> memory;
    std::vector<uint32_t> wrong;
    for (uint32_t column = 0; column < columns(); ++column) {
        memory.push_back(block(run, column, row));
        const BlockExpectation& wanted = expected(run, column, row);
        if (!wanted.known)
            return false;
        const bool blank = blank_[index * columns() + column];
        // What cannot be read is charged, and read back when it is written: scrub_stripe() does both.
        if (!there_[index * columns() + column] && !blank)
            return false;
        if (!blank && found(run, column, row) == wanted.checksum)
            continue;
        const BlockPlace place{run.rows.stripe, column, run.rows.first_row + row};
        const BlockLocation at = locate_block(call_.state, call_.group, place, 0);
        if (!at.stale || at.device == nullptr || wrong.size() == geometry_.parity)
            return false;
        wrong.push_back(column);
    }
    if (wrong.empty())
        return false;
    parity_recover(memory, geometry_.data_columns, wrong, kBlockBytes);
    for (const uint32_t column : wrong)
        if (checksum_of(memory[column], kBlockBytes) != expected(run, column, row).checksum)
            return false;
    // Of columns that all were needed parity follows from how they were solved.
    if (wrong.size() < geometry_.parity && parity_mismatches(run, row, 1).any())
        return false;
    for (const uint32_t column : wrong) {
        const BlockPlace place{run.rows.stripe, column, run.rows.first_row + row};
        const BlockLocation at = locate_block(call_.state, call_.group, place, 0);
        writes.add({at.member,
                    at.device,
                    at.offset,
                    memory[column],
                    kBlockBytes,
                    static_cast<uint32_t>(index * kMaxChunkRows + row),
                    {}});
    }
    return true;
}

// Rows in which nothing but stale columns is wrong, as nearly all of a member that is filled: solved from
// what was read, and written by large requests. With the stripes locked what is recorded is what they hold.
void ScrubScan::fill_runs(std::span<const size_t> indexes)
{
    std::vector<StripeKey> keys;
    for (const size_t index : indexes)
        if (const StripeKey key{call_.group.record.address, runs_[index].rows.stripe};
            keys.empty() || keys.back() != key)
            keys.push_back(key);
    const StripeLockSet lock(call_.state.stripe_locks, keys);
    IoPlan writes(IoKind::kWrite, call_.state.members);
    for (const size_t index : indexes) {
        ask(runs_[index]);
        for (uint32_t row = 0; row < runs_[index].rows.row_count; ++row)
            if (runs_[index].suspicious[row] && solve_stale(index, row, writes))
                runs_[index].suspicious[row] = false;
    }
    writes.run();
    uint64_t filled = 0;
    for (const IoPart& part : writes.parts()) {
        filled += part.result.ok() ? 1 : 0;
        // What could not be stored is looked at again, as any repair.
        if (!part.result.ok())
            runs_[part.owner / kMaxChunkRows].suspicious[part.owner % kMaxChunkRows] = true;
    }
    bump(call_.state.counters.blocks_repaired, filled);
    call_.report.repaired += filled;
}

// False: it is to stop.
bool ScrubScan::fill()
{
    std::vector<MemberId> filled;
    for (const GroupColumn& column : call_.group.record.columns)
        if (column.stale() && call_.state.members.device(column.member) != nullptr)
            filled.push_back(column.member);
    if (filled.empty() || !fills_)
        return true;
    for (size_t next = 0; next < runs_.size();) {
        std::vector<size_t> indexes;
        for (uint64_t rows = 0; next < runs_.size() && rows < kFilledRowsMax; ++next)
            if (runs_[next].suspicious.any()) {
                indexes.push_back(next);
                rows += runs_[next].rows.row_count;
            }
        if (indexes.empty())
            break;
        for (const MemberId member : filled)
            if (!call_.await(member))
                return false;
        fill_runs(indexes);
    }
    return true;
}

void ScrubScan::run()
{
    if (!read_until_on_time([&](uint32_t times) { return read(times); }, [&] { return call_.await(); }))
        return;
    for (const ScannedRun& run : runs_)
        ask(run);
    compare();
    if (!fill())
        return;
    for (const ScannedRun& run : runs_)
        if (run.suspicious.any() && !call_.report.given_up)
            scrub_stripe(call_, run.rows.stripe, run.suspicious << run.rows.first_row);
}

}  // namespace

bool rows_valid(const Geometry& geometry, std::span<const StripeRows> rows)
{
    return std::all_of(rows.begin(), rows.end(), [&](const StripeRows& run) {
        return run.stripe < geometry.stripe_count() && run.row_count > 0 && run.first_row < geometry.rows() &&
               run.row_count <= geometry.rows() - run.first_row;
    });
}

ScrubReport& ScrubReport::operator+=(const ScrubReport& more)
{
    data_blocks += more.data_blocks;
    parity_blocks += more.parity_blocks;
    unverified += more.unverified;
    repaired += more.repaired;
    unrepaired += more.unrepaired;
    unfilled += more.unfilled;
    adopted += more.adopted;
    unsettled += more.unsettled;
    lost.insert(lost.end(), more.lost.begin(), more.lost.end());
    members += more.members;
    for (const auto& [member, blocks] : more.lost_on)
        lost_on[member] += blocks;
    given_up = given_up || more.given_up;
    return *this;
}

Status Array::scrub_rows(VolumeAddress group_address, std::span<const StripeRows> rows, ScrubMode mode,
                         ScrubSink& sink, ScrubReport& report)
{
    const Ref<const GroupList> list = state_->groups.list();
    const ArrayGroup* group = list->find(group_address);
    if (group == nullptr || group->record.address != group_address || !rows_valid(group->geometry, rows))
        return Err::kInvalid;
    ScrubCall call{*state_, *group, mode, sink, report, nullptr};
    const uint64_t row_bytes = uint64_t{group->geometry.columns()} * kBlockBytes;
    for (size_t first = 0; first < rows.size() && !report.given_up;) {
        size_t end = first;
        uint64_t bytes = 0;
        do {
            bytes += rows[end++].row_count * row_bytes;
        } while (end < rows.size() && bytes + rows[end].row_count * row_bytes <= kReadBytesMax);
        ScrubScan(call, rows.subspan(first, end - first)).run();
        first = end;
    }
    return {};
}

Status Array::scrub_copies(std::span<CopiedBlocks> pieces, ScrubMode mode, uint32_t times,
                           ScrubReport& report)
{
    const CopyBatch batch(*state_, pieces, times);
    if (batch.late())
        return Err::kWouldWait;
    ScrubRepairs repairs(*state_, mode, report);
    for (const CopyBatch::Block& block : batch.blocks()) {
        if (!repairs.examine_copies(block.copies))
            block.piece->result = Err::kTooManyFaults;
        for (const PlacedCell& at : block.copies) {
            const RowCell& cell = *at.cell;
            const BlockLocation where = locate_block(*state_, *at.group, at.place, at.copy);
            ScrubMemberNumbers& of_member = report.members[where.member];
            if (cell.state != RowCell::State::kAway) {
                const bool read = cell.usable() || cell.cause == FaultCause::kWrong;
                report.data_blocks += read ? 1 : 0;
                of_member[ScrubMemberNumber::kVerified] += read ? 1 : 0;
                continue;
            }
            ++report.unverified;
            ++of_member[ScrubMemberNumber::kUnverified];
            // In service all the same: it did not answer just now.
            report.unsettled += where.device != nullptr ? 1 : 0;
        }
    }
    repairs.carry_out(Stripes::kUnlocked);
    return {};
}

}  // namespace cowraid
