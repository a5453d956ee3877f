// SPDX-License-Identifier: MIT
#include "tools/cowraid/hook.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "tools/common/report_error.h"

namespace cowraid {

namespace {

bool ours_alone(const struct stat& info)
{
    return (info.st_uid == 0 || info.st_uid == geteuid()) && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Whether nobody else can put another one there, or in the place of a folder above it. In a folder like
// /tmp (sticky) others cannot rename what is not theirs. `path` has no links.
bool ours_alone_with_folders(std::string path)
{
    struct stat info { };
    if (stat(path.c_str(), &info) != 0 || !ours_alone(info))
        return false;
    for (bool direct = true; path.size() > 1; direct = false) {
        path.erase(std::max<size_t>(path.rfind('/'), 1));
        if (stat(path.c_str(), &info) != 0)
            return false;
        if (!direct && (info.st_mode & S_ISVTX) != 0)
            info.st_mode &= ~mode_t{S_IWGRP | S_IWOTH};
        if (!ours_alone(info))
            return false;
    }
    return true;
}

// Waits until the process has ended, at most so long.
bool ends_within(pid_t process, unsigned seconds)
{
    const UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
    const uint64_t end = monotonic_ns() + uint64_t{seconds} * 1'000'000'000;
    while (fd.valid()) {
        const uint64_t now = monotonic_ns();
        if (now >= end)
            return false;
        pollfd entry{.fd = fd.get(), .events = POLLIN, .revents = 0};
        const int count = poll(&entry, 1, static_cast<int>((end - now) / 1'000'000 + 1));
        if (count > 0 || (count < 0 && errno != EINTR))
            return true;
    }
    return true;
}

}  // namespace

Status validate_hook(const std::string& path, std::string& why)
{
    if (!path.starts_with('/'))
        return invalid(why, quoted(path) + " is no absolute path; give one for --program");
    struct stat info { };
    if (stat(path.c_str(), &info) != 0) {
        why = path + ": " + std::strerror(errno) + "; make the program, or name another one";
        return Err::kNotFound;
    }
    if (!S_ISREG(info.st_mode) || access(path.c_str(), X_OK) != 0)
        return invalid(why, path + " is no program that may be executed; see chmod(1)");
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
    if (real == nullptr || real.get() != path) {
        why = path + " is not called: there are links in its path; name it as " +
              (real == nullptr ? "realpath(1) does" : real.get());
        return Err::kAccess;
    }
    if (!ours_alone_with_folders(path)) {
        why = path +
              " is not called: others may change it, or a folder above it; give them to root and take away "
              "the permission of group and others to write";
        return Err::kAccess;
    }
    return {};
}

Status run_hook(const std::string& path, const std::vector<std::string>& arguments, unsigned seconds,
                std::string& why)
{
    std::vector<char*> words{const_cast<char*>(path.c_str())};
    for (const std::string& argument : arguments)
        words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    pid_t process = 0;
    const int error = posix_spawn(&process, path.c_str(), &actions, &attributes, words.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        why = path + " cannot be started: " + std::strerror(error);
        return Err::kIo;
    }
    const bool ended = ends_within(process, seconds);
    if (!ended)
        kill(-process, SIGKILL);
    int code = 0;
    while (waitpid(process, &code, 0) < 0 && errno == EINTR) { }
    if (ended && WIFEXITED(code) && WEXITSTATUS(code) == 0)
        return {};
    why = path + (!ended            ? " was killed: it took longer than " + std::to_string(seconds) + " s"
                  : WIFEXITED(code) ? " ended with code " + std::to_string(WEXITSTATUS(code))
                                    : " was ended by signal " + std::to_string(WTERMSIG(code)));
    return Err::kIo;
}

}  // namespace cowraid
