// SPDX-License-Identifier: MIT
// Where files have data and where they have holes.
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <memory>

#include "fuse/frontend.h"

namespace cowraid {

namespace {

struct SeekRequest {
    fuse_req_t request;
    InodeNumber inode;
    uint64_t offset;
    Files::Seek what;
};

void answer_seek(const SeekRequest& seek)
{
    const auto found = filesystem_of(seek.request).files.seek(seek.inode, seek.offset, seek.what);
    if (found.ok())
        fuse_reply_lseek(seek.request, static_cast<off_t>(*found));
    else if (found.err() == Err::kNotFound)
        fuse_reply_err(seek.request, ENXIO);
    else
        reply_status(seek.request, found.status());
}

// What a mapping was given may be in the page cache alone.
class HeldSeek final : public HeldAnswer {
public:
    static constexpr uint64_t kEnd =
        uint64_t{std::numeric_limits<int64_t>::max()} / kBlockBytes * kBlockBytes;

    explicit HeldSeek(const SeekRequest& seek) : seek_(seek), from_(round_down(seek.offset, kBlockBytes))
    {
        frontend_of(seek.request).page_cache.begin_any_drop(seek.inode, from_, kEnd - from_);
    }
    void drop() override
    {
        Frontend& frontend = frontend_of(seek_.request);
        drop_cached_pages(frontend, seek_.inode, from_, kEnd - from_);
        frontend.page_cache.end_drop(seek_.inode);
    }
    void answer() override { answer_seek(seek_); }

private:
    const SeekRequest seek_;
    const uint64_t from_;
};

void op_lseek(fuse_req_t request, fuse_ino_t node, off_t offset, int whence, fuse_file_info*)
{
    if (whence != SEEK_DATA && whence != SEEK_HOLE) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    if (offset < 0) {
        fuse_reply_err(request, ENXIO);
        return;
    }
    Frontend& frontend = frontend_of(request);
    const SeekRequest seek{request, inode_of(frontend, node), static_cast<uint64_t>(offset),
                           whence == SEEK_DATA ? Files::Seek::kData : Files::Seek::kHole};
    if (seek.offset >= HeldSeek::kEnd || !frontend.page_cache.may_be_mapped(seek.inode)) {
        answer_seek(seek);
        return;
    }
    frontend.invalidator.enter_anyway();
    frontend.invalidator.submit(std::make_unique<HeldSeek>(seek));
}

}  // namespace

void add_seek_ops(fuse_lowlevel_ops& ops)
{
    ops.lseek = op_lseek;
}

}  // namespace cowraid
