// SPDX-License-Identifier: MIT
// Extended attributes: values of up to 64 KiB by name beside an inode.
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <climits>
#include <optional>

#include "format/items.h"
#include "format/node.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"
#include "fs/names/xattr.h"

namespace cowraid {

namespace {

// Of one attribute, with the longest name.
constexpr uint32_t kXattrPartsMax =
    kXattrValueBytesMax / (kMaxItemBytes - sizeof(DiskXattr) - kMaxNameBytes) + 1;
constexpr size_t kUsualItemBytes = 256;  // a long item counts as several when room is asked for

Status check_xattr_name(std::string_view name)
{
    if (name.empty() || name.size() > kMaxNameBytes)
        return Err::kRange;
    if (name.find('.') == name.size() - 1)
        return Err::kInvalid;  // a namespace and no name in it
    return name.find('\0') == std::string_view::npos ? Err::kOk : Err::kInvalid;
}

Status check_set(std::string_view name, std::span<const std::byte> value, int flags)
{
    CW_TRY(check_xattr_name(name));
    if (flags != 0 && flags != XATTR_CREATE && flags != XATTR_REPLACE)
        return Err::kInvalid;
    return value.size() > kXattrValueBytesMax ? Err::kTooBig : Err::kOk;
}

// The slot that `flags` allow to be written, with room for as many parts.
Result<XattrSlot> find_writable(Store& store, InodeNumber inode, std::string_view name, int flags,
                                size_t part_count)
{
    CW_ASSIGN(XattrSlot slot, find_xattr_slot(store, inode, name));
    if (slot.found() && flags == XATTR_CREATE)
        return Err::kExists;
    if (!slot.found() && flags == XATTR_REPLACE)
        return Err::kNoData;
    if (slot.cursors.size() + slot.free_cursors.size() < part_count)
        return Err::kNoSpace;
    return slot;
}

Result<XattrSlot> find_present(Store& store, InodeNumber inode, std::string_view name)
{
    CW_ASSIGN(XattrSlot slot, find_xattr_slot(store, inode, name));
    if (!slot.found())
        return Err::kNoData;
    return slot;
}

bool is_acl(XattrKind kind)
{
    return kind == kAccessAclXattr || kind == kDefaultAclXattr;
}

// An access list, with what it says of the mode.
struct WantedAcl {
    std::optional<uint32_t> permissions;  // none: it says nothing of it
    bool stored = true;  // false: the mode says it all
};

Result<WantedAcl> check_acl(Inode& inode, XattrKind kind, std::span<const std::byte> value)
{
    if (!is_acl(kind))
        return WantedAcl();
    CW_ASSIGN(const Acl acl, decode_acl(value));
    MutexLock lock(inode.mutex);
    if (S_ISLNK(inode.attributes.mode))
        return Err::kUnsupported;
    if (kind == kAccessAclXattr)
        return WantedAcl{acl_permissions(acl), !acl_is_mode(acl)};
    return inode.attributes.is_directory() ? Result<WantedAcl>(WantedAcl()) : Err::kAccess;
}

void stamp_change(Operation& op, Inode& inode) CW_REQUIRES(inode.mutex)
{
    inode.attributes.changed = current_time();
    store_inode(op, inode);
}

class XattrWalk final : public XattrList {
public:
    XattrWalk(Store& store, InodeUse use) : store_(store), use_(std::move(use)) { }
    // A value that gets more parts moves inside its bucket: a step ends between buckets, and nobody changes
    // one meanwhile.
    Result<Progress> step() override
    {
        std::string ignored;
        uint64_t cursor = next_cursor_;
        walk(cursor, ignored).status().ignore();  // reads the nodes in
        MutexLock lock(use_->mutex);
        return walk(next_cursor_, names_);
    }

private:
    static constexpr size_t kStepItems = 256;

    // `cursor`: behind the bucket of the last item.
    Result<Progress> walk(uint64_t& cursor, std::string& names)
    {
        ItemScan scan(store_.items, store_.items.view(), xattr_key(use_->number, cursor),
                      xattr_key(use_->number, UINT64_MAX));
        for (size_t count = 0;; ++count) {
            const Status status = scan.next();
            if (status.err() == Err::kNotFound)
                return Progress::kDone;
            CW_TRY(status);
            const uint64_t at = scan.key().offset;
            if (count >= kStepItems && at >= cursor)
                return Progress::kMore;
            cursor = round_down(at, kBucketSlots) + kBucketSlots;
            CW_ASSIGN(const XattrPart part, decode_xattr(at, scan.value()));
            if (part.number == 0)
                names.append(part.name).push_back('\0');
            if (names.size() > Names::kMaxXattrListBytes)
                return Err::kTooBig;
        }
    }

    Store& store_;
    const InodeUse use_;
    uint64_t next_cursor_ = 0;
};

}  // namespace

XattrKind xattr_kind(std::string_view name)
{
    if (name == kAccessAclName)
        return kAccessAclXattr;
    if (name == kDefaultAclName)
        return kDefaultAclXattr;
    return name == kCapabilityName ? kCapabilityXattr : kOrdinaryXattr;
}

Result<XattrSlot> find_xattr_slot(Store& store, InodeNumber inode, std::string_view name)
{
    return find_xattr(store.items, store.volume.identity().name_hash_seed, inode, name);
}

Result<bool> has_xattr(Store& store, Inode& inode, std::string_view name)
{
    const XattrKind kind = xattr_kind(name);
    if ((inode.absent_xattrs & kind) != 0)
        return false;
    find_xattr_slot(store, inode.number, name).status().ignore();  // reads the nodes in
    MutexLock lock(inode.mutex);
    CW_ASSIGN(const XattrSlot slot, find_xattr_slot(store, inode.number, name));
    if (!slot.found())
        inode.absent_xattrs |= kind;
    return slot.found();
}

// The parts come into rising cursors of the bucket, the old ones first, and what is left of those is erased.
// A replacement overwrites the item at the first of the old ones: its bucket is empty at no moment.
void put_xattr(Store& store, Operation& op, Inode& inode, std::string_view name, const XattrSlot& slot,
               std::vector<ItemBytes> parts)
{
    std::vector<uint64_t> cursors = slot.cursors;
    cursors.insert(cursors.end(), slot.free_cursors.begin(), slot.free_cursors.end());
    for (size_t i = parts.size(); i < slot.cursors.size(); ++i)
        op.erase(xattr_key(inode.number, cursors[i]));
    cursors.resize(parts.size());
    std::sort(cursors.begin(), cursors.end());
    for (size_t i = 0; i < parts.size(); ++i)
        op.put(xattr_key(inode.number, cursors[i]), std::move(parts[i]));
    const XattrKind kind = xattr_kind(name);
    if (parts.empty()) {
        inode.absent_xattrs |= kind;
        return;
    }
    inode.absent_xattrs &= static_cast<uint8_t>(~kind);
    if (kind == kOrdinaryXattr || store.volume.keeps_rights())
        return;
    // An fsync makes a commit until a superblock says that there are such attributes.
    store.volume.keep_rights();
    op.transaction().loggable = false;
}

Status Names::set_xattr(InodeNumber inode, std::string_view name, std::span<const std::byte> value, int flags,
                        const Caller& caller)
{
    CW_TRY(check_set(name, value, flags));
    CW_ASSIGN(const InodeUse use, use_inode(*this, inode));
    CW_ASSIGN(const WantedAcl acl, check_acl(*use, xattr_kind(name), value));
    std::vector<ItemBytes> parts = acl.stored ? encode_xattr(name, value) : std::vector<ItemBytes>();
    // Brings the nodes into memory. What it says may be of two values, one of which is being replaced.
    find_writable(store, inode, name, flags, parts.size()).status().ignore();
    Operation op(store);
    const size_t item_count = 2 + kXattrPartsMax + value.size() / kUsualItemBytes;
    CW_TRY(op.begin(Operation::Kind::kGrow, static_cast<uint32_t>(item_count)));
    MutexLock lock(use->mutex);
    if (use->removed)
        return Err::kStale;
    if (use->attributes.fixed())
        return Err::kNotPermitted;
    CW_ASSIGN(const XattrSlot slot, find_writable(store, inode, name, flags, parts.size()));
    if (acl.permissions) {
        uint32_t& mode = use->attributes.mode;
        mode = (mode & ~kPermissionBits & ~(caller.cleared_mode_bits & S_ISGID)) | *acl.permissions;
    }
    put_xattr(store, op, *use, name, slot, std::move(parts));
    stamp_change(op, *use);
    return {};
}

Result<std::vector<std::byte>> Names::get_xattr(InodeNumber inode, std::string_view name)
{
    CW_TRY(check_xattr_name(name));
    CW_ASSIGN(const InodeUse use, use_inode(*this, inode));
    const XattrKind kind = xattr_kind(name);
    if (kind != kOrdinaryXattr) {
        CW_ASSIGN(const bool found, has_xattr(store, *use, name));
        if (!found)
            return Err::kNoData;
    }
    Result<XattrSlot> slot = find_xattr_slot(store, inode, name);
    // Most questions are for what no file has. A replacement keeps the first item of what it replaces.
    if (slot.ok() && slot->free_cursors.size() == kBucketSlots)
        return Err::kNoData;
    if (!slot.ok() || slot->cursors.size() != 1) {
        // Items that are replaced meanwhile may be of two values, or seem to be none.
        MutexLock lock(use->mutex);
        slot = find_present(store, inode, name);
    }
    CW_TRY(slot.status());
    if (is_acl(kind) && !decode_acl(slot->value).ok())
        return Err::kCorrupt;
    return std::move(slot->value);
}

Result<std::unique_ptr<XattrList>> Names::begin_list_xattrs(InodeNumber inode)
{
    CW_ASSIGN(InodeUse use, use_inode(*this, inode));
    return std::unique_ptr<XattrList>(std::make_unique<XattrWalk>(store, std::move(use)));
}

Result<std::string> Names::list_xattrs(InodeNumber inode)
{
    CW_ASSIGN(const std::unique_ptr<XattrList> list, begin_list_xattrs(inode));
    CW_TRY(finish_change(*list));
    return list->names();
}

Status Names::remove_xattr(InodeNumber inode, std::string_view name)
{
    CW_TRY(check_xattr_name(name));
    CW_ASSIGN(const InodeUse use, use_inode(*this, inode));
    const Status found = find_present(store, inode, name).status();
    // Who has no list has what its removal leaves. Errors may be of items that are being replaced.
    if (found.err() == Err::kNoData && is_acl(xattr_kind(name)))
        return {};
    Operation op(store);
    CW_TRY(op.begin(Operation::Kind::kShrink, 1 + kXattrPartsMax));
    MutexLock lock(use->mutex);
    if (use->removed)
        return Err::kStale;
    // A capability goes with an append, too.
    const bool goes_with_content = name == kCapabilityName && !use->attributes.immutable();
    if (use->attributes.fixed() && !goes_with_content)
        return Err::kNotPermitted;
    CW_ASSIGN(const XattrSlot slot, find_present(store, inode, name));
    put_xattr(store, op, *use, name, slot, {});
    stamp_change(op, *use);
    return {};
}

Status Names::drop_capability(InodeNumber inode)
{
    CW_ASSIGN(const InodeUse use, use_inode(*this, inode));
    CW_ASSIGN(const bool found, has_xattr(store, *use, kCapabilityName));
    if (!found)
        return {};
    const Status removed = remove_xattr(inode, kCapabilityName);
    return removed.err() == Err::kNoData ? Status() : removed;
}

}  // namespace cowraid
