// SPDX-License-Identifier: MIT
// What every request handler of fuse/ shares.
#pragma once

#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "fs/filesystem.h"
#include "fs/txn/no_wait.h"
#include "fuse/busy_poll.h"
#include "fuse/invalidator.h"
#include "fuse/long_requests.h"
#include "fuse/open_modes.h"
#include "fuse/page_cache_map.h"
#include "fuse/page_dropper.h"
#include "fuse/serving_threads.h"

namespace cowraid {

// Nobody but this mount changes the volume, so the kernel may trust what it once saw.
inline constexpr double kCacheSeconds = 86400;
inline constexpr double kNegativeCacheSeconds = 3600;
// Largest READ and WRITE; libfuse 3.14 ends the session above it.
inline constexpr uint32_t kMaxTransferBytes = 1024 * 1024;
inline constexpr unsigned kBlockSizeHint = 128 * 1024;  // st_blksize

// Requests that the kernel lets through in the background at once: read-ahead, write-back, asynchronous
// direct I/O. Of direct writes half as many may wait for pages to be dropped, and some more of users who have
// few of them (fuse/invalidator.h).
inline constexpr uint32_t kMaxBackground = 4096;

// State of one mount, the `userdata` of its FUSE session.
struct Frontend {
    explicit Frontend(uint32_t background_max = kMaxBackground, uint32_t threads_least = 1,
                      uint32_t threads_most = 1, size_t page_cache_bytes = PageCacheMap::kMemoryMax)
        : serving_threads(threads_least, threads_most),
          page_cache(page_cache_bytes),
          invalidator(background_max / 2),
          range_invalidator(0)
    {
    }

    // Of this mount, by the memory that it may take. Each of 64 serving threads has two buffers of that size,
    // and as many writes may wait without one: three sixteenths of it.
    [[nodiscard]] uint32_t transfer_bytes() const
    {
        constexpr uint64_t kTransferBytesMin = 128 * 1024;
        return static_cast<uint32_t>(
            std::clamp<uint64_t>(std::bit_floor(filesystem->store.options.memory_bytes / 1024),
                                 kTransferBytesMin, kMaxTransferBytes));
    }

    // How much data of requests that wait is kept.
    [[nodiscard]] uint64_t kept_bytes_most() const { return uint64_t{64} * transfer_bytes(); }

    Filesystem* filesystem = nullptr;
    InodeNumber root;  // node id 1
    fuse_session* session = nullptr;

    // The INIT exchange, see fuse/init_exchange.h. Written by the thread that serves INIT, before others.
    std::atomic<bool> negotiated{false};
    uint64_t init_unique = 0;
    uint64_t offered_flags = 0;
    // The kernel leaves clearing of set-id bits to this side.
    std::atomic<bool> clears_set_id{false};

    // Where the kernel waits for the end of the unmount: a copy of the descriptor DESTROY was read from,
    // because the kernel stops waiting when the last one is closed. Written once, by the thread that ends the
    // session.
    UniqueFd unmounting;
    // Direct writes come with pages written back and dropped before them; since Linux 6.6. Without that every
    // open goes through the page cache: those that only write, too, and for O_DIRECT, which the kernel goes
    // on obeying, its common code does both.
    std::atomic<bool> drops_before_direct{false};
    OpenModes open_modes;

    ServingThreads serving_threads;
    BusyPoll busy_poll;
    PageCacheMap page_cache;
    // For direct writes, and for large ranges of which the kernel may have to write back much: of seeks and
    // of changes that failed. Each thread has its own process.
    PageDropper page_dropper, range_dropper;
    Invalidator invalidator, range_invalidator;
    Mutex renewing{LockRank::kRenewal};  // one of them at a time reads what it stores in a page
    // Both may hand answers to those. A truncation does not stand behind those that wait for room:
    // it may be what brings it. Nor does a change of names behind what else its user asked for: the kernel
    // holds locks of everybody for it, for a rename into another folder one of the whole mount.
    LongRequests long_requests{2}, waiting_requests{4}, waiting_names{2};
    std::atomic<uint64_t> kept_bytes{0}, kept_value_bytes{0};  // data of WRITEs, and of SETXATTRs, that wait

    // Answers that wait for a commit or for room in memory.
    Mutex parked_mutex{LockRank::kLeaf};
    CondVar parked_changed;
    uint64_t parked CW_GUARDED_BY(parked_mutex) = 0;
};

// Handlers, one file per group: names, attributes, directories, file data, extended attributes.
void add_name_ops(fuse_lowlevel_ops& ops);
void add_attribute_ops(fuse_lowlevel_ops& ops);
void add_directory_ops(fuse_lowlevel_ops& ops);
void add_file_ops(fuse_lowlevel_ops& ops);
void add_seek_ops(fuse_lowlevel_ops& ops);
void add_ioctl_ops(fuse_lowlevel_ops& ops);
void add_xattr_ops(fuse_lowlevel_ops& ops);

inline Frontend& frontend_of(fuse_req_t request)
{
    return *static_cast<Frontend*>(fuse_req_userdata(request));
}

inline Filesystem& filesystem_of(fuse_req_t request)
{
    return *frontend_of(request).filesystem;
}

// FUSE calls the root directory 1; every other node id is the inode number.
inline InodeNumber inode_of(const Frontend& frontend, fuse_ino_t node)
{
    return node == FUSE_ROOT_ID ? frontend.root : InodeNumber{node};
}

inline InodeNumber inode_of(fuse_req_t request, fuse_ino_t node)
{
    return inode_of(frontend_of(request), node);
}

inline fuse_ino_t node_of(const Frontend& frontend, InodeNumber inode)
{
    return inode == frontend.root ? FUSE_ROOT_ID : inode.value;
}

Caller caller_of(fuse_req_t request);
// With the capabilities that count where flags are set.
Caller flag_setter_of(fuse_req_t request);
struct stat stat_of(const Attributes& attributes);
// For how long the kernel may go on showing them.
double attribute_seconds(const Attributes& attributes);
fuse_entry_param entry_of(const Frontend& frontend, const Attributes& attributes);

// What came of a request in the thread that serves it. kWouldWait: no answer was given, nothing has changed.
enum class Served : uint8_t { kAnswered, kWouldWait };

// Answers, except to kWouldWait.
Served reply_status(fuse_req_t request, Status status);
// Hands out one lookup reference; takes it back when the kernel no longer wants the answer.
Served reply_entry(fuse_req_t request, const Result<Attributes>& attributes);
Served reply_attributes(fuse_req_t request, const Result<Attributes>& attributes);

// The answer to one request that is done and waits: for a commit, or for room in memory. Deletes itself.
class ParkedAnswer : public Completion {
public:
    explicit ParkedAnswer(Frontend& frontend);
    void done(Status status) final;

private:
    virtual void answer(Status status) = 0;

    Frontend& frontend_;
};

// One that calls `answer(status)`.
template <typename Answer> Completion* park(fuse_req_t request, Answer answer)
{
    class Parked final : public ParkedAnswer {
    public:
        Parked(Frontend& frontend, Answer answer) : ParkedAnswer(frontend), answer_(std::move(answer)) { }

    private:
        void answer(Status status) override { answer_(status); }

        Answer answer_;
    };
    return new Parked(frontend_of(request), std::move(answer));
}

// A mount with sync or dirsync: who hears that a name was made, changed or removed finds that durable.
bool names_are_durable(const Frontend& frontend);
// For a change that is done: calls `answer(status)`, which answers; if `waits`, when it is durable.
template <typename Answer>
void answer_change(fuse_req_t request, bool waits, InodeNumber inode, Answer answer)
{
    if (waits)
        filesystem_of(request).committer.fsync_async(inode, Committer::SyncWhat::kAll,
                                                     park(request, std::move(answer)));
    else
        answer(Status());
}
// For a change of names.
template <typename Answer> void answer_name_change(fuse_req_t request, Answer answer)
{
    const Frontend& frontend = frontend_of(request);
    answer_change(request, names_are_durable(frontend), frontend.root, std::move(answer));
}
// For a change of a file's size, mode, owner, times, attributes or flags: a mount with sync waits.
template <typename Answer> void answer_file_change(fuse_req_t request, InodeNumber inode, Answer answer)
{
    answer_change(request, filesystem_of(request).store.live.sync, inode, std::move(answer));
}
// As reply_status(), for such a change. `synchronous`: by a descriptor with O_SYNC or O_DSYNC, which waits.
Served reply_file_change(fuse_req_t request, InodeNumber inode, Status status, bool synchronous = false);
// As reply_attributes(), for such a change.
Served reply_changed_attributes(fuse_req_t request, const Result<Attributes>& attributes);
// As reply_status() and reply_entry(), for changes of names.
Served reply_name_change(fuse_req_t request, Status status);
Served reply_new_entry(fuse_req_t request, const Result<Attributes>& made);

// Does `action`, which returns Served. One that would have to wait is done again by a thread that may, of
// `waiting`. What it refers to must outlive the handler, after action.keep() if it has that; false: too much
// is kept.
template <typename Action>
void serve(fuse_req_t request, Action action, LongRequests Frontend::*waiting = &Frontend::waiting_requests)
{
    {
        const NoWait scope;
        if (action() == Served::kAnswered)
            return;
    }
    if constexpr (requires { action.keep(); })
        if (!action.keep()) {
            action();  // this thread waits, too
            return;
        }
    (frontend_of(request).*waiting)
        .hand_over(std::make_unique<WaitingRequest<Action>>(request, std::move(action)));
}
// For a change of names.
template <typename Action> void serve_name_change(fuse_req_t request, Action action)
{
    serve(request, std::move(action), &Frontend::waiting_names);
}

// Data of a request that waits. How much all of it may be is bounded: the kernel sends 4096 WRITEs at once,
// and as many values of extended attributes as there are threads of programs.
class KeptData {
public:
    KeptData() = default;
    KeptData(KeptData&& other) noexcept
        : counter_(std::exchange(other.counter_, nullptr)), bytes_(std::move(other.bytes_))
    {
    }
    KeptData& operator=(KeptData&&) = delete;
    ~KeptData()
    {
        if (counter_ != nullptr)
            *counter_ -= bytes_.size();
    }
    // Once. False: there is too much of it, nothing was copied.
    bool copy(std::atomic<uint64_t>& counter, uint64_t bytes_most, std::span<const char> data)
    {
        if (counter.fetch_add(data.size()) + data.size() > bytes_most) {
            counter -= data.size();
            return false;
        }
        counter_ = &counter;
        bytes_.assign(data.begin(), data.end());
        return true;
    }
    [[nodiscard]] std::span<const char> bytes() const { return bytes_; }

private:
    std::atomic<uint64_t>* counter_ = nullptr;
    std::vector<char> bytes_;
};

// Makes the kernel drop its pages of a range. A page that lies in it in part stays, and gets the file's bytes
// of the range: a program may just have written others into it, of which the filesystem has not heard yet.
// Waits for pages that are locked, so the thread that calls must not be one that serves requests. `dropper`
// is that thread's.
void drop_cached_pages(Frontend& frontend, PageDropper& dropper, InodeNumber inode, uint64_t offset,
                       uint64_t bytes);
// Makes the kernel ask for the attributes of `inode` again: it keeps a file's mode for a day.
void forget_cached_attributes(const Frontend& frontend, InodeNumber inode);

// Replies to a change that failed and may be applied in part: the kernel keeps what it has of the file. It
// asks for the attributes again and drops its pages of the range first.
void reply_failed_change(fuse_req_t request, InodeNumber inode, uint64_t offset, uint64_t bytes,
                         Status status);

// The same for a change of the size to `size_bytes`, but the pages go after the reply: the kernel writes none
// of the file back before it has the answer, and what a mapping changed is written back before it goes.
void reply_failed_size(fuse_req_t request, InodeNumber inode, uint64_t size_bytes, Status status);

// Replies when everything done so far is durable, or what fdatasync asks for: with success.
void reply_when_durable(fuse_req_t request, InodeNumber inode, Committer::SyncWhat what);
// Replies to a WRITE that is applied, when there is room in memory for the next one.
void reply_write(fuse_req_t request, size_t written);
// For a WRITE that is synchronous.
void reply_write_when_durable(fuse_req_t request, InodeNumber inode, size_t written);
// Returns when no answer waits any more.
void wait_for_parked(Frontend& frontend);

}  // namespace cowraid
