// SPDX-License-Identifier: MIT
// What the write-intent logs say, carried out on the members after a crash. Private to raid56/.
#pragma once

#include "journal/intent_scan.h"
#include "raid56/array_state.h"

namespace cowraid {

// Array::recover_rows().
Status recover_logged_rows(ArrayState& state, IntentScan& scan, ChecksumSink& sink, RecoveryCounts& counts);

}  // namespace cowraid
