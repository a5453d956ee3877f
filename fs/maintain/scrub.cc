// SPDX-License-Identifier: MIT
#include "fs/maintain/scrub.h"

#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_count.h"

namespace cowraid {

namespace {

constexpr uint64_t kNanosecondsPerMs = 1000000;

uint64_t clock_ms()
{
    return monotonic_ns() / kNanosecondsPerMs;
}

uint64_t now_seconds()
{
    return static_cast<uint64_t>(std::time(nullptr));
}

unsigned long long as_ull(uint64_t value)
{
    return value;
}

void log_end(ScrubScope scope, const ScrubStatus& status)
{
    log_message(status.damaged() ? LogLevel::kError : LogLevel::kInfo,
                "%s %s: %llu blocks repaired, %llu not, %llu lost, %llu tree nodes unreadable",
                scope == ScrubScope::kAll ? "scrub" : "catching up", scrub_state_name(status.state),
                as_ull(status.repaired), as_ull(status.unrepaired), as_ull(status.lost),
                as_ull(status.unreadable_nodes));
}

}  // namespace

const char* scrub_state_name(ScrubState state)
{
    constexpr const char* kNames[] = {"none", "running", "paused", "finished", "cancelled"};
    return kNames[static_cast<size_t>(state)];
}

Status Scrub::start(const ScrubOptions& options)
{
    CW_TRY(store_.service.check_writable());
    const std::vector<Ref<const ArrayGroup>> groups = store_.volume.array().groups();
    if (scope_ == ScrubScope::kStale &&
        std::none_of(groups.begin(), groups.end(),
                     [&](const Ref<const ArrayGroup>& group) { return in_scope(store_, scope_, *group); }))
        return Err::kNotFound;
    const uint64_t bytes = scrub_bytes(store_, scope_);
    MutexLock lock(mutex_);
    if (status_.state == ScrubState::kRunning || status_.state == ScrubState::kPaused)
        return Err::kBusy;
    status_ = {};
    status_.options = options;
    status_.started = now_seconds();
    status_.bytes_total = bytes;
    position_ = {};
    passes_.clear();
    ++number_;
    enter_running();
    return {};
}

Status Scrub::pause()
{
    MutexLock lock(mutex_);
    if (status_.state != ScrubState::kRunning)
        return Err::kInvalid;
    leave_running(ScrubState::kPaused);
    return {};
}

Status Scrub::resume()
{
    CW_TRY(store_.service.check_writable());
    MutexLock lock(mutex_);
    if (status_.state != ScrubState::kPaused)
        return Err::kInvalid;
    enter_running();
    return {};
}

Status Scrub::cancel()
{
    MutexLock lock(mutex_);
    if (status_.state != ScrubState::kRunning && status_.state != ScrubState::kPaused)
        return Err::kInvalid;
    end(ScrubState::kCancelled);
    return {};
}

void Scrub::end(ScrubState state)
{
    leave_running(state);
    status_.ended = now_seconds();
    ++number_;
    steps_ = 0;
}

void Scrub::enter_running()
{
    status_.state = ScrubState::kRunning;
    since_ms_ = clock_ms();
    changed_.notify_all();
}

void Scrub::leave_running(ScrubState state)
{
    status_.run_ms = run_ms();
    status_.state = state;
    changed_.notify_all();
}

uint64_t Scrub::run_ms() const
{
    const bool runs = status_.state == ScrubState::kRunning;
    return status_.run_ms + (runs ? clock_ms() - since_ms_ : 0);
}

ScrubStatus Scrub::status() const
{
    MutexLock lock(mutex_);
    ScrubStatus status = status_;
    status.run_ms = run_ms();
    return status;
}

void Scrub::add(const ScrubReport& report, const ScrubWalkCounts& counts)
{
    status_.bytes_done += (report.data_blocks + report.parity_blocks) * kBlockBytes;
    status_.data_blocks += report.data_blocks;
    status_.parity_blocks += report.parity_blocks;
    status_.nodes += counts.nodes;
    status_.repaired += report.repaired;
    status_.unrepaired += report.unrepaired;
    status_.unverified += report.unverified;
    status_.adopted += report.adopted;
    status_.lost += report.lost.size();
    status_.unreadable_nodes += counts.unreadable_nodes;
    const size_t room = kScrubAddressesMax - std::min(kScrubAddressesMax, status_.lost_addresses.size());
    const auto end = report.lost.begin() + static_cast<ptrdiff_t>(std::min<size_t>(room, report.lost.size()));
    status_.lost_addresses.insert(status_.lost_addresses.end(), report.lost.begin(), end);
}

namespace {

// Those that a pass can write to.
void add_stale_columns(const MemberSet& members, const GroupRecord& group, std::vector<StaleColumn>& out)
{
    for (const GroupColumn& column : group.columns)
        if (const uint64_t arrivals = members.arrivals(column.member);
            column.stale() && members.device(column.member) != nullptr)
            out.push_back({group.address, column.member, column.stale_since, arrivals});
}

constexpr VolumeAddress kNodesOfAllGroups{0};

}  // namespace

std::vector<StaleColumn> Scrub::node_columns()
{
    std::vector<StaleColumn> columns;
    for (const Ref<const ArrayGroup>& group : store_.volume.array().groups())
        if (has_mirrored_nodes(*group))
            add_stale_columns(store_.volume.members(), group->record, columns);
    return columns;
}

void Scrub::note_begun(Step& step, const ScrubPosition& before, const ScrubPosition& after)
{
    const bool nodes = before.in_trees();
    if (!nodes && !step.piece.group)
        return;
    Pass& pass = passes_[nodes ? kNodesOfAllGroups : step.piece.group->record.address];
    if (nodes ? before == ScrubPosition() : step.piece.first) {
        pass.begun = true;
        pass.columns = step.columns;
    }
    pass.issued = nodes ? !after.in_trees() : step.piece.last;
    ++pass.steps;
    step.noted = true;
}

void Scrub::note_finished(const Step& step, std::vector<StaleColumn>& current)
{
    const VolumeAddress address = step.piece.group ? step.piece.group->record.address : kNodesOfAllGroups;
    const auto at = passes_.find(address);
    if (!step.noted || at == passes_.end())
        return;
    Pass& pass = at->second;
    --pass.steps;
    pass.failed = pass.failed || step.failed();
    if (!pass.complete())
        return;
    if (!pass.failed && step.order.mode == ScrubMode::kRepair)
        current.insert(current.end(), pass.columns.begin(), pass.columns.end());
    passes_.erase(at);
}

// A limit is kept in steps of a fraction of a second.
ScrubOrder Scrub::order() const
{
    ScrubOrder order{.mode = status_.options.mode, .scope = scope_};
    if (status_.options.limit > 0)
        order.piece_bytes = std::clamp(status_.options.limit / 8, kMiB, order.piece_bytes);
    return order;
}

// Finds the next piece. False: there is no scrub to be brought on, or all of it is under way.
bool Scrub::begin(Step& step)
{
    MutexLock walk(walk_mutex_);
    ScrubPosition before;
    {
        MutexLock lock(mutex_);
        if (status_.state != ScrubState::kRunning || position_.done)
            return false;
        before = position_;
        step.order = order();
        step.number = number_;
    }
    ScrubPosition position = before;
    if (before == ScrubPosition())
        step.columns = node_columns();
    if (!next_piece(store_, step.order, position, step.piece, step.report, step.counts).ok())
        ++step.counts.unreadable_nodes;
    if (step.piece.group)
        add_stale_columns(store_.volume.members(), step.piece.group->record, step.columns);
    MutexLock lock(mutex_);
    if (step.number != number_)
        return true;
    position_ = position;
    note_begun(step, before, position);
    status_.bytes_total -= std::min(status_.bytes_total, step.piece.blocks.left_out_bytes);
    ++steps_;
    return true;
}

// True: it was the last step of the scrub, which ended so.
bool Scrub::finish(const Step& step, ScrubStatus& ended, std::vector<StaleColumn>& current)
{
    MutexLock lock(mutex_);
    if (step.number != number_)
        return false;
    add(step.report, step.counts);
    note_finished(step, current);
    --steps_;
    changed_.notify_all();
    if (!position_.done || steps_ > 0)
        return false;
    end(ScrubState::kFinished);
    ended = status_;
    return true;
}

bool Scrub::step()
{
    Step step;
    if (!begin(step))
        return false;
    if (step.piece.group && !step.piece.blocks.rows.empty())
        scrub_rows(store_, step.order.mode, step.piece, step.report);
    for (const VolumeAddress address : step.report.lost)
        log_count(LogLevel::kError, "scrub", "blocks that cannot be recovered, by address", 1,
                  {.first = address.value, .last = address.value + kBlockBytes - 1});
    ScrubStatus ended;
    std::vector<StaleColumn> current;
    if (finish(step, ended, current))
        log_end(scope_, ended);
    if (!current.empty()) {
        store_.volume.caught_up(std::move(current));
        store_.commits.request_commit();
    }
    return true;
}

// How long what was read so far should have taken.
uint64_t Scrub::due_ms() const
{
    return status_.options.limit == 0 ? 0 : status_.bytes_done * 1000 / status_.options.limit;
}

bool Scrub::wait()
{
    MutexLock lock(mutex_);
    while (!stopped_) {
        if (status_.state != ScrubState::kRunning || position_.done)
            changed_.wait(mutex_);
        else if (const uint64_t due = due_ms(), run = run_ms(); run < due)
            changed_.wait_for(mutex_, due - run);
        else
            return true;
    }
    return false;
}

void Scrub::stop()
{
    MutexLock lock(mutex_);
    stopped_ = true;
    if (status_.state == ScrubState::kRunning)
        leave_running(ScrubState::kPaused);
    changed_.notify_all();
}

void Scrub::allow()
{
    MutexLock lock(mutex_);
    stopped_ = false;
}

}  // namespace cowraid
