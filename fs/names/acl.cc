// SPDX-License-Identifier: MIT
// Access control lists beside the mode: what a file inherits, and what both say alike. Who may do what is
// decided by the kernel.
#include <algorithm>
#include <array>

#include "format/node.h"
#include "fs/names/xattr.h"

namespace cowraid {

namespace {

static_assert(sizeof(DiskXattr) + kDefaultAclName.size() + kAclBytesMax <= kMaxItemBytes,
              "an access list has one part");

struct Shown {
    AclTag tag;
    uint32_t shift;  // of its bits in the mode
};

// Which entries the mode shows.
std::array<Shown, 3> shown_in_mode(const Acl& acl)
{
    const bool masked =
        std::any_of(acl.begin(), acl.end(), [](const AclEntry& entry) { return entry.tag == AclTag::kMask; });
    return {{{AclTag::kOwner, 6}, {masked ? AclTag::kMask : AclTag::kGroup, 3}, {AclTag::kOther, 0}}};
}

// Of an inode that has no attributes yet. Both lists may stand in one bucket: each has a cursor of its own.
void put_first_acl(Store& store, Operation& op, Inode& inode, std::string_view name, const Acl& acl)
    CW_REQUIRES(inode.mutex)
{
    XattrSlot slot;
    const uint64_t bucket = name_bucket(store.volume.identity().name_hash_seed, name);
    slot.free_cursors = {bucket + (name == kDefaultAclName ? 1 : 0)};
    put_xattr(store, op, inode, name, slot, encode_xattr(name, encode_acl(acl)));
}

}  // namespace

uint32_t acl_permissions(const Acl& acl)
{
    uint32_t mode = 0;
    for (const Shown& shown : shown_in_mode(acl))
        for (const AclEntry& entry : acl)
            if (entry.tag == shown.tag)
                mode |= uint32_t{entry.permissions} << shown.shift;
    return mode;
}

void set_acl_permissions(Acl& acl, uint32_t mode)
{
    for (const Shown& shown : shown_in_mode(acl))
        for (AclEntry& entry : acl)
            if (entry.tag == shown.tag)
                entry.permissions = static_cast<uint16_t>((mode >> shown.shift) & S_IRWXO);
}

bool acl_is_mode(const Acl& acl)
{
    return acl.size() == 3;
}

Result<Acl> find_acl(Store& store, Inode& inode, std::string_view name)
{
    if ((inode.absent_xattrs & xattr_kind(name)) != 0)
        return Acl();
    CW_ASSIGN(const XattrSlot slot, find_xattr_slot(store, inode.number, name));
    if (!slot.found())
        return Acl();
    Result<Acl> acl = decode_acl(slot.value);
    if (!acl.ok())
        return Err::kCorrupt;
    return acl;
}

void inherit_rights(Store& store, Operation& op, Inode& child, Acl inherited, uint32_t umask)
{
    uint32_t& mode = child.attributes.mode;
    if (S_ISLNK(mode))
        return;
    if (inherited.empty()) {
        mode &= ~(umask & kPermissionBits);
        return;
    }
    if (child.attributes.is_directory())
        put_first_acl(store, op, child, kDefaultAclName, inherited);
    set_acl_permissions(inherited, acl_permissions(inherited) & mode);
    mode = (mode & ~kPermissionBits) | acl_permissions(inherited);
    if (!acl_is_mode(inherited))
        put_first_acl(store, op, child, kAccessAclName, inherited);
}

}  // namespace cowraid
