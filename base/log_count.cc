// SPDX-License-Identifier: MIT
#include "base/log_count.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace cowraid {

namespace {

constexpr uint64_t kPauseNs = 10'000'000'000;
// Beyond this all sums are logged and forgotten.
constexpr size_t kSubjectsMax = 1000;

struct Sum {
    LogLevel level = LogLevel::kInfo;
    uint64_t logged_ns = 0;
    uint64_t amount = 0;
    ByteRange range;
};

struct Line {
    LogLevel level;
    std::string text;
};

class Counts {
public:
    void add(LogLevel level, const std::string& subject, const char* kind, uint64_t amount,
             const ByteRange& range, std::vector<Line>& lines)
    {
        const uint64_t now = monotonic_ns();
        MutexLock lock(mutex_);
        if (sums_.size() >= kSubjectsMax)
            take(now, LogCounts::kAll, lines);
        Sum& sum = sums_[{subject, kind}];
        const bool fresh = sum.amount == 0 || sum.range.last == 0;
        sum.range.first = fresh ? range.first : std::min(sum.range.first, range.first);
        sum.range.last = std::max(sum.range.last, range.last);
        sum.amount += amount;
        sum.level = level;
        take(now, LogCounts::kDue, lines);
    }

    void take_all(LogCounts which, std::vector<Line>& lines)
    {
        MutexLock lock(mutex_);
        take(monotonic_ns(), which, lines);
    }

private:
    void take(uint64_t now, LogCounts which, std::vector<Line>& lines) CW_REQUIRES(mutex_)
    {
        for (auto at = sums_.begin(); at != sums_.end();) {
            Sum& sum = at->second;
            const bool due =
                which == LogCounts::kAll || sum.logged_ns == 0 || now - sum.logged_ns >= kPauseNs;
            if (due && sum.amount != 0) {
                lines.push_back({sum.level, text_of(at->first.first, at->first.second, sum)});
                sum = {.logged_ns = now};
                ++at;
            } else {
                at = due ? sums_.erase(at) : std::next(at);
            }
        }
        if (which == LogCounts::kAll)
            sums_.clear();
    }

    static std::string text_of(const std::string& subject, std::string_view kind, const Sum& sum)
    {
        std::string text = subject + ": " + std::string(kind) + ": " + std::to_string(sum.amount);
        if (sum.range.last != 0)
            text += ", bytes " + std::to_string(sum.range.first) + " to " + std::to_string(sum.range.last);
        return text;
    }

    Mutex mutex_{LockRank::kLeaf};
    std::map<std::pair<std::string, std::string_view>, Sum> sums_ CW_GUARDED_BY(mutex_);
};

Counts& counts()
{
    static Counts* const all = new Counts;  // used until the last thread ends
    return *all;
}

void log_lines(const std::vector<Line>& lines)
{
    for (const Line& line : lines)
        log_message(line.level, "%s", line.text.c_str());
}

}  // namespace

void log_count(LogLevel level, const std::string& subject, const char* kind, uint64_t amount,
               const ByteRange& range)
{
    if (amount == 0 || !log_wants(level))
        return;
    std::vector<Line> lines;
    counts().add(level, subject, kind, amount, range, lines);
    log_lines(lines);
}

void log_counts(LogCounts which)
{
    std::vector<Line> lines;
    counts().take_all(which, lines);
    log_lines(lines);
    log_suppressed();
}

}  // namespace cowraid
