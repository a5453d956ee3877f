// SPDX-License-Identifier: MIT
// Numbers as people type and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cowraid {

enum class SizeStyle : uint8_t {
    kIec,  // 1.50GiB
    kSi,  // 1.61GB
    kRaw,  // 1610612736
};

std::string size_text(uint64_t bytes, SizeStyle style = SizeStyle::kIec);

// A whole number with an optional suffix k, m, g, t, p or e, base 1024, in either case, with or without "B"
// or "iB" behind it. kInvalid for anything else; kRange when it does not fit.
Result<uint64_t> parse_size(std::string_view text);
// A whole decimal number. kInvalid, kRange.
Result<uint64_t> parse_number(std::string_view text);

// The pieces of `text` between separators; an empty text has one empty piece.
std::vector<std::string_view> split(std::string_view text, char separator);
// "a, b and c"; "nothing" for none.
std::string join_words(const std::vector<std::string>& words);

// "1 block group", "3 block groups".
std::string count_text(uint64_t count, const std::string& noun);

// Between single quotes, those inside (and backslashes) behind a backslash: what follows is not part of it.
std::string quoted(std::string_view text);

// One word of a command line to be pasted into a shell, whatever is in it.
std::string shell_word(std::string_view text);

// A path with the working directory in front unless it is absolute. Follows no links.
std::string absolute_path(const std::string& path);

}  // namespace cowraid
