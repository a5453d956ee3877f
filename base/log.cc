// SPDX-License-Identifier: MIT
#include "base/log.h"

#include <syslog.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "base/assert.h"

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

}  // namespace

void log_message(LogLevel level, const char* format, ...)
{
    if (!log_wants(level))
        return;
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    const char* const prefix = line_prefix().c_str();
    const bool to_syslog = use_syslog.load(std::memory_order_relaxed);
    if (to_syslog)
        syslog(syslog_priority(level), "%s%s", prefix, line);
    if (use_stderr.load(std::memory_order_relaxed) && (!to_syslog || level <= LogLevel::kWarning))
        fprintf(stderr, "cowraid: %s%s\n", prefix, line);
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
    line_prefix() = name.empty() ? name : name + ": ";
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
    log_message(LogLevel::kError, "assertion failed: %s at %s:%d", expression, file, line);
    abort();
}

}  // namespace cowraid
