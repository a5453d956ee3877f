// SPDX-License-Identifier: MIT
// The control socket of a mounted volume: who may ask, how many at once, and the bounds of a request. What
// the commands do is the handler's.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/unique_fd.h"
#include "control/json.h"

namespace cowraid {

struct ControlRequest {
    std::string command;
    Json body;  // an object: the command and its arguments
    UniqueFd descriptor;  // that came with it, or invalid
};

struct ControlAnswer {
    Json result;  // an object; null: an empty one
    // The connection stays open and silent after this answer, until announce() or the end of the program.
    bool hold = false;
};

class ControlHandler {
public:
    virtual ~ControlHandler() = default;
    // Carries out one command; called by one thread per client. On failure `why` is one line for the user.
    virtual Status handle(ControlRequest& request, ControlAnswer& answer, std::string& why) = 0;
};

struct ControlOptions {
    std::string path;  // of the socket; its directory must exist and be private
    uid_t owner = 0;  // may connect besides root
    uint32_t clients_max = 16;
    uint32_t held_max = 48;  // beside these, that are on hold
    uint32_t deadline_milliseconds = 5000;  // to send a request, and to take an answer
};

// Removes the sockets and directories of daemons that are gone. Under lock_control_directory().
void remove_dead_control_sockets();

class ControlServer {
public:
    // Listens and serves from a thread of its own. A dead socket at the path is replaced; kBusy when a
    // living server answers there. `handler` must outlive the server.
    static Result<std::unique_ptr<ControlServer>> start(const ControlOptions& options,
                                                        ControlHandler& handler);
    // Disconnects every client and waits for running commands. Leaves the socket file to its owner.
    ~ControlServer();
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;

    // Sends `message` as one more answer to every client on hold, which each is when it has its answer.
    // Thread-safe.
    void announce(const json_t* message);

private:
    struct Client;
    ControlServer(ControlOptions options, ControlHandler& handler);

    void accept_loop();
    void accept_one();
    void admit(UniqueFd fd);
    void drop_finished() CW_REQUIRES(mutex_);
    void serve_client(Client& client);
    static void* client_main(void* client);
    bool serve_request(Client& client);
    void hold(Client& client, const json_t* answer);
    void send(Client& client, const json_t* message, uint32_t milliseconds);
    void send(Client& client, const json_t* message);

    const ControlOptions options_;
    ControlHandler& handler_;
    UniqueFd listener_;
    UniqueFd stop_event_;  // readable once the server stops
    Thread acceptor_;
    Mutex mutex_{LockRank::kSession};
    std::vector<std::unique_ptr<Client>> clients_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
