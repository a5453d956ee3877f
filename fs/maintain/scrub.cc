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
    status_.state = ScrubState::kRunning;
    status_.options = options;
    status_.started = now_seconds();
    status_.bytes_total = bytes;
    position_ = {};
    ++number_;
    changed_.notify_all();
    return {};
}

Status Scrub::pause()
{
    MutexLock lock(mutex_);
    if (status_.state != ScrubState::kRunning)
        return Err::kInvalid;
    status_.state = ScrubState::kPaused;
    return {};
}

Status Scrub::resume()
{
    MutexLock lock(mutex_);
    if (status_.state != ScrubState::kPaused)
        return Err::kInvalid;
    status_.state = ScrubState::kRunning;
    changed_.notify_all();
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
    status_.state = state;
    status_.ended = now_seconds();
    ++number_;
    changed_.notify_all();
}

ScrubStatus Scrub::status() const
{
    MutexLock lock(mutex_);
    return status_;
}

void Scrub::add(const ScrubReport& report, const ScrubWalkCounts& counts, uint64_t ms)
{
    status_.run_ms += ms;
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

bool Scrub::step()
{
    ScrubPosition position;
    ScrubMode mode;
    uint64_t number;
    {
        MutexLock lock(mutex_);
        if (status_.state != ScrubState::kRunning)
            return false;
        position = position_;
        mode = status_.options.mode;
        number = number_;
    }
    const uint64_t begin = clock_ms();
    ScrubReport report;
    ScrubWalkCounts counts;
    if (!scrub_piece(store_, mode, position, report, counts).ok())
        ++counts.unreadable_nodes;
    for (const VolumeAddress address : report.lost)
        log_count(LogLevel::kError, "scrub", "blocks that cannot be recovered, by address", 1,
                  {.first = address.value, .last = address.value + kBlockBytes - 1});
    ScrubStatus ended;
    {
        MutexLock lock(mutex_);
        if (number != number_)
            return true;
        add(report, counts, clock_ms() - begin);
        position_ = position;
        if (!position.done)
            return true;
        end(ScrubState::kFinished);
        ended = status_;
    }
    log_end(ended);
    return true;
}

bool Scrub::wait()
{
    MutexLock lock(mutex_);
    const uint64_t limit = status_.options.limit;
    // Ahead of what the limit allows for the time that it ran: the difference is slept, as part of the run.
    if (status_.state == ScrubState::kRunning && limit > 0) {
        const uint64_t due_ms = status_.bytes_done * 1000 / limit;
        const uint64_t number = number_;
        while (!stopped_ && number == number_ && status_.run_ms < due_ms) {
            const uint64_t begin = clock_ms();
            changed_.wait_for(mutex_, due_ms - status_.run_ms);
            status_.run_ms += clock_ms() - begin;
        }
    }
    while (!stopped_ && status_.state != ScrubState::kRunning)
        changed_.wait(mutex_);
    return !stopped_;
}

void Scrub::stop()
{
    MutexLock lock(mutex_);
    stopped_ = true;
    if (status_.state == ScrubState::kRunning)
        status_.state = ScrubState::kPaused;
    changed_.notify_all();
}

void Scrub::allow()
{
    MutexLock lock(mutex_);
    stopped_ = false;
}

}  // namespace cowraid
