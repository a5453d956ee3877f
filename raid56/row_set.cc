// SPDX-License-Identifier: MIT
#include "raid56/row_set.h"

#include <algorithm>

#include "base/checksum.h"
#include "raid56/expectations.h"
#include "raid56/io_plan.h"

namespace cowraid {

bool read_cells(ArrayState& state, std::span<const PlacedCell> cells, AlignedBuffer* lease, uint32_t times,
                Gaps gaps)
{
    IoPlan plan(IoKind::kRead, state.members);
    if (gaps == Gaps::kKept)
        plan.forbid_bridges();  // what lies between is not wanted, or was read already
    plan.reserve(cells.size());
    if (lease != nullptr)
        plan.may_leave(*lease, times);
    for (size_t index = 0; index < cells.size(); ++index) {
        const PlacedCell& at = cells[index];
        const BlockLocation location = locate_block(state, *at.group, at.place, at.copy);
        at.cell->state = RowCell::State::kAway;
        if (location.device != nullptr)
            plan.add({location.member,
                      location.device,
                      location.offset,
                      at.cell->memory,
                      kBlockBytes,
                      static_cast<uint32_t>(index),
                      {}});
    }
    plan.run();
    bool late = false;
    for (const IoPart& part : plan.parts()) {
        RowCell& cell = *cells[part.owner].cell;
        late = late || part.result == Status(Err::kWouldWait);
        cell.memory = part.memory;
        if (part.result.ok()) {
            cell.state = RowCell::State::kUnknown;
        } else if (part.result == Status(Err::kIo)) {
            cell.state = RowCell::State::kBad;
            cell.cause = FaultCause::kReadError;
        }
    }
    return late;
}

void ask_about_cells(ArrayState& state, std::span<const PlacedCell> cells)
{
    Expectations expectations;
    for (const PlacedCell& at : cells)
        expectations.add(*at.group, at.place, &at.cell->expected);
    expectations.ask(state.verifier.load(std::memory_order_acquire));
}

void classify_cells(std::span<const PlacedCell> cells)
{
    for (const PlacedCell& at : cells) {
        RowCell& cell = *at.cell;
        if (cell.state != RowCell::State::kUnknown || !cell.expected.known)
            continue;
        cell.seen = checksum_of(cell.memory, kBlockBytes);
        cell.state = cell.seen == cell.expected.checksum ? RowCell::State::kGood : RowCell::State::kBad;
        cell.cause = FaultCause::kWrong;
    }
}

namespace {

// Null: it is left out.
const ArrayGroup* mirrored_group_of(const GroupList& list, CopiedBlocks& piece)
{
    const ArrayGroup* const group = list.find(piece.address);
    const bool valid = group != nullptr && group->has_data(piece.address, piece.checksums.size());
    piece.result = valid ? Err::kOk : Err::kInvalid;
    return valid && group->geometry.parity == 0 ? group : nullptr;
}

size_t count_copies(const GroupList& list, std::span<CopiedBlocks> pieces)
{
    size_t copies = 0;
    for (CopiedBlocks& piece : pieces)
        if (const ArrayGroup* const group = mirrored_group_of(list, piece); group != nullptr)
            copies += piece.checksums.size() * group->geometry.copies;
    return copies;
}

}  // namespace

CopyBatch::CopyBatch(ArrayState& state, std::span<CopiedBlocks> pieces, uint32_t times)
    : list_(state.groups.list()),
      cells_(count_copies(*list_, pieces)),
      loan_(state.buffers, std::max<size_t>(cells_.size(), 1) * kBlockBytes)
{
    placed_.reserve(cells_.size());
    for (CopiedBlocks& piece : pieces) {
        const ArrayGroup* const group = mirrored_group_of(*list_, piece);
        for (size_t block = 0; group != nullptr && block < piece.checksums.size(); ++block) {
            const size_t first = placed_.size();
            const uint64_t offset = piece.address - group->record.address + block * kBlockBytes;
            for (uint32_t copy = 0; copy < group->geometry.copies; ++copy) {
                RowCell& cell = cells_[first + copy];
                cell.memory = loan_.data() + (first + copy) * kBlockBytes;
                cell.expected = {true, piece.checksums[block]};
                placed_.push_back({group, place_of(group->geometry, offset), copy, &cell});
            }
            blocks_.push_back({&piece, std::span(placed_).subspan(first)});
        }
    }
    late_ = read_cells(state, placed_, &loan_.buffer(), times, Gaps::kBridged);
    classify_cells(placed_);
}

}  // namespace cowraid
