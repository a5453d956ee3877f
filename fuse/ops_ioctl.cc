// SPDX-License-Identifier: MIT
// What programs ask of the volume, or of a file, by ioctl(2).
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "fs/maintain/discards.h"
#include "fuse/caller_status.h"
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

    [[nodiscard]] bool wanted() const override { return !caller_was_killed(request_); }

private:
    const fuse_req_t request_;
    Frontend& frontend_;
    fstrim_range range_;
};

// As filesystems of the kernel: who has CAP_SYS_ADMIN.
bool may_trim(const fuse_ctx& caller)
{
    constexpr unsigned kCapSysAdmin = 21;
    const std::string status = caller_status(caller.pid);
    if (status.empty())
        return caller.uid == 0;
    return has_capability(status, kCapSysAdmin) && shares_user_namespace(caller.pid);
}

void trim(fuse_req_t request, std::span<const std::byte> in)
{
    fstrim_range range;
    if (in.size() != sizeof range) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    std::memcpy(&range, in.data(), sizeof range);
    Filesystem& filesystem = filesystem_of(request);
    if (!may_trim(*fuse_req_ctx(request))) {
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

// What a flag is called by the two ways of asking for it.
struct FlagName {
    uint64_t flag;
    uint32_t attribute, extended;
};
constexpr FlagName kFlagNames[] = {{kInodeImmutable, FS_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE},
                                   {kInodeAppend, FS_APPEND_FL, FS_XFLAG_APPEND},
                                   {kInodeNoDump, FS_NODUMP_FL, FS_XFLAG_NODUMP},
                                   {kInodeNoAccessTime, FS_NOATIME_FL, FS_XFLAG_NOATIME},
                                   {kInodeCompress, FS_COMPR_FL, 0},
                                   {kInodeNoCompress, FS_NOCOMP_FL, 0}};

uint32_t named(uint64_t flags, uint32_t FlagName::*name)
{
    uint32_t out = 0;
    for (const FlagName& one : kFlagNames)
        out |= (flags & one.flag) != 0 ? one.*name : 0;
    return out;
}

// Those that have such a name.
uint64_t mask_of(uint32_t FlagName::*name)
{
    uint64_t mask = 0;
    for (const FlagName& one : kFlagNames)
        mask |= one.*name != 0 ? one.flag : 0;
    return mask;
}

// kUnsupported: one has no such name.
Result<uint64_t> flags_of(uint32_t names, uint32_t FlagName::*name)
{
    uint64_t flags = 0;
    for (const FlagName& one : kFlagNames) {
        flags |= (names & one.*name) != 0 ? one.flag : 0;
        names &= ~(one.*name);
    }
    if (names != 0)
        return Err::kUnsupported;
    return flags;
}

template <typename Answer> void reply_flags(fuse_req_t request, const Result<uint64_t>& flags)
{
    if (!flags.ok()) {
        reply_status(request, flags.status());
        return;
    }
    Answer answer{};
    if constexpr (sizeof answer == sizeof(uint32_t))
        answer = named(*flags, &FlagName::attribute);
    else
        answer.fsx_xflags = named(*flags, &FlagName::extended);
    fuse_reply_ioctl(request, 0, &answer, sizeof answer);
}

void set_flags(fuse_req_t request, fuse_ino_t node, const Result<uint64_t>& flags, uint64_t mask)
{
    if (!flags.ok()) {
        reply_status(request, flags.status());
        return;
    }
    serve(request, [=, wanted = *flags, caller = flag_setter_of(request)] {
        const InodeNumber inode = inode_of(request, node);
        const Status status = filesystem_of(request).names.set_flags(inode, mask, wanted, caller);
        if (!status.ok())
            return reply_status(request, status);
        forget_cached_attributes(frontend_of(request), inode);  // the kernel keeps the time of the change
        answer_file_change(request, inode, [request](Status durable) {
            if (durable.ok())
                fuse_reply_ioctl(request, 0, nullptr, 0);
            else
                reply_status(request, durable);
        });
        return Served::kAnswered;
    });
}

// What else can be said so is not had here.
Result<uint64_t> flags_of(const fsxattr& extended)
{
    if (extended.fsx_extsize != 0 || extended.fsx_projid != 0 || extended.fsx_cowextsize != 0)
        return Err::kUnsupported;
    return flags_of(extended.fsx_xflags & ~uint32_t{FS_XFLAG_HASATTR}, &FlagName::extended);
}

template <typename Value> bool read_value(std::span<const std::byte> in, Value& value)
{
    if (in.size() != sizeof value)
        return false;
    std::memcpy(&value, in.data(), sizeof value);
    return true;
}

// The kernel asks for flags by these for statx(2), chattr(1) and the like since Linux 5.13.
bool answer_flags(fuse_req_t request, fuse_ino_t node, unsigned command, std::span<const std::byte> in)
{
    Names& names = filesystem_of(request).names;
    uint32_t attribute = 0;
    fsxattr extended;
    switch (command) {
    case FS_IOC_GETFLAGS:
        reply_flags<uint32_t>(request, names.get_flags(inode_of(request, node)));
        return true;
    case FS_IOC_FSGETXATTR:
        reply_flags<fsxattr>(request, names.get_flags(inode_of(request, node)));
        return true;
    case FS_IOC_SETFLAGS:
        set_flags(request, node,
                  read_value(in, attribute) ? flags_of(attribute, &FlagName::attribute) : Err::kInvalid,
                  mask_of(&FlagName::attribute));
        return true;
    case FS_IOC_FSSETXATTR:
        set_flags(request, node, read_value(in, extended) ? flags_of(extended) : Err::kInvalid,
                  mask_of(&FlagName::extended));
        return true;
    default:
        return false;
    }
}

void op_ioctl(fuse_req_t request, fuse_ino_t node, unsigned command, void*, fuse_file_info*, unsigned flags,
              const void* in, size_t in_bytes, size_t)
{
    const std::span bytes(static_cast<const std::byte*>(in), in_bytes);
    if ((flags & FUSE_IOCTL_COMPAT) != 0)
        fuse_reply_err(request, ENOTTY);
    else if (command == FITRIM)
        trim(request, bytes);
    else if (!answer_flags(request, node, command, bytes))
        fuse_reply_err(request, ENOTTY);
}

}  // namespace

void add_ioctl_ops(fuse_lowlevel_ops& ops)
{
    ops.ioctl = op_ioctl;
}

}  // namespace cowraid
