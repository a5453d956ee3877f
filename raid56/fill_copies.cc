// SPDX-License-Identifier: MIT
// Columns of mirrored nodes that hold nothing yet get what another copy holds, unverified: nodes above could
// not be read, so that nobody knows what is in use, nor what it must be.
#include "raid56/scrub_stripe.h"

namespace cowraid {

namespace {

class CopyFill {
public:
    CopyFill(ScrubCall& call, const StripeRows& rows);
    // False: a member was late, and nothing was done.
    [[nodiscard]] bool run(uint32_t times);

private:
    [[nodiscard]] BlockLocation locate(const PlacedCell& at) const
    {
        return locate_block(call_.state, call_.group, at.place, at.copy);
    }
    void plan(std::span<const PlacedCell> copies, IoPlan& writes);

    ScrubCall& call_;
    const StripeKey key_;
    const StripeLockSet lock_;
    std::vector<RowCell> cells_;
    std::vector<PlacedCell> placed_;  // copies of a block side by side
    BufferPool::Loan loan_;
};

CopyFill::CopyFill(ScrubCall& call, const StripeRows& rows)
    : call_(call),
      key_{call.group.record.address, rows.stripe},
      lock_(call.state.stripe_locks, std::span(&key_, 1)),
      cells_(size_t{rows.row_count} * call.group.geometry.columns()),
      loan_(call.state.buffers, cells_.size() * kBlockBytes)
{
    const Geometry& geometry = call.group.geometry;
    for (uint32_t row = 0; row < rows.row_count; ++row)
        for (uint32_t column = 0; column < geometry.data_columns; ++column)
            for (uint32_t copy = 0; copy < geometry.copies; ++copy) {
                RowCell& cell = cells_[placed_.size()];
                cell.memory = loan_.data() + placed_.size() * kBlockBytes;
                placed_.push_back({&call.group, {rows.stripe, column, rows.first_row + row}, copy, &cell});
            }
}

void CopyFill::plan(std::span<const PlacedCell> copies, IoPlan& writes)
{
    const PlacedCell* donor = nullptr;
    bool wanted = false;
    for (const PlacedCell& at : copies) {
        if (donor == nullptr && at.cell->usable() && !locate(at).stale)
            donor = &at;
        wanted = wanted || locate(at).blank;
    }
    const bool away = std::any_of(copies.begin(), copies.end(), [](const PlacedCell& at) {
        return at.cell->state == RowCell::State::kAway;
    });
    // More may be had later.
    if (wanted && (away || donor == nullptr)) {
        ++call_.report.unsettled;
        return;
    }
    for (const PlacedCell& at : copies)
        if (const BlockLocation where = locate(at); where.blank && where.device != nullptr) {
            writes.add({where.member, where.device, where.offset, donor->cell->memory, kBlockBytes, 0, {}});
            ++call_.report.data_blocks;
        }
}

bool CopyFill::run(uint32_t times)
{
    if (read_cells(call_.state, placed_, &loan_.buffer(), times))
        return false;
    IoPlan writes(IoKind::kWrite, call_.state.members);
    const uint32_t copies = call_.group.geometry.copies;
    for (size_t first = 0; first < placed_.size(); first += copies)
        plan(std::span(placed_).subspan(first, copies), writes);
    writes.run();
    for (const IoPart& part : writes.parts())
        call_.report.unfilled += part.result.ok() ? 0 : 1;
    return true;
}

}  // namespace

Status Array::fill_copies(VolumeAddress group_address, std::span<const StripeRows> rows, ScrubSink& sink,
                          ScrubReport& report)
{
    const Ref<const GroupList> list = state_->groups.list();
    const ArrayGroup* group = list->find(group_address);
    if (group == nullptr || group->record.address != group_address || group->geometry.parity > 0 ||
        !rows_valid(group->geometry, rows))
        return Err::kInvalid;
    ScrubCall call{*state_, *group, ScrubMode::kRepair, sink, report, nullptr};
    for (const StripeRows& run : rows) {
        const auto fill = [&](uint32_t times) {
            return CopyFill(call, run).run(times);
        };
        if (!read_until_on_time(fill, [&] { return call.await(); }))
            break;
    }
    return {};
}

}  // namespace cowraid
