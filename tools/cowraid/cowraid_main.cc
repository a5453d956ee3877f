// SPDX-License-Identifier: MIT
// cowraid GROUP COMMAND ...: finds the command and runs it.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/print.h"
#include "control/control_client.h"
#include "tools/common/program_start.h"
#include "tools/cowraid/command.h"
#include "tools/cowraid/prefix_match.h"

namespace cowraid {

namespace {

constexpr Command kCommands[] = {
    {nullptr, "status", "how mounted volumes are, and what to do about them", command_status},
    {nullptr, "events", "what happened to mounted volumes; -f goes on, --program calls a hook",
     command_events},
    {nullptr, "metrics", "mounted volumes in numbers, as Prometheus reads them", command_metrics},
    {nullptr, "map", "a picture of how full which stripes are, on which members", command_map},
    {"filesystem", "show", "volumes, their members, and which are missing", command_show},
    {"filesystem", "usage", "where the space is", command_usage},
    {"filesystem", "df", "space per profile", command_df},
    {"filesystem", "sync", "commit what is written", command_sync},
    {"filesystem", "resize", "use more or less of devices", command_resize},
    {"device", "stats", "error counters of members", command_stats},
    {"device", "add", "make devices members of a mounted volume", command_device_add},
    {"device", "online", "bring a member back that was away or failed", command_device_online},
    {"device", "offline", "take a member out of service", command_device_offline},
    {"device", "remove", "empty a member of a mounted volume and remove it", command_device_remove},
    {"device", "delete", "the same", command_device_remove},
    {"device", "probe", "what udev wants to know of a member", command_device_probe},
    {"device", "wipe", "overwrite the superblocks of a member that is not in use", command_device_wipe},
    {"scrub", "", "verify and repair a mounted volume, and wait for it", command_scrub},
    {"scrub", "start", "verify and repair a mounted volume", command_scrub_start},
    {"scrub", "status", "how far a scrub is, and what it found", command_scrub_status},
    {"scrub", "pause", "let a scrub rest", command_scrub_pause},
    {"scrub", "resume", "let a paused scrub go on", command_scrub_resume},
    {"scrub", "cancel", "end a scrub", command_scrub_cancel},
    {"balance", "", "move data and metadata into new block groups, and wait", command_balance},
    {"balance", "start", "the same; --background does not wait", command_balance},
    {"balance", "status", "how far a balance is", command_balance_status},
    {"balance", "pause", "let a balance rest", command_balance_pause},
    {"balance", "resume", "let a paused balance go on", command_balance_resume},
    {"balance", "cancel", "end a balance", command_balance_cancel},
    {"replace", "start", "put a new device in the place of a member", command_replace_start},
    {"replace", "status", "how far members are copied or filled", command_replace_status},
    {"replace", "cancel", "leave a member in its place that is being replaced", command_replace_cancel},
    {"inspect", "dump-super", "the superblock of a device as text", command_dump_super},
    {"inspect", "dump-tree", "the trees of a volume as text", command_dump_tree},
    {"inspect", "verify", "check the trees of an unmounted volume, without file data and parity",
     command_inspect_verify},
    {"inspect", "extents", "where the data of a file lies", command_extents},
    {"property", "get", "what a file or folder asks for", command_property_get},
    {"property", "set", "whether a file, or new ones of a folder, are compressed", command_property_set},
    {"bench", "raid56", "drive the RAID5/6 array without a filesystem", command_bench_raid56},
    {nullptr, "check", "verify an unmounted volume, change nothing", command_check},
};

bool in_group(const Command& command, const char* group)
{
    return group == nullptr ? command.group == nullptr
                            : command.group != nullptr && strcmp(command.group, group) == 0;
}

std::string full_name(const Command& command)
{
    if (command.group == nullptr || command.name[0] == '\0')
        return command.group == nullptr ? command.name : command.group;
    return std::string(command.group) + " " + command.name;
}

// Columns that the longest name takes, and two spaces: the manual and the completion read names up to two.
int name_columns()
{
    size_t longest = 0;
    for (const Command& command : kCommands)
        longest = std::max(longest, full_name(command).size());
    return static_cast<int>(longest) + 2;
}

// All commands, or those of one group.
void print_usage(FILE* out, const char* group)
{
    print_line(out, "Usage: cowraid [--json] %s [OPTION...] [VOLUME]",
               group == nullptr ? "COMMAND" : (std::string(group) + " COMMAND").c_str());
    print_empty_line(out);
    const int columns = name_columns();
    for (const Command& command : kCommands) {
        if (group != nullptr && !in_group(command, group))
            continue;
        print_line(out, "  %-*s%s", columns, full_name(command).c_str(), command.summary);
    }
    print_empty_line(out);
    print_line(
        out,
        "VOLUME is a mount point, a member, a label or a uuid; where [VOLUME] may be left out, the only");
    print_line(out,
               "mounted one is meant, or the one that the working directory is in. Command words may be");
    print_line(out, "shortened as long as one command is meant. Each command has --help.");
}

// The distinct words of one level: groups and single commands, or the commands of a group.
std::vector<std::string_view> words_of(const char* group)
{
    std::vector<std::string_view> words;
    for (const Command& command : kCommands) {
        std::string_view word;
        if (group == nullptr)
            word = command.group != nullptr ? command.group : command.name;
        else if (in_group(command, group))
            word = command.name;
        if (!word.empty() && (words.empty() || words.back() != word))
            words.push_back(word);
    }
    return words;
}

// What a command of a group is called here that has another name elsewhere.
std::string_view usual_word(std::string_view typed)
{
    constexpr std::pair<std::string_view, std::string_view> kWords[] = {{"abort", "cancel"},
                                                                        {"begin", "start"},
                                                                        {"continue", "resume"},
                                                                        {"end", "cancel"},
                                                                        {"stop", "cancel"}};
    for (const auto& [other, word] : kWords)
        if (typed == other)
            return word;
    return typed;
}

// The command or group that a mistyped word comes nearest to: of those of the group, or of all, by its last
// word alone, too. Empty: none.
std::string nearest_command(const char* group, std::string_view typed)
{
    std::vector<std::string_view> keys;
    std::vector<std::string> names;
    for (const Command& command : kCommands) {
        const std::string_view outer = command.group != nullptr ? command.group : command.name;
        const std::string_view inner = command.name;
        if (group == nullptr) {
            keys.push_back(outer);
            names.emplace_back(outer);
        }
        if (command.group != nullptr && !inner.empty() && (group == nullptr || outer == group)) {
            keys.push_back(inner);
            names.push_back(full_name(command));
        }
    }
    const auto nearest = nearest_word(keys, group == nullptr ? typed : usual_word(typed));
    return nearest.has_value() ? names[*nearest] : "";
}

void print_usage_error(OutputFormat format, const std::string& text)
{
    print_error(kProgram, format, Err::kInvalid, text);
}

// The word that `typed` means, of words_of(group); empty when it means none or several, after saying so.
std::string_view resolve_word(const char* group, std::string_view typed, OutputFormat format)
{
    const std::vector<std::string_view> words = words_of(group);
    const PrefixMatch match = match_prefix(words, typed);
    if (match.unique())
        return words[match.candidates.front()];
    std::vector<std::string> names;
    if (match.candidates.empty())
        names.assign(words.begin(), words.end());
    for (const size_t index : match.candidates)
        names.emplace_back(words[index]);
    const std::string meant = match.candidates.empty() ? nearest_command(group, typed) : "";
    if (!meant.empty())
        print_usage_error(format, quoted(typed) + " is not a command; did you mean 'cowraid " + meant + "'?");
    else
        print_usage_error(format,
                          quoted(typed) +
                              (match.candidates.empty() ? " is not a command; there are: " : " may mean: ") +
                              join_words(names));
    return {};
}

const Command* find_command(const char* group, std::string_view name)
{
    for (const Command& command : kCommands) {
        if (in_group(command, group) && name == command.name)
            return &command;
    }
    return nullptr;
}

bool is_help(std::string_view word)
{
    return word == "--help" || word == "-h" || word == "-?" || word == "help";
}

// The group of "GROUP --help"; null when the words are something else.
const char* asks_about_group(int argc, char** argv)
{
    const std::vector<std::string_view> words = words_of(nullptr);
    const PrefixMatch match = match_prefix(words, argv[0]);
    if (argc < 2 || !is_help(argv[1]) || !match.unique())
        return nullptr;
    const std::string_view word = words[match.candidates.front()];
    for (const Command& command : kCommands)
        if (command.group != nullptr && word == command.group)
            return command.group;
    return nullptr;
}

bool names_volume(const char* word)
{
    struct stat info { };
    if (strpbrk(word, "/=:") != nullptr || stat(word, &info) == 0)
        return true;
    const std::vector<MountedVolume> mounted = list_mounted_volumes();
    return std::any_of(mounted.begin(), mounted.end(), [&](const MountedVolume& volume) {
        return volume.label == word || uuid_text(volume.uuid) == word;
    });
}

// Whether the words behind a group that is a command of its own are its operand: no command of the group, nor
// the beginning of one, nor one that is mistyped.
bool begins_with_operand(const char* group, int argc, char** argv)
{
    if (!match_prefix(words_of(group), argv[0]).candidates.empty())
        return false;
    const bool several = argc > 1 && argv[1][0] != '-';
    return (!several && nearest_command(group, argv[0]).empty()) || names_volume(argv[0]);
}

// `argv` begins at the first word. Sets `used` to the number of words.
const Command* resolve_command(int argc, char** argv, OutputFormat format, int& used)
{
    const std::string_view first = resolve_word(nullptr, argv[0], format);
    if (first.empty())
        return nullptr;
    used = 1;
    if (const Command* single = find_command(nullptr, first); single != nullptr)
        return single;
    const std::string group(first);
    const bool alone =
        argc < 2 || argv[1][0] == '-' || begins_with_operand(group.c_str(), argc - 1, argv + 1);
    if (const Command* group_alone = find_command(group.c_str(), ""); alone && group_alone != nullptr)
        return group_alone;
    if (argc < 2 || argv[1][0] == '-') {
        std::vector<std::string> names;
        for (const std::string_view word : words_of(group.c_str()))
            names.emplace_back(word);
        print_usage_error(format, "'cowraid " + group + "' needs one of " + join_words(names));
        return nullptr;
    }
    const std::string_view second = resolve_word(group.c_str(), argv[1], format);
    used = 2;
    return second.empty() ? nullptr : find_command(group.c_str(), second);
}

int run(int argc, char** argv)
{
    const OutputFormat format = format_asked(argc, argv);
    int next = 1;
    for (; next < argc && argv[next][0] == '-'; ++next) {
        const std::string_view option = argv[next];
        if (option == "--json" || option == "--format=json" || option == "--format=text")
            continue;
        if (option == "--format" && next + 1 < argc &&
            (argv[next + 1] == std::string_view("json") || argv[next + 1] == std::string_view("text"))) {
            ++next;
        } else if (is_help(option)) {
            print_usage(stdout, nullptr);
            return kExitOk;
        } else if (option == "--version" || option == "-V") {
            print_line(stdout, "cowraid %s", COWRAID_VERSION);
            return kExitOk;
        } else {
            print_usage_error(format,
                              "unknown option " + quoted(option) + "; options of a command follow it");
            return kExitUsage;
        }
    }
    if (next == argc || is_help(argv[next])) {
        print_usage(next == argc ? stderr : stdout, nullptr);
        if (next == argc && format == OutputFormat::kJson)
            print_usage_error(format, "no command is named");
        return next == argc ? kExitUsage : kExitOk;
    }
    if (const char* const group = asks_about_group(argc - next, argv + next); group != nullptr) {
        print_usage(stdout, group);
        return kExitOk;
    }
    int used = 0;
    const Command* const command = resolve_command(argc - next, argv + next, format, used);
    if (command == nullptr)
        return kExitUsage;
    std::string name = "cowraid " + full_name(*command);
    // The command parses from its last word on, which stands for its full name.
    int first = next + used - 1;
    // What asks for JSON in front of the command does so behind it.
    static char json_word[] = "--json";
    if (format == OutputFormat::kJson && next > 1)
        argv[first--] = json_word;
    argv[first] = name.data();
    argp_err_exit_status = kExitUsage;
    return command->run(argc - first, argv + first, {});
}

}  // namespace

}  // namespace cowraid

int main(int argc, char** argv)
{
    cowraid::start_program(cowraid::kExitFailed);
    return cowraid::run(argc, argv);
}
