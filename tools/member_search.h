// SPDX-License-Identifier: MIT
// From the name of a volume to its members.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "base/uuid.h"
#include "device/block_device.h"
#include "device/scan.h"
#include "tools/volume_spec.h"

namespace cowraid {

struct VolumeMembers {
    Uuid uuid;
    std::string label;
    std::vector<FoundMember> members;  // by rising member id
    std::vector<std::string> named;  // paths that the user gave, absolute
};

// Looks at every path named, then for the rest of that volume on all block devices (and beside image files).
// A named member wins over a copy of it that was only found. kInvalid when the paths are of different
// volumes; other errors as scan_for(). `why` holds one line.
Result<VolumeMembers> find_volume(const VolumeSpec& spec, std::string& why);

struct OpenedMember {
    std::string path;
    UniqueFd fd;
};

enum class MemberAccess : uint8_t {
    kReadWrite,
    kReadWriteIfPossible,  // read-only where a member is write-protected
    kReadOnly,
    kLook,  // read-only and beside whoever has the member open
};

// Opens the members. A member in use fails the whole (kBusy); a member that was only found and does not open
// for another reason is left out with a line in `warnings`.
Result<std::vector<OpenedMember>> open_members(const VolumeMembers& volume, MemberAccess access,
                                               std::vector<std::string>& warnings, std::string& why);

// The same as devices for use in this process.
Result<std::vector<std::unique_ptr<BlockDevice>>> open_member_devices(const VolumeMembers& volume,
                                                                      MemberAccess access,
                                                                      std::vector<std::string>& warnings,
                                                                      std::string& why);

}  // namespace cowraid
