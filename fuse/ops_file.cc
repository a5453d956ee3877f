// SPDX-License-Identifier: MIT
// Opening, reading and writing files.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "fuse/frontend.h"
#include "fuse/open_reply.h"
#include "fuse/set_id.h"
#include "fuse/translate_request.h"

namespace cowraid {

namespace {

// The kernel keeps modes for a day: it must hear of bits that went, or it would go on honouring them.
void after_change(const Frontend& frontend, InodeNumber inode, const Caller& caller)
{
    if (caller.cleared_mode_bits != 0)
        forget_cached_attributes(frontend, inode);
}

// Bits of the handles of open files.
enum Handle : uint64_t {
    kWritesDirectly = 1,  // may write past the page cache
    kMayMap = 2,  // may write by a mapping
    kSynchronous = 4,  // O_SYNC or O_DSYNC: a copy or a change of a range does not say so
    kCached = 8,  // reads and writes through the page cache
    kKeepsSetGid = 16,  // who opened it was in the file's group, when that mattered
};

struct Open {
    uint64_t handle;
    OpenCacheMode mode;
};

Open begin_open(Frontend& frontend, InodeNumber inode, const fuse_file_info& info)
{
    Open open{(info.flags & (O_SYNC | O_DSYNC)) != 0 ? uint64_t{kSynchronous} : 0, OpenCacheMode::kCached};
    if (frontend.drops_before_direct.load(std::memory_order_relaxed))
        open.mode = frontend.open_modes.begin(inode, info.flags);
    open.handle |= open.mode == OpenCacheMode::kCached ? uint64_t{kCached} : 0;
    const int access = info.flags & O_ACCMODE;
    if (access == O_RDONLY)
        return open;
    if ((info.flags & O_DIRECT) != 0 || open.mode == OpenCacheMode::kDirect) {
        frontend.page_cache.begin_direct(inode);
        open.handle |= kWritesDirectly;
    } else if (access == O_RDWR) {
        frontend.page_cache.begin_mapped(inode);
        open.handle |= kMayMap;
    }
    return open;
}

void end_open(Frontend& frontend, InodeNumber inode, uint64_t handle)
{
    if (frontend.drops_before_direct.load(std::memory_order_relaxed))
        frontend.open_modes.end(inode,
                                (handle & kCached) != 0 ? OpenCacheMode::kCached : OpenCacheMode::kDirect);
    if ((handle & kWritesDirectly) != 0)
        frontend.page_cache.end_direct(inode);
    else if ((handle & kMayMap) != 0)
        frontend.page_cache.end_mapped(inode);
}

void answer_open(fuse_req_t request, InodeNumber inode, const fuse_file_info& info)
{
    Frontend& frontend = frontend_of(request);
    Open open = begin_open(frontend, inode, info);
    if ((open.handle & kWritesDirectly) != 0 && keeps_set_gid(request, inode))
        open.handle |= kKeepsSetGid;
    if (!reply_open(request, info.flags, open.mode, open.handle))
        end_open(frontend, inode, open.handle);
}

void op_open(fuse_req_t request, fuse_ino_t node, fuse_file_info* info)
{
    Frontend& frontend = frontend_of(request);
    const InodeNumber inode = inode_of(frontend, node);
    // Who may read and write may change what is there through a mapping.
    const bool appends = (info->flags & O_APPEND) != 0 && (info->flags & O_ACCMODE) == O_WRONLY;
    if ((info->flags & O_ACCMODE) != O_RDONLY)
        if (const Status open = frontend.filesystem->names.check_open(
                inode, appends ? Names::OpenFor::kAppending : Names::OpenFor::kWriting);
            !open.ok()) {
            reply_status(request, open);
            return;
        }
    answer_open(request, inode, *info);
}

void answer_create(fuse_req_t request, const Attributes& made, fuse_file_info info)
{
    Frontend& frontend = frontend_of(request);
    const fuse_entry_param entry = entry_of(frontend, made);
    Open open = begin_open(frontend, made.inode, info);
    info.direct_io = open.mode == OpenCacheMode::kDirect;
    info.keep_cache = true;
    const bool is_marked = (made.mode & (S_ISGID | S_IXGRP)) == S_ISGID;
    if (is_marked && (open.handle & kWritesDirectly) != 0 && keeps_set_gid(request, made.inode))
        open.handle |= kKeepsSetGid;
    info.fh = open.handle;
    const int replied = fuse_reply_create(request, &entry, &info);
    if (replied != 0)
        end_open(frontend, made.inode, open.handle);
    if (replied == -ENOENT)
        frontend.filesystem->names.forget(made.inode, 1);
}

Served create_file(fuse_req_t request, fuse_ino_t parent, const std::string& name, mode_t mode,
                   fuse_file_info info)
{
    Frontend& frontend = frontend_of(request);
    Names& names = frontend.filesystem->names;
    const InodeNumber directory = inode_of(frontend, parent);
    const Caller caller = caller_of(request);
    const auto made = name == kNoName ? names.make_temporary(directory, mode, caller)
                                      : names.make_node(directory, name, (mode & 07777) | S_IFREG, 0, caller);
    if (!made.ok())
        return reply_status(request, made.status());
    answer_name_change(request, [=, made = *made](Status durable) {
        if (durable.ok()) {
            answer_create(request, made, info);
            return;
        }
        filesystem_of(request).names.forget(made.inode, 1);
        reply_status(request, durable);
    });
    return Served::kAnswered;
}

void op_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info)
{
    serve_name_change(request, [=, name = std::string(name), info = *info] {
        return create_file(request, parent, name, mode, info);
    });
}

// Read answers are assembled in a buffer of the serving thread.
AlignedBuffer& thread_buffer()
{
    static thread_local AlignedBuffer buffer(128 * kKiB);
    return buffer;
}

// The kernel names the owner of a file's locks in what a program reads or writes directly, and never in what
// its page cache asks for. O_DIRECT says less: the page cache also writes for a file that has it.
bool past_page_cache(const fuse_file_info& info)
{
    return info.lock_owner != 0;
}

void op_read(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset, fuse_file_info* info)
{
    Filesystem& filesystem = filesystem_of(request);
    const InodeNumber inode = inode_of(request, node);
    if (!past_page_cache(*info) && bytes != 0)
        frontend_of(request).page_cache.note_read(inode, static_cast<uint64_t>(offset), bytes);
    const auto content = filesystem.files.read(inode, static_cast<uint64_t>(offset), bytes, thread_buffer());
    if (!content.ok()) {
        reply_status(request, content.status());
        return;
    }
    // Before the reply: a stat that follows the read sees the new time.
    if ((info->flags & O_NOATIME) == 0)
        filesystem.names.note_access(inode);
    iovec answer{.iov_base = const_cast<std::byte*>(content->data()), .iov_len = content->size()};
    fuse_reply_iov(request, &answer, 1);
}

// A WRITE that is applied and not answered yet.
struct AppliedWrite {
    fuse_req_t request;
    uint32_t uid;
    InodeNumber inode;
    uint64_t offset;
    size_t bytes;
    bool durable;  // O_SYNC, O_DSYNC, or so mounted
};

void answer_write(const AppliedWrite& write)
{
    if (write.durable)
        reply_write_when_durable(write.request, write.inode, write.bytes);
    else
        reply_write(write.request, write.bytes);
}

class HeldWrite final : public HeldAnswer {
public:
    HeldWrite(Frontend& frontend, const AppliedWrite& write) : frontend_(frontend), write_(write) { }
    void drop() override
    {
        drop_cached_pages(frontend_, frontend_.page_dropper, write_.inode, write_.offset, write_.bytes);
        frontend_.page_cache.end_drop(write_.inode, write_.offset, write_.bytes);
    }
    // Whoever waits for it to be durable may have to write a record of the fsync log for everybody: not this
    // thread, on which other direct writes wait.
    void answer() override
    {
        if (write_.durable) {
            auto action = [write = write_] {
                answer_write(write);
            };
            frontend_.waiting_requests.hand_over(
                std::make_unique<WaitingRequest<decltype(action)>>(write_.request, action));
        } else {
            answer_write(write_);
        }
        frontend_.invalidator.leave(write_.uid);
    }
    void refuse() override
    {
        frontend_.page_cache.give_up_drop(write_.inode, write_.offset, write_.bytes);
        reply_status(write_.request, Err::kShutdown);
        frontend_.invalidator.leave(write_.uid);
    }

private:
    Frontend& frontend_;
    const AppliedWrite write_;
};

// Whoever hears of the write may read it: pages of it that are older go before the answer.
void answer_direct(Frontend& frontend, const AppliedWrite& write)
{
    if (write.bytes == 0 || !frontend.page_cache.begin_drop(write.inode, write.offset, write.bytes)) {
        answer_write(write);
        frontend.invalidator.leave(write.uid);
        return;
    }
    frontend.invalidator.submit(write.uid, std::make_unique<HeldWrite>(frontend, write));
}

// A WRITE as it came. The kernel's offset counts also for O_APPEND: it holds the inode lock and knows the
// size, and the pieces of one large append arrive concurrently.
struct WriteRequest {
    fuse_req_t request;
    InodeNumber inode;
    Caller caller;  // only the thread that received the request knows whether set-id bits are to go
    uint64_t offset;
    std::span<const char> data;  // the session's until keep()
    fuse_file_info info;
    KeptData kept;

    Served operator()() const;
    [[nodiscard]] bool keep()
    {
        Frontend& frontend = frontend_of(request);
        const bool done = kept.copy(frontend.kept_bytes, frontend.kept_bytes_most(), data);
        if (done)
            data = kept.bytes();
        return done;
    }
};

Served WriteRequest::operator()() const
{
    Frontend& frontend = frontend_of(request);
    const bool direct = past_page_cache(info);
    const uint32_t uid = fuse_req_ctx(request)->uid;  // until the answer
    // The kernel sees to that for what goes through its page cache.
    if (direct)
        if (const Status dropped = frontend.filesystem->names.drop_capability(inode); !dropped.ok())
            return reply_status(request, dropped);
    if (direct && !frontend.invalidator.enter(uid)) {
        fuse_reply_err(request, EAGAIN);
        return Served::kAnswered;
    }
    if (!direct && !data.empty())
        frontend.page_cache.note_written(inode, offset, data.size());
    // Of the descriptor as it is now: its flag may be gone since it was opened.
    const Files::WriteHow how{.appending = (info.flags & O_APPEND) != 0, .written_back = info.writepage != 0};
    const auto written = frontend.filesystem->files.write(inode, offset, std::as_bytes(data), how, caller);
    after_change(frontend, inode, caller);
    if (!written.ok()) {
        const Served served = reply_status(request, written.status());
        if (direct)
            frontend.invalidator.leave(uid);
        return served;
    }
    // What a mapping wrote waits for nothing; the kernel may not know that the mount is `sync`.
    const bool durable = (info.flags & (O_SYNC | O_DSYNC)) != 0 ||
                         (info.writepage == 0 && frontend.filesystem->store.live.sync);
    const AppliedWrite applied{request, uid, inode, offset, *written, durable};
    if (direct)
        answer_direct(frontend, applied);
    else
        answer_write(applied);
    return Served::kAnswered;
}

void op_write(fuse_req_t request, fuse_ino_t node, const char* data, size_t bytes, off_t offset,
              fuse_file_info* info)
{
    const InodeNumber inode = inode_of(request, node);
    // A write of the page cache has no caller; its program lost the bits when it dirtied the page. Past the
    // page cache the program may go on before the answer.
    const SetIdRule past_cache =
        (info->fh & kKeepsSetGid) != 0 ? SetIdRule::kAsRequestedAsyncInGroup : SetIdRule::kAsRequestedAsync;
    const SetIdRule rule = past_page_cache(*info) ? past_cache : SetIdRule::kAsRequested;
    const Caller caller = info->writepage ? Caller{} : changing_caller(request, inode, rule);
    serve(request, WriteRequest{.request = request,
                                .inode = inode,
                                .caller = caller,
                                .offset = static_cast<uint64_t>(offset),
                                .data = {data, bytes},
                                .info = *info,
                                .kept = {}});
}

// The kernel has written back what its page cache has of the source, and drops its pages of the target.
struct CopyRequest {
    fuse_req_t request;
    InodeNumber source, target;
    Caller caller;
    uint64_t source_offset, target_offset;
    size_t bytes;
    bool synchronous;

    Served operator()() const
    {
        Frontend& frontend = frontend_of(request);
        const auto read = frontend.filesystem->files.read(source, source_offset, bytes, thread_buffer());
        if (!read.ok())
            return reply_status(request, read.status());
        const auto written = frontend.filesystem->files.write(target, target_offset, *read, {}, caller);
        after_change(frontend, target, caller);
        if (!written.ok())
            return reply_status(request, written.status());
        const bool durable = synchronous || frontend.filesystem->store.live.sync;
        answer_write({request, caller.uid, target, target_offset, *written, durable});
        return Served::kAnswered;
    }
};

void op_copy_file_range(fuse_req_t request, fuse_ino_t source, off_t source_offset, fuse_file_info*,
                        fuse_ino_t target, off_t target_offset, fuse_file_info* target_info, size_t bytes,
                        int)
{
    const InodeNumber inode = inode_of(request, target);
    serve(request, CopyRequest{.request = request,
                               .source = inode_of(request, source),
                               .target = inode,
                               .caller = changing_caller(request, inode, SetIdRule::kUnlessCapable),
                               .source_offset = static_cast<uint64_t>(source_offset),
                               .target_offset = static_cast<uint64_t>(target_offset),
                               // The caller goes on behind what was copied.
                               .bytes = std::min<size_t>(bytes, frontend_of(request).transfer_bytes()),
                               .synchronous = (target_info->fh & kSynchronous) != 0});
}

void op_fsync(fuse_req_t request, fuse_ino_t node, int data_only, fuse_file_info*)
{
    using What = Committer::SyncWhat;
    reply_when_durable(request, inode_of(request, node), data_only != 0 ? What::kData : What::kAll);
}

class RangeRequest final : public LongRequest {
public:
    struct Asked {
        InodeNumber inode;
        int mode;
        uint64_t offset, bytes;
        bool synchronous;
        Caller caller;
    };
    RangeRequest(fuse_req_t request, std::unique_ptr<LongChange> change, const Asked& asked)
        : LongRequest(request, std::move(change), WhenKilled::kEnd), asked_(asked)
    {
    }
    void finish(Status status) override;

private:
    const Asked asked_;
};

void RangeRequest::finish(Status status)
{
    Frontend& frontend = frontend_of(request());
    after_change(frontend, asked_.inode, asked_.caller);
    const bool clears = (asked_.mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
    if (!status.ok() && clears) {
        reply_failed_change(request(), asked_.inode, asked_.offset, asked_.bytes, status);
        return;
    }
    if (!status.ok())
        forget_cached_attributes(frontend, asked_.inode);
    reply_file_change(request(), asked_.inode, status, asked_.synchronous);
}

void op_fallocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length,
                  fuse_file_info* info)
{
    if (offset < 0 || length <= 0) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    Frontend& frontend = frontend_of(request);
    const InodeNumber inode = inode_of(frontend, node);
    const RangeRequest::Asked asked{inode,
                                    mode,
                                    static_cast<uint64_t>(offset),
                                    static_cast<uint64_t>(length),
                                    (info->fh & kSynchronous) != 0,
                                    changing_caller(request, inode, SetIdRule::kUnlessCapable)};
    auto begun =
        frontend.filesystem->files.begin_allocate_range(inode, mode, asked.offset, asked.bytes, asked.caller);
    if (begun.ok())
        frontend.long_requests.run(std::make_unique<RangeRequest>(request, begun.take(), asked));
    else
        reply_status(request, begun.status());
}

// An open file is its lookup reference.
void op_release(fuse_req_t request, fuse_ino_t node, fuse_file_info* info)
{
    end_open(frontend_of(request), inode_of(request, node), info->fh);
    fuse_reply_err(request, 0);
}

}  // namespace

// No flush handler: libfuse answers ENOSYS, and the kernel stops asking at every close().
void add_file_ops(fuse_lowlevel_ops& ops)
{
    ops.open = op_open;
    ops.create = op_create;
    ops.read = op_read;
    ops.write = op_write;
    ops.copy_file_range = op_copy_file_range;
    ops.fsync = op_fsync;
    ops.fallocate = op_fallocate;
    ops.release = op_release;
}

}  // namespace cowraid
