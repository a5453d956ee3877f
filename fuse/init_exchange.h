// SPDX-License-Identifier: MIT
// Reads requests and writes replies for libfuse, to translate requests (fuse/translate_request.h) and to take
// part in the INIT exchange: libfuse 3.14 knows neither of two flags we want.
//  - HANDLE_KILLPRIV_V2: without it the kernel asks for security.capability before every buffered write.
//  - DIRECT_IO_ALLOW_MMAP: without it a file opened O_DIRECT cannot be mapped shared. The kernels that offer
//    it (Linux 6.6 and later) write back and drop the pages of a direct write before they send it.
#pragma once

#include <fuse3/fuse_lowlevel.h>

#include <cstddef>
#include <span>

#include "fuse/frontend.h"

namespace cowraid {

// The calls to give to fuse_session_custom_io(); the session's userdata must be its Frontend.
const fuse_custom_io& session_io();

// For who works in the background: users who wait for answers, from `request` (header included) to the answer
// with that `header`. STATFS does not count: it asks for numbers that are in memory, as commands do that look
// at the work. Thread-safe; a STATFS is answered by the thread that read it.
void note_request(ForegroundLoad& load, std::span<const std::byte> request, uint64_t now_ns);
void note_answer(ForegroundLoad& load, std::span<const std::byte> header);

// Remembers what the kernel offers when `request` (header included) is an INIT.
void note_init_request(Frontend& frontend, std::span<const std::byte> request);
// Adds to an INIT reply, `header` and `body` as they go to the kernel, the flags that we want and that the
// kernel offered. Does nothing for other replies.
void extend_init_reply(Frontend& frontend, std::span<const std::byte> header, std::span<std::byte> body);

}  // namespace cowraid
