// SPDX-License-Identifier: MIT
// How a program says that it failed.
#pragma once

#include <string>

#include "base/status.h"
#include "control/json.h"

namespace cowraid {

enum class OutputFormat : uint8_t { kText, kJson };

// Exit codes of cowraid and mkfs.cowraid.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitFindings = 3;  // something is damaged or lost, and stays so
inline constexpr int kExitNotRunning = 2;  // there is nothing to be paused, resumed, cancelled; as of btrfs
// cowraid status --check, as mdadm --detail --test has them.
inline constexpr int kExitDegraded = 1;
inline constexpr int kExitFaulted = 2;
inline constexpr int kExitUnknown = 4;
inline constexpr int kExitCounters = 64;  // cowraid device stats -c

// kInvalid, with the reason.
Status invalid(std::string& why, std::string text);
// "PROGRAM: WHY" to standard error; for JSON also {"error": {"code", "message"}} to standard output.
void print_error(const char* program, OutputFormat format, Err err, const std::string& why);
void print_warning(const char* program, const std::string& text);
void print_json(const json_t* value);

}  // namespace cowraid
