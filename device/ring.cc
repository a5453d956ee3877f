// SPDX-License-Identifier: MIT
#include "device/ring.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"

namespace cowraid {

namespace {

constexpr uint32_t kQueueEntries = 256;
// The block layer takes this much as one bio; larger transfers leave the kernel's short path.
constexpr uint64_t kMaxPieceBytes = 1 * kMiB;
constexpr uint32_t kMaxPieceVectors = 1024;  // IOV_MAX
// How long a batch is waited for as a whole, and then for its next request at a time.
constexpr uint64_t kShortWaitMs = 50;
constexpr uint64_t kLongWaitMs = 1000;
// Descriptors below this are registered with the ring, the rest are passed as they are.
constexpr uint32_t kFileTableEntries = 1024;

// Every live ring, so that a closing device can be dropped from all of them.
struct RingList {
    Mutex mutex{LockRank::kLeaf};
    std::vector<Ring*> rings CW_GUARDED_BY(mutex);
};

RingList& ring_list()
{
    static auto* list = new RingList;  // never destroyed: threads may outlive main()
    return *list;
}

// A ring does not survive fork(): its memory is not inherited. The child counts one generation up, and
// rings of an older generation are left alone.
std::atomic<uint32_t> fork_generation{0};

// Not analysed, as the next two: libc calls them, and what the first takes the others let go.
void before_fork() CW_NO_THREAD_SAFETY_ANALYSIS
{
    ring_list().mutex.lock();
}

void after_fork_in_parent() CW_NO_THREAD_SAFETY_ANALYSIS
{
    ring_list().mutex.unlock();
}

void after_fork_in_child() CW_NO_THREAD_SAFETY_ANALYSIS
{
    fork_generation.fetch_add(1, std::memory_order_relaxed);
    ring_list().rings.clear();
    ring_list().mutex.unlock();
}

bool switched_off()
{
    const char* value = std::getenv("COWRAID_NO_URING");
    return value != nullptr && std::strcmp(value, "1") == 0;
}

}  // namespace

// The slot of a thread: its ring, or the knowledge that there is none.
struct RingOfThread {
    std::unique_ptr<Ring> ring;
    bool asked = false;
    uint32_t generation = 0;

    void drop_if_forked()
    {
        const uint32_t now = fork_generation.load(std::memory_order_relaxed);
        if (generation == now)
            return;
        if (ring != nullptr)
            ring->abandon();
        ring.reset();
        asked = false;
        generation = now;
    }
};

Status device_error(int error_number)
{
    return error_number == ENODEV || error_number == ENXIO ? Err::kMemberGone : Err::kIo;
}

namespace {

RingOfThread& ring_slot()
{
    static thread_local RingOfThread slot;
    return slot;
}

}  // namespace

namespace {

thread_local uint32_t depth_of_this_thread = kQueueEntries;

}  // namespace

IoDepthScope::IoDepthScope(uint32_t depth)
{
    CW_ASSERT(depth >= 1 && depth_of_this_thread == kQueueEntries);
    depth_of_this_thread = std::min(depth, kQueueEntries);
}

IoDepthScope::~IoDepthScope()
{
    depth_of_this_thread = kQueueEntries;
}

Ring* Ring::of_this_thread()
{
    RingOfThread& slot = ring_slot();
    slot.drop_if_forked();
    if (slot.asked)
        return slot.ring.get();
    slot.asked = true;
    if (switched_off())
        return nullptr;
    std::unique_ptr<Ring> ring(new Ring);
    const int error = ring->start();
    if (error != 0) {
        static std::atomic<bool> told{false};
        if (!told.exchange(true))
            CW_LOG_INFO("io_uring is refused (%s): using preadv and pwritev", std::strerror(error));
        // What is short may not be so later; a thread that left its ring behind had one before.
        slot.asked = error != EMFILE && error != ENFILE && error != ENOMEM && error != EAGAIN;
        return nullptr;
    }
    slot.ring = std::move(ring);
    return slot.ring.get();
}

std::unique_ptr<Ring> Ring::leave_busy()
{
    RingOfThread& slot = ring_slot();
    if (slot.ring == nullptr || slot.ring->idle())
        return nullptr;
    slot.asked = false;
    Ring& ring = *slot.ring;
    ring.left_ = true;
    // What the kernel has not seen stays unseen.
    const uint32_t unseen = io_uring_sq_ready(&ring.ring_);
    ring.in_flight_ -= unseen;
    ring.todo_next_ -= unseen;
    for (; ring.todo_next_ < ring.todo_.size(); ++ring.todo_next_) {
        IoRequest& request = *ring.pieces_[ring.todo_[ring.todo_next_]].request;
        if (--request.open_parts == 0)
            request.ticket.drop();
    }
    // The number under which the kernel knows the ring is the thread's.
    io_uring_unregister_ring_fd(&ring.ring_);
    return std::move(slot.ring);
}

int Ring::start()
{
    static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    CW_ASSERT(registered == 0);
    // Not SINGLE_ISSUER: the thread that closes a device removes its file from every ring
    // (docs/decisions/0003-io-uring.md). Older kernels know fewer flags.
    static constexpr uint32_t kFlags[] = {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, 0};
    int result = -EINVAL;
    for (const uint32_t flags : kFlags) {
        result = io_uring_queue_init(kQueueEntries, &ring_, flags);
        if (result != -EINVAL)
            break;
    }
    if (result < 0)
        return -result;
    started_ = true;
    // Both only save work per call; a kernel without them works as well.
    io_uring_register_ring_fd(&ring_);
    has_file_table_ = io_uring_register_files_sparse(&ring_, kFileTableEntries) == 0;
    if (has_file_table_)
        file_known_ = std::vector<std::atomic<uint8_t>>(kFileTableEntries);
    MutexLock lock(ring_list().mutex);
    ring_list().rings.push_back(this);
    return 0;
}

Ring::~Ring()
{
    if (!started_)
        return;
    {
        MutexLock lock(ring_list().mutex);
        std::erase(ring_list().rings, this);
    }
    // The kernel takes rings apart later on, in a thread of its own. Who closes a device counts on it being
    // free.
    if (has_file_table_)
        io_uring_unregister_files(&ring_);
    io_uring_queue_exit(&ring_);
}

// In a forked child: the mappings are gone and their addresses may hold something else by now.
void Ring::abandon()
{
    ::close(ring_.ring_fd);
    started_ = false;
}

void ring_forget_file(int fd)
{
    if (fd < 0 || static_cast<uint32_t>(fd) >= kFileTableEntries)
        return;
    MutexLock lock(ring_list().mutex);
    for (Ring* ring : ring_list().rings) {
        if (!ring->has_file_table_ || ring->file_known_[static_cast<size_t>(fd)].exchange(0) == 0)
            continue;
        // Not by liburing: from 2.4 on it names the ring by its place among those of the calling thread.
        const int none = -1;
        io_uring_files_update update{};
        update.offset = static_cast<uint32_t>(fd);
        update.fds = reinterpret_cast<uintptr_t>(&none);
        const int64_t result =
            syscall(SYS_io_uring_register, ring->ring_.ring_fd, IORING_REGISTER_FILES_UPDATE, &update, 1);
        CW_ASSERT(result == 1);
    }
}

// Cuts a request into pieces. Vectors are copied, because a short transfer changes them.
void Ring::plan(IoRequest& request)
{
    const size_t before = pieces_.size();
    uint64_t offset = request.offset.value;
    if (request.kind == IoKind::kFlush)
        pieces_.push_back({&request, 0, 0, 0, 0});
    uint64_t room = 0;
    for (const iovec& vector : request.vectors) {
        auto* at = static_cast<std::byte*>(vector.iov_base);
        uint64_t left = vector.iov_len;
        while (left > 0) {
            if (room == 0 || pieces_.back().vector_count == kMaxPieceVectors) {
                pieces_.push_back({&request, offset, static_cast<uint32_t>(vectors_.size()), 0, 0});
                room = kMaxPieceBytes;
            }
            const uint64_t part = std::min(left, room);
            vectors_.push_back({at, part});
            ++pieces_.back().vector_count;
            at += part;
            offset += part;
            left -= part;
            room -= part;
        }
    }
    request.open_parts = static_cast<uint32_t>(pieces_.size() - before);
}

void Ring::attach_file(io_uring_sqe* sqe, int fd)
{
    const auto index = static_cast<uint32_t>(fd);
    if (!has_file_table_ || index >= kFileTableEntries)
        return;
    if (file_known_[index].load(std::memory_order_relaxed) == 0) {
        if (io_uring_register_files_update(&ring_, index, &fd, 1) != 1)
            return;
        file_known_[index].store(1, std::memory_order_relaxed);
    }
    io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
}

void Ring::prepare(uint32_t piece_index, io_uring_sqe* sqe)
{
    const Piece& piece = pieces_[piece_index];
    // What waits for room in the ring, or behind a device that is slow, says nothing of its own device.
    if (piece.request->ticket.device == nullptr)
        piece.request->ticket = piece.request->device->in_flight().begin();
    const int fd = piece.request->device->ring_fd();
    const iovec* vectors = vectors_.data() + piece.first_vector;
    switch (piece.request->kind) {
    case IoKind::kRead:
        if (piece.vector_count == 1)
            io_uring_prep_read(sqe, fd, vectors->iov_base, static_cast<unsigned>(vectors->iov_len),
                               piece.offset);
        else
            io_uring_prep_readv(sqe, fd, vectors, piece.vector_count, piece.offset);
        break;
    case IoKind::kWrite:
        io_uring_prep_writev2(sqe, fd, vectors, piece.vector_count, piece.offset,
                              piece.request->durable ? RWF_DSYNC : 0);
        break;
    case IoKind::kFlush:
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
        break;
    case IoKind::kDiscard:
        CW_ASSERT(piece.request->kind != IoKind::kDiscard);
    }
    attach_file(sqe, fd);
    io_uring_sqe_set_data64(sqe, piece_index);
}

// Drops `bytes` from the front of a piece; true when nothing is left.
bool Ring::consume(Piece& piece, uint64_t bytes)
{
    piece.offset += bytes;
    while (piece.vector_count > 0) {
        iovec& vector = vectors_[piece.first_vector];
        if (bytes < vector.iov_len) {
            vector.iov_base = static_cast<std::byte*>(vector.iov_base) + bytes;
            vector.iov_len -= bytes;
            return false;
        }
        bytes -= vector.iov_len;
        ++piece.first_vector;
        --piece.vector_count;
    }
    return true;
}

void Ring::complete(uint32_t piece_index, int result)
{
    Piece& piece = pieces_[piece_index];
    IoRequest& request = *piece.request;
    const bool flush = request.kind == IoKind::kFlush;
    const bool again = !flush && (result == -EAGAIN || result == -EINTR);
    bool failed;
    if (flush)  // never repeated: the kernel forgets a failure once it has reported it
        failed = result < 0;
    else if (again)
        failed = ++piece.retries > kMaxRetries;
    else  // 0 is the end of a file that was shortened, or a write that does not get ahead
        failed = result <= 0;
    if (failed)
        request.result = device_error(result < 0 ? -result : EIO);
    const bool more =
        !failed && !flush && (again || !consume(piece, static_cast<uint64_t>(result))) && !left_;
    if (more)
        todo_.push_back(piece_index);
    else
        request.end_part();
}

void Ring::reap()
{
    io_uring_cqe* entries[kQueueEntries];
    const unsigned count = io_uring_peek_batch_cqe(&ring_, entries, kQueueEntries);
    for (unsigned index = 0; index < count; ++index)
        complete(static_cast<uint32_t>(io_uring_cqe_get_data64(entries[index])), entries[index]->res);
    io_uring_cq_advance(&ring_, count);
    CW_ASSERT(count <= in_flight_);
    in_flight_ -= count;
}

// Submits what is prepared, and returns when enough of it is done, or at that time. With more to come, half a
// queue is enough to go on. Where something takes long the rest is taken as it comes, at once: otherwise all
// devices of the batch looked as slow as one.
void Ring::submit_and_wait(uint64_t until_ms, bool takes_long)
{
    const unsigned wait = takes_long ? 1 : todo_next_ < todo_.size() ? (in_flight_ + 1) / 2 : in_flight_;
    int result;
    if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) {
        result = io_uring_submit_and_wait(&ring_, wait);
    } else {
        uint64_t left = takes_long ? kLongWaitMs : kShortWaitMs;
        if (until_ms != kNoDeadline)
            left = std::min(left, until_ms - std::min(until_ms, coarse_ms()));
        __kernel_timespec time{static_cast<int64_t>(left / 1000),
                               static_cast<long long>(left % 1000) * 1'000'000};
        io_uring_cqe* entry;
        result = io_uring_submit_and_wait_timeout(&ring_, &entry, wait, &time, nullptr);
    }
    CW_ASSERT(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY || result == -ENOMEM ||
              result == -ETIME);
    if (result < 0 && result != -EINTR && result != -ETIME)
        sched_yield();
}

uint64_t Ring::run(std::span<IoRequest* const> requests, uint64_t wait_ms)
{
    pieces_.clear();
    vectors_.clear();
    todo_.clear();
    todo_next_ = 0;
    for (IoRequest* request : requests)
        plan(*request);
    for (uint32_t index = 0; index < pieces_.size(); ++index)
        todo_.push_back(index);

    uint64_t enters = 0;
    const uint64_t begin_ms = coarse_ms();
    bool takes_long = false;
    uint64_t until_ms = wait_ms == kNoDeadline ? kNoDeadline : begin_ms + wait_ms;
    while (todo_next_ < todo_.size() || in_flight_ > 0) {
        while (todo_next_ < todo_.size() && in_flight_ < depth_of_this_thread) {
            io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
            if (sqe == nullptr)
                break;
            prepare(todo_[todo_next_++], sqe);
            ++in_flight_;
        }
        submit_and_wait(until_ms, takes_long);
        ++enters;
        reap();
        takes_long = coarse_ms() - begin_ms >= kShortWaitMs;
        if (until_ms == kNoDeadline || in_flight_ == 0 || coarse_ms() < until_ms)
            continue;
        if (std::any_of(requests.begin(), requests.end(), [=](const IoRequest* request) {
                return request->open_parts != 0 && request->device->in_flight().is_silent(wait_ms);
            }))
            break;
        until_ms = coarse_ms() + wait_ms;
    }
    return enters;
}

}  // namespace cowraid
