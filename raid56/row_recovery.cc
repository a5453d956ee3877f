// SPDX-License-Identifier: MIT
#include "raid56/row_recovery.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/checksum.h"

namespace cowraid {

namespace {

// Visits the subsets of `from` that have `size` members, until one is accepted.
template <typename Visit>
bool any_subset(const std::vector<uint32_t>& from, size_t size, std::vector<uint32_t>& chosen, size_t first,
                Visit visit)
{
    if (chosen.size() == size)
        return visit(chosen);
    for (size_t index = first; index < from.size(); ++index) {
        chosen.push_back(from[index]);
        if (any_subset(from, size, chosen, index + 1, visit))
            return true;
        chosen.pop_back();
    }
    return false;
}

class Recovery {
public:
    explicit Recovery(CrashedRow& row)
        : row_(row), k_(row.data_columns), m_(row.parity()), memory_(2 * row.columns.size() * row.bytes)
    {
        for (size_t column = 0; column < row.columns.size(); ++column) {
            result_.push_back(memory_.data() + column * row.bytes);
            scratch_.push_back(memory_.data() + (row.columns.size() + column) * row.bytes);
        }
    }
    // What is there belongs to one code word with the kept blocks in it, and there is more than it takes to
    // tell which.
    bool whole();
    // False: the entry was never complete; nothing is changed.
    bool apply(const RowEntry& entry);

private:
    [[nodiscard]] bool fits(const std::byte* block, Checksum checksum) const
    {
        return checksum_of({block, row_.bytes}) == checksum;
    }
    [[nodiscard]] bool right_on_disk(const RowEntry& entry, uint32_t column) const
    {
        return !row_.missing[column] && fits(row_.columns[column], entry.checksums[column]);
    }
    bool settle_unmodified(const RowEntry& entry);
    void settle_modified(const RowEntry& entry);
    bool solve_modified(const RowEntry& entry, const std::vector<uint32_t>& bad,
                        const std::vector<uint32_t>& unknown);
    bool solve_with(const RowEntry& entry, const std::vector<uint32_t>& unknown,
                    const std::vector<uint32_t>& erased_parity);
    void deliver();

    CrashedRow& row_;
    const uint32_t k_, m_;
    AlignedBuffer memory_;
    std::vector<std::byte*> result_;  // by column
    std::vector<std::byte*> scratch_;
};

// Unmodified blocks: as on disk where that is right, else solved from the partial parities.
bool Recovery::settle_unmodified(const RowEntry& entry)
{
    std::vector<uint32_t> erased;
    uint32_t partials = 0;
    for (uint32_t column = 0; column < k_; ++column) {
        if (entry.modified[column])
            std::memset(result_[column], 0, row_.bytes);
        else if (right_on_disk(entry, column))
            std::memcpy(result_[column], row_.columns[column], row_.bytes);
        else
            erased.push_back(column);
    }
    if (erased.empty())
        return true;
    const std::vector<uint32_t> lost = erased;
    for (uint32_t parity = 0; parity < m_; ++parity) {
        if (entry.partials[parity] == nullptr)
            erased.push_back(k_ + parity);
        else
            std::memcpy(result_[k_ + parity], entry.partials[parity], row_.bytes);
        partials += entry.partials[parity] != nullptr ? 1 : 0;
    }
    if (lost.size() > partials)
        return false;
    parity_recover_wanted(result_, k_, erased, lost, row_.bytes);
    for (const uint32_t column : lost)
        if (!fits(result_[column], entry.checksums[column]))
            return false;
    return true;
}

// Solves `unknown` from all other data blocks and the parity on disk that is not erased.
bool Recovery::solve_with(const RowEntry& entry, const std::vector<uint32_t>& unknown,
                          const std::vector<uint32_t>& erased_parity)
{
    std::vector<uint32_t> erased = unknown;
    erased.insert(erased.end(), erased_parity.begin(), erased_parity.end());
    if (erased.size() > m_)
        return false;
    std::vector<std::byte*> columns = result_;
    for (const uint32_t column : unknown)
        columns[column] = scratch_[column];
    for (uint32_t parity = 0; parity < m_; ++parity)
        columns[k_ + parity] = row_.columns[k_ + parity];
    parity_recover_wanted(columns, k_, erased, unknown, row_.bytes);
    for (const uint32_t column : unknown)
        if (!fits(scratch_[column], entry.checksums[column]))
            return false;
    for (const uint32_t column : unknown)
        std::memcpy(result_[column], scratch_[column], row_.bytes);
    return true;
}

// Tries `unknown` of the bad blocks as erasures; the others hold what they held before, so parity may too.
bool Recovery::solve_modified(const RowEntry& entry, const std::vector<uint32_t>& bad,
                              const std::vector<uint32_t>& unknown)
{
    for (const uint32_t column : bad) {
        const bool kept = std::find(unknown.begin(), unknown.end(), column) == unknown.end();
        if (kept && row_.missing[column])
            return false;
        if (kept)
            std::memcpy(result_[column], row_.columns[column], row_.bytes);
    }
    std::vector<uint32_t> away, there;
    for (uint32_t parity = k_; parity < k_ + m_; ++parity)
        (row_.missing[parity] ? away : there).push_back(parity);
    for (size_t distrusted = 0; distrusted <= there.size(); ++distrusted) {
        std::vector<uint32_t> chosen;
        const bool solved = any_subset(there, distrusted, chosen, 0, [&](const std::vector<uint32_t>& drop) {
            std::vector<uint32_t> erased = away;
            erased.insert(erased.end(), drop.begin(), drop.end());
            std::sort(erased.begin(), erased.end());
            return solve_with(entry, unknown, erased);
        });
        if (solved)
            return true;
    }
    return false;
}

// Modified blocks: as on disk where that is right; else solved, if the result is right; else whatever is on
// disk, for nobody was promised them.
void Recovery::settle_modified(const RowEntry& entry)
{
    std::vector<uint32_t> bad;
    for (uint32_t column = 0; column < k_; ++column) {
        if (!entry.modified[column])
            continue;
        if (right_on_disk(entry, column))
            std::memcpy(result_[column], row_.columns[column], row_.bytes);
        else
            bad.push_back(column);
    }
    bool solved = false;
    for (size_t size = std::min<size_t>(bad.size(), m_); size > 0 && !solved; --size) {
        std::vector<uint32_t> chosen;
        solved = any_subset(bad, size, chosen, 0, [&](const std::vector<uint32_t>& unknown) {
            return solve_modified(entry, bad, unknown);
        });
    }
    for (const uint32_t column : bad) {
        if (fits(result_[column], entry.checksums[column]))
            continue;
        if (row_.missing[column])
            std::memset(result_[column], 0, row_.bytes);
        else
            std::memcpy(result_[column], row_.columns[column], row_.bytes);
    }
}

void Recovery::deliver()
{
    parity_generate(std::span(result_).first(k_), std::span(result_).subspan(k_), row_.bytes);
    for (uint32_t column = 0; column < k_ + m_; ++column) {
        if (std::memcmp(row_.columns[column], result_[column], row_.bytes) == 0 && !row_.missing[column])
            continue;
        std::memcpy(row_.columns[column], result_[column], row_.bytes);
        row_.changed[column] = !row_.missing[column];
    }
}

bool Recovery::whole()
{
    std::vector<std::byte*> columns(row_.columns.begin(), row_.columns.end());
    std::vector<uint32_t> erased;
    for (uint32_t column = 0; column < k_ + m_; ++column) {
        if (!row_.missing[column])
            continue;
        erased.push_back(column);
        columns[column] = scratch_[column];
    }
    if (erased.size() >= m_)
        return false;
    parity_recover(columns, k_, erased, row_.bytes);
    parity_generate(std::span(columns).first(k_), std::span(result_).subspan(k_), row_.bytes);
    for (uint32_t column = k_; column < k_ + m_; ++column)
        if (std::memcmp(columns[column], result_[column], row_.bytes) != 0)
            return false;
    // Old content of a member that was away, or that lost writes, may add up all the same.
    for (uint32_t column = 0; column < k_; ++column)
        if (row_.kept[column] && !fits(columns[column], row_.kept_checksums[column]))
            return false;
    for (const uint32_t column : erased)
        std::memcpy(row_.columns[column], columns[column], row_.bytes);
    return true;
}

bool Recovery::apply(const RowEntry& entry)
{
    if (entry.checksums.size() != k_ || !settle_unmodified(entry))
        return false;
    settle_modified(entry);
    deliver();
    return true;
}

}  // namespace

bool recover_row(CrashedRow& row, std::span<const RowEntry> entries)
{
    CW_ASSERT(row.data_columns >= 1 && row.parity() >= 1 && row.parity() <= kMaxParity);
    row.changed.reset();
    if (entries.empty())
        return false;
    Recovery recovery(row);
    if (recovery.whole())
        return true;
    for (const RowEntry& entry : entries)
        if (recovery.apply(entry))
            return true;
    return false;
}

}  // namespace cowraid
