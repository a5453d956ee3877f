// SPDX-License-Identifier: MIT
// Command words may be shortened as long as one command is meant.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cowraid {

struct PrefixMatch {
    std::vector<size_t> candidates;  // indices into the words; exactly one: that is it

    [[nodiscard]] bool unique() const { return candidates.size() == 1; }
};

// The words that begin with `typed`; a word equal to it wins alone. An empty `typed` matches nothing.
PrefixMatch match_prefix(std::span<const std::string_view> words, std::string_view typed);

// Which of the words is meant by a mistyped one: the one with the fewest letters changed, left out, added or
// swapped with their neighbour, when these are a third of what was typed or fewer, at least one. Nothing:
// none is near.
std::optional<size_t> nearest_word(std::span<const std::string_view> words, std::string_view typed);

}  // namespace cowraid
