// SPDX-License-Identifier: MIT
// What mkfs.cowraid is asked to do, checked before anything is touched.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "fs/make_volume.h"
#include "tools/common/new_member.h"
#include "tools/common/report_error.h"

namespace cowraid {

struct MkfsArguments {
    std::vector<std::string> devices, spares;
    std::optional<std::string> data_profile, metadata_profile, label, uuid, chunk_size, compression;
    bool force = false;
    bool nodiscard = false;
    bool quiet = false;
    OutputFormat format = OutputFormat::kText;
};

// Everything that follows from the words alone: profiles (defaults by the number of devices: single, raid1,
// raid5, raid6 for 1, 2, 3, more), widths, label, uuid, chunk size, compression. kInvalid with one line in
// `why`; `warnings` tells what is allowed but unwise.
Result<MakeOptions> plan_volume(const MkfsArguments& arguments, std::vector<std::string>& warnings,
                                std::string& why);

// Opens every device exclusively, the spares last, and refuses what is named twice, in use, too small or,
// unless `force`, not empty. Changes nothing. `why` names the device and the next step.
Result<std::vector<NewMember>> open_mkfs_devices(const MkfsArguments& arguments, std::string& why);

// kExists with `why` when another volume of this uuid is around.
Status check_uuid_is_new(const Uuid& uuid, const std::vector<NewMember>& devices, std::string& why);

}  // namespace cowraid
