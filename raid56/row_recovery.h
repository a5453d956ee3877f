// SPDX-License-Identifier: MIT
// What becomes of a row that was written in place when the power failed: memory in, memory out. The rule is
// that of docs/DESIGN.md, "Partial rows".
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/units.h"
#include "format/intent_codec.h"
#include "raid56/parity.h"

namespace cowraid {

// One logged write of the row.
struct RowEntry {
    std::span<const Checksum> checksums;  // of the k data blocks once the write is done
    ColumnBits modified;
    // Partial parities whose copy is right; null: there is none.
    std::array<const std::byte*, kMaxParity> partials{};
};

// The row as it was read: k data blocks, then m parity blocks.
struct CrashedRow {
    uint32_t data_columns = 0;
    size_t bytes = kBlockBytes;  // of each block: a multiple of 64
    std::span<std::byte* const> columns;  // 64-byte aligned memory of each, the missing ones' too
    ColumnBits missing;  // by column: content could not be had
    ColumnBits kept;  // data blocks that the trees refer to
    std::span<const Checksum> kept_checksums;  // what these must be, by data column
    // Out: present columns whose content is now another.
    ColumnBits changed;

    [[nodiscard]] uint32_t parity() const { return static_cast<uint32_t>(columns.size()) - data_columns; }
};

// Brings the row to a state that has every block it had before the logged writes began, and parity that fits;
// of the modified blocks those that reached the members, or can be solved. A row that is a code word, with
// parity to spare that proves it, and has all kept blocks stays as it is: rot may have taken the newest
// entry, and an older one would undo what was acknowledged since; or the newest was never complete, and if
// power fails again its partial parities are not there to help. `entries`: newest first. False: no entry was
// ever acted upon, nothing is changed. Works for every loss the parity tolerates. Idempotent.
bool recover_row(CrashedRow& row, std::span<const RowEntry> entries);

}  // namespace cowraid
