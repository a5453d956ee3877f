// SPDX-License-Identifier: MIT
// The commands of cowraid(8).
#pragma once

#include <argp.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "tools/common/report_error.h"

namespace cowraid {

inline constexpr const char* kProgram = "cowraid";

// What the options shared by commands say.
struct CommandOptions {
    OutputFormat format = OutputFormat::kText;
    bool format_named = false;
    SizeStyle sizes = SizeStyle::kIec;
    std::vector<std::string> operands;
};

// What the words ask for, wherever they do: --json, --format json or --format=json. For what is wrong with
// them.
OutputFormat format_asked(int argc, char** argv);

struct Command {
    const char* group;  // null: a command of its own
    const char* name;  // empty: the group's word alone
    const char* summary;
    // argv[0] is the full name for messages; returns the exit code.
    int (*run)(int argc, char** argv, CommandOptions options);
};

int command_show(int argc, char** argv, CommandOptions options);
int command_status(int argc, char** argv, CommandOptions options);
int command_usage(int argc, char** argv, CommandOptions options);
int command_df(int argc, char** argv, CommandOptions options);
int command_sync(int argc, char** argv, CommandOptions options);
int command_stats(int argc, char** argv, CommandOptions options);
int command_device_add(int argc, char** argv, CommandOptions options);
int command_device_online(int argc, char** argv, CommandOptions options);
int command_device_offline(int argc, char** argv, CommandOptions options);
int command_device_remove(int argc, char** argv, CommandOptions options);
int command_device_probe(int argc, char** argv, CommandOptions options);
int command_device_wipe(int argc, char** argv, CommandOptions options);
int command_resize(int argc, char** argv, CommandOptions options);
int command_events(int argc, char** argv, CommandOptions options);
int command_metrics(int argc, char** argv, CommandOptions options);
int command_map(int argc, char** argv, CommandOptions options);
int command_check(int argc, char** argv, CommandOptions options);
int command_scrub(int argc, char** argv, CommandOptions options);
int command_scrub_start(int argc, char** argv, CommandOptions options);
int command_scrub_status(int argc, char** argv, CommandOptions options);
int command_scrub_pause(int argc, char** argv, CommandOptions options);
int command_scrub_resume(int argc, char** argv, CommandOptions options);
int command_scrub_cancel(int argc, char** argv, CommandOptions options);
int command_balance(int argc, char** argv, CommandOptions options);
int command_balance_status(int argc, char** argv, CommandOptions options);
int command_balance_pause(int argc, char** argv, CommandOptions options);
int command_balance_resume(int argc, char** argv, CommandOptions options);
int command_balance_cancel(int argc, char** argv, CommandOptions options);
int command_replace_start(int argc, char** argv, CommandOptions options);
int command_replace_status(int argc, char** argv, CommandOptions options);
int command_replace_cancel(int argc, char** argv, CommandOptions options);
int command_dump_super(int argc, char** argv, CommandOptions options);
int command_dump_tree(int argc, char** argv, CommandOptions options);
int command_inspect_verify(int argc, char** argv, CommandOptions options);
int command_extents(int argc, char** argv, CommandOptions options);
int command_property_get(int argc, char** argv, CommandOptions options);
int command_property_set(int argc, char** argv, CommandOptions options);
int command_bench_raid56(int argc, char** argv, CommandOptions options);

// What a command takes beside the options of all (--json, -b, --si), which fill CommandOptions. Its --help
// ends with the exit codes that all have.
struct CommandSyntax {
    const argp_option* options;  // null: none of its own
    argp_parser_t parse;  // leaves what it does not know to parse_flags()
    const char* operands;
    const char* doc;  // after \v what comes behind the options
};
// Options without an argument of a command: the key, and what it sets.
struct CommandFlag {
    int key;
    bool* flag;
};
// Of CommandSyntax::parse: `common` is what the options of all fill.
error_t parse_flags(int key, argp_state* state, CommandOptions& common,
                    std::initializer_list<CommandFlag> flags = {});
// False: said why, exit with kExitUsage.
bool parse_command(int argc, char** argv, const CommandSyntax& syntax, void* arguments);
// Parses a command line made of the shared options only. False: said why, exit with kExitUsage.
bool parse_common(int argc, char** argv, const char* operands_doc, const char* doc, CommandOptions& options);

// Prints what went wrong and returns kExitFailed.
int command_failed(const CommandOptions& options, Err err, const std::string& why);
// The same of work that was to be paused, resumed or cancelled: kExitNotRunning for kInvalid, by which the
// daemon says that there is none.
int change_failed(const CommandOptions& options, Err err, const std::string& why);
// Writes all of it. False: errno says why not.
bool write_all(int fd, std::string_view text);
// Exactly one operand. False: said so.
bool has_one_operand(const CommandOptions& options, const char* what);

}  // namespace cowraid
