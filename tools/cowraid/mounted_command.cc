// SPDX-License-Identifier: MIT
#include "tools/cowraid/mounted_command.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "base/print.h"
#include "control/volume_status.h"
#include "device/loop_backing.h"
#include "device/open_member.h"

namespace cowraid {

namespace {

constexpr const char* kSilentDaemons = "a daemon of another mounted volume does not answer";

volatile sig_atomic_t was_interrupted = 0;

void on_interrupt(int)
{
    was_interrupted = 1;
}

// A file on the volume, or a loop device over one, cannot hold a part of it.
bool lies_on(const std::string& mount, const std::string& path)
{
    struct stat info { };
    if (stat(path.c_str(), &info) != 0)
        return false;
    if (!S_ISBLK(info.st_mode))
        return device_text(info) == mount;
    const std::string backing = backing_file_of(info.st_rdev);
    return !backing.empty() && stat(backing.c_str(), &info) == 0 && device_text(info) == mount;
}

}  // namespace

Result<VolumeTarget> target_of(const std::vector<std::string>& operands, std::string& why)
{
    if (operands.size() == 1)
        return find_target(operands, why);
    std::vector<int> silent;
    const std::vector<MountedVolume> mounted = list_mounted_volumes(&silent);
    if (mounted.size() == 1 && silent.empty())
        return VolumeTarget{.uuid = mounted.front().uuid, .mounted = true, .members = {}, .named_device = {}};
    if (auto here = find_target({"./"}, why); here.ok())
        return here;
    why = !silent.empty()   ? kSilentDaemons + std::string("; name the volume")
          : mounted.empty() ? "no volume is mounted"
                            : std::to_string(mounted.size()) + " volumes are mounted; name one";
    return Err::kNotFound;
}

bool one_volume(const CommandOptions& options)
{
    if (options.operands.size() <= 1)
        return true;
    print_error(kProgram, options.format, Err::kInvalid, "one volume at a time");
    return false;
}

Result<ControlClient> connect_mounted(const CommandOptions& options, std::string& why)
{
    CW_ASSIGN(const VolumeTarget target, target_of(options.operands, why));
    return connect_target(target, why);
}

Result<std::vector<Uuid>> chosen_volumes(const CommandOptions& options, std::string& why,
                                         std::vector<int>* unanswered)
{
    std::vector<Uuid> volumes;
    for (const std::string& operand : options.operands) {
        CW_ASSIGN(const VolumeTarget target, find_target({operand}, why));
        CW_TRY(connect_target(target, why).status());
        volumes.push_back(target.uuid);
    }
    if (!options.operands.empty())
        return volumes;
    std::vector<int> silent;
    for (const MountedVolume& mounted : list_mounted_volumes(&silent))
        volumes.push_back(mounted.uuid);
    if (silent.empty() || unanswered != nullptr) {
        if (unanswered != nullptr)
            *unanswered = std::move(silent);
        return volumes;
    }
    why = kSilentDaemons;
    return Err::kBusy;
}

Result<VolumeStatus> ask_volume_status(const Uuid& uuid, Json& answer, std::string& why)
{
    CW_ASSIGN(ControlClient client,
              connect_target({.uuid = uuid, .mounted = true, .members = {}, .named_device = {}}, why));
    CW_ASSIGN(answer, client.ask("status", why));
    why = "the daemon answers in another format; is it of another version?";
    CW_ASSIGN(VolumeStatus status, decode_status(answer.get()));
    const Health health = health_of(status);
    json_put_text(answer.get(), "health", health.state);
    json_put_text(answer.get(), "problem", health.what);
    if (const auto mounted = client.mounted_volume(); mounted.ok())
        status.report.mount_text = where_mounted(*mounted);
    why.clear();
    return status;
}

std::string several_missing(const std::vector<MemberId>& missing, std::string command)
{
    std::vector<std::string> ids;
    for (const MemberId id : missing)
        ids.push_back(std::to_string(id.value));
    if (const size_t at = command.find("ID"); at != std::string::npos)
        command.replace(at, 2, ids.front());
    return std::to_string(ids.size()) + " members are missing: " + join_words(ids) + "; name one" +
           (command.empty() ? " by its id" : ": " + command);
}

Result<MemberInfo> find_member(ControlClient& client, const std::string& text, std::string& why,
                               const std::string& command)
{
    CW_ASSIGN(const Json answer, client.ask("info", why));
    CW_ASSIGN(const VolumeReport report, decode_report(answer.get()));
    const auto number = parse_size(text);
    const auto wanted = identify_member(text);
    std::vector<MemberInfo> missing;
    for (const MemberInfo& member : report.info.members) {
        const auto device = identify_member(member.path);
        if ((number.ok() && *number == member.id.value) || (wanted.ok() && device.ok() && *device == *wanted))
            return member;
        if (!member.in_service() && !member.successor)
            missing.push_back(member);
    }
    if (text == "missing" && missing.size() == 1)
        return missing.front();
    std::vector<MemberId> ids;
    for (const MemberInfo& member : missing)
        ids.push_back(member.id);
    why = text != "missing"
              ? quoted(text) + " is no member; give the id or the device that cowraid filesystem "
                               "show tells, or missing"
          : ids.empty() ? "no member is missing"
                        : several_missing(ids, command);
    return Err::kInvalid;
}

Result<SpareInfo> find_spare(ControlClient& client, const std::string& text, std::string& why)
{
    CW_ASSIGN(const Json answer, client.ask("info", why));
    CW_ASSIGN(const VolumeReport report, decode_report(answer.get()));
    const auto wanted = identify_member(text);
    for (const SpareInfo& spare : report.info.spares) {
        const auto device = identify_member(spare.path);
        if (text == std::to_string(spare.id.value) || (wanted.ok() && device.ok() && *device == *wanted))
            return spare;
    }
    return SpareInfo();
}

namespace {

// A device that has what the member in service has is another path to it, or a copy made just now: not to be
// overwritten, not by force either. A copy is older as soon as something more is committed.
Status refuse_member_in_service(const VolumeInfo& info, const std::string& path, std::string& why)
{
    std::string ignored;
    const auto found = inspect_member(path, ignored);
    if (!found.ok() || found->superblock.volume_uuid != info.uuid ||
        found->superblock.generation < info.generation)
        return {};
    const MemberId id = found->superblock.member_id;
    const bool spare = found->superblock.on_spare();
    const bool serves =
        spare ? std::any_of(info.spares.begin(), info.spares.end(),
                            [&](const SpareInfo& one) { return one.id == id && !one.path.empty(); })
              : std::any_of(info.members.begin(), info.members.end(),
                            [&](const MemberInfo& one) { return one.id == id && one.in_service(); });
    if (!serves)
        return {};
    why = path + " is " + (spare ? "spare " : "member ") + std::to_string(id.value) +
          " of this volume, by another path, or a copy of the same state; name another device";
    return Err::kExists;
}

}  // namespace

Result<NewMember> choose_device(ControlClient& client, const char* plan, json_t* request,
                                const std::string& path, bool force, Json& answer, std::string& why)
{
    CW_ASSIGN(const MountedVolume mounted, client.mounted_volume());
    if (lies_on(mounted.device, path))
        return invalid(why, path + " lies on the volume itself; name another device");
    CW_ASSIGN(const Json info, client.ask("info", why));
    CW_ASSIGN(const VolumeReport report, decode_report(info.get()));
    if (report.info.read_only) {
        why = not_writable_text(report.info);
        return Err::kReadOnly;
    }
    auto opened = open_new_member(path, force, why);
    if (opened.ok() || opened.err() == Err::kExists)
        CW_TRY(refuse_member_in_service(report.info, path, why));
    CW_ASSIGN(NewMember device, std::move(opened));
    json_put_text(request, "path", device.path);
    json_put_integer(request, "size_bytes", device.size_bytes);
    json_put_flag(request, "check", true);
    CW_ASSIGN(answer, client.call(plan, request, why, device.fd.get()));
    json_put_flag(request, "check", false);
    return device;
}

Result<Json> hand_over_device(ControlClient& client, const char* command, json_t* request,
                              const NewMember& device, OldContent old, std::string& why)
{
    if (const std::string warning = warning_of_readers(std::span(&device, 1)); !warning.empty())
        print_line(stderr, "cowraid: warning: %s", warning.c_str());
    if (old == OldContent::kDiscard) {
        CW_ASSIGN(const MountedVolume mounted, client.mounted_volume());
        discard_all(device);
        // It may take minutes; a connection on which nothing is asked for seconds is closed.
        CW_ASSIGN(
            client,
            connect_target({.uuid = mounted.uuid, .mounted = true, .members = {}, .named_device = {}}, why));
    }
    CW_TRY(wipe_old_signatures(device, why));
    json_put_text(request, "path", device.path);
    Result<Json> done = client.call(command, request, why, device.fd.get());
    if (done.ok() && json_get_flag(done->get(), "named_devices"))
        print_line(stderr, "cowraid: warning: %s", mount_by_name_text(device.path).c_str());
    return done;
}

Json growth_of(const CommandOptions& options, const std::string& path, uint64_t size_bytes)
{
    Json plan = json_with_schema("growth");
    json_put_text(plan.get(), "path", path);
    json_put_integer(plan.get(), "size_bytes", size_bytes);
    if (options.format == OutputFormat::kText)
        print_line(stdout, "%s can be used with %s; nothing moves, and as many devices may be lost as now",
                   path.c_str(), size_text(size_bytes, options.sizes).c_str());
    return plan;
}

void print_results(const std::vector<Json>& results)
{
    if (results.size() == 1)
        return print_json(results.front().get());
    Json list = json_make_array();
    for (const Json& result : results)
        json_array_append_new(list.get(), json_incref(result.get()));
    const Json all = json_make_object();
    json_put_text(all.get(), "schema", results.empty() ? "" : json_get_text(results.front().get(), "schema"));
    json_put(all.get(), "devices", std::move(list));
    print_json(all.get());
}

Result<ScrubStatus> ask_filling(ControlClient& client, std::string& why)
{
    CW_ASSIGN(const Json answer, client.ask("status", why));
    return decode_scrub(json_get(answer.get(), "catch_up"));
}

Result<ReplaceStatus> ask_replacing(ControlClient& client, std::string& why)
{
    CW_ASSIGN(const Json answer, client.ask("status", why));
    return decode_replace(json_get(answer.get(), "replace"));
}

namespace {

// Commits that say so come after the last write.
constexpr unsigned kSettleLooks = 60;

enum class Filled : uint8_t { kNo, kNotYet, kYes };

Filled look_at_member(ControlClient& client, MemberId id)
{
    std::string ignored;
    const auto member = find_member(client, std::to_string(id.value), ignored);
    if (!member.ok() || !member->in_service())
        return Filled::kNo;
    return member->stale_groups == 0 ? Filled::kYes : Filled::kNotYet;
}

}  // namespace

bool is_filled(ControlClient& client, MemberId id)
{
    return look_at_member(client, id) == Filled::kYes;
}

uint64_t now_seconds()
{
    return static_cast<uint64_t>(std::time(nullptr));
}

int wait_until_filled(const CommandOptions& options, const Uuid& volume, MemberId id, uint64_t began)
{
    std::string why, damage;
    auto client = connect_target({.uuid = volume, .mounted = true, .members = {}, .named_device = {}}, why);
    if (!client.ok())
        return command_failed(options, client.err(), why);
    Filled filled = Filled::kNotYet;
    bool paused = false;
    // Filling ends and begins anew when another member comes.
    for (unsigned look = 0; look < kSettleLooks && filled == Filled::kNotYet && !paused; ++look) {
        const auto status = follow_work<ScrubStatus>(*client, options, ask_filling, scrub_progress,
                                                     "the member is filled when it is mounted", why);
        if (!status.ok())
            return command_failed(options, status.err(), why);
        if (interrupted()) {
            print_line(stderr, "cowraid: the member is being filled; see cowraid replace status");
            return kExitFailed;
        }
        filled = look_at_member(*client, id);
        paused = status->state == ScrubState::kPaused;
        if (status->damaged() && status->started >= began)
            damage = scrub_summary(*status);
        if (filled == Filled::kNotYet && !paused)
            usleep(kLookMicroseconds);
    }
    if (filled == Filled::kYes && !damage.empty() && options.format == OutputFormat::kText)
        print_line(stdout, "filling members: %s", damage.c_str());
    if (filled == Filled::kYes)
        return damage.empty() ? kExitOk : kExitFindings;
    return command_failed(options, paused ? Err::kReadOnly : Err::kIo,
                          "member " + std::to_string(id.value) + " is not filled; see cowraid status");
}

void notice_interrupts()
{
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

bool interrupted()
{
    return was_interrupted != 0;
}

void show_progress(const CommandOptions& options, const WorkProgress& progress)
{
    if (options.format != OutputFormat::kText || isatty(STDERR_FILENO) != 1)
        return;
    if (!progress.running) {
        print_over(stderr, "");
        return;
    }
    constexpr unsigned kBarCells = 30;
    std::string bar(size_t{progress.percent} * kBarCells / 100, '=');
    bar.resize(kBarCells, ' ');
    print_over(stderr, "[" + bar + "] " + progress_text(progress, options.sizes));
}

bool ask_again(const ControlClient& client, Err err, unsigned& failures, std::string& said)
{
    const bool is_silent = err == Err::kInterrupted || err == Err::kBusy;
    const std::string silent =
        "the daemon" + (client.daemon() == 0 ? "" : " (pid " + std::to_string(client.daemon()) + ")") +
        " does not answer";
    if (is_silent && said != silent)
        show_awaited(said = silent);
    // It may have ended the connection just as the question came.
    return is_silent || (err == Err::kIo && ++failures == 1);
}

void show_awaited(const std::string& awaits)
{
    if (awaits.empty())
        return;
    if (isatty(STDERR_FILENO) == 1)
        print_over(stderr, "");
    print_line(stderr, "cowraid: waiting: %s", awaits.c_str());
}

void print_lines(const std::string& lines)
{
    std::vector<std::string_view> all = split(lines, '\n');
    all.pop_back();  // behind the last newline
    for (const std::string_view line : all)
        print_line(stdout, "%s", std::string(line).c_str());
}

void print_field(const char* name, const std::string& value)
{
    print_lines(field_text(name, value));
}

}  // namespace cowraid
