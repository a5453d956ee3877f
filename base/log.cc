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
std::atomic<LogLevel> threshold{LogLevel::kInfo};

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
    if (level > threshold.load(std::memory_order_relaxed))
        return;
    va_list arguments;
    va_start(arguments, format);
    if (use_syslog.load(std::memory_order_relaxed)) {
        vsyslog(syslog_priority(level), format, arguments);
    } else {
        char line[1024];
        vsnprintf(line, sizeof line, format, arguments);
        fprintf(stderr, "cowraid: %s\n", line);
    }
    va_end(arguments);
}

void log_use_syslog(const char* ident)
{
    openlog(ident, LOG_PID, LOG_DAEMON);
    use_syslog.store(true, std::memory_order_relaxed);
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
