// SPDX-License-Identifier: MIT
#include "tools/mount/mount_helper.h"

#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/print.h"
#include "base/text.h"
#include "control/control_client.h"
#include "control/json.h"
#include "control/mount_table.h"
#include "tools/common/returning_member.h"
#include "tools/mount/handshake.h"
#include "tools/mount/member_wait.h"
#include "tools/mount/mount_point.h"
#include "tools/mount/signal_watch.h"
#include "tools/mount/user_mount_table.h"

namespace cowraid {

namespace {

int failed(const std::string& why)
{
    print_mount_message(why);
    return kMountFailed;
}

// The restrictions that the request asks for and the mount has not got, "ro,nosuid"; empty when it has all.
std::string lacking_restrictions(const MountRequest& request, const MountEntry& entry)
{
    static constexpr std::pair<unsigned long, const char*> kRestrictions[] = {
        {MS_RDONLY, "ro"}, {MS_NOSUID, "nosuid"}, {MS_NODEV, "nodev"}, {MS_NOEXEC, "noexec"}};
    const auto has = split(entry.flags, ',');
    std::string lacking;
    for (const auto& [flag, name] : kRestrictions)
        if ((request.kernel_flags & flag) != 0 && std::find(has.begin(), has.end(), name) == has.end())
            lacking += (lacking.empty() ? "" : ",") + std::string(name);
    return lacking;
}

// Nobody may serve the volume. One that is just being unmounted is waited for. kExists: it is mounted where
// and as strictly as it shall be, which "mount -a" cannot tell from a list of devices in fstab.
Status check_not_mounted(std::optional<MountedVolume> mounted, const MountRequest& request, std::string& why)
{
    if (mounted.has_value() && mounted->closing) {
        if (auto client = ControlClient::connect(mounted->uuid); client.ok()) {
            std::string ignored;
            if (client->ask("shutdown-wait", ignored).ok())
                (void)client->next(0).ok();
        }
        mounted = find_mounted_volume(mounted->uuid);
    }
    if (!mounted.has_value())
        return {};
    const std::string where = where_mounted(*mounted);
    why = title_of(*mounted) + (where.starts_with("mounted") ? " is already " : " was ") + where;
    const auto table = read_mount_table();
    const MountEntry* const entry = table.ok() ? mount_at(*table, request.directory) : nullptr;
    if (entry == nullptr || entry->device != mounted->device)
        return Err::kBusy;
    const std::string lacking = lacking_restrictions(request, *entry);
    if (lacking.empty())
        return Err::kExists;
    why = title_of(*mounted) + " is mounted there without " + lacking + "; use -o remount," + lacking;
    return Err::kBusy;
}

// A member that can stand for the mount, one that was named first. Nothing: an ordinary FUSE mount it will
// be.
std::optional<BlockMount> claim_block_device(const VolumeMembers& volume, const MountRequest& request)
{
    std::vector<std::string> candidates;
    for (const FoundMember& member : volume.members)
        candidates.push_back(member.path);
    std::stable_sort(candidates.begin(), candidates.end(), [&](const std::string& a, const std::string& b) {
        const auto place = [&](const std::string& path) {
            return std::find(volume.named.begin(), volume.named.end(), path);
        };
        return place(a) < place(b);
    });
    for (const std::string& path : candidates) {
        struct stat info { };
        if (stat(path.c_str(), &info) != 0 || !S_ISBLK(info.st_mode))
            continue;
        if (auto block = BlockMount::create(path, request); block.ok())
            return block.take();
    }
    return std::nullopt;
}

MemberAccess access_of(const MountRequest& request)
{
    if (request.options.rescue)
        return MemberAccess::kReadOnly;
    return request.options.read_only ? MemberAccess::kReadWriteIfPossible : MemberAccess::kReadWrite;
}

Result<VolumeMembers> find_members(const MountRequest& request, std::string& why)
{
    VolumeSpec spec = request.volume;
    spec.paths.insert(spec.paths.end(), request.device_options.begin(), request.device_options.end());
    const Unusable unusable = request.options.degraded ? Unusable::kSkip : Unusable::kRefuse;
    // A mounted volume of image files may be known by name only to its daemon.
    if (!spec.name.empty())
        CW_TRY(check_not_mounted(find_mounted_volume(spec.name), request, why));
    return find_volume_in_time(spec, unusable, request, why);
}

// `block` becomes the mount to be, where a member can stand for it.
Status send_members(int channel, const MountRequest& request, const VolumeMembers& volume,
                    std::optional<BlockMount>& block, std::string& why)
{
    CW_TRY(check_not_mounted(find_mounted_volume(volume.uuid), request, why));
    if (!request.fake)
        block = claim_block_device(volume, request);
    std::vector<std::string> warnings;
    const MemberAccess access = access_of(request);
    auto members = open_members(volume, access, warnings, why);
    // Kernels can be told to let nobody write to a device under a mount.
    if (!members.ok() && block.has_value()) {
        block.reset();
        warnings.clear();
        members = open_members(volume, access, warnings, why);
    }
    if (members.err() == Err::kReadOnly && access == MemberAccess::kReadWrite)
        why += ", or mount with -o ro";
    CW_TRY(members.status());
    for (const std::string& warning : warnings)
        print_mount_message("warning: " + warning);
    if (request.fake)
        return {};
    Status sent;
    for (size_t i = 0; sent.ok() && i < members->size(); ++i) {
        const OpenedMember& member = (*members)[i];
        const HandshakeKind kind = member.named ? HandshakeKind::kNamedMember : HandshakeKind::kMember;
        sent = send_handshake(channel, kind, member.path, member.fd.get());
    }
    if (sent.ok())
        sent = send_handshake(channel, HandshakeKind::kOpen, {}, -1);
    // A daemon that ended before it had all of them said why; one that lives says that it does not get them.
    // receive_opened() hears it.
    if (!sent.ok())
        shutdown(channel, SHUT_WR);
    return {};
}

// What the daemon found: read-only by need, or why it gave up.
Result<Json> receive_opened(int channel, std::string& why)
{
    auto message = receive_handshake(channel);
    if (message.ok() && message->kind == HandshakeKind::kOpened) {
        auto opened = json_parse_object(message->text);
        why = opened.ok() ? "" : "the daemon's answer cannot be read";
        return opened;
    }
    if (message.ok() && message->kind == HandshakeKind::kFailed && !message->text.empty())
        why = message->text;
    else
        why = "the daemon ended without a reason; see the system log";
    return Err::kIo;
}

// The first statfs waits for INIT and for the daemon's first answer.
bool mount_answers(const std::string& directory)
{
    struct statfs ignored { };
    int result;
    do
        result = statfs(directory.c_str(), &ignored);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

// Members that came when the volume could not take them: udev asked for that once. Not for users, whose
// mounts udev does not know.
void bring_back_members(const Uuid& volume, const std::vector<std::string>& left_out)
{
    auto client = geteuid() == 0 ? ControlClient::connect(volume) : Result<ControlClient>(Err::kAccess);
    if (!client.ok())
        return;
    for (const std::string& line : bring_back_found(*client, volume, left_out))
        print_mount_message(line);
}

// Those that appeared since they were searched. Several that are named are the members to use.
void bring_back_late(const MountRequest& request, const VolumeMembers& volume)
{
    if (request.volume.name.empty() && request.volume.paths.size() + request.device_options.size() > 1)
        return;
    std::vector<std::string> seen;
    for (const FoundMember& member : volume.members)
        seen.push_back(member.path);
    bring_back_members(volume.uuid, seen);
}

int mount_and_serve(int channel, const MountRequest& request, std::optional<BlockMount> block,
                    const std::string& shown_options)
{
    std::string why;
    // Until the daemon answers it ends with this program, and leaves a mount that nobody serves: signals
    // wait.
    block_watched_signals();
    auto mounted = attach_mount(request, std::move(block), why);
    if (!mounted.ok()) {
        print_mount_message(why);
        return mounted.err() == Err::kUnsupported ? kMountSystem : kMountFailed;
    }
    const MountEntry& entry = mounted->entry;
    const Status sent =
        send_handshake(channel, HandshakeKind::kServe, entry.device, mounted->connection.get());
    // Only the daemon's copy counts now: when it dies, requests fail instead of waiting for this program.
    mounted->connection = UniqueFd();
    if (!sent.ok() || !mount_answers(request.directory)) {
        detach_mount(request.directory, entry.device).ignore();
        return failed("the daemon does not serve the mount; see the system log");
    }
    tune_mount(entry);
    add_user_mount(entry.source, request.directory, shown_options);
    return kMountOk;
}

}  // namespace

void print_mount_message(const std::string& text)
{
    print_line(stderr, "mount.cowraid: %s", text.c_str());
}

int run_mount_helper(UniqueFd channel, const MountRequest& request)
{
    std::string why;
    if (!prepare_mount_point(request.directory, why).ok())
        return failed(why);
    std::optional<BlockMount> block;
    const auto volume = find_members(request, why);
    if (volume.err() == Err::kNotFound && request.nofail)
        return kMountOk;
    const Status sent =
        volume.ok() ? send_members(channel.get(), request, *volume, block, why) : volume.status();
    if (sent.err() == Err::kExists) {
        print_mount_message(why);
        return kMountOk;
    }
    if (!sent.ok())
        return failed(why);
    if (request.fake)
        return kMountOk;
    const auto opened = receive_opened(channel.get(), why);
    if (!opened.ok())
        return failed(why + unnamed_members_text(*volume));
    MountRequest actual = request;
    if (json_get_flag(opened->get(), "read_only"))
        actual.kernel_flags |= MS_RDONLY;
    const json_t* const warnings = json_get(opened->get(), "warnings");
    for (size_t i = 0; i < json_array_size(warnings); ++i)
        print_mount_message("warning: " + json_text(json_array_get(warnings, i)));
    if (request.verbose)
        print_mount_message("volume " + json_get_text(opened->get(), "uuid") + " is open");
    const bool degraded = json_get_flag(opened->get(), "degraded");
    const int result = mount_and_serve(channel.get(), actual, std::move(block), degraded ? "degraded" : "");
    if (result == kMountOk && degraded && (actual.kernel_flags & MS_RDONLY) == 0) {
        end_by_watched_signals();  // it is mounted, and devices may keep this waiting
        bring_back_late(request, *volume);
    }
    return result;
}

int run_remount(const MountRequest& request)
{
    const auto table = read_mount_table();
    const MountEntry* const entry = table.ok() ? mount_at(*table, request.directory) : nullptr;
    if (entry == nullptr || !entry->is_cowraid())
        return failed("no cowraid volume is mounted at " + request.directory);
    const auto mounted = find_mount_of_device(entry->device);
    if (!mounted.has_value())
        return failed(why_not_answered(request.directory, *entry));
    auto client = ControlClient::connect(mounted->uuid);
    if (!client.ok())
        return failed(why_not_answered(request.directory, *entry));

    // What is mounted, changed by what is asked: the kernel replaces all flags at once.
    MountRequest actual;
    actual.source = entry->source;
    actual.directory = request.directory;
    actual.sloppy = true;
    std::string why;
    CW_ASSERT(parse_mount_options(entry->flags + (entry->synchronous ? ",sync" : ""), actual, why).ok());
    // A mount point may be read-only in a filesystem that is not; "ro" and "rw" are said of both.
    const bool was_read_only = actual.options.read_only = entry->read_only;
    const unsigned long flags_before = actual.kernel_flags;
    for (const std::string& list : request.option_lists) {
        if (!parse_mount_options(list, actual, why).ok())
            return failed(why);
    }
    // The rest of a user's options only the daemon knows.
    constexpr unsigned long kKernels = MS_RDONLY | MS_NOEXEC | MS_NOSUID | MS_NODEV;
    const bool asks_kernel = geteuid() == 0;
    if (!asks_kernel &&
        (((actual.kernel_flags ^ flags_before) & kKernels) != 0 || actual.options.read_only != was_read_only))
        return failed("only root may change what the kernel does of a mount (ro, rw, noexec, ...); unmount "
                      "it, and mount it with that");
    // A mount point may also be writable in a filesystem that is not: without the flag the kernel would make
    // that writable.
    if (actual.options.read_only)
        actual.kernel_flags |= MS_RDONLY;
    // The kernel's side is the stricter one while they differ.
    if (asks_kernel && actual.options.read_only && !remount_kernel(actual, why).ok())
        return failed(why);
    Json arguments = json_make_object();
    json_put_flag(arguments.get(), "read_only", actual.options.read_only);
    std::string options;
    for (const std::string& list : request.option_lists)
        options.append(options.empty() ? "" : ",").append(list);
    json_put_text(arguments.get(), "options", options);
    const auto answer = client->call("remount", arguments.get(), why);
    if (!answer.ok())
        return failed(why);
    if (const std::string later = json_get_text(answer->get(), "later"); !later.empty())
        print_mount_message("warning: a remount does not change " + later + "; unmount and mount for that");
    if (!asks_kernel || actual.options.read_only)
        return kMountOk;
    if (remount_kernel(actual, why).ok()) {
        if (was_read_only)
            bring_back_members(mounted->uuid, {});
        return kMountOk;
    }
    if (was_read_only) {
        std::string ignored;
        json_put_flag(arguments.get(), "read_only", true);
        (void)client->call("remount", arguments.get(), ignored).ok();
    }
    return failed(why);
}

}  // namespace cowraid
