// SPDX-License-Identifier: MIT
// file_ops FOLDER [--seed=N] [--operations=N] [--exact-holes] [--drop-caches] [--forget=OPERATION] [--keep]:
// random operations on files of a new folder in FOLDER, compared with a model in memory. With --forget the
// model leaves out every eighth operation of that name, so that the run must fail. --keep leaves the files.
// Exit 0 when all is as expected, 1 when not, 2 for wrong arguments.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/text.h"
#include "tests/fileops/runner.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

struct Arguments {
    FileOpsOptions run;
    bool keeps = false;
    std::string command;
};

bool take_number(std::string_view text, std::string_view option, uint64_t& out)
{
    if (!text.starts_with(option))
        return false;
    Result<uint64_t> number = parse_number(text.substr(option.size()));
    if (number.ok())
        out = *number;
    return number.ok();
}

bool take(std::string_view text, Arguments& arguments)
{
    constexpr std::string_view kForget = "--forget=";
    FileOpsOptions& run = arguments.run;
    if (text == "--exact-holes")
        run.exact_holes = true;
    else if (text == "--drop-caches")
        run.drops_caches = true;
    else if (text == "--keep")
        arguments.keeps = true;
    else if (text.starts_with(kForget) && Runner::can_be_forgotten(text.substr(kForget.size())))
        run.forgotten = text.substr(kForget.size());
    else if (!text.starts_with("-") && run.folder.empty())
        run.folder = text;
    else
        return take_number(text, "--seed=", run.seed) ||
               take_number(text, "--operations=", run.operation_count);
    return true;
}

}  // namespace

int main(int argc, char** argv)
{
    Arguments arguments;
    for (int i = 0; i < argc; ++i) {
        arguments.command += (i == 0 ? "" : " ") + shell_word(argv[i]);
        if (i > 0 && !take(argv[i], arguments)) {
            fprintf(stderr, "%s: not understood\n", argv[i]);
            return 2;
        }
    }
    arguments.run.folder += "/file_ops." + std::to_string(arguments.run.seed);
    std::error_code error;
    if (!std::filesystem::create_directory(arguments.run.folder, error)) {
        fprintf(stderr, "%s: %s\n", arguments.run.folder.c_str(), strerror(error.value()));
        return 2;
    }
    History history(arguments.command);
    {
        Runner runner(arguments.run, history);
        runner.run();
        runner.print_counts();
    }
    if (!arguments.keeps)
        std::filesystem::remove_all(arguments.run.folder, error);
    printf("%lu operations, seed %lu: all as expected\n", arguments.run.operation_count, arguments.run.seed);
    return 0;
}
