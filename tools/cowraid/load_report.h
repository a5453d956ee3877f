// SPDX-License-Identifier: MIT
// What there is to know of a volume: from its daemon when it is mounted, else from its members.
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "control/control_client.h"
#include "control/layout_json.h"
#include "control/volume_json.h"
#include "tools/common/member_search.h"

namespace cowraid {

// A volume that a command line named.
struct VolumeTarget {
    Uuid uuid;
    bool mounted = false;
    VolumeMembers members;  // empty when named by a mount point
    std::string named_device;  // absolute path when exactly one member was named
};

// "major:minor" of the device that the file is on, as MountedVolume::device.
std::string device_text(const struct stat& info);

// The mounted volume of that device, on which `text` is. kAccess: somebody else mounted it, as `why` says.
// kNotFound: none is; `why` ends in `advice`.
Result<VolumeTarget> target_of_device(const std::string& text, const std::string& device, const char* advice,
                                      std::string& why);

// For commands that need a volume nobody has mounted. One operand is as for find_target(), several are
// members. kBusy when it is mounted and that is refused: `why` ends in `advice`, behind "unmount it".
enum class Mounted : uint8_t { kRefused, kAllowed };
Result<VolumeMembers> find_unmounted(const std::vector<std::string>& operands, Mounted mounted,
                                     const char* advice, std::string& why);

// One operand is a directory in a mounted volume, a member, a label or a uuid; several (at least one) are
// members. Errors as find_volume(); `why` is one line with the next step.
Result<VolumeTarget> find_target(const std::vector<std::string>& operands, std::string& why);

// Asks the daemon, or reads superblocks and opens the trees read-only (an unreadable tree costs the usage
// numbers only; VolumeReport::problem says so).
Result<VolumeReport> load_report(const VolumeTarget& target, std::string& why);
Result<VolumeReport> load_mounted_report(const Uuid& uuid, std::string& why);
Result<VolumeReport> load_offline_report(const VolumeMembers& members, std::string& why);

// Where the block groups lie. Of a mounted volume the daemon is asked, else the trees are opened.
Result<VolumeLayout> load_layout(const VolumeTarget& target, Occupancy occupancy, std::string& why);

// A connection to the daemon of a mounted target. kNotFound, with `why`, when it is not mounted.
Result<ControlClient> connect_target(const VolumeTarget& target, std::string& why);

}  // namespace cowraid
