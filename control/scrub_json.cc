// SPDX-License-Identifier: MIT
#include "control/scrub_json.h"

#include <algorithm>

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
    {"adopted_blocks", &ScrubStatus::adopted},
    {"lost_blocks", &ScrubStatus::lost},
    {"unreadable_nodes", &ScrubStatus::unreadable_nodes},
};
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
    json_put_flag(out.get(), "held_back", status.held_back);
    for (const ScrubNumberField& number : kScrubNumbers)
        json_put_integer(out.get(), number.key, status.*number.field);
    Json addresses = json_make_array();
    for (const VolumeAddress address : status.lost_addresses)
        json_array_append_new(addresses.get(), json_integer(static_cast<json_int_t>(address.value)));
    json_put(out.get(), "lost_addresses", std::move(addresses));
    return out;
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
    status.held_back = json_get_flag(object, "held_back");
    for (const ScrubNumberField& number : kScrubNumbers)
        status.*number.field = json_get_integer(object, number.key);
    const json_t* const addresses = json_get(object, "lost_addresses");
    for (size_t index = 0; index < json_array_size(addresses); ++index)
        status.lost_addresses.push_back(
            {static_cast<uint64_t>(json_integer_value(json_array_get(addresses, index)))});
    return status;
}

}  // namespace cowraid
