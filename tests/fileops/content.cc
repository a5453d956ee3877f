// SPDX-License-Identifier: MIT
#include "tests/fileops/content.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/assert.h"

namespace cowraid::test {

namespace {

constexpr size_t kPoolBytes = 2 * Content::kBytesMax;
constexpr size_t kMixedBytes = 3 * 4096 + 100;  // of one kind, then of the other

std::vector<std::byte> make_text()
{
    std::vector<std::byte> text;
    char line[80];
    for (unsigned number = 0; text.size() < kPoolBytes; ++number) {
        const int length = snprintf(line, sizeof line, "line %u: what is in it compresses well\n", number);
        const auto* begin = reinterpret_cast<const std::byte*>(line);
        text.insert(text.end(), begin, begin + length);
    }
    text.resize(kPoolBytes);
    return text;
}

}  // namespace

Content::Content(uint64_t seed) : random_(kPoolBytes), text_(make_text()), mixed_(text_), zeros_(kPoolBytes)
{
    Prng random(seed);
    random.fill(random_.data(), random_.size());
    for (size_t at = 0; at < kPoolBytes; at += 2 * kMixedBytes)
        memcpy(&mixed_[at], &random_[at], std::min(kMixedBytes, kPoolBytes - at));
}

std::span<const std::byte> Content::pick(Prng& random, size_t bytes) const
{
    CW_ASSERT(bytes <= kBytesMax);
    const std::vector<std::byte>* const pools[]{&random_, &random_, &random_, &text_,  &text_,
                                                &text_,   &mixed_,  &mixed_,  &mixed_, &zeros_};
    const std::vector<std::byte>& pool = *pools[random.below(std::size(pools))];
    return std::span(pool).subspan(random.below(kPoolBytes - bytes + 1), bytes);
}

}  // namespace cowraid::test
