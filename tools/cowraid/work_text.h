// SPDX-License-Identifier: MIT
// How work that takes long is told of: a scrub, a balance, a replacement.
#pragma once

#include <string>

#include "base/text.h"
#include "control/volume_status.h"

namespace cowraid {

// How far work is; for a progress line.
struct WorkProgress {
    bool running = false;
    unsigned percent = 0;
    uint64_t rate = 0;  // bytes a second
    uint64_t left_ms = 0;
    uint64_t limit = 0;  // bytes a second; 0: none
    bool held_back = false;  // users of the volume go first just now
    std::string awaits;  // what must happen before it goes on; empty: nothing
};
// Of work that has done so much in that time, and goes on so, at most as fast as the limit lets it.
WorkProgress progress_of(uint64_t done_bytes, uint64_t total_bytes, uint64_t run_ms, uint64_t limit = 0);
WorkProgress scrub_progress(const ScrubStatus& status);
WorkProgress balance_progress(const BalanceStatus& status);
WorkProgress replace_progress(const ReplaceStatus& status);

// "1.00GiB/s (limit 2.00GiB/s, held back by foreground load)"
std::string rate_text(const WorkProgress& progress, SizeStyle sizes = SizeStyle::kIec);
// "40% done, 1.00GiB/s (limit 2.00GiB/s), 0:00:12 left"
std::string progress_text(const WorkProgress& progress, SizeStyle sizes = SizeStyle::kIec);
std::string time_text(uint64_t seconds);  // since 1970, local time
std::string duration_text(uint64_t ms);
// One line of a table: "NAME   VALUE".
std::string field_text(const char* name, const std::string& value);

// One line without its end: how far it is, or how it ended.
std::string scrub_summary(const ScrubStatus& status);
std::string balance_summary(const BalanceStatus& status);
std::string replace_summary(const ReplaceStatus& status);

// All that is known, in lines, which begin as those of btrfs do. `now`: seconds since 1970.
std::string scrub_text(const ScrubStatus& status, const Uuid& volume, uint64_t now, SizeStyle sizes);
// What that scrub found on one member, behind an empty line. `state`: state_of() the member.
std::string scrub_member_text(const ScrubStatus& status, const MemberInfo& member, const char* state,
                              SizeStyle sizes);
std::string replace_text(const ReplaceStatus& status);
// The same of members that are filled.
std::string filling_text(const ScrubStatus& status);
// "Balance on '/mnt' is running" and how far it is, or "No balance found on '/mnt'".
std::string balance_head(const BalanceStatus& status, const std::string& mount_point);
// What was asked for is done.
std::string balance_cancelled(const BalanceStatus& status);
// "Done, had to relocate 3 out of 3 chunks"; empty: it goes on, or that is not known.
std::string balance_end(const BalanceStatus& status);
std::string balance_text(const BalanceStatus& status, SizeStyle sizes);

}  // namespace cowraid
