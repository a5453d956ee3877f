// SPDX-License-Identifier: MIT
#include "tools/mount/mount_request.h"

#include <libmount/libmount.h>
#include <sys/mount.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "device/error_budget.h"
#include "tools/common/report_error.h"
#include "tools/mount/compression_option.h"
#include "tools/mount/partial_write_options.h"

namespace cowraid {

namespace {

enum class Action : uint8_t {
    kSetFlag,
    kClearFlag,
    kReadOnly,
    kReadWrite,
    kDegraded,
    kRescue,
    kDropFsyncLog,
    kDevice,
    kAccessTime,
    kNumber,
    kCompress,
    kMemory,
    kDirtyMax,
    kCache,
    kPartialWrites,
    kJoinAbove,
    kClean,
    kDiscard,
    kNoDiscard,
    kMissingSeconds,
    kAllowOther,
    kRemount,
    kNoFail,
    kKernelText,
    kIgnore,  // says nothing about this mount
    kInapplicable,  // known elsewhere, means nothing here: warn
    kRefuse,  // would promise what is not kept
};

enum class Value : uint8_t { kNone, kOptional, kRequired };

// An option whose value is a number of so many `units`.
struct NumberRule {
    uint32_t MountOptions::*target = nullptr;
    uint32_t least = 0, most = 0;
    const char* units = "seconds";
};

struct Rule {
    std::string_view name;
    Action action;
    Value value = Value::kNone;
    unsigned long flag = 0;
    AccessTime access_time = AccessTime::kRelative;
    NumberRule number{};
    // For --help and README: what follows the name, and what it does. Null: accepted, but not worth a line.
    const char* usage = "";
    const char* help = nullptr;
};

constexpr Rule kRules[] = {
    {.name = "rw", .action = Action::kReadWrite, .help = "read and write (default)"},
    {.name = "ro", .action = Action::kReadOnly, .help = "read only; nothing is written to any member"},
    {.name = "degraded",
     .action = Action::kDegraded,
     .value = Value::kOptional,
     .help = "mount with members missing, as far as the profiles allow; devices of the list that are gone or "
             "hold something else are skipped (not one that was replaced or removed). Writing needs more "
             "than half of "
             "the members; degraded=force "
             "takes half of them: never write the other half as well"},
    {.name = "missing_dev_timeout",
     .action = Action::kMissingSeconds,
     .value = Value::kRequired,
     .usage = "=SECONDS",
     .help = "how long the mount waits for members that are not there, 0 to 3600 (default 30; 0 at a "
             "terminal, and "
             "where several devices are named); those that were missing before are not waited for. Then it "
             "goes on "
             "with `degraded`, and fails without"},
    {.name = "rescue",
     .action = Action::kRescue,
     .value = Value::kOptional,
     .help = "with `ro`: read what is left when more is missing than the profiles allow"},
    {.name = "drop_fsync_log",
     .action = Action::kDropFsyncLog,
     .help = "go on without what fsync acknowledged and no member has any more, when a mount is refused for "
             "that; and without all of the fsync log where what it holds cannot be applied or committed: the "
             "files are as they were before"},
    {.name = "device",
     .action = Action::kDevice,
     .value = Value::kRequired,
     .usage = "=PATH",
     .help = "one more member by its path; may be given several times"},
    {.name = "commit",
     .action = Action::kNumber,
     .value = Value::kRequired,
     .number = {&MountOptions::commit_seconds, 1, 300},
     .usage = "=SECONDS",
     .help = "time between commits, 1 to 300 (default 5)"},
    {.name = "compress",
     .action = Action::kCompress,
     .value = Value::kOptional,
     .usage = "=zstd[:LEVEL]",
     .help =
         "compress what is written from now on, level -15 (fastest) to 15 (default 3); what does not "
         "become smaller is stored as it is, and of what looks random that is not tried. compress alone is "
         "compress=zstd; compress=no or none (default): not"},
    {.name = "compress-force",
     .action = Action::kCompress,
     .value = Value::kOptional,
     .usage = "=zstd[:LEVEL]",
     .help = "the same, and always tried; alone, too"},
    {.name = "mem",
     .action = Action::kMemory,
     .value = Value::kRequired,
     .usage = "=SIZE",
     .help =
         "memory that the mount may take, at least 128M, at most three quarters of what the machine or its "
         "memory cgroup has (default 1G, or that): caches, written data and buffers have shares of it"},
    {.name = "dirty_max",
     .action = Action::kDirtyMax,
     .value = Value::kRequired,
     .usage = "=SIZE",
     .help = "written data held in memory (default a quarter of `mem`); writers are slowed down shortly "
             "below it"},
    {.name = "cache",
     .action = Action::kCache,
     .value = Value::kRequired,
     .usage = "=SIZE",
     .help = "memory for tree nodes (default an eighth of `mem`)"},
    {.name = "stripe_cache_size",
     .action = Action::kPartialWrites,
     .value = Value::kRequired,
     .usage = "=COUNT",
     .help = "stripes remembered for writes into rows in use, 17 to 32768 (default 1024)"},
    {.name = "stripe_cache_bytes",
     .action = Action::kPartialWrites,
     .value = Value::kRequired,
     .usage = "=SIZE",
     .help = "memory for their blocks (default a quarter of `mem`)"},
    {.name = "rmw_level",
     .action = Action::kPartialWrites,
     .value = Value::kRequired,
     .usage = "=0, 1 or 2",
     .help = "new parity from old parity: never, where that reads less (default), where it reads no more"},
    {.name = "stripe_io_size",
     .action = Action::kPartialWrites,
     .value = Value::kRequired,
     .usage = "=SIZE",
     .help = "what reads for a write are rounded to, 4K to 1M (default 4K)"},
    {.name = "plug",
     .action = Action::kPartialWrites,
     .value = Value::kRequired,
     .usage = "=on or off",
     .help = "collect writes into rows in use before carrying them out (default on)"},
    {.name = "join_above",
     .action = Action::kJoinAbove,
     .value = Value::kRequired,
     .usage = "=auto or PERCENT",
     .help = "how full the volume is before writes go into rows in use (default auto: where it costs less)"},
    {.name = "clean",
     .action = Action::kClean,
     .value = Value::kRequired,
     .usage = "=on or off",
     .help = "empty block groups in the background when free stripes run short (default on)"},
    {.name = "discard",
     .action = Action::kDiscard,
     .value = Value::kOptional,
     .usage = "=auto, async or off",
     .help = "tell devices in the background what is free: `async` all that take it, image files too, `auto` "
             "disks that do not seek (default auto; `fstrim` works with each). discard alone is `async`, "
             "nodiscard `off`"},
    {.name = "background_share",
     .action = Action::kNumber,
     .value = Value::kRequired,
     .number = {&MountOptions::background_share, 1, 100, "percent"},
     .usage = "=PERCENT",
     .help = "time that scrub, catching up, replacement, balance and cleaner take together while users have "
             "requests; alone they take all (default 11)"},
    {.name = "error_budget",
     .action = Action::kNumber,
     .value = Value::kRequired,
     .number = {&MountOptions::error_budget, 0, ErrorBudget::kWindowSeconds},
     .usage = "=COUNT",
     .help =
         "a member with errors in more seconds of ten minutes is `degraded`, and copied to a spare if "
         "there is one; a repair that does not hold counts as five, and above the budget takes the member "
         "out of service (default 20; 0: never)"},
    {.name = "read_deadline",
     .action = Action::kNumber,
     .value = Value::kRequired,
     .number = {&MountOptions::read_deadline_seconds, 0, 600},
     .usage = "=SECONDS",
     .help = "a read that a member does not answer for so long is had from other copies or parity, if "
             "they suffice, and meanwhile no read asks that member (default 2; 0: never)"},
    {.name = "slow_io",
     .action = Action::kNumber,
     .value = Value::kRequired,
     .number = {&MountOptions::slow_io_seconds, 0, 600},
     .usage = "=SECONDS",
     .help = "a request that takes longer counts for `error_budget`, one that takes n times as long n "
             "times, up to five; not where several members are late together (default 10; 0: none)"},
    {.name = "spare_delay",
     .action = Action::kNumber,
     .value = Value::kRequired,
     .number = {&MountOptions::spare_seconds, 0, 3600},
     .usage = "=SECONDS",
     .help = "a spare takes the place of a member that failed after so long, of one missing at the mount "
             "after five times as long (default 60)"},
    {.name = "allow_other",
     .action = Action::kAllowOther,
     .help = "let other users into an ordinary user's mount; needs `user_allow_other` in /etc/fuse.conf "
             "(root's mounts let all users in)"},
    {.name = "remount",
     .action = Action::kRemount,
     .help = "change a mounted volume: `ro`, `rw`, flags, access times, `commit`, `compress`, `clean`, "
             "`discard`, `background_share`, `error_budget`, `read_deadline`, `slow_io`, and the options of "
             "writes into "
             "rows in use, but `join_above`; it warns of others that differ, except `device` and "
             "`missing_dev_timeout`, which are for a mount"},
    {.name = "relatime",
     .action = Action::kAccessTime,
     .flag = MS_RELATIME,
     .help = "store access times once a day or after a change (default)"},
    {.name = "noatime",
     .action = Action::kAccessTime,
     .flag = MS_NOATIME,
     .access_time = AccessTime::kNever,
     .help = "never store access times"},
    {.name = "strictatime",
     .action = Action::kAccessTime,
     .flag = MS_STRICTATIME,
     .access_time = AccessTime::kStrict,
     .help = "store every access time"},
    {"atime", Action::kAccessTime, Value::kNone, MS_RELATIME, AccessTime::kRelative},
    {"norelatime", Action::kAccessTime, Value::kNone, MS_STRICTATIME, AccessTime::kStrict},
    {"nodiratime", Action::kSetFlag, Value::kNone, MS_NODIRATIME},
    {"diratime", Action::kClearFlag, Value::kNone, MS_NODIRATIME},
    {"nodev", Action::kSetFlag, Value::kNone, MS_NODEV},
    {"dev", Action::kClearFlag, Value::kNone, MS_NODEV},
    {"nosuid", Action::kSetFlag, Value::kNone, MS_NOSUID},
    {"suid", Action::kClearFlag, Value::kNone, MS_NOSUID},
    {.name = "noexec",
     .action = Action::kSetFlag,
     .flag = MS_NOEXEC,
     .help = "start no programs from it; likewise `nosuid`, `nodev`, `nodiratime`"},
    {"exec", Action::kClearFlag, Value::kNone, MS_NOEXEC},
    {.name = "untrusted",
     .action = Action::kSetFlag,
     .flag = MS_NOSUID | MS_NODEV | MS_NOEXEC,
     .help = "for a medium of unknown origin: `nosuid`, `nodev` and `noexec`; best with `ro`"},
    {.name = "sync",
     .action = Action::kSetFlag,
     .flag = MS_SYNCHRONOUS,
     .help = "every write and every other change waits until it is stored"},
    {"async", Action::kClearFlag, Value::kNone, MS_SYNCHRONOUS},
    {.name = "dirsync",
     .action = Action::kSetFlag,
     .flag = MS_DIRSYNC,
     .help = "making, renaming and removing names waits until it is stored"},
    {.name = "context",
     .action = Action::kKernelText,
     .value = Value::kRequired,
     .usage = "=LABEL",
     .help = "SELinux label for everything; likewise `fscontext`, `defcontext`, `rootcontext`"},
    {"fscontext", Action::kKernelText, Value::kRequired},
    {"defcontext", Action::kKernelText, Value::kRequired},
    {"rootcontext", Action::kKernelText, Value::kRequired},
    // For mount(8), fstab and service managers.
    {"defaults", Action::kIgnore},
    {"auto", Action::kIgnore},
    {"noauto", Action::kIgnore},
    {.name = "nofail",
     .action = Action::kNoFail,
     .help = "a volume that is not there is no error; for fstab"},
    {"_netdev", Action::kIgnore},
    {"user", Action::kIgnore, Value::kOptional},
    {"nouser", Action::kIgnore},
    {"users", Action::kIgnore},
    {"owner", Action::kIgnore},
    {"group", Action::kIgnore},
    {"comment", Action::kIgnore, Value::kRequired},
    {"uhelper", Action::kIgnore, Value::kRequired},
    {"helper", Action::kIgnore, Value::kRequired},
    {"silent", Action::kIgnore},
    {"loud", Action::kIgnore},
    {"nolazytime", Action::kIgnore},
    {"noiversion", Action::kIgnore},
    {"nomand", Action::kIgnore},
    // FUSE's own: set by us, or needless.
    {"default_permissions", Action::kIgnore},
    {"fsname", Action::kIgnore, Value::kRequired},
    {"subtype", Action::kIgnore, Value::kRequired},
    {"user_id", Action::kIgnore, Value::kRequired},
    {"group_id", Action::kIgnore, Value::kRequired},
    {"rootmode", Action::kIgnore, Value::kRequired},
    {"blksize", Action::kIgnore, Value::kRequired},
    {"kernel_cache", Action::kInapplicable},
    {"big_writes", Action::kInapplicable},
    {"max_read", Action::kInapplicable, Value::kRequired},
    {"auto_unmount", Action::kInapplicable},
    // Those of btrfs that people paste, and of others.
    {"space_cache", Action::kInapplicable, Value::kOptional},
    {"nospace_cache", Action::kInapplicable},
    {"clear_cache", Action::kInapplicable},
    {"ssd", Action::kInapplicable},
    {"ssd_spread", Action::kInapplicable},
    {"nossd", Action::kInapplicable},
    {"autodefrag", Action::kInapplicable},
    {"noautodefrag", Action::kInapplicable},
    {"nodiscard", Action::kNoDiscard},
    {"thread_pool", Action::kInapplicable, Value::kRequired},
    {"max_inline", Action::kInapplicable, Value::kRequired},
    {"metadata_ratio", Action::kInapplicable, Value::kRequired},
    {"skip_balance", Action::kInapplicable},
    {"flushoncommit", Action::kInapplicable},
    {"noflushoncommit", Action::kInapplicable},
    {"treelog", Action::kInapplicable},
    {"notreelog", Action::kInapplicable},
    {"nologreplay", Action::kInapplicable},
    {"norecovery", Action::kInapplicable},
    {"usebackuproot", Action::kInapplicable},
    {"datacow", Action::kInapplicable},
    {"datasum", Action::kInapplicable},
    {"nodatacow", Action::kInapplicable},
    {"nodatasum", Action::kInapplicable},
    {"barrier", Action::kInapplicable},
    {"user_subvol_rm_allowed", Action::kInapplicable},
    {"acl", Action::kIgnore},
    {"user_xattr", Action::kIgnore},
    {"inode64", Action::kIgnore},
    {"errors", Action::kInapplicable, Value::kRequired},
    {"noacl", Action::kInapplicable},
    {"lazytime", Action::kInapplicable},
    {"iversion", Action::kInapplicable},
    {"mand", Action::kInapplicable},
    {"nobarrier", Action::kRefuse},
    {"subvol", Action::kRefuse, Value::kRequired},
    {"subvolid", Action::kRefuse, Value::kRequired},
    {"uid", Action::kRefuse, Value::kRequired},
    {"gid", Action::kRefuse, Value::kRequired},
    {"umask", Action::kRefuse, Value::kRequired},
};

constexpr unsigned long kAccessTimeFlags = MS_RELATIME | MS_NOATIME | MS_STRICTATIME;
constexpr uint32_t kMissingSecondsMax = 3600;
constexpr uint64_t kMemoryBytesMin = 128 * kMiB;
constexpr uint64_t kDirtyBytesMin = 8 * kMiB;
constexpr uint64_t kCacheBytesMin = 1 * kMiB;

struct Option {
    std::string_view name, value;
    bool has_value = false;
};

const Rule* find_rule(std::string_view name)
{
    const auto found = std::find_if(std::begin(kRules), std::end(kRules),
                                    [name](const Rule& rule) { return rule.name == name; });
    return found == std::end(kRules) ? nullptr : &*found;
}

Status set_degraded(const Option& option, MountRequest& request, std::string& why)
{
    if (!option.has_value || option.value == "yes" || option.value == "very" || option.value == "on") {
        request.options.degraded = true;
    } else if (option.value == "force") {
        request.options.degraded = request.options.half = true;
    } else if (option.value == "no" || option.value == "off") {
        request.options.degraded = false;
    } else {
        return invalid(why, "degraded=" + std::string(option.value) +
                                ": use degraded, degraded=force or degraded=no");
    }
    return {};
}

Status set_number(const NumberRule& rule, const Option& option, MountRequest& request, std::string& why)
{
    const auto given = parse_number(option.value);
    if (!given.ok() || *given < rule.least || *given > rule.most)
        return invalid(why, std::string(option.name) + "=" + std::string(option.value) + ": give " +
                                std::to_string(rule.least) + " to " + std::to_string(rule.most) + " " +
                                rule.units);
    request.options.*rule.target = static_cast<uint32_t>(*given);
    return {};
}

Status set_missing_seconds(const Option& option, MountRequest& request, std::string& why)
{
    const auto seconds = parse_number(option.value);
    if (!seconds.ok() || *seconds > kMissingSecondsMax)
        return invalid(why, "missing_dev_timeout=" + std::string(option.value) + ": give 0 to 3600 seconds");
    request.missing_seconds = static_cast<uint32_t>(*seconds);
    return {};
}

Status set_size(const Option& option, uint64_t minimum, uint64_t& target, std::string& why)
{
    const auto bytes = parse_size(option.value);
    if (!bytes.ok() || *bytes < minimum)
        return invalid(why, std::string(option.name) + "=" + std::string(option.value) +
                                ": give a size of at least " + size_text(minimum) + ", such as 256M");
    target = *bytes;
    return {};
}

// What the system leaves to a mount. It would not refuse more: the daemon is never killed for lack of memory,
// so that in a full cgroup it would wait for ever.
uint64_t memory_bytes_max()
{
    return std::max(round_down(usual_memory_bytes(), kMiB), kMemoryBytesMin);
}

Status set_memory(const Option& option, MountRequest& request, std::string& why)
{
    CW_TRY(set_size(option, kMemoryBytesMin, request.options.memory_bytes, why));
    if (request.options.memory_bytes <= memory_bytes_max())
        return {};
    request.options.memory_bytes = memory_bytes_max();
    request.warnings.push_back(
        "mem=" + std::string(option.value) + " is more than three quarters of the " +
        "memory of this machine or cgroup; it is mem=" + size_text(memory_bytes_max()));
    return {};
}

Status set_partial_writes(const Option& option, MountRequest& request, std::string& why)
{
    return set_partial_write_option(option.name, option.value, request.options.partial_writes, why);
}

Status set_join_above(const Option& option, MountRequest& request, std::string& why)
{
    const auto percent = parse_number(option.value);
    if (option.value != "auto" && (!percent.ok() || *percent > 100))
        return invalid(why, "join_above=" + std::string(option.value) + ": give auto, or 0 to 100 percent");
    request.options.join_above = option.value == "auto" ? -1 : static_cast<double>(*percent) / 100;
    return {};
}

Status set_discard(const Option& option, MountRequest& request, std::string& why)
{
    const std::string_view value = option.value.empty() ? "async" : option.value;
    if (value != "auto" && value != "async" && value != "off")
        return invalid(why, "discard=" + std::string(value) + ": give auto, async or off");
    request.options.discard = value == "auto"    ? DiscardMode::kAuto
                              : value == "async" ? DiscardMode::kAsync
                                                 : DiscardMode::kOff;
    return {};
}

Status set_clean(const Option& option, MountRequest& request, std::string& why)
{
    if (option.value != "on" && option.value != "off")
        return invalid(why, "clean=" + std::string(option.value) + ": give on or off");
    request.options.clean = option.value == "on";
    return {};
}

// Flags of the kernel of which the filesystem hears, too.
void set_flag(unsigned long flag, bool on, MountRequest& request)
{
    request.kernel_flags = on ? request.kernel_flags | flag : request.kernel_flags & ~flag;
    if (flag == MS_NODIRATIME)
        request.options.directory_times = !on;
    if (flag == MS_SYNCHRONOUS)
        request.options.sync = on;
    if (flag == MS_DIRSYNC)
        request.options.dirsync = on;
}

void set_access_time(const Rule& rule, MountRequest& request)
{
    request.kernel_flags = (request.kernel_flags & ~kAccessTimeFlags) | rule.flag;
    request.options.access_time = rule.access_time;
}

Status apply(const Rule& rule, const Option& option, MountRequest& request, std::string& why)
{
    switch (rule.action) {
    case Action::kSetFlag:
    case Action::kClearFlag:
        set_flag(rule.flag, rule.action == Action::kSetFlag, request);
        return {};
    case Action::kReadOnly:
        request.options.read_only = true;
        request.kernel_flags |= MS_RDONLY;
        return {};
    case Action::kReadWrite:
        request.options.read_only = false;
        request.kernel_flags &= ~static_cast<unsigned long>(MS_RDONLY);
        return {};
    case Action::kDegraded:
        return set_degraded(option, request, why);
    case Action::kRescue:
        request.options.rescue = true;
        return {};
    case Action::kDropFsyncLog:
        request.options.drop_fsync_log = true;
        return {};
    case Action::kDevice:
        request.device_options.emplace_back(option.value);
        return {};
    case Action::kAccessTime:
        set_access_time(rule, request);
        return {};
    case Action::kNumber:
        return set_number(rule.number, option, request, why);
    case Action::kCompress:
        return parse_compression(option.name, option.value, request.options.compression, why);
    case Action::kMemory:
        return set_memory(option, request, why);
    case Action::kDirtyMax:
        request.dirty_given = true;
        return set_size(option, kDirtyBytesMin, request.options.dirty_bytes_max, why);
    case Action::kCache:
        request.cache_given = true;
        return set_size(option, kCacheBytesMin, request.options.node_cache_bytes, why);
    case Action::kPartialWrites:
        request.stripe_cache_given = request.stripe_cache_given || option.name == "stripe_cache_bytes";
        return set_partial_writes(option, request, why);
    case Action::kJoinAbove:
        return set_join_above(option, request, why);
    case Action::kClean:
        return set_clean(option, request, why);
    case Action::kDiscard:
        return set_discard(option, request, why);
    case Action::kNoDiscard:
        request.options.discard = DiscardMode::kOff;
        return {};
    case Action::kMissingSeconds:
        return set_missing_seconds(option, request, why);
    case Action::kAllowOther:
        request.allow_other = true;
        return {};
    case Action::kRemount:
        request.remount = true;
        return {};
    case Action::kNoFail:
        request.nofail = true;
        return {};
    case Action::kKernelText:
        request.kernel_options.emplace_back(option.name, option.value);
        return {};
    case Action::kIgnore:
        return {};
    case Action::kInapplicable:
        request.warnings.push_back("option '" + std::string(option.name) + "' has no effect here");
        return {};
    case Action::kRefuse:
        break;
    }
    return invalid(why, "option '" + std::string(option.name) + "' is not supported; leave it out");
}

Status apply_option(const Option& option, MountRequest& request, std::string& why)
{
    if (option.name.starts_with("x-") || option.name.starts_with("X-"))
        return {};
    const Rule* const rule = find_rule(option.name);
    if (rule == nullptr) {
        if (!request.sloppy)
            return invalid(why, "unknown option '" + std::string(option.name) + "'; -s ignores such options");
        request.warnings.push_back("unknown option '" + std::string(option.name) + "' is ignored");
        return {};
    }
    if (option.has_value && rule->value == Value::kNone)
        return invalid(why, "option '" + std::string(option.name) + "' takes no value");
    if (rule->value == Value::kRequired && option.value.empty())
        return invalid(why, "option '" + std::string(option.name) + "' needs a value");
    return apply(*rule, option, request, why);
}

// What no option names is a share of all: a quarter each for written data and for rows that are written in
// place, an eighth for nodes, a sixteenth for idle inodes. Buffers and bitmaps take the rest.
void share_memory(MountRequest& request)
{
    constexpr uint64_t kInodeBytes = 1024;  // about, with what refers to it
    MountOptions& options = request.options;
    if (!request.dirty_given)
        options.dirty_bytes_max = options.memory_bytes / 4;
    if (!request.cache_given)
        options.node_cache_bytes = options.memory_bytes / 8;
    if (!request.stripe_cache_given)
        options.partial_writes.stripe_cache_bytes = options.memory_bytes / 4;
    options.idle_inodes_max = options.memory_bytes / 16 / kInodeBytes;
}

}  // namespace

std::vector<MountOptionHelp> mount_options_help()
{
    std::vector<MountOptionHelp> lines;
    for (const Rule& rule : kRules)
        if (rule.help != nullptr)
            lines.push_back({std::string(rule.name) + rule.usage, rule.help});
    return lines;
}

Status parse_mount_options(std::string_view list, MountRequest& request, std::string& why)
{
    std::string text(list);
    char *rest = text.data(), *name = nullptr, *value = nullptr;
    size_t name_bytes = 0, value_bytes = 0;
    while (mnt_optstr_next_option(&rest, &name, &name_bytes, &value, &value_bytes) == 0)
        CW_TRY(apply_option({.name = {name, name_bytes},
                             .value = value == nullptr ? "" : std::string_view(value, value_bytes),
                             .has_value = value != nullptr},
                            request, why));
    if (rest[std::strspn(rest, ",")] != '\0')
        return invalid(why, std::string("no closing quote in '") + rest + "'");
    share_memory(request);
    return {};
}

void set_default_memory(MountRequest& request)
{
    request.options.memory_bytes = std::min(memory_bytes_max(), MountOptions{}.memory_bytes);
    share_memory(request);
}

Status check_mount_request(const MountRequest& request, std::string& why)
{
    if (request.options.rescue && !request.options.read_only)
        return invalid(why, "rescue works only read-only; mount with -o ro,rescue");
    if (request.directory.empty())
        return invalid(why, "no mount point named; it is the last argument");
    return {};
}

}  // namespace cowraid
