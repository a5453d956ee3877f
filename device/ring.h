// SPDX-License-Identifier: MIT
// One io_uring per thread, behind run_io(). Nothing above device/ includes this.
#pragma once

#include <liburing.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/block_device.h"

namespace cowraid {

// To be called before a descriptor that ring_fd() returned is closed: rings keep a reference to every file
// they used, and an exclusive open would outlive its device. No request on it may be running. Thread-safe.
void ring_forget_file(int fd);

// How often a transfer that makes no progress (EAGAIN, EINTR) is tried before it counts as failed.
inline constexpr uint32_t kMaxRetries = 1000;

// The error a failed system call stands for: kMemberGone when the device itself has vanished, else kIo.
Status device_error(int error_number);

class Ring {
public:
    // The calling thread's ring, created at first use; null when io_uring is refused or switched off with
    // COWRAID_NO_URING=1 (asked for once per thread).
    static Ring* of_this_thread();

    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    // Runs the reads, writes and flushes of `requests` (all on devices with a ring_fd(), in bounds, results
    // ok) and records what fails. Returns the number of kernel entries it took. Those with open parts are not
    // done then, on a device that is silent for `wait_ms` (older kernels wait for all): the ring is not idle,
    // and is for leave_busy().
    uint64_t run(std::span<IoRequest* const> requests, uint64_t wait_ms);
    [[nodiscard]] bool idle() const { return in_flight_ == 0; }
    // The calling thread's ring if it is not idle, else null. No more of its requests is submitted; what is
    // under way ends by reap(), in any thread. The thread gets a new ring.
    static std::unique_ptr<Ring> leave_busy();
    // Takes what is done. By one thread at a time.
    void reap();

private:
    friend void ring_forget_file(int fd);
    friend struct RingOfThread;

    // A part of one request, small enough for one submission.
    struct Piece {
        IoRequest* request;
        uint64_t offset;
        uint32_t first_vector;  // in vectors_
        uint32_t vector_count;
        uint32_t retries;
    };

    Ring() = default;
    [[nodiscard]] int start();
    void abandon();
    void plan(IoRequest& request);
    void prepare(uint32_t piece_index, io_uring_sqe* sqe);
    void attach_file(io_uring_sqe* sqe, int fd);
    void submit_and_wait(uint64_t until_ms, bool takes_long);
    void complete(uint32_t piece_index, int result);
    [[nodiscard]] bool consume(Piece& piece, uint64_t bytes);

    io_uring ring_{};
    bool started_ = false;
    bool has_file_table_ = false;
    bool left_ = false;  // by its thread
    uint32_t in_flight_ = 0;
    std::vector<Piece> pieces_;
    std::vector<iovec> vectors_;
    std::vector<uint32_t> todo_;  // pieces to submit, in order; a repeated one is appended
    size_t todo_next_ = 0;
    std::vector<std::atomic<uint8_t>> file_known_;  // by descriptor: is it in the ring's file table?
};

}  // namespace cowraid
