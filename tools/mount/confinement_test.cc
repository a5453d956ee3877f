// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/sanitizer.h"
#include "tools/mount/confinement.h"

using namespace cowraid;

namespace {

// A folder with a file that is allowed and one that is not.
class Folder {
public:
    Folder()
    {
        char path[] = "/tmp/confinement-XXXXXX";
        path_ = mkdtemp(path);
        for (const char* name : {"/allowed", "/secret"})
            close(open((path_ + name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
        chmod(path_.c_str(), 0777);
        mkdir((path_ + "/sockets").c_str(), 0777);
        chmod((path_ + "/sockets").c_str(), 0777);
    }
    ~Folder()
    {
        for (const char* name : {"/allowed", "/secret"})
            unlink((path_ + name).c_str());
        rmdir((path_ + "/sockets/one").c_str());
        rmdir((path_ + "/sockets").c_str());
        rmdir(path_.c_str());
    }
    [[nodiscard]] std::string at(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

// The number of the first expectation that does not hold in a confined process; 0 when all do.
int first_wrong(const Folder& folder)
{
    Confinement confinement;
    confinement.allow(folder.at("allowed"), Confinement::Access::kRead);
    confinement.allow(folder.at("sockets"), Confinement::Access::kSockets);
    if (!confinement.enter().empty())
        return 1;
    const auto refused = [](int expected, long result) {
        return result < 0 && errno == expected;
    };
    char* const words[] = {nullptr};
    rlimit core{};
    siginfo_t signal{};
    signal.si_code = SI_QUEUE;
    int number = 1;
    int started = 0;
    std::thread([&] { started = 1; }).join();
    const bool outcomes[] = {
        refused(EPERM, execve("/bin/true", words, words)),
        refused(EPERM, ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)),
        refused(EPERM, mount("none", "/", "tmpfs", MS_REMOUNT, nullptr)),
        refused(EPERM, umount2("/proc", MNT_DETACH)),
        refused(EPERM, fork()),
        refused(EPERM, socket(AF_INET, SOCK_STREAM, 0)),
        refused(EPERM, socket(AF_INET6, SOCK_DGRAM, 0)),
        refused(EPERM, socket(AF_NETLINK, SOCK_RAW, 0)),
        socket(AF_UNIX, SOCK_STREAM, 0) >= 0,
        started == 1,
        refused(EACCES, open(folder.at("secret").c_str(), O_RDONLY)),
        refused(EACCES, open("/etc/passwd", O_RDONLY)),
        refused(EACCES, open(folder.at("allowed").c_str(), O_WRONLY)),
        refused(EACCES, unlink(folder.at("secret").c_str())),
        refused(EACCES, mkdir(folder.at("new").c_str(), 0700)),
        open(folder.at("allowed").c_str(), O_RDONLY) >= 0,
        mkdir(folder.at("sockets/one").c_str(), 0700) == 0,
        refused(EPERM, setuid(0)),
        refused(EPERM, chmod(folder.at("secret").c_str(), 04755)),
        refused(EPERM, chown(folder.at("secret").c_str(), 0, 0)),
        refused(EPERM, truncate(folder.at("secret").c_str(), 0)),
        refused(EPERM, setxattr(folder.at("secret").c_str(), "user.a", "b", 1, 0)),
        refused(EPERM, kill(getppid(), 0)),
        refused(EPERM, syscall(SYS_rt_tgsigqueueinfo, getppid(), getppid(), SIGUSR1, &signal)),
        refused(EPERM, prlimit(getppid(), RLIMIT_NOFILE, nullptr, &core)),
        prctl(PR_GET_DUMPABLE) == 0,
        prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1,
        getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0,
    };
    for (const bool outcome : outcomes) {
        ++number;
        if (!outcome)
            return number;
    }
    return 0;
}

int run_confined(const Folder& folder, uid_t user)
{
    const pid_t child = fork();
    if (child == 0) {
        if (user != 0 && setresuid(user, user, user) != 0)
            _exit(200);
        _exit(first_wrong(folder));
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a confined process starts nothing, opens nothing and reaches nobody" * doctest::skip(kSanitized))
{
    const Folder folder;
    CHECK(run_confined(folder, geteuid()) == 0);
    if (geteuid() == 0) {
        const Folder other;
        CHECK(run_confined(other, 65534) == 0);
    }
}
