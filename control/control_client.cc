// SPDX-License-Identifier: MIT
#include "control/control_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "base/clock.h"
#include "base/text.h"
#include "control/control_frame.h"
#include "control/control_path.h"
#include "control/mount_table.h"

namespace cowraid {

namespace {

std::optional<ucred> peer_of(int fd)
{
    ucred peer{};
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return std::nullopt;
    return peer;
}

// The daemon of somebody else may say anything.
bool served_by_us_or_root(int fd)
{
    const auto peer = peer_of(fd);
    return peer.has_value() && (peer->uid == 0 || peer->uid == geteuid());
}

// A daemon ends a connection that brings no request for some seconds. What it sent before is not read here.
bool was_closed(int fd)
{
    char byte;
    const ssize_t count = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno == ECONNRESET);
}

Result<UniqueFd> connect_to(const std::string& path)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return Err::kNameTooLong;
    memcpy(address.sun_path, path.c_str(), path.size() + 1);
    // A daemon that stands still with a full queue would be waited for without limit.
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid())
        return Err::kIo;
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return errno == EAGAIN                     ? Err::kBusy
               : errno == EACCES || errno == EPERM ? Err::kAccess
                                                   : Err::kNotFound;
    if (!served_by_us_or_root(fd.get()))
        return Err::kNotFound;
    if (fcntl(fd.get(), F_SETFL, 0) != 0)
        return Err::kIo;
    return fd;
}

// As make_error() of the daemon names it; kIo for what this program does not know, or waits for itself.
Err error_named(const std::string& code)
{
#define COWRAID_ERR_NAMED(name, number, text)                                                                \
    if (code == #number && Err::name != Err::kInterrupted)                                                   \
        return Err::name;
    COWRAID_ERRORS(COWRAID_ERR_NAMED)
#undef COWRAID_ERR_NAMED
    return Err::kIo;
}

}  // namespace

// A daemon that was killed leaves its socket, perhaps in another directory than that of the one now.
Result<ControlClient> ControlClient::connect(const Uuid& volume)
{
    Err err = Err::kNotFound;
    for (const std::string& path : control_socket_paths(volume)) {
        auto fd = connect_to(path);
        if (fd.ok())
            return ControlClient(volume, fd.take());
        if (err != Err::kBusy)
            err = fd.err();
    }
    return err;
}

ControlClient::ControlClient(const Uuid& volume, UniqueFd fd) : volume_(volume), fd_(std::move(fd))
{
    const auto peer = peer_of(fd_.get());
    daemon_ = peer.has_value() ? peer->pid : 0;
}

Status ControlClient::wait(uint32_t milliseconds)
{
    return wait_for_frame(fd_.get(), milliseconds);
}

Result<Json> ControlClient::next(uint32_t milliseconds)
{
    const FrameLimits limits{.bytes_max = kControlAnswerBytesMax, .milliseconds = milliseconds};
    CW_ASSIGN(const std::string frame, read_frame(fd_.get(), limits));
    return json_parse_object(frame);
}

Result<Json> ControlClient::call(const std::string& command, const json_t* arguments, std::string& why,
                                 int descriptor)
{
    CW_TRY(send(command, arguments, descriptor, why));
    return receive(0, why);
}

Result<Json> ControlClient::ask(const std::string& command, std::string& why, const json_t* arguments)
{
    CW_TRY(send(command, arguments, -1, why));
    return receive(kAskMilliseconds, why);
}

Status ControlClient::send(const std::string& command, const json_t* arguments, int descriptor,
                           std::string& why)
{
    Json request = json_make_object();
    if (arguments != nullptr)
        CW_ASSERT(json_object_update(request.get(), const_cast<json_t*>(arguments)) == 0);
    json_put_text(request.get(), "command", command);
    why = "the daemon of the volume does not answer; see the system log";
    if (!fd_.valid() || was_closed(fd_.get()))
        CW_TRY(connect_again());
    return write_frame(fd_.get(), json_print(request.get()), {}, descriptor);
}

// Another daemon may serve the volume by now: what was learned of the one before says nothing about that.
Status ControlClient::connect_again()
{
    CW_ASSIGN(ControlClient again, connect(volume_));
    // 0: one outside of this pid namespace, whose number is not told.
    if (again.daemon() != daemon() || daemon() == 0)
        return Err::kNotFound;
    fd_ = std::move(again.fd_);
    return {};
}

Result<Json> ControlClient::receive(uint32_t milliseconds, std::string& why)
{
    auto answer = next(milliseconds);
    if (answer.err() == Err::kInterrupted) {
        fd_ = UniqueFd();  // or a late answer would be taken for that of the next question
        why = "the daemon of the volume did not answer within " + std::to_string(milliseconds / 1000) +
              " s; see the system log";
        return Err::kInterrupted;
    }
    if (!answer.ok())
        return Err::kIo;
    if (!json_get_flag(answer->get(), "ok")) {
        const json_t* const error = json_get(answer->get(), "error");
        if (const std::string message = json_get_text(error, "message"); !message.empty())
            why = message;
        return error_named(json_get_text(error, "code"));
    }
    why.clear();
    return Json(json_incref(json_object_get(answer->get(), "result")));
}

Result<MountedVolume> ControlClient::mounted_volume()
{
    std::string why;
    CW_ASSIGN(const Json result, ask("mount", why));
    return decode_mount(result);
}

Result<MountedVolume> ControlClient::decode_mount(const Json& result)
{
    MountedVolume out;
    CW_ASSIGN(out.uuid, uuid_parse(json_get_text(result.get(), "uuid")));
    out.label = json_get_text(result.get(), "label");
    out.mount_point = json_get_text(result.get(), "mount_point");
    out.device = json_get_text(result.get(), "device");
    out.pid = static_cast<int>(json_get_integer(result.get(), "pid"));
    out.closing = json_get_flag(result.get(), "closing");
    return out;
}

std::optional<MountedVolume> find_mounted_volume(const Uuid& volume)
{
    auto client = ControlClient::connect(volume);
    if (!client.ok())
        return std::nullopt;
    auto mounted = client->mounted_volume();
    return mounted.ok() ? std::optional(mounted.take()) : std::nullopt;
}

std::string where_mounted(const MountedVolume& volume)
{
    const auto table = read_mount_table();
    if (!table.ok() || volume.device.empty() || device_is_mounted(*table, volume.device))
        return "mounted at " + volume.mount_point;
    if (const auto foreign = find_foreign_mount(volume.device); foreign.has_value())
        return "mounted at " + foreign->directory + " in another mount namespace (that of pid " +
               std::to_string(foreign->pid) + ")";
    std::vector<std::string> users;
    for (const int pid : processes_using(volume.device))
        users.push_back("pid " + std::to_string(pid));
    return "lazily unmounted from " + volume.mount_point + ", and its daemon (pid " +
           std::to_string(volume.pid) + ") goes on: in use by " +
           (users.empty() ? "processes that cannot be seen" : join_words(users));
}

std::string title_of(const MountedVolume& volume)
{
    return "volume " + (volume.label.empty() ? uuid_text(volume.uuid) : quoted(volume.label));
}

std::optional<MountedVolume> find_mounted_volume(const std::string& name)
{
    constexpr std::string_view kUuid = "UUID=";
    if (name.starts_with(kUuid)) {
        const auto uuid = uuid_parse(name.substr(kUuid.size()));
        return uuid.ok() ? find_mounted_volume(*uuid) : std::nullopt;
    }
    std::optional<MountedVolume> found;
    if (!name.starts_with("LABEL="))
        return found;
    std::vector<int> silent;
    for (MountedVolume& mounted : list_mounted_volumes(&silent)) {
        if (name != "LABEL=" + mounted.label || !silent.empty())
            continue;
        if (found.has_value())
            return std::nullopt;
        found = std::move(mounted);
    }
    return found;
}

// Asks all daemons at once: one that stands still keeps no answer of another one waiting.
class DaemonSearch {
public:
    DaemonSearch();
    // Waits until the mount of `device` is known, or all have answered, or the time is over.
    void wait(const std::string& device, uint32_t milliseconds);
    // In the order of the control sockets.
    std::vector<MountedVolume> take_found();
    // Of wait() without a device.
    [[nodiscard]] std::vector<int> silent() const;

private:
    enum class State : uint8_t { kAsked, kAnswered, kSilent };
    struct Asked {
        ControlClient client;
        std::optional<MountedVolume> mounted;
        State state = State::kAsked;
    };
    static void receive(Asked& asked);

    std::vector<Asked> asked_;
    size_t not_asked_ = 0;  // daemons that live
};

DaemonSearch::DaemonSearch()
{
    std::set<Uuid> volumes;
    std::string ignored;
    for (const ControlSocket& socket : control_sockets()) {
        if (!volumes.insert(socket.volume).second)
            continue;
        auto client = ControlClient::connect(socket.volume);
        if (client.ok() && client->send("mount", nullptr, -1, ignored).ok())
            asked_.push_back({.client = client.take(), .mounted = {}});
        else if (!client.ok() && client.err() != Err::kNotFound && client.err() != Err::kAccess)
            ++not_asked_;
    }
}

// Of a daemon that has begun to answer.
void DaemonSearch::receive(Asked& asked)
{
    constexpr uint32_t kRestMilliseconds = 1000;
    std::string ignored;
    const auto answer = asked.client.receive(kRestMilliseconds, ignored);
    if (answer.ok())
        if (auto mounted = ControlClient::decode_mount(*answer); mounted.ok())
            asked.mounted = mounted.take();
    const bool is_busy = answer.err() == Err::kInterrupted || answer.err() == Err::kBusy;
    asked.state = is_busy ? State::kSilent : State::kAnswered;
    if (!is_busy)
        asked.client.fd_ = UniqueFd();  // a daemon serves few connections at once
}

void DaemonSearch::wait(const std::string& device, uint32_t milliseconds)
{
    const uint64_t deadline = monotonic_ms() + milliseconds;
    bool is_over = false;
    while (!is_over) {
        std::vector<pollfd> files;
        std::vector<Asked*> waiting;
        for (Asked& asked : asked_)
            if (asked.state == State::kAsked) {
                files.push_back({.fd = asked.client.fd_.get(), .events = POLLIN, .revents = 0});
                waiting.push_back(&asked);
            }
        if (waiting.empty())
            return;
        const uint64_t now = monotonic_ms();
        is_over = now >= deadline;
        if (poll(files.data(), files.size(), is_over ? 0 : static_cast<int>(deadline - now)) < 0)
            continue;
        for (size_t i = 0; i < files.size(); ++i) {
            if (files[i].revents == 0)
                continue;
            receive(*waiting[i]);
            const auto& mounted = waiting[i]->mounted;
            if (!device.empty() && mounted.has_value() && mounted->device == device && !mounted->closing)
                return;
        }
    }
}

std::vector<MountedVolume> DaemonSearch::take_found()
{
    std::vector<MountedVolume> out;
    for (Asked& asked : asked_)
        if (asked.mounted.has_value())
            out.push_back(std::move(*asked.mounted));
    return out;
}

std::vector<int> DaemonSearch::silent() const
{
    std::vector<int> out(not_asked_, 0);
    for (const Asked& asked : asked_)
        if (asked.state != State::kAnswered)
            out.push_back(asked.client.daemon());
    return out;
}

std::vector<MountedVolume> list_mounted_volumes(std::vector<int>* silent, uint32_t milliseconds)
{
    DaemonSearch search;
    search.wait("", milliseconds);
    if (silent != nullptr)
        *silent = search.silent();
    return search.take_found();
}

// A daemon that writes its last commit after an unmount says a device that another mount may have by now.
std::optional<MountedVolume> find_mount_of_device(const std::string& device, std::vector<int>* silent)
{
    DaemonSearch search;
    search.wait(device, kAskMilliseconds);
    std::optional<MountedVolume> found;
    for (MountedVolume& mounted : search.take_found())
        if (mounted.device == device && (!found.has_value() || found->closing))
            found = std::move(mounted);
    if (silent != nullptr)
        *silent = found.has_value() ? std::vector<int>() : search.silent();
    return found;
}

}  // namespace cowraid
