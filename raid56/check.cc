// SPDX-License-Identifier: MIT
// Looking without changing anything: at every column of a run of stripes, or at every copy of blocks whose
// checksums the caller knows.
#include <algorithm>
#include <cstring>

#include "raid56/parity.h"
#include "raid56/row_set.h"

namespace cowraid {

namespace {

// Columns read at a time; at least one stripe.
constexpr uint64_t kWindowBytes = 16 * kMiB;

// Of a stale column, what is wrong is that and nothing else.
void report_block(const ArrayState& state, const PlacedCell& at, BadBlock::Kind kind,
                  std::vector<BadBlock>& found)
{
    const BlockLocation location = locate_block(state, *at.group, at.place, at.copy);
    const bool there = kind != BadBlock::Kind::kMissing && kind != BadBlock::Kind::kReadError;
    found.push_back({address_of(*at.group, at.place), location.member,
                     location.stale && there ? BadBlock::Kind::kStale : kind});
}

// Reports a cell that is not what it must be.
void check_cell(const ArrayState& state, const PlacedCell& at, std::vector<BadBlock>& found)
{
    if (!at.cell->expected.known || at.cell->state == RowCell::State::kGood)
        return;
    BadBlock::Kind kind = BadBlock::Kind::kMissing;
    if (at.cell->state == RowCell::State::kBad)
        kind = at.cell->cause == FaultCause::kReadError            ? BadBlock::Kind::kReadError
               : at.place.column < at.group->geometry.data_columns ? BadBlock::Kind::kData
                                                                   : BadBlock::Kind::kParity;
    report_block(state, at, kind, found);
}

// Some stripes of a group in memory: for each, its columns (copies count) of `rows` blocks.
class StripeWindow {
public:
    StripeWindow(ArrayState& state, const ArrayGroup& group, uint64_t first_stripe, uint64_t stripe_count,
                 std::vector<BadBlock>& found);
    void check();

private:
    void check_row(uint64_t stripe, uint32_t row);
    void check_parity(uint64_t stripe, uint32_t row);
    void check_kept(uint64_t stripe, uint32_t row, const ColumnBits& kept);
    // Copies lie side by side: column number `column * copies + copy`.
    [[nodiscard]] size_t index(const BlockPlace& place, uint32_t copy) const
    {
        const uint64_t column = (place.stripe - first_stripe_) * geometry_.columns() +
                                uint64_t{place.column} * geometry_.copies + copy;
        return column * geometry_.rows() + place.row;
    }
    ArrayState& state_;
    const ArrayGroup& group_;
    const Geometry& geometry_;
    uint64_t first_stripe_;
    uint64_t stripe_count_;
    std::vector<BadBlock>& found_;
    const Ref<RecoveredRows> recovered_;  // rows that the next mount is going to change
    std::vector<RowCell> cells_;
    std::vector<PlacedCell> placed_;  // the same order
    BufferPool::Loan loan_;
};

StripeWindow::StripeWindow(ArrayState& state, const ArrayGroup& group, uint64_t first_stripe,
                           uint64_t stripe_count, std::vector<BadBlock>& found)
    : state_(state),
      group_(group),
      geometry_(group.geometry),
      first_stripe_(first_stripe),
      stripe_count_(stripe_count),
      found_(found),
      recovered_(state.recovered_rows()),
      cells_(stripe_count * group.geometry.columns() * group.geometry.rows()),
      placed_(cells_.size()),
      loan_(state.buffers, cells_.size() * kBlockBytes)
{
    const uint32_t columns = geometry_.data_columns + geometry_.parity;
    for (uint64_t stripe = first_stripe; stripe < first_stripe + stripe_count; ++stripe)
        for (uint32_t column = 0; column < columns; ++column)
            for (uint32_t copy = 0; copy < geometry_.copies; ++copy)
                for (uint32_t row = 0; row < geometry_.rows(); ++row) {
                    const BlockPlace place{stripe, column, row};
                    const size_t at = index(place, copy);
                    cells_[at].memory = loan_.data() + at * kBlockBytes;
                    placed_[at] = {&group, place, copy, &cells_[at]};
                }
}

// Parity is what the data says, whatever its checksum: checksums written from a wrong parity would agree
// with it. Only where every data block is known and good; bad parity is reported once.
void StripeWindow::check_parity(uint64_t stripe, uint32_t row)
{
    std::vector<const std::byte*> data;
    for (uint32_t column = 0; column < geometry_.data_columns; ++column) {
        const RowCell& cell = cells_[index({stripe, column, row}, 0)];
        if (cell.state != RowCell::State::kGood)
            return;
        data.push_back(cell.memory);
    }
    alignas(kBlockBytes) std::byte memory[kMaxParity][kBlockBytes];
    std::byte* parity[kMaxParity] = {memory[0], memory[1]};
    parity_generate(data, std::span(parity).first(geometry_.parity), kBlockBytes);
    for (uint32_t p = 0; p < geometry_.parity; ++p) {
        const PlacedCell& at = placed_[index({stripe, geometry_.data_columns + p, row}, 0)];
        if (at.cell->usable() && std::memcmp(parity[p], at.cell->memory, kBlockBytes) != 0)
            report_block(state_, at, BadBlock::Kind::kParityMismatch, found_);
    }
}

// What no write in place touched is right whatever the power cut left of the rest.
void StripeWindow::check_kept(uint64_t stripe, uint32_t row, const ColumnBits& kept)
{
    for (uint32_t column = 0; column < geometry_.data_columns; ++column)
        if (kept[column])
            check_cell(state_, placed_[index({stripe, column, row}, 0)], found_);
}

void StripeWindow::check_row(uint64_t stripe, uint32_t row)
{
    if (recovered_) {
        const auto found = recovered_->rows.find(address_of(group_, {stripe, 0, row}).value);
        if (found != recovered_->rows.end())
            return check_kept(stripe, row, found->second.kept);
    }
    for (uint32_t column = 0; column < geometry_.data_columns + geometry_.parity; ++column)
        for (uint32_t copy = 0; copy < geometry_.copies; ++copy)
            check_cell(state_, placed_[index({stripe, column, row}, copy)], found_);
    if (geometry_.parity > 0)
        check_parity(stripe, row);
}

void StripeWindow::check()
{
    {
        // Members and verifier as they are between two writes, not in the middle of one.
        const std::vector<StripeKey> keys = stripe_keys(group_.record.address, first_stripe_, stripe_count_);
        const StripeLockSet lock(state_.stripe_locks, keys);
        read_cells(state_, placed_);
        ask_about_cells(state_, placed_);
    }
    classify_cells(placed_);
    for (uint64_t stripe = first_stripe_; stripe < first_stripe_ + stripe_count_; ++stripe)
        for (uint32_t row = 0; row < geometry_.rows(); ++row)
            check_row(stripe, row);
}

}  // namespace

Status Array::check_stripes(VolumeAddress group_address, uint64_t first_stripe, uint64_t stripe_count,
                            std::vector<BadBlock>& found)
{
    const Ref<const GroupList> list = state_->groups.list();
    const ArrayGroup* group = list->find(group_address);
    if (group == nullptr || group->record.address != group_address)
        return Err::kInvalid;
    const Geometry& geometry = group->geometry;
    if (first_stripe > geometry.stripe_count() || stripe_count > geometry.stripe_count() - first_stripe)
        return Err::kInvalid;
    const uint64_t stripe_bytes = uint64_t{geometry.columns()} * geometry.chunk_bytes;
    const uint64_t window = std::max<uint64_t>(kWindowBytes / stripe_bytes, 1);
    for (uint64_t done = 0; done < stripe_count;) {
        const uint64_t count = std::min(window, stripe_count - done);
        StripeWindow(*state_, *group, first_stripe + done, count, found).check();
        done += count;
    }
    return {};
}

Status Array::check_copies(VolumeAddress address, std::span<const Checksum> checksums,
                           std::vector<BadBlock>& found)
{
    const Ref<const GroupList> list = state_->groups.list();
    const ArrayGroup* group = list->find(address);
    if (group == nullptr || !group->has_data(address, checksums.size()))
        return Err::kInvalid;
    const uint32_t copies = group->geometry.copies;
    std::vector<RowCell> cells(checksums.size() * copies);
    AlignedBuffer memory(cells.size() * kBlockBytes);
    std::vector<PlacedCell> placed;  // copies side by side
    for (size_t index = 0; index < cells.size(); ++index) {
        cells[index].memory = memory.data() + index * kBlockBytes;
        cells[index].expected = {true, checksums[index / copies]};
        const uint64_t offset = address - group->record.address + index / copies * kBlockBytes;
        placed.push_back(
            {group, place_of(group->geometry, offset), static_cast<uint32_t>(index % copies), &cells[index]});
    }
    read_cells(*state_, placed);
    classify_cells(placed);
    for (const PlacedCell& at : placed)
        check_cell(*state_, at, found);
    return {};
}

}  // namespace cowraid
