// SPDX-License-Identifier: MIT
#include "control/control.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "control/control_frame.h"
#include "control/control_path.h"

namespace cowraid {

namespace {

constexpr int kBacklog = 16;

Json make_error(Err err, const std::string& why)
{
    Json error = json_make_object();
    const char* name = strerrorname_np(err_to_errno(err));
    json_put_text(error.get(), "code", name != nullptr ? name : "EIO");
    json_put_text(error.get(), "message", why.empty() ? err_text(err) : why);
    Json answer = json_make_object();
    json_put_flag(answer.get(), "ok", false);
    json_put(answer.get(), "error", std::move(error));
    return answer;
}

Json make_success(Json result)
{
    Json answer = json_make_object();
    json_put_flag(answer.get(), "ok", true);
    json_put(answer.get(), "result", result != nullptr ? std::move(result) : json_make_object());
    return answer;
}

bool address_of(const std::string& path, sockaddr_un& address)
{
    address = {};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return true;
}

// Does not wait for a server whose queue is full: there is one.
bool somebody_answers(const sockaddr_un& address)
{
    const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
           errno == EAGAIN;
}

Result<UniqueFd> listen_at(const std::string& path)
{
    sockaddr_un address;
    if (!address_of(path, address))
        return Err::kNameTooLong;
    if (somebody_answers(address))
        return Err::kBusy;
    unlink(path.c_str());
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid())
        return Err::kIo;
    const mode_t mask = umask(0177);
    const bool bound = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    umask(mask);
    if (!bound || listen(fd.get(), kBacklog) != 0)
        return errno == EACCES ? Err::kAccess : Err::kIo;
    return fd;
}

}  // namespace

void remove_dead_control_sockets()
{
    for (const ControlSocket& socket : control_sockets()) {
        sockaddr_un address;
        if (address_of(socket.path, address) && !somebody_answers(address))
            remove_control_socket(socket.path);
    }
}

struct ControlServer::Client {
    ControlServer* server;
    UniqueFd fd;
    Thread thread;
    std::atomic<bool> held{false};
    std::atomic<bool> finished{false};
};

ControlServer::ControlServer(ControlOptions options, ControlHandler& handler)
    : options_(std::move(options)), handler_(handler)
{
}

Result<std::unique_ptr<ControlServer>> ControlServer::start(const ControlOptions& options,
                                                            ControlHandler& handler)
{
    std::unique_ptr<ControlServer> server(new ControlServer(options, handler));
    CW_ASSIGN(server->listener_, listen_at(options.path));
    server->stop_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    if (!server->stop_event_.valid())
        return Err::kIo;
    ControlServer* const self = server.get();
    CW_TRY(server->acceptor_.start([self] { self->accept_loop(); }));
    return server;
}

ControlServer::~ControlServer()
{
    if (!acceptor_.started())
        return;
    eventfd_write(stop_event_.get(), 1);
    acceptor_.join();
    std::vector<std::unique_ptr<Client>> clients;
    {
        MutexLock lock(mutex_);
        clients.swap(clients_);
    }
    for (const auto& client : clients)
        shutdown(client->fd.get(), SHUT_RDWR);
    for (const auto& client : clients)
        client->thread.join();
}

void ControlServer::accept_loop()
{
    for (;;) {
        pollfd entries[] = {{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                            {.fd = stop_event_.get(), .events = POLLIN, .revents = 0}};
        if (poll(entries, std::size(entries), -1) < 0 && errno != EINTR)
            return;
        if (entries[1].revents != 0)
            return;
        if (entries[0].revents != 0)
            accept_one();
    }
}

void ControlServer::accept_one()
{
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) {
        // Out of descriptors or memory: the connection stays in the backlog, so do not spin on it.
        if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED)
            poll(nullptr, 0, 100);
        return;
    }
    ucred peer{};
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 ||
        (peer.uid != 0 && peer.uid != options_.owner)) {
        CW_LOG_WARNING("control socket: user %u is refused", peer.uid);
        return;
    }
    admit(std::move(fd));
}

void ControlServer::admit(UniqueFd fd)
{
    MutexLock lock(mutex_);
    drop_finished();
    auto client = std::make_unique<Client>();
    client->server = this;
    client->fd = std::move(fd);
    const auto held = static_cast<size_t>(
        std::count_if(clients_.begin(), clients_.end(), [](const auto& one) { return one->held.load(); }));
    if (clients_.size() - std::min<size_t>(held, options_.held_max) >= options_.clients_max) {
        send(*client, make_error(Err::kBusy, "too many clients of the control socket; try again").get());
        return;
    }
    if (!client->thread.start(client_main, client.get()).ok()) {
        send(*client, make_error(Err::kBusy, "the daemon can make no more threads; try again").get());
        return;
    }
    clients_.push_back(std::move(client));
}

void* ControlServer::client_main(void* client)
{
    auto* const self = static_cast<Client*>(client);
    self->server->serve_client(*self);
    self->finished.store(true);
    return nullptr;
}

void ControlServer::drop_finished()
{
    std::erase_if(clients_, [](const std::unique_ptr<Client>& client) {
        if (!client->finished.load())
            return false;
        client->thread.join();
        return true;
    });
}

void ControlServer::serve_client(Client& client)
{
    while (serve_request(client)) { }
    // The peer sees the end now, the descriptor goes when the client is dropped.
    shutdown(client.fd.get(), SHUT_RDWR);
}

// One request and its answer. False: the connection is finished.
bool ControlServer::serve_request(Client& client)
{
    const FrameLimits limits{.bytes_max = kControlRequestBytesMax,
                             .milliseconds = options_.deadline_milliseconds};
    ControlRequest request;
    const auto frame = read_frame(client.fd.get(), limits, &request.descriptor);
    if (!frame.ok()) {
        if (frame.err() == Err::kTooBig)
            send(client, make_error(Err::kTooBig, "request is empty or too large").get());
        return false;
    }
    if (auto parsed = json_parse_object(*frame); parsed.ok())
        request.body = parsed.take();
    request.command = json_get_text(request.body.get(), "command");
    if (request.command.empty()) {
        send(client, make_error(Err::kInvalid, "request is not a JSON object with a command").get());
        return false;
    }
    ControlAnswer answer;
    std::string why;
    const Status status = handler_.handle(request, answer, why);
    // Who has the answer may open the device again: what nobody took is let go before.
    request.descriptor = UniqueFd();
    if (!status.ok()) {
        send(client, make_error(status.err(), why).get());
        return true;
    }
    const Json success = make_success(std::move(answer.result));
    if (answer.hold) {
        hold(client, success.get());
        return false;
    }
    send(client, success.get());
    return true;
}

// Waits for the peer or the server to go away.
void ControlServer::hold(Client& client, const json_t* answer)
{
    {
        MutexLock no_announcement_between(mutex_);
        send(client, answer);
        client.held.store(true);
    }
    char ignored;
    ssize_t count;
    do
        count = recv(client.fd.get(), &ignored, 1, 0);
    while (count > 0 || (count < 0 && errno == EINTR));
    client.held.store(false);
}

void ControlServer::send(Client& client, const json_t* message)
{
    send(client, message, options_.deadline_milliseconds);
}

void ControlServer::send(Client& client, const json_t* message, uint32_t milliseconds)
{
    const FrameLimits limits{.bytes_max = kControlAnswerBytesMax, .milliseconds = milliseconds};
    // A peer that does not take its answer finds out by itself.
    if (write_frame(client.fd.get(), json_print(message), limits).err() == Err::kTooBig)
        write_frame(client.fd.get(), json_print(make_error(Err::kTooBig, "the answer is too large").get()),
                    limits)
            .ignore();
}

void ControlServer::announce(const json_t* message)
{
    // One deadline for all: those that do not read hold up an unmount no longer than one.
    const uint64_t end_ms = monotonic_ms() + options_.deadline_milliseconds;
    MutexLock lock(mutex_);
    for (const auto& client : clients_) {
        const uint64_t now_ms = monotonic_ms();
        if (client->held.load())
            send(*client, message, now_ms < end_ms ? static_cast<uint32_t>(end_ms - now_ms) : 1);
    }
}

}  // namespace cowraid
