// SPDX-License-Identifier: MIT
// Makes a new volume on devices: what mkfs.cowraid and the simulator call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/uuid.h"
#include "device/block_device.h"
#include "format/group_map.h"

namespace cowraid {

struct MakeOptions {
    std::string label;  // at most kLabelBytes - 1 bytes
    Uuid volume_uuid;  // all zero: a random one
    ProfileId data_profile = ProfileId::kSingle;
    ProfileId metadata_profile = ProfileId::kSingle;
    uint32_t chunk_bytes = 64 * 1024;  // power of two, 4 KiB..1 MiB
    uint64_t created_seconds = 0;  // 0: now
    uint64_t intent_log_bytes = 0;  // whole blocks, at most what the layout has room for; 0: that
    uint32_t root_uid = 0, root_gid = 0;  // owner of the root directory
    bool compress = false;  // the root directory asks for it, and so does what is made in it
};

struct MakeResult {
    Uuid volume_uuid;
    uint64_t raw_bytes = 0;  // sum of the members
    uint64_t available_bytes = 0;  // what can be written, as statfs would say
};

// Data profile and metadata profile a user gets who named none: by the number of members and the data
// profile (raid1 metadata with raid5, raid1c3 with raid6).
ProfileId default_metadata_profile(ProfileId data_profile, size_t member_count);

struct MakeDevice {
    std::string name;
    uint64_t size_bytes;
};

// Whether make_volume() takes devices of these sizes, for who erases them before it: their number, sizes, and
// room for the first groups. `why` as there.
Status check_make(const MakeOptions& options, const std::vector<MakeDevice>& devices,
                  const std::vector<MakeDevice>& spares, std::string& why);

// Writes an empty filesystem (root directory only) as generation 1 on all devices. Members must be at least
// kMinMemberBytes; profiles need their minimum number of members. On failure `why` holds one line with the
// next step. Old superblocks of any volume on the devices are overwritten first.
// `spares`: devices held in reserve, likewise; each at least as large as the smallest member.
Result<MakeResult> make_volume(std::vector<std::unique_ptr<BlockDevice>>& devices, const MakeOptions& options,
                               std::string& why, std::vector<std::unique_ptr<BlockDevice>> spares = {});

}  // namespace cowraid
