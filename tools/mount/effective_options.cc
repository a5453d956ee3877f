// SPDX-License-Identifier: MIT
#include "tools/mount/effective_options.h"

#include <cmath>

namespace cowraid {

namespace {

// As short as it is exact: "128M".
std::string short_size(uint64_t bytes)
{
    constexpr char kSuffixes[] = {'K', 'M', 'G', 'T'};
    std::string suffix;
    for (const char next : kSuffixes) {
        if (bytes == 0 || bytes % 1024 != 0)
            break;
        bytes /= 1024;
        suffix = next;
    }
    return std::to_string(bytes) + suffix;
}

const char* access_time_name(AccessTime access_time)
{
    switch (access_time) {
    case AccessTime::kNever:
        return "noatime";
    case AccessTime::kStrict:
        return "strictatime";
    case AccessTime::kRelative:
        break;
    }
    return "relatime";
}

}  // namespace

std::string mount_options_text(const MountOptions& options)
{
    const PartialWriteOptions& writes = options.partial_writes;
    std::string out = options.read_only ? "ro" : "rw";
    if (options.degraded)
        out += ",degraded";
    if (options.rescue)
        out += ",rescue";
    out += std::string(",") + access_time_name(options.access_time);
    out += ",commit=" + std::to_string(options.commit_seconds);
    out += ",dirty_max=" + short_size(options.dirty_bytes_max);
    out += ",cache=" + short_size(options.node_cache_bytes);
    out += ",join_above=" +
           (options.join_above < 0 ? "auto" : std::to_string(std::lround(options.join_above * 100)));
    out += std::string(",clean=") + (options.clean ? "on" : "off");
    out += ",error_budget=" + std::to_string(options.error_budget);
    out += ",stripe_cache_size=" + std::to_string(writes.stripe_cache_size);
    out += ",stripe_cache_bytes=" + short_size(writes.stripe_cache_bytes);
    out += ",rmw_level=" + std::to_string(static_cast<unsigned>(writes.rmw_level));
    out += ",stripe_io_size=" + short_size(writes.stripe_io_bytes);
    out += std::string(",plug=") + (writes.plug ? "on" : "off");
    return out;
}

std::string effective_options(Filesystem& filesystem)
{
    MountOptions options = filesystem.store.options;
    options.read_only = !filesystem.store.service.writing();
    options.degraded = filesystem.volume->degraded();
    options.partial_writes = filesystem.volume->array().partial_write_options();
    return mount_options_text(options);
}

}  // namespace cowraid
