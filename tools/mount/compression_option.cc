// SPDX-License-Identifier: MIT
#include "tools/mount/compression_option.h"

#include <charconv>

#include "base/zstd_frame.h"
#include "tools/common/report_error.h"

namespace cowraid {

Status parse_compression(std::string_view name, std::string_view value, CompressionChoice& choice,
                         std::string& why)
{
    if (value == "no" || value == "none" || value == "off") {
        choice = {};
        return {};
    }
    const size_t colon = value.find(':');
    const std::string_view algorithm = value.substr(0, colon);
    int level = CompressionChoice{}.level;
    bool right = value.empty() || algorithm == "zstd";
    if (right && colon != std::string_view::npos) {
        const std::string_view number = value.substr(colon + 1);
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), level);
        right = error == std::errc() && end == number.data() + number.size() && level >= kZstdLevelMin &&
                level <= kZstdLevelMax;
    }
    if (!right)
        return invalid(why, std::string(name) + "=" + std::string(value) +
                                ": give zstd, zstd:" + std::to_string(kZstdLevelMin) +
                                " to zstd:" + std::to_string(kZstdLevelMax) + ", or no");
    choice = {.on = true, .force = name == "compress-force", .level = static_cast<int8_t>(level)};
    return {};
}

std::string compression_text(const CompressionChoice& choice)
{
    if (!choice.on)
        return "compress=no";
    return std::string(choice.force ? "compress-force" : "compress") +
           "=zstd:" + std::to_string(choice.level);
}

}  // namespace cowraid
