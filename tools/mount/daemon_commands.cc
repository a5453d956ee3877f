// SPDX-License-Identifier: MIT
#include "tools/mount/daemon_commands.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "control/damage_json.h"
#include "control/extents_json.h"
#include "control/layout_json.h"
#include "device/open_member.h"
#include "fs/make_volume.h"
#include "tools/mount/effective_options.h"
#include "tools/mount/mount_request.h"
#include "tools/mount/partial_write_options.h"

namespace cowraid {

const VolumeControl::Command VolumeControl::kCommands[] = {
    {"mount", false, false, &VolumeControl::mount},
    {"info", true, false, &VolumeControl::info},
    {"status", true, false, &VolumeControl::status},
    {"layout", true, false, &VolumeControl::layout},
    {"stripe-layout", true, true, &VolumeControl::layout},
    {"extents", true, true, &VolumeControl::extents},
    {"sync", true, true, &VolumeControl::sync},
    {"stats-reset", true, true, &VolumeControl::stats_reset},
    {"member-stats-reset", true, true, &VolumeControl::stats_reset},
    {"remount", true, true, &VolumeControl::remount},
    {"scrub-start", true, true, &VolumeControl::scrub_start},
    {"scrub-status", true, false, &VolumeControl::scrub_status},
    {"scrub-pause", true, true, &VolumeControl::scrub_pause},
    {"scrub-resume", true, true, &VolumeControl::scrub_resume},
    {"scrub-cancel", true, true, &VolumeControl::scrub_cancel},
    {"damage", true, true, &VolumeControl::damage},
    {"balance", true, true, &VolumeControl::balance},
    {"balance-plan", true, true, &VolumeControl::balance_plan},
    {"balance-status", true, false, &VolumeControl::balance_status},
    {"device-add", true, true, &VolumeControl::device_add},
    {"spare-remove", true, true, &VolumeControl::spare_remove},
    {"device-replace", true, true, &VolumeControl::device_replace},
    {"replace-plan", true, true, &VolumeControl::replace_plan},
    {"replace-cancel", true, true, &VolumeControl::replace_cancel},
    {"device-online", true, true, &VolumeControl::device_online},
    {"device-offline", true, true, &VolumeControl::device_offline},
    {"member-grow", true, true, &VolumeControl::member_grow},
    {"member-grow-to", true, true, &VolumeControl::member_grow},
    {"member-grow-plan", true, true, &VolumeControl::member_grow_plan},
    {"events", false, false, &VolumeControl::events},
    {"shutdown-wait", false, false, &VolumeControl::shutdown_wait},
};

VolumeControl::VolumeControl(Filesystem& filesystem, std::string mount_point)
    : filesystem_(filesystem),
      uuid_(filesystem.info().uuid),
      label_(filesystem.info().label),
      mount_point_(std::move(mount_point)),
      memory_(filesystem.store.options)
{
}

void VolumeControl::set_device(std::string device)
{
    MutexLock lock(device_mutex_);
    device_ = std::move(device);
}

void VolumeControl::close_gate()
{
    closing_.store(true);
    WriteLock wait_for_commands(gate_);
}

Status VolumeControl::handle(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    for (const Command& candidate : kCommands) {
        if (candidate.name != request.command)
            continue;
        if (!candidate.needs_filesystem)
            return (this->*candidate.run)(request, answer, why);
        why = "the volume is being unmounted";
        if (closing_.load())  // close_gate() may wait for others, and nobody passes it
            return Err::kShutdown;
        ReadLock in_use(gate_);
        if (closing_.load())
            return Err::kShutdown;
        why.clear();
        return candidate.waits ? run_waiting(candidate, request, answer, why)
                               : (this->*candidate.run)(request, answer, why);
    }
    why = "unknown command '" + request.command + "'; is the daemon of another version?";
    return Err::kUnsupported;
}

// What waits for members that hang leaves room for those who ask how the volume is.
Status VolumeControl::run_waiting(const Command& command, ControlRequest& request, ControlAnswer& answer,
                                  std::string& why)
{
    Status status = Err::kBusy;
    if (waiting_.fetch_add(1) < kWaitingMax)
        status = (this->*command.run)(request, answer, why);
    else
        why = "too many commands wait for members; see cowraid status";
    waiting_.fetch_sub(1);
    return status;
}

Status VolumeControl::mount(ControlRequest&, ControlAnswer& answer, std::string&)
{
    answer.result = json_with_schema("mount");
    json_t* const out = answer.result.get();
    json_put_text(out, "uuid", uuid_text(uuid_));
    json_put_text(out, "label", label_);
    json_put_text(out, "mount_point", mount_point_);
    {
        MutexLock lock(device_mutex_);
        json_put_text(out, "device", device_);
    }
    json_put_integer(out, "pid", static_cast<uint64_t>(getpid()));
    json_put_text(out, "program", COWRAID_VERSION);
    json_put_flag(out, "closing", closing_.load());
    return {};
}

VolumeReport VolumeControl::report()
{
    VolumeReport report;
    report.info = filesystem_.info();
    report.mounted = true;
    report.has_usage = true;
    report.mount_point = mount_point_;
    report.mount_options = effective_options(filesystem_);
    return report;
}

VolumeStatus VolumeControl::volume_status()
{
    ScrubStatus before;
    const ScrubStatus scrub = filesystem_.committer.scrub.status(&before);
    return {.report = report(),
            .scrub = scrub,
            .catch_up = filesystem_.committer.catch_up.status(),
            .balance = filesystem_.committer.balance.status(),
            .replace = filesystem_.committer.replace.status(),
            .scrub_before = before};
}

Status VolumeControl::info(ControlRequest&, ControlAnswer& answer, std::string&)
{
    answer.result = encode_report(report());
    return {};
}

Status VolumeControl::status(ControlRequest&, ControlAnswer& answer, std::string&)
{
    answer.result = encode_status(volume_status());
    return {};
}

void VolumeControl::look_for_events(bool closed)
{
    VolumeStatus status = volume_status();
    if (closed)
        status.report = looked_at_;
    looked_at_ = status.report;
    degraded_.store(missing_members(status.report.info) + stale_members(status.report.info) > 0);
    std::vector<VolumeEvent> found = finder_.look(status, static_cast<uint64_t>(time(nullptr)));
    for (VolumeEvent& event : found)
        if (event.name == "SpareUsed" && named_devices_.load()) {
            event.text += "; " + mount_by_name_text(event.device);
            CW_LOG_WARNING("%s", mount_by_name_text(event.device).c_str());
        }
    events_.add(std::move(found));
    // No other thread sees to that while the volume is read-only.
    if (!closed && filesystem_.store.service.read_only())
        memory_.step();
}

Status VolumeControl::events(ControlRequest& request, ControlAnswer& answer, std::string&)
{
    const EventLog::Answer found = events_.since(json_get_integer(request.body.get(), "since"));
    answer.result = json_with_schema("events");
    put_events(found, answer.result.get());
    json_put_flag(answer.result.get(), "degraded", degraded_.load());
    return {};
}

void VolumeControl::put_events(const EventLog::Answer& found, json_t* out)
{
    json_put_integer(out, "last", found.last);
    json_put_integer(out, "dropped", found.dropped);
    Json events = json_make_array();
    for (const VolumeEvent& event : found.events)
        json_array_append_new(events.get(), encode_event(event).release());
    json_put(out, "events", std::move(events));
}

// Some groups at a time: an answer has a bound.
Status VolumeControl::layout(ControlRequest& request, ControlAnswer& answer, std::string&)
{
    constexpr uint64_t kItemsAtOnce = 16384;
    const VolumeAddress from{json_get_integer(request.body.get(), "from")};
    const bool stripes = request.command == "stripe-layout";
    answer.result = encode_layout(
        volume_layout(filesystem_, from, stripes ? Occupancy::kStripes : Occupancy::kGroups, kItemsAtOnce));
    return {};
}

Status VolumeControl::extents(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    constexpr size_t kLinesAtOnce = 4096;
    const InodeNumber inode{json_get_integer(request.body.get(), "inode")};
    const uint64_t from = json_get_integer(request.body.get(), "from_block");
    // What is in memory has no place yet.
    if (from == 0 && filesystem_.store.service.writing())
        CW_TRY(filesystem_.committer.sync());
    const auto extents = list_file_extents(filesystem_, inode, from, kLinesAtOnce);
    if (!extents.ok()) {
        why = std::string("the extents of this file cannot be had: ") + err_text(extents.err());
        return extents.status();
    }
    answer.result = encode_file_extents(*extents);
    return {};
}

Status VolumeControl::sync(ControlRequest&, ControlAnswer&, std::string& why)
{
    const Status status = filesystem_.committer.sync();
    if (!status.ok())
        why = std::string("the commit failed: ") + err_text(status.err()) + "; see the system log";
    return status;
}

Status VolumeControl::stats_reset(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    answer.result = encode_report(report());
    const MemberId member{static_cast<uint32_t>(json_get_integer(request.body.get(), "member"))};
    const Status status = filesystem_.reset_counters(member);
    if (!status.ok())
        why = std::string("the counters stay: ") + err_text(status.err());
    return status;
}

Status VolumeControl::remount(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const json_t* const read_only = json_get(request.body.get(), "read_only");
    if (!json_is_boolean(read_only)) {
        why = "remount needs read_only: true or false";
        return Err::kInvalid;
    }
    MountRequest wanted;
    wanted.sloppy = true;
    wanted.options = current_options(filesystem_);
    // Shares of the memory stay as they are.
    wanted.dirty_given = wanted.cache_given = wanted.stripe_cache_given = true;
    CW_TRY(parse_mount_options(json_get_text(request.body.get(), "options"), wanted, why));
    CW_TRY(filesystem_.committer.remount(json_is_true(read_only), why));
    CW_ASSIGN(const std::string later, change_options(filesystem_, wanted.options));
    answer.result = json_make_object();
    json_put_text(answer.result.get(), "later", later);
    return {};
}

std::string VolumeControl::not_writable(Err err, const char* otherwise)
{
    const VolumeInfo info = filesystem_.info();
    return err == Err::kReadOnly || !info.read_only_reason.empty()
               ? not_writable_text(info, otherwise)
               : "the volume has stopped; see cowraid status";
}

Status VolumeControl::answer_scrub(Status status, const std::string& refusal, ControlAnswer& answer,
                                   std::string& why)
{
    if (!status.ok()) {
        why = refusal;
        return status;
    }
    answer.result = encode_scrub(filesystem_.committer.scrub.status());
    return {};
}

Status VolumeControl::scrub_start(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const json_t* const repair = json_get(request.body.get(), "repair");
    ScrubOptions options = {
        .mode = json_is_false(repair) ? ScrubMode::kLook : ScrubMode::kRepair,
        .limit = json_get_integer(request.body.get(), "limit"),
        .percent = static_cast<uint32_t>(
            std::clamp<uint64_t>(json_get_integer(request.body.get(), "percent"), 1, 100)),
        .older_than = json_get_integer(request.body.get(), "older_than"),
    };
    const std::string plan = json_get_text(request.body.get(), "plan");
    if (!plan.empty() && !parse_scrub_plan(plan, options.plan)) {
        why = "there is no plan " + quoted(plan);
        return Err::kInvalid;
    }
    const Status status = filesystem_.committer.scrub.start(options);
    const bool paused = filesystem_.committer.scrub.status().state == ScrubState::kPaused;
    const char* const busy = paused ? "a scrub is paused; cowraid scrub resume or cancel it"
                                    : "a scrub is under way; see cowraid scrub status";
    if (status.ok() || status.err() == Err::kBusy)
        return answer_scrub(status, busy, answer, why);
    return answer_scrub(status, not_writable(status.err(), ", or unmount it and run cowraid check"), answer,
                        why);
}

Status VolumeControl::scrub_status(ControlRequest&, ControlAnswer& answer, std::string& why)
{
    return answer_scrub({}, "", answer, why);
}

// Durable when it is answered.
Status VolumeControl::change_scrub(Status (Scrub::*change)(), const char* refusal, ControlAnswer& answer,
                                   std::string& why)
{
    Committer& committer = filesystem_.committer;
    Status status = filesystem_.store.service.check_writable();
    if (status.ok())
        status = (committer.scrub.*change)();
    if (!status.ok())
        return answer_scrub(status, status.err() == Err::kInvalid ? refusal : not_writable(status.err()),
                            answer, why);
    return answer_scrub(committer.sync(), "that could not be recorded; see cowraid status", answer, why);
}

Status VolumeControl::scrub_pause(ControlRequest&, ControlAnswer& answer, std::string& why)
{
    return change_scrub(&Scrub::pause, "no scrub is running", answer, why);
}

Status VolumeControl::scrub_resume(ControlRequest&, ControlAnswer& answer, std::string& why)
{
    return change_scrub(&Scrub::resume, "no scrub is paused", answer, why);
}

Status VolumeControl::scrub_cancel(ControlRequest&, ControlAnswer& answer, std::string& why)
{
    return change_scrub(&Scrub::cancel, "no scrub is running or paused", answer, why);
}

Status VolumeControl::damage(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const InodeNumber after{json_get_integer(request.body.get(), kDamageAfter)};
    const auto found = find_damaged_files(filesystem_.store, kDamagedFilesMax, after);
    if (!found.ok()) {
        why = "the file tree cannot be read; see the system log";
        return found.err();
    }
    answer.result = encode_damage(*found);
    return {};
}

namespace {

// All that the device has, where the request does not say.
uint64_t wanted_size(const json_t* request)
{
    const uint64_t bytes = json_get_integer(request, "size_bytes");
    return bytes == 0 ? UINT64_MAX : bytes;
}

MemberId member_of(const json_t* request, const char* key = "member")
{
    return {static_cast<uint32_t>(std::min<uint64_t>(json_get_integer(request, key), UINT32_MAX))};
}

// The profile that a request names, else `usual`. kInvalid: there is none of that name.
Result<ProfileId> requested_profile(const json_t* request, const char* key, ProfileId usual, std::string& why)
{
    const std::string name = json_get_text(request, key);
    if (name.empty())
        return usual;
    const Profile* const profile = find_profile(std::string_view(name));
    if (profile != nullptr)
        return profile->id;
    why = "there is no profile " + quoted(name);
    return Err::kInvalid;
}

// Nodes survive what data will survive, those in groups that mkfs or a cancelled balance left weaker, too.
void raise_metadata(Volume& volume, BalanceOptions& options)
{
    const Profile& data = *find_profile(options.profiles.data);
    const Profile& usual = *find_profile(default_metadata_profile(data.id, volume.member_table().size()));
    const uint32_t now = find_profile(options.profiles.metadata)->tolerance;
    if (data.tolerance > now && usual.tolerance > now)
        options.profiles.metadata = usual.id;
    const uint32_t wanted = find_profile(options.profiles.metadata)->tolerance;
    for (const Ref<const ArrayGroup>& group : volume.array().groups())
        if ((group->record.content & (kGroupMetadata | kGroupSystem)) != 0 && group->tolerance < wanted)
            options.content |= kGroupMetadata | kGroupSystem;
}

}  // namespace

Result<BalanceOptions> VolumeControl::member_options(const json_t* request, uint64_t shrink_bytes,
                                                     std::string& why)
{
    const BalanceOptions options = {
        .profiles = filesystem_.volume->profiles(),
        .content = kAllContent,
        .member = member_of(request),
        .shrink_bytes = shrink_bytes,
    };
    if (options.member.value != 0)
        return options;
    why = "no member is named";
    return Err::kInvalid;
}

Result<BalanceOptions> VolumeControl::balance_options(const json_t* request, std::string& why)
{
    const VolumeProfiles now = filesystem_.volume->profiles();
    BalanceOptions options;
    options.convert = json_get_flag(request, "convert");
    options.force = json_get_flag(request, "force");
    options.data = decode_filter(json_get(request, "data_filter"));
    options.metadata = decode_filter(json_get(request, "metadata_filter"));
    options.system = decode_filter(json_get(request, "system_filter"));
    options.content = (json_get_flag(request, "data") ? kGroupData : 0) |
                      (json_get_flag(request, "metadata") ? kGroupMetadata : 0) |
                      (json_get_flag(request, "system") ? kGroupSystem : 0);
    CW_ASSIGN(options.profiles.data, requested_profile(request, "data_profile", now.data, why));
    CW_ASSIGN(options.profiles.metadata, requested_profile(request, "metadata_profile", now.metadata, why));
    if (!json_get_text(request, "data_profile").empty() && json_get_text(request, "metadata_profile").empty())
        raise_metadata(*filesystem_.volume, options);
    if (options.content != 0)
        return options;
    why = "nothing is to be balanced: neither data nor metadata";
    return Err::kInvalid;
}

Result<BalanceOptions> VolumeControl::wanted_balance(const json_t* request, std::string& why)
{
    why.clear();
    const std::string action = json_get_text(request, "action");
    if (action == "start" || action == "start-filtered")
        return balance_options(request, why);
    if (action == "remove" || action == "shrink")
        return member_options(
            request, action == "remove" ? 0 : std::max<uint64_t>(1, json_get_integer(request, "size_bytes")),
            why);
    why = "no such action";
    return Err::kInvalid;
}

Status VolumeControl::balance_plan(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    BalancePlan plan;
    const auto options = wanted_balance(request.body.get(), why);
    const Status status =
        options.ok() ? filesystem_.committer.balance.plan(*options, plan, why) : options.status();
    if (!status.ok() && why.empty())
        why = not_writable(status.err());
    if (status.ok())
        answer.result = encode_plan(plan);
    return status;
}

Status VolumeControl::balance_status(ControlRequest&, ControlAnswer& answer, std::string&)
{
    answer.result = encode_balance(filesystem_.committer.balance.status());
    return {};
}

Status VolumeControl::balance(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    Balance& work = filesystem_.committer.balance;
    const std::string action = json_get_text(request.body.get(), "action");
    Status status;
    why.clear();
    if (action == "pause") {
        status = work.pause(why);
    } else if (action == "resume") {
        status = work.resume(why);
    } else if (action == "cancel") {
        status = work.cancel(why);
    } else {
        const auto options = wanted_balance(request.body.get(), why);
        status = options.ok() ? work.start(*options, why) : options.status();
    }
    if (!status.ok() && why.empty())
        why = not_writable(status.err());
    if (status.ok())
        answer.result = encode_balance(work.status());
    return status;
}

namespace {

bool same_thing(const struct stat& one, const struct stat& other)
{
    if (S_ISBLK(one.st_mode) || S_ISBLK(other.st_mode))
        return one.st_mode == other.st_mode && one.st_rdev == other.st_rdev;
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

// What is, or lies on, this very volume.
Status VolumeControl::refuse_own(const UniqueFd& descriptor, std::string& why)
{
    struct stat given, own;
    if (fstat(descriptor.get(), &given) != 0)
        return {};  // said where it is made a device
    std::string mounted;
    {
        MutexLock lock(device_mutex_);
        mounted = device_;
    }
    if (mounted == std::to_string(major(given.st_dev)) + ":" + std::to_string(minor(given.st_dev))) {
        why = "it lies on the volume itself; name another device";
        return Err::kInvalid;
    }
    MemberSet& members = filesystem_.volume->members();
    for (const MemberId id : members.ids())
        if (BlockDevice* const device = members.device(id);
            device != nullptr && fstat(device->ring_fd(), &own) == 0 && same_thing(given, own)) {
            why = "it is member " + std::to_string(id.value) + " already";
            return Err::kInvalid;
        }
    return {};
}

Result<std::unique_ptr<BlockDevice>> VolumeControl::device_of(ControlRequest& request, std::string& why)
{
    const std::string path = json_get_text(request.body.get(), "path");
    if (path.empty() || !request.descriptor.valid()) {
        why = "a path and a descriptor must come with the request";
        return Err::kInvalid;
    }
    CW_TRY(refuse_own(request.descriptor, why));
    CW_ASSIGN(auto device, make_device_from_fd(std::move(request.descriptor), path, {}, why));
    return std::unique_ptr<BlockDevice>(std::move(device));
}

Status VolumeControl::answer_device(const ControlRequest& request, Status status, MemberId member,
                                    ControlAnswer& answer, std::string& why)
{
    if (!status.ok()) {
        if (why.empty())
            why = not_writable(status.err());
        return status;
    }
    answer.result = json_with_schema(request.command.c_str());
    json_put_text(answer.result.get(), "uuid", uuid_text(uuid_));
    json_put_integer(answer.result.get(), "member", member.value);
    json_put_text(answer.result.get(), "path", json_get_text(request.body.get(), "path"));
    json_put_flag(answer.result.get(), "named_devices", named_devices_.load());
    return {};
}

// How much room for data comes with a device, and those before it, and what block groups need for that.
void VolumeControl::put_room(const json_t* request, json_t* answer)
{
    const Volume& volume = *filesystem_.volume;
    std::vector<uint64_t> sizes = {json_get_integer(request, "size_bytes")};
    const json_t* const others = json_get(request, "other_sizes");
    for (size_t i = 0; i < std::min<size_t>(json_array_size(others), kMaxMembers); ++i)
        sizes.push_back(static_cast<uint64_t>(json_integer_value(json_array_get(others, i))));
    const uint64_t before = volume.potential_with({}), after = volume.potential_with(sizes);
    const Profile& profile = *find_profile(volume.profiles().data);
    json_put_integer(answer, "data_bytes", (after - std::min(after, before)) * kBlockBytes);
    json_put_text(answer, "data_profile", profile.name);
    json_put_integer(answer, "members_needed", profile.min_members);
}

Status VolumeControl::device_add(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const json_t* const asked = request.body.get();
    if (json_get_flag(asked, "check")) {
        if (request.descriptor.valid())
            CW_TRY(refuse_own(request.descriptor, why));
        const uint64_t size_bytes = json_get_integer(asked, "size_bytes");
        const auto others =
            static_cast<uint32_t>(std::min<uint64_t>(json_get_integer(asked, "others"), kMaxMembers));
        const Status planned =
            json_get_flag(asked, "spare")
                ? filesystem_.committer.plan_spare(json_get_text(asked, "path"), size_bytes, others, why)
                : filesystem_.committer.plan_member(size_bytes, others, why).status();
        CW_TRY(answer_device(request, planned, {}, answer, why));
        if (!json_get_flag(asked, "spare"))
            put_room(asked, answer.result.get());
        return {};
    }
    CW_ASSIGN(auto device, device_of(request, why));
    const bool spare = json_get_flag(request.body.get(), "spare");
    const uint64_t size_bytes = device->size_bytes();
    const auto added = spare ? filesystem_.committer.add_spare(std::move(device), why)
                             : filesystem_.committer.add_member(std::move(device), why);
    CW_TRY(answer_device(request, added.status(), added.ok() ? *added : MemberId(), answer, why));
    Json too_large = json_make_array();
    for (const MemberRecord& member : filesystem_.volume->member_table())
        if (spare && member.size_bytes > size_bytes)
            json_array_append_new(too_large.get(), json_integer(member.id.value));
    json_put_flag(answer.result.get(), "spare", spare);
    json_put_integer(answer.result.get(), "may_fail_writing", filesystem_.info().may_fail_writing);
    json_put(answer.result.get(), "too_small_for", std::move(too_large));
    return {};
}

Status VolumeControl::spare_remove(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const MemberId spare = member_of(request.body.get());
    return answer_device(request, filesystem_.committer.remove_spare(spare, why), spare, answer, why);
}

Status VolumeControl::device_replace(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const MemberId spare = member_of(request.body.get(), "spare");
    std::unique_ptr<BlockDevice> device;
    if (spare.value == 0) {
        CW_ASSIGN(device, device_of(request, why));
    }
    const MemberId member = member_of(request.body.get());
    const Status replaced = filesystem_.committer.replace_member(member, std::move(device), why, spare);
    CW_TRY(answer_device(request, replaced, member, answer, why));
    json_put_flag(answer.result.get(), "copied", filesystem_.volume->replacing().source == member);
    return {};
}

Status VolumeControl::replace_plan(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const json_t* const body = request.body.get();
    if (request.descriptor.valid())
        CW_TRY(refuse_own(request.descriptor, why));
    BalancePlan plan;
    CW_TRY(answer_device(request,
                         filesystem_.committer.plan_replacement(member_of(body), json_get_text(body, "path"),
                                                                json_get_integer(body, "size_bytes"),
                                                                member_of(body, "spare"), plan, why),
                         {}, answer, why));
    answer.result = encode_plan(plan);
    return {};
}

Status VolumeControl::replace_cancel(ControlRequest&, ControlAnswer& answer, std::string& why)
{
    const Status cancelled = filesystem_.committer.replace.cancel(why);
    if (!cancelled.ok() && why.empty())
        why = not_writable(cancelled.err());
    if (cancelled.ok())
        answer.result = encode_replace(filesystem_.committer.replace.status());
    return cancelled;
}

Status VolumeControl::device_online(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    std::unique_ptr<BlockDevice> device;
    if (request.descriptor.valid()) {
        CW_ASSIGN(device, device_of(request, why));
    }
    const auto member =
        filesystem_.committer.online_member(member_of(request.body.get()), std::move(device), why);
    CW_TRY(answer_device(request, member.status(), member.ok() ? *member : MemberId(), answer, why));
    const std::vector<MemberRecord> spares = filesystem_.volume->spare_table();
    json_put_flag(answer.result.get(), "spare",
                  std::any_of(spares.begin(), spares.end(),
                              [&](const MemberRecord& line) { return line.id == *member; }));
    return {};
}

Status VolumeControl::device_offline(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const MemberId member = member_of(request.body.get());
    return answer_device(request, filesystem_.committer.offline_member(member, why), member, answer, why);
}

Status VolumeControl::member_grow(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const MemberId member = member_of(request.body.get());
    const uint64_t size = wanted_size(request.body.get());
    return answer_growth(member, filesystem_.committer.grow_member(member, why, size), answer, why);
}

Status VolumeControl::member_grow_plan(ControlRequest& request, ControlAnswer& answer, std::string& why)
{
    const MemberId member = member_of(request.body.get());
    const uint64_t size = wanted_size(request.body.get());
    return answer_growth(member, filesystem_.committer.plan_growth(member, why, size), answer, why);
}

Status VolumeControl::answer_growth(MemberId member, const Result<uint64_t>& grown, ControlAnswer& answer,
                                    std::string& why)
{
    if (!grown.ok()) {
        if (why.empty())
            why = not_writable(grown.err());
        return grown.err();
    }
    answer.result = json_with_schema("member-grow");
    json_put_text(answer.result.get(), "uuid", uuid_text(uuid_));
    json_put_integer(answer.result.get(), "member", member.value);
    json_put_integer(answer.result.get(), "size_bytes", *grown);
    return {};
}

Status VolumeControl::shutdown_wait(ControlRequest&, ControlAnswer& answer, std::string&)
{
    answer.result = json_make_object();
    json_put_flag(answer.result.get(), "closing", closing_.load());
    answer.hold = true;
    return {};
}

}  // namespace cowraid
