// SPDX-License-Identifier: MIT
// cowraid map
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/unique_fd.h"
#include "tools/cowraid/heat_map.h"
#include "tools/cowraid/mounted_command.h"

namespace cowraid {

namespace {

struct MapArguments {
    CommandOptions common;
    std::string file;  // empty: standard output
};

constexpr argp_option kMapOptions[] = {
    {"output", 'o', "FILE", 0,
     "to this file instead of standard output, with --json too; FILE.png is made by rsvg-convert", 0},
    {},
};

error_t parse_map_option(int key, char* text, argp_state* state)
{
    auto& arguments = *static_cast<MapArguments*>(state->input);
    switch (key) {
    case 'o':
        arguments.file = text;
        return 0;
    default:
        return parse_flags(key, state, arguments.common);
    }
}

bool parse_map(int argc, char** argv, MapArguments& arguments)
{
    return parse_command(argc, argv,
                         {kMapOptions, parse_map_option, "[VOLUME]",
                          "Draw how full which stripes are, on which members, as an SVG picture."},
                         &arguments);
}

Status write_picture(int fd, const std::string& path, const std::string& picture, std::string& why)
{
    if (fd >= 0 && write_all(fd, picture))
        return {};
    why = path + ": " + strerror(errno);
    return Err::kIo;
}

// The picture is its standard input.
Status convert_to_png(const std::string& path, const std::string& picture, std::string& why)
{
    const UniqueFd input(memfd_create("cowraid-map", MFD_CLOEXEC));
    CW_TRY(write_picture(input.get(), path, picture, why));
    if (lseek(input.get(), 0, SEEK_SET) != 0)
        return Err::kIo;
    char program[] = "rsvg-convert", format[] = "--format=png", output[] = "--output";
    char* const words[] = {program, format, output, const_cast<char*>(path.c_str()), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
    pid_t process = 0;
    const int error = posix_spawnp(&process, program, &actions, nullptr, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    int code = 0;
    if (error == 0)
        while (waitpid(process, &code, 0) < 0 && errno == EINTR) { }
    const bool absent = error != 0 || (WIFEXITED(code) && WEXITSTATUS(code) == 127);
    if (!absent && WIFEXITED(code) && WEXITSTATUS(code) == 0)
        return {};
    why = absent ? "a PNG takes the program rsvg-convert (package librsvg2-bin); install it, or write an SVG"
                 : "rsvg-convert could not write " + path;
    return Err::kIo;
}

bool is_png(const std::string& path)
{
    return path.ends_with(".png");
}

// A picture, or the figures that it is made of.
Status write_file(const std::string& path, const std::string& picture, std::string& why)
{
    if (path.empty())
        return write_picture(STDOUT_FILENO, "standard output", picture, why);
    if (is_png(path))
        return convert_to_png(path, picture, why);
    const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    return write_picture(file.get(), path, picture, why);
}

}  // namespace

int command_map(int argc, char** argv, CommandOptions common)
{
    MapArguments arguments{.common = std::move(common)};
    if (!parse_map(argc, argv, arguments) || !one_volume(arguments.common))
        return kExitUsage;
    const bool json = arguments.common.format == OutputFormat::kJson;
    if (json && is_png(arguments.file)) {
        print_error(kProgram, arguments.common.format, Err::kInvalid,
                    "--json writes figures, no picture; name another file than " + quoted(arguments.file));
        return kExitUsage;
    }
    std::string why;
    const auto target = target_of(arguments.common.operands, why);
    if (!target.ok())
        return command_failed(arguments.common, target.err(), why);
    const auto layout = load_layout(*target, Occupancy::kStripes, why);
    if (!layout.ok())
        return command_failed(arguments.common, layout.err(), why);
    const std::string text = json ? json_print(encode_layout(*layout).get(), JsonStyle::kIndented) + "\n"
                                  : draw_heat_map(*layout, static_cast<uint64_t>(time(nullptr)));
    const Status written = write_file(arguments.file, text, why);
    return written.ok() ? kExitOk : command_failed(arguments.common, written.err(), why);
}

}  // namespace cowraid
