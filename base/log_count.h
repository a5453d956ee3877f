// SPDX-License-Identifier: MIT
// Events that come by the thousand, as sums: one line when they begin, then one at a time for what came
// since.
#pragma once

#include <cstdint>
#include <string>

#include "base/log.h"

namespace cowraid {

// First and last byte of what an event is about, such as a range of a file.
struct ByteRange {
    uint64_t first = 0;
    uint64_t last = 0;  // 0: no range is known
};

// Adds `amount` to what was counted under this subject (a file, a member) and kind ("blocks repaired", kept
// and not copied). Logs "SUBJECT: KIND: SUM, bytes FIRST to LAST" at once unless a line of the same subject
// and kind is less than ten seconds old. Thread-safe; takes no lock above kLeaf.
void log_count(LogLevel level, const std::string& subject, const char* kind, uint64_t amount,
               const ByteRange& range = {});
// Logs what has not been logged for ten seconds; with kAll everything. For whoever has a clock that ticks.
// Says too how many other messages were suppressed.
enum class LogCounts { kDue, kAll };
void log_counts(LogCounts which);

}  // namespace cowraid
