// SPDX-License-Identifier: MIT
#include "fuse/frontend.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <memory>

#include "fuse/caller_status.h"

namespace cowraid {

namespace {

Completion* parked_status(fuse_req_t request)
{
    return park(request, [request](Status status) { reply_status(request, status); });
}

Completion* parked_write(fuse_req_t request, size_t written)
{
    return park(request, [request, written](Status status) {
        if (status.ok())
            fuse_reply_write(request, written);
        else
            reply_status(request, status);
    });
}

void drop_whole_pages(Frontend& frontend, PageDropper& dropper, InodeNumber inode, uint64_t offset,
                      uint64_t bytes)
{
    const fuse_ino_t node = node_of(frontend, inode);
    if (dropper.drop(fuse_session_fd(frontend.session), node, offset, bytes))
        return;
    // Fails where the kernel no longer knows the inode: it holds no pages then.
    (void)fuse_lowlevel_notify_inval_inode(frontend.session, node, static_cast<off_t>(offset),
                                           static_cast<off_t>(bytes));
}

void store_in_page(Frontend& frontend, PageDropper& dropper, InodeNumber inode, uint64_t offset,
                   std::span<std::byte> data)
{
    const fuse_ino_t node = node_of(frontend, inode);
    if (dropper.store(fuse_session_fd(frontend.session), node, offset, data))
        return;
    fuse_bufvec buffer = FUSE_BUFVEC_INIT(data.size());
    buffer.buf[0].mem = data.data();
    (void)fuse_lowlevel_notify_store(frontend.session, node, static_cast<off_t>(offset), &buffer,
                                     static_cast<fuse_buf_copy_flags>(0));
}

// What the file holds now, so that the order of several writes does not matter: nobody else renews between
// the read and the store.
void renew_in_page(Frontend& frontend, PageDropper& dropper, InodeNumber inode, uint64_t offset,
                   uint64_t bytes)
{
    if (bytes == 0)
        return;
    std::array<std::byte, kBlockBytes> data;
    MutexLock lock(frontend.renewing);
    const auto count = frontend.filesystem->files.read(inode, offset, std::span(data).first(bytes));
    if (!count.ok()) {
        drop_whole_pages(frontend, dropper, inode, round_down(offset, kBlockBytes), kBlockBytes);
        return;
    }
    if (*count == 0)
        return;
    store_in_page(frontend, dropper, inode, offset, std::span(data).first(*count));
    // The kernel takes the end of what is stored for the end of the file where it knows of a smaller one. If
    // the file was cut meanwhile, it must ask.
    forget_cached_attributes(frontend, inode);
}

}  // namespace

ParkedAnswer::ParkedAnswer(Frontend& frontend) : frontend_(frontend)
{
    MutexLock lock(frontend_.parked_mutex);
    ++frontend_.parked;
}

void ParkedAnswer::done(Status status)
{
    answer(status);
    Frontend& frontend = frontend_;
    delete this;
    MutexLock lock(frontend.parked_mutex);
    if (--frontend.parked == 0)
        frontend.parked_changed.notify_all();
}

bool names_are_durable(const Frontend& frontend)
{
    const LiveOptions& options = frontend.filesystem->store.live;
    return options.sync || options.dirsync;
}

Served reply_name_change(fuse_req_t request, Status status)
{
    if (!status.ok())
        return reply_status(request, status);
    answer_name_change(request, [request](Status durable) { reply_status(request, durable); });
    return Served::kAnswered;
}

Served reply_file_change(fuse_req_t request, InodeNumber inode, Status status, bool synchronous)
{
    if (!status.ok())
        return reply_status(request, status);
    const bool waits = synchronous || filesystem_of(request).store.live.sync;
    answer_change(request, waits, inode, [request, inode](Status durable) {
        if (!durable.ok())
            forget_cached_attributes(frontend_of(request), inode);
        reply_status(request, durable);
    });
    return Served::kAnswered;
}

Served reply_changed_attributes(fuse_req_t request, const Result<Attributes>& attributes)
{
    if (!attributes.ok())
        return reply_status(request, attributes.status());
    answer_file_change(request, attributes->inode, [request, changed = *attributes](Status durable) {
        if (durable.ok()) {
            reply_attributes(request, changed);
            return;
        }
        forget_cached_attributes(frontend_of(request), changed.inode);
        reply_status(request, durable);
    });
    return Served::kAnswered;
}

Served reply_new_entry(fuse_req_t request, const Result<Attributes>& made)
{
    if (!made.ok())
        return reply_status(request, made.status());
    answer_name_change(request, [request, made = *made](Status durable) {
        if (durable.ok()) {
            reply_entry(request, made);
            return;
        }
        filesystem_of(request).names.forget(made.inode, 1);
        reply_status(request, durable);
    });
    return Served::kAnswered;
}

Caller caller_of(fuse_req_t request)
{
    const fuse_ctx* context = fuse_req_ctx(request);
    return {.uid = context->uid, .gid = context->gid, .umask = context->umask};
}

Caller flag_setter_of(fuse_req_t request)
{
    constexpr unsigned kCapFowner = 3, kCapLinuxImmutable = 9;
    const pid_t task = fuse_req_ctx(request)->pid;
    Caller caller = caller_of(request);
    if (caller.uid == 0 || !shares_user_namespace(task))
        return caller;
    const std::string status = caller_status(task);
    caller.has_fowner = has_capability(status, kCapFowner);
    caller.has_linux_immutable = has_capability(status, kCapLinuxImmutable);
    return caller;
}

struct stat stat_of(const Attributes& attributes)
{
    struct stat out { };
    out.st_ino = attributes.inode.value;
    out.st_mode = attributes.mode;
    out.st_nlink = attributes.link_count;
    out.st_uid = attributes.uid;
    out.st_gid = attributes.gid;
    out.st_rdev = attributes.rdev;
    out.st_size = static_cast<off_t>(attributes.size_bytes);
    out.st_blocks = static_cast<blkcnt_t>(attributes.block_count_512);
    out.st_blksize = kBlockSizeHint;
    out.st_atim = attributes.accessed;
    out.st_mtim = attributes.modified;
    out.st_ctim = attributes.changed;
    return out;
}

double attribute_seconds(const Attributes& attributes)
{
    // A flush changes an estimate without a request that the kernel would know of.
    return attributes.block_count_estimated ? 0 : kCacheSeconds;
}

fuse_entry_param entry_of(const Frontend& frontend, const Attributes& attributes)
{
    fuse_entry_param out{};
    out.ino = node_of(frontend, attributes.inode);
    // The root's is 0: that is what the kernel gives it, and another one means another file to it.
    out.generation = attributes.inode == frontend.root ? 0 : attributes.generation;
    out.attr = stat_of(attributes);
    out.attr_timeout = attribute_seconds(attributes);
    out.entry_timeout = kCacheSeconds;
    return out;
}

Served reply_status(fuse_req_t request, Status status)
{
    if (status.err() == Err::kWouldWait)
        return Served::kWouldWait;
    fuse_reply_err(request, err_to_errno(status.err()));
    return Served::kAnswered;
}

Served reply_entry(fuse_req_t request, const Result<Attributes>& attributes)
{
    if (!attributes.ok())
        return reply_status(request, attributes.status());
    const Frontend& frontend = frontend_of(request);
    const fuse_entry_param entry = entry_of(frontend, *attributes);
    if (fuse_reply_entry(request, &entry) == -ENOENT)
        frontend.filesystem->names.forget(attributes->inode, 1);
    return Served::kAnswered;
}

Served reply_attributes(fuse_req_t request, const Result<Attributes>& attributes)
{
    if (!attributes.ok())
        return reply_status(request, attributes.status());
    const struct stat answer = stat_of(*attributes);
    fuse_reply_attr(request, &answer, attribute_seconds(*attributes));
    return Served::kAnswered;
}

void forget_cached_attributes(const Frontend& frontend, InodeNumber inode)
{
    // A negative offset leaves cached pages alone, so this takes no lock a request could hold. A failure
    // means that the kernel no longer knows the inode.
    (void)fuse_lowlevel_notify_inval_inode(frontend.session, node_of(frontend, inode), -1, 0);
}

void drop_cached_pages(Frontend& frontend, PageDropper& dropper, InodeNumber inode, uint64_t offset,
                       uint64_t bytes)
{
    const uint64_t end = offset + bytes;
    const uint64_t first_whole = std::min(round_up(offset, kBlockBytes), end);
    const uint64_t last_whole = std::max(round_down(end, kBlockBytes), first_whole);
    renew_in_page(frontend, dropper, inode, offset, first_whole - offset);
    if (last_whole > first_whole)
        drop_whole_pages(frontend, dropper, inode, first_whole, last_whole - first_whole);
    renew_in_page(frontend, dropper, inode, last_whole, end - last_whole);
}

namespace {

// A change that failed. Its request is null where it was answered before.
class HeldFailure final : public HeldAnswer {
public:
    HeldFailure(Frontend& frontend, fuse_req_t request, InodeNumber inode, uint64_t offset, uint64_t bytes,
                Status status)
        : frontend_(frontend),
          request_(request),
          inode_(inode),
          offset_(offset),
          bytes_(bytes),
          status_(status)
    {
    }
    void drop() override
    {
        drop_cached_pages(frontend_, frontend_.range_dropper, inode_, offset_, bytes_);
        frontend_.page_cache.end_drop(inode_, offset_, bytes_);
    }
    void answer() override
    {
        if (request_ != nullptr)
            reply_status(request_, status_);
    }
    void refuse() override
    {
        frontend_.page_cache.give_up_drop(inode_, offset_, bytes_);
        answer();
    }

private:
    Frontend& frontend_;
    const fuse_req_t request_;
    const InodeNumber inode_;
    const uint64_t offset_, bytes_;
    const Status status_;
};

void fail_change(fuse_req_t request, bool answer_first, InodeNumber inode, uint64_t offset, uint64_t bytes,
                 Status status)
{
    Frontend& frontend = frontend_of(request);
    const uint32_t uid = fuse_req_ctx(request)->uid;
    forget_cached_attributes(frontend, inode);
    frontend.page_cache.begin_any_drop(inode, offset, bytes);
    if (answer_first)
        reply_status(request, status);
    frontend.range_invalidator.submit(uid, std::make_unique<HeldFailure>(frontend,
                                                                         answer_first ? nullptr : request,
                                                                         inode, offset, bytes, status));
}

}  // namespace

void reply_failed_change(fuse_req_t request, InodeNumber inode, uint64_t offset, uint64_t bytes,
                         Status status)
{
    fail_change(request, false, inode, offset, bytes, status);
}

void reply_failed_size(fuse_req_t request, InodeNumber inode, uint64_t size_bytes, Status status)
{
    constexpr uint64_t kEnd = uint64_t{std::numeric_limits<int64_t>::max()} / kBlockBytes * kBlockBytes;
    const uint64_t from = std::min(size_bytes, kEnd);
    fail_change(request, true, inode, from, kEnd - from, status);
}

void reply_when_durable(fuse_req_t request, InodeNumber inode, Committer::SyncWhat what)
{
    filesystem_of(request).committer.fsync_async(inode, what, parked_status(request));
}

void reply_write_when_durable(fuse_req_t request, InodeNumber inode, size_t written)
{
    filesystem_of(request).committer.fsync_async(inode, Committer::SyncWhat::kAll,
                                                 parked_write(request, written));
}

void reply_write(fuse_req_t request, size_t written)
{
    Files& files = filesystem_of(request).files;
    if (!files.holds_writers()) {
        fuse_reply_write(request, written);
        return;
    }
    files.answer_when_room(parked_write(request, written));
}

void wait_for_parked(Frontend& frontend)
{
    MutexLock lock(frontend.parked_mutex);
    while (frontend.parked != 0)
        frontend.parked_changed.wait(frontend.parked_mutex);
}

}  // namespace cowraid
