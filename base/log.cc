// SPDX-License-Identifier: MIT
#include "base/log.h"

#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "base/assert.h"
#include "base/clock.h"
#include "base/print.h"

namespace cowraid {

namespace {

std::atomic<bool> use_syslog{false};
std::atomic<bool> use_stderr{true};
std::atomic<LogLevel> threshold{LogLevel::kInfo};

std::string& line_prefix()
{
    static std::string* const prefix = new std::string;  // used until the last thread ends
    return *prefix;
}

int syslog_priority(LogLevel level)
{
    switch (level) {
    case LogLevel::kNone:
    case LogLevel::kError:
        return LOG_ERR;
    case LogLevel::kWarning:
        return LOG_WARNING;
    case LogLevel::kInfo:
        return LOG_INFO;
    case LogLevel::kDebug:
        return LOG_DEBUG;
    }
    return LOG_ERR;
}

// A token bucket as one number, the generic cell rate algorithm of ITU-T I.371: when the bucket is full
// again.
std::atomic<uint64_t> full_at_ns{0};
std::atomic<uint64_t> suppressed{0};

bool take_token(uint64_t now)
{
    constexpr uint64_t kTokenNs = 1'000'000'000 / kLogMessagesPerSecond;
    uint64_t full = full_at_ns.load(std::memory_order_relaxed);
    for (;;) {
        const uint64_t next = std::max(full, now) + kTokenNs;
        if (next - now > kLogMessagesAtOnce * kTokenNs)
            return false;
        if (full_at_ns.compare_exchange_weak(full, next, std::memory_order_relaxed))
            return true;
    }
}

void write_line(LogLevel level, const std::string& text)
{
    const std::string line = line_prefix() + text;
    const bool to_syslog = use_syslog.load(std::memory_order_relaxed);
    if (to_syslog)
        syslog(syslog_priority(level), "%s", printable(line).c_str());
    if (use_stderr.load(std::memory_order_relaxed) && (!to_syslog || level <= LogLevel::kWarning))
        print_line(stderr, "cowraid: %s", line.c_str());
}

}  // namespace

void log_message(LogLevel level, const char* format, ...)
{
    if (!log_wants(level))
        return;
    if (level != LogLevel::kDebug && !take_token(monotonic_ns())) {
        suppressed.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    log_suppressed();
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    write_line(level, text);
}

void log_last_words(const char* text)
{
    const char* const prefix = line_prefix().c_str();
    if (use_syslog.load(std::memory_order_relaxed))
        syslog(LOG_ERR, "%s%s", prefix, text);
    if (use_stderr.load(std::memory_order_relaxed))
        dprintf(STDERR_FILENO, "cowraid: %s%s\n", prefix, text);
}

void log_suppressed()
{
    if (suppressed.load(std::memory_order_relaxed) == 0)
        return;
    if (const uint64_t count = suppressed.exchange(0, std::memory_order_relaxed); count != 0)
        write_line(LogLevel::kWarning, std::to_string(count) + " messages suppressed");
}

void log_use_syslog(const char* ident)
{
    openlog(ident, LOG_PID, LOG_DAEMON);
    use_syslog.store(true, std::memory_order_relaxed);
}

void log_leave_stderr()
{
    use_stderr.store(false, std::memory_order_relaxed);
}

void log_set_name(const std::string& name)
{
    line_prefix() = name.empty() ? name : printable(name) + ": ";
}

bool log_wants(LogLevel level)
{
    return level <= threshold.load(std::memory_order_relaxed);
}

void log_set_level(LogLevel level)
{
    threshold.store(level, std::memory_order_relaxed);
}

void assertion_failed(const char* expression, const char* file, int line)
{
    char text[512];
    snprintf(text, sizeof text, "assertion failed: %s at %s:%d", expression, file, line);
    log_last_words(text);
    abort();
}

}  // namespace cowraid
