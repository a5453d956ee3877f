// SPDX-License-Identifier: MIT
// Messages over a local socket that a descriptor goes with (unix(7), SCM_RIGHTS).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <span>

#include "base/unique_fd.h"

namespace cowraid {

// As sendmsg(), never raising SIGPIPE; a copy of `descriptor` goes along unless that is negative.
ssize_t send_message(int socket, std::span<iovec> pieces, int descriptor, int flags);
// As recvmsg(). `descriptor`: the one that came along, if any. EMSGSIZE: the message is longer than the
// pieces, or more than one came, of which all but one are closed.
ssize_t receive_message(int socket, std::span<iovec> pieces, UniqueFd& descriptor, int flags);

}  // namespace cowraid
