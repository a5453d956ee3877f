// SPDX-License-Identifier: MIT
#include "tools/mount/confinement.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/sanitizer.h"

namespace cowraid {

namespace {

// Of the kernel's interface (Documentation/userspace-api/landlock.rst); the headers of the distribution may
// be older than the kernel.
struct LandlockRuleset {
    uint64_t handled_files;
    uint64_t handled_network;  // since version 4
    uint64_t scoped;  // since version 6
};
struct [[gnu::packed]] LandlockPath {
    uint64_t allowed;
    int32_t parent_fd;
};
constexpr unsigned kGetVersion = 1;
constexpr int kRulePathBeneath = 1;

constexpr uint64_t kWriteFile = 1u << 1;
constexpr uint64_t kReadFile = 1u << 2;
constexpr uint64_t kReadDirectory = 1u << 3;
constexpr uint64_t kRemoveDirectory = 1u << 4;
constexpr uint64_t kRemoveFile = 1u << 5;
constexpr uint64_t kMakeDirectory = 1u << 7;
constexpr uint64_t kMakeSocket = 1u << 9;
constexpr uint64_t kTruncate = 1u << 14;  // since version 3
constexpr uint64_t kIoctl = 1u << 15;  // since version 5
constexpr uint64_t kOfFiles = kWriteFile | kReadFile | kTruncate | kIoctl;

struct Version {
    long number;
    uint64_t files;
    size_t ruleset_bytes;
};
// What each version of Landlock handles, newest first: all accesses that it knows.
constexpr std::array kVersions{
    Version{6, 0xffff, 24}, Version{5, 0xffff, 16}, Version{4, 0x7fff, 16},
    Version{3, 0x7fff, 8},  Version{2, 0x3fff, 8},  Version{1, 0x1fff, 8},
};
constexpr uint64_t kBindAndConnectTcp = 3;
constexpr uint64_t kAbstractSocketsAndSignals = 3;

uint64_t rights_of(Confinement::Access access)
{
    switch (access) {
    case Confinement::Access::kRead:
        return kReadFile | kReadDirectory;
    case Confinement::Access::kReadWrite:
        return kReadFile | kReadDirectory | kWriteFile | kIoctl;
    case Confinement::Access::kSockets:
        return kReadDirectory | kRemoveDirectory | kRemoveFile | kMakeDirectory | kMakeSocket;
    }
    return 0;
}

// System calls that this program never makes, and that help who has taken it over.
constexpr int kRefusedCalls[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(kcmp),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(quotactl),
    SCMP_SYS(quotactl_fd),
    SCMP_SYS(acct),
    SCMP_SYS(reboot),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(name_to_handle_at),
    SCMP_SYS(mknod),
    SCMP_SYS(mknodat),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(keyctl),
    SCMP_SYS(iopl),
    SCMP_SYS(ioperm),
    SCMP_SYS(personality),
    SCMP_SYS(syslog),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(setuid),
    SCMP_SYS(setgid),
    SCMP_SYS(setreuid),
    SCMP_SYS(setregid),
    SCMP_SYS(setresuid),
    SCMP_SYS(setresgid),
    SCMP_SYS(setgroups),
    SCMP_SYS(setfsuid),
    SCMP_SYS(setfsgid),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    // What an owner may do to files by their paths, which Landlock does not see.
    SCMP_SYS(chmod),
    SCMP_SYS(fchmod),
    SCMP_SYS(fchmodat),
    SCMP_SYS(chown),
    SCMP_SYS(fchown),
    SCMP_SYS(lchown),
    SCMP_SYS(fchownat),
    SCMP_SYS(setxattr),
    SCMP_SYS(lsetxattr),
    SCMP_SYS(fsetxattr),
    SCMP_SYS(removexattr),
    SCMP_SYS(lremovexattr),
    SCMP_SYS(fremovexattr),
    SCMP_SYS(utime),
    SCMP_SYS(utimes),
    SCMP_SYS(futimesat),
    SCMP_SYS(utimensat),
    SCMP_SYS(truncate),
    // fchmodat2, setxattrat and removexattrat, on every architecture; libseccomp 2.5 does not know them.
    452,
    463,
    466,
    // Other processes of the same user; the threads of this one are reached by tgkill().
    SCMP_SYS(kill),
    SCMP_SYS(tkill),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(rt_sigqueueinfo),
};

bool add_refusals(scmp_filter_ctx filter)
{
    constexpr uint32_t kRefuse = SCMP_ACT_ERRNO(EPERM);
    for (const int call : kRefusedCalls)
        if (seccomp_rule_add(filter, kRefuse, call, 0) != 0)
            return false;
    // Threads, but no processes. The C library does without clone3(), of which a filter cannot see the flags.
    constexpr scmp_datum_t kThread = CLONE_THREAD;
    const auto self = static_cast<scmp_datum_t>(getpid());
    return seccomp_rule_add(filter, kRefuse, SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, kThread, 0)) ==
               0 &&
           seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0 &&
           seccomp_rule_add(filter, kRefuse, SCMP_SYS(socket), 1, SCMP_A0_32(SCMP_CMP_NE, AF_UNIX)) == 0 &&
           seccomp_rule_add(filter, kRefuse, SCMP_SYS(tgkill), 1, SCMP_A0_32(SCMP_CMP_NE, self)) == 0 &&
           seccomp_rule_add(filter, kRefuse, SCMP_SYS(rt_tgsigqueueinfo), 1, SCMP_A0_32(SCMP_CMP_NE, self)) ==
               0 &&
           seccomp_rule_add(filter, kRefuse, SCMP_SYS(prlimit64), 1, SCMP_A0_32(SCMP_CMP_NE, 0)) == 0;
}

bool refuse_calls()
{
    const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == nullptr)
        return false;
    const bool loaded = add_refusals(filter) && seccomp_load(filter) == 0;
    seccomp_release(filter);
    return loaded;
}

}  // namespace

Confinement::Confinement()
{
    const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, kGetVersion);
    for (const Version& known : kVersions) {
        if (version < known.number)
            continue;
        const LandlockRuleset ruleset{.handled_files = known.files,
                                      .handled_network = kBindAndConnectTcp,
                                      .scoped = kAbstractSocketsAndSignals};
        rules_ = UniqueFd(
            static_cast<int>(syscall(SYS_landlock_create_ruleset, &ruleset, known.ruleset_bytes, 0)));
        handled_ = known.files;
        return;
    }
}

void Confinement::allow(const std::string& path, Access access)
{
    const UniqueFd fd(open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat info { };
    if (!rules_.valid() || fstat(fd.get(), &info) != 0)
        return;
    uint64_t rights = rights_of(access) & handled_;
    if (!S_ISDIR(info.st_mode))
        rights &= kOfFiles;
    const LandlockPath rule{.allowed = rights, .parent_fd = fd.get()};
    (void)!syscall(SYS_landlock_add_rule, rules_.get(), kRulePathBeneath, &rule, 0);
}

void keep_capabilities(uint64_t capabilities)
{
    for (int capability = 0; capability < 64; ++capability)
        if ((capabilities >> capability & 1) == 0)
            prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct data[2] = {};
    if (syscall(SYS_capget, &header, data) == 0) {
        for (int half = 0; half < 2; ++half) {
            data[half].permitted &= static_cast<uint32_t>(capabilities >> 32 * half);
            data[half].effective &= data[half].permitted;
            data[half].inheritable = 0;
        }
        (void)!syscall(SYS_capset, &header, data);
    }
    if (!kSanitized)  // the search for leaks traces its own process
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_CORE, &none);
}

std::string Confinement::enter()
{
    if (kSanitized)
        return {};
    keep_capabilities(0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return "no_new_privs";
    std::string lacks;
    if (!rules_.valid() || syscall(SYS_landlock_restrict_self, rules_.get(), 0) != 0)
        lacks = "Landlock";
    if (!refuse_calls())
        lacks += lacks.empty() ? "seccomp" : " and seccomp";
    return lacks;
}

}  // namespace cowraid
