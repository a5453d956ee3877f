// SPDX-License-Identifier: MIT
#include "tools/cowraid/work_text.h"

#include <algorithm>
#include <ctime>

#include "base/print.h"

namespace cowraid {

namespace {

using Balancing = BalanceStatus::State;

// One sentence.
std::string scrub_result(const ScrubStatus& status)
{
    const bool looks = status.options.mode == ScrubMode::kLook;
    if (status.lost + status.unreadable_nodes > 0)
        return count_text(status.lost, "block") + " of data and " +
               count_text(status.unreadable_nodes, "tree node") +
               " are lost: redundancy does not have them; cowraid status -v names the files";
    if (status.unverified > 0)
        return count_text(status.unverified, "block") +
               " not verified: on members that are not in service; see cowraid filesystem show";
    if (status.unrepaired > 0)
        return count_text(status.unrepaired, "block") +
               (looks ? " can be repaired; run it without -r"
                      : " could not be stored on their member; see cowraid device stats");
    if (status.repaired > 0)
        return count_text(status.repaired, "block") + " repaired, nothing is lost; see cowraid device stats";
    return "no errors found";
}

unsigned percent_of(uint64_t done, uint64_t total)
{
    return total == 0 ? 0 : static_cast<unsigned>(done * 100 / total);
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
               " cannot be emptied: something in them cannot be read; run cowraid scrub" +
               (status.member.value != 0 ? "; the member stays as it is" : "");
    if (status.waits_for_room && status.state == Balancing::kRunning)
        return "waits for room: remove files, or add devices";
    if (status.state == Balancing::kFinished && status.shrink_bytes != 0)
        return "done; what is behind that on the device is nobody's";
    if (status.state == Balancing::kFinished && status.member.value != 0)
        return "done; the device stays in use until the volume is unmounted";
    return status.state == Balancing::kFinished ? "done" : "";
}

}  // namespace

std::string time_text(uint64_t seconds)
{
    const auto time = static_cast<time_t>(seconds);
    struct tm local { };
    char out[64] = "";
    if (localtime_r(&time, &local) != nullptr)
        strftime(out, sizeof out, "%Y-%m-%d %H:%M:%S", &local);
    return out;
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
            .percent = percent_of(done, total_bytes),
            .rate = rate,
            .left_ms = pace == 0 ? 0 : (total_bytes - done) * 1000 / pace,
            .limit = limit};
}

std::string rate_text(const WorkProgress& progress, SizeStyle sizes)
{
    std::string notes = progress.limit == 0 ? "" : "limit " + size_text(progress.limit, sizes) + "/s";
    if (progress.held_back)
        notes += std::string(notes.empty() ? "" : ", ") + "held back by foreground load";
    return size_text(progress.rate, sizes) + "/s" + (notes.empty() ? "" : " (" + notes + ")");
}

namespace {

bool left_is_known(const WorkProgress& progress)
{
    return progress.rate > 0 || progress.percent == 100;
}

std::string left_text(const WorkProgress& progress)
{
    return left_is_known(progress) ? duration_text(progress.left_ms) : "not known";
}

}  // namespace

std::string progress_text(const WorkProgress& progress, SizeStyle sizes)
{
    return std::to_string(progress.percent) + "% done, " + rate_text(progress, sizes) + ", " +
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
    return scrub_state_name(status.state) + place + ", " + scrub_result(status);
}

WorkProgress balance_progress(const BalanceStatus& status)
{
    // The pace is that of this mount; how much is done counts from the beginning.
    WorkProgress progress =
        progress_of(status.moved_bytes, status.moved_bytes + status.bytes_left, status.run_ms);
    progress.percent = percent_of(bytes_done(status), status.bytes_total);
    progress.running = status.state == Balancing::kRunning;
    progress.held_back = status.held_back;
    if (status.state == Balancing::kFinished)
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
            std::to_string(status.copy.lost) + " lost";
    return text + (status.copy.lost > 0 ? "; cowraid status -v names the files" : "");
}

std::string scrub_text(const ScrubStatus& status, SizeStyle sizes)
{
    if (status.state == ScrubState::kNone)
        return "no scrub was made of this volume\n";
    const auto size = [sizes](uint64_t blocks) {
        return size_text(blocks * kBlockBytes, sizes);
    };
    const WorkProgress progress = scrub_progress(status);
    std::string out = field_text("Scrub started:", time_text(status.started));
    const bool looks = status.options.mode == ScrubMode::kLook;
    const std::string plan = status.options.plan == ScrubOptions::Plan::kFull
                                 ? ""
                                 : std::string(", plan ") + scrub_plan_name(status.options.plan);
    out += field_text("Status:",
                      std::string(scrub_state_name(status.state)) + (looks ? ", looks only" : "") + plan);
    out += field_text("Duration:", duration_text(status.run_ms));
    if (status.state == ScrubState::kRunning || status.state == ScrubState::kPaused)
        out += field_text("Time left:", left_text(progress));
    out += field_text("Done:", std::to_string(progress.percent) + "%, " +
                                   size_text(status.bytes_done, sizes) + " of members");
    out += field_text("Rate:", rate_text(progress, sizes));
    out += field_text("Data verified:", size(status.data_blocks));
    out += field_text("Parity verified:", size(status.parity_blocks));
    out += field_text("Tree nodes:", std::to_string(status.nodes));
    out += field_text("Superblocks, maps:", std::to_string(status.heads));
    out += field_text("Repaired:", std::to_string(status.repaired) + " blocks");
    out += field_text("Not repaired:", std::to_string(status.unrepaired) + " blocks");
    out += field_text("Not verified:", std::to_string(status.unverified) + " blocks");
    out += field_text("Lost:", std::to_string(status.lost) + " blocks");
    out += field_text("Result:", status.state == ScrubState::kFinished ? scrub_result(status)
                                                                       : scrub_result(status) + " so far");
    return out;
}

std::string balance_text(const BalanceStatus& status, SizeStyle sizes)
{
    if (status.state == Balancing::kNone)
        return "no balance is under way\n";
    std::string out = field_text("Status:", balance_state_name(status.state));
    out += field_text("What:", purpose_text(status));
    out += field_text("Since:",
                      status.started != 0 ? time_text(status.started) : "before the volume was mounted");
    const WorkProgress progress = balance_progress(status);
    out +=
        field_text("Done:", std::to_string(progress.percent) + "%, " + size_text(bytes_done(status), sizes) +
                                " of " + size_text(status.bytes_total, sizes));
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
