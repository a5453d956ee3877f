// SPDX-License-Identifier: MIT
// Separation of privileges: the daemon, which parses what is on the members and answers the mount's users,
// gives up its own (tools/mount/confinement.h). A second process, which never sees those bytes, keeps what
// two things need: detaching the mount, and starting the process that drops pages.
//   daemon -> monitor: kDetach (device number of the mount)
//   daemon -> monitor: kStartDropper (descriptor of the FUSE connection)
//   monitor -> daemon: kDone or kFailed, for a dropper with its channel
// The monitor is a child of the daemon and ends with it.
#pragma once

#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "fuse/page_dropper.h"

namespace cowraid {

// The name by which the program is started for this; main() then calls mount_monitor_main().
inline constexpr const char* kMountMonitorName = "cowraid-mount-monitor";
int mount_monitor_main(const std::string& directory);

// The daemon's side. Thread-safe.
class MountMonitor final : public PageDropperHost {
public:
    // Before the daemon has threads, members or confinement. The monitor has given up what it does not need
    // when this returns. False: no process could be had.
    bool start(const std::string& directory);

    // Detaches the mount from the monitor's directory, as detach_mount() does, and takes it out of libmount's
    // table. kBusy: it is in use, or another mount is there. kIo, kNotFound: the monitor is gone.
    Status detach(const std::string& device);
    UniqueFd start_page_dropper(int connection) override;

private:
    UniqueFd channel_;
    Mutex mutex_{LockRank::kSession};  // one question at a time
};

}  // namespace cowraid
