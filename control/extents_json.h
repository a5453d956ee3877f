// SPDX-License-Identifier: MIT
// FileExtents as JSON and back.
#pragma once

#include "control/json.h"
#include "fs/file_extents.h"

namespace cowraid {

Json encode_file_extents(const FileExtents& extents);
// kInvalid when it is not such an object.
Result<FileExtents> decode_file_extents(const json_t* object);

}  // namespace cowraid
