// SPDX-License-Identifier: MIT
// Frames of the control socket: four bytes of length, little-endian, then that many bytes of JSON.
//   request  {"command": NAME, ...}
//   answer   {"ok": true, "result": {...}} or {"ok": false, "error": {"code": "EROFS", "message": TEXT}}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"

namespace cowraid {

inline constexpr uint32_t kControlRequestBytesMax = 64 * 1024;
// Answers list every member.
inline constexpr uint32_t kControlAnswerBytesMax = 4 * 1024 * 1024;
inline constexpr uint32_t kControlDeadlineMilliseconds = 5000;

struct FrameLimits {
    uint32_t bytes_max = kControlRequestBytesMax;
    // For the whole frame, not per byte; 0: no limit.
    uint32_t milliseconds = kControlDeadlineMilliseconds;
};

// kInterrupted: no byte of a frame came within `milliseconds` (0: no limit), nor did the peer close. Nothing
// is read.
Status wait_for_frame(int fd, uint32_t milliseconds);
// kNotFound: the peer closed before the first byte. kTooBig: a length above the limit or of 0. kInterrupted:
// the time ran out. kIo: closed inside a frame, or a socket error. After an error the stream is unusable.
// `descriptor`, unless null: the one that came with the frame, if any; others are closed.
Result<std::string> read_frame(int fd, const FrameLimits& limits, UniqueFd* descriptor = nullptr);
// kTooBig, kInterrupted and kIo as above. Never raises SIGPIPE. A copy of `descriptor` goes with it, unless
// that is negative.
Status write_frame(int fd, std::string_view body, const FrameLimits& limits, int descriptor = -1);

}  // namespace cowraid
