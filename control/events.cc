// SPDX-License-Identifier: MIT
#include "control/events.h"

#include <algorithm>

#include "base/text.h"

namespace cowraid {

namespace {

constexpr uint64_t kNearlyFullPercent = 5, kRoomAgainPercent = 8;
constexpr unsigned kRebuildStep = 20;

using Balanced = BalanceStatus::State;

std::string member_text(const MemberInfo& member)
{
    return "member " + std::to_string(member.id.value) +
           (member.path.empty() ? "" : " (" + member.path + ")");
}

const MemberInfo* find_member(const VolumeInfo& info, MemberId id)
{
    const auto found = std::find_if(info.members.begin(), info.members.end(),
                                    [=](const MemberInfo& member) { return member.id == id; });
    return found == info.members.end() ? nullptr : &*found;
}

// Members that may fail beside those that do not serve or lack writes; -1: too many do. Nothing where none
// does.
std::optional<int64_t> left_when_degraded(const VolumeInfo& info)
{
    if (missing_members(info) + stale_members(info) == 0)
        return std::nullopt;
    return info.beyond_tolerance ? -1 : static_cast<int64_t>(info.may_fail);
}

std::string degraded_text(const VolumeInfo& info)
{
    std::vector<std::string> parts;
    if (missing_members(info) > 0)
        parts.push_back(count_text(missing_members(info), "member") + " out of service");
    if (stale_members(info) > 0)
        parts.push_back(count_text(stale_members(info), "member") + " without writes that it missed");
    return join_words(parts) + "; " +
           (info.beyond_tolerance ? "that is more than the volume tolerates: some files may be lost"
            : info.may_fail == 0  ? "no other member may fail"
                                  : count_text(info.may_fail, "other member") + " may still fail");
}

// Of what can be used for data.
uint64_t free_percent(const VolumeInfo& info)
{
    uint64_t used = 0;
    for (const SpaceInfo& space : info.spaces)
        used += (space.content & kGroupData) != 0 ? space.used_bytes : 0;
    const uint64_t all = used + info.available_bytes;
    return all == 0 ? 100 : info.available_bytes / std::max<uint64_t>(all / 100, 1);
}

// What a member has, or all have, that lack no writes.
std::string everything_text(const VolumeStatus& status)
{
    return lost_blocks(status) == 0 ? "everything"
                                    : "everything but what is lost; cowraid status -v names the files";
}

// Two may begin in the same second.
bool is_another(const ScrubStatus& before, const ScrubStatus& status)
{
    return status.state != ScrubState::kNone &&
           (status.started != before.started || status.number != before.number);
}

unsigned percent_of(const ScrubStatus& status)
{
    return static_cast<unsigned>(percent_share(status.bytes_done, status.bytes_total));
}

uint64_t missing_spares(const VolumeInfo& info)
{
    return static_cast<uint64_t>(std::count_if(info.spares.begin(), info.spares.end(),
                                               [](const SpareInfo& spare) { return spare.path.empty(); }));
}

std::string balance_text(const BalanceStatus& status)
{
    if (status.shrink_bytes != 0)
        return "member " + std::to_string(status.member.value) + " is made smaller, to " +
               size_text(status.shrink_bytes);
    if (status.member.value != 0)
        return "member " + std::to_string(status.member.value) + " is emptied and removed";
    return status.convert ? std::string("to ") + profile_name(status.profiles.data) + " for data, " +
                                profile_name(status.profiles.metadata) + " for metadata"
                          : "block groups are written anew";
}

}  // namespace

Json encode_event(const VolumeEvent& event)
{
    Json out = json_with_schema("event");
    json_put_integer(out.get(), "sequence", event.sequence);
    json_put_integer(out.get(), "time", event.time);
    json_put_text(out.get(), "event", event.name);
    json_put_integer(out.get(), "member", event.member.value);
    json_put_text(out.get(), "device", event.device);
    json_put_text(out.get(), "text", event.text);
    return out;
}

VolumeEvent decode_event(const json_t* object)
{
    return {.sequence = json_get_integer(object, "sequence"),
            .time = json_get_integer(object, "time"),
            .name = json_get_text(object, "event"),
            .member = {static_cast<uint32_t>(json_get_integer(object, "member"))},
            .device = json_get_text(object, "device"),
            .text = json_get_text(object, "text")};
}

void EventFinder::add(const char* name, std::string text, const MemberInfo* member)
{
    found_.push_back({.time = now_, .name = name, .text = std::move(text)});
    if (member == nullptr)
        return;
    found_.back().member = member->id;
    found_.back().device = member->path;
}

// True: it is time to tell.
bool EventFinder::grew(Reported& reported, uint64_t value) const
{
    if (value < reported.value)
        reported.value = value;  // it was set to 0
    // A clock that was set back says nothing of how long ago that was.
    const bool soon = now_ >= reported.time && now_ < reported.time + kRepeatSeconds;
    if (value == reported.value || (reported.time != 0 && soon))
        return false;
    reported.time = now_;
    return true;
}

void EventFinder::begin(const VolumeStatus& status)
{
    const VolumeInfo& info = status.report.info;
    add("NewArray", "mounted at " + status.report.mount_point);
    left_ = left_when_degraded(info);
    if (left_)
        add("DegradedArray", degraded_text(info));
    if (info.read_only && !info.read_only_reason.empty())
        add("ReadOnly", info.read_only_reason);
    tell_missing_spares(info, 0);
    for (const MemberInfo& member : info.members)
        errors_[member.id].value = errors_of(member);
    before_ = status;
    // A scrub goes on from the mount before; filling and balance begin with this one.
    if (before_.scrub.state == ScrubState::kRunning)
        before_.scrub.state = ScrubState::kPaused;
    before_.catch_up = {};
    before_.balance = {};
    before_.replace = {};
}

void EventFinder::compare_errors(const MemberInfo& member)
{
    Reported& reported = errors_[member.id];
    const uint64_t errors = errors_of(member);
    const uint64_t told = std::min(reported.value, errors);
    if (!grew(reported, errors))
        return;
    reported.value = errors;
    add("ErrorsFound",
        member_text(member) + ": " + count_text(errors - told, "error") + ", counted by cowraid device stats",
        &member);
}

void EventFinder::compare_members(const VolumeStatus& status)
{
    const VolumeInfo& info = status.report.info;
    for (const MemberInfo& was : before_.report.info.members)
        if (find_member(info, was.id) == nullptr && !was.successor) {
            add("MemberRemoved", member_text(was) + " is no member any more", &was);
            errors_.erase(was.id);
        }
    for (const MemberInfo& member : info.members) {
        const MemberInfo* const was = find_member(before_.report.info, member.id);
        if (member.successor || (was != nullptr && was->successor)) {
            // Told with the replacement.
        } else if (was == nullptr) {
            add("MemberAdded", member_text(member) + " is a member now", &member);
        } else if (was->in_service() && !member.in_service()) {
            add(member.state == MemberState::kFailed ? "Fail" : "MemberOffline",
                member_text(member) + ": " + member.reason, &member);
        } else if (!was->in_service() && member.in_service()) {
            add("MemberBack", member_text(member) + " is in service", &member);
        } else if (!was->doubtful && member.doubtful) {
            add("ManyErrors", member_text(member) + " has many errors: replace it, or add a spare", &member);
        } else if (was->stale_groups > 0 && member.stale_groups == 0 && member.in_service()) {
            add("SpareActive", member_text(member) + " has " + everything_text(status), &member);
        }
        compare_errors(member);
        compare_slowness(was, member);
    }
}

void EventFinder::compare_slowness(const MemberInfo* was, const MemberInfo& member)
{
    const bool before = was != nullptr && was->slow_ms > 0;
    if (!before && member.slow_ms > 0)
        add("MemberSlow", member_text(member) + " is slow: " + slow_text(member), &member);
    else if (before && member.slow_ms == 0 && member.in_service())
        add("MemberAnswers", member_text(member) + " answers again", &member);
}

void EventFinder::compare_spares(const VolumeInfo& info)
{
    const auto find = [](const VolumeInfo& where, MemberId id) -> const SpareInfo* {
        const auto found = std::find_if(where.spares.begin(), where.spares.end(),
                                        [=](const SpareInfo& spare) { return spare.id == id; });
        return found == where.spares.end() ? nullptr : &*found;
    };
    const auto tell = [&](const char* name, const SpareInfo& spare, const std::string& what) {
        add(name, "spare " + std::to_string(spare.id.value) +
                      (spare.path.empty() ? "" : " (" + spare.path + ")") + what);
        found_.back().device = spare.path;
    };
    for (const SpareInfo& was : before_.report.info.spares) {
        const SpareInfo* const is = find(info, was.id);
        const auto place =
            std::find_if(info.members.begin(), info.members.end(), [&](const MemberInfo& member) {
                return !was.path.empty() && member.path == was.path;
            });
        const bool used = is == nullptr && place != info.members.end();
        if (used && place->in_service())
            tell("SpareUsed", was,
                 (place->successor ? " will take the place of a member: it is member "
                                   : " takes the place of member ") +
                     std::to_string(place->id.value));
        else if (used)
            tell("FailSpare", was, " was to take the place of a member, and failed");
        else if (is == nullptr)
            tell("SpareRemoved", was, " is none any more");
        else if (is->useless && !was.useless)
            tell("FailSpare", was, " was to take the place of a member, and failed");
    }
    for (const SpareInfo& spare : info.spares) {
        const SpareInfo* const was = find(before_.report.info, spare.id);
        if (was == nullptr || (was->path.empty() && !spare.path.empty()))
            tell("SpareAdded", spare, " waits for a member to fail");
    }
    tell_missing_spares(info, missing_spares(before_.report.info));
}

void EventFinder::tell_missing_spares(const VolumeInfo& info, uint64_t before)
{
    const uint64_t missing = missing_spares(info);
    if (missing > before)
        add("SparesMissing", count_text(missing, "spare") + (missing == 1 ? " is" : " are") + " not there");
}

void EventFinder::compare_volume(const VolumeStatus& status)
{
    const VolumeInfo& info = status.report.info;
    const std::optional<int64_t> left = left_when_degraded(info);
    if (left && (!left_ || *left < *left_))
        add("DegradedArray", degraded_text(info));
    else if (!left && left_)
        add("Redundant", "all members are in service and have " + everything_text(status));
    left_ = left;
    const bool stopped = info.read_only && !info.read_only_reason.empty();
    if (stopped && !before_.report.info.read_only)
        add("ReadOnly", info.read_only_reason);
    const uint64_t lost = lost_blocks(status);
    if (grew(lost_, lost)) {
        add("DataLost", count_text(lost, "block") + " cannot be had from any redundancy");
        lost_.value = lost;
    }
    const uint64_t room = free_percent(info);
    if (!nearly_full_ && room < kNearlyFullPercent) {
        add("NearlyFull", size_text(info.available_bytes) + " are left for data");
        nearly_full_ = true;
    } else if (room >= kRoomAgainPercent) {
        nearly_full_ = false;
    }
}

void EventFinder::compare_scrubs(const VolumeStatus& status)
{
    const ScrubStatus& ended = status.scrub_before;
    if (!is_another(before_.scrub, status.scrub) || ended.state == ScrubState::kNone)
        return compare_scrub(before_.scrub, status.scrub);
    compare_scrub(before_.scrub, ended);
    compare_scrub(ended, status.scrub);
}

void EventFinder::compare_scrub(const ScrubStatus& before, const ScrubStatus& status)
{
    const bool another = is_another(before, status);
    if (another && (before.state == ScrubState::kRunning || before.state == ScrubState::kPaused))
        add("ScrubFinished", "another one was started; what it found was not seen");
    if (another)
        add("ScrubStarted", status.options.mode == ScrubMode::kLook ? "looks only" : "verifies and repairs");
    if (status.state == before.state && !another)
        return;
    if (status.state == ScrubState::kFinished)
        add("ScrubFinished", findings_text(status));
    else if (status.state == ScrubState::kCancelled)
        add("ScrubCancelled", findings_text(status));
    else if (status.state == ScrubState::kPaused)
        add("ScrubPaused", std::to_string(percent_of(status)) + "% done");
    else if (status.state == ScrubState::kRunning && !another)
        add("ScrubResumed", std::to_string(percent_of(status)) + "% done");
}

void EventFinder::tell_progress(unsigned percent, unsigned& told)
{
    percent = percent / kRebuildStep * kRebuildStep;
    if (percent <= told || percent >= 100)
        return;
    add(("Rebuild" + std::to_string(percent)).c_str(), std::to_string(percent) + "% done");
    told = percent;
}

void EventFinder::compare_rebuild(const ScrubStatus& before, const ScrubStatus& status)
{
    const bool another = status.started != before.started && status.state != ScrubState::kNone;
    if (another) {
        add("RebuildStarted", "members are written what they lack");
        rebuilt_percent_ = 0;
    }
    if (status.state == ScrubState::kRunning)
        tell_progress(percent_of(status), rebuilt_percent_);
    const bool ended = status.state == ScrubState::kFinished || status.state == ScrubState::kCancelled;
    if (ended && (another || status.state != before.state))
        add("RebuildFinished", (status.state == ScrubState::kCancelled ? "ended before its time, " : "") +
                                   findings_text(status));
}

void EventFinder::compare_balance(const BalanceStatus& before, const BalanceStatus& status)
{
    const bool another =
        status.started != before.started && status.started != 0 && status.state != Balanced::kNone;
    if (another && before.active())
        add("BalanceFinished", "another one was started");
    if (another || (status.active() && !before.active()))
        add("BalanceStarted", balance_text(status));
    if (status.state == before.state && !another)
        return;
    if (status.state == Balanced::kFinished)
        add("BalanceFinished", status.groups_stuck == 0 ? balance_text(status)
                                                        : count_text(status.groups_stuck, "block group") +
                                                              " could not be emptied");
    else if (status.state == Balanced::kCancelled)
        add("BalanceCancelled", balance_text(status));
    else if (status.state == Balanced::kPaused)
        add("BalancePaused", balance_text(status));
}

void EventFinder::compare_replace(const VolumeStatus& volume)
{
    const ReplaceStatus& before = before_.replace;
    const ReplaceStatus& status = volume.replace;
    const bool another = status.started != before.started && status.state != ReplaceStatus::State::kNone;
    const MemberInfo* const member = find_member(volume.report.info, status.source);
    const std::string which = "member " + std::to_string(status.source.value);
    if (another) {
        add("ReplaceStarted", which + " is being replaced", member);
        add("RebuildStarted", which + " is copied to its new device");
        copied_percent_ = 0;
    }
    if (status.active())
        tell_progress(static_cast<unsigned>(copied_percent(status)), copied_percent_);
    if (status.state == before.state && !another)
        return;
    if (status.state == ReplaceStatus::State::kFinished)
        add("ReplaceFinished",
            which + " is replaced, " + count_text(status.copy.repaired, "block") + " from other members, " +
                std::to_string(status.copy.lost) + " lost",
            member);
    else if (status.state == ReplaceStatus::State::kCancelled)
        add("ReplaceCancelled", which + " stays", member);
    else if (status.state == ReplaceStatus::State::kFailed)
        add("ReplaceFailed", which + " stays: " + status.text, member);
    if (status.state == ReplaceStatus::State::kNone || status.active())
        return;
    const bool replaced = status.state == ReplaceStatus::State::kFinished;
    add("RebuildFinished", which + (replaced ? " is replaced" : " stays"));
    if (replaced && member != nullptr && member->in_service() && member->stale_groups == 0)
        add("SpareActive", member_text(*member) + " has " + everything_text(volume), member);
}

std::vector<VolumeEvent> EventFinder::look(const VolumeStatus& status, uint64_t now)
{
    now_ = now;
    found_.clear();
    if (!begun_)
        begin(status);
    begun_ = true;
    compare_spares(status.report.info);
    compare_members(status);
    compare_volume(status);
    compare_scrubs(status);
    compare_rebuild(before_.catch_up, status.catch_up);
    compare_balance(before_.balance, status.balance);
    compare_replace(status);
    before_ = status;
    return std::move(found_);
}

void EventLog::add(std::vector<VolumeEvent> events)
{
    MutexLock lock(mutex_);
    for (VolumeEvent& event : events) {
        event.sequence = ++last_;
        events_.push_back(std::move(event));
        if (events_.size() > kEventsMax)
            events_.pop_front();
    }
}

EventLog::Answer EventLog::newest() const
{
    const uint64_t last = since(UINT64_MAX - 1).last;
    return since(last - std::min<uint64_t>(last, kEventsAtOnce));
}

EventLog::Answer EventLog::since(uint64_t sequence) const
{
    MutexLock lock(mutex_);
    Answer answer{.last = last_};
    const uint64_t oldest = last_ - events_.size() + 1;
    if (sequence + 1 < oldest)
        answer.dropped = oldest - sequence - 1;
    for (const VolumeEvent& event : events_) {
        if (event.sequence > sequence && answer.events.size() < kEventsAtOnce)
            answer.events.push_back(event);
    }
    return answer;
}

}  // namespace cowraid
