// SPDX-License-Identifier: MIT
// What a mounted volume answers on its control socket.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "control/control.h"
#include "control/events.h"
#include "fs/commit/memory_pace.h"
#include "fs/filesystem.h"

namespace cowraid {

// Commands: mount, info, status (info, and scrub, catch_up, balance and replace), sync, stats-reset,
// member-stats-reset (member; both answer as info did before it), layout and stripe-layout (from: an address,
// 0 at first; answer with some groups and `next`), remount (read_only: true|false), scrub-start (repair:
// true|false, limit: bytes a second, plan: full, percent, new, bad; percent, older_than: seconds),
// scrub-status, scrub-pause, scrub-resume, scrub-cancel (each answers with the status), damage (which files
// the list of damage is about), balance-status, balance (action: start, remove, pause, resume, cancel;
// answers with the status. start: data_profile, metadata_profile, data, metadata, system, and data_filter and
// the like, convert, force; without a profile it stays as it is, metadata rises to what data tolerate.
// remove: member. start-filtered: start, for daemons that know filters), balance-plan (start and remove: what
// they would do), device-add (path, with the device's descriptor, open as open_member_fd() opens; answers
// with the member; with check and size_bytes: whether it could be one), device-online (the same, or only
// member: on the device that it had), device-offline (member), device-replace (as device-add, with member),
// replace-cancel (answers with the status of the replacement), shutdown-wait (holds the connection; what
// announces the end has the last events, too), events (since: a sequence; answers with those behind it, how
// many were dropped, and whether the volume is degraded).
class VolumeControl final : public ControlHandler {
public:
    // `filesystem` must live until close_gate() has returned, and nobody looks for events.
    VolumeControl(Filesystem& filesystem, std::string mount_point);

    // Which mount it is; known only after mounting.
    void set_device(std::string device);
    // Whoever mounted it named all devices: a new one is found by the next mount only if it is named, too.
    void set_named_devices() { named_devices_.store(true); }
    // Waits for commands that use the filesystem and refuses later ones.
    void close_gate();

    Status handle(ControlRequest& request, ControlAnswer& answer, std::string& why) override;

    // Logs what happened since the last call, for `events`. One thread. `closed`: the filesystem is, and only
    // what its works came to is looked at.
    void look_for_events(bool closed = false);
    // The newest events, as `events` answers.
    void put_last_events(json_t* out) const { put_events(events_.newest(), out); }

private:
    struct Command {
        std::string_view name;
        // False: answers even while the volume closes.
        bool needs_filesystem;
        // For members, perhaps: at most kWaitingMax of these are carried out at a time.
        bool waits;
        Status (VolumeControl::*run)(ControlRequest& request, ControlAnswer& answer, std::string& why);
    };
    static const Command kCommands[];
    // Fewer than clients of the socket.
    static constexpr uint32_t kWaitingMax = 12;

    Status run_waiting(const Command& command, ControlRequest& request, ControlAnswer& answer,
                       std::string& why);

    Status mount(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status info(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status status(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status layout(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status extents(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status sync(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status stats_reset(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status remount(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status scrub_start(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status scrub_status(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status scrub_pause(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status scrub_resume(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status scrub_cancel(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status damage(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status balance_status(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status balance(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Result<BalanceOptions> balance_options(const json_t* request, std::string& why);
    Result<BalanceOptions> member_options(const json_t* request, uint64_t shrink_bytes, std::string& why);
    Result<BalanceOptions> wanted_balance(const json_t* request, std::string& why);
    Status balance_plan(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status refuse_own(const UniqueFd& descriptor, std::string& why);
    Result<std::unique_ptr<BlockDevice>> device_of(ControlRequest& request, std::string& why);
    Status device_add(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status spare_remove(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status device_replace(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status replace_plan(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status replace_cancel(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status device_online(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status device_offline(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status member_grow(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status member_grow_plan(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status answer_growth(MemberId member, const Result<uint64_t>& grown, ControlAnswer& answer,
                         std::string& why);
    Status answer_device(const ControlRequest& request, Status status, MemberId member, ControlAnswer& answer,
                         std::string& why);
    void put_room(const json_t* request, json_t* answer);
    // Why a command that writes is refused.
    std::string not_writable(Err err, const char* otherwise = "");
    Status answer_scrub(Status status, const std::string& refusal, ControlAnswer& answer, std::string& why);
    Status change_scrub(Status (Scrub::*change)(), const char* refusal, ControlAnswer& answer,
                        std::string& why);
    Status shutdown_wait(ControlRequest& request, ControlAnswer& answer, std::string& why);
    Status events(ControlRequest& request, ControlAnswer& answer, std::string& why);
    static void put_events(const EventLog::Answer& found, json_t* out);
    VolumeReport report();
    VolumeStatus volume_status();

    Filesystem& filesystem_;
    const Uuid uuid_;
    const std::string label_;
    const std::string mount_point_;
    RwLock gate_{LockRank::kSession};  // shared by commands that use the filesystem
    std::atomic<bool> closing_{false};
    std::atomic<bool> named_devices_{false};
    std::atomic<uint32_t> waiting_{0};  // commands that may wait for members
    Mutex device_mutex_{LockRank::kLeaf};
    std::string device_ CW_GUARDED_BY(device_mutex_);
    EventFinder finder_;  // of who looks for events, as the next two
    MemoryPace memory_;
    VolumeReport looked_at_;
    EventLog events_;
    std::atomic<bool> degraded_{false};  // at the last look
};

}  // namespace cowraid
