// SPDX-License-Identifier: MIT
// Finding the members of a volume: any one of them, or the label or uuid, is enough.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/uuid.h"
#include "format/superblock_codec.h"

namespace cowraid {

struct FoundMember {
    std::string path;
    Superblock superblock;  // its own newest copy
};

// Where to look besides the block devices of the machine.
struct ScanOptions {
    std::vector<std::string> directories;  // regular files in them may be members; not searched deeper
    std::vector<std::string> paths;  // single files or devices
    // Off for tests that must see only the above.
    enum class BlockDevices : uint8_t { kSearch, kSkip } block_devices = BlockDevices::kSearch;
};

// Every device and file that carries a superblock of any volume, by rising volume uuid, member id, path.
// Reads the superblock rings only. Devices with others on top (device mapper) and files attached to a loop
// device are left out in favour of those. What cannot be opened or read is passed over; `denied_count` counts
// what this user may not open.
std::vector<FoundMember> scan_members(const ScanOptions& options, size_t* denied_count = nullptr);

// The member at `path`. kNotFound when it is none; other errors as for opening. `why` on failure.
Result<FoundMember> inspect_member(const std::string& path, std::string& why);

// All members found of the volume that `name` means: a path of any member (files in its directory are looked
// at too), a uuid, or a label; the latter two also behind "UUID=" and "LABEL=". kNotFound: nothing of that
// name; kInvalid: a label of several volumes, whose uuids `why` lists. One line in `why` on failure.
Result<std::vector<FoundMember>> scan_for(const std::string& name, ScanOptions options, std::string& why);

}  // namespace cowraid
