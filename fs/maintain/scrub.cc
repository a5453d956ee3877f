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

void log_end(const ScrubStatus& status)
{
    log_message(status.damaged() ? LogLevel::kError : LogLevel::kInfo,
                "scrub %s: %llu blocks repaired, %llu not, %llu lost, %llu tree nodes unreadable",
                scrub_state_name(status.state), as_ull(status.repaired), as_ull(status.unrepaired),
                as_ull(status.lost), as_ull(status.unreadable_nodes));
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
    const uint64_t bytes = scrub_bytes(store_);
    MutexLock lock(mutex_);
    if (status_.state == ScrubState::kRunning || status_.state == ScrubState::kPaused)
        return Err::kBusy;
    status_ = {};
    status_.options = options;
    status_.started = now_seconds();
    status_.bytes_total = bytes;
    position_ = {};
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
    status_.adopted += report.adopted;
    status_.lost += report.lost.size();
    status_.unreadable_nodes += counts.unreadable_nodes;
    const size_t room = kScrubAddressesMax - std::min(kScrubAddressesMax, status_.lost_addresses.size());
    const auto end = report.lost.begin() + static_cast<ptrdiff_t>(std::min<size_t>(room, report.lost.size()));
    status_.lost_addresses.insert(status_.lost_addresses.end(), report.lost.begin(), end);
}

// Finds the next piece. False: there is no scrub to be brought on, or all of it is under way.
bool Scrub::begin(Step& step)
{
    MutexLock walk(walk_mutex_);
    ScrubPosition position;
    {
        MutexLock lock(mutex_);
        if (status_.state != ScrubState::kRunning || position_.done)
            return false;
        position = position_;
        step.mode = status_.options.mode;
        step.number = number_;
    }
    if (!next_piece(store_, step.mode, position, step.piece, step.report, step.counts).ok())
        ++step.counts.unreadable_nodes;
    MutexLock lock(mutex_);
    if (step.number != number_)
        return true;
    position_ = position;
    ++steps_;
    return true;
}

// True: it was the last step of the scrub, which ended so.
bool Scrub::finish(const Step& step, ScrubStatus& ended)
{
    MutexLock lock(mutex_);
    if (step.number != number_)
        return false;
    add(step.report, step.counts);
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
    if (step.piece.group)
        scrub_rows(store_, step.mode, step.piece, step.report);
    for (const VolumeAddress address : step.report.lost)
        log_count(LogLevel::kError, "scrub", "blocks that cannot be recovered, by address", 1,
                  {.first = address.value, .last = address.value + kBlockBytes - 1});
    ScrubStatus ended;
    if (finish(step, ended))
        log_end(ended);
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
