// SPDX-License-Identifier: MIT
#include "control/volume_status.h"

#include <algorithm>

#include "base/text.h"

namespace cowraid {

Json encode_status(const VolumeStatus& status)
{
    Json out = encode_report(status.report);
    json_put(out.get(), "scrub", encode_scrub(status.scrub));
    json_put(out.get(), "catch_up", encode_scrub(status.catch_up));
    json_put(out.get(), "balance", encode_balance(status.balance));
    json_put(out.get(), "replace", encode_replace(status.replace));
    json_t* const members = json_object_get(out.get(), "members");
    for (size_t i = 0; i < json_array_size(members); ++i)
        json_put_text(json_array_get(members, i), "condition",
                      state_of(status.report.info.members[i], status));
    return out;
}

Result<VolumeStatus> decode_status(const json_t* object)
{
    VolumeStatus status;
    CW_ASSIGN(status.report, decode_report(object));
    CW_ASSIGN(status.scrub, decode_scrub(json_get(object, "scrub")));
    CW_ASSIGN(status.catch_up, decode_scrub(json_get(object, "catch_up")));
    CW_ASSIGN(status.balance, decode_balance(json_get(object, "balance")));
    CW_ASSIGN(status.replace, decode_replace(json_get(object, "replace")));
    return status;
}

uint64_t errors_of(const MemberInfo& member)
{
    uint64_t errors = 0;
    for (size_t counter = 0; counter < static_cast<size_t>(MemberCounter::kRepaired); ++counter)
        errors += member.counters[counter];
    return errors;
}

namespace {

uint64_t count_members(const VolumeInfo& info, bool (*which)(const MemberInfo&))
{
    return static_cast<uint64_t>(std::count_if(info.members.begin(), info.members.end(), which));
}

}  // namespace

uint64_t lost_blocks(const VolumeStatus& status)
{
    const VolumeInfo& info = status.report.info;
    return info.damaged_blocks - info.damaged_node_blocks + lost_nodes(status);
}

uint64_t lost_nodes(const VolumeStatus& status)
{
    return std::max({divide_up(status.report.info.damaged_node_blocks, kNodeBlocks),
                     status.scrub.unreadable_nodes, status.catch_up.unreadable_nodes});
}

uint64_t missing_members(const VolumeInfo& info)
{
    return count_members(info, [](const MemberInfo& one) { return !one.in_service() && !one.successor; });
}

std::string mount_by_name_text(const std::string& device)
{
    return "the volume was mounted by a list of devices: add " + device +
           " to it (/etc/fstab), or mount by cowraid:LABEL or cowraid:UUID";
}

uint64_t stale_members(const VolumeInfo& info)
{
    return count_members(info,
                         [](const MemberInfo& one) { return one.in_service() && one.stale_groups > 0; });
}

double percent_share(uint64_t done, uint64_t total)
{
    return total == 0 ? 0.0 : 100.0 * static_cast<double>(std::min(done, total)) / static_cast<double>(total);
}

double copied_percent(const ReplaceStatus& status)
{
    return std::max(percent_share(status.copy.bytes_done, status.copy.bytes_total),
                    percent_share(status.groups_copied, status.groups_total));
}

std::string findings_text(const ScrubStatus& status)
{
    const bool looks = status.options.mode == ScrubMode::kLook;
    std::string found, action;
    const auto add = [&](uint64_t count, const std::string& what, const char* to_do) {
        if (count == 0)
            return;
        if (found.empty() && to_do != nullptr)
            action = std::string("; ") + to_do;
        found += (found.empty() ? "" : ", ") + what;
    };
    const auto blocks = [](uint64_t count, const char* how) {
        return count_text(count, "block") + how;
    };
    if (status.still_lost())
        add(status.lost + status.unreadable_nodes,
            blocks(status.lost, " of data and ") + count_text(status.unreadable_nodes, "tree node") +
                " are lost",
            "cowraid status -v names the files");
    add(status.unrepaired,
        blocks(status.unrepaired, looks ? " can be repaired" : " could not be repaired just now"),
        looks ? "run it without -r" : "run it again, and see cowraid device stats");
    add(status.unverified, blocks(status.unverified, " not verified (on members out of service)"),
        "run cowraid scrub when all are in service");
    if (!status.still_lost())
        add(status.lost, blocks(status.lost, " of data lost (") + kNotLostAnyMore + ")", nullptr);
    const bool harmless = found.empty();
    add(status.repaired, blocks(status.repaired, harmless ? " repaired, nothing is lost" : " repaired"),
        "see cowraid device stats");
    if (found.empty())
        found = "no errors found";
    return found + (status.state == ScrubState::kFinished ? "" : " so far") + action;
}

std::string not_writable_text(const VolumeInfo& info, const char* otherwise)
{
    if (!info.read_only_reason.empty())
        return "the volume is read-only: " + info.read_only_reason + "; " + info.read_only_step;
    return "the volume is mounted read-only; " + (info.read_only_step.empty()
                                                      ? std::string("remount it for writing") + otherwise
                                                      : info.read_only_step);
}

namespace {

// What to do about members that are out of service where all of them are one that is being replaced, or
// removed: other orders are refused then. Empty: there are others.
std::string step_meanwhile(const VolumeStatus& status)
{
    const auto all_are = [&](MemberId id) {
        return std::all_of(
            status.report.info.members.begin(), status.report.info.members.end(),
            [&](const MemberInfo& one) { return one.in_service() || one.successor || one.id == id; });
    };
    const ReplaceStatus& replace = status.replace;
    const BalanceStatus& balance = status.balance;
    if (replace.active() && all_are(replace.source))
        return "attach it and run cowraid device online DEVICE, or ID after a passing failure: it is being "
               "replaced, see cowraid replace status; cowraid replace cancel ends that";
    if (balance.active() && balance.shrink_bytes == 0 && all_are(balance.member))
        return std::string("it is being removed: ") +
               (balance.state == BalanceStatus::State::kPaused ? "cowraid balance resume goes on with that"
                                                               : "wait, see cowraid balance status") +
               "; cowraid balance cancel ends that";
    return "";
}

// What those that are away have may be all that damaged blocks lack: nothing is given up before they are
// back. Empty: none is away.
std::string step_to_bring_back(const VolumeStatus& status)
{
    const std::vector<MemberInfo>& members = status.report.info.members;
    if (missing_members(status.report.info) == 0)
        return "";
    const bool removed = status.balance.active() && status.balance.shrink_bytes == 0 &&
                         std::any_of(members.begin(), members.end(), [&](const MemberInfo& one) {
                             return !one.in_service() && one.id == status.balance.member;
                         });
    return std::string(removed ? "cowraid balance cancel, then " : "") +
           "attach what is out of service, run cowraid device online DEVICE, or ID after a passing failure, "
           "then cowraid scrub; what is damaged then is to be restored from elsewhere: ";
}

// Whether block groups can be made when the members that are out of service are none any more.
bool can_do_without(const VolumeInfo& info)
{
    const uint64_t left =
        count_members(info, [](const MemberInfo& one) { return one.in_service() && !one.successor; });
    const auto fits = [&](ProfileId id) {
        const Profile* const profile = find_profile(id);
        return profile == nullptr || left >= profile->min_members;
    };
    return fits(info.data_profile) && fits(info.metadata_profile) &&
           std::all_of(info.spaces.begin(), info.spaces.end(), [&](const SpaceInfo& space) {
               return (space.content & kGroupSystem) == 0 || fits(space.profile);
           });
}

// Nothing is said where all can help.
Health health_of_spares(const VolumeInfo& info, const char* state)
{
    uint64_t missing = 0, faulted = 0;
    for (const SpareInfo& spare : info.spares) {
        faulted += spare.useless;
        missing += !spare.useless && spare.path.empty();
    }
    if (missing + faulted == 0)
        return {state, "", ""};
    return {state,
            count_text(missing + faulted, "spare") + (missing + faulted == 1 ? " is " : " are ") +
                (faulted == 0   ? "missing"
                 : missing == 0 ? "faulted"
                                : "missing or faulted"),
            std::string(missing > 0 ? "attach what is missing and run cowraid device online DEVICE; " : "") +
                "cowraid device remove ID does without it" +
                (faulted > 0 ? ", cowraid device add --spare DEVICE brings another" : "")};
}

}  // namespace

Health health_of(const VolumeStatus& status)
{
    const VolumeInfo& info = status.report.info;
    const char* const online = info.read_only ? "ONLINE, read-only" : "ONLINE";
    const uint64_t missing = missing_members(info);
    const uint64_t stale = stale_members(info);
    const uint64_t nodes = lost_nodes(status);
    const std::string back = step_to_bring_back(status);
    if (info.read_only && !info.read_only_reason.empty())
        return {"READ-ONLY", info.read_only_reason, info.read_only_step};
    if (nodes > 0)
        return {
            "DAMAGED", count_text(nodes, "tree node") + " cannot be had from any redundancy",
            back +
                "cowraid status -v says of which trees; unmount it and run cowraid check, which says what "
                "is lost" +
                (back.empty() ? "; restore it from elsewhere" : "")};
    if (info.damaged_blocks > 0)
        return {"DAMAGED", count_text(info.damaged_blocks, "block") + " cannot be had from any redundancy",
                back.empty()
                    ? "cowraid status -v names the files: restore them from elsewhere, or delete them; a "
                      "scrub says when nothing is damaged any more"
                    : back + "cowraid status -v names the files"};
    if (const std::string step = step_meanwhile(status); missing > 0 && !step.empty())
        return {"DEGRADED", count_text(missing, "member") + " out of service", step};
    if (missing > 0)
        return {"DEGRADED", count_text(missing, "member") + " out of service",
                std::string("attach it and run cowraid device online DEVICE, or ID after a passing failure; "
                            "cowraid replace start ID DEVICE puts a new device in the place of one") +
                    (can_do_without(info) ? "; cowraid device remove ID does without it" : "")};
    if (stale > 0)
        return {"DEGRADED", count_text(stale, "member") + " without writes that it missed",
                status.catch_up.state == ScrubState::kRunning
                    ? "wait: they are being written to it"
                    : "mount it again, for writing: they are written to it then; see the system log"};
    if (const uint64_t blocks = std::max(status.scrub.unrepaired, status.scrub.earlier_unrepaired);
        blocks > 0)
        return {online, count_text(blocks, "block") + " are not as they should be, and can be had",
                "cowraid scrub repairs them; see cowraid device stats for where"};
    if (count_members(info, [](const MemberInfo& one) { return one.successor && !one.in_service(); }) > 0)
        return {online,
                "the new device of member " + std::to_string(status.replace.source.value) + " is not there",
                "attach it and run cowraid device online DEVICE, or cowraid replace cancel"};
    if (const auto slow = std::max_element(
            info.members.begin(), info.members.end(),
            [](const MemberInfo& one, const MemberInfo& other) { return one.slow_ms < other.slow_ms; });
        slow != info.members.end() && slow->slow_ms > 0)
        return {online, "member " + std::to_string(slow->id.value) + " is slow: " + slow_text(*slow),
                "look at its cable and controller; reads do without it where others suffice, writes wait for "
                "it"};
    if (const uint64_t doubtful = count_members(info, [](const MemberInfo& one) { return one.doubtful; });
        doubtful > 0)
        return {online, count_text(doubtful, "member") + " with many errors",
                std::string("look at its cable and controller; ") +
                    (status.replace.active()
                         ? ""
                         : "cowraid replace start ID DEVICE puts another in its place; ") +
                    "what is wrong is repaired as it is read, and by cowraid scrub"};
    if (const Health spares = health_of_spares(info, online); !spares.what.empty())
        return spares;
    if (count_members(info, [](const MemberInfo& one) { return errors_of(one) > 0; }) > 0)
        return {online, "errors were met; nothing is known to be wrong any more",
                "look at the members that have them; cowraid device stats -z sets the counters to 0"};
    return {online, "", ""};
}

std::string slow_text(const MemberInfo& member)
{
    return "a request has been waiting for " + std::to_string(member.slow_ms / 1000) + " s";
}

const char* state_of(const SpareInfo& spare)
{
    if (spare.useless)
        return "faulted";
    return spare.path.empty() ? "missing" : "spare";
}

const char* state_of(const MemberInfo& member, const VolumeStatus& status)
{
    if (member.path.empty() && !member.unusable)
        return "missing";
    if (member.unusable)
        return "unusable";
    if (!member.in_service())
        return member.state == MemberState::kFailed ? "faulted" : "missing";
    if (member.stale_groups > 0)
        return status.catch_up.state == ScrubState::kRunning ? "rebuilding" : "stale";
    if (member.successor)
        return "successor";
    if (member.replaced)
        return "replacing";
    return member.doubtful ? "degraded" : "online";
}

}  // namespace cowraid
