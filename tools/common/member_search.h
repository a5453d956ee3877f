// SPDX-License-Identifier: MIT
// From the name of a volume to its members.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "base/uuid.h"
#include "device/assembly.h"
#include "device/open_member.h"
#include "device/scan.h"
#include "tools/common/volume_spec.h"

namespace cowraid {

// What to do with a named device that does not exist or cannot be read.
enum class Unusable : uint8_t { kRefuse, kSkip };

struct VolumeMembers {
    Uuid uuid;
    std::string label;
    std::vector<FoundMember> members;
    std::vector<std::string> named;  // paths that the user gave, absolute, each thing once
    std::vector<std::string>
        strangers;  // those of them that have no superblock; assemble() decides about them
    Unusable unusable = Unusable::kRefuse;
    std::vector<std::string> warnings;  // a line for each device that was skipped or not looked at
};

// Several paths, or one that is given twice, are the members to use: nothing else is looked for. One path, a
// label or a uuid lead to the rest of that volume on all block devices (and beside an image file); paths
// given with a label or uuid are looked at as well, and a member that was named wins over a copy of it that
// was only found. kInvalid when the paths are of different volumes or none is of any; other errors as
// scan_for(). `why` holds one line.
Result<VolumeMembers> find_volume(const VolumeSpec& spec, Unusable unusable, std::string& why);

// "; member 2 is /dev/x, which was not named": of block devices that are members, where several were named,
// which are the members to use; else empty.
std::string unnamed_members_text(const VolumeMembers& volume);

// As open_member_fd(), exclusively. A device under the superblock of a mount is opened beside it: that of the
// mount being made, or one whose daemon was killed while programs have files of it open. A daemon that lives
// has the member locked.
Result<UniqueFd> open_exclusively(const std::string& path, OpenOptions options, std::string& why);

struct OpenedMember {
    std::string path;
    UniqueFd fd;
    bool named = false;
};

enum class MemberAccess : uint8_t {
    kReadWrite,
    kReadWriteIfPossible,  // read-only where a member is write-protected
    kReadOnly,
    kLook,  // read-only and beside whoever has the member open
};

// Opens the members and strangers. A member in use fails the whole (kBusy); one that was only found and does
// not open for another reason is left out with a line in `warnings`, and so is what may be skipped. All
// warnings of the search are added first.
Result<std::vector<OpenedMember>> open_members(const VolumeMembers& volume, MemberAccess access,
                                               std::vector<std::string>& warnings, std::string& why);

// The same as devices for use in this process.
Result<std::vector<std::unique_ptr<BlockDevice>>> open_member_devices(const VolumeMembers& volume,
                                                                      MemberAccess access,
                                                                      std::vector<std::string>& warnings,
                                                                      std::string& why);

// What assemble() is told of them where a member may be missing or something else.
AssemblyOptions lenient_assembly(const VolumeMembers& volume);

}  // namespace cowraid
