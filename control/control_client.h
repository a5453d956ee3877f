// SPDX-License-Identifier: MIT
// Talks to the daemons of mounted volumes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "base/uuid.h"
#include "control/json.h"

namespace cowraid {

// What a daemon says of its mount without touching the volume.
struct MountedVolume {
    Uuid uuid;
    std::string label;
    std::string mount_point;
    std::string device;  // "major:minor" of the mount; empty while it starts
    int pid = 0;  // of the daemon
    bool closing = false;  // unmounted, writing its last commit
};

class ControlClient {
public:
    // kNotFound: neither this user nor root serves this volume. kAccess: not ours to ask. kBusy: its daemon
    // stands still, and so many wait for it that no more can.
    static Result<ControlClient> connect(const Uuid& volume);

    // Sends {"command": command} with the members of `arguments` (may be null) and waits for the answer
    // without limit, because a sync may take long. A copy of `descriptor` goes with it, unless that is
    // negative. On failure `why` is what the daemon said.
    Result<Json> call(const std::string& command, const json_t* arguments, std::string& why,
                      int descriptor = -1);
    // The same for commands that wait for nothing: "mount", "info", "status", "layout",
    // "scrub-status", "balance-status", "events" and "shutdown-wait".
    // kInterrupted after ten seconds without an answer; the next question takes another connection.
    Result<Json> ask(const std::string& command, std::string& why, const json_t* arguments = nullptr);
    // Until an answer begins on a held connection, or its end; kInterrupted after `milliseconds`.
    Status wait(uint32_t milliseconds);
    // One more answer on a held connection; kInterrupted after `milliseconds` (0: no limit), kNotFound when
    // the daemon closed it. After an error the connection is of no use.
    Result<Json> next(uint32_t milliseconds);
    // A daemon answers this whatever its members do.
    Result<MountedVolume> mounted_volume();
    // Process id of the daemon, of which it is not asked; 0 when it cannot be told.
    [[nodiscard]] int daemon() const { return daemon_; }

private:
    friend class DaemonSearch;

    ControlClient(const Uuid& volume, UniqueFd fd);
    // Connects again when the connection ended before this request. A request that was sent is never sent
    // again: the daemon may have taken it. kNotFound: there is no daemon any more, or it is another one.
    Status send(const std::string& command, const json_t* arguments, int descriptor, std::string& why);
    Status connect_again();
    Result<Json> receive(uint32_t milliseconds, std::string& why);
    static Result<MountedVolume> decode_mount(const Json& result);

    Uuid volume_;
    UniqueFd fd_;
    int daemon_;
};

// How long a daemon is given for an answer that waits for nothing.
inline constexpr uint32_t kAskMilliseconds = 10'000;

// Every volume that a daemon serves now. `silent` gets the process ids of daemons that live and do not
// answer within `milliseconds`; 0 for one whose id cannot be told.
std::vector<MountedVolume> list_mounted_volumes(std::vector<int>* silent = nullptr,
                                                uint32_t milliseconds = kAskMilliseconds);
// That of the mount `device`; daemons of others are not waited for once it has answered. `silent` as above
// when it is not found, else empty.
std::optional<MountedVolume> find_mount_of_device(const std::string& device,
                                                  std::vector<int>* silent = nullptr);
std::optional<MountedVolume> find_mounted_volume(const Uuid& volume);
// "mounted at /mnt", "mounted at /mnt in another mount namespace (that of pid 7)", or "lazily unmounted from
// /mnt, and its daemon (pid 9) goes on: in use by pid 12".
std::string where_mounted(const MountedVolume& volume);
// "volume 'LABEL'", or by its uuid when it has none.
std::string title_of(const MountedVolume& volume);
// By "UUID=..." or "LABEL=..." (VolumeSpec::name); nothing unless exactly one is mounted. By label nothing
// either while a daemon does not answer: its volume may have it, too.
std::optional<MountedVolume> find_mounted_volume(const std::string& name);

}  // namespace cowraid
