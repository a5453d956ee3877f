// SPDX-License-Identifier: MIT
// Recovery at mount: reads the rows that the logs name, many at a time, lets recover_row() decide, writes
// what it changed. The entries stay: they are dead with the next commit, and until then recovery can begin
// again.
#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/log.h"
#include "journal/intent_scan.h"
#include "raid56/io_plan.h"
#include "raid56/row_recovery.h"
#include "raid56/row_set.h"

namespace cowraid {

namespace {

// Memory for the rows worked on at a time; at least one row.
constexpr uint64_t kRowBatchBytes = 32 * kMiB;

// One row and its entries, newest first.
struct RowTask {
    std::vector<const LoggedRow*> entries;
    const ArrayGroup* group = nullptr;
    BlockPlace place;  // of data column 0
    std::byte* memory = nullptr;  // k + m blocks, then m for each entry
    ColumnBits missing;
    std::vector<std::array<bool, kMaxParity>> has_partial;  // by entry

    [[nodiscard]] uint32_t columns() const { return group->geometry.columns(); }
    [[nodiscard]] uint32_t parity() const { return group->geometry.parity; }
    [[nodiscard]] uint64_t bytes() const { return (columns() + entries.size() * parity()) * kBlockBytes; }
    [[nodiscard]] std::byte* block(size_t index) const { return memory + index * kBlockBytes; }
    [[nodiscard]] std::byte* partial(size_t entry, uint32_t column) const
    {
        return block(columns() + entry * parity() + column);
    }
    [[nodiscard]] BlockPlace column(uint32_t number) const { return {place.stripe, number, place.row}; }
};

class RowsRecovery {
public:
    RowsRecovery(ArrayState& state, IntentScan& scan, ChecksumSink& sink, RecoveryCounts& counts)
        : state_(state), scan_(scan), sink_(sink), counts_(counts), list_(state.groups.list())
    {
    }
    Status run();

private:
    bool make_task(std::span<const LoggedRow> entries, RowTask& task) const;
    [[nodiscard]] bool holds_parity(const RowTask& task, const LoggedRow::Copy& copy) const;
    [[nodiscard]] size_t entries_max(const RowTask& task) const;
    Status recover_batch();
    void read_rows();
    void read_partials();
    void keep(const RowTask& task, const ColumnBits& kept);
    // Which blocks of the row the trees refer to, and what these are.
    Status ask_kept(const RowTask& task, CrashedRow& row, std::vector<Checksum>& checksums,
                    ColumnBits& unknown);
    Status recover_row_of(RowTask& task, IoPlan& writes);

    ArrayState& state_;
    IntentScan& scan_;
    ChecksumSink& sink_;
    RecoveryCounts& counts_;
    Ref<const GroupList> list_;
    std::vector<RowTask> tasks_;
    Ref<RecoveredRows> kept_;  // read-only: null while no row differs
};

// Entries stand on the members of the row's parity. Others are forged.
bool RowsRecovery::holds_parity(const RowTask& task, const LoggedRow::Copy& copy) const
{
    const uint32_t column = task.group->geometry.data_columns + copy.parity_column;
    return copy.parity_column < task.parity() &&
           locate_block(state_, *task.group, task.column(column), 0).member == copy.member;
}

// How many live entries a row may have: they are of one transaction, each writes a data block that is written
// once in it (I-3), or its append failed and took a member out of service. Of forged ones the oldest are left
// out; an honest one that is older than a whole one is not needed.
size_t RowsRecovery::entries_max(const RowTask& task) const
{
    return task.group->geometry.data_columns + state_.members.ids().size();
}

// False: the entry fits no row of this volume. It may come from a hostile disk.
bool RowsRecovery::make_task(std::span<const LoggedRow> entries, RowTask& task) const
{
    const LoggedRow& newest = entries.front();
    task.group = list_->find(newest.row);
    if (task.group == nullptr || newest.row.value % kBlockBytes != 0)
        return false;
    const Geometry& geometry = task.group->geometry;
    const uint64_t offset = newest.row - task.group->record.address;
    if (geometry.parity == 0 || offset >= task.group->record.data_bytes())
        return false;
    task.place = place_of(geometry, offset);
    if (task.place.column != 0)
        return false;
    const auto holds = [&](const LoggedRow::Copy& copy) {
        return holds_parity(task, copy);
    };
    for (const LoggedRow& entry : entries) {
        if (std::none_of(entry.copies.begin(), entry.copies.end(), holds))
            continue;
        if (task.entries.size() == entries_max(task)) {
            CW_LOG_WARNING("write-intent log: more entries of a row than there can be: the oldest are left "
                           "out: address %llu",
                           static_cast<unsigned long long>(newest.row.value));
            break;
        }
        // Entries of another mapping or width are as if they were not there; all of a row agree or none
        // counts.
        if (entry.mapping_version != task.group->record.mapping_version ||
            entry.checksums.size() != geometry.data_columns)
            return false;
        task.entries.push_back(&entry);
    }
    task.has_partial.resize(task.entries.size());
    return !task.entries.empty();
}

void RowsRecovery::read_rows()
{
    size_t count = 0;
    for (const RowTask& task : tasks_)
        count += task.columns();
    std::vector<RowCell> cells(count);
    std::vector<PlacedCell> reads;
    for (const RowTask& task : tasks_) {
        std::memset(task.memory, 0, size_t{task.columns()} * kBlockBytes);
        for (uint32_t column = 0; column < task.columns(); ++column) {
            RowCell& cell = cells[reads.size()];
            cell.memory = task.block(column);
            reads.push_back({task.group, task.column(column), 0, &cell});
        }
    }
    read_cells(state_, reads);
    auto read = reads.begin();
    for (RowTask& task : tasks_) {
        for (uint32_t column = 0; column < task.columns(); ++column, ++read) {
            task.missing[column] = !read->cell->usable();
            if (read->cell->state == RowCell::State::kBad)
                count_fault(state_, *read->group, read->place, 0, FaultCause::kReadError);
        }
    }
}

// Most rows are whole and need no partial parity, but reading them all costs one pass over the logs.
void RowsRecovery::read_partials()
{
    IoPlan plan(IoKind::kRead, state_.members);
    plan.forbid_bridges();
    for (uint32_t index = 0; index < tasks_.size(); ++index) {
        const RowTask& task = tasks_[index];
        for (size_t entry = 0; entry < task.entries.size(); ++entry)
            for (const LoggedRow::Copy& copy : task.entries[entry]->copies)
                if (BlockDevice* device = state_.members.device(copy.member);
                    device != nullptr && holds_parity(task, copy))
                    plan.add({copy.member,
                              device,
                              copy.partial,
                              task.partial(entry, copy.parity_column),
                              kBlockBytes,
                              index,
                              {}});
    }
    plan.run();
    for (const IoPart& part : plan.parts()) {
        RowTask& task = tasks_[part.owner];
        const auto number = static_cast<uint32_t>(
            static_cast<size_t>(part.memory - task.memory) / kBlockBytes - task.columns());
        const LoggedRow& entry = *task.entries[number / task.parity()];
        const uint32_t parity = number % task.parity();
        for (const LoggedRow::Copy& copy : entry.copies)
            if (copy.parity_column == parity && part.result.ok() &&
                checksum_of(part.memory, kBlockBytes) == copy.partial_checksum)
                task.has_partial[number / task.parity()][parity] = true;
    }
}

void RowsRecovery::keep(const RowTask& task, const ColumnBits& kept)
{
    if (!kept_)
        kept_ = make_ref<RecoveredRows>();
    AlignedBuffer row(size_t{task.columns()} * kBlockBytes);
    std::memcpy(row.data(), task.memory, row.size());
    kept_->rows.emplace(address_of(*task.group, task.place).value, RecoveredRows::Row{std::move(row), kept});
}

// `unknown`: what a block in use must be cannot be had. kTooManyFaults: so that the row must not be taken for
// right, and is to be written.
Status RowsRecovery::ask_kept(const RowTask& task, CrashedRow& row, std::vector<Checksum>& checksums,
                              ColumnBits& unknown)
{
    BlockVerifier* const verifier = state_.verifier.load(std::memory_order_acquire);
    for (uint32_t column = 0; column < task.group->geometry.data_columns; ++column) {
        const VolumeAddress address = address_of(*task.group, task.column(column));
        BlockExpectation expectation;
        if (verifier != nullptr && sink_.in_use(address))
            verifier->expect(address, {&expectation, 1});
        if (expectation.unavailable && !state_.read_only.load(std::memory_order_acquire))
            return Err::kTooManyFaults;
        unknown[column] = expectation.unavailable;
        row.kept[column] = expectation.known;
        checksums.push_back(expectation.checksum);
    }
    return {};
}

Status RowsRecovery::recover_row_of(RowTask& task, IoPlan& writes)
{
    std::vector<RowEntry> entries;
    for (size_t entry = 0; entry < task.entries.size(); ++entry) {
        entries.push_back({.checksums = task.entries[entry]->checksums,
                           .modified = task.entries[entry]->modified,
                           .partials = {}});
        for (uint32_t parity = 0; parity < task.parity(); ++parity)
            if (task.has_partial[entry][parity])
                entries.back().partials[parity] = task.partial(entry, parity);
    }
    std::vector<std::byte*> columns;
    for (uint32_t column = 0; column < task.columns(); ++column)
        columns.push_back(task.block(column));
    CrashedRow row;
    row.data_columns = task.group->geometry.data_columns;
    row.columns = columns;
    row.missing = task.missing;
    std::vector<Checksum> kept_checksums;
    ColumnBits unknown;
    CW_TRY(ask_kept(task, row, kept_checksums, unknown));
    row.kept_checksums = kept_checksums;
    ++counts_.rows;
    if (!recover_row(row, entries)) {
        ++counts_.untouched;
        return {};
    }
    counts_.changed += row.changed.any() ? 1 : 0;
    const bool read_only = state_.read_only.load(std::memory_order_acquire);
    if (read_only && row.changed.any())
        keep(task, row.kept);
    for (uint32_t column = 0; column < task.columns(); ++column) {
        // What a block in use must be is recorded, whatever it is.
        if (!row.kept[column] && !unknown[column]) {
            const Checksum checksum = checksum_of(columns[column], kBlockBytes);
            sink_.record(address_of(*task.group, task.column(column)), {&checksum, 1});
        }
        // A block that could not be read gets what it must hold, too: writing may heal it.
        const bool unreadable = task.missing[column];
        const BlockLocation at = locate_block(state_, *task.group, task.column(column), 0);
        if (!read_only && (row.changed[column] || unreadable) && at.device != nullptr)
            writes.add({at.member, at.device, at.offset, columns[column], kBlockBytes, 0, {}});
    }
    return {};
}

Status RowsRecovery::recover_batch()
{
    uint64_t bytes = 0;
    for (const RowTask& task : tasks_)
        bytes += task.bytes();
    AlignedBuffer memory(bytes);
    std::byte* next = memory.data();
    for (RowTask& task : tasks_) {
        task.memory = next;
        next += task.bytes();
    }
    read_rows();
    read_partials();
    IoPlan writes(IoKind::kWrite, state_.members);
    for (RowTask& task : tasks_)
        CW_TRY(recover_row_of(task, writes));
    tasks_.clear();
    writes.run();
    std::vector<MemberId> failed;
    for (const IoPart& part : writes.parts())
        if (!part.result.ok())
            failed.push_back(part.member);
    return state_.members.fail(failed) ? Err::kOk : Err::kTooManyFaults;
}

Status RowsRecovery::run()
{
    const std::span<const LoggedRow> rows = scan_.rows();
    uint64_t bytes = 0;
    for (size_t first = 0; first < rows.size();) {
        size_t end = first + 1;
        while (end < rows.size() && rows[end].row == rows[first].row)
            ++end;
        RowTask task;
        if (!make_task(rows.subspan(first, end - first), task)) {
            CW_LOG_WARNING("write-intent log: an entry names no row of this volume: address %llu",
                           static_cast<unsigned long long>(rows[first].row.value));
            first = end;
            continue;
        }
        if (!tasks_.empty() && bytes + task.bytes() > kRowBatchBytes) {
            CW_TRY(recover_batch());
            bytes = 0;
        }
        bytes += task.bytes();
        tasks_.push_back(std::move(task));
        first = end;
    }
    if (!tasks_.empty())
        CW_TRY(recover_batch());
    MutexLock lock(state_.recovered_mutex);
    state_.recovered = std::move(kept_);
    return {};
}

}  // namespace

Status Array::recover_rows(IntentScan& scan, ChecksumSink& sink, RecoveryCounts& counts)
{
    return RowsRecovery(*state_, scan, sink, counts).run();
}

}  // namespace cowraid
