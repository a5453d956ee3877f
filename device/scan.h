// SPDX-License-Identifier: MIT
// Finding the members of a volume: any one of them, or the label or uuid, is enough.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/uuid.h"
#include "device/block_device.h"
#include "format/superblock_codec.h"

namespace cowraid {

struct FoundMember {
    std::string path;
    Superblock superblock;  // its own newest copy
    bool named = false;  // by the user, by this path or another; set by who knows
    // Of a file that nobody named: its owner, who must still own it when it is opened.
    std::optional<uid_t> owner;
};

// A directory whose regular files may be members if they belong to `owner` or root; not searched deeper.
struct ScanDirectory {
    std::string path;
    uid_t owner = 0;
};

// Where to look besides the block devices of the machine.
struct ScanOptions {
    std::vector<ScanDirectory> directories;
    std::vector<std::string> paths;  // single files or devices
    // Off for tests that must see only the above.
    enum class BlockDevices : uint8_t { kSearch, kSkip } block_devices = BlockDevices::kSearch;
};

struct ScanResult {
    std::vector<FoundMember> members;  // by rising volume uuid, member id, path
    std::vector<FoundMember> foreign;  // files in a directory of `options` that belong to somebody else
    std::vector<std::string> notes;  // one line each about what was left out
    std::vector<std::string> silent;  // paths of what did not answer in time; `notes` has a line of each
    std::vector<std::string> denied;  // paths of devices that this user may not open
};

// Every device and file that carries a superblock of any volume. Reads the superblock rings only. Devices
// with others on top (device mapper) and files attached to a loop device are left out in favour of those.
// What cannot be opened or read is passed over; so is what does not answer for ten seconds. 64 are asked at
// once.
ScanResult scan_members(const ScanOptions& options);

struct InspectedMember {
    Result<FoundMember> member;
    std::string why;  // on failure
    bool silent = false;
};

// The members at these paths, 64 looked at at once. kNotFound: none; kWouldWait: it did not answer for ten
// seconds; kIo: it cannot be read; other errors as for opening. By one thread at a time, as all here.
std::vector<InspectedMember> inspect_members(std::span<const std::string> paths);
// The same of one. `why` on failure.
Result<FoundMember> inspect_member(const std::string& path, std::string& why);

// The same of a device that is open; its name stands for its path.
Result<FoundMember> inspect_device(BlockDevice& device, std::string& why);

// All members found of the volume that `name` means: a path of any member, a uuid, or a label; the latter two
// also behind "UUID=" and "LABEL=". Beside an image file its directory is looked at, unless others than the
// file's owner and root can put files there. kNotFound: nothing of that name; kAccess: nor may all devices be
// read; kInvalid: a label of several volumes, whose uuids `why` lists. One line in `why` on failure.
Result<ScanResult> scan_for(const std::string& name, ScanOptions options, std::string& why);

}  // namespace cowraid
