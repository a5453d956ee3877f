// SPDX-License-Identifier: MIT
#include "control/replace_json.h"

#include "control/scrub_json.h"
#include "control/volume_json.h"

namespace cowraid {

namespace {

using ReplaceState = ReplaceStatus::State;

constexpr ReplaceState kReplaceStates[] = {
    ReplaceState::kNone,     ReplaceState::kRunning,   ReplaceState::kWaiting, ReplaceState::kPaused,
    ReplaceState::kFinished, ReplaceState::kCancelled, ReplaceState::kFailed};

// Once for both directions.
struct ReplaceNumberField {
    const char* key;
    uint64_t ReplaceStatus::*field;
};
constexpr ReplaceNumberField kReplaceNumbers[] = {
    {"started", &ReplaceStatus::started},
    {"ended", &ReplaceStatus::ended},
    {"groups_copied", &ReplaceStatus::groups_copied},
    {"groups_total", &ReplaceStatus::groups_total},
    {"source_lost_blocks", &ReplaceStatus::source_lost},
};

}  // namespace

Json encode_replace(const ReplaceStatus& status)
{
    Json out = json_with_schema("replacement");
    json_put_text(out.get(), "state", replace_state_name(status.state));
    json_put_integer(out.get(), "member", status.source.value);
    json_put_integer(out.get(), "target", status.target.value);
    json_put_text(out.get(), "text", status.text);
    for (const ReplaceNumberField& number : kReplaceNumbers)
        json_put_integer(out.get(), number.key, status.*number.field);
    json_put(out.get(), "copy", encode_scrub(status.copy));
    return out;
}

Result<ReplaceStatus> decode_replace(const json_t* object)
{
    if (json_get_text(object, "schema") != "cowraid.replacement")
        return Err::kInvalid;
    ReplaceStatus status;
    const std::string name = json_get_text(object, "state");
    for (const ReplaceState state : kReplaceStates)
        if (name == replace_state_name(state))
            status.state = state;
    status.source = {static_cast<uint32_t>(json_get_integer(object, "member"))};
    status.target = {static_cast<uint32_t>(json_get_integer(object, "target"))};
    status.text = json_get_text(object, "text");
    for (const ReplaceNumberField& number : kReplaceNumbers)
        status.*number.field = json_get_integer(object, number.key);
    CW_ASSIGN(status.copy, decode_scrub(json_get(object, "copy")));
    return status;
}

}  // namespace cowraid
