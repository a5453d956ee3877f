// SPDX-License-Identifier: MIT
// One line per event, to syslog once the daemon detached and to stderr before that.
#pragma once

namespace cowraid {

enum class LogLevel { kNone, kError, kWarning, kInfo, kDebug };

[[gnu::format(printf, 2, 3)]] void log_message(LogLevel level, const char* format, ...);

// Sends later messages to syslog under `ident` (kept, not copied) instead of stderr.
void log_use_syslog(const char* ident);
// Drops messages less severe than `level`. Default kInfo.
void log_set_level(LogLevel level);

}  // namespace cowraid

#define CW_LOG_ERROR(...) ::cowraid::log_message(::cowraid::LogLevel::kError, __VA_ARGS__)
#define CW_LOG_WARNING(...) ::cowraid::log_message(::cowraid::LogLevel::kWarning, __VA_ARGS__)
#define CW_LOG_INFO(...) ::cowraid::log_message(::cowraid::LogLevel::kInfo, __VA_ARGS__)
#define CW_LOG_DEBUG(...) ::cowraid::log_message(::cowraid::LogLevel::kDebug, __VA_ARGS__)
