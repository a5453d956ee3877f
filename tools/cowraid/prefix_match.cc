// SPDX-License-Identifier: MIT
#include "tools/cowraid/prefix_match.h"

namespace cowraid {

PrefixMatch match_prefix(std::span<const std::string_view> words, std::string_view typed)
{
    PrefixMatch match;
    if (typed.empty())
        return match;
    for (size_t i = 0; i < words.size(); ++i) {
        if (words[i] == typed)
            return {.candidates = {i}};
        if (words[i].starts_with(typed))
            match.candidates.push_back(i);
    }
    return match;
}

}  // namespace cowraid
