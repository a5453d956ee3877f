// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_recover.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "raid56/row_recovery.h"
#include "tests/rowlog/row_code.h"

namespace cowraid::test {

namespace {

constexpr Content kZeros{};

// One row of a crash state as recovery meets it.
class RowJob {
public:
    RowJob(RowWorld& world, State& state, uint32_t row, Mask missing);
    void keep(const Recorded& recorded, Mask kept);
    void collect(uint64_t floor);
    void run(Recorded& recorded);

private:
    [[nodiscard]] bool mutant(RowMutant one) const { return world_.run.mutant == one; }
    [[nodiscard]] bool away(uint32_t column) const { return crashed_.missing[column]; }
    [[nodiscard]] uint32_t columns() const { return world_.members(); }
    [[nodiscard]] Checksum seen(uint32_t column) const
    {
        return checksum_of(content_[column].bytes, kContentBytes);
    }
    void spoil(size_t index);
    void trust_disk(size_t index, bool modified);
    void trust_solution(size_t index, bool modified);
    bool recover_wrongly();
    void misplace();
    void store();

    RowWorld& world_;
    State& state_;
    const uint32_t row_;
    std::array<Content, kMaxColumns> content_;
    std::array<std::byte*, kMaxColumns> pointers_;
    CrashedRow crashed_;
    std::vector<std::pair<const IntentEntry*, uint32_t>> logged_;  // with the member whose log has it
    std::vector<RowEntry> entries_;
    std::vector<Checksum> kept_checksums_;
    std::vector<std::vector<Checksum>> own_sums_;  // of entries that a mutant changes
};

RowJob::RowJob(RowWorld& world, State& state, uint32_t row, Mask missing)
    : world_(world), state_(state), row_(row)
{
    crashed_.data_columns = world.run.data_columns;
    crashed_.bytes = kContentBytes;
    for (uint32_t column = 0; column < columns(); ++column) {
        crashed_.missing[column] = (missing >> world.member_of(row, column) & 1) != 0;
        if (away(column))
            std::memset(content_[column].bytes, 0xee, kContentBytes);
        else
            content_[column] = world.value(state[world.row_place(row, column)]).content;
        pointers_[column] = content_[column].bytes;
    }
    crashed_.columns = std::span(pointers_).first(columns());
}

void RowJob::keep(const Recorded& recorded, Mask kept)
{
    for (uint32_t column = 0; column < crashed_.data_columns; ++column) {
        crashed_.kept[column] = (kept >> column & 1) != 0 && !mutant(RowMutant::kWholeUnchecked);
        kept_checksums_.push_back(world_.value(recorded[row_][column]).checksum);
    }
    crashed_.kept_checksums = kept_checksums_;
}

// The row's live entries, newest first.
void RowJob::collect(uint64_t floor)
{
    const uint64_t address = (uint64_t{row_} + 1) * kBlockBytes;
    for (uint32_t p = 0; p < world_.run.parity; ++p) {
        const uint32_t member = world_.member_of(row_, world_.run.data_columns + p);
        if (away(world_.run.data_columns + p))
            continue;
        for (uint32_t slot = 0; slot < world_.slot_count(); ++slot) {
            const Value& value = world_.value(state_[world_.log_place(member, slot * world_.slot_cells())]);
            if (!value.is_descriptor)
                continue;
            for (const IntentEntry& entry : value.block.entries)
                if (entry.row.value == address && entry.sequence >= floor)
                    logged_.emplace_back(&entry, member);
        }
    }
    std::sort(logged_.begin(), logged_.end(),
              [](const auto& a, const auto& b) { return a.first->sequence > b.first->sequence; });
    uint64_t last = 0;
    for (const auto& [entry, member] : logged_) {
        if (entry->sequence != last)
            entries_.push_back({entry->checksums, entry->modified, {}});
        last = entry->sequence;
        const Value& partial = world_.value(state_[world_.log_place(member, entry->partial_block)]);
        if (partial.checksum == entry->partial_checksum)
            entries_.back().partials[entry->parity_column] = partial.content.bytes;
        else if (mutant(RowMutant::kErasureWithoutParity))
            entries_.back().partials[entry->parity_column] = kZeros.bytes;
    }
}

// Makes an entry say of present blocks that they are what they are.
void RowJob::trust_disk(size_t index, bool modified)
{
    for (uint32_t column = 0; column < crashed_.data_columns; ++column)
        if (!away(column) && entries_[index].modified[column] == modified)
            own_sums_[index][column] = seen(column);
}

// ... and of missing ones that they are what the decoder makes of the rest.
void RowJob::trust_solution(size_t index, bool modified)
{
    std::array<Content, kMaxColumns> solved = content_;
    std::vector<std::byte*> pointers;
    std::vector<uint32_t> erased, wanted;
    for (uint32_t column = 0; column < columns(); ++column) {
        const bool parity = column >= crashed_.data_columns;
        bool gone = away(column);
        if (!modified && parity) {
            const std::byte* partial = entries_[index].partials[column - crashed_.data_columns];
            gone = partial == nullptr;
            if (!gone)
                std::memcpy(solved[column].bytes, partial, kContentBytes);
        } else if (!modified && entries_[index].modified[column]) {
            solved[column] = kZeros;
            gone = false;
        }
        if (gone)
            erased.push_back(column);
        if (gone && !parity && entries_[index].modified[column] == modified)
            wanted.push_back(column);
        pointers.push_back(solved[column].bytes);
    }
    if (erased.size() > world_.run.parity)
        return;
    parity_recover_wanted(pointers, crashed_.data_columns, erased, wanted, kContentBytes);
    for (const uint32_t column : wanted)
        own_sums_[index][column] = checksum_of(solved[column].bytes, kContentBytes);
}

void RowJob::spoil(size_t index)
{
    own_sums_.emplace_back(entries_[index].checksums.begin(), entries_[index].checksums.end());
    if (mutant(RowMutant::kUnmodifiedUnchecked) || mutant(RowMutant::kSumsOfModifiedOnly))
        trust_disk(index, false);
    if (mutant(RowMutant::kSumsOfModifiedOnly))
        trust_solution(index, false);
    if (mutant(RowMutant::kModifiedFromDisk))
        trust_disk(index, true);
    if (mutant(RowMutant::kModifiedUnchecked))
        trust_solution(index, true);
    if (mutant(RowMutant::kErasureWithoutParity))
        for (uint32_t p = 0; p < world_.run.parity; ++p)
            if (entries_[index].partials[p] == nullptr)
                entries_[index].partials[p] = kZeros.bytes;
}

// Mutants that do not come to recover_row(). False: it is to be called.
bool RowJob::recover_wrongly()
{
    if (entries_.empty())
        return false;
    bool data_away = false, modified_away = false, parity_away = false;
    for (uint32_t column = 0; column < columns(); ++column) {
        parity_away = parity_away || (away(column) && column >= crashed_.data_columns);
        data_away = data_away || (away(column) && column < crashed_.data_columns);
        modified_away = modified_away || (away(column) && entries_[0].modified[column]);
    }
    if (mutant(RowMutant::kMdSkip))
        return modified_away;
    CodeRow code{crashed_.data_columns, world_.run.parity, kContentBytes, {}, {}};
    std::copy_n(pointers_.begin(), columns(), code.columns.begin());
    if (mutant(RowMutant::kOldEntriesToo) && !data_away && !parity_away && is_code_word(code, 0)) {
        // Without parity there is no telling.
        const auto before = content_;
        const ColumnBits missing = crashed_.missing;
        for (uint32_t column = crashed_.data_columns; column < columns(); ++column)
            crashed_.missing[column] = true;
        recover_row(crashed_, entries_);
        crashed_.missing = missing;
        for (uint32_t column = 0; column < columns(); ++column)
            crashed_.changed[column] =
                std::memcmp(before[column].bytes, content_[column].bytes, kContentBytes) != 0;
        return true;
    }
    if (!mutant(RowMutant::kBitmapOnly))
        return false;
    if (data_away)
        return true;
    const auto all = std::span(pointers_).first(columns());
    parity_generate(all.first(crashed_.data_columns), all.subspan(crashed_.data_columns), kContentBytes);
    for (uint32_t column = crashed_.data_columns; column < columns(); ++column)
        crashed_.changed[column] = !away(column);
    return true;
}

void RowJob::misplace()
{
    if (mutant(RowMutant::kParityNotRebuilt))
        for (uint32_t column = crashed_.data_columns; column < columns(); ++column)
            crashed_.changed[column] = false;
    if (!mutant(RowMutant::kWrongMember))
        return;
    const ColumnBits changed = crashed_.changed;
    const auto content = content_;
    crashed_.changed.reset();
    for (uint32_t column = 0; column < columns(); ++column) {
        const uint32_t next = (column + 1) % columns();
        if (!changed[column] || away(next))
            continue;
        content_[next] = content[column];
        crashed_.changed[next] = true;
    }
}

void RowJob::store()
{
    for (uint32_t column = 0; column < columns(); ++column)
        if (crashed_.changed[column] && !away(column))
            state_[world_.row_place(row_, column)] = world_.intern(content_[column]);
}

// What was recovered is recorded, missing blocks too, with the first commit of the mount.
void RowJob::run(Recorded& recorded)
{
    if (mutant(RowMutant::kOldestFirst))
        std::reverse(entries_.begin(), entries_.end());
    if (world_.run.mutant >= RowMutant::kUnmodifiedUnchecked &&
        world_.run.mutant <= RowMutant::kErasureWithoutParity) {
        own_sums_.reserve(entries_.size());
        for (size_t index = 0; index < entries_.size(); ++index) {
            spoil(index);
            entries_[index].checksums = own_sums_[index];
        }
    }
    const bool recovered = recover_wrongly() || recover_row(crashed_, entries_);
    for (uint32_t column = 0; recovered && column < columns(); ++column)
        if (!crashed_.kept[column])
            recorded[row_][column] = world_.intern(content_[column]);
    misplace();
    store();
}

}  // namespace

std::vector<uint32_t> descriptors_of(const RowWorld& world, const State& state, Mask missing)
{
    std::vector<uint32_t> places;
    for (uint32_t member = 0; member < world.members(); ++member) {
        if ((missing >> member & 1) != 0)
            continue;
        for (uint32_t slot = 0; slot < world.slot_count(); ++slot) {
            const uint32_t place = world.log_place(member, slot * world.slot_cells());
            if (world.value(state[place]).is_descriptor)
                places.push_back(place);
        }
    }
    return places;
}

void recover_state(RowWorld& world, State& state, Recorded& recorded, const RowMasks& kept, Mask missing)
{
    uint64_t floor = 0;
    for (const uint32_t place : descriptors_of(world, state, missing))
        floor = std::max(floor, world.value(state[place]).block.header.floor);
    for (uint32_t row = 0; row < world.run.rows; ++row) {
        RowJob job(world, state, row, missing);
        job.keep(recorded, kept[row]);
        job.collect(floor);
        job.run(recorded);
    }
}

}  // namespace cowraid::test
