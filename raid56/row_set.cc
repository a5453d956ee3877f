// SPDX-License-Identifier: MIT
#include "raid56/row_set.h"

#include "base/checksum.h"
#include "raid56/expectations.h"
#include "raid56/io_plan.h"

namespace cowraid {

bool read_cells(ArrayState& state, std::span<const PlacedCell> cells, AlignedBuffer* lease, uint32_t times)
{
    IoPlan plan(IoKind::kRead, state.members);
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

std::vector<PlacedCell> read_copies(ArrayState& state, const ArrayGroup& group, VolumeAddress address,
                                    std::span<const Checksum> checksums, std::vector<RowCell>& cells,
                                    std::byte* memory)
{
    const uint32_t copies = group.geometry.copies;
    cells.resize(checksums.size() * copies);
    std::vector<PlacedCell> placed;
    for (size_t index = 0; index < cells.size(); ++index) {
        cells[index].memory = memory + index * kBlockBytes;
        cells[index].expected = {true, checksums[index / copies]};
        const uint64_t offset = address - group.record.address + index / copies * kBlockBytes;
        placed.push_back(
            {&group, place_of(group.geometry, offset), static_cast<uint32_t>(index % copies), &cells[index]});
    }
    read_cells(state, placed);
    classify_cells(placed);
    return placed;
}

}  // namespace cowraid
