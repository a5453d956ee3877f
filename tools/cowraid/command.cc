// SPDX-License-Identifier: MIT
#include "tools/cowraid/command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace cowraid {

namespace {

constexpr int kJsonKey = 1000;
constexpr int kSiKey = 1001;
constexpr int kIecKey = 1002;
constexpr int kFormatKey = 1003;

constexpr argp_option kCommonOptions[] = {
    {"json", kJsonKey, nullptr, 0, "print one JSON object", 0},
    {"format", kFormatKey, "FORMAT", 0, "json, as --json, or text", 0},
    {"raw", 'b', nullptr, 0, "print sizes in bytes", 0},
    {"si", kSiKey, nullptr, 0, "print sizes in powers of 1000", 0},
    {"iec", kIecKey, nullptr, 0, "print sizes in powers of 1024 (default)", 0},
    {},
};

error_t parse_common_option(int key, char* argument, argp_state* state)
{
    auto& options = *static_cast<CommandOptions*>(state->input);
    options.format_named = options.format_named || key == kJsonKey || key == kFormatKey;
    switch (key) {
    case kJsonKey:
        options.format = OutputFormat::kJson;
        return 0;
    case kFormatKey:
        options.format = strcmp(argument, "json") == 0 ? OutputFormat::kJson : OutputFormat::kText;
        if (options.format != OutputFormat::kJson && strcmp(argument, "text") != 0)
            argp_error(state, "--format is json or text, not %s", quoted(argument).c_str());
        return 0;
    case 'b':
        options.sizes = SizeStyle::kRaw;
        return 0;
    case kSiKey:
        options.sizes = SizeStyle::kSi;
        return 0;
    case kIecKey:
        options.sizes = SizeStyle::kIec;
        return 0;
    case ARGP_KEY_ARG:
        options.operands.emplace_back(argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// Of a command without options of its own.
error_t pass_on(int key, char*, argp_state* state)
{
    return parse_flags(key, state, *static_cast<CommandOptions*>(state->input));
}

// argp and getopt say what is wrong on standard error, and exit. Where JSON is asked for this is kept here.
struct KeptErrors {
    std::string program;
    FILE* usual = nullptr;  // standard error
    FILE* memory = nullptr;
    char* text = nullptr;
    size_t size = 0;
};
KeptErrors kept_errors;

std::string take_errors()
{
    if (kept_errors.memory == nullptr)
        return "";
    stderr = kept_errors.usual;
    fclose(kept_errors.memory);  // sets the text
    const KeptErrors kept = std::exchange(kept_errors, {});
    std::string text(kept.text, kept.size);
    free(kept.text);
    // The first line says it; behind it are those that tell of --help.
    text.erase(std::min(text.find('\n'), text.size()));
    const std::string head = kept.program + ": ";
    return text.empty()
               ? ""
               : text.substr(text.starts_with(head) ? head.size() : 0) + "; see " + kept.program + " --help";
}

void print_kept_errors()
{
    if (const std::string text = take_errors(); !text.empty())
        print_error(kProgram, OutputFormat::kJson, Err::kInvalid, text);
}

void keep_errors(const char* program)
{
    static const int registered = atexit(print_kept_errors);
    kept_errors.program = program;
    kept_errors.memory = registered == 0 ? open_memstream(&kept_errors.text, &kept_errors.size) : nullptr;
    if (kept_errors.memory != nullptr)
        kept_errors.usual = std::exchange(stderr, kept_errors.memory);
}

}  // namespace

OutputFormat format_asked(int argc, char** argv)
{
    const std::vector<std::string_view> words(argv, argv + argc);
    for (size_t i = 0; i < words.size() && words[i] != "--"; ++i)
        if (words[i] == "--json" || words[i] == "--format=json" ||
            (words[i] == "--format" && i + 1 < words.size() && words[i + 1] == "json"))
            return OutputFormat::kJson;
    return OutputFormat::kText;
}

error_t parse_flags(int key, argp_state* state, CommandOptions& common,
                    std::initializer_list<CommandFlag> flags)
{
    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = &common;
    const auto given =
        std::find_if(flags.begin(), flags.end(), [=](const CommandFlag& flag) { return flag.key == key; });
    if (given != flags.end())
        *given->flag = true;
    return key == ARGP_KEY_INIT || given != flags.end() ? 0 : ARGP_ERR_UNKNOWN;
}

bool parse_command(int argc, char** argv, const CommandSyntax& syntax, void* arguments)
{
    static const argp common = {.options = kCommonOptions,
                                .parser = parse_common_option,
                                .args_doc = nullptr,
                                .doc = "\vExit codes: 0 done, 1 failed, 2 usage.",
                                .children = nullptr,
                                .help_filter = nullptr,
                                .argp_domain = nullptr};
    static const argp_child children[] = {{&common, 0, nullptr, 0}, {}};
    const argp parser = {.options = syntax.options,
                         .parser = syntax.parse,
                         .args_doc = syntax.operands,
                         .doc = syntax.doc,
                         .children = children,
                         .help_filter = nullptr,
                         .argp_domain = nullptr};
    if (format_asked(argc, argv) == OutputFormat::kJson)
        keep_errors(argv[0]);
    const bool parsed = argp_parse(&parser, argc, argv, 0, nullptr, arguments) == 0;
    take_errors();
    return parsed;
}

bool parse_common(int argc, char** argv, const char* operands_doc, const char* doc, CommandOptions& options)
{
    return parse_command(argc, argv, {nullptr, pass_on, operands_doc, doc}, &options);
}

int command_failed(const CommandOptions& options, Err err, const std::string& why)
{
    print_error(kProgram, options.format, err, why);
    return kExitFailed;
}

int change_failed(const CommandOptions& options, Err err, const std::string& why)
{
    command_failed(options, err, why);
    return err == Err::kInvalid ? kExitNotRunning : kExitFailed;
}

bool write_all(int fd, std::string_view text)
{
    while (!text.empty()) {
        const ssize_t count = write(fd, text.data(), text.size());
        if (count < 0 && errno != EINTR)
            return false;
        text.remove_prefix(count > 0 ? static_cast<size_t>(count) : 0);
    }
    return true;
}

bool has_one_operand(const CommandOptions& options, const char* what)
{
    if (options.operands.size() == 1)
        return true;
    print_error(kProgram, options.format, Err::kInvalid, std::string("name ") + what + ", exactly one");
    return false;
}

}  // namespace cowraid
