// SPDX-License-Identifier: MIT
// Recovery in mirrored groups: the other copies, one after the other, each block on its own.
#include <algorithm>
#include <cstring>
#include <vector>

#include "raid56/lost_block.h"
#include "raid56/repair.h"
#include "raid56/row_set.h"

namespace cowraid {

namespace {

// A copy that was tried and found bad.
struct BadCopy {
    size_t lost;  // index
    uint32_t copy;
    FaultCause cause;
    Checksum seen;
};

class CopyReader {
public:
    CopyReader(ArrayState& state, std::span<LostBlock> lost, Patience patience, uint32_t times)
        : state_(state),
          lost_(lost),
          patience_(patience),
          times_(times),
          memory_(state.buffers, lost.size() * kBlockBytes)
    {
    }
    void run();

private:
    void read_round(uint32_t distance);
    void repair();

    ArrayState& state_;
    std::span<LostBlock> lost_;
    const Patience patience_;
    const uint32_t times_;
    BufferPool::Loan memory_;  // a block for each
    std::vector<BadCopy> bad_;
};

uint32_t copy_at(const LostBlock& lost, uint32_t distance)
{
    return (lost.copy + distance) % lost.group->geometry.copies;
}

// Reads, for every block not had yet, the copy `distance` behind the one read first.
void CopyReader::read_round(uint32_t distance)
{
    std::vector<RowCell> cells(lost_.size());
    std::vector<PlacedCell> reads;
    for (size_t i = 0; i < lost_.size(); ++i) {
        LostBlock& lost = lost_[i];
        if (lost.recovered || distance >= lost.group->geometry.copies)
            continue;
        const uint32_t copy = copy_at(lost, distance);
        if (does_without(state_, patience_, *lost.group, lost.place, copy)) {
            lost.untried = true;
            continue;
        }
        cells[i].memory = memory_.data() + i * kBlockBytes;
        cells[i].expected = {true, lost.wanted};
        reads.push_back({lost.group, lost.place, copy, &cells[i]});
    }
    const bool late =
        read_cells(state_, reads, patience_ == Patience::kDeadline ? &memory_.buffer() : nullptr, times_);
    classify_cells(reads);
    for (size_t i = 0; i < lost_.size(); ++i) {
        if (cells[i].state == RowCell::State::kGood) {
            std::memcpy(lost_[i].memory, cells[i].memory, kBlockBytes);
            lost_[i].recovered = true;
        } else if (cells[i].state == RowCell::State::kBad) {
            bad_.push_back({i, copy_at(lost_[i], distance), cells[i].cause, cells[i].seen});
        } else if (late && cells[i].state == RowCell::State::kAway) {
            lost_[i].untried = true;
        }
    }
}

// Bad copies are rewritten where a good one was found; elsewhere there is only their count. Nodes are read
// for answers of the verifier, too, to who holds a stripe, that of the node or one whose holder waits for
// this one.
void CopyReader::repair()
{
    std::vector<RepairItem> items;
    for (const BadCopy& bad : bad_) {
        const LostBlock& lost = lost_[bad.lost];
        if (!lost.recovered) {
            if (!lost.untried)
                count_fault(state_, *lost.group, lost.place, bad.copy, bad.cause);
            continue;
        }
        items.push_back({
            .group = lost.group,
            .place = lost.place,
            .copy = bad.copy,
            .content = lost.memory,
            .checksum = lost.wanted,
            .cause = bad.cause,
            .seen = bad.seen,
            .authority = authority_for(lost),
        });
    }
    const bool nodes = std::any_of(lost_.begin(), lost_.end(), [](const LostBlock& lost) {
        return lost.source == ChecksumSource::kPointer;
    });
    repair_blocks(state_, items, nodes ? Stripes::kIfFree : Stripes::kUnlocked, patience_);
}

void CopyReader::run()
{
    uint32_t most_copies = 0;
    for (size_t i = 0; i < lost_.size(); ++i) {
        const LostBlock& lost = lost_[i];
        most_copies = std::max(most_copies, lost.group->geometry.copies);
        if (is_bad(lost.cause))
            bad_.push_back({i, lost.copy, lost.cause, lost.seen});
    }
    for (uint32_t distance = 1; distance < most_copies; ++distance)
        read_round(distance);
    repair();
}

}  // namespace

void recover_from_copies(ArrayState& state, std::span<LostBlock> lost, Patience patience, uint32_t times)
{
    if (!lost.empty())
        CopyReader(state, lost, patience, times).run();
}

}  // namespace cowraid
