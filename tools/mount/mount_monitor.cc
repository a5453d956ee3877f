// SPDX-License-Identifier: MIT
#include "tools/mount/mount_monitor.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/program_start.h"
#include "tools/mount/confinement.h"
#include "tools/mount/handshake.h"
#include "tools/mount/mount_point.h"
#include "tools/mount/user_mount_table.h"

namespace cowraid {

namespace {

constexpr int kChannel = 3;

void detach_for(const std::string& directory, const std::string& device)
{
    const Status status = detach_mount(directory, device);
    send_handshake(kChannel, status.ok() ? HandshakeKind::kDone : HandshakeKind::kFailed, {}, -1).ignore();
    remove_user_mount(directory);
}

void start_dropper_for(int connection)
{
    const UniqueFd channel = spawn_page_dropper(connection);
    send_handshake(kChannel, channel.valid() ? HandshakeKind::kDone : HandshakeKind::kFailed, {},
                   channel.get())
        .ignore();
}

}  // namespace

int mount_monitor_main(const std::string& directory)
{
    close_range(kChannel + 1, ~0U, 0);
    fcntl(kChannel, F_SETFD, FD_CLOEXEC);
    redirect_to_null({STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO});
    keep_capabilities(1u << CAP_SYS_ADMIN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
    if (!send_handshake(kChannel, HandshakeKind::kDone, {}, -1).ok())
        return 0;
    for (;;) {
        const auto message = receive_handshake(kChannel);
        if (!message.ok())
            return 0;
        if (message->kind == HandshakeKind::kDetach)
            detach_for(directory, message->text);
        else if (message->kind == HandshakeKind::kStartDropper)
            start_dropper_for(message->fd.get());
        while (waitpid(-1, nullptr, WNOHANG) > 0) { }
    }
}

bool MountMonitor::start(const std::string& directory)
{
    auto ends = make_handshake_pair();
    if (!ends.ok())
        return false;
    UniqueFd theirs(fcntl(ends->second.get(), F_DUPFD_CLOEXEC, kChannel + 1));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), kChannel);
    std::string name = kMountMonitorName;
    std::string operand = directory;
    char* arguments[] = {name.data(), operand.data(), nullptr};
    pid_t process;
    const int error = posix_spawn(&process, "/proc/self/exe", &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
        return false;
    // With these ends closed the monitor's own end is the only one: its end is seen.
    theirs = {};
    ends->second = {};
    channel_ = std::move(ends->first);
    const auto confined = receive_handshake(channel_.get());
    return confined.ok() && confined->kind == HandshakeKind::kDone;
}

Status MountMonitor::detach(const std::string& device)
{
    MutexLock lock(mutex_);
    CW_TRY(send_handshake(channel_.get(), HandshakeKind::kDetach, device, -1));
    CW_ASSIGN(const HandshakeMessage answer, receive_handshake(channel_.get()));
    return answer.kind == HandshakeKind::kDone ? Status() : Status(Err::kBusy);
}

UniqueFd MountMonitor::start_page_dropper(int connection)
{
    MutexLock lock(mutex_);
    if (!send_handshake(channel_.get(), HandshakeKind::kStartDropper, {}, connection).ok())
        return {};
    auto answer = receive_handshake(channel_.get());
    return answer.ok() ? std::move(answer->fd) : UniqueFd();
}

}  // namespace cowraid
