// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_world.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "base/checksum.h"
#include "raid56/parity.h"

namespace cowraid::test {

namespace {

constexpr const char* kNames[] = {
    "none",
    "no log",
    "log on P only",
    "log not flushed",
    "not cumulative",
    "partial of all",
    "old parity",
    "ack unflushed",
    "retire unflushed",
    "floor before commit",
    "flush straddles",
    "bitmap only",
    "md skip",
    "oldest first",
    "unmodified unchecked",
    "sums of modified only",
    "modified from disk",
    "modified unchecked",
    "erasure without parity",
    "uncovered sequence",
    "parity not rebuilt",
    "wrong member",
    "stale member",
    "old entries too",
    "whole unchecked",
    "clear unordered",
    "erase by zeros",
    "reused early",
    "floor ignored",
    "generation ignored",
    "full row unlogged",
};
static_assert(std::size(kNames) == static_cast<size_t>(RowMutant::kCount));

constexpr uint64_t kEpoch = 7;
constexpr Generation kGeneration{6};

}  // namespace

const char* mutant_name(RowMutant mutant)
{
    return kNames[static_cast<size_t>(mutant)];
}

Content rotten(Content content)
{
    content.bytes[7] ^= std::byte{0x55};
    return content;
}

RowWorld::RowWorld(const RowRun& row_run) : run(row_run), prng_(row_run.seed)
{
    CW_ASSERT(run.rows >= 1 && run.rows <= kMaxRows && !run.steps.empty());
    values_.emplace_back();
    values_[0].checksum = checksum_of(values_[0].content.bytes, kContentBytes);
    start.resize(size_t{members()} * cells());
    fill_rows();
    const bool straddles = run.mutant == RowMutant::kFlushStraddles;
    for (uint32_t step = 0; step < run.steps.size(); ++step) {
        append(run.steps[step], step);
        if (straddles && step > 0 && run.steps[step - 1].flush)
            flush_all(true, run.steps[step]);
        write_in_place(run.steps[step]);
        const bool last = step + 1 == run.steps.size();
        if (last || (run.steps[step].flush && !straddles))
            flush_all(last || run.mutant != RowMutant::kRetireUnflushed, {});
        else if (run.steps[step].log_full)
            make_room();
    }
}

void RowWorld::fill_rows()
{
    for (uint32_t row = 0; row < run.rows; ++row) {
        for (auto* blocks : {&first[row], &target[row]}) {
            for (uint32_t column = 0; column < run.data_columns; ++column) {
                Content content;
                prng_.fill(content.bytes, kContentBytes);
                if (run.similar && blocks == &target[row])
                    content = rotten(value(first[row][column]).content);
                blocks->push_back(intern(content));
            }
        }
        rows_[row].now = first[row];
        for (uint32_t column = 0; column < run.data_columns; ++column)
            start[row_place(row, column)] = first[row][column];
        const auto parity = parity_of(first[row], 0);
        for (uint32_t p = 0; p < run.parity; ++p)
            start[row_place(row, run.data_columns + p)] = parity[p];
    }
    record();
}

// All rows as they are after what was written so far.
uint32_t RowWorld::record()
{
    Recorded& all = recorded.emplace_back();
    for (uint32_t row = 0; row < run.rows; ++row) {
        const auto parity = parity_of(rows_[row].now, 0);
        std::copy(rows_[row].now.begin(), rows_[row].now.end(), all[row].begin());
        std::copy(parity.begin(), parity.end(), all[row].begin() + run.data_columns);
    }
    return static_cast<uint32_t>(recorded.size()) - 1;
}

uint16_t RowWorld::intern(const Content& content)
{
    const Checksum checksum = checksum_of(content.bytes, kContentBytes);
    const auto [known, added] = by_checksum_.emplace(checksum, values_.size());
    if (added) {
        CW_ASSERT(values_.size() < UINT16_MAX);
        Value& value = values_.emplace_back();
        value.content = content;
        value.checksum = checksum;
    }
    return known->second;
}

// Parity with zeros in place of the blocks of `left_out`.
std::vector<uint16_t> RowWorld::parity_of(const std::vector<uint16_t>& data, Mask left_out)
{
    static const Content zeros{};
    std::vector<const std::byte*> blocks;
    for (uint32_t column = 0; column < run.data_columns; ++column)
        blocks.push_back((left_out >> column & 1) != 0 ? zeros.bytes : values_[data[column]].content.bytes);
    Content parity[2];
    std::byte* outputs[] = {parity[0].bytes, parity[1].bytes};
    parity_generate(blocks, std::span(outputs).first(run.parity), kContentBytes);
    std::vector<uint16_t> indexes;
    for (uint32_t p = 0; p < run.parity; ++p)
        indexes.push_back(intern(parity[p]));
    return indexes;
}

IntentHeader RowWorld::header_of(uint32_t member, uint32_t log_cell, uint64_t floor) const
{
    IntentHeader header;
    header.member = {member + 1};
    header.epoch = kEpoch;
    header.generation = kGeneration;
    header.floor = floor;
    header.block = log_cell;
    return header;
}

uint16_t RowWorld::add_descriptor(uint32_t member, uint32_t log_cell, std::span<const IntentEntry> entries,
                                  uint64_t floor)
{
    const IntentHeader header = header_of(member, log_cell, floor);
    std::vector<std::byte> bytes(kBlockBytes);
    encode_intent_block(header, entries, bytes);
    Result<IntentBlock> block = decode_intent_block(bytes, header);
    CW_ASSERT(block.ok() && block->header.floor == floor && block->entries.size() == entries.size());
    CW_ASSERT(values_.size() < UINT16_MAX);
    const auto index = static_cast<uint16_t>(values_.size());
    Value& value = values_.emplace_back();
    value.is_descriptor = true;
    value.block = block.take();
    if (!entries.empty()) {
        bytes[sizeof(DiskIntentHeader) + offsetof(DiskIntentEntry, sequence) + 1] ^= std::byte{1};
        CW_ASSERT(decode_intent_block(bytes, header).err() == Err::kCorrupt);
    }
    return index;
}

uint16_t RowWorld::dead_descriptor(uint32_t member, uint32_t log_cell)
{
    const auto [known, added] = dead_.emplace(member * cells() + log_cell, 0);
    if (added)
        known->second = add_descriptor(member, log_cell, {}, sequence_ + 1);
    return known->second;
}

void RowWorld::push_write(uint32_t place, uint16_t value)
{
    const uint32_t member = place / cells();
    if ((run.missing >> member & 1) == 0)
        events.push_back({Event::Kind::kWrite, member, place, value, {}});
}

// The row as it will be after the step.
void RowWorld::take(uint32_t row, const RowStep& step)
{
    Row& state = rows_[row];
    if (run.mutant == RowMutant::kNotCumulative)
        state.modified = 0;
    state.modified |= step.written[row];
    state.unacknowledged |= step.written[row];
    touched[row] |= step.written[row];
    for (uint32_t column = 0; column < run.data_columns; ++column)
        if ((step.written[row] >> column & 1) != 0)
            state.now[column] = target[row][column];
}

void RowWorld::append(const RowStep& step, uint32_t slot)
{
    const uint32_t descriptor_cell = slot * slot_cells();
    std::vector<std::vector<IntentEntry>> entries(members());
    std::vector<Event> partial_writes;
    for (uint32_t row = 0; row < run.rows; ++row) {
        if (step.written[row] == 0)
            continue;
        take(row, step);
        ++sequence_;
        const Row& state = rows_[row];
        const auto partials =
            parity_of(state.now, run.mutant == RowMutant::kPartialOfAll ? 0 : state.modified);
        for (uint32_t p = 0; p < (run.mutant == RowMutant::kLogOnP ? 1 : run.parity); ++p) {
            const uint32_t member = member_of(row, run.data_columns + p);
            IntentEntry& entry = entries[member].emplace_back();
            entry.sequence = sequence_;
            entry.row = {(uint64_t{row} + 1) * kBlockBytes};
            entry.parity_column = p;
            entry.partial_block = descriptor_cell + static_cast<uint32_t>(entries[member].size());
            entry.partial_checksum = values_[partials[p]].checksum;
            for (uint32_t column = 0; column < run.data_columns; ++column) {
                entry.modified[column] = (state.modified >> column & 1) != 0;
                entry.checksums.push_back(values_[state.now[column]].checksum);
            }
            partial_writes.push_back(
                {Event::Kind::kWrite, member, log_place(member, entry.partial_block), partials[p], {}});
        }
    }
    if (run.mutant == RowMutant::kNoLog)
        return;
    for (uint32_t member = 0; member < members(); ++member) {
        if (entries[member].empty())
            continue;
        const uint16_t written = add_descriptor(member, descriptor_cell, entries[member], floor_);
        for (IntentEntry& entry : entries[member])
            entry.sequence ^= 256;
        const uint16_t renumbered = add_descriptor(member, descriptor_cell, entries[member], floor_);
        values_[written].renumbered = renumbered;
        push_write(log_place(member, descriptor_cell), written);
    }
    for (const Event& write : partial_writes)
        push_write(write.place, write.value);
    if (run.mutant == RowMutant::kLogNotFlushed)
        return;
    for (uint32_t member = 0; member < members(); ++member)
        if (!entries[member].empty() && (run.missing >> member & 1) == 0)
            events.push_back({Event::Kind::kFlush, member, 0, 0, {}});
}

void RowWorld::write_in_place(const RowStep& step)
{
    for (uint32_t row = 0; row < run.rows; ++row) {
        if (step.written[row] == 0)
            continue;
        for (uint32_t column = 0; column < run.data_columns; ++column)
            if ((step.written[row] >> column & 1) != 0)
                push_write(row_place(row, column), rows_[row].now[column]);
        if (run.mutant == RowMutant::kOldParity)
            continue;
        const auto parity = parity_of(rows_[row].now, 0);
        for (uint32_t p = 0; p < run.parity; ++p)
            push_write(row_place(row, run.data_columns + p), parity[p]);
    }
}

// `unwritten`: what has an entry and is not on its way to its place yet.
void RowWorld::flush_all(bool acknowledge, const RowStep& unwritten)
{
    Event done{Event::Kind::kAcknowledge, 0, 0, 0, {}};
    const bool early = run.mutant == RowMutant::kAckUnflushed;
    uint64_t covered = sequence_;
    for (uint32_t row = 0; row < run.rows; ++row) {
        done.columns[row] = rows_[row].unacknowledged & ~unwritten.written[row];
        rows_[row].modified = unwritten.written[row];
        if (acknowledge)
            rows_[row].unacknowledged = unwritten.written[row];
        covered -= unwritten.written[row] != 0 ? 1 : 0;
    }
    floor_ = covered + 1;
    if (!acknowledge)
        return;
    done.recorded = record();
    if (early)
        events.push_back(done);
    for (uint32_t member = 0; member < members(); ++member)
        if ((run.missing >> member & 1) == 0)
            events.push_back({Event::Kind::kFlush, member, 0, 0, {}});
    if (!early)
        events.push_back(done);
}

void RowWorld::make_room()
{
    for (uint32_t member = 0; member < members(); ++member)
        if ((run.missing >> member & 1) == 0)
            events.push_back({Event::Kind::kFlush, member, 0, 0, {}});
    if (run.mutant != RowMutant::kFloorBeforeCommit)
        events.push_back({Event::Kind::kAcknowledge, 0, 0, 0, {}, record()});
    floor_ = sequence_ + 1;
    for (Row& row : rows_)
        row.modified = 0;
}

std::vector<Mask> small_sets(uint32_t members, uint32_t size)
{
    std::vector<Mask> sets;
    for (Mask set = 0; set < 1u << members; ++set)
        if (static_cast<uint32_t>(std::popcount(set)) <= size)
            sets.push_back(set);
    return sets;
}

std::string describe(const RowRun& run)
{
    std::string text = std::to_string(run.data_columns) + "+" + std::to_string(run.parity) + " missing " +
                       std::to_string(run.missing) + ":";
    for (const RowStep& step : run.steps) {
        for (uint32_t row = 0; row < run.rows; ++row)
            text += " " + std::to_string(step.written[row]);
        text += step.flush ? " F" : step.log_full ? " L" : " |";
    }
    return text;
}

}  // namespace cowraid::test
