// SPDX-License-Identifier: MIT
// Looking at every column of a run of stripes, without changing anything.
#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "raid56/check.h"
#include "raid56/expectations.h"
#include "raid56/io_plan.h"
#include "raid56/parity.h"

namespace cowraid {

namespace {

// Columns read at a time; at least one stripe.
constexpr uint64_t kWindowBytes = 16 * kMiB;

// Some stripes of a group in memory: for each, its columns (copies count) of `rows` blocks.
class StripeWindow {
public:
    StripeWindow(ArrayState& state, const ArrayGroup& group, uint64_t first_stripe, uint64_t stripe_count,
                 std::vector<BadBlock>& found);
    void check();

private:
    struct Cell {
        bool read = false;
        bool away = true;
        bool good = false;
        BlockExpectation expected;
    };
    void read();
    void check_row(uint64_t stripe, uint32_t row);
    void check_cell(const BlockPlace& place, uint32_t copy);
    void check_parity(uint64_t stripe, uint32_t row);
    void report(const BlockPlace& place, uint32_t copy, BadBlock::Kind kind);
    // Copies lie side by side: column number `column * copies + copy`.
    [[nodiscard]] size_t index(const BlockPlace& place, uint32_t copy) const
    {
        const uint64_t column = (place.stripe - first_stripe_) * geometry_.columns() +
                                uint64_t{place.column} * geometry_.copies + copy;
        return column * geometry_.rows() + place.row;
    }
    [[nodiscard]] std::byte* content(const BlockPlace& place, uint32_t copy)
    {
        return loan_.data() + index(place, copy) * kBlockBytes;
    }

    ArrayState& state_;
    const ArrayGroup& group_;
    const Geometry& geometry_;
    uint64_t first_stripe_;
    uint64_t stripe_count_;
    std::vector<BadBlock>& found_;
    const Ref<RecoveredRows> recovered_;  // rows that the next mount is going to change
    std::vector<Cell> cells_;
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
      loan_(state.buffers, cells_.size() * kBlockBytes)
{
}

void StripeWindow::read()
{
    IoPlan plan(IoKind::kRead, state_.members);
    Expectations expectations;
    const uint32_t columns = geometry_.data_columns + geometry_.parity;
    for (uint64_t stripe = first_stripe_; stripe < first_stripe_ + stripe_count_; ++stripe) {
        for (uint32_t column = 0; column < columns; ++column) {
            for (uint32_t copy = 0; copy < geometry_.copies; ++copy) {
                const BlockPlace first{stripe, column, 0};
                const BlockLocation location = locate_block(state_, group_, first, copy);
                if (location.device != nullptr)
                    plan.add({location.member,
                              location.device,
                              location.offset,
                              content(first, copy),
                              geometry_.chunk_bytes,
                              0,
                              {}});
                for (uint32_t row = 0; row < geometry_.rows(); ++row)
                    expectations.add(group_, {stripe, column, row},
                                     &cells_[index({stripe, column, row}, copy)].expected);
            }
        }
    }
    plan.run();
    for (const IoPart& part : plan.parts()) {
        for (uint64_t at = 0; at < part.bytes; at += kBlockBytes) {
            Cell& cell = cells_[static_cast<size_t>(part.memory + at - loan_.data()) / kBlockBytes];
            cell.read = part.result.ok();
            cell.away = part.result == Status(Err::kMemberGone);
        }
    }
    expectations.ask(state_.verifier.load(std::memory_order_acquire));
}

void StripeWindow::report(const BlockPlace& place, uint32_t copy, BadBlock::Kind kind)
{
    report_block(state_, group_, place, copy, kind, found_);
}

void StripeWindow::check_cell(const BlockPlace& place, uint32_t copy)
{
    Cell& cell = cells_[index(place, copy)];
    if (!cell.expected.known)
        return;
    if (cell.read) {
        cell.good = checksum_of(content(place, copy), kBlockBytes) == cell.expected.checksum;
        if (!cell.good)
            report(place, copy,
                   place.column < geometry_.data_columns ? BadBlock::Kind::kData : BadBlock::Kind::kParity);
    } else {
        report(place, copy, cell.away ? BadBlock::Kind::kMissing : BadBlock::Kind::kReadError);
    }
}

// Parity is what the data says, whatever its checksum: checksums written from a wrong parity would agree
// with it. Only where every data block is known and good; bad parity is reported once.
void StripeWindow::check_parity(uint64_t stripe, uint32_t row)
{
    std::vector<const std::byte*> data;
    for (uint32_t column = 0; column < geometry_.data_columns; ++column) {
        if (!cells_[index({stripe, column, row}, 0)].good)
            return;
        data.push_back(content({stripe, column, row}, 0));
    }
    alignas(kBlockBytes) std::byte memory[kMaxParity][kBlockBytes];
    std::byte* parity[kMaxParity] = {memory[0], memory[1]};
    parity_generate(data, std::span(parity).first(geometry_.parity), kBlockBytes);
    for (uint32_t p = 0; p < geometry_.parity; ++p) {
        const BlockPlace place{stripe, geometry_.data_columns + p, row};
        const Cell& cell = cells_[index(place, 0)];
        const bool reported = cell.expected.known && !cell.good;
        if (cell.read && !reported && std::memcmp(parity[p], content(place, 0), kBlockBytes) != 0)
            report(place, 0, BadBlock::Kind::kParityMismatch);
    }
}

void StripeWindow::check_row(uint64_t stripe, uint32_t row)
{
    if (recovered_ && recovered_->rows.contains(address_of(group_, {stripe, 0, row}).value))
        return;
    for (uint32_t column = 0; column < geometry_.data_columns + geometry_.parity; ++column)
        for (uint32_t copy = 0; copy < geometry_.copies; ++copy)
            check_cell({stripe, column, row}, copy);
    if (geometry_.parity > 0)
        check_parity(stripe, row);
}

void StripeWindow::check()
{
    {
        // Members and verifier as they are between two writes, not in the middle of one.
        const std::vector<StripeKey> keys = stripe_keys(group_.record.address, first_stripe_, stripe_count_);
        const StripeLockSet lock(state_.stripe_locks, keys);
        read();
    }
    for (uint64_t stripe = first_stripe_; stripe < first_stripe_ + stripe_count_; ++stripe)
        for (uint32_t row = 0; row < geometry_.rows(); ++row)
            check_row(stripe, row);
}

}  // namespace

void report_block(const ArrayState& state, const ArrayGroup& group, const BlockPlace& place, uint32_t copy,
                  BadBlock::Kind kind, std::vector<BadBlock>& found)
{
    const BlockLocation at = locate_block(state, group, place, copy);
    const bool there = kind != BadBlock::Kind::kMissing && kind != BadBlock::Kind::kReadError;
    found.push_back({address_of(group, place), at.member, at.stale && there ? BadBlock::Kind::kStale : kind});
}

Status check_stripes_of(ArrayState& state, VolumeAddress group_address, uint64_t first_stripe,
                        uint64_t stripe_count, std::vector<BadBlock>& found)
{
    const Ref<const GroupList> list = state.groups.list();
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
        StripeWindow(state, *group, first_stripe + done, count, found).check();
        done += count;
    }
    return {};
}

}  // namespace cowraid
