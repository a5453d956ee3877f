// SPDX-License-Identifier: MIT
// getattr, setattr, statfs.
#include <sys/statvfs.h>

#include <memory>
#include <utility>

#include "fuse/frontend.h"
#include "fuse/set_id.h"

namespace cowraid {

namespace {

constexpr unsigned long kNameBytesMax = 255;
constexpr uint64_t kInodeCountMax = (uint64_t{1} << 42) - 1;

void op_getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*)
{
    reply_attributes(request, filesystem_of(request).names.get_attributes(inode_of(request, node)));
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
        if (status.ok())
            reply_attributes(request(), static_cast<const AttributeChange&>(change()).attributes);
        else
            reply_failed_size(request(), inode_, size_bytes_, status);
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
            return reply_attributes(request,
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
