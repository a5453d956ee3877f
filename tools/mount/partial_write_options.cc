// SPDX-License-Identifier: MIT
#include "tools/mount/partial_write_options.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace cowraid {

namespace {

// Each sets its option, or says what it wants instead.
struct PartialWriteRule {
    std::string_view name;
    bool (*set)(std::string_view value, PartialWriteOptions& options);
    const char* wanted;
};

bool set_cache_size(std::string_view value, PartialWriteOptions& options)
{
    const auto stripes = parse_number(value);
    if (!stripes.ok() || *stripes < 17 || *stripes > 32768)
        return false;
    options.stripe_cache_size = static_cast<uint32_t>(*stripes);
    return true;
}

bool set_cache_bytes(std::string_view value, PartialWriteOptions& options)
{
    const auto bytes = parse_size(value);
    if (!bytes.ok() || *bytes < kMiB)
        return false;
    options.stripe_cache_bytes = *bytes;
    return true;
}

bool set_rmw_level(std::string_view value, PartialWriteOptions& options)
{
    const auto level = parse_number(value);
    if (!level.ok() || *level > 2)
        return false;
    options.rmw_level = static_cast<RmwLevel>(*level);
    return true;
}

bool set_io_size(std::string_view value, PartialWriteOptions& options)
{
    const auto bytes = parse_size(value);
    if (!bytes.ok() || !is_power_of_two(*bytes) || *bytes < kBlockBytes || *bytes > kMaxChunkBytes)
        return false;
    options.stripe_io_bytes = static_cast<uint32_t>(*bytes);
    return true;
}

bool set_plug(std::string_view value, PartialWriteOptions& options)
{
    options.plug = value == "on";
    return value == "on" || value == "off";
}

constexpr PartialWriteRule kPartialWriteRules[] = {
    {"stripe_cache_size", set_cache_size, "17 to 32768 stripes"},
    {"stripe_cache_bytes", set_cache_bytes, "a size of at least 1M, such as 256M"},
    {"rmw_level", set_rmw_level, "0 (never), 1 (where it reads less) or 2 (where it reads no more)"},
    {"stripe_io_size", set_io_size, "a power of two from 4K to 1M"},
    {"plug", set_plug, "on or off"},
};

const PartialWriteRule* find_partial_write_rule(std::string_view name)
{
    const auto* const at = std::find_if(std::begin(kPartialWriteRules), std::end(kPartialWriteRules),
                                        [=](const PartialWriteRule& rule) { return rule.name == name; });
    return at == std::end(kPartialWriteRules) ? nullptr : at;
}

}  // namespace

bool is_partial_write_option(std::string_view name)
{
    return find_partial_write_rule(name) != nullptr;
}

Status set_partial_write_option(std::string_view name, std::string_view value, PartialWriteOptions& options,
                                std::string& why)
{
    const PartialWriteRule* const rule = find_partial_write_rule(name);
    if (rule != nullptr && rule->set(value, options))
        return {};
    why = rule == nullptr ? "unknown option '" + std::string(name) + "'"
                          : std::string(name) + "=" + std::string(value) + ": give " + rule->wanted;
    return Err::kInvalid;
}

}  // namespace cowraid
