// SPDX-License-Identifier: MIT
// The careful half of a scrub: one stripe of which something looked wrong. Private to raid56/.
#pragma once

#include <bitset>
#include <optional>

#include "raid56/io_plan.h"
#include "raid56/row_set.h"

namespace cowraid {

inline constexpr uint32_t kMaxChunkRows = kMaxChunkBytes / kBlockBytes;
using RowsOfStripe = std::bitset<kMaxChunkRows>;

// What a scrub goes by.
struct ScrubCall {
    ArrayState& state;
    const ArrayGroup& group;
    ScrubMode mode;
    ScrubSink& sink;
    ScrubReport& report;
    const MemberCopy* copy = nullptr;  // not null: what its source must have is written to its target

    // Waits until none of the group's members, or of those that are copied, is slow. False: it is to stop,
    // and the report says so. No lock is held.
    [[nodiscard]] bool await();
    [[nodiscard]] bool await(MemberId member);
};

// Whether these are rows of a group.
bool rows_valid(const Geometry& geometry, std::span<const StripeRows> rows);

// Which cell of the stripe's rows, of columns and copies in order, lies on the member; none: another set's
// members hold the stripe.
std::optional<uint32_t> find_source_cell(const ArrayGroup& group, uint64_t stripe, MemberId source);

// What is written to the target of a copy.
class TargetWrites {
public:
    TargetWrites(ArrayState& state, const MemberCopy& copy)
        : members_(state.members),
          copy_(copy),
          device_(members_.device(copy.target)),
          plan_(IoKind::kWrite, members_)
    {
    }
    // `memory` stays unchanged until run() returns.
    void add(DeviceOffset offset, std::byte* memory, uint64_t bytes);
    // False: the target did not take all, and is out of service.
    [[nodiscard]] bool run();

private:
    MemberSet& members_;
    const MemberCopy& copy_;
    BlockDevice* const device_;
    IoPlan plan_;
};

// What a scrub is going to rewrite. The content stays where it is until carry_out().
class ScrubRepairs {
public:
    ScrubRepairs(ArrayState& state, ScrubMode mode, ScrubReport& report)
        : state_(state), mode_(mode), report_(report)
    {
    }
    // The cell does not hold `content`. Nobody is asked again whether it is wanted.
    void add(const PlacedCell& at, const std::byte* content, bool charged);
    // Those that solve_row() finds.
    std::vector<RepairItem>& items() { return items_; }
    // Copies of one block, read and classified: bad ones get what a good one holds. Without a good one the
    // block is lost: false.
    bool examine_copies(std::span<const PlacedCell> copies);
    // Counts a bad cell of which nothing can be made.
    void count_bad(const PlacedCell& at);
    void carry_out(Stripes stripes);

private:
    ScrubMemberNumbers& charge(const ArrayGroup& group, const BlockPlace& place, uint32_t copy,
                               FaultCause cause);

    ArrayState& state_;
    const ScrubMode mode_;
    ScrubReport& report_;
    std::vector<RepairItem> items_;
};

// Locks the stripe, reads the given rows again, examines each and repairs it. No write of the stripe, and no
// other repair, comes between the first look and the last. While a member does not answer that read the
// stripe is not locked. Adds to the report. Call without locks held.
void scrub_stripe(ScrubCall& call, uint64_t stripe, const RowsOfStripe& rows);

}  // namespace cowraid
