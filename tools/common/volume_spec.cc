// SPDX-License-Identifier: MIT
#include "tools/common/volume_spec.h"

#include <sys/stat.h>

#include <algorithm>
#include <string_view>

#include "base/uuid.h"

namespace cowraid {

namespace {

constexpr std::string_view kScheme = "cowraid:";

bool exists_as_member(const std::string& path)
{
    struct stat info { };
    return stat(path.c_str(), &info) == 0 && (S_ISBLK(info.st_mode) || S_ISREG(info.st_mode));
}

VolumeSpec named(std::string_view name)
{
    if (name.starts_with("UUID=") || name.starts_with("LABEL="))
        return {.paths = {}, .name = std::string(name)};
    const char* prefix = uuid_parse(name).ok() ? "UUID=" : "LABEL=";
    return {.paths = {}, .name = prefix + std::string(name)};
}

// Names under /dev/disk/by-path contain colons: absolute paths are cut only where the next one begins.
std::vector<std::string> cut_at_colons(const std::string& text)
{
    const std::string_view separator = text.find(":/") != std::string::npos ? ":/" : ":";
    std::vector<std::string> pieces;
    size_t begin = 0;
    for (;;) {
        const size_t at = text.find(separator, begin);
        pieces.push_back(text.substr(begin, at == std::string::npos ? at : at - begin));
        if (at == std::string::npos)
            return pieces;
        begin = at + 1;
    }
}

}  // namespace

Result<VolumeSpec> parse_volume_spec(const std::vector<std::string>& operands, std::string& why)
{
    if (operands.empty() || std::any_of(operands.begin(), operands.end(),
                                        [](const std::string& operand) { return operand.empty(); })) {
        why = "no volume named; give a member, a label or a uuid";
        return Err::kInvalid;
    }
    if (operands.size() > 1)
        return VolumeSpec{.paths = operands, .name = {}};
    const std::string& text = operands.front();
    if (text.starts_with(kScheme) && text.size() > kScheme.size())
        return named(std::string_view(text).substr(kScheme.size()));
    if (exists_as_member(text))
        return VolumeSpec{.paths = {text}, .name = {}};
    const bool tagged = text.starts_with("UUID=") || text.starts_with("LABEL=");
    if (tagged || (text.find('/') == std::string::npos && text.find(':') == std::string::npos))
        return named(text);
    VolumeSpec spec{.paths = cut_at_colons(text), .name = {}};
    for (const std::string& path : spec.paths) {
        if (!path.empty())
            continue;
        why = "'" + text + "' has an empty member name; separate members by single colons";
        return Err::kInvalid;
    }
    return spec;
}

}  // namespace cowraid
