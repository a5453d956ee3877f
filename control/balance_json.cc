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
    {"started", &BalanceStatus::started},         {"ended", &BalanceStatus::ended},
    {"bytes_total", &BalanceStatus::bytes_total}, {"bytes_left", &BalanceStatus::bytes_left},
    {"groups_left", &BalanceStatus::groups_left}, {"groups_stuck", &BalanceStatus::groups_stuck},
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
    json_put_flag(out.get(), "convert", status.convert);
    json_put_integer(out.get(), "usage_max", status.usage_max);
    json_put_integer(out.get(), "member", status.member.value);
    json_put_flag(out.get(), "waits_for_room", status.waits_for_room);
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
                     (json_get_flag(object, "metadata") ? kGroupMetadata | kGroupSystem : 0);
    status.convert = json_get_flag(object, "convert");
    status.usage_max = static_cast<uint32_t>(json_get_integer(object, "usage_max"));
    status.member = {static_cast<uint32_t>(json_get_integer(object, "member"))};
    status.waits_for_room = json_get_flag(object, "waits_for_room");
    status.held_back = json_get_flag(object, "held_back");
    for (const BalanceNumberField& number : kBalanceNumbers)
        status.*number.field = json_get_integer(object, number.key);
    return status;
}

}  // namespace cowraid
