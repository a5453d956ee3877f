// SPDX-License-Identifier: MIT
// Where files have data and where they have holes.
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <memory>
#include <utility>

#include "fuse/frontend.h"

namespace cowraid {

namespace {

void answer_seek(fuse_req_t request, Status status, uint64_t found)
{
    if (status.ok())
        fuse_reply_lseek(request, static_cast<off_t>(found));
    else if (status.err() == Err::kNotFound)
        fuse_reply_err(request, ENXIO);
    else
        reply_status(request, status);
}

class SeekRequest final : public LongRequest {
public:
    SeekRequest(fuse_req_t request, std::unique_ptr<LongSeek> seek)
        : LongRequest(request, std::move(seek), WhenKilled::kEnd)
    {
    }
    void finish(Status status) override
    {
        answer_seek(request(), status, static_cast<LongSeek&>(change()).offset());
    }
};

struct AskedSeek {
    fuse_req_t request;
    InodeNumber inode;
    uint64_t offset;
    Files::Seek what;
};

// Hands the seek to one of the two calls of LongRequests.
void begin_seek(const AskedSeek& asked, void (LongRequests::*how)(std::unique_ptr<LongRequest>))
{
    Frontend& frontend = frontend_of(asked.request);
    auto begun = frontend.filesystem->files.begin_seek(asked.inode, asked.offset, asked.what);
    if (begun.ok())
        (frontend.long_requests.*how)(std::make_unique<SeekRequest>(asked.request, begun.take()));
    else
        answer_seek(asked.request, begun.status(), 0);
}

// What a mapping was given may be in the page cache alone.
class HeldSeek final : public HeldAnswer {
public:
    static constexpr uint64_t kEnd =
        uint64_t{std::numeric_limits<int64_t>::max()} / kBlockBytes * kBlockBytes;

    explicit HeldSeek(const AskedSeek& seek) : seek_(seek), from_(round_down(seek.offset, kBlockBytes))
    {
        frontend_of(seek.request).page_cache.begin_any_drop(seek.inode, from_, kEnd - from_);
    }
    void drop() override
    {
        Frontend& frontend = frontend_of(seek_.request);
        drop_cached_pages(frontend, frontend.range_dropper, seek_.inode, from_, kEnd - from_);
        frontend.page_cache.end_drop(seek_.inode, from_, kEnd - from_);
    }
    // It may have many extents to look at, while other requests wait for this thread.
    void answer() override { begin_seek(seek_, &LongRequests::hand_over); }
    void refuse() override
    {
        frontend_of(seek_.request).page_cache.give_up_drop(seek_.inode, from_, kEnd - from_);
        answer_seek(seek_.request, Err::kShutdown, 0);
    }

private:
    const AskedSeek seek_;
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
    const AskedSeek seek{request, inode_of(frontend, node), static_cast<uint64_t>(offset),
                         whence == SEEK_DATA ? Files::Seek::kData : Files::Seek::kHole};
    if (seek.offset >= HeldSeek::kEnd || !frontend.page_cache.may_be_mapped(seek.inode)) {
        begin_seek(seek, &LongRequests::run);
        return;
    }
    frontend.range_invalidator.submit(fuse_req_ctx(request)->uid, std::make_unique<HeldSeek>(seek));
}

}  // namespace

void add_seek_ops(fuse_lowlevel_ops& ops)
{
    ops.lseek = op_lseek;
}

}  // namespace cowraid
