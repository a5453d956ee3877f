// SPDX-License-Identifier: MIT
// What commands share that ask the daemon of one volume for work that takes long.
#pragma once

#include <unistd.h>

#include <string>

#include "control/balance_json.h"
#include "control/control_client.h"
#include "control/scrub_json.h"
#include "control/volume_json.h"
#include "tools/cowraid/command.h"

namespace cowraid {

// Between two looks at how far the work is.
inline constexpr useconds_t kLookMicroseconds = 500000;

// The key of --background.
inline constexpr int kKeyBackground = 258;

// At most one operand. False: said so.
bool one_volume(const CommandOptions& options);
// The volume that is named; without a name the one that the working directory is in, or the only mounted one.
// `why` on failure.
Result<ControlClient> connect_mounted(const CommandOptions& options, std::string& why);

// The member that the user means: by its number, its device, or as the only one that is missing.
Result<MemberInfo> find_member(ControlClient& client, const std::string& text, std::string& why);
// Opens a device that is to become a member and sends it to the daemon with a command; wipes what was on it,
// if `force`. `arguments`: of the command, or null.
Result<Json> hand_over_device(ControlClient& client, const char* command, const json_t* arguments,
                              const std::string& path, bool force, std::string& why);

enum class Wait : uint8_t { kNot, kForEnd };
// Asks for a balance, or for what is carried out as one, says how it is, and returns the exit code.
int run_balance(ControlClient& client, const CommandOptions& options, const json_t* request, Wait wait);

// From now on Ctrl-C and SIGTERM end waiting, not the program.
void notice_interrupts();
bool interrupted();

// One line: how far it is, or how it ended.
std::string scrub_summary(const ScrubStatus& status);
std::string balance_summary(const BalanceStatus& status);

std::string time_text(uint64_t seconds);  // since 1970, local time
std::string duration_text(uint64_t ms);
// "[====    ]  40%  1.00GiB/s  0:00:12 left"
std::string progress_text(unsigned percent, uint64_t bytes_per_second, uint64_t left_ms, SizeStyle sizes);
// One line of a table: "NAME   VALUE".
void print_field(const char* name, const std::string& value);

}  // namespace cowraid
