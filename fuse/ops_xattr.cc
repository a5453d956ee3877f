// SPDX-License-Identifier: MIT
// Extended attributes: user.*, trusted.*, security.*, and access control lists. Who may do what with them is
// the kernel's; it checks lists, too, before it sends them.
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

void op_setxattr(fuse_req_t request, fuse_ino_t node, const char* name, const char* value, size_t bytes,
                 int flags)
{
    if (!stored_name(name)) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    const InodeNumber inode = inode_of(request, node);
    const Caller caller = name == kAccessAcl ? acl_caller(request, inode) : Caller{};
    serve(request, [=, name = std::string(name), value = std::string(value, bytes)] {
        return reply_status(request, filesystem_of(request).names.set_xattr(
                                         inode, name, std::as_bytes(std::span(value)), flags, caller));
    });
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

void op_getxattr(fuse_req_t request, fuse_ino_t node, const char* name, size_t room)
{
    if (!stored_name(name)) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    const auto value = filesystem_of(request).names.get_xattr(inode_of(request, node), name);
    if (value.ok())
        reply_xattr_bytes(request, value->data(), value->size(), room);
    else
        reply_status(request, value.status());
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
    ListRequest(fuse_req_t request, std::unique_ptr<XattrList> list, size_t room)
        : LongRequest(request, std::move(list), WhenKilled::kEnd), room_(room)
    {
    }
    void finish(Status status) override
    {
        if (!status.ok()) {
            reply_status(request(), status);
            return;
        }
        const std::string visible =
            visible_names(static_cast<XattrList&>(change()).names(), fuse_req_ctx(request())->uid);
        reply_xattr_bytes(request(), visible.data(), visible.size(), room_);
    }

private:
    const size_t room_;
};

void op_listxattr(fuse_req_t request, fuse_ino_t node, size_t room)
{
    auto begun = filesystem_of(request).names.begin_list_xattrs(inode_of(request, node));
    if (begun.ok())
        frontend_of(request).long_requests.run(std::make_unique<ListRequest>(request, begun.take(), room));
    else
        reply_status(request, begun.status());
}

void op_removexattr(fuse_req_t request, fuse_ino_t node, const char* name)
{
    if (!stored_name(name)) {
        fuse_reply_err(request, EOPNOTSUPP);
        return;
    }
    serve(request, [=, name = std::string(name)] {
        return reply_status(request,
                            filesystem_of(request).names.remove_xattr(inode_of(request, node), name));
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
