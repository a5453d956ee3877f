// SPDX-License-Identifier: MIT
#include "fuse/init_exchange.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/clock.h"
#include "fuse/set_id.h"
#include "fuse/translate_request.h"

namespace cowraid {

namespace {

constexpr uint64_t kKillPrivV2 = uint64_t{1} << 28;
constexpr uint64_t kInitExt = uint64_t{1} << 30;
constexpr uint64_t kDirectIoAllowMmap = uint64_t{1} << 36;

// Field offsets of the protocol (7.36 and later), because older <linux/fuse.h> lacks flags2.
constexpr size_t kInitInFlags = 12;
constexpr size_t kInitInFlags2 = 16;
constexpr size_t kInitOutFlags = 12;
constexpr size_t kInitOutFlags2 = 32;
constexpr size_t kInitOutBytes = 64;

uint32_t load32(std::span<const std::byte> bytes, size_t offset)
{
    uint32_t value;
    memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

void store32(std::span<std::byte> bytes, size_t offset, uint32_t value)
{
    memcpy(bytes.data() + offset, &value, sizeof value);
}

// The STATFS that the calling thread serves, by its number; 0: none. It is answered in that thread.
thread_local uint64_t volume_question = 0;

ssize_t read_request(int fd, void* buffer, size_t bytes, void* userdata)
{
    Frontend& frontend = *static_cast<Frontend*>(userdata);
    frontend.serving_threads.before_read();
    if (!frontend.serving_threads.busy())
        frontend.busy_poll.before_read(fd);
    const ssize_t count = read(fd, buffer, bytes);
    frontend.serving_threads.after_read();
    if (count <= 0)
        return count;
    const uint64_t now_ns = monotonic_ns();
    frontend.busy_poll.after_read(now_ns);
    const std::span<const std::byte> request(static_cast<const std::byte*>(buffer),
                                             static_cast<size_t>(count));
    note_set_id_request(request);
    if (!frontend.negotiated.load(std::memory_order_acquire))
        note_init_request(frontend, request);
    const TranslatedRequest translated =
        translate_request({static_cast<std::byte*>(buffer), bytes}, static_cast<size_t>(count));
    if (translated.fate == RequestFate::kEnd) {
        frontend.unmounting = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
        errno = ENODEV;  // as after an unmount of which the kernel says nothing
        return -1;
    }
    if (frontend.filesystem != nullptr)
        note_request(frontend.filesystem->store.budget.foreground, request, now_ns);
    return static_cast<ssize_t>(translated.bytes);
}

ssize_t write_reply(int fd, iovec* vectors, int count, void* userdata)
{
    Frontend& frontend = *static_cast<Frontend*>(userdata);
    if (count == 2 && !frontend.negotiated.load(std::memory_order_acquire))
        extend_init_reply(frontend, {static_cast<const std::byte*>(vectors[0].iov_base), vectors[0].iov_len},
                          {static_cast<std::byte*>(vectors[1].iov_base), vectors[1].iov_len});
    if (frontend.filesystem != nullptr)
        note_answer(frontend.filesystem->store.budget.foreground,
                    {static_cast<const std::byte*>(vectors[0].iov_base), vectors[0].iov_len});
    return writev(fd, vectors, count);
}

}  // namespace

const fuse_custom_io& session_io()
{
    static const fuse_custom_io calls = {
        .writev = write_reply,
        .read = read_request,
        .splice_receive = nullptr,
        .splice_send = nullptr,
    };
    return calls;
}

void note_request(ForegroundLoad& load, std::span<const std::byte> request, uint64_t now_ns)
{
    fuse_in_header header;
    if (request.size() < sizeof header)
        return;
    memcpy(&header, request.data(), sizeof header);
    volume_question = header.opcode == FUSE_STATFS ? header.unique : 0;
    if (volume_question == 0 && wants_answer(header.opcode))
        load.began(now_ns);
}

void note_answer(ForegroundLoad& load, std::span<const std::byte> header)
{
    fuse_out_header answer;
    if (header.size() < sizeof answer)
        return;
    memcpy(&answer, header.data(), sizeof answer);
    // Notifications have no number; an odd one is libfuse's word on an INTERRUPT.
    if (answer.unique != 0 && answer.unique % 2 == 0 && answer.unique != volume_question)
        load.ended();
}

void note_init_request(Frontend& frontend, std::span<const std::byte> request)
{
    fuse_in_header header;
    if (request.size() < sizeof header)
        return;
    memcpy(&header, request.data(), sizeof header);
    const auto body = request.subspan(sizeof header);
    if (header.opcode != FUSE_INIT || body.size() < kInitInFlags + sizeof(uint32_t))
        return;
    frontend.init_unique = header.unique;
    frontend.offered_flags = load32(body, kInitInFlags);
    if ((frontend.offered_flags & kInitExt) != 0 && body.size() >= kInitInFlags2 + sizeof(uint32_t))
        frontend.offered_flags |= uint64_t{load32(body, kInitInFlags2)} << 32;
}

void extend_init_reply(Frontend& frontend, std::span<const std::byte> header, std::span<std::byte> body)
{
    fuse_out_header out;
    if (header.size() != sizeof out || frontend.init_unique == 0)
        return;
    memcpy(&out, header.data(), sizeof out);
    if (out.unique != frontend.init_unique || out.error != 0 || body.size() < kInitOutBytes)
        return;
    uint64_t flags = load32(body, kInitOutFlags);
    if ((frontend.offered_flags & kKillPrivV2) != 0) {
        flags |= kKillPrivV2;
        frontend.clears_set_id.store(true, std::memory_order_relaxed);
    }
    if ((frontend.offered_flags & kDirectIoAllowMmap) != 0) {
        flags |= kDirectIoAllowMmap | kInitExt;
        frontend.drops_before_direct.store(true, std::memory_order_relaxed);
    }
    store32(body, kInitOutFlags, static_cast<uint32_t>(flags));
    store32(body, kInitOutFlags2, load32(body, kInitOutFlags2) | static_cast<uint32_t>(flags >> 32));
    frontend.negotiated.store(true, std::memory_order_release);
}

}  // namespace cowraid
