// SPDX-License-Identifier: MIT
// Opening, reading and writing files.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/buffer.h"
#include "fuse/frontend.h"
#include "fuse/open_reply.h"

namespace cowraid {

namespace {

// Set-id bits are cleared for a caller who is not root; the kernel, which keeps modes for a day, must hear
// of it, or it would go on honouring them.
class SetIdWatch {
public:
    SetIdWatch(const Frontend& frontend, InodeNumber inode, const Caller& caller)
        : frontend_(frontend), inode_(inode)
    {
        if (caller.uid == 0 || !frontend.clears_set_id.load(std::memory_order_relaxed))
            return;
        const auto now = frontend.filesystem->get_attributes(inode);
        set_ = now.ok() && has_set_id(now->mode);
        if (set_)
            cleared_mode_ = without_set_id(now->mode);
    }

    [[nodiscard]] bool set() const { return set_; }
    [[nodiscard]] uint32_t cleared_mode() const { return cleared_mode_; }
    void after_change() const
    {
        if (set_)
            forget_cached_attributes(frontend_, inode_);
    }

private:
    const Frontend& frontend_;
    InodeNumber inode_;
    bool set_ = false;
    uint32_t cleared_mode_ = 0;
};

Status truncate_at_open(const Frontend& frontend, InodeNumber inode, const Caller& caller)
{
    const SetIdWatch watch(frontend, inode, caller);
    SetAttributes change;
    change.size_bytes = 0;
    change.modified_now = true;
    if (watch.set())
        change.mode = watch.cleared_mode();
    const auto result = frontend.filesystem->set_attributes(inode, change, caller);
    watch.after_change();
    return result.status();
}

void op_open(fuse_req_t request, fuse_ino_t node, fuse_file_info* info)
{
    if ((info->flags & O_TRUNC) != 0) {
        const Status status =
            truncate_at_open(frontend_of(request), inode_of(request, node), caller_of(request));
        if (!status.ok()) {
            reply_status(request, status);
            return;
        }
    }
    reply_open(request, open_cache_mode(info->flags));
}

void op_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info)
{
    const Frontend& frontend = frontend_of(request);
    const auto made = frontend.filesystem->make_node(inode_of(frontend, parent), name,
                                                     (mode & 07777) | S_IFREG, 0, caller_of(request));
    if (!made.ok()) {
        reply_status(request, made.status());
        return;
    }
    const fuse_entry_param entry = entry_of(frontend, *made);
    const bool direct = open_cache_mode(info->flags) == OpenCacheMode::kDirect;
    info->direct_io = direct;
    info->keep_cache = !direct;
    if (fuse_reply_create(request, &entry, info) == -ENOENT)
        frontend.filesystem->forget(made->inode, 1);
}

// Read answers are assembled in a buffer of the serving thread.
std::span<std::byte> thread_buffer(size_t bytes)
{
    static thread_local AlignedBuffer buffer;
    if (buffer.size() < bytes)
        buffer = AlignedBuffer(std::max<size_t>(round_up(bytes, kBlockBytes), 128 * kKiB));
    return buffer.span().first(bytes);
}

void op_read(fuse_req_t request, fuse_ino_t node, size_t bytes, off_t offset, fuse_file_info*)
{
    Filesystem& filesystem = filesystem_of(request);
    const InodeNumber inode = inode_of(request, node);
    const std::span<std::byte> out = thread_buffer(bytes);
    const auto count = filesystem.read(inode, static_cast<uint64_t>(offset), out);
    if (!count.ok()) {
        reply_status(request, count.status());
        return;
    }
    // Before the reply: a stat that follows the read sees the new time.
    filesystem.note_access(inode);
    iovec answer{.iov_base = out.data(), .iov_len = *count};
    fuse_reply_iov(request, &answer, 1);
}

// The kernel's offset counts also for O_APPEND: it holds the inode lock and knows the size, and the pieces
// of one large append arrive concurrently.
void op_write(fuse_req_t request, fuse_ino_t node, const char* data, size_t bytes, off_t offset,
              fuse_file_info* info)
{
    Frontend& frontend = frontend_of(request);
    const InodeNumber inode = inode_of(frontend, node);
    // A write of the page cache has no caller; its program lost the bits when it dirtied the page.
    const Caller caller = info->writepage ? Caller{} : caller_of(request);
    const SetIdWatch watch(frontend, inode, caller);
    const std::span<const char> chars(data, bytes);
    const auto written = frontend.filesystem->write(inode, static_cast<uint64_t>(offset),
                                                    std::as_bytes(chars), {.append = false}, caller);
    watch.after_change();
    if (!written.ok())
        reply_status(request, written.status());
    else if ((info->flags & (O_SYNC | O_DSYNC)) != 0)
        reply_write_when_durable(request, inode, *written);
    else
        fuse_reply_write(request, *written);
}

void op_fsync(fuse_req_t request, fuse_ino_t node, int data_only, fuse_file_info*)
{
    using What = Filesystem::SyncWhat;
    reply_when_durable(request, inode_of(request, node), data_only != 0 ? What::kData : What::kAll);
}

void op_fallocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length, fuse_file_info*)
{
    if (offset < 0 || length <= 0) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    Frontend& frontend = frontend_of(request);
    const InodeNumber inode = inode_of(frontend, node);
    const Caller caller = caller_of(request);
    const SetIdWatch watch(frontend, inode, caller);
    Status status = frontend.filesystem->allocate_range(inode, mode, static_cast<uint64_t>(offset),
                                                        static_cast<uint64_t>(length));
    if (status.ok() && watch.set()) {
        SetAttributes change;
        change.mode = watch.cleared_mode();
        status = frontend.filesystem->set_attributes(inode, change, caller).status();
        watch.after_change();
    }
    reply_status(request, status);
}

// RELEASE carries nothing to do: an open file is its lookup reference.
void op_release(fuse_req_t request, fuse_ino_t, fuse_file_info*)
{
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
    ops.fsync = op_fsync;
    ops.fallocate = op_fallocate;
    ops.release = op_release;
}

}  // namespace cowraid
