// SPDX-License-Identifier: MIT
#include "tools/mount/effective_options.h"

#include <cmath>

#include "base/text.h"
#include "tools/mount/compression_option.h"

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

const char* discard_name(DiscardMode mode)
{
    switch (mode) {
    case DiscardMode::kAsync:
        return "async";
    case DiscardMode::kOff:
        return "off";
    case DiscardMode::kAuto:
        break;
    }
    return "auto";
}

}  // namespace

std::string mount_options_text(const MountOptions& options)
{
    const PartialWriteOptions& writes = options.partial_writes;
    std::string out = options.read_only ? "ro" : "rw";
    if (options.degraded)
        out += options.half ? ",degraded=force" : ",degraded";
    if (options.rescue)
        out += ",rescue";
    if (options.drop_fsync_log)
        out += ",drop_fsync_log";
    out += std::string(",") + access_time_name(options.access_time);
    out += options.directory_times ? "" : ",nodiratime";
    out += options.sync ? ",sync" : "";
    out += options.dirsync ? ",dirsync" : "";
    out += ",commit=" + std::to_string(options.commit_seconds);
    out += "," + compression_text(options.compression);
    out += ",mem=" + short_size(options.memory_bytes);
    out += ",dirty_max=" + short_size(options.dirty_bytes_max);
    out += ",cache=" + short_size(options.node_cache_bytes);
    out += ",join_above=" +
           (options.join_above < 0 ? "auto" : std::to_string(std::lround(options.join_above * 100)));
    out += std::string(",clean=") + (options.clean ? "on" : "off");
    out += std::string(",discard=") + discard_name(options.discard);
    out += ",background_share=" + std::to_string(options.background_share);
    out += ",error_budget=" + std::to_string(options.error_budget);
    out += ",read_deadline=" + std::to_string(options.read_deadline_seconds);
    out += ",slow_io=" + std::to_string(options.slow_io_seconds);
    out += ",spare_delay=" + std::to_string(options.spare_seconds);
    out += ",stripe_cache_size=" + std::to_string(writes.stripe_cache_size);
    out += ",stripe_cache_bytes=" + short_size(writes.stripe_cache_bytes);
    out += ",rmw_level=" + std::to_string(static_cast<unsigned>(writes.rmw_level));
    out += ",stripe_io_size=" + short_size(writes.stripe_io_bytes);
    out += std::string(",plug=") + (writes.plug ? "on" : "off");
    return out;
}

MountOptions current_options(Filesystem& filesystem)
{
    const LiveOptions& live = filesystem.store.live;
    MountOptions options = filesystem.store.options;
    options.read_only = !filesystem.store.service.writing();
    options.degraded = filesystem.volume->degraded();
    options.access_time = live.access_time;
    options.commit_seconds = live.commit_seconds;
    options.clean = live.clean;
    options.compression = live.compression;
    options.directory_times = live.directory_times;
    options.sync = live.sync;
    options.dirsync = live.dirsync;
    options.discard = live.discard;
    options.background_share = filesystem.store.budget.share();
    const MemberSet& members = filesystem.volume->members();
    options.error_budget = members.error_budget();
    options.read_deadline_seconds = static_cast<uint32_t>(members.read_deadline_ms() / 1000);
    options.slow_io_seconds = static_cast<uint32_t>(members.slow_io_ms() / 1000);
    options.partial_writes =
        filesystem.volume->array().partial_write_options().value_or(options.partial_writes);
    return options;
}

std::string effective_options(Filesystem& filesystem)
{
    return mount_options_text(current_options(filesystem));
}

Result<std::string> change_options(Filesystem& filesystem, const MountOptions& wanted)
{
    // None on a volume that was never written to.
    Array& array = filesystem.volume->array();
    if (array.partial_write_options())
        CW_TRY(array.set_partial_write_options(wanted.partial_writes));
    LiveOptions& live = filesystem.store.live;
    live.access_time = wanted.access_time;
    live.commit_seconds = wanted.commit_seconds;
    live.clean = wanted.clean;
    live.compression = wanted.compression;
    live.directory_times = wanted.directory_times;
    live.sync = wanted.sync;
    live.dirsync = wanted.dirsync;
    live.discard = wanted.discard;
    filesystem.store.budget.set_share(wanted.background_share);
    MemberSet& members = filesystem.volume->members();
    members.set_error_budget(wanted.error_budget);
    members.set_read_deadline_ms(uint64_t{wanted.read_deadline_seconds} * 1000);
    members.set_slow_io_ms(uint64_t{wanted.slow_io_seconds} * 1000);

    MountOptions asked = wanted;
    const MountOptions now = current_options(filesystem);
    asked.read_only = now.read_only;
    asked.degraded = now.degraded;
    asked.half = asked.half || now.half;
    const std::string have = "," + mount_options_text(now) + ",";
    const std::string want = mount_options_text(asked);
    std::string differ;
    for (const std::string_view option : split(want, ','))
        if (have.find("," + std::string(option) + ",") == std::string::npos)
            differ.append(differ.empty() ? "" : ",").append(option);
    return differ;
}

}  // namespace cowraid
