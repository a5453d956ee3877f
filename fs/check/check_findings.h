// SPDX-License-Identifier: MIT
// Where the passes of a check put what they find: in bounded memory, whatever the damage.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <map>
#include <string>

#include "base/units.h"
#include "fs/check/check.h"

namespace cowraid {

class Findings {
public:
    // Findings of one kind that a report lists; what comes after them is counted and told in one line.
    static constexpr uint64_t kListedMax = 100000;

    // The report outlives the collector.
    explicit Findings(CheckReport& report) : report_(report) { }

    [[nodiscard]] CheckReport& report() { return report_; }

    void add(CheckFinding finding);
    // A finding that redundancy does not heal. printf-like; no newline.
    [[gnu::format(printf, 4, 5)]] void add(const char* kind, VolumeAddress address, const char* format, ...);
    // Adds a line for each kind of which findings were left out. Call once, at the end.
    void close();

private:
    struct Count {
        uint64_t findings = 0;
        bool all_left_out_repairable = true;
    };
    CheckReport& report_;
    std::map<std::string, Count> counts_;
};

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string check_text(const char* format, ...);

constexpr unsigned long long as_ull(uint64_t value)
{
    return value;
}

}  // namespace cowraid
