// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_model.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/random.h"
#include "format/intent_codec.h"
#include "raid56/row_recovery.h"

namespace cowraid::test {

namespace {

constexpr size_t kBytes = 64;  // of a block: the mathematics does not care
constexpr uint32_t kLogSlots = 2;  // a log large enough to keep the entry before the last

struct alignas(64) Content {
    std::byte bytes[kBytes];
};

using Mask = uint32_t;  // of columns

// A copy of an entry as a member's log holds it.
struct LogCopy {
    std::vector<std::byte> descriptor;  // empty: never written
    Content partial;
};

struct Event {
    enum class Kind : uint8_t { kBlock, kLog, kFlush, kAcknowledge } kind;
    uint32_t column = 0;  // member; of an acknowledgement the data column
    uint32_t value = 0;  // index of the content or of the log copy
    uint32_t slot = 0;  // kLog
};

// What members hold: indexes of contents and of log copies.
struct State {
    std::vector<uint32_t> blocks;
    std::vector<std::array<uint32_t, kLogSlots>> logs;
};

class Enumeration {
public:
    explicit Enumeration(const RowRun& run);
    RowReport go();

private:
    [[nodiscard]] uint32_t columns() const { return k_ + m_; }
    uint32_t add(const Content& content);
    [[nodiscard]] std::vector<uint32_t> parity_of(const std::vector<uint32_t>& data, Mask left_out);
    void write(const std::vector<uint32_t>& written);
    uint32_t add_log(uint32_t parity, const Content& partial, const std::vector<uint32_t>& after);
    void record();
    void crash_at(size_t event);
    void try_state(const State& state, Mask acknowledged);
    void try_damage(const State& state, Mask acknowledged, int rotten, int unreadable_log);
    void try_losses(const State& state, Mask acknowledged, int rotten, int unreadable_log, Mask lost_before);
    bool readable(const std::vector<Content>& row, Mask missing, uint32_t column, const Content& wanted);
    [[nodiscard]] std::vector<IntentEntry> entries_of(const State& state, uint32_t column);

    const RowRun& run_;
    const uint32_t k_, m_;
    Prng prng_;
    std::vector<Content> contents_;
    std::vector<LogCopy> copies_;
    std::vector<Event> events_;
    std::vector<uint32_t> first_, now_, new_;  // data blocks: before, as written so far, as they will be
    std::vector<uint32_t> first_parity_, parity_now_;
    Mask touched_ = 0, modified_ = 0;
    uint64_t sequence_ = 0;
    std::unordered_set<uint64_t> seen_;
    RowReport report_;
};

Enumeration::Enumeration(const RowRun& run)
    : run_(run), k_(run.data_columns), m_(run.parity), prng_(run.data_columns * 31 + run.parity)
{
    copies_.emplace_back();  // index 0: never written
    for (std::vector<uint32_t>* blocks : {&first_, &new_}) {
        for (uint32_t column = 0; column < k_; ++column) {
            Content content;
            prng_.fill(content.bytes, kBytes);
            blocks->push_back(add(content));
        }
    }
    now_ = first_;
    first_parity_ = parity_now_ = parity_of(first_, 0);
}

uint32_t Enumeration::add(const Content& content)
{
    contents_.push_back(content);
    return static_cast<uint32_t>(contents_.size() - 1);
}

// Parity with zeros in place of the blocks of `left_out`.
std::vector<uint32_t> Enumeration::parity_of(const std::vector<uint32_t>& data, Mask left_out)
{
    static const Content zeros{};
    std::vector<const std::byte*> blocks;
    for (uint32_t column = 0; column < k_; ++column)
        blocks.push_back((left_out >> column & 1) != 0 ? zeros.bytes : contents_[data[column]].bytes);
    Content parity[2];
    std::byte* outputs[] = {parity[0].bytes, parity[1].bytes};
    parity_generate(blocks, std::span(outputs).first(m_), kBytes);
    std::vector<uint32_t> indexes;
    for (uint32_t p = 0; p < m_; ++p)
        indexes.push_back(add(parity[p]));
    return indexes;
}

uint32_t Enumeration::add_log(uint32_t parity, const Content& partial, const std::vector<uint32_t>& after)
{
    IntentEntry entry;
    entry.sequence = sequence_;
    entry.row = {kBlockBytes};
    entry.parity_column = parity;
    entry.partial_checksum = checksum_of({partial.bytes, kBytes});
    for (uint32_t column = 0; column < k_; ++column) {
        entry.modified[column] = (modified_ >> column & 1) != 0;
        const bool left_out = run_.mutant == RowMutant::kWrongSums && !entry.modified[column];
        entry.checksums.push_back(left_out ? 0 : checksum_of({contents_[after[column]].bytes, kBytes}));
    }
    LogCopy& copy = copies_.emplace_back();
    copy.partial = partial;
    copy.descriptor.resize(kBlockBytes);
    IntentHeader header;
    header.member = {k_ + parity + 1};
    encode_intent_block(header, {&entry, 1}, copy.descriptor);
    return static_cast<uint32_t>(copies_.size() - 1);
}

void Enumeration::write(const std::vector<uint32_t>& written)
{
    ++sequence_;
    if (run_.mutant == RowMutant::kNotCumulative)
        modified_ = 0;
    std::vector<uint32_t> after = now_;
    for (const uint32_t column : written) {
        modified_ |= 1u << column;
        touched_ |= 1u << column;
        after[column] = new_[column];
    }
    const auto partials = parity_of(after, run_.mutant == RowMutant::kPartialOfAll ? 0 : modified_);
    const auto parity = parity_of(after, 0);
    const uint32_t logged = run_.mutant == RowMutant::kLogOnP ? 1 : m_;
    for (uint32_t p = 0; p < logged; ++p)
        events_.push_back({Event::Kind::kLog, k_ + p, add_log(p, contents_[partials[p]], after),
                           static_cast<uint32_t>(sequence_ % kLogSlots)});
    for (uint32_t p = 0; p < logged && run_.mutant != RowMutant::kLogNotFlushed; ++p)
        events_.push_back({Event::Kind::kFlush, k_ + p});
    for (const uint32_t column : written)
        events_.push_back({Event::Kind::kBlock, column, new_[column]});
    for (uint32_t p = 0; p < m_ && run_.mutant != RowMutant::kOldParity; ++p)
        events_.push_back({Event::Kind::kBlock, k_ + p, parity[p]});
    now_ = after;
    parity_now_ = parity;
}

void Enumeration::record()
{
    for (const std::vector<uint32_t>& written : run_.writes)
        write(written);
    const auto flush = [&] {
        for (uint32_t column = 0; column < columns(); ++column)
            events_.push_back({Event::Kind::kFlush, column});
    };
    if (run_.mutant != RowMutant::kAckUnflushed)
        flush();
    for (uint32_t column = 0; column < k_; ++column)
        if ((touched_ >> column & 1) != 0)
            events_.push_back({Event::Kind::kAcknowledge, column});
    if (run_.mutant == RowMutant::kAckUnflushed)
        flush();
}

// Every subset of the writes before `event` that no flush covers.
void Enumeration::crash_at(size_t event)
{
    State durable{first_, std::vector<std::array<uint32_t, kLogSlots>>(columns())};
    durable.blocks.insert(durable.blocks.end(), first_parity_.begin(), first_parity_.end());
    std::vector<Event> pending;
    Mask acknowledged = 0;
    const auto apply = [](State& state, const Event& write) {
        if (write.kind == Event::Kind::kBlock)
            state.blocks[write.column] = write.value;
        else
            state.logs[write.column][write.slot] = write.value;
    };
    for (size_t index = 0; index < event; ++index) {
        const Event& one = events_[index];
        if (one.kind == Event::Kind::kAcknowledge) {
            acknowledged |= 1u << one.column;
        } else if (one.kind == Event::Kind::kFlush) {
            for (const Event& write : pending)
                if (write.column == one.column)
                    apply(durable, write);
            std::erase_if(pending, [&](const Event& write) { return write.column == one.column; });
        } else {
            pending.push_back(one);
        }
    }
    CW_ASSERT(pending.size() < 24);
    for (uint32_t kept = 0; kept < 1u << pending.size(); ++kept) {
        State state = durable;
        for (size_t index = 0; index < pending.size(); ++index)
            if ((kept >> index & 1) != 0)
                apply(state, pending[index]);
        try_state(state, acknowledged);
    }
}

void Enumeration::try_state(const State& state, Mask acknowledged)
{
    std::vector<uint32_t> key = state.blocks;
    for (const auto& slots : state.logs)
        key.insert(key.end(), slots.begin(), slots.end());
    key.push_back(acknowledged);
    if (!seen_.insert(checksum_of(key.data(), key.size() * sizeof key[0])).second)
        return;
    ++report_.states;
    const Mask wanted = (~touched_ | acknowledged) & ((1u << k_) - 1);
    for (int rotten = -1; rotten < static_cast<int>(k_); ++rotten) {
        if (rotten >= 0 && (wanted >> rotten & 1) == 0)
            continue;
        for (int log = -1; log < static_cast<int>(columns()); log = log < 0 ? static_cast<int>(k_) : log + 1)
            try_damage(state, acknowledged, rotten, log);
    }
}

void Enumeration::try_damage(const State& state, Mask acknowledged, int rotten, int unreadable_log)
{
    Mask faulty = 0;
    for (const int column : {rotten, unreadable_log})
        faulty |= column >= 0 ? 1u << column : 0;
    const auto faults = static_cast<uint32_t>(__builtin_popcount(faulty));
    if (faults > m_)
        return;
    for (Mask lost = 0; lost < 1u << columns(); ++lost)
        if ((lost & faulty) == 0 && static_cast<uint32_t>(__builtin_popcount(lost)) + faults <= m_)
            try_losses(state, acknowledged, rotten, unreadable_log, lost);
}

std::vector<IntentEntry> Enumeration::entries_of(const State& state, uint32_t column)
{
    std::vector<IntentEntry> entries;
    for (const uint32_t index : state.logs[column]) {
        if (index == 0)
            continue;
        IntentHeader expected;
        expected.member = {column + 1};
        Result<IntentBlock> block = decode_intent_block(copies_[index].descriptor, expected);
        CW_ASSERT(block.ok());
        entries.push_back(std::move(block->entries[0]));
        entries.back().partial_block = index;
    }
    return entries;
}

void Enumeration::try_losses(const State& state, Mask acknowledged, int rotten, int unreadable_log,
                             Mask lost_before)
{
    std::vector<Content> row(columns());
    std::vector<std::byte*> pointers;
    CrashedRow crashed{.data_columns = k_, .bytes = kBytes};
    for (uint32_t column = 0; column < columns(); ++column) {
        row[column] = contents_[state.blocks[column]];
        crashed.missing[column] = (lost_before >> column & 1) != 0;
        if (static_cast<int>(column) == rotten)
            row[column].bytes[7] ^= std::byte{0x55};
        if (crashed.missing[column])
            std::memset(row[column].bytes, 0xee, kBytes);
        pointers.push_back(row[column].bytes);
    }
    crashed.columns = pointers;
    std::vector<IntentEntry> logged;
    for (uint32_t column = k_; column < columns(); ++column)
        if (!crashed.missing[column] && static_cast<int>(column) != unreadable_log)
            for (IntentEntry& entry : entries_of(state, column))
                logged.push_back(std::move(entry));
    std::sort(logged.begin(), logged.end(),
              [](const IntentEntry& a, const IntentEntry& b) { return a.sequence > b.sequence; });
    std::vector<RowEntry> entries;
    for (size_t index = 0; index < logged.size(); ++index) {
        if (index == 0 || logged[index].sequence != logged[index - 1].sequence)
            entries.push_back({logged[index].checksums, logged[index].modified, {}});
        entries.back().partials[logged[index].parity_column] =
            copies_[logged[index].partial_block].partial.bytes;
    }
    recover_row(crashed, entries);
    const Mask faulty = (rotten >= 0 ? 1u << rotten : 0) | (unreadable_log >= 0 ? 1u << unreadable_log : 0);
    const auto spent = static_cast<uint32_t>(__builtin_popcount(faulty | lost_before));
    const Mask wanted = (~touched_ | acknowledged) & ((1u << k_) - 1);
    for (Mask lost = 0; lost < 1u << columns(); ++lost) {
        if ((lost & (faulty | lost_before)) != 0 ||
            static_cast<uint32_t>(__builtin_popcount(lost)) + spent > m_)
            continue;
        ++report_.checks;
        for (uint32_t column = 0; column < k_; ++column) {
            if ((wanted >> column & 1) == 0)
                continue;
            const bool is_new = (acknowledged >> column & 1) != 0;
            if (readable(row, lost | lost_before, column, contents_[is_new ? new_[column] : first_[column]]))
                continue;
            ++report_.losses;
            if (report_.first_loss.empty())
                report_.first_loss = "column " + std::to_string(column) + ", rotten " +
                                     std::to_string(rotten) + ", log " + std::to_string(unreadable_log) +
                                     ", lost before " + std::to_string(lost_before) + ", after " +
                                     std::to_string(lost);
        }
    }
}

// As a read finds it: the block itself, or solved with every choice of further erasures.
bool Enumeration::readable(const std::vector<Content>& row, Mask missing, uint32_t column,
                           const Content& wanted)
{
    const auto same = [&](const Content& content) {
        return std::memcmp(content.bytes, wanted.bytes, kBytes) == 0;
    };
    if ((missing >> column & 1) == 0 && same(row[column]))
        return true;
    missing |= 1u << column;
    for (Mask more = 0; more < 1u << columns(); ++more) {
        if ((more & missing) != 0 || static_cast<uint32_t>(__builtin_popcount(more | missing)) > m_)
            continue;
        std::vector<Content> solved = row;
        std::vector<std::byte*> pointers;
        std::vector<uint32_t> erased;
        for (uint32_t index = 0; index < columns(); ++index) {
            pointers.push_back(solved[index].bytes);
            if (((more | missing) >> index & 1) != 0)
                erased.push_back(index);
        }
        parity_recover(pointers, k_, erased, kBytes);
        if (same(solved[column]))
            return true;
    }
    return false;
}

RowReport Enumeration::go()
{
    record();
    for (size_t event = 0; event <= events_.size(); ++event)
        crash_at(event);
    return report_;
}

}  // namespace

RowReport enumerate_row(const RowRun& run)
{
    return Enumeration(run).go();
}

}  // namespace cowraid::test
