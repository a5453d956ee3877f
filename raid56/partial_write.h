// SPDX-License-Identifier: MIT
// Writes in place: parts of rows whose other blocks must survive. Private to raid56/.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "journal/intent_log.h"
#include "raid56/array_state.h"
#include "raid56/plug.h"
#include "raid56/stripe_cache.h"
#include "raid56/write_barrier.h"

namespace cowraid {

// What writes in place share.
struct PartialWrites {
    PartialWrites(ArrayState& array_state, IntentLog& intent_log, const PartialWriteOptions& chosen);

    ArrayState& state;
    IntentLog& log;
    StripeCache cache;
    // Inside: from the choice of what an entry says to the end of the writes under it.
    WriteBarrier barrier;
    std::atomic<RmwLevel> rmw_level;
    std::atomic<uint32_t> stripe_io_bytes;

    struct Counters {
        std::atomic<uint64_t> rows{0}, rmw_rows{0}, rcw_rows{0}, full_rows{0};
        std::atomic<uint64_t> blocks_read{0}, cache_hits{0}, cache_misses{0};
        std::atomic<uint64_t> log_batches{0}, log_bytes{0}, flushes{0};
        std::atomic<uint64_t> repaired_rows{0}, requests{0}, batches{0};
    } counters;

    mutable Mutex options_mutex{LockRank::kLeaf};
    PartialWriteOptions options CW_GUARDED_BY(options_mutex);

    Plug plug;  // last: its threads use everything above

    // Flushes all members, so that rows are live no more; their log entries live on. Called outside the
    // barrier. kIo: too few members flushed.
    Status flush_all();
};

// Carries out what waits for the stripes, which have one origin and come in rising order, and sets the result
// of every block.
void write_stripes_in_place(PartialWrites& partial, std::span<PendingStripe> stripes);

}  // namespace cowraid
