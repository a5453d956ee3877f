// SPDX-License-Identifier: MIT
// Extended attributes: user.*, trusted.*, security.*, and access control lists. Who may do what with them is
// the kernel's; it checks lists, too, before it sends them. Whether a file is compressed is an attribute
// under the name that btrfs gave it, so that programs which copy attributes copy it; it is stored as flags.
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "fuse/frontend.h"
#include "fuse/set_id.h"

namespace cowraid {

namespace {

constexpr std::string_view kUserPrefix = "user.";
constexpr std::string_view kTrustedPrefix = "trusted.";
constexpr std::string_view kSecurityPrefix = "security.";
constexpr std::string_view kAccessAcl = "system.posix_acl_access";
constexpr std::string_view kDefaultAcl = "system.posix_acl_default";

bool stored_name(std::string_view name)
{
    return name.starts_with(kUserPrefix) || name.starts_with(kTrustedPrefix) ||
           name.starts_with(kSecurityPrefix) || name == kAccessAcl || name == kDefaultAcl;
}

constexpr std::string_view kCompression = "btrfs.compression";
constexpr uint64_t kCompressionFlags = kInodeCompress | kInodeNoCompress;

// What the attribute says; empty: nothing.
std::string_view compression_value(uint64_t flags)
{
    if ((flags & kInodeCompress) != 0)
        return "zstd";
    return (flags & kInodeNoCompress) != 0 ? "none" : "";
}

// An empty value takes the attribute away, as in btrfs. Levels are the mount's.
Result<uint64_t> compression_flags(std::string_view value)
{
    if (value == "zstd")
        return kInodeCompress;
    if (value == "none" || value == "no")
        return kInodeNoCompress;
    return value.empty() ? Result<uint64_t>(0) : Result<uint64_t>(Err::kInvalid);
}

Served set_compression(fuse_req_t request, InodeNumber inode, std::string_view value, int flags)
{
    Names& names = filesystem_of(request).names;
    const Result<uint64_t> wanted = compression_flags(value);
    const Result<uint64_t> now = names.get_flags(inode);
    if (!wanted.ok() || !now.ok())
        return reply_status(request, wanted.ok() ? now.status() : wanted.status());
    // As any other attribute. By ioctl(2) the owner may.
    if ((*now & (kInodeImmutable | kInodeAppend)) != 0)
        return reply_status(request, Err::kNotPermitted);
    const bool there = (*now & kCompressionFlags) != 0;
    if (flags == XATTR_CREATE && there)
        return reply_status(request, Err::kExists);
    if (flags == XATTR_REPLACE && !there)
        return reply_status(request, Err::kNoData);
    return reply_file_change(request, inode,
                             names.set_flags(inode, kCompressionFlags, *wanted, flag_setter_of(request)));
}

struct SetXattrRequest {
    fuse_req_t request;
    InodeNumber inode;
    Caller caller;
    std::string name;
    std::span<const char> value;  // the session's until keep()
    int flags;
    KeptData kept;

    Served operator()() const
    {
        Names& names = filesystem_of(request).names;
        return reply_file_change(request, inode,
                                 names.set_xattr(inode, name, std::as_bytes(value), flags, caller));
    }
    [[nodiscard]] bool keep()
    {
        Frontend& frontend = frontend_of(request);
        const bool done = kept.copy(frontend.kept_value_bytes, frontend.kept_bytes_most() / 2, value);
        if (done)
            value = kept.bytes();
        return done;
    }
};

void op_setxattr(fuse_req_t request, fuse_ino_t node, const char* name, const char* value, size_t bytes,
                 int flags)
{
    const InodeNumber inode = inode_of(request, node);
    if (name == kCompression) {
        serve(request, [=, value = std::string(value, bytes)] {
            return set_compression(request, inode, value, flags);
        });
        return;
    }
    if (!stored_name(name)) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    const Caller caller = name == kAccessAcl ? acl_caller(request, inode) : Caller{};
    serve(request, SetXattrRequest{.request = request,
                                   .inode = inode,
                                   .caller = caller,
                                   .name = name,
                                   .value = {value, bytes},
                                   .flags = flags,
                                   .kept = {}});
}

// A size of 0 asks how much room the answer needs.
void reply_xattr_bytes(fuse_req_t request, const void* bytes, size_t count, size_t room)
{
    if (room == 0)
        fuse_reply_xattr(request, count);
    else if (count > room)
        fuse_reply_err(request, ERANGE);
    else
        fuse_reply_buf(request, static_cast<const char*>(bytes), count);
}

// overlayfs notes in what it copied up which file of a lower layer that was. If it is of a FUSE filesystem,
// Linux (6.18) finds it by its handle, but takes what it found for outdated: the name in the overlay answers
// ESTALE from then on. An empty value says that the origin is not known. The value is the kernel's ovl_fb.
bool is_origin_on_fuse(std::string_view name, std::string_view value)
{
    constexpr std::string_view kMagic("\0\xfb", 2);
    constexpr size_t kTypeAt = 4;
    constexpr std::string_view kTypes = "\x81\x82";  // XFS has them, too
    constexpr std::string_view kNoUuid("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);  // FUSE never has one
    return (name == "trusted.overlay.origin" || name == "user.overlay.origin") && value.starts_with(kMagic) &&
           value.size() > kTypeAt && kTypes.find(value[kTypeAt]) != std::string_view::npos &&
           value.substr(kTypeAt + 1).starts_with(kNoUuid);
}

void op_getxattr(fuse_req_t request, fuse_ino_t node, const char* name, size_t room)
{
    if (name == kCompression) {
        const Result<uint64_t> flags = filesystem_of(request).names.get_flags(inode_of(request, node));
        const std::string_view value = flags.ok() ? compression_value(*flags) : "";
        if (!flags.ok() || value.empty())
            reply_status(request, flags.ok() ? Status(Err::kNoData) : flags.status());
        else
            reply_xattr_bytes(request, value.data(), value.size(), room);
        return;
    }
    if (!stored_name(name)) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    const auto value = filesystem_of(request).names.get_xattr(inode_of(request, node), name);
    if (!value.ok()) {
        reply_status(request, value.status());
        return;
    }
    const std::string_view text(reinterpret_cast<const char*>(value->data()), value->size());
    reply_xattr_bytes(request, text.data(), is_origin_on_fuse(name, text) ? 0 : text.size(), room);
}

// `names` without those that only root may see.
std::string visible_names(const std::string& names, uid_t uid)
{
    if (uid == 0)
        return names;
    std::string out;
    for (size_t begin = 0; begin < names.size();) {
        const size_t end = std::min(names.find('\0', begin), names.size() - 1);
        const std::string_view name(names.data() + begin, end - begin);
        if (!name.starts_with(kTrustedPrefix))
            out.append(names, begin, end + 1 - begin);
        begin = end + 1;
    }
    return out;
}

class ListRequest final : public LongRequest {
public:
    ListRequest(fuse_req_t request, std::unique_ptr<XattrList> list, InodeNumber inode, size_t room)
        : LongRequest(request, std::move(list), WhenKilled::kEnd), inode_(inode), room_(room)
    {
    }
    void finish(Status status) override
    {
        if (!status.ok()) {
            reply_status(request(), status);
            return;
        }
        std::string visible =
            visible_names(static_cast<XattrList&>(change()).names(), fuse_req_ctx(request())->uid);
        const Result<uint64_t> flags = filesystem_of(request()).names.get_flags(inode_);
        if (flags.ok() && (*flags & kCompressionFlags) != 0)
            visible.append(kCompression).push_back('\0');
        reply_xattr_bytes(request(), visible.data(), visible.size(), room_);
    }

private:
    const InodeNumber inode_;
    const size_t room_;
};

void op_listxattr(fuse_req_t request, fuse_ino_t node, size_t room)
{
    const InodeNumber inode = inode_of(request, node);
    auto begun = filesystem_of(request).names.begin_list_xattrs(inode);
    if (begun.ok())
        frontend_of(request).long_requests.run(
            std::make_unique<ListRequest>(request, begun.take(), inode, room));
    else
        reply_status(request, begun.status());
}

void op_removexattr(fuse_req_t request, fuse_ino_t node, const char* name)
{
    if (name == kCompression) {
        serve(request, [=, inode = inode_of(request, node)] {
            return set_compression(request, inode, "", XATTR_REPLACE);
        });
        return;
    }
    if (!stored_name(name)) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    serve(request, [=, name = std::string(name), inode = inode_of(request, node)] {
        return reply_file_change(request, inode, filesystem_of(request).names.remove_xattr(inode, name));
    });
}

}  // namespace

void add_xattr_ops(fuse_lowlevel_ops& ops)
{
    ops.setxattr = op_setxattr;
    ops.getxattr = op_getxattr;
    ops.listxattr = op_listxattr;
    ops.removexattr = op_removexattr;
}

}  // namespace cowraid
