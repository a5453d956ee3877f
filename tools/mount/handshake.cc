// SPDX-License-Identifier: MIT
#include "tools/mount/handshake.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace cowraid {

namespace {

// Notes of a volume of hundreds of members, each with its path. The system takes a message of that size.
constexpr size_t kTextBytesMax = 128 * 1024;

UniqueFd descriptor_of(msghdr& message)
{
    UniqueFd out;
    for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
         control = CMSG_NXTHDR(&message, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
            control->cmsg_len != CMSG_LEN(sizeof(int)))
            continue;
        int fd;
        memcpy(&fd, CMSG_DATA(control), sizeof fd);
        out = UniqueFd(fd);
    }
    return out;
}

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> make_handshake_pair()
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return Err::kIo;
    return std::pair<UniqueFd, UniqueFd>(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Status send_handshake(int channel, HandshakeKind kind, std::string_view text, int fd)
{
    auto word = static_cast<uint32_t>(kind);
    std::string body(text.substr(0, kTextBytesMax));
    iovec pieces[] = {{.iov_base = &word, .iov_len = sizeof word},
                      {.iov_base = body.data(), .iov_len = body.size()}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    ssize_t sent;
    do
        sent = sendmsg(channel, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? Status(Err::kIo) : Status();
}

Result<HandshakeMessage> receive_handshake(int channel)
{
    uint32_t word = 0;
    std::string body(kTextBytesMax, '\0');
    iovec pieces[] = {{.iov_base = &word, .iov_len = sizeof word},
                      {.iov_base = body.data(), .iov_len = body.size()}};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t count;
    do
        count = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
    while (count < 0 && errno == EINTR);
    if (count == 0)
        return Err::kNotFound;
    if (count < static_cast<ssize_t>(sizeof word) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return Err::kIo;
    body.resize(static_cast<size_t>(count) - sizeof word);
    HandshakeMessage out;
    out.kind = static_cast<HandshakeKind>(word);
    out.text = std::move(body);
    out.fd = descriptor_of(message);
    return out;
}

}  // namespace cowraid
