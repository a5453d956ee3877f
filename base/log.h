// SPDX-License-Identifier: MIT
// One line per event, to stderr or syslog, made printable (base/print.h). At most kLogMessagesAtOnce at once,
// and kLogMessagesPerSecond as long as they go on; "N messages suppressed" stands for the others. Debug
// messages are not limited. What comes by the thousand: base/log_count.h.
#pragma once

#include <cstdint>
#include <string>

namespace cowraid {

inline constexpr uint64_t kLogMessagesAtOnce = 200;
inline constexpr uint64_t kLogMessagesPerSecond = 10;

enum class LogLevel { kNone, kError, kWarning, kInfo, kDebug };

[[gnu::format(printf, 2, 3)]] void log_message(LogLevel level, const char* format, ...);

// One line, an error, without memory, limit or escapes: `text` is ours. For a process that ends.
void log_last_words(const char* text);

// Says how many messages were suppressed since it was last said, if any.
void log_suppressed();

// Sends later messages to syslog under `ident` (kept, not copied), and warnings and errors to stderr too
// until log_leave_stderr().
void log_use_syslog(const char* ident);
void log_leave_stderr();
// Begins every later message with "NAME: ", unless it is empty. Before other threads log.
void log_set_name(const std::string& name);
// Drops messages less severe than `level`. Default kInfo.
void log_set_level(LogLevel level);
// Whether messages of this level are logged at all.
bool log_wants(LogLevel level);

}  // namespace cowraid

#define CW_LOG_ERROR(...) ::cowraid::log_message(::cowraid::LogLevel::kError, __VA_ARGS__)
#define CW_LOG_WARNING(...) ::cowraid::log_message(::cowraid::LogLevel::kWarning, __VA_ARGS__)
#define CW_LOG_INFO(...) ::cowraid::log_message(::cowraid::LogLevel::kInfo, __VA_ARGS__)
#define CW_LOG_DEBUG(...) ::cowraid::log_message(::cowraid::LogLevel::kDebug, __VA_ARGS__)
