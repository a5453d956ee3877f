// SPDX-License-Identifier: MIT
// getattr, setattr, statfs.
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <memory>
#include <utility>

#include "fuse/frontend.h"
#include "fuse/set_id.h"
#include "fuse/translate_request.h"

namespace cowraid {

namespace {

constexpr unsigned long kNameBytesMax = 255;
constexpr uint64_t kInodeCountMax = (uint64_t{1} << 42) - 1;

// The answer to a STATX, of the protocol since 7.39; older <linux/fuse.h> have no names for it.
struct StatxTime {
    int64_t seconds = 0;
    uint32_t nanoseconds = 0;
    int32_t reserved = 0;
};
struct StatxOut {
    uint64_t valid_seconds = 0;
    uint32_t valid_nanoseconds = 0, flags = 0;
    uint64_t spare1[2] = {};
    uint32_t mask = STATX_BASIC_STATS | STATX_BTIME, block_bytes = 0;
    uint64_t attributes = 0;
    uint32_t link_count = 0, uid = 0, gid = 0;
    uint16_t mode = 0, spare2 = 0;
    uint64_t inode = 0, size_bytes = 0, block_count_512 = 0, attributes_mask = 0;
    StatxTime accessed, created, changed, modified;
    uint32_t rdev_major = 0, rdev_minor = 0, dev_major = 0, dev_minor = 0;
    uint64_t spare3[14] = {};
};
static_assert(sizeof(StatxOut) == 288);

StatxTime statx_time(const timespec& time)
{
    return {time.tv_sec, static_cast<uint32_t>(time.tv_nsec)};
}

void reply_statx(fuse_req_t request, const Attributes& attributes)
{
    StatxOut out;
    out.valid_seconds = static_cast<uint64_t>(attribute_seconds(attributes));
    out.block_bytes = kBlockSizeHint;
    out.link_count = attributes.link_count;
    out.uid = attributes.uid;
    out.gid = attributes.gid;
    out.mode = static_cast<uint16_t>(attributes.mode);
    out.inode = attributes.inode.value;
    out.size_bytes = attributes.size_bytes;
    out.block_count_512 = attributes.block_count_512;
    out.accessed = statx_time(attributes.accessed);
    out.created = statx_time(attributes.created);
    out.changed = statx_time(attributes.changed);
    out.modified = statx_time(attributes.modified);
    out.rdev_major = major(attributes.rdev);
    out.rdev_minor = minor(attributes.rdev);
    fuse_reply_buf(request, reinterpret_cast<const char*>(&out), sizeof out);
}

void op_getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*)
{
    const auto attributes = filesystem_of(request).names.get_attributes(inode_of(request, node));
    if (request_is_statx() && attributes.ok())
        reply_statx(request, *attributes);
    else
        reply_attributes(request, attributes);
}

SetAttributes change_of(const struct stat& wanted, int to_set)
{
    SetAttributes change;
    if ((to_set & FUSE_SET_ATTR_MODE) != 0)
        change.mode = wanted.st_mode & 07777;
    if ((to_set & FUSE_SET_ATTR_UID) != 0)
        change.uid = wanted.st_uid;
    if ((to_set & FUSE_SET_ATTR_GID) != 0)
        change.gid = wanted.st_gid;
    if ((to_set & FUSE_SET_ATTR_SIZE) != 0)
        change.size_bytes = static_cast<uint64_t>(wanted.st_size);
    if ((to_set & FUSE_SET_ATTR_ATIME_NOW) != 0)
        change.accessed_now = true;
    else if ((to_set & FUSE_SET_ATTR_ATIME) != 0)
        change.accessed = wanted.st_atim;
    if ((to_set & FUSE_SET_ATTR_MTIME_NOW) != 0)
        change.modified_now = true;
    else if ((to_set & FUSE_SET_ATTR_MTIME) != 0)
        change.modified = wanted.st_mtim;
    if ((to_set & FUSE_SET_ATTR_CTIME) != 0)
        change.changed = wanted.st_ctim;
    return change;
}

class SizeRequest final : public LongRequest {
public:
    SizeRequest(fuse_req_t request, std::unique_ptr<AttributeChange> change, InodeNumber inode,
                uint64_t size_bytes)
        : LongRequest(request, std::move(change), WhenKilled::kGoOn), inode_(inode), size_bytes_(size_bytes)
    {
    }
    void finish(Status status) override
    {
        const auto answer = [request = request(), inode = inode_, size_bytes = size_bytes_,
                             changed =
                                 static_cast<const AttributeChange&>(change()).attributes](Status durable) {
            if (durable.ok())
                reply_attributes(request, changed);
            else
                reply_failed_size(request, inode, size_bytes, durable);
        };
        if (status.ok())
            answer_file_change(request(), inode_, answer);
        else
            answer(status);
    }

private:
    const InodeNumber inode_;
    const uint64_t size_bytes_;
};

void op_setattr(fuse_req_t request, fuse_ino_t node, struct stat* wanted, int to_set, fuse_file_info*)
{
    Frontend& frontend = frontend_of(request);
    const InodeNumber inode = inode_of(frontend, node);
    const SetAttributes change = change_of(*wanted, to_set);
    const Caller caller = changing_caller(request, inode, SetIdRule::kAsRequested);
    if (!change.size_bytes) {
        serve(request, [=, &frontend] {
            return reply_changed_attributes(request,
                                            frontend.filesystem->names.set_attributes(inode, change, caller));
        });
        return;
    }
    auto begun = frontend.filesystem->names.begin_set_attributes(inode, change, caller);
    if (begun.ok())
        frontend.long_requests.run(
            std::make_unique<SizeRequest>(request, begun.take(), inode, *change.size_bytes));
    else
        reply_status(request, begun.status());
}

void op_statfs(fuse_req_t request, fuse_ino_t)
{
    const VolumeStatistics numbers = filesystem_of(request).statistics();
    struct statvfs out { };
    out.f_bsize = numbers.block_bytes;
    out.f_frsize = numbers.block_bytes;
    out.f_blocks = numbers.total_blocks;
    out.f_bfree = numbers.free_blocks;
    out.f_bavail = numbers.available_blocks;
    out.f_files = kInodeCountMax;
    out.f_ffree = kInodeCountMax - numbers.inode_count;
    out.f_favail = out.f_ffree;
    out.f_namemax = kNameBytesMax;
    fuse_reply_statfs(request, &out);
}

}  // namespace

void add_attribute_ops(fuse_lowlevel_ops& ops)
{
    ops.getattr = op_getattr;
    ops.setattr = op_setattr;
    ops.statfs = op_statfs;
}

}  // namespace cowraid
