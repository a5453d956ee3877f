// SPDX-License-Identifier: MIT
// How a mounted volume is: its numbers, what goes on in it, and what that means for who looks after it.
#pragma once

#include <optional>
#include <string>

#include "control/balance_json.h"
#include "control/damage_json.h"
#include "control/replace_json.h"
#include "control/scrub_json.h"
#include "control/volume_json.h"

namespace cowraid {

struct VolumeStatus {
    VolumeReport report;
    ScrubStatus scrub, catch_up;
    BalanceStatus balance;
    ReplaceStatus replace;
    ScrubStatus scrub_before;  // how the scrub before `scrub` ended; not part of the JSON below
    std::optional<DamagedFiles> damage;  // when it was asked for; not part of the JSON below
};

// The report with "scrub", "catch_up", "balance" and "replace" in it.
Json encode_status(const VolumeStatus& status);
// kInvalid when it is not such an object.
Result<VolumeStatus> decode_status(const json_t* object);

struct Health {
    const char* state;  // "ONLINE", "DEGRADED", "DAMAGED", "READ-ONLY" or "ONLINE, read-only"
    std::string what;  // is not as it should be; empty: nothing
    std::string action;
};
// The worst that there is.
Health health_of(const VolumeStatus& status);
// Why a command that writes is refused, and what to do about it.
// `otherwise`: what else can be done, such as ", or wait".
std::string not_writable_text(const VolumeInfo& info, const char* otherwise = "");

// As `cowraid status` shows it:
//   "missing"     its device is not there
//   "unusable"    the device is there, but is shrunken, overwritten or unreadable
//   "faulted"     out of service after errors
//   "rebuilding"  in service, and being written what it lacks
//   "stale"       in service, lacks writes, and nothing brings them now
//   "replacing"   in service, and being replaced
//   "successor"   in service, and being written what the one that it replaces has
//   "degraded"    in service, with more errors than a member should have
//   "online"      in service, and nothing is known against it
const char* state_of(const MemberInfo& member, const VolumeStatus& status);
// "spare", "missing", or "faulted": it was to take a member's place and failed.
const char* state_of(const SpareInfo& spare);
// Of a member that is slow: why it is called so.
std::string slow_text(const MemberInfo& member);
// All that went wrong on it; repairs are not counted.
uint64_t errors_of(const MemberInfo& member);
// Blocks of the list of damage, and tree nodes, that no redundancy has any more.
uint64_t lost_blocks(const VolumeStatus& status);
// Those nodes, as far as the list or the last scrub knows of them.
uint64_t lost_nodes(const VolumeStatus& status);
// Members out of service, and those in service that lack writes.
uint64_t missing_members(const VolumeInfo& info);
uint64_t stale_members(const VolumeInfo& info);
// What to do about a new device where a volume was mounted by the names of all its devices.
std::string mount_by_name_text(const std::string& device);
// 0.0 to 100.0; 0.0 of nothing.
double percent_share(uint64_t done, uint64_t total);
// How much of a member has been copied to its successor: by bytes, of which a mount knows its own, or by
// block groups, those of mounts before counted; whichever is more.
double copied_percent(const ReplaceStatus& status);
// How it is with what was lost, and is not in the list of damage any more.
inline constexpr const char* kNotLostAnyMore = "deleted, written anew or good again since";
// What a scrub, or a filling of members, found, the worst first, and what to do about that. One that has not
// finished found it "so far".
std::string findings_text(const ScrubStatus& status);

}  // namespace cowraid
