// SPDX-License-Identifier: MIT
#include "control/descriptor_message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace cowraid {

ssize_t send_message(int socket, std::span<iovec> pieces, int descriptor, int flags)
{
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof descriptor);
        memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

// The room is for one descriptor: the kernel closes others.
ssize_t receive_message(int socket, std::span<iovec> pieces, UniqueFd& descriptor, int flags)
{
    int received;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof received)] = {};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    message.msg_control = control;
    message.msg_controllen = CMSG_LEN(sizeof received);
    const ssize_t count = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    const cmsghdr* const header = count >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof received)) {
        memcpy(&received, CMSG_DATA(header), sizeof received);
        descriptor = UniqueFd(received);
    }
    if (count >= 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        errno = EMSGSIZE;
        return -1;
    }
    return count;
}

}  // namespace cowraid
