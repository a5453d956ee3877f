// SPDX-License-Identifier: MIT
// What the fsync log does not have yet, as its next record.
#pragma once

#include <vector>

#include "fs/commit/committer.h"

namespace cowraid {

struct CollectedChanges {
    enum class Kind : uint8_t {
        kNothing,  // everything is durable
        kRecord,  // `record` brings the log up to `change`
        kCommit,  // only the commit of `transaction` can make all up to `change` durable
        kWait,  // `transaction` is being committed; after that there is something to say
    };
    Kind kind = Kind::kNothing;
    Ref<Transaction> transaction;
    uint64_t change = 0;
    std::vector<std::byte> record;
};

// Everything that changed since the last record, or since the open transaction was opened. Stops operations
// for a moment. No locks held; one caller at a time. After kRecord the record must become durable, or
// `transaction` must not be loggable any more.
CollectedChanges collect_changes(Committer& committer);

// Everything tracked so far belongs to a transaction that will be committed. `track`: the open transaction
// can be logged from now on. Requires the gate held exclusively, and the open transaction still empty of
// operations.
void restart_tracking(Committer& committer, bool track);

}  // namespace cowraid
