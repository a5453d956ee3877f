// SPDX-License-Identifier: MIT
#include "base/text.h"

#include <unistd.h>

#include <cctype>
#include <climits>
#include <cstdio>

#include "base/units.h"

namespace cowraid {

namespace {

constexpr const char* kIecUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
constexpr const char* kSiUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
constexpr std::string_view kSuffixes = "kmgtpe";

std::string scaled_text(uint64_t bytes, double base, const char* const* units)
{
    auto value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= base && unit + 1 < std::size(kIecUnits)) {
        value /= base;
        ++unit;
    }
    char text[32];
    snprintf(text, sizeof text, "%.2f%s", value, units[unit]);
    return text;
}

}  // namespace

std::string size_text(uint64_t bytes, SizeStyle style)
{
    switch (style) {
    case SizeStyle::kIec:
        return scaled_text(bytes, 1024, kIecUnits);
    case SizeStyle::kSi:
        return scaled_text(bytes, 1000, kSiUnits);
    case SizeStyle::kRaw:
        break;
    }
    return std::to_string(bytes);
}

Result<uint64_t> parse_number(std::string_view text)
{
    if (text.empty())
        return Err::kInvalid;
    uint64_t value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9')
            return Err::kInvalid;
        const auto digit = static_cast<uint64_t>(c - '0');
        if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return Err::kRange;
    }
    return value;
}

Result<uint64_t> parse_size(std::string_view text)
{
    if (text.ends_with('B') || text.ends_with('b')) {
        text.remove_suffix(1);
        if (text.ends_with('i'))
            text.remove_suffix(1);
    }
    unsigned shift = 0;
    if (!text.empty()) {
        const size_t suffix = kSuffixes.find(static_cast<char>(tolower(text.back())));
        if (suffix != std::string_view::npos) {
            shift = 10 * static_cast<unsigned>(suffix + 1);
            text.remove_suffix(1);
        }
    }
    CW_ASSIGN(const uint64_t value, parse_number(text));
    if (shift != 0 && (value >> (64 - shift)) != 0)
        return Err::kRange;
    return value << shift;
}

std::vector<std::string_view> split(std::string_view text, char separator)
{
    std::vector<std::string_view> pieces;
    for (;;) {
        const size_t at = text.find(separator);
        pieces.push_back(text.substr(0, at));
        if (at == std::string_view::npos)
            return pieces;
        text.remove_prefix(at + 1);
    }
}

std::string join_words(const std::vector<std::string>& words)
{
    if (words.empty())
        return "nothing";
    std::string out;
    for (size_t i = 0; i < words.size(); ++i) {
        if (i != 0)
            out += i + 1 == words.size() ? " and " : ", ";
        out += words[i];
    }
    return out;
}

std::string count_text(uint64_t count, const std::string& noun)
{
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string quoted(std::string_view text)
{
    std::string out = "'";
    for (const char c : text) {
        if (c == '\'' || c == '\\')
            out += '\\';
        out += c;
    }
    return out + "'";
}

std::string shell_word(std::string_view text)
{
    constexpr std::string_view kPlain =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._:+,@=-";
    if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos)
        return std::string(text);
    std::string out = "'";
    for (const char c : text)
        out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

std::string absolute_path(const std::string& path)
{
    char working[PATH_MAX];
    if (path.empty() || path[0] == '/' || getcwd(working, sizeof working) == nullptr)
        return path;
    const std::string_view directory(working);
    return std::string(directory == "/" ? "" : directory) + "/" + path;
}

}  // namespace cowraid
