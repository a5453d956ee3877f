// SPDX-License-Identifier: MIT
#include "control/control_frame.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include "base/clock.h"
#include "control/descriptor_message.h"

namespace cowraid {

namespace {

constexpr size_t kHeaderBytes = 4;

uint64_t now_milliseconds()
{
    return monotonic_ns() / 1'000'000;
}

class Deadline {
public:
    explicit Deadline(uint32_t milliseconds) : end_(milliseconds == 0 ? 0 : now_milliseconds() + milliseconds)
    {
    }

    // Waits until `fd` is ready for `events`.
    [[nodiscard]] Status wait(int fd, short events) const
    {
        for (;;) {
            pollfd entry{.fd = fd, .events = events, .revents = 0};
            const uint64_t now = end_ == 0 ? 0 : now_milliseconds();
            const bool is_over = end_ != 0 && now >= end_;
            // What is there is taken, however late it is looked at.
            const int ready = poll(&entry, 1, end_ == 0 ? -1 : is_over ? 0 : static_cast<int>(end_ - now));
            if (ready > 0)
                return {};
            if (ready < 0 && errno != EINTR)
                return Err::kIo;
            if (is_over)
                return Err::kInterrupted;
        }
    }

private:
    uint64_t end_;
};

// As recv(), with a descriptor that comes along.
ssize_t receive(int fd, std::span<char> out, UniqueFd* descriptor)
{
    iovec piece{out.data(), out.size()};
    return descriptor == nullptr ? recv(fd, out.data(), out.size(), MSG_DONTWAIT)
                                 : receive_message(fd, {&piece, 1}, *descriptor, MSG_DONTWAIT);
}

// Reads all of `out`; returns the bytes had when the peer closed.
Result<size_t> read_all(int fd, std::span<char> out, const Deadline& deadline, UniqueFd* descriptor = nullptr)
{
    size_t used = 0;
    while (used < out.size()) {
        CW_TRY(deadline.wait(fd, POLLIN));
        const ssize_t count = receive(fd, out.subspan(used), descriptor);
        if (count == 0)
            return used;
        if (count < 0 && errno != EINTR && errno != EAGAIN)
            return Err::kIo;
        if (count > 0)
            used += static_cast<size_t>(count);
    }
    return used;
}

Status write_all(int fd, std::string_view bytes, const Deadline& deadline, int descriptor)
{
    while (!bytes.empty()) {
        CW_TRY(deadline.wait(fd, POLLOUT));
        iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
        const ssize_t count = send_message(fd, {&piece, 1}, descriptor, MSG_DONTWAIT);
        if (count < 0 && errno != EINTR && errno != EAGAIN)
            return Err::kIo;
        if (count <= 0)
            continue;
        bytes.remove_prefix(static_cast<size_t>(count));
        descriptor = -1;
    }
    return {};
}

}  // namespace

Status wait_for_frame(int fd, uint32_t milliseconds)
{
    return Deadline(milliseconds).wait(fd, POLLIN);
}

Result<std::string> read_frame(int fd, const FrameLimits& limits, UniqueFd* descriptor)
{
    const Deadline deadline(limits.milliseconds);
    char header[kHeaderBytes];
    CW_ASSIGN(const size_t header_bytes, read_all(fd, header, deadline, descriptor));
    if (header_bytes == 0)
        return Err::kNotFound;
    if (header_bytes != kHeaderBytes)
        return Err::kIo;
    uint32_t bytes = 0;
    for (size_t i = 0; i < kHeaderBytes; ++i)
        bytes |= uint32_t{static_cast<unsigned char>(header[i])} << (8 * i);
    if (bytes == 0 || bytes > limits.bytes_max)
        return Err::kTooBig;
    std::string body(bytes, '\0');
    CW_ASSIGN(const size_t body_bytes, read_all(fd, body, deadline));
    if (body_bytes != bytes)
        return Err::kIo;
    return body;
}

Status write_frame(int fd, std::string_view body, const FrameLimits& limits, int descriptor)
{
    if (body.empty() || body.size() > limits.bytes_max)
        return Err::kTooBig;
    const Deadline deadline(limits.milliseconds);
    std::string frame(kHeaderBytes, '\0');
    for (size_t i = 0; i < kHeaderBytes; ++i)
        frame[i] = static_cast<char>((body.size() >> (8 * i)) & 0xff);
    frame += body;
    return write_all(fd, frame, deadline, descriptor);
}

}  // namespace cowraid
