// SPDX-License-Identifier: MIT
#include "control/control_client.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "base/text.h"
#include "control/control_frame.h"
#include "control/control_path.h"
#include "control/mount_table.h"

namespace cowraid {

namespace {

constexpr uint32_t kAskMilliseconds = 10'000;

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
            return ControlClient(fd.take());
        if (err != Err::kBusy)
            err = fd.err();
    }
    return err;
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
    return exchange(command, arguments, descriptor, 0, why);
}

Result<Json> ControlClient::ask(const std::string& command, std::string& why, const json_t* arguments)
{
    return exchange(command, arguments, -1, kAskMilliseconds, why);
}

Result<Json> ControlClient::exchange(const std::string& command, const json_t* arguments, int descriptor,
                                     uint32_t milliseconds, std::string& why)
{
    Json request = json_make_object();
    if (arguments != nullptr)
        CW_ASSERT(json_object_update(request.get(), const_cast<json_t*>(arguments)) == 0);
    json_put_text(request.get(), "command", command);
    why = "the daemon of the volume does not answer; see the system log";
    CW_TRY(write_frame(fd_.get(), json_print(request.get()), {}, descriptor));
    auto answer = next(milliseconds);
    if (answer.err() == Err::kInterrupted) {
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
    MountedVolume out;
    CW_ASSIGN(out.uuid, uuid_parse(json_get_text(result.get(), "uuid")));
    out.label = json_get_text(result.get(), "label");
    out.mount_point = json_get_text(result.get(), "mount_point");
    out.device = json_get_text(result.get(), "device");
    out.pid = static_cast<int>(json_get_integer(result.get(), "pid"));
    out.closing = json_get_flag(result.get(), "closing");
    return out;
}

int ControlClient::daemon() const
{
    const auto peer = peer_of(fd_.get());
    return peer.has_value() ? peer->pid : 0;
}

namespace {

// As find_mounted_volume(); adds the daemon to `silent` when it lives and does not answer.
std::optional<MountedVolume> ask_daemon(const Uuid& volume, std::vector<int>& silent)
{
    auto client = ControlClient::connect(volume);
    if (client.err() == Err::kBusy)
        silent.push_back(0);
    if (!client.ok())
        return std::nullopt;
    auto mounted = client->mounted_volume();
    if (mounted.err() == Err::kInterrupted)
        silent.push_back(client->daemon());
    if (!mounted.ok())
        return std::nullopt;
    return mounted.take();
}

}  // namespace

std::optional<MountedVolume> find_mounted_volume(const Uuid& volume)
{
    std::vector<int> ignored;
    return ask_daemon(volume, ignored);
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
    std::optional<MountedVolume> found;
    for (MountedVolume& mounted : list_mounted_volumes()) {
        if (name != "UUID=" + uuid_text(mounted.uuid) && name != "LABEL=" + mounted.label)
            continue;
        if (found.has_value())
            return std::nullopt;
        found = std::move(mounted);
    }
    return found;
}

std::vector<MountedVolume> list_mounted_volumes(std::vector<int>* silent)
{
    std::vector<MountedVolume> out;
    std::vector<int> not_answering;
    std::set<Uuid> asked;
    for (const ControlSocket& socket : control_sockets()) {
        if (!asked.insert(socket.volume).second)
            continue;
        if (auto mounted = ask_daemon(socket.volume, not_answering); mounted.has_value())
            out.push_back(std::move(*mounted));
    }
    if (silent != nullptr)
        *silent = std::move(not_answering);
    return out;
}

}  // namespace cowraid
