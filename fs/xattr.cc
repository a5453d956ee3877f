// SPDX-License-Identifier: MIT
// Extended attributes: small values by name beside an inode.
#include <sys/xattr.h>

#include <climits>

#include "format/items.h"
#include "format/node.h"
#include "fs/names.h"
#include "fs/namespace.h"

namespace cowraid {

namespace {

constexpr size_t kXattrValueBytesMax = 65536;  // what setxattr(2) takes
constexpr size_t kUsualItemBytes = 256;  // a long item counts as several when room is asked for

Status check_xattr_name(std::string_view name)
{
    if (name.empty() || name.size() > kMaxNameBytes)
        return Err::kRange;
    return name.find('\0') == std::string_view::npos ? Err::kOk : Err::kInvalid;
}

Status check_set(std::string_view name, std::span<const std::byte> value, int flags)
{
    CW_TRY(check_xattr_name(name));
    if (flags != 0 && flags != XATTR_CREATE && flags != XATTR_REPLACE)
        return Err::kInvalid;
    if (value.size() > kXattrValueBytesMax)
        return Err::kTooBig;
    return sizeof(DiskXattr) + name.size() + value.size() > kMaxItemBytes ? Err::kNoSpace : Err::kOk;
}

Result<XattrSlot> find_in_bucket(FilesystemCore& core, InodeNumber inode, std::string_view name)
{
    return find_xattr(core.store, core.volume->superblock().name_hash_seed, inode, name);
}

// The slot that `flags` allow to be written.
Result<XattrSlot> find_writable(FilesystemCore& core, InodeNumber inode, std::string_view name, int flags)
{
    CW_ASSIGN(XattrSlot slot, find_in_bucket(core, inode, name));
    if (slot.found && flags == XATTR_CREATE)
        return Err::kExists;
    if (!slot.found && flags == XATTR_REPLACE)
        return Err::kNoData;
    if (!slot.found && slot.free_cursor == 0)
        return Err::kNoSpace;
    return slot;
}

Result<XattrSlot> find_present(FilesystemCore& core, InodeNumber inode, std::string_view name)
{
    CW_ASSIGN(XattrSlot slot, find_in_bucket(core, inode, name));
    if (!slot.found)
        return Err::kNoData;
    return slot;
}

void stamp_change(Operation& op, Inode& inode) CW_REQUIRES(inode.mutex)
{
    inode.attributes.changed = current_time();
    op.store(inode);
}

}  // namespace

Status set_xattr(FilesystemCore& core, InodeNumber inode, std::string_view name,
                 std::span<const std::byte> value, int flags)
{
    CW_TRY(check_set(name, value, flags));
    CW_ASSIGN(const InodeUse use, use_inode(core, inode));
    CW_TRY(find_writable(core, inode, name, flags).status());
    Operation op(core);
    CW_TRY(op.begin(Operation::Kind::kGrow, 2 + static_cast<uint32_t>(value.size() / kUsualItemBytes)));
    MutexLock lock(use->mutex);
    if (use->removed)
        return Err::kStale;
    CW_ASSIGN(const XattrSlot slot, find_writable(core, inode, name, flags));
    const uint64_t cursor = slot.found ? slot.xattr.cursor : slot.free_cursor;
    op.put(xattr_key(inode, cursor), encode_xattr(name, value));
    stamp_change(op, *use);
    return {};
}

Result<std::vector<std::byte>> get_xattr(FilesystemCore& core, InodeNumber inode, std::string_view name)
{
    CW_TRY(check_xattr_name(name));
    CW_ASSIGN(const InodeUse use, use_inode(core, inode));
    CW_ASSIGN(XattrSlot slot, find_present(core, inode, name));
    return std::move(slot.xattr.value);
}

Result<std::string> list_xattrs(FilesystemCore& core, InodeNumber inode)
{
    CW_ASSIGN(const InodeUse use, use_inode(core, inode));
    std::string names;
    ItemScan scan(core.store, core.store.view(), xattr_key(inode, 0), xattr_key(inode, UINT64_MAX));
    while (true) {
        const Status status = scan.next();
        if (status.err() == Err::kNotFound)
            return names;
        CW_TRY(status);
        CW_ASSIGN(const Xattr xattr, decode_xattr(scan.key().offset, scan.value()));
        names.append(xattr.name).push_back('\0');
    }
}

Status remove_xattr(FilesystemCore& core, InodeNumber inode, std::string_view name)
{
    CW_TRY(check_xattr_name(name));
    CW_ASSIGN(const InodeUse use, use_inode(core, inode));
    CW_TRY(find_present(core, inode, name).status());
    Operation op(core);
    CW_TRY(op.begin(Operation::Kind::kShrink, 2));
    MutexLock lock(use->mutex);
    if (use->removed)
        return Err::kStale;
    CW_ASSIGN(const XattrSlot slot, find_present(core, inode, name));
    op.erase(xattr_key(inode, slot.xattr.cursor));
    stamp_change(op, *use);
    return {};
}

}  // namespace cowraid
