// SPDX-License-Identifier: MIT
#include "tools/cowraid/prefix_match.h"

#include <algorithm>
#include <utility>

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

namespace {

// Letters changed, left out, added, or swapped with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b)
{
    std::vector<size_t> before, last, row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j)
        row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        before = std::move(last);
        last = row;
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
    }
    return row[b.size()];
}

}  // namespace

std::optional<size_t> nearest_word(std::span<const std::string_view> words, std::string_view typed)
{
    constexpr size_t kLettersMax = 64;  // of a word that anybody mistypes
    std::optional<size_t> nearest;
    if (typed.size() > kLettersMax)
        return nearest;
    size_t least = std::max<size_t>(typed.size() / 3, 1) + 1;
    for (size_t i = 0; i < words.size(); ++i) {
        const size_t distance = edit_distance(typed, words[i]);
        if (distance < least) {
            least = distance;
            nearest = i;
        }
    }
    return nearest;
}

}  // namespace cowraid
