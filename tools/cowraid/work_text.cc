// SPDX-License-Identifier: MIT
#include "tools/cowraid/work_text.h"

#include <algorithm>
#include <ctime>

#include "base/print.h"
#include "control/volume_status.h"

namespace cowraid {

namespace {

using Balancing = BalanceStatus::State;

// What a balance waits for that runs; empty: nothing.
std::string awaited(const BalanceStatus& status)
{
    if (!status.waits_for_room || status.state != Balancing::kRunning)
        return "";
    return status.degraded ? "waits: a member is out of service; it goes on when that is back"
                           : "waits for room: remove files, or add devices";
}

uint64_t bytes_done(const BalanceStatus& status)
{
    return status.bytes_total - std::min(status.bytes_total, status.bytes_left);
}

std::string purpose_text(const BalanceStatus& status)
{
    if (status.shrink_bytes != 0)
        return "makes member " + std::to_string(status.member.value) + " smaller, to " +
               size_text(status.shrink_bytes);
    if (status.member.value != 0)
        return "empties member " + std::to_string(status.member.value) + " and removes it";
    std::string text = status.convert ? "converts" : "moves";
    if ((status.content & kGroupData) != 0)
        text += status.convert ? std::string(" data to ") + profile_name(status.profiles.data) : " data";
    if ((status.content & kGroupMetadata) != 0) {
        text += (status.content & kGroupData) != 0 ? " and metadata" : " metadata";
        text += status.convert ? std::string(" to ") + profile_name(status.profiles.metadata) : "";
    }
    if ((status.content & kAllContent) == kGroupSystem)
        text += " system trees";
    return text + (status.chosen ? " in the block groups that its filters let through" : "");
}

std::string balance_result(const BalanceStatus& status)
{
    if (status.groups_stuck > 0)
        return count_text(status.groups_stuck, "block group") +
               " cannot be emptied: something in them cannot be read; " +
               (status.degraded              ? "bring back what is out of service, run cowraid scrub, then "
                : status.damaged_blocks == 0 ? "run cowraid scrub, then "
                                             : "") +
               "cowraid status -v names the files: restore or delete them, then repeat it" +
               (status.member.value != 0 ? "; the member stays as it is" : "");
    if (status.state == Balancing::kPaused) {
        // Others that are away may be why a removal rests.
        const bool lacks_others =
            status.degraded && status.member.value != 0 && status.shrink_bytes == 0 && status.has_device;
        if (status.read_only)
            return "it goes on when the volume is mounted for writing";
        return lacks_others ? "bring back or replace what is out of service, or add a device, then cowraid "
                              "balance resume lets it go on; cowraid balance cancel ends it"
                            : "cowraid balance resume lets it go on";
    }
    if (const std::string text = awaited(status); !text.empty())
        return text;
    if (status.state == Balancing::kFinished && status.shrink_bytes != 0)
        return "done; what is behind that on the device is nobody's";
    if (status.state == Balancing::kFinished && status.member.value != 0 && status.has_device)
        return "done; the device stays in use until the volume is unmounted";
    return status.state == Balancing::kFinished ? "done" : "";
}

}  // namespace

namespace {

std::string time_text(uint64_t seconds, const char* format)
{
    const auto time = static_cast<time_t>(seconds);
    struct tm local { };
    char out[64] = "";
    if (localtime_r(&time, &local) != nullptr)
        strftime(out, sizeof out, format, &local);
    return out;
}

// One of the scrub's, as far in as those of btrfs.
std::string scrub_field(const char* name, const std::string& value)
{
    return line_text("%-18s%s", name, value.c_str());
}

}  // namespace

std::string time_text(uint64_t seconds)
{
    return time_text(seconds, "%Y-%m-%d %H:%M:%S");
}

std::string duration_text(uint64_t ms)
{
    const uint64_t seconds = ms / 1000;
    return text_format("%llu:%02llu:%02llu", static_cast<unsigned long long>(seconds / 3600),
                       static_cast<unsigned long long>(seconds / 60 % 60),
                       static_cast<unsigned long long>(seconds % 60));
}

WorkProgress progress_of(uint64_t done_bytes, uint64_t total_bytes, uint64_t run_ms, uint64_t limit)
{
    const uint64_t done = std::min(done_bytes, total_bytes);
    const uint64_t rate = run_ms == 0 ? 0 : done_bytes * 1000 / run_ms;
    const uint64_t pace = limit == 0 ? rate : std::min(rate, limit);
    return {.running = true,
            .percent = static_cast<unsigned>(percent_share(done, total_bytes)),
            .rate = rate,
            .left_ms = pace == 0 ? 0 : (total_bytes - done) * 1000 / pace,
            .limit = limit};
}

std::string rate_text(const WorkProgress& progress, SizeStyle sizes)
{
    if (!progress.awaits.empty())
        return "not known";
    std::string notes = progress.limit == 0 ? "" : "limit " + size_text(progress.limit, sizes) + "/s";
    if (progress.held_back)
        notes += std::string(notes.empty() ? "" : ", ") + "held back by foreground load";
    return size_text(progress.rate, sizes) + "/s" + (notes.empty() ? "" : " (" + notes + ")");
}

namespace {

bool left_is_known(const WorkProgress& progress)
{
    return progress.awaits.empty() && (progress.rate > 0 || progress.percent == 100);
}

std::string left_text(const WorkProgress& progress)
{
    return left_is_known(progress) ? duration_text(progress.left_ms) : "not known";
}

}  // namespace

std::string progress_text(const WorkProgress& progress, SizeStyle sizes)
{
    return std::to_string(progress.percent) + "% done, " +
           (progress.awaits.empty() ? rate_text(progress, sizes) + ", " : "") +
           (left_is_known(progress) ? duration_text(progress.left_ms) + " left" : "time left not known");
}

std::string field_text(const char* name, const std::string& value)
{
    return line_text("%-19s%s", name, value.c_str());
}

WorkProgress scrub_progress(const ScrubStatus& status)
{
    WorkProgress progress =
        progress_of(status.bytes_done, status.bytes_total, status.run_ms, status.options.limit);
    progress.running = status.state == ScrubState::kRunning;
    progress.held_back = status.held_back;
    if (status.state == ScrubState::kFinished)
        progress.percent = 100;
    return progress;
}

std::string scrub_summary(const ScrubStatus& status)
{
    if (status.state == ScrubState::kNone)
        return "none yet";
    const bool ended = status.state == ScrubState::kFinished || status.state == ScrubState::kCancelled;
    const std::string place =
        ended ? " " + time_text(status.ended) : ", " + progress_text(scrub_progress(status));
    return scrub_state_name(status.state) + place + ", " + findings_text(status);
}

WorkProgress balance_progress(const BalanceStatus& status)
{
    // The pace is that of this mount; how much is done counts from the beginning.
    WorkProgress progress =
        progress_of(status.moved_bytes, status.moved_bytes + status.bytes_left, status.run_ms);
    progress.percent = static_cast<unsigned>(percent_share(bytes_done(status), status.bytes_total));
    progress.running = status.state == Balancing::kRunning;
    progress.held_back = status.held_back;
    progress.awaits = awaited(status);
    if (status.groups_stuck > 0)
        progress.percent = std::min(progress.percent, 99u);
    else if (status.state == Balancing::kFinished)
        progress.percent = 100;
    return progress;
}

std::string balance_summary(const BalanceStatus& status)
{
    const std::string result = balance_result(status);
    const WorkProgress progress = balance_progress(status);
    return std::string(balance_state_name(status.state)) + ", " + purpose_text(status) + ", " +
           (progress.running ? progress_text(progress) : std::to_string(progress.percent) + "% done") +
           (result.empty() || result == "done" ? "" : "; " + result);
}

WorkProgress replace_progress(const ReplaceStatus& status)
{
    WorkProgress progress = scrub_progress(status.copy);
    progress.running = status.active() && status.state != ReplaceStatus::State::kPaused;
    progress.percent =
        status.state == ReplaceStatus::State::kFinished ? 100 : static_cast<unsigned>(copied_percent(status));
    if (status.state == ReplaceStatus::State::kWaiting)
        progress.awaits = status.text;
    return progress;
}

std::string replace_summary(const ReplaceStatus& status)
{
    if (status.state == ReplaceStatus::State::kNone)
        return "no member was replaced since the volume was mounted";
    std::string text =
        "replacing member " + std::to_string(status.source.value) + ": " + replace_state_name(status.state);
    if (!status.text.empty())
        text += ": " + status.text;
    if (status.state == ReplaceStatus::State::kRunning)
        text += ", " + progress_text(replace_progress(status)) + ", " + std::to_string(status.groups_copied) +
                " of " + count_text(status.groups_total, "block group");
    text += "; " + size_text(status.copy.bytes_done) + " copied, " +
            count_text(status.copy.repaired, "block") + " had from other members, " +
            std::to_string(status.source_lost) + " of its blocks lost";
    if (status.copy.lost != status.source_lost)
        text += ", " + std::to_string(status.copy.lost) + " of data in its rows";
    const uint64_t nodes = status.copy.unreadable_nodes;
    if (nodes > 0)
        text += "; " + count_text(nodes, "tree node") + " cannot be read: what is below is copied unverified";
    if (status.still_lossy())
        return text + "; cowraid status -v names the files";
    return text + (status.copy.lost + nodes > 0 ? std::string("; what was lost is ") + kNotLostAnyMore : "");
}

namespace {

constexpr const char* kBtrfsScrubTime = "%a %b %e %H:%M:%S %Y";
constexpr const char* kBtrfsReplaceTime = "%e.%b %H:%M:%S";

// The lines of btrfs scrub status.
std::string error_summary(const ScrubStatus& status)
{
    const uint64_t lost = status.lost + status.unreadable_nodes;
    const uint64_t blocks = status.repaired + status.unrepaired + status.lost;
    if (blocks + status.unreadable_nodes + status.unverified == 0)
        return scrub_field("Error summary:", "no errors found");
    std::string out = scrub_field("Error summary:", "blocks=" + std::to_string(blocks) +
                                                        " nodes=" + std::to_string(status.unreadable_nodes));
    out += scrub_field("  Corrected:", std::to_string(status.repaired));
    out += scrub_field("  Uncorrectable:", std::to_string(lost));
    out += scrub_field("  Unverified:", std::to_string(status.unverified));
    return status.unrepaired == 0 ? out
                                  : out + scrub_field("  Not corrected:", std::to_string(status.unrepaired));
}

}  // namespace

namespace {

// As an option has it: "30d", "36h".
std::string age_text(uint64_t seconds)
{
    constexpr uint64_t kHour = 3600, kDay = 24 * kHour;
    if (seconds % kHour != 0)
        return duration_text(seconds * 1000);
    return seconds % kDay == 0 ? std::to_string(seconds / kDay) + "d" : std::to_string(seconds / kHour) + "h";
}

// Empty: everything is read, and repaired.
std::string scrub_mode(const ScrubOptions& options)
{
    std::vector<std::string> words;
    if (options.mode == ScrubMode::kLook)
        words.emplace_back("looks only");
    if (options.plan == ScrubOptions::Plan::kPercent && options.percent > 0)
        words.push_back("about " + std::to_string(options.percent) + "% of the data");
    else if (options.plan != ScrubOptions::Plan::kFull)
        words.push_back(std::string("plan ") + scrub_plan_name(options.plan));
    if (options.older_than > 0)
        words.push_back("what was not verified for " + age_text(options.older_than));
    std::string mode;
    for (const std::string& word : words)
        mode += (mode.empty() ? "" : ", ") + word;
    return mode;
}

}  // namespace

std::string scrub_text(const ScrubStatus& status, const Uuid& volume, uint64_t now, SizeStyle sizes)
{
    std::string out = scrub_field("UUID:", uuid_text(volume));
    if (status.state == ScrubState::kNone)
        return out + "no scrub was made of this volume\n";
    const WorkProgress progress = scrub_progress(status);
    out += scrub_field("Scrub started:", time_text(status.started, kBtrfsScrubTime));
    out += scrub_field("Status:",
                       status.state == ScrubState::kCancelled ? "aborted" : scrub_state_name(status.state));
    if (const std::string mode = scrub_mode(status.options); !mode.empty())
        out += scrub_field("Mode:", mode);
    out += scrub_field("Duration:", duration_text(status.run_ms));
    if (status.state == ScrubState::kRunning || status.state == ScrubState::kPaused)
        out += scrub_field("Time left:", left_text(progress));
    if (status.state == ScrubState::kRunning && left_is_known(progress))
        out += scrub_field("ETA:", time_text(now + progress.left_ms / 1000, kBtrfsScrubTime));
    out += scrub_field("Total to scrub:", size_text(status.bytes_total, sizes));
    out += scrub_field("Bytes scrubbed:",
                       size_text(status.bytes_done, sizes) + "  (" +
                           text_format("%.2f%%)", percent_share(status.bytes_done, status.bytes_total)));
    out += scrub_field("Rate:", rate_text(progress, sizes));
    out += error_summary(status);
    out += scrub_field("Data verified:", size_text(status.data_blocks * kBlockBytes, sizes));
    out += scrub_field("Parity verified:", size_text(status.parity_blocks * kBlockBytes, sizes));
    out += scrub_field("Tree nodes:", std::to_string(status.nodes));
    out += scrub_field("Superblocks:", std::to_string(status.heads) + ", with block-group maps");
    return out + scrub_field("Result:", findings_text(status));
}

std::string scrub_member_text(const ScrubStatus& status, const MemberInfo& member, const char* state,
                              SizeStyle sizes)
{
    using Number = ScrubMemberNumber;
    const auto at = status.members.find(member.id);
    const ScrubMemberNumbers found = at == status.members.end() ? ScrubMemberNumbers() : at->second;
    const auto text = [&](Number which) {
        return std::to_string(found[which]);
    };
    const uint64_t errors = found[Number::kReadErrors] + found[Number::kWrong] + found[Number::kHeads];
    std::string out = "\nScrub device " + (member.path.empty() ? "-" : member.path) + " (id " +
                      std::to_string(member.id.value) + "), " + state + "\n";
    out += scrub_field("Bytes scrubbed:", size_text(found[Number::kVerified] * kBlockBytes, sizes));
    if (errors + found[Number::kUnverified] == 0)
        return out + scrub_field("Error summary:", "no errors found");
    out +=
        scrub_field("Error summary:", "read=" + text(Number::kReadErrors) + " csum=" + text(Number::kWrong) +
                                          " super=" + text(Number::kHeads));
    out += scrub_field("  Corrected:", text(Number::kCorrected));
    out += scrub_field("  Uncorrectable:", text(Number::kLost));
    out += scrub_field("  Unverified:", text(Number::kUnverified));
    const uint64_t left = errors - std::min(errors, found[Number::kCorrected] + found[Number::kLost]);
    return left == 0 ? out : out + scrub_field("  Not corrected:", std::to_string(left));
}

namespace {

// As of btrfs replace status. `lost`: blocks that could not be read; `ended`: how; null: it goes on.
std::string copy_line(const ScrubStatus& copy, uint64_t lost, double percent, uint64_t started,
                      uint64_t ended_at, const char* ended)
{
    std::string out = text_format("%.1f%% done", percent);
    if (ended != nullptr)
        out = "Started on " + time_text(started, kBtrfsReplaceTime) + ", " + ended + " on " +
              time_text(ended_at, kBtrfsReplaceTime) +
              (std::string_view(ended) == "finished" ? "" : text_format(" at %.1f%%", percent));
    return line_text("%s, %llu write errs, %llu uncorr. read errs", out.c_str(),
                     static_cast<unsigned long long>(copy.unrepaired), static_cast<unsigned long long>(lost));
}

}  // namespace

std::string replace_text(const ReplaceStatus& status)
{
    const char* const ended = status.state == ReplaceStatus::State::kFinished    ? "finished"
                              : status.state == ReplaceStatus::State::kCancelled ? "canceled"
                              : status.state == ReplaceStatus::State::kFailed    ? "failed"
                                                                                 : nullptr;
    if (status.state == ReplaceStatus::State::kNone)
        return "Never started\n" + line_text("%s", replace_summary(status).c_str());
    return copy_line(status.copy, status.source_lost, copied_percent(status), status.started, status.ended,
                     ended) +
           line_text("%s", replace_summary(status).c_str());
}

std::string filling_text(const ScrubStatus& status)
{
    if (status.state == ScrubState::kNone)
        return "Never started\nno member was filled since the volume was mounted\n";
    const char* const ended = status.state == ScrubState::kFinished    ? "finished"
                              : status.state == ScrubState::kCancelled ? "canceled"
                                                                       : nullptr;
    return copy_line(status, status.lost + status.unreadable_nodes,
                     percent_share(status.bytes_done, status.bytes_total), status.started, status.ended,
                     ended) +
           line_text("filling members: %s", scrub_summary(status).c_str());
}

std::string balance_head(const BalanceStatus& status, const std::string& mount_point)
{
    const std::string place = quoted(mount_point);
    if (!status.active())
        return line_text("No balance found on %s", place.c_str());
    // A daemon of an earlier version tells no total.
    const unsigned long long total = std::max(status.groups_total, status.groups_left);
    const double left = total == 0 ? 100.0 : percent_share(status.groups_left, total);
    return line_text("Balance on %s is %s", place.c_str(), balance_state_name(status.state)) +
           line_text("%llu out of about %llu chunks balanced (%llu considered), %3.0f%% left",
                     total - status.groups_left, total, total, left);
}

std::string balance_cancelled(const BalanceStatus& status)
{
    const char* const moved = "cancelled: what was moved stays where it is";
    const std::string member = ", and member " + std::to_string(status.member.value);
    if (status.shrink_bytes != 0)
        return line_text("making it smaller is %s%s keeps its size", moved, member.c_str());
    if (status.member.value != 0)
        return line_text("removal %s%s stays", moved, member.c_str());
    return line_text("balance %s%s", moved,
                     status.convert ? ", the rest keeps its profile, new block groups are made as the "
                                      "balance said"
                                    : "");
}

std::string balance_end(const BalanceStatus& status)
{
    // Of one that an earlier mount began it is not known how many these were.
    if (status.state != Balancing::kFinished || status.started == 0 || status.groups_total == 0)
        return "";
    return "Done, had to relocate " + std::to_string(status.groups_total - status.groups_left) + " out of " +
           std::to_string(status.groups_total) + " chunks\n";
}

namespace {

// What is left may be less than two sizes show.
std::string bytes_text(const BalanceStatus& status, SizeStyle sizes)
{
    const std::string done = size_text(bytes_done(status), sizes),
                      total = size_text(status.bytes_total, sizes);
    return status.bytes_left > 0 && done == total
               ? "all but " + size_text(status.bytes_left, sizes) + " of " + total
               : done + " of " + total;
}

}  // namespace

std::string balance_text(const BalanceStatus& status, SizeStyle sizes)
{
    if (status.state == Balancing::kNone)
        return "";
    std::string out = field_text("Status:", balance_state_name(status.state));
    out += field_text("What:", purpose_text(status));
    out += field_text("Since:",
                      status.started != 0 ? time_text(status.started) : "before the volume was mounted");
    const WorkProgress progress = balance_progress(status);
    out += field_text("Done:", std::to_string(progress.percent) + "%, " + bytes_text(status, sizes));
    if (progress.running) {
        out += field_text("Rate:", rate_text(progress, sizes));
        out += field_text("Time left:", left_text(progress));
    }
    out += field_text("Block groups left:", std::to_string(status.groups_left));
    if (const std::string result = balance_result(status); !result.empty())
        out += field_text("Result:", result);
    return out;
}

}  // namespace cowraid
