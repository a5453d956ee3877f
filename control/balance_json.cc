// SPDX-License-Identifier: MIT
#include "control/balance_json.h"

#include "control/volume_json.h"

namespace cowraid {

namespace {

using State = BalanceStatus::State;

// Once for both directions.
struct BalanceNumberField {
    const char* key;
    uint64_t BalanceStatus::*field;
};
constexpr BalanceNumberField kBalanceNumbers[] = {
    {"shrink_bytes", &BalanceStatus::shrink_bytes},
    {"started", &BalanceStatus::started},
    {"ended", &BalanceStatus::ended},
    {"bytes_total", &BalanceStatus::bytes_total},
    {"bytes_left", &BalanceStatus::bytes_left},
    {"groups_left", &BalanceStatus::groups_left},
    {"groups_total", &BalanceStatus::groups_total},
    {"groups_stuck", &BalanceStatus::groups_stuck},
    {"damaged_blocks", &BalanceStatus::damaged_blocks},
    {"moved_bytes", &BalanceStatus::moved_bytes},
    {"run_ms", &BalanceStatus::run_ms},
    {"rate", &BalanceStatus::rate},
};
constexpr State kBalanceStates[] = {State::kNone, State::kRunning, State::kPaused, State::kFinished,
                                    State::kCancelled};

}  // namespace

Json encode_balance(const BalanceStatus& status)
{
    Json out = json_with_schema("balance");
    json_put_text(out.get(), "state", balance_state_name(status.state));
    json_put_text(out.get(), "data_profile", profile_name(status.profiles.data));
    json_put_text(out.get(), "metadata_profile", profile_name(status.profiles.metadata));
    json_put_flag(out.get(), "data", (status.content & kGroupData) != 0);
    json_put_flag(out.get(), "metadata", (status.content & kGroupMetadata) != 0);
    json_put_flag(out.get(), "system", (status.content & kGroupSystem) != 0);
    json_put_flag(out.get(), "convert", status.convert);
    json_put_flag(out.get(), "chosen", status.chosen);
    json_put_integer(out.get(), "member", status.member.value);
    json_put_flag(out.get(), "has_device", status.has_device);
    json_put_flag(out.get(), "waits_for_room", status.waits_for_room);
    json_put_flag(out.get(), "degraded", status.degraded);
    json_put_flag(out.get(), "read_only", status.read_only);
    json_put_flag(out.get(), "held_back", status.held_back);
    for (const BalanceNumberField& number : kBalanceNumbers)
        json_put_integer(out.get(), number.key, status.*number.field);
    return out;
}

Result<BalanceStatus> decode_balance(const json_t* object)
{
    if (json_get_text(object, "schema") != "cowraid.balance")
        return Err::kInvalid;
    BalanceStatus status;
    const std::string name = json_get_text(object, "state");
    for (const State state : kBalanceStates)
        if (name == balance_state_name(state))
            status.state = state;
    status.profiles = {decode_profile(object, "data_profile"), decode_profile(object, "metadata_profile")};
    status.content = (json_get_flag(object, "data") ? kGroupData : 0) |
                     (json_get_flag(object, "metadata") ? kGroupMetadata : 0) |
                     (json_get_flag(object, "system") ? kGroupSystem : 0);
    status.convert = json_get_flag(object, "convert");
    status.chosen = json_get_flag(object, "chosen");
    status.member = {static_cast<uint32_t>(json_get_integer(object, "member"))};
    status.has_device = json_get_flag(object, "has_device");
    status.waits_for_room = json_get_flag(object, "waits_for_room");
    status.degraded = json_get_flag(object, "degraded");
    status.read_only = json_get_flag(object, "read_only");
    status.held_back = json_get_flag(object, "held_back");
    for (const BalanceNumberField& number : kBalanceNumbers)
        status.*number.field = json_get_integer(object, number.key);
    return status;
}

namespace {

// Once for both directions.
template <typename Plan, typename Visit> void visit_plan(Plan& plan, Visit visit)
{
    visit("moved_bytes", plan.moved_bytes);
    visit("groups", plan.group_count);
    visit("damaged_blocks", plan.damaged_blocks);
    visit("data_needed", plan.data.needed);
    visit("data_there", plan.data.there);
    visit("metadata_needed", plan.metadata.needed);
    visit("metadata_there", plan.metadata.there);
    visit("device_needed", plan.device.needed);
    visit("device_there", plan.device.there);
    visit("tolerance_before", plan.tolerance_before);
    visit("tolerance_meanwhile", plan.tolerance_meanwhile);
    visit("tolerance_after", plan.tolerance_after);
    visit("rate", plan.rate);
}

}  // namespace

Json encode_plan(const BalancePlan& plan)
{
    Json out = json_with_schema("plan");
    visit_plan(plan, [&](const char* key, uint64_t value) { json_put_integer(out.get(), key, value); });
    return out;
}

Result<BalancePlan> decode_plan(const json_t* object)
{
    if (json_get_text(object, "schema") != "cowraid.plan")
        return Err::kInvalid;
    BalancePlan plan;
    visit_plan(plan, [&](const char* key, auto& value) {
        value = static_cast<std::remove_reference_t<decltype(value)>>(json_get_integer(object, key));
    });
    return plan;
}

namespace {

constexpr struct {
    const char* key;
    FilterRange BalanceFilter::*range;
} kFilterRanges[] = {{"usage", &BalanceFilter::usage},
                     {"stripes", &BalanceFilter::stripes},
                     {"addresses", &BalanceFilter::addresses},
                     {"places", &BalanceFilter::places},
                     {"limit", &BalanceFilter::limit}};

}  // namespace

// What leaves nothing out is not there.
Json encode_filter(const BalanceFilter& filter)
{
    Json out = json_make_object();
    for (const auto& [key, range] : kFilterRanges) {
        if ((filter.*range).least != 0)
            json_put_integer(out.get(), (std::string(key) + "_least").c_str(), (filter.*range).least);
        if ((filter.*range).most != UINT64_MAX)
            json_put_integer(out.get(), (std::string(key) + "_most").c_str(), (filter.*range).most);
    }
    json_put_integer(out.get(), "profiles", filter.profiles);
    json_put_integer(out.get(), "member", filter.member.value);
    return out;
}

BalanceFilter decode_filter(const json_t* object)
{
    BalanceFilter filter;
    for (const auto& [key, range] : kFilterRanges) {
        (filter.*range).least = json_get_integer(object, (std::string(key) + "_least").c_str());
        if (const std::string most = std::string(key) + "_most"; json_get(object, most.c_str()) != nullptr)
            (filter.*range).most = json_get_integer(object, most.c_str());
    }
    filter.profiles = static_cast<uint32_t>(json_get_integer(object, "profiles"));
    filter.member = {static_cast<uint32_t>(json_get_integer(object, "member"))};
    return filter;
}

}  // namespace cowraid
