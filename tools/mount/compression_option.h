// SPDX-License-Identifier: MIT
// compress= and compress-force=, as users of btrfs know them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "fs/volume/mount_options.h"

namespace cowraid {

// "zstd", "zstd:LEVEL", or nothing (zstd); "no", "none" and "off" turn compression off. kInvalid with one
// line in `why`.
Status parse_compression(std::string_view name, std::string_view value, CompressionChoice& choice,
                         std::string& why);
// As the option is written: "compress=zstd:3".
std::string compression_text(const CompressionChoice& choice);

}  // namespace cowraid
