// SPDX-License-Identifier: MIT
// What commands share that ask the daemon of one volume for work that takes long.
#pragma once

#include <unistd.h>

#include <string>

#include "control/control_client.h"
#include "tools/common/new_member.h"
#include "tools/cowraid/command.h"
#include "tools/cowraid/load_report.h"
#include "tools/cowraid/work_text.h"

namespace cowraid {

// Between two looks at how far the work is.
inline constexpr useconds_t kLookMicroseconds = 500000;

// The key of --background.
inline constexpr int kKeyBackground = 258;

// At most one operand. False: said so.
bool one_volume(const CommandOptions& options);
// The volume that is named; without a name the only mounted one, or the one that the working directory is in.
// `why` on failure.
Result<VolumeTarget> target_of(const std::vector<std::string>& operands, std::string& why);
Result<ControlClient> connect_mounted(const CommandOptions& options, std::string& why);

// Those that are named, each of which must be mounted, or all that are. kBusy where a daemon does not answer,
// unless `unanswered` is to have its process id, or 0.
Result<std::vector<Uuid>> chosen_volumes(const CommandOptions& options, std::string& why,
                                         std::vector<int>* unanswered = nullptr);
// How a mounted volume is. `answer` is the same as JSON, with "health" and "problem".
Result<VolumeStatus> ask_volume_status(const Uuid& uuid, Json& answer, std::string& why);

// The member that the user means: by its number, its device, or as the only one that is missing. `command`:
// of several_missing().
Result<MemberInfo> find_member(ControlClient& client, const std::string& text, std::string& why,
                               const std::string& command = "");
// That "missing" may be any of these members. `command`: one that names a member, by the word ID; or empty.
std::string several_missing(const std::vector<MemberId>& missing, std::string command);
// The spare of that id or device; an id of 0: there is none.
Result<SpareInfo> find_spare(ControlClient& client, const std::string& text, std::string& why);
// Opens a device that is to become a member, and asks the daemon by the command `plan` whether it would do:
// `answer`. The request gets its path and size; with "others" it comes after so many that are added before.
// Nothing is changed.
Result<NewMember> choose_device(ControlClient& client, const char* plan, json_t* request,
                                const std::string& path, bool force, Json& answer, std::string& why);
// The daemon has said that it would take the device. Discards it, unless it is to keep what it takes; wipes
// what was on it, and sends it to the daemon with a command; its path goes into `request`.
enum class OldContent : uint8_t { kDiscard, kKeep };
inline constexpr argp_option kNoDiscardOption = {
    "nodiscard", 'K', nullptr, 0, "do not discard the device first: image files keep what they take", 0};
Result<Json> hand_over_device(ControlClient& client, const char* command, json_t* request,
                              const NewMember& device, OldContent old, std::string& why);
// What a command did to devices, as one JSON object: that of the one, or {"schema", "devices": [...]}.
void print_results(const std::vector<Json>& results);

// The key of --plan.
inline constexpr int kKeyPlanOnly = 262;
constexpr const char* kPlanHelp = "only say what it would take, or why it cannot be; changes nothing";
// What a change would take. `work`: "balance" or the like, what its rate is known from. Returns the exit
// code.
int print_plan(const CommandOptions& options, const BalancePlan& plan, const char* work);

// The same of a device more, or more of one: nothing moves, and what is there tolerates what it did. Text is
// printed, JSON is returned.
Json growth_of(const CommandOptions& options, const std::string& path, uint64_t size_bytes);

// kPlan: only says what it would take.
enum class Wait : uint8_t { kNot, kForEnd, kPlan };
// Asks for a balance, or for what is carried out as one, says how it is, and returns the exit code.
int run_balance(ControlClient& client, const CommandOptions& options, json_t* request, Wait wait);

// From now on Ctrl-C and SIGTERM end waiting, not the program.
void notice_interrupts();
bool interrupted();

// How far members are filled with what they lack.
Result<ScrubStatus> ask_filling(ControlClient& client, std::string& why);
// Whether the member is in service, and lacks nothing.
bool is_filled(ControlClient& client, MemberId id);
// Waits until the member has all that can be had, showing progress, and returns the exit code. `began`: when
// that was asked for, seconds since 1970; what earlier work lost is nobody's news.
int wait_until_filled(const CommandOptions& options, const Uuid& volume, MemberId id, uint64_t began);
// Now, for it.
uint64_t now_seconds();

// How the replacement of a member is, or how the last one ended.
Result<ReplaceStatus> ask_replacing(ControlClient& client, std::string& why);

// "[====    ] 40% done, ..." as progress_text(), in place of the one before, on a terminal; nothing when it
// does not run.
void show_progress(const CommandOptions& options, const WorkProgress& progress);
// A line of its own; nothing when it is empty.
void show_awaited(const std::string& awaits);

// Of a question that got no answer: whether to ask again, because the daemon lives or may live. Says once in
// `said` that it does not answer. `failures` counts what ended a connection in a row.
bool ask_again(const ControlClient& client, Err err, unsigned& failures, std::string& said);

// Asks again and again, and shows progress on a terminal, until the work does not run any more or the user
// has seen enough. Says once what it awaits. Errors of `ask`; `why` is that the daemon ended, and `after` it,
// or that it does not answer and the user has waited enough.
template <typename Answer>
Result<Answer> follow_work(ControlClient& client, const CommandOptions& options,
                           Result<Answer> (*ask)(ControlClient&, std::string&),
                           WorkProgress (*progress)(const Answer&), const char* after, std::string& why)
{
    notice_interrupts();
    std::string said;
    unsigned failures = 0;
    // Short work is not waited for much longer than it takes.
    for (useconds_t pause = kLookMicroseconds / 100;;
         pause = std::min(kLookMicroseconds, pause + pause / 32)) {
        Result<Answer> answer = ask(client, why);
        if (!answer.ok() && ask_again(client, answer.err(), failures, said)) {
            if (interrupted())
                return answer;
            usleep(pause);
            continue;
        }
        if (!answer.ok()) {
            why =
                std::string("the daemon of the volume ended meanwhile: by umount, or see the system log; ") +
                after;
            return answer;
        }
        failures = 0;
        const WorkProgress now = progress(*answer);
        show_progress(options, now);
        if (now.awaits != said)
            show_awaited(said = now.awaits);
        if (!now.running || interrupted())
            return answer;
        usleep(pause);
    }
}

// To standard output, each as print_line() does.
void print_lines(const std::string& lines);
// As field_text().
void print_field(const char* name, const std::string& value);

}  // namespace cowraid
