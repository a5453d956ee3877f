// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"

namespace cowraid {

// What a mounted filesystem may do, and why not more. Read by anybody; changed by who mounts, remounts or
// commits. kWriting is left for reading with the operation gate held exclusively.
//
//               recovered, committed            a commit or flush failed
//   kStarting ------------------------> kWriting -----------------------> kStopped
//    | | ^ ^ ^                             |
//    | | | | +--> kCommittingRows          |
//    | | | | remount rw       remount ro   |
//    | +-+-+-------------> kReading <------+
//    |   | mounted read-only
//    +---+----------> kKeepingLog
//     read-only over a log in use, or writing could not begin; remount rw
class ServiceState {
public:
    enum class Kind : uint8_t {
        kStarting,  // only who mounts commits: superblocks, recovery
        // The same, while rows that were recovered wait for a commit with records: none is written in place.
        kCommittingRows,
        kWriting,
        kReading,
        // Read-only, and what the logs hold is in memory alone: nothing is written, not even a commit.
        kKeepingLog,
        // After an error that a commit could not carry: everything that changes fails, reads go on. Until
        // unmount.
        kStopped,
    };

    [[nodiscard]] Kind kind() const { return kind_.load(std::memory_order_acquire); }
    [[nodiscard]] bool writing() const { return kind() == Kind::kWriting; }
    [[nodiscard]] bool stopped() const { return kind() == Kind::kStopped; }
    [[nodiscard]] bool keeps_log() const { return kind() == Kind::kKeepingLog; }
    [[nodiscard]] bool whole_rows_only() const { return kind() == Kind::kCommittingRows; }
    // Neither writing nor stopped.
    [[nodiscard]] bool read_only() const { return !writing() && !stopped(); }
    // kShutdown when stopped, kReadOnly when it is read-only.
    [[nodiscard]] Status check_writable() const
    {
        if (writing())
            return {};
        return stopped() ? Err::kShutdown : Err::kReadOnly;
    }
    // Text for the user, static or the volume's: why it stopped or is read-only; empty when nothing forbids
    // to write.
    [[nodiscard]] const char* reason() const { return reason_; }
    // Why it stopped, or why writing could not begin; empty when it never did.
    [[nodiscard]] const char* stop_reason() const
    {
        const char* reason = stop_reason_;
        return reason != nullptr ? reason : "";
    }
    [[nodiscard]] bool failed() const { return stop_reason_ != nullptr; }

    // Not from kStopped, which stays.
    void become(Kind kind)
    {
        Kind now = this->kind();
        while (now != Kind::kStopped && !kind_.compare_exchange_weak(now, kind)) { }
    }
    void set_reason(const char* reason) { reason_ = reason; }
    // kStopped, also when it was just told to be read-only: its last commit is still to come. kKeepingLog
    // when it was not writing yet. False: it has stopped before.
    bool stop(const char* reason)
    {
        const char* none = nullptr;
        if (!stop_reason_.compare_exchange_strong(none, reason))
            return false;
        reason_ = reason;
        const Kind now = kind();
        const bool starting = now == Kind::kStarting || now == Kind::kCommittingRows;
        become(starting ? Kind::kKeepingLog : Kind::kStopped);
        return true;
    }

private:
    std::atomic<Kind> kind_{Kind::kStarting};
    std::atomic<const char*> reason_{""};
    std::atomic<const char*> stop_reason_{nullptr};
};

}  // namespace cowraid
