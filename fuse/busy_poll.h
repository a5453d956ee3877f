// SPDX-License-Identifier: MIT
// Looks for the next FUSE request for a moment before its thread sleeps.
//
// A program that makes one request after the other has the next one ready some microseconds after an answer.
// To sleep in between and be woken costs both sides more than most requests do, above all where processors
// are virtual: an idle one stops, and starting it again is the host's work. As the network stack does
// (SO_BUSY_POLL) and KVM for its halted processors (halt_poll_ns, grow and shrink), one thread polls, for a
// bounded time, and only while that has been worth it.
#pragma once

#include <atomic>
#include <cstdint>

namespace cowraid {

// When to poll, and for how long. Thread-safe; the figures are hints, so threads may overtake each other.
// Times are nanoseconds of one clock that never goes back.
class PollWindow {
public:
    static constexpr uint64_t kMaxNanoseconds = 100'000;

    // A thread begins to wait. Returns how long it may poll, 0 for not at all.
    uint64_t begin(uint64_t now_ns);
    // A request has come. One that came within kMaxNanoseconds after the last begin() opens the window; one
    // that took longer halves it, and what is left below kMinNanoseconds is nothing.
    void end(uint64_t now_ns);

private:
    static constexpr uint64_t kMinNanoseconds = 10'000;

    std::atomic<uint64_t> began_ns_{0};
    std::atomic<uint64_t> window_ns_{0};
};

class BusyPoll {
public:
    // Returns when `fd` is readable, has failed, or the time to poll is over; at once while another thread
    // polls. Gives way to whoever else wants the processor.
    void before_read(int fd);
    // A read has returned a request.
    void after_read(uint64_t now_ns);

private:
    PollWindow window_;
    std::atomic<bool> polling_{false};
};

}  // namespace cowraid
