// SPDX-License-Identifier: MIT
#include "tools/mount/handshake.h"

#include <sys/socket.h>

#include <cerrno>

#include "control/descriptor_message.h"

namespace cowraid {

namespace {

// Notes of a volume of hundreds of members, each with its path. The system takes a message of that size.
constexpr size_t kTextBytesMax = 128 * 1024;

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
    ssize_t sent;
    do
        sent = send_message(channel, pieces, fd, 0);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? Status(Err::kIo) : Status();
}

Result<HandshakeMessage> receive_handshake(int channel)
{
    uint32_t word = 0;
    std::string body(kTextBytesMax, '\0');
    iovec pieces[] = {{.iov_base = &word, .iov_len = sizeof word},
                      {.iov_base = body.data(), .iov_len = body.size()}};
    HandshakeMessage out;
    ssize_t count;
    // A peer that ended before it had read everything resets the connection; what it had said comes after
    // that.
    do
        count = receive_message(channel, pieces, out.fd, 0);
    while (count < 0 && (errno == EINTR || errno == ECONNRESET));
    if (count == 0)
        return Err::kNotFound;
    if (count < static_cast<ssize_t>(sizeof word))
        return Err::kIo;
    body.resize(static_cast<size_t>(count) - sizeof word);
    out.kind = static_cast<HandshakeKind>(word);
    out.text = std::move(body);
    return out;
}

}  // namespace cowraid
