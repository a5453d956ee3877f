// SPDX-License-Identifier: MIT
#include "tests/rowlog/log_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/assert.h"
#include "base/checksum.h"
#include "journal/intent_scan.h"
#include "raid56/row_recovery.h"
#include "sim/replay.h"
#include "tests/rowlog/log_image.h"
#include "tests/rowlog/row_code.h"

namespace cowraid::test {

namespace {

using Sums = std::vector<std::vector<Checksum>>;  // recorded, by row and column

class LogEnumeration {
public:
    LogEnumeration(const LogRun& run, bool nested)
        : run_(run),
          nested_(nested),
          world_(run),
          images_(pool_, world_.members(), world_.blocks(), run.mutant),
          losses_(small_sets(world_.members(), run.parity)),
          prng_(run.seed + 7)
    {
    }
    LogReport go();

private:
    struct Instant {
        uint64_t time;
        size_t pending;
        size_t mark_count;
    };
    [[nodiscard]] std::vector<Instant> worthwhile() const;
    void crash_at(const ReplayCursor& cursor);
    [[nodiscard]] std::vector<uint64_t> subsets_of(size_t count);
    void try_state(const LogImage& state);
    void try_faults(const LogImage& state);
    void try_losses(const LogImage& state, Mask faulty, uint32_t faults);
    void try_recovery(const LogImage& state, const Sums& recorded, Mask missing, uint32_t left, bool second);
    void try_new(const LogImage& state, const Sums& recorded, Mask missing, uint32_t left, bool second);
    [[nodiscard]] uint64_t key_of(const LogImage& state, const Sums& recorded, Mask missing, uint32_t left,
                                  bool second) const;
    void crash_again(const LogImage& before, const Sums& recorded, const std::vector<ImageWrite>& writes,
                     Mask missing, uint32_t left);
    void recover(LogImage& image, Sums& recorded, Mask missing, std::vector<ImageWrite>& rewritten,
                 std::vector<ImageWrite>& erased);
    void recover_one(IntentScan& scan, std::span<const LoggedRow> logged, LogImage& image, Sums& recorded,
                     Mask missing, std::vector<ImageWrite>& rewritten);
    void verify(const LogImage& image, const Sums& recorded, Mask missing, uint32_t left, bool second);
    [[nodiscard]] std::string scene(Mask missing, bool second) const;
    Checksum sum_of(uint32_t content);
    [[nodiscard]] uint32_t place(uint32_t row, uint32_t column) const
    {
        return world_.member_of(row, column) * world_.blocks() + run_.log_blocks + row;
    }

    const LogRun& run_;
    const bool nested_;
    LogWorld world_;
    ContentPool pool_;
    ImageMembers images_;
    const std::vector<Mask> losses_;
    Prng prng_;
    const LogPromise* promise_ = nullptr;
    uint64_t time_ = 0;
    std::string fault_;
    std::vector<Checksum> sums_;  // of the pool's contents, as far as they were asked for
    std::unordered_set<uint64_t> seen_;
    struct Tried {
        uint64_t checks, nested_checks;
    };
    std::unordered_map<uint64_t, Tried>
        tried_;  // by key_of(): what recovery meets, and how many checks it had
    LogReport report_;
};

// Instants whose states those of the next one do not contain.
std::vector<LogEnumeration::Instant> LogEnumeration::worthwhile() const
{
    std::vector<Instant> all;
    ReplayCursor cursor(world_.recorder);
    std::vector<uint64_t> times = world_.recorder.instants();
    times.push_back(world_.recorder.end());
    for (const uint64_t time : times) {
        cursor.advance(time);
        size_t pending = 0;
        for (uint32_t member = 0; member < world_.members(); ++member)
            for (const uint32_t write : cursor.optional_writes(member))
                pending += world_.recorder.writes()[write].content.size();
        all.push_back({time, pending, cursor.marks().size()});
    }
    std::vector<Instant> kept;
    for (size_t index = 0; index < all.size(); ++index)
        if (index + 1 == all.size() || all[index + 1].pending <= all[index].pending ||
            all[index + 1].mark_count != all[index].mark_count)
            kept.push_back(all[index]);
    return kept;
}

std::vector<uint64_t> LogEnumeration::subsets_of(size_t count)
{
    CW_ASSERT(count < 64);
    std::vector<uint64_t> subsets;
    const uint64_t whole = (uint64_t{1} << count) - 1;
    if (count <= run_.subset_bits) {
        for (uint64_t subset = 0; subset <= whole; ++subset)
            subsets.push_back(subset);
        return subsets;
    }
    ++report_.sampled;
    subsets = {0, whole};
    for (size_t index = 0; index < count; ++index) {
        subsets.push_back(uint64_t{1} << index);
        subsets.push_back(whole ^ uint64_t{1} << index);
    }
    for (uint32_t drawn = 0; drawn < run_.random_subsets; ++drawn)
        subsets.push_back(prng_.next() & whole);
    return subsets;
}

void LogEnumeration::crash_at(const ReplayCursor& cursor)
{
    time_ = cursor.instant();
    promise_ = &world_.promises[cursor.marks().empty() ? 0 : cursor.marks().back().value];
    const BlockPool& contents = world_.recorder.pool();
    LogImage durable(size_t{world_.members()} * world_.blocks());
    std::vector<ImageWrite> pending;
    for (uint32_t member = 0; member < world_.members(); ++member) {
        for (uint32_t block = 0; block < world_.blocks(); ++block)
            durable[member * world_.blocks() + block] =
                pool_.intern(contents.block(cursor.durable(member).get(block)).data());
        for (const uint32_t index : cursor.optional_writes(member)) {
            const RecordedWrite& write = world_.recorder.writes()[index];
            // Of every write any part of the blocks may be there.
            for (size_t block = 0; block < write.content.size(); ++block)
                pending.push_back(
                    {static_cast<uint32_t>(member * world_.blocks() + write.first_block + block),
                     pool_.intern(contents.block(write.content[block]).data())});
        }
    }
    for (const uint64_t kept : subsets_of(pending.size())) {
        LogImage state = durable;
        for (size_t index = 0; index < pending.size(); ++index)
            if ((kept >> index & 1) != 0)
                state[pending[index].place] = pending[index].content;
        try_state(state);
    }
}

void LogEnumeration::try_state(const LogImage& state)
{
    const auto promised = static_cast<uint64_t>(promise_ - world_.promises.data());
    if (!seen_.insert(seeded_hash(state.data(), state.size() * sizeof state[0], promised)).second)
        return;
    ++report_.states;
    try_losses(state, 0, 0);
    if (prng_.below(run_.fault_share) == 0)
        try_faults(state);
}

// One block of a row rotten; one block of a log unreadable; one whole log unreadable.
void LogEnumeration::try_faults(const LogImage& state)
{
    if (static_cast<uint32_t>(std::popcount(run_.missing)) >= run_.parity)
        return;
    for (uint32_t member = 0; member < world_.members(); ++member) {
        if (world_.away(member))
            continue;
        for (uint32_t block = 0; block <= world_.blocks(); ++block) {
            LogImage damaged = state;
            const auto log = damaged.begin() + member * world_.blocks();
            if (block == world_.blocks()) {
                std::fill(log, log + run_.log_blocks, ContentPool::kUnreadable);
            } else if (block < run_.log_blocks) {
                log[block] = ContentPool::kUnreadable;
            } else {
                AlignedBuffer rotten(kBlockBytes);
                std::memcpy(rotten.data(), pool_.block(log[block]), kBlockBytes);
                rotten.data()[99] ^= std::byte{4};
                log[block] = pool_.intern(rotten.data());
            }
            fault_ = ", fault at member " + std::to_string(member) + " block " + std::to_string(block);
            try_losses(damaged, 1u << member, 1);
        }
    }
    fault_.clear();
}

void LogEnumeration::try_losses(const LogImage& state, Mask faulty, uint32_t faults)
{
    for (const Mask lost : losses_) {
        const Mask missing = lost | run_.missing;
        const uint32_t spent = static_cast<uint32_t>(std::popcount(missing)) + faults;
        if ((lost & (faulty | run_.missing)) == 0 && spent <= run_.parity)
            try_recovery(state, promise_->recorded, missing, run_.parity - spent, false);
    }
}

// Of all that decides what becomes of a state. What members hold that are away does not.
uint64_t LogEnumeration::key_of(const LogImage& state, const Sums& recorded, Mask missing, uint32_t left,
                                bool second) const
{
    LogImage read = state;
    for (uint32_t member = 0; member < world_.members(); ++member)
        if ((missing >> member & 1) != 0)
            std::fill_n(read.begin() + member * world_.blocks(), world_.blocks(), 0);
    const uint64_t rest[] = {static_cast<uint64_t>(promise_ - world_.promises.data()),
                             uint64_t{missing} << 32 | left, (second ? 2u : 0u) | (fault_.empty() ? 0u : 1u)};
    uint64_t key = seeded_hash(read.data(), read.size() * sizeof read[0], 0);
    for (const std::vector<Checksum>& sums : recorded)
        key = seeded_hash(sums.data(), sums.size() * sizeof sums[0], key);
    return seeded_hash(rest, sizeof rest, key);
}

void LogEnumeration::try_recovery(const LogImage& state, const Sums& recorded, Mask missing, uint32_t left,
                                  bool second)
{
    const auto [known, added] = tried_.try_emplace(key_of(state, recorded, missing, left, second));
    Tried& tried = known->second;
    if (!added) {
        report_.checks += tried.checks;
        report_.nested_checks += tried.nested_checks;
        return;
    }
    const uint64_t checks = report_.checks, nested_checks = report_.nested_checks;
    try_new(state, recorded, missing, left, second);
    tried = {report_.checks - checks, report_.nested_checks - nested_checks};
}

void LogEnumeration::try_new(const LogImage& state, const Sums& recorded, Mask missing, uint32_t left,
                             bool second)
{
    LogImage image = state;
    Sums adopted = recorded;
    std::vector<ImageWrite> rewritten, erased;
    recover(image, adopted, missing, rewritten, erased);
    verify(image, adopted, missing, left, second);
    if (!nested_ || second)
        return;
    crash_again(state, recorded, rewritten, missing, left);
    LogImage flushed = state;
    for (const ImageWrite& write : rewritten)
        flushed[write.place] = write.content;
    crash_again(flushed, adopted, erased, missing, left);
}

void LogEnumeration::crash_again(const LogImage& before, const Sums& recorded,
                                 const std::vector<ImageWrite>& writes, Mask missing, uint32_t left)
{
    const bool all = writes.size() <= 6;
    for (uint32_t subset = 1; subset < (all ? 1u << writes.size() : 64); ++subset) {
        const uint64_t kept = all ? subset : prng_.next();
        LogImage state = before;
        for (size_t index = 0; index < writes.size(); ++index)
            if ((kept >> index & 1) != 0)
                state[writes[index].place] = writes[index].content;
        for (const Mask lost : losses_)
            if ((lost & missing) == 0 && static_cast<uint32_t>(std::popcount(lost)) <= left)
                try_recovery(state, recorded, missing | lost,
                             left - static_cast<uint32_t>(std::popcount(lost)), true);
    }
}

void LogEnumeration::recover(LogImage& image, Sums& recorded, Mask missing,
                             std::vector<ImageWrite>& rewritten, std::vector<ImageWrite>& erased)
{
    ++report_.scans;
    Superblock superblock = world_.superblock;
    superblock.generation = superblock.root.generation = promise_->generation;
    if (run_.mutant == RowMutant::kGenerationIgnored)
        superblock.generation = superblock.root.generation = {0};
    MemberSet& members = images_.show(image, missing, &erased);
    IntentScan scan(members, superblock);
    const std::span<const LoggedRow> rows = scan.rows();
    for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
        while (end < rows.size() && rows[end].row == rows[begin].row)
            ++end;
        recover_one(scan, rows.subspan(begin, end - begin), image, recorded, missing, rewritten);
    }
    CW_ASSERT(scan.erase().ok());
    for (uint32_t member = 0; member < world_.members(); ++member)
        CW_ASSERT(!members.failed({member + 1}));
}

void LogEnumeration::recover_one(IntentScan& scan, std::span<const LoggedRow> logged, LogImage& image,
                                 Sums& recorded, Mask missing, std::vector<ImageWrite>& rewritten)
{
    const auto row = static_cast<uint32_t>(logged[0].row.value / kBlockBytes - 1);
    AlignedBuffer memory(world_.members() * kBlockBytes);
    std::vector<std::byte*> pointers;
    CrashedRow crashed{.data_columns = run_.data_columns, .columns = {}, .missing = {}, .changed = {}};
    for (uint32_t column = 0; column < world_.members(); ++column) {
        pointers.push_back(memory.data() + column * kBlockBytes);
        crashed.missing[column] = (missing >> world_.member_of(row, column) & 1) != 0;
        std::memcpy(pointers[column], pool_.block(image[place(row, column)]), kBlockBytes);
        if (crashed.missing[column])
            std::memset(pointers[column], 0xee, kBlockBytes);
    }
    crashed.columns = pointers;
    std::vector<RowEntry> entries;
    std::vector<AlignedBuffer> partials;
    for (const LoggedRow& one : logged) {
        RowEntry& entry = entries.emplace_back(RowEntry{one.checksums, one.modified, {}});
        for (const LoggedRow::Copy& copy : one.copies) {
            AlignedBuffer& partial = partials.emplace_back(kBlockBytes);
            if (scan.read_partial(copy, partial.span()).ok())
                entry.partials[copy.parity_column] = partial.data();
        }
    }
    const std::vector<Checksum> sums = recorded[row];
    crashed.kept_checksums = sums;
    for (uint32_t column = 0; column < run_.data_columns; ++column)
        crashed.kept[column] = promise_->blocks[row][column] != LogWorld::kFree;
    const bool recovered = recover_row(crashed, entries);
    for (uint32_t column = 0; column < world_.members(); ++column) {
        if (recovered && !crashed.kept[column])
            recorded[row][column] = checksum_of(pointers[column], kBlockBytes);
        if (!crashed.changed[column])
            continue;
        CW_ASSERT(!crashed.missing[column]);
        const uint32_t content = pool_.intern(pointers[column]);
        image[place(row, column)] = content;
        rewritten.push_back({place(row, column), content});
    }
}

Checksum LogEnumeration::sum_of(uint32_t content)
{
    while (sums_.size() <= content)
        sums_.push_back(checksum_of(pool_.block(static_cast<uint32_t>(sums_.size())), kBlockBytes));
    return sums_[content];
}

std::string LogEnumeration::scene(Mask missing, bool second) const
{
    return std::to_string(run_.data_columns) + "+" + std::to_string(run_.parity) + " time " +
           std::to_string(time_) + ", missing at recovery " + std::to_string(missing) +
           (second ? " the second time" : "") + fault_;
}

// The reader's rule and the offline check's: as in RowCheck::verify().
void LogEnumeration::verify(const LogImage& image, const Sums& recorded, Mask missing, uint32_t left,
                            bool second)
{
    bool closed = true;
    std::vector<CodeRow> rows;
    std::vector<Mask> bad(run_.rows);
    for (uint32_t row = 0; row < run_.rows; ++row) {
        CodeRow& code = rows.emplace_back(CodeRow{run_.data_columns, run_.parity, kBlockBytes, {}, {}});
        Mask away = 0, wanted = 0;
        for (uint32_t column = 0; column < world_.members(); ++column) {
            const uint32_t content = image[place(row, column)];
            const bool gone = (missing >> world_.member_of(row, column) & 1) != 0;
            code.columns[column] = pool_.block(content);
            away |= (gone ? 1u : 0u) << column;
            bad[row] |= (!gone && sum_of(content) != recorded[row][column] ? 1u : 0u) << column;
            if (column < run_.data_columns && promise_->blocks[row][column] != LogWorld::kFree) {
                code.wanted[column] = world_.content(promise_->blocks[row][column]);
                wanted |= 1u << column;
            }
        }
        closed = closed && bad[row] == 0 && is_code_word(code, away);
        const Mask parity = ((1u << run_.parity) - 1) << run_.data_columns;
        const Mask checked = (away & parity) == parity ? wanted : wanted != 0 ? ~Mask{0} : 0;
        if (fault_.empty() && (bad[row] & checked) != 0)
            if (report_.complaints++ == 0)
                report_.first_complaint = scene(missing, second) + ", columns " + std::to_string(bad[row]);
    }
    for (const Mask lost : losses_) {
        if ((lost & missing) != 0 || static_cast<uint32_t>(std::popcount(lost)) > left)
            continue;
        ++report_.checks;
        report_.nested_checks += second ? 1 : 0;
        bool lost_any = false;
        for (uint32_t row = 0; row < run_.rows && !closed; ++row) {
            Mask away = 0;
            for (uint32_t column = 0; column < world_.members(); ++column)
                away |= ((missing | lost) >> world_.member_of(row, column) & 1) << column;
            lost_any = lost_any || (!all_readable(rows[row], away | bad[row], losses_) &&
                                    (!second || !all_readable(rows[row], away, losses_)));
        }
        if (lost_any && report_.losses++ == 0)
            report_.first_loss = scene(missing, second) + ", lost after " + std::to_string(lost);
    }
}

LogReport LogEnumeration::go()
{
    CW_ASSERT(!world_.stuck);
    report_.refusals = world_.refusals;
    ReplayCursor cursor(world_.recorder);
    for (const Instant& instant : worthwhile()) {
        cursor.advance(instant.time);
        crash_at(cursor);
    }
    return report_;
}

}  // namespace

void LogReport::add(const LogReport& other)
{
    states += other.states;
    scans += other.scans;
    checks += other.checks;
    nested_checks += other.nested_checks;
    sampled += other.sampled;
    refusals += other.refusals;
    losses += other.losses;
    if (first_loss.empty())
        first_loss = other.first_loss;
    complaints += other.complaints;
    if (first_complaint.empty())
        first_complaint = other.first_complaint;
}

LogReport enumerate_log(const LogRun& run, bool nested)
{
    return LogEnumeration(run, nested).go();
}

}  // namespace cowraid::test
