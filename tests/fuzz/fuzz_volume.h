// SPDX-License-Identifier: MIT
// The small but varied volumes whose fields are changed.
#pragma once

#include "tests/fuzz/disk_editor.h"
#include "tests/support/sim_volume.h"

namespace cowraid::test {

struct FuzzShape {
    const char* name;
    VolumeShape volume;
    bool two_epochs;  // was mounted once without its last member
    bool fills;  // small enough to be written full by one case
    bool moved;  // the cleaner has worked in it
    bool live_logs = false;  // not unmounted: both logs have entries that count
    bool spare = false;  // knows a spare, which is not there
};
std::span<const FuzzShape> fuzz_shapes();

// Every kind of inode twice: below "kept" (never touched afterwards) and below "used" (for a session that
// changes things); two orphans; several commits. Unmounted.
Members make_fuzz_members(const FuzzShape& shape);

}  // namespace cowraid::test
