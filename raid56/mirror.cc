// SPDX-License-Identifier: MIT
// Recovery in mirrored groups: the other copies, one after the other, each block on its own.
#include <vector>

#include "base/checksum.h"
#include "raid56/io_plan.h"
#include "raid56/lost_block.h"
#include "raid56/repair.h"

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
    CopyReader(ArrayState& state, std::span<LostBlock> lost) : state_(state), lost_(lost) { }
    void run();

private:
    void read_round(uint32_t distance);
    void judge(const IoPart& part, uint32_t distance);
    void repair();

    ArrayState& state_;
    std::span<LostBlock> lost_;
    std::vector<BadCopy> bad_;
};

uint32_t copy_at(const LostBlock& lost, uint32_t distance)
{
    return (lost.copy + distance) % lost.group->geometry.copies;
}

// Reads, for every block not had yet, the copy `distance` behind the one read first.
void CopyReader::read_round(uint32_t distance)
{
    IoPlan plan(IoKind::kRead, state_.members);
    for (size_t i = 0; i < lost_.size(); ++i) {
        const LostBlock& lost = lost_[i];
        if (lost.recovered || distance >= lost.group->geometry.copies)
            continue;
        const BlockLocation location = locate_block(state_, *lost.group, lost.place, copy_at(lost, distance));
        if (location.device != nullptr)
            plan.add({location.member,
                      location.device,
                      location.offset,
                      lost.memory,
                      kBlockBytes,
                      static_cast<uint32_t>(i),
                      {}});
    }
    plan.run();
    for (const IoPart& part : plan.parts())
        judge(part, distance);
}

void CopyReader::judge(const IoPart& part, uint32_t distance)
{
    LostBlock& lost = lost_[part.owner];
    if (part.result == Status(Err::kMemberGone))
        return;
    FaultCause cause = FaultCause::kReadError;
    Checksum seen = 0;
    if (part.result.ok()) {
        cause = FaultCause::kWrong;
        seen = checksum_of(lost.memory, kBlockBytes);
        lost.recovered = seen == lost.wanted;
    }
    if (!lost.recovered)
        bad_.push_back({part.owner, copy_at(lost, distance), cause, seen});
}

// Bad copies are rewritten where a good one was found; elsewhere there is only their count.
void CopyReader::repair()
{
    std::vector<RepairItem> items;
    for (const BadCopy& bad : bad_) {
        const LostBlock& lost = lost_[bad.lost];
        if (!lost.recovered) {
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
    repair_blocks(state_, items);
}

void CopyReader::run()
{
    uint32_t most_copies = 0;
    for (size_t i = 0; i < lost_.size(); ++i) {
        const LostBlock& lost = lost_[i];
        most_copies = std::max(most_copies, lost.group->geometry.copies);
        if (lost.cause != FaultCause::kMissing)
            bad_.push_back({i, lost.copy, lost.cause, lost.seen});
    }
    for (uint32_t distance = 1; distance < most_copies; ++distance)
        read_round(distance);
    repair();
}

}  // namespace

void recover_from_copies(ArrayState& state, std::span<LostBlock> lost)
{
    if (!lost.empty())
        CopyReader(state, lost).run();
}

}  // namespace cowraid
