// SPDX-License-Identifier: MIT
// Requests that libfuse 3.14 does not know, or would answer too early, before it sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cowraid {

enum class RequestFate {
    kServe,
    kEnd,  // the mount is gone: the session ends
};

struct TranslatedRequest {
    RequestFate fate = RequestFate::kServe;
    size_t bytes = 0;  // of the request, at the beginning of the buffer
};

// `buffer` begins with a request of `bytes` bytes as read from the kernel.
//  - SYNCFS, of sync(2) and syncfs(2), becomes an FSYNCDIR of the root directory: the answer has the same
//    form, and an fsync makes everything durable that came before it.
//  - TMPFILE, of O_TMPFILE, becomes a CREATE: both have the same form. Its name is kNoName, which no CREATE
//    has.
//  - STATX, of a statx(2) that asks for the time of birth, becomes a GETATTR; request_is_statx() is true in
//    the calling thread, which is the one that serves it, because the answer has another form.
//  - DESTROY ends the session without an answer. The kernel, and with it umount(2), waits for one, or for the
//    daemon to close its connection: the daemon does that when the last commit is durable and the members
//    are closed.
// Others stay as they are.
TranslatedRequest translate_request(std::span<std::byte> buffer, size_t bytes);
// What the last one was in this thread.
bool request_is_statx();

// The kernel calls a file so that has no name.
inline constexpr std::string_view kNoName = "/";

// Whether the kernel waits for an answer to such a request; not DESTROY's, see above.
bool wants_answer(uint32_t opcode);

}  // namespace cowraid
