// SPDX-License-Identifier: MIT
#include "fuse/page_dropper.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/thread.h"
#include "base/units.h"
#include "fuse/translate_request.h"

namespace cowraid {

// A message to the process: to drop a range, or to store the data that follows.
struct DropOrder {
    uint64_t node = 0, offset = 0, bytes = 0;
    uint64_t stored_bytes = 0;  // 0: drop
    std::array<std::byte, kBlockBytes> data;

    [[nodiscard]] size_t message_bytes() const { return offsetof(DropOrder, data) + stored_bytes; }
};

namespace {

// Descriptors of the process.
constexpr int kConnection = 3;
constexpr int kChannel = 4;

// More than a WRITE of any size that was negotiated; the kernel reads into nothing smaller.
constexpr size_t kRequestBytesMax = 2 * kMiB;
constexpr int kPollMilliseconds = 20;

// Fails where the kernel no longer knows the inode: it holds no pages then.
void notify(fuse_notify_code code, std::span<const std::byte> body, std::span<const std::byte> data)
{
    fuse_out_header header{};
    header.len = static_cast<uint32_t>(sizeof header + body.size() + data.size());
    header.error = code;
    const std::array parts{iovec{&header, sizeof header},
                           iovec{const_cast<std::byte*>(body.data()), body.size()},
                           iovec{const_cast<std::byte*>(data.data()), data.size()}};
    (void)!writev(kConnection, parts.data(), data.empty() ? 2 : 3);
}

void notify_drop(const DropOrder& order)
{
    fuse_notify_inval_inode_out body{};
    body.ino = order.node;
    body.off = static_cast<int64_t>(order.offset);
    body.len = static_cast<int64_t>(order.bytes);
    notify(FUSE_NOTIFY_INVAL_INODE, std::as_bytes(std::span(&body, 1)), {});
}

void notify_store(const DropOrder& order)
{
    fuse_notify_store_out body{};
    body.nodeid = order.node;
    body.offset = order.offset;
    body.size = static_cast<uint32_t>(order.stored_bytes);
    notify(FUSE_NOTIFY_STORE, std::as_bytes(std::span(&body, 1)),
           std::span(order.data).first(order.stored_bytes));
}

// Until the daemon is gone.
void carry_out_orders()
{
    DropOrder order;
    while (recv(kChannel, &order, sizeof order, 0) > 0) {
        order.stored_bytes != 0 ? notify_store(order) : notify_drop(order);
        const char done = 1;
        if (send(kChannel, &done, sizeof done, MSG_NOSIGNAL) != sizeof done)
            return;
    }
}

// For a daemon that is gone: what waits in the kernel, one page's lock perhaps among it, gets an error.
void refuse_requests(const std::atomic<bool>& finished)
{
    fcntl(kConnection, F_SETFL, fcntl(kConnection, F_GETFL) | O_NONBLOCK);
    std::vector<char> request(kRequestBytesMax);
    while (!finished.load()) {
        pollfd ready{.fd = kConnection, .events = POLLIN, .revents = 0};
        if (poll(&ready, 1, kPollMilliseconds) <= 0)
            continue;
        fuse_in_header header;
        const ssize_t count = read(kConnection, request.data(), request.size());
        if (count < 0 && errno == ENODEV)
            return;
        if (count < static_cast<ssize_t>(sizeof header))
            continue;
        memcpy(&header, request.data(), sizeof header);
        const fuse_out_header answer{.len = sizeof answer, .error = -ENOTCONN, .unique = header.unique};
        if (wants_answer(header.opcode))
            (void)!write(kConnection, &answer, sizeof answer);
    }
}

}  // namespace

int page_dropper_main()
{
    close_range(kChannel + 1, ~0U, 0);
    std::atomic<bool> finished{false};
    Thread worker;
    const Status started = worker.start([&finished] {
        carry_out_orders();
        finished.store(true);
    });
    if (!started.ok())
        return 1;
    // The daemon's end closes with its last thread.
    pollfd daemon{.fd = kChannel, .events = POLLRDHUP, .revents = 0};
    while (poll(&daemon, 1, -1) < 0 && errno == EINTR) { }
    refuse_requests(finished);
    worker.join();
    return 0;
}

UniqueFd spawn_page_dropper(int connection)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return {};
    const UniqueFd theirs(ends[1]);
    UniqueFd ours(ends[0]);
    // Above the numbers that it will have there, so that neither takes the other's place.
    const UniqueFd fuse_copy(fcntl(connection, F_DUPFD_CLOEXEC, kChannel + 1));
    const UniqueFd channel_copy(fcntl(theirs.get(), F_DUPFD_CLOEXEC, kChannel + 1));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fuse_copy.get(), kConnection);
    posix_spawn_file_actions_adddup2(&actions, channel_copy.get(), kChannel);
    std::string name = kPageDropperName;
    char* arguments[] = {name.data(), nullptr};
    pid_t process;
    const int error = posix_spawn(&process, "/proc/self/exe", &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error == 0 ? std::move(ours) : UniqueFd();
}

bool PageDropper::drop(int connection, uint64_t node, uint64_t offset, uint64_t bytes)
{
    DropOrder order;
    order.node = node;
    order.offset = offset;
    order.bytes = bytes;
    return carry_out(connection, order);
}

bool PageDropper::store(int connection, uint64_t node, uint64_t offset, std::span<const std::byte> data)
{
    CW_ASSERT(!data.empty() && offset % kBlockBytes + data.size() <= kBlockBytes);
    DropOrder order;
    order.node = node;
    order.offset = offset;
    order.stored_bytes = data.size();
    std::copy(data.begin(), data.end(), order.data.begin());
    return carry_out(connection, order);
}

bool PageDropper::carry_out(int connection, const DropOrder& order)
{
    // The process may have been killed: once more with another one.
    for (int attempt = 0; attempt < 2; ++attempt) {
        if (!channel_.valid())
            channel_ = host_->start_page_dropper(connection);
        if (!channel_.valid())
            return false;
        const auto bytes = static_cast<ssize_t>(order.message_bytes());
        char done;
        if (send(channel_.get(), &order, order.message_bytes(), MSG_NOSIGNAL) == bytes) {
            ssize_t count;
            do
                count = recv(channel_.get(), &done, sizeof done, 0);
            while (count < 0 && errno == EINTR);
            if (count == sizeof done)
                return true;
        }
        stop();
    }
    return false;
}

// Its end of the channel closes when the process has ended.
void PageDropper::stop()
{
    if (!channel_.valid())
        return;
    shutdown(channel_.get(), SHUT_WR);
    char answer;
    ssize_t count;
    do
        count = recv(channel_.get(), &answer, sizeof answer, 0);
    while (count > 0 || (count < 0 && errno == EINTR));
    channel_ = UniqueFd();
}

}  // namespace cowraid
