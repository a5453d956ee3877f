// SPDX-License-Identifier: MIT
// Extended attributes as items, for the calls that read and change them, and for those that keep access
// lists and capabilities with the rest of an inode.
#pragma once

#include <sys/stat.h>

#include <string_view>
#include <vector>

#include "format/acl_codec.h"
#include "fs/files/inode.h"
#include "fs/names/dirent.h"
#include "fs/txn/operation.h"

namespace cowraid {

inline constexpr std::string_view kCapabilityName = "security.capability";

inline constexpr uint32_t kPermissionBits = S_IRWXU | S_IRWXG | S_IRWXO;  // of a mode

// Items that putting an access list takes when room is asked for.
inline constexpr uint32_t kAclItems = 18;

XattrKind xattr_kind(std::string_view name);

// The slot of the name, as find_xattr() says. kCorrupt, kIo, kTooManyFaults.
Result<XattrSlot> find_xattr_slot(Store& store, InodeNumber inode, std::string_view name);

// Whether the inode has that attribute, which is not an ordinary one: a look at the tree once, or whenever it
// has. Reads the nodes that a look under the lock needs. No locks held.
Result<bool> has_xattr(Store& store, Inode& inode, std::string_view name);

// Replaces what `slot`, found under the same lock, has by these parts (encode_xattr()); none: it is removed.
// The caller stores the inode.
void put_xattr(Store& store, Operation& op, Inode& inode, std::string_view name, const XattrSlot& slot,
               std::vector<ItemBytes> parts) CW_REQUIRES(inode.mutex);

// The access list of that name; empty: there is none. kCorrupt for one that no call of this program stored.
Result<Acl> find_acl(Store& store, Inode& inode, std::string_view name) CW_REQUIRES(inode.mutex);

// Permissions of owner, group and others as the mode shows them: those of the mask are the group's.
uint32_t acl_permissions(const Acl& acl);
void set_acl_permissions(Acl& acl, uint32_t mode);
// It says nothing that the mode does not say.
bool acl_is_mode(const Acl& acl);

// A new inode whose mode is what its maker asked for gets the rights that `inherited`, the default list of
// its directory, leaves it; without one (empty) those that `umask` leaves it. The caller stores the inode.
void inherit_rights(Store& store, Operation& op, Inode& child, Acl inherited, uint32_t umask)
    CW_REQUIRES(child.mutex);

}  // namespace cowraid
