// SPDX-License-Identifier: MIT
#include "tools/mount/mount_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "base/log_count.h"
#include "base/malloc_release.h"
#include "base/out_of_memory.h"
#include "base/sanitizer.h"
#include "base/units.h"
#include "control/control.h"
#include "control/control_path.h"
#include "device/open_member.h"
#include "format/items.h"
#include "fs/filesystem.h"
#include "fuse/session.h"
#include "tools/common/program_start.h"
#include "tools/mount/confinement.h"
#include "tools/mount/daemon_commands.h"
#include "tools/mount/event_watch.h"
#include "tools/mount/handshake.h"
#include "tools/mount/mount_monitor.h"
#include "tools/mount/signal_watch.h"

namespace cowraid {

namespace {

#ifndef PR_SET_IO_FLUSHER
constexpr int PR_SET_IO_FLUSHER = 57;
#endif

constexpr const char* kOutOfMemoryScore = "-1000";
// Of address space, which threads that are never used take too.
constexpr uint64_t kMemoryFloorBytes = 4 * kGiB;
constexpr uint64_t kMemoryBesideCaches = 2 * kGiB;
constexpr int kDetachRounds = 100;
constexpr int kDetachRoundMilliseconds = 20;

void write_text_file(const char* path, const char* text)
{
    const UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
    if (file.valid())
        (void)!write(file.get(), text, strlen(text));
}

void close_inherited(int channel)
{
    constexpr int kFirst = STDERR_FILENO + 1;
    if (channel > kFirst)
        close_range(kFirst, static_cast<unsigned>(channel - 1), 0);
    close_range(static_cast<unsigned>(channel + 1), ~0U, 0);
}

// Before any other thread starts, because threads inherit all of it.
void prepare_process(const MountRequest& request, int channel)
{
    close_inherited(channel);
    signal(SIGPIPE, SIG_IGN);
    block_watched_signals();
    if (!request.foreground) {
        // Until it serves nobody needs it but the helper.
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        setsid();
        redirect_to_null({STDIN_FILENO, STDOUT_FILENO});
        log_use_syslog("cowraid");
    }
    (void)!chdir("/");
    umask(0077);
    // Writing back dirty pages may wait for this process: its own allocations must not wait for them.
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    if (geteuid() == 0) {
        write_text_file("/proc/self/oom_score_adj", kOutOfMemoryScore);
        const rlimit unlimited{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
        setrlimit(RLIMIT_MEMLOCK, &unlimited);
    }
}

// Of the daemon, and of the processes that begin with it: what may be set for us, the time zone for the
// system log, and where fusermount3 is.
void clear_environment()
{
    std::vector<std::pair<const char*, std::string>> kept;
    for (const char* name : {"COWRAID_NO_URING", "COWRAID_RUN_DIR", "XDG_RUNTIME_DIR", "TZ", "PATH"})
        if (const char* value = secure_getenv(name); value != nullptr)
            kept.emplace_back(name, value);
    for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS"})  // where the reports go
        if (const char* value = secure_getenv(name); kSanitized && value != nullptr)
            kept.emplace_back(name, value);
    for (char** line = environ; *line != nullptr; ++line)
        explicit_bzero(*line, strlen(*line));  // what /proc/PID/environ shows
    clearenv();
    for (const auto& [name, value] : kept)
        setenv(name, value.c_str(), 1);
    tzset();  // reads its file now
}

// Nobody is killed for lack of memory in its place, so it must not take all of it.
void limit_daemon_memory(const MountOptions& options)
{
    malloc_limit_caches(options.memory_bytes / 32);
    const uint64_t shares =
        options.node_cache_bytes + options.dirty_bytes_max + options.partial_writes.stripe_cache_bytes;
    const uint64_t asked = std::max(shares, options.memory_bytes) + kMemoryBesideCaches;
    (void)limit_memory(std::max({kMemoryFloorBytes, usual_memory_bytes(), asked}),
                       "mount with a smaller mem=");
}

Status receive_members(int channel, const MountRequest& request,
                       std::vector<std::unique_ptr<BlockDevice>>& devices, AssemblyOptions& options,
                       std::string& why)
{
    for (;;) {
        auto message = receive_handshake(channel);
        if (!message.ok()) {
            why = "the members could not be taken over; for more open files raise their limit (ulimit -n)";
            return message.err();
        }
        if (message->kind == HandshakeKind::kOpen)
            return {};
        const bool named = message->kind == HandshakeKind::kNamedMember;
        if ((message->kind != HandshakeKind::kMember && !named) || !message->fd.valid())
            return Err::kIo;
        if (named)
            options.named.push_back(message->text);
        CW_ASSIGN(auto device,
                  make_device_from_fd(std::move(message->fd), message->text,
                                      {.read_only = request.options.read_only, .exclusive = false}, why));
        devices.push_back(std::move(device));
    }
}

// One mounted volume, from open to closed.
class VolumeServer {
public:
    VolumeServer(UniqueFd channel, const MountRequest& request, MountMonitor& monitor)
        : channel_(std::move(channel)), request_(request), monitor_(monitor)
    {
    }

    // False: told the helper why, or the helper is gone.
    bool open();
    bool serve();
    Status close();

private:
    Status prepare_control(std::string& why);
    void confine();
    Status start_control();
    bool send_opened(const VolumeInfo& info, const std::vector<std::string>& notes);
    bool fail(const std::string& why);
    void on_signal(int number);

    UniqueFd channel_;
    const MountRequest& request_;
    MountMonitor& monitor_;
    std::unique_ptr<Filesystem> filesystem_;
    std::unique_ptr<VolumeControl> commands_;
    std::unique_ptr<EventWatch> events_;  // of commands_
    std::unique_ptr<ControlServer> control_;
    std::unique_ptr<Session> session_;
    std::unique_ptr<SignalWatch> watch_;
    Uuid uuid_;
    std::string control_directory_;
    UniqueFd control_lock_;
    std::string socket_path_;
    std::string device_;
    std::string condition_;  // what is wrong with the volume, for the log; empty when nothing is
    bool served_ = false;
};

bool VolumeServer::fail(const std::string& why)
{
    send_handshake(channel_.get(), HandshakeKind::kFailed, why, -1).ignore();
    return false;
}

// While nothing is confined: the directory, and what daemons that are gone left in it.
Status VolumeServer::prepare_control(std::string& why)
{
    why.clear();
    auto directory = make_control_directory(why);
    if (directory.ok()) {
        control_directory_ = directory.take();
        auto file = open_control_lock(control_directory_);
        if (!file.ok()) {
            why = "control directory " + control_directory_ + ": its lock: " + err_text(file.err());
            return file.err();
        }
        control_lock_ = file.take();
        const ControlLock lock(control_lock_);
        remove_dead_control_sockets();
    } else if (why.empty()) {
        why = std::string("control directory: ") + err_text(directory.err()) + "; is /run writable?";
    }
    return directory.status();
}

Status VolumeServer::start_control()
{
    commands_ = std::make_unique<VolumeControl>(*filesystem_, request_.directory);
    if (request_.volume.paths.size() > 1)
        commands_->set_named_devices();
    const ControlLock lock(control_lock_);
    CW_ASSIGN(socket_path_, make_control_socket_path(control_directory_, uuid_));
    CW_ASSIGN(control_, ControlServer::start({.path = socket_path_, .owner = geteuid()}, *commands_));
    return {};
}

// Members are open, none has been read.
void VolumeServer::confine()
{
    Confinement confinement;
    using Access = Confinement::Access;
    confinement.allow(control_directory_, Access::kSockets);
    confinement.allow("/dev/fuse", Access::kReadWrite);
    confinement.allow("/dev/null", Access::kReadWrite);
    confinement.allow("/proc", Access::kRead);  // groups and capabilities of who asks
    confinement.allow("/sys", Access::kRead);
    const std::string lacks = confinement.enter();
    if (!lacks.empty())
        CW_LOG_INFO("the kernel has no %s: the daemon can do more than it needs", lacks.c_str());
}

bool VolumeServer::open()
{
    std::vector<std::unique_ptr<BlockDevice>> devices;
    AssemblyOptions options{.strangers = request_.options.degraded ? Strangers::kSkip : Strangers::kRefuse,
                            .named = {}};
    std::string why;
    if (!receive_members(channel_.get(), request_, devices, options, why).ok() || !prepare_control(why).ok())
        return fail(why);
    confine();
    auto assembly = assemble(std::move(devices), why, options);
    if (!assembly.ok())
        return fail(why);
    const std::vector<std::string> notes = assembly->notes;
    const Superblock& superblock = assembly->superblock;
    log_set_name(superblock.label.empty() ? uuid_text(superblock.volume_uuid) : superblock.label);
    auto filesystem = Filesystem::open(assembly.take(), request_.options, why);
    if (!filesystem.ok())
        return fail(why.empty() ? err_text(filesystem.err()) : why);
    filesystem_ = filesystem.take();
    const VolumeInfo info = filesystem_->info();
    uuid_ = info.uuid;
    if (const Status status = start_control(); !status.ok())
        return fail("control socket in " + control_directory_ + ": " + err_text(status.err()));
    auto session =
        Session::create(*filesystem_, {.root = InodeNumber{kRootInode}, .page_dropper_host = monitor_});
    if (!session.ok())
        return fail("libfuse refused to start");
    session_ = session.take();
    if (const Status status = session_->start_threads(); !status.ok())
        return fail(err_text(status.err()));
    return send_opened(info, notes);
}

// What is not as it should be goes to the user now and to the log when the mount is there.
bool VolumeServer::send_opened(const VolumeInfo& info, const std::vector<std::string>& notes)
{
    Json warnings = json_make_array();
    const auto warn = [&](const std::string& text) {
        json_append_text(warnings.get(), text);
        condition_ += "; " + text;
    };
    for (const std::string& note : notes)
        warn(note);
    const bool degraded = !info.degraded_reason.empty();
    if (degraded)
        warn("degraded: " + info.degraded_reason);
    if (info.read_only && !request_.options.read_only)
        warn("read-only: " + info.read_only_reason);
    Json opened = json_make_object();
    json_put_text(opened.get(), "uuid", uuid_text(uuid_));
    json_put_flag(opened.get(), "read_only", info.read_only);
    json_put_flag(opened.get(), "degraded", degraded);
    json_put(opened.get(), "warnings", std::move(warnings));
    return send_handshake(channel_.get(), HandshakeKind::kOpened, json_print(opened.get()), -1).ok();
}

// The unmount may wait for close(), which goes on meanwhile.
void VolumeServer::on_signal(int number)
{
    CW_LOG_INFO("ended by signal %d", number);
    // Unused and gone from the tree, the session ends by itself. Else it is ended for those who use it.
    const bool gone = monitor_.detach(device_).ok();
    for (int round = 0; gone && session_->serving() && round < kDetachRounds; ++round)
        poll(nullptr, 0, kDetachRoundMilliseconds);
    session_->stop();
}

bool VolumeServer::serve()
{
    auto message = receive_handshake(channel_.get());
    if (!message.ok() || message->kind != HandshakeKind::kServe || !message->fd.valid())
        return false;
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    device_ = message->text;
    commands_->set_device(device_);
    events_ = std::make_unique<EventWatch>(*commands_);
    watch_ = std::make_unique<SignalWatch>();
    if (!request_.foreground) {
        log_leave_stderr();
        redirect_to_null({STDERR_FILENO});
    }
    log_message(condition_.empty() ? LogLevel::kInfo : LogLevel::kWarning, "mounted at %s%s%s",
                request_.directory.c_str(), request_.options.read_only ? " read-only" : "",
                condition_.c_str());
    served_ = true;
    const auto on_signal = [](void* self, int number) {
        static_cast<VolumeServer*>(self)->on_signal(number);
    };
    Status status = events_->start();
    if (status.ok())
        status = watch_->start(on_signal, this);
    if (!status.ok()) {
        CW_LOG_ERROR("%s", err_text(status.err()));
        return false;
    }
    return session_->serve(std::move(message->fd)).ok();
}

// Commit, release the members, and only then let go of those who wait for it: umount(2), clients, a signal.
Status VolumeServer::close()
{
    if (filesystem_ == nullptr)
        return {};
    if (commands_ != nullptr)
        commands_->close_gate();
    const bool tells = std::exchange(events_, nullptr) != nullptr;
    const Status status = filesystem_->close();
    if (tells)
        commands_->look_for_events(true);
    if (!status.ok())
        CW_LOG_ERROR("unmounted from %s, but the last commit failed: %s", request_.directory.c_str(),
                     err_text(status.err()));
    else if (served_)
        CW_LOG_INFO("unmounted from %s", request_.directory.c_str());
    log_counts(LogCounts::kAll);
    if (session_ != nullptr)
        session_->finish_requests();
    filesystem_.reset();
    if (session_ != nullptr)
        session_->disconnect();
    if (control_ != nullptr) {
        Json closed = json_make_object();
        json_put_flag(closed.get(), "ok", status.ok());
        json_put_text(closed.get(), "message", err_text(status.err()));
        commands_->put_last_events(closed.get());
        remove_control_socket(socket_path_);
        control_->announce(closed.get());
        control_.reset();
    }
    watch_.reset();
    session_.reset();
    return status;
}

}  // namespace

int run_mount_daemon(UniqueFd channel, const MountRequest& request)
{
    prepare_process(request, channel.get());
    clear_environment();
    MountMonitor monitor;
    if (!monitor.start(request.directory)) {
        send_handshake(channel.get(), HandshakeKind::kFailed, "no process could be started", -1).ignore();
        return 1;
    }
    limit_daemon_memory(request.options);
    VolumeServer server(std::move(channel), request, monitor);
    const bool served = server.open() && server.serve();
    const Status closed = server.close();
    return served && closed.ok() ? 0 : 1;
}

}  // namespace cowraid
