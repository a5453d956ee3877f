// SPDX-License-Identifier: MIT
#include "control/scrub_json.h"

#include <algorithm>
#include <ctime>

#include "control/volume_json.h"

namespace cowraid {

namespace {

// Once for both directions.
struct ScrubNumberField {
    const char* key;
    uint64_t ScrubStatus::*field;
};
constexpr ScrubNumberField kScrubNumbers[] = {
    {"started", &ScrubStatus::started},
    {"ended", &ScrubStatus::ended},
    {"run_ms", &ScrubStatus::run_ms},
    {"bytes_done", &ScrubStatus::bytes_done},
    {"bytes_total", &ScrubStatus::bytes_total},
    {"data_blocks", &ScrubStatus::data_blocks},
    {"parity_blocks", &ScrubStatus::parity_blocks},
    {"tree_nodes", &ScrubStatus::nodes},
    {"superblocks_and_maps", &ScrubStatus::heads},
    {"unverified_blocks", &ScrubStatus::unverified},
    {"repaired_blocks", &ScrubStatus::repaired},
    {"unrepaired_blocks", &ScrubStatus::unrepaired},
    {"earlier_unrepaired_blocks", &ScrubStatus::earlier_unrepaired},
    {"adopted_blocks", &ScrubStatus::adopted},
    {"lost_blocks", &ScrubStatus::lost},
    {"unreadable_nodes", &ScrubStatus::unreadable_nodes},
};
// Of one member, in the order of ScrubMemberNumber, blocks.
constexpr const char* kMemberNumbers[] = {"verified_blocks",     "unverified_blocks", "read_errors",
                                          "csum_errors",         "super_errors",      "corrected_errors",
                                          "uncorrectable_errors"};
static_assert(std::size(kMemberNumbers) == kScrubMemberNumberCount);

Json encode_members(const ScrubbedMembers& members)
{
    Json out = json_make_array();
    for (const auto& [id, found] : members) {
        Json one = json_make_object();
        json_put_integer(one.get(), "id", id.value);
        for (size_t index = 0; index < found.numbers.size(); ++index)
            json_put_integer(one.get(), kMemberNumbers[index], found.numbers[index]);
        json_array_append_new(out.get(), one.release());
    }
    return out;
}

void decode_members(const json_t* array, ScrubbedMembers& members)
{
    size_t index;
    const json_t* value;
    json_array_foreach(array, index, value)
    {
        ScrubMemberNumbers& found = members[{static_cast<uint32_t>(json_get_integer(value, "id"))}];
        for (size_t number = 0; number < found.numbers.size(); ++number)
            found.numbers[number] = json_get_integer(value, kMemberNumbers[number]);
    }
}

void put_time(json_t* out, const std::string& key, uint64_t seconds)
{
    if (seconds == 0)
        return;
    json_put_integer(out, key.c_str(), seconds);
    char text[32] = "";
    const auto at = static_cast<time_t>(seconds);
    tm utc{};
    if (gmtime_r(&at, &utc) != nullptr && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0)
        json_put_text(out, (key + "_rfc3339").c_str(), text);
}

// What one scrub found, on one member or on all.
Json encode_session(const ScrubMemberNumbers& found)
{
    using Number = ScrubMemberNumber;
    Json out = json_make_object();
    json_put_integer(out.get(), "bytes_scrubbed", found[Number::kVerified] * kBlockBytes);
    for (const Number which :
         {Number::kReadErrors, Number::kWrong, Number::kHeads, Number::kCorrected, Number::kLost})
        json_put_integer(out.get(), kMemberNumbers[static_cast<size_t>(which)], found[which]);
    json_put_integer(out.get(), "unverified_errors", found[Number::kUnverified]);
    return out;
}

// What the counters have: of all scrubs and readers since they were reset.
Json encode_lifetime(const MemberCounters& counters)
{
    const auto count = [&](MemberCounter which) {
        return counters[static_cast<size_t>(which)];
    };
    Json out = json_make_object();
    json_put_integer(out.get(), "read_errors", count(MemberCounter::kReadErrors));
    json_put_integer(out.get(), "csum_errors",
                     count(MemberCounter::kCorruption) + count(MemberCounter::kGeneration) +
                         count(MemberCounter::kParity));
    json_put_integer(out.get(), "super_errors", count(MemberCounter::kSuperblock));
    json_put_integer(out.get(), "corrected_errors", count(MemberCounter::kRepaired));
    return out;
}

constexpr ScrubState kScrubStates[] = {ScrubState::kNone, ScrubState::kRunning, ScrubState::kPaused,
                                       ScrubState::kFinished, ScrubState::kCancelled};

}  // namespace

Json encode_scrub(const ScrubStatus& status)
{
    Json out = json_with_schema("scrub");
    json_put_text(out.get(), "state", scrub_state_name(status.state));
    json_put_flag(out.get(), "repairs", status.options.mode == ScrubMode::kRepair);
    json_put_integer(out.get(), "limit_bytes_per_second", status.options.limit);
    json_put_text(out.get(), "plan", scrub_plan_name(status.options.plan));
    if (status.options.plan == ScrubOptions::Plan::kPercent)
        json_put_integer(out.get(), "percent", status.options.percent);
    if (status.options.older_than > 0)
        json_put_integer(out.get(), "older_than_seconds", status.options.older_than);
    json_put_flag(out.get(), "held_back", status.held_back);
    for (const ScrubNumberField& number : kScrubNumbers)
        json_put_integer(out.get(), number.key, status.*number.field);
    if (status.listed_now)
        json_put_integer(out.get(), "listed_blocks", *status.listed_now);
    Json addresses = json_make_array();
    for (const VolumeAddress address : status.lost_addresses)
        json_array_append_new(addresses.get(), json_integer(static_cast<json_int_t>(address.value)));
    json_put(out.get(), "lost_addresses", std::move(addresses));
    json_put(out.get(), "members", encode_members(status.members));
    return out;
}

void add_scrub_sessions(const ScrubStatus& status, const json_t* volume, json_t* out)
{
    const Result<VolumeReport> report = decode_report(volume);
    ScrubMemberNumbers sum;
    MemberCounters counters{};
    Json devices = json_make_array();
    for (const MemberInfo& member : report.ok() ? report->info.members : std::vector<MemberInfo>()) {
        const auto at = status.members.find(member.id);
        const ScrubMemberNumbers found = at == status.members.end() ? ScrubMemberNumbers() : at->second;
        sum += found;
        for (size_t index = 0; index < counters.size(); ++index)
            counters[index] += member.counters[index];
        Json one = json_make_object();
        json_put_integer(one.get(), "devid", member.id.value);
        if (member.path.empty())
            json_put(one.get(), "path", Json(json_null()));
        else
            json_put_text(one.get(), "path", member.path);
        json_put(one.get(), "scrub_session", encode_session(found));
        json_put(one.get(), "scrub_lifetime", encode_lifetime(member.counters));
        json_array_append_new(devices.get(), one.release());
    }
    Json session = encode_session(sum);
    json_put_text(session.get(), "state", scrub_state_name(status.state));
    put_time(session.get(), "t_start", status.started);
    put_time(session.get(), "t_end", status.ended);
    json_put_integer(session.get(), "duration_seconds", status.run_ms / 1000);
    json_put_integer(session.get(), "total_bytes_to_scrub", status.bytes_total);
    json_put_integer(session.get(), "bytes_scrubbed", status.bytes_done);
    json_put_integer(session.get(), "data_bytes_scrubbed", status.data_blocks * kBlockBytes);
    json_put_integer(session.get(), "parity_bytes_scrubbed", status.parity_blocks * kBlockBytes);
    json_put_integer(session.get(), "corrected_errors", status.repaired);
    json_put_integer(session.get(), "uncorrectable_errors", status.lost + status.unreadable_nodes);
    json_put_text(out, "fsid", json_get_text(volume, "uuid"));
    json_put_text(out, "health", json_get_text(volume, "health"));
    json_put_flag(out, "running", status.state == ScrubState::kRunning);
    json_put(out, "scrub_session", std::move(session));
    json_put(out, "scrub_lifetime", encode_lifetime(counters));
    json_put(out, "devices", std::move(devices));
}

Result<ScrubStatus> decode_scrub(const json_t* object)
{
    if (json_get_text(object, "schema") != "cowraid.scrub")
        return Err::kInvalid;
    ScrubStatus status;
    const std::string name = json_get_text(object, "state");
    for (const ScrubState state : kScrubStates)
        if (name == scrub_state_name(state))
            status.state = state;
    status.options.mode = json_get_flag(object, "repairs") ? ScrubMode::kRepair : ScrubMode::kLook;
    status.options.limit = json_get_integer(object, "limit_bytes_per_second");
    parse_scrub_plan(json_get_text(object, "plan"), status.options.plan);
    status.options.percent = static_cast<uint32_t>(json_get_integer(object, "percent"));
    status.options.older_than = json_get_integer(object, "older_than_seconds");
    status.held_back = json_get_flag(object, "held_back");
    for (const ScrubNumberField& number : kScrubNumbers)
        status.*number.field = json_get_integer(object, number.key);
    if (json_get(object, "listed_blocks") != nullptr)
        status.listed_now = json_get_integer(object, "listed_blocks");
    const json_t* const addresses = json_get(object, "lost_addresses");
    for (size_t index = 0; index < json_array_size(addresses); ++index)
        status.lost_addresses.push_back(
            {static_cast<uint64_t>(json_integer_value(json_array_get(addresses, index)))});
    decode_members(json_get(object, "members"), status.members);
    return status;
}

}  // namespace cowraid
