// SPDX-License-Identifier: MIT
// umount.fuse.cowraid DIR: what umount(8) calls. Returns when the members are written and free.
#include <argp.h>
#include <grp.h>
#include <pwd.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/print.h"
#include "base/text.h"
#include "control/control_client.h"
#include "control/control_path.h"
#include "control/mount_table.h"
#include "control/volume_json.h"
#include "device/open_member.h"
#include "tools/common/program_start.h"
#include "tools/mount/mount_helper.h"
#include "tools/mount/mount_point.h"
#include "tools/mount/user_mount_table.h"

namespace cowraid {

namespace {

constexpr uint32_t kLookMilliseconds = 200;
// A daemon that has not noticed after this many looks serves another mount of the same volume.
constexpr int kLooksMax = 15;
constexpr uint64_t kNanosecondsPerMillisecond = 1'000'000;
constexpr uint64_t kSilentMilliseconds = 20'000;  // one that answers nothing for so long is stopped
constexpr uint64_t kFreeMilliseconds = 3000;  // for all members together

struct Arguments {
    std::vector<std::string> directories;
    int flags = 0;
    bool read_only_when_busy = false;
    bool verbose = false;

    // Who asked for no wait loses what the daemon would have stored.
    [[nodiscard]] bool may_wait() const { return (flags & (MNT_DETACH | MNT_FORCE)) == 0; }
};

constexpr argp_option kOptions[] = {
    {nullptr, 'f', nullptr, 0, "force", 0},
    {nullptr, 'l', nullptr, 0, "lazy: detach now, clean up when no longer used", 0},
    {nullptr, 'r', nullptr, 0, "make read-only when it cannot be unmounted", 0},
    {nullptr, 'v', nullptr, 0, "say what is done", 0},
    {nullptr, 'n', nullptr, 0, "accepted for umount(8), does nothing", 0},
    {nullptr, 't', "TYPE", 0, "accepted for umount(8), does nothing", 0},
    {nullptr, 'N', "NAMESPACE", OPTION_HIDDEN, "accepted for umount(8), does nothing", 0},
    {},
};

error_t parse_option(int key, char* argument, argp_state* state)
{
    auto& arguments = *static_cast<Arguments*>(state->input);
    switch (key) {
    case 'f':
        arguments.flags |= MNT_FORCE;
        return 0;
    case 'l':
        arguments.flags |= MNT_DETACH;
        return 0;
    case 'r':
        arguments.read_only_when_busy = true;
        return 0;
    case 'v':
        arguments.verbose = true;
        return 0;
    case 'n':
    case 't':
    case 'N':
        return 0;
    case ARGP_KEY_ARG:
        arguments.directories.emplace_back(argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void print_message(const std::string& text)
{
    print_line(stderr, "umount.fuse.cowraid: %s", text.c_str());
}

// While it lives, root has the user and group of who mounted, where that is another user: so the daemon is
// searched only where that user has control sockets, only that user and root are believed to serve it, and
// a path that it says is opened only as that user may. Nobody but root can send signals to this process
// meanwhile. The supplementary groups stay that user's.
class AsOwner {
public:
    explicit AsOwner(const MountEntry& entry)
    {
        const auto user = parse_number(entry.owner), group = parse_number(entry.group);
        if (geteuid() != 0 || !user.ok() || *user == 0 || !group.ok())
            return;
        const passwd* const known = getpwuid(static_cast<uid_t>(*user));
        if ((known != nullptr ? initgroups(known->pw_name, static_cast<gid_t>(*group))
                              : setgroups(0, nullptr)) != 0)
            return;
        if (setegid(static_cast<gid_t>(*group)) != 0 || seteuid(static_cast<uid_t>(*user)) != 0)
            restore();
        else
            is_other_ = true;
    }
    ~AsOwner()
    {
        if (is_other_)
            restore();
    }
    AsOwner(const AsOwner&) = delete;
    AsOwner& operator=(const AsOwner&) = delete;

private:
    void restore() { CW_ASSERT(seteuid(0) == 0 && setegid(group_) == 0); }

    const gid_t group_ = getegid();
    bool is_other_ = false;
};

// The daemon of one mount, told to say when it has finished. Nothing when it is dead.
struct Waiter {
    Uuid uuid;
    ControlClient client;
    std::vector<std::string> members;  // paths
};

std::vector<std::string> member_paths(const Uuid& uuid)
{
    std::vector<std::string> paths;
    std::string ignored;
    auto client = ControlClient::connect(uuid);
    if (!client.ok())
        return paths;
    const auto info = client->ask("info", ignored);
    if (!info.ok())
        return paths;
    const auto report = decode_report(info->get());
    if (!report.ok())
        return paths;
    for (const MemberInfo& member : report->info.members)
        if (!member.path.empty())
            paths.push_back(member.path);
    return paths;
}

// The kernel takes the daemon's rings apart after the process is gone; until then the devices are held.
// Who else has locks on them is not waited for longer.
void wait_until_free(const std::vector<std::string>& members)
{
    const uint64_t deadline = monotonic_ns() + kFreeMilliseconds * kNanosecondsPerMillisecond;
    std::string ignored;
    for (const std::string& path : members) {
        const uint64_t now = monotonic_ns();
        const OpenOptions options{.read_only = true,
                                  .exclusive = true,
                                  .patience_milliseconds = static_cast<uint32_t>(
                                      now < deadline ? (deadline - now) / kNanosecondsPerMillisecond : 0)};
        open_member_fd(path, options, ignored).status().ignore();  // waits by itself; nothing else is wanted
    }
}

// `silent`: see find_mount_of_device(). `why` is what the daemon answered instead.
std::optional<Waiter> find_waiter(const std::string& device, std::vector<int>& silent, std::string& why)
{
    const auto mounted = find_mount_of_device(device, &silent);
    if (!mounted.has_value())
        return std::nullopt;
    std::vector<std::string> members = member_paths(mounted->uuid);
    auto client = ControlClient::connect(mounted->uuid);
    why = "it cannot be reached";
    if (!client.ok())
        return std::nullopt;
    if (client->ask("shutdown-wait", why).ok())
        return Waiter{.uuid = mounted->uuid, .client = client.take(), .members = std::move(members)};
    return std::nullopt;
}

// Until the daemon has ended: true; false: it goes on, because the volume is in use elsewhere. kIo unless it
// said that the last commit is stored; `why` says so.
Result<bool> wait_for_daemon(Waiter& waiter, std::string& why)
{
    Result<bool> outcome = Err::kIo;
    why = "the daemon ended before it said that the last commit is stored; see the system log";
    uint64_t answered_ms = monotonic_ms();
    for (int looks = 0;;) {
        if (waiter.client.wait(kLookMilliseconds).err() != Err::kInterrupted) {
            const auto message = waiter.client.next(kAskMilliseconds);
            if (!message.ok())
                return outcome;
            if (json_get_flag(message->get(), "ok"))
                outcome = true;
            else
                outcome = Err::kIo;
            why = "the last commit failed: " + json_get_text(message->get(), "message");
            continue;
        }
        const auto mounted = find_mounted_volume(waiter.uuid);
        if (mounted.has_value() && !mounted->closing && ++looks >= kLooksMax)
            return false;
        if (mounted.has_value())
            answered_ms = monotonic_ms();
        if (monotonic_ms() - answered_ms > kSilentMilliseconds) {
            const std::string pid = std::to_string(waiter.client.daemon());
            why = "it is unmounted, but the daemon (pid " + pid +
                  ") does not answer; it stores the rest when it goes on: kill -CONT " + pid;
            return Err::kIo;
        }
    }
}

// As wait_for_daemon(); with false everything up to now is stored, if `may_commit`. `in_use`: it is known to
// go on.
Result<bool> wait_or_commit(Waiter& waiter, bool may_commit, bool in_use, std::string& why)
{
    for (;; in_use = false) {
        CW_ASSIGN(const bool ended, in_use ? Result<bool>(false) : wait_for_daemon(waiter, why));
        if (ended || !may_commit)
            return ended;
        auto client = ControlClient::connect(waiter.uuid);
        if (!client.ok())
            why = "it cannot be reached";
        else if (client->call("sync", nullptr, why).ok())
            return false;
        const auto mounted = find_mounted_volume(waiter.uuid);
        if (mounted.has_value() && !mounted->closing) {
            why = "the volume is still in use elsewhere, and its last commit failed: " + why;
            return Err::kIo;
        }
        // It began to end meanwhile, and will say so on the connection that is held.
    }
}

// What is known of the daemon of a mount before that is taken away.
struct Asked {
    std::optional<Waiter> waiter;
    std::vector<int> silent;  // see find_mount_of_device()
    bool is_dead = false;  // looked at without a waiter alone
    std::string why;  // of no waiter, from a daemon that did answer
};

Asked ask_daemon(const MountEntry& entry, bool may_wait)
{
    const AsOwner as_owner(entry);
    Asked out;
    out.waiter = find_waiter(entry.device, out.silent, out.why);
    // Not asked under -f: what still asks keeps the mount busy.
    out.is_dead = !out.waiter.has_value() && may_wait && says_it_is_dead(entry.directory);
    return out;
}

// Of a mount that lives, and nobody can be waited for.
std::string why_not_now(const MountEntry& entry, const Asked& asked)
{
    const std::string stays = "; " + entry.directory + " stays mounted: ";
    if (asked.silent.empty() && !asked.why.empty())
        return "the last commit cannot be waited for (" + asked.why + ")" + stays +
               "try again, or umount -l to wait for nothing";
    if (asked.silent.empty())
        return "no way to the daemon was found" + stays + "unmount it as " +
               (entry.owner == "0" ? "root" : "user " + entry.owner) +
               " with the COWRAID_RUN_DIR or XDG_RUNTIME_DIR of the mount, or end its daemon by SIGTERM, "
               "which "
               "stores everything, or umount -l to wait for nothing";
    std::vector<std::string> known;
    for (const int pid : asked.silent)
        if (pid != 0)
            known.push_back(std::to_string(pid));
    std::string line = "the daemon does not answer";
    std::string what = "let it go on";
    if (known.size() == 1) {
        line = "the daemon (pid " + known.front() + ") does not answer";
        what = "kill -CONT " + known.front();
    } else if (!known.empty()) {
        line = "one of the daemons (pid " + join_words(known) + ") does not answer for it";
        what = "kill -CONT that";
    }
    return line + stays + what + ", or umount -l to lose what it has not stored";
}

// As unmount(). A filesystem over a device tells its daemon that it ends and waits for the answer, which
// nobody can break off: where the daemon does not answer, its connection is cut first.
Status unmount_entry(const MountEntry& entry, int flags, bool answers, std::string& why)
{
    if (!answers && entry.type == kBlockMountType && entry.is_of_this_user())
        flags |= MNT_FORCE;
    return unmount(entry.directory, flags, why);
}

// Of what has been unmounted. Returns when everything is stored, and the members are free or stay in use.
int finish_unmount(const MountEntry& entry, Waiter& waiter, const Arguments& arguments,
                   bool mounted_elsewhere)
{
    const AsOwner as_owner(entry);
    // Who asked for no wait gets none for a volume in use, whose devices may not answer.
    const bool may_wait = arguments.may_wait();
    std::string why;
    const Result<bool> ended = wait_or_commit(waiter, may_wait, mounted_elsewhere, why);
    if (!ended.ok()) {
        print_message(why);
        return kMountFailed;
    }
    if (*ended)
        wait_until_free(waiter.members);
    if (arguments.verbose || (!*ended && may_wait))
        print_message(
            entry.directory + " is unmounted, " +
            (*ended ? "its members are free" : "the volume is still in use elsewhere, and its members, too"));
    return kMountOk;
}

int unmount_one(const std::string& text, const Arguments& arguments)
{
    const std::string directory = mount_point_path(text);
    const auto table = read_mount_table();
    const MountEntry* const entry = table.ok() ? mount_at(*table, directory) : nullptr;
    if (entry == nullptr || !entry->is_cowraid()) {
        print_message("no cowraid volume is mounted at " + directory);
        return kMountFailed;
    }
    const bool may_wait = arguments.may_wait();
    const bool may_unmount = geteuid() == 0 ? !is_root_without_mounts() : entry->is_of_this_user();
    // A process of somebody else's is asked by those alone who wait for it.
    Asked asked = may_wait || entry->is_of_this_user() ? ask_daemon(*entry, may_wait) : Asked();
    // Of a filesystem over a device it is the kernel that waits.
    const bool kernel_waits = entry->type == kBlockMountType && asked.silent.empty();
    if (!asked.waiter.has_value() && !asked.is_dead && !kernel_waits && may_wait && may_unmount) {
        const auto now = read_mount_table();
        const bool gone = now.ok() && mount_at(*now, directory) == nullptr;
        print_message(gone ? "no cowraid volume is mounted at " + directory : why_not_now(*entry, asked));
        return kMountFailed;
    }
    const bool answers = asked.waiter.has_value() || asked.silent.empty() || asked.is_dead;
    std::string why;
    const Status status = unmount_entry(*entry, arguments.flags, answers, why);
    if (status.err() == Err::kBusy && arguments.read_only_when_busy) {
        MountRequest request;
        request.directory = directory;
        request.option_lists = {"remount,ro"};
        const int remounted = run_remount(request);
        if (remounted == kMountOk)
            print_message(directory + " is in use; it is read-only now");
        return remounted;
    }
    if (!status.ok()) {
        print_message(why);
        return kMountFailed;
    }
    const auto left = read_mount_table();
    if (left.ok() && mount_at(*left, directory) == nullptr)
        remove_user_mount(directory);
    if (!asked.waiter.has_value())
        return kMountOk;
    const bool mounted_elsewhere = left.ok() && device_is_mounted(*left, entry->device);
    return finish_unmount(*entry, *asked.waiter, arguments, mounted_elsewhere);
}

int run(int argc, char** argv)
{
    static const argp parser = {.options = kOptions,
                                .parser = parse_option,
                                .args_doc = "DIRECTORY...",
                                .doc = "Unmount a cowraid volume and wait for its last commit.",
                                .children = nullptr,
                                .help_filter = nullptr,
                                .argp_domain = nullptr};
    argp_err_exit_status = kMountUsage;
    Arguments arguments;
    if (argp_parse(&parser, argc, argv, 0, nullptr, &arguments) != 0)
        return kMountUsage;
    if (arguments.directories.empty()) {
        print_message("name a mount point");
        return kMountUsage;
    }
    int result = kMountOk;
    for (const std::string& directory : arguments.directories)
        result |= unmount_one(directory, arguments);
    return result;
}

}  // namespace

}  // namespace cowraid

const char* argp_program_version = "umount.fuse.cowraid " COWRAID_VERSION;

int main(int argc, char** argv)
{
    cowraid::start_program(cowraid::kMountFailed);
    return cowraid::run(argc, argv);
}
