// SPDX-License-Identifier: MIT
// What programs ask of the volume, or of a file, by ioctl(2).
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "fs/maintain/discards.h"
#include "fuse/frontend.h"

namespace cowraid {

namespace {

// The answer to FITRIM: it may take as long as it likes, and holds no thread. Deletes itself.
class TrimReply final : public TrimCompletion {
public:
    TrimReply(fuse_req_t request, const fstrim_range& range)
        : request_(request), frontend_(frontend_of(request)), range_(range)
    {
        MutexLock lock(frontend_.parked_mutex);
        ++frontend_.parked;
    }
    void done(Status status, uint64_t bytes) override
    {
        range_.len = bytes;
        if (status.ok())
            fuse_reply_ioctl(request_, 0, &range_, sizeof range_);
        else
            reply_status(request_, status);
        Frontend& frontend = frontend_;
        delete this;
        MutexLock lock(frontend.parked_mutex);
        if (--frontend.parked == 0)
            frontend.parked_changed.notify_all();
    }

private:
    const fuse_req_t request_;
    Frontend& frontend_;
    fstrim_range range_;
};

void trim(fuse_req_t request, std::span<const std::byte> in)
{
    fstrim_range range;
    if (in.size() != sizeof range) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    std::memcpy(&range, in.data(), sizeof range);
    Filesystem& filesystem = filesystem_of(request);
    if (fuse_req_ctx(request)->uid != 0) {
        fuse_reply_err(request, EPERM);
        return;
    }
    if (const Status status = filesystem.store.service.check_writable(); !status.ok()) {
        reply_status(request, status);
        return;
    }
    if (range.len < kBlockBytes) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    const uint64_t end = range.len > UINT64_MAX - range.start ? UINT64_MAX : range.start + range.len;
    filesystem.committer.discards.trim({.first = range.start, .end = end, .bytes_min = range.minlen},
                                       new TrimReply(request, range));
}

void op_ioctl(fuse_req_t request, fuse_ino_t, unsigned command, void*, fuse_file_info*, unsigned flags,
              const void* in, size_t in_bytes, size_t)
{
    const std::span bytes(static_cast<const std::byte*>(in), in_bytes);
    if ((flags & FUSE_IOCTL_COMPAT) != 0)
        fuse_reply_err(request, ENOTTY);
    else if (command == FITRIM)
        trim(request, bytes);
    else
        fuse_reply_err(request, ENOTTY);
}

}  // namespace

void add_ioctl_ops(fuse_lowlevel_ops& ops)
{
    ops.ioctl = op_ioctl;
}

}  // namespace cowraid
