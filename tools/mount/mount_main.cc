// SPDX-License-Identifier: MIT
// mount.cowraid DEV... DIR [-o OPTIONS], also as called by mount(8).
#include <argp.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/print.h"
#include "control/mount_table.h"
#include "fuse/page_dropper.h"
#include "tools/common/program_start.h"
#include "tools/mount/confinement.h"
#include "tools/mount/handshake.h"
#include "tools/mount/mount_daemon.h"
#include "tools/mount/mount_helper.h"
#include "tools/mount/mount_monitor.h"
#include "tools/mount/mount_request.h"

namespace cowraid {

namespace {

constexpr int kForegroundKey = 256;
constexpr int kOptionsTableKey = 257;

struct Arguments {
    std::vector<std::string> operands;
    MountRequest request;
};

constexpr argp_option kOptions[] = {
    {nullptr, 'o', "LIST", 0, "mount options, separated by commas", 0},
    {"foreground", kForegroundKey, nullptr, 0, "serve in this process, for debugging", 0},
    {"verbose", 'v', nullptr, 0, "say what is done", 0},
    {"fake", 'f', nullptr, 0, "check everything but do not mount", 0},
    {nullptr, 's', nullptr, 0, "ignore unknown mount options", 0},
    {nullptr, 'n', nullptr, 0, "accepted for mount(8), does nothing", 0},
    {nullptr, 't', "TYPE", 0, "accepted for mount(8), does nothing", 0},
    {"options-table", kOptionsTableKey, nullptr, OPTION_HIDDEN, "print the table of README", 0},
    {nullptr, 'N', "NAMESPACE", OPTION_HIDDEN, "accepted for mount(8), does nothing", 0},
    {},
};

constexpr const char* kDoc = "Mount a cowraid volume. Any one member is enough to find the others; "
                             "several are the ones to use.\v"
                             "What sync does: with a block device among the members, mounted by root on "
                             "Linux 6.18 or newer, sync(1), sync -f and "
                             "syncfs(2) return when everything written before is durable, and umount(2) when "
                             "the last commit is. The type in the "
                             "mount table is then fuseblk.cowraid. Anywhere else (only image files, older "
                             "kernels, mounted by an ordinary user; "
                             "type fuse.cowraid) the kernel tells no FUSE filesystem of a sync: it makes "
                             "nothing durable. fsync(2), O_SYNC and "
                             "'cowraid filesystem sync DIRECTORY' do everywhere, and commit=SECONDS (5) "
                             "bounds what a crash may take. umount(8) "
                             "waits for the last commit everywhere.\n\n"
                             "Mount options:\n";

// As Markdown; scripts/options_table.py puts it into README.
void print_options_table()
{
    print_line(stdout, "| option | what it does |");
    print_line(stdout, "|---|---|");
    for (const MountOptionHelp& line : mount_options_help())
        print_line(stdout, "| `%s` | %s |", line.option.c_str(), line.text.c_str());
}

// What argp prints behind its own options.
std::string long_help()
{
    constexpr int kColumn = 26;
    std::string out = kDoc;
    for (const MountOptionHelp& line : mount_options_help()) {
        std::string option = "  " + line.option;
        option.resize(std::max<size_t>(option.size() + 1, kColumn), ' ');
        out += option + line.text + "\n";
    }
    return out;
}

error_t parse_option(int key, char* argument, argp_state* state)
{
    auto& arguments = *static_cast<Arguments*>(state->input);
    switch (key) {
    case 'o':
        arguments.request.option_lists.emplace_back(argument);
        return 0;
    case kForegroundKey:
        arguments.request.foreground = true;
        return 0;
    case 'v':
        arguments.request.verbose = true;
        return 0;
    case 'f':
        arguments.request.fake = true;
        return 0;
    case 's':
        arguments.request.sloppy = true;
        return 0;
    case kOptionsTableKey:
        print_options_table();
        exit(0);
    case 'n':
    case 't':
    case 'N':
        return 0;
    case ARGP_KEY_ARG:
        arguments.operands.emplace_back(argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

std::string join_sources(const std::vector<std::string>& operands)
{
    std::string out;
    for (const std::string& operand : operands)
        out += (out.empty() ? "" : ":") + operand;
    return out;
}

Status complete_request(Arguments& arguments, std::string& why)
{
    MountRequest& request = arguments.request;
    // For root what mount(8) calls the defaults: it strips "suid" and "dev" because they are. A user's own
    // volume must not bring set-id programs.
    if (geteuid() != 0)
        request.kernel_flags = MS_NOSUID | MS_NODEV;
    set_default_memory(request);
    for (const std::string& list : request.option_lists)
        CW_TRY(parse_mount_options(list, request, why));
    if (arguments.operands.size() < 2) {
        why = "name at least one member (or label, or uuid) and the mount point; --help lists the options";
        return Err::kInvalid;
    }
    request.directory = mount_point_path(arguments.operands.back());
    arguments.operands.pop_back();
    request.source = join_sources(arguments.operands);
    // A remount goes by the mount point; fstab's source may name a volume that is not there any more.
    if (!request.remount) {
        CW_ASSIGN(request.volume, parse_volume_spec(arguments.operands, why));
    }
    return check_mount_request(request, why);
}

// Forked before anything looks at devices, so that the daemon starts with descriptors only.
int fork_and_run(const MountRequest& request)
{
    auto ends = make_handshake_pair();
    if (!ends.ok()) {
        print_mount_message(std::string("socket pair: ") + strerror(errno));
        return kMountSystem;
    }
    fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
        print_mount_message(std::string("fork: ") + strerror(errno));
        return kMountSystem;
    }
    // In the foreground the roles change: the program that was started serves.
    const bool serve = (child == 0) != request.foreground;
    UniqueFd mine = std::move(serve ? ends->first : ends->second);
    (serve ? ends->second : ends->first) = UniqueFd();
    if (!serve)
        return run_mount_helper(std::move(mine), request);
    const int result = run_mount_daemon(std::move(mine), request);
    if (!request.foreground)
        return result;
    int helper = 0;
    if (waitpid(child, &helper, 0) == child && WIFEXITED(helper) && WEXITSTATUS(helper) != 0)
        return WEXITSTATUS(helper);
    return result;
}

int run(int argc, char** argv)
{
    const std::string help = long_help();
    const argp parser = {.options = kOptions,
                         .parser = parse_option,
                         .args_doc = "DEVICE... DIRECTORY\n"
                                     "{cowraid:LABEL|cowraid:UUID|DEVICE[:DEVICE...]} DIRECTORY",
                         .doc = help.c_str(),
                         .children = nullptr,
                         .help_filter = nullptr,
                         .argp_domain = nullptr};
    argp_err_exit_status = kMountUsage;
    Arguments arguments;
    if (argp_parse(&parser, argc, argv, 0, nullptr, &arguments) != 0)
        return kMountUsage;
    std::string why;
    if (!complete_request(arguments, why).ok()) {
        print_mount_message(why);
        return kMountUsage;
    }
    for (const std::string& warning : arguments.request.warnings)
        print_mount_message("warning: " + warning);
    signal(SIGINT, [](int) { _exit(kMountInterrupted); });
    return arguments.request.remount ? run_remount(arguments.request) : fork_and_run(arguments.request);
}

}  // namespace

}  // namespace cowraid

const char* argp_program_version = "mount.cowraid " COWRAID_VERSION;

int main(int argc, char** argv)
{
    cowraid::start_program(cowraid::kMountSystem);
    if (argc > 1 && strcmp(argv[0], cowraid::kMountMonitorName) == 0)
        return cowraid::mount_monitor_main(argv[1]);
    if (argc > 0 && strcmp(argv[0], cowraid::kPageDropperName) == 0) {
        (void)cowraid::Confinement().enter();
        return cowraid::page_dropper_main();
    }
    return cowraid::run(argc, argv);
}
