// SPDX-License-Identifier: MIT
// Access control lists (POSIX.1e) as values of extended attributes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/key.h"

namespace cowraid {

inline constexpr std::string_view kAccessAclName = "system.posix_acl_access";
inline constexpr std::string_view kDefaultAclName = "system.posix_acl_default";
// The kernel reads no longer ones.
inline constexpr size_t kAclBytesMax = 4096;

enum class AclTag : uint16_t {
    kOwner = 0x01,
    kUser = 0x02,
    kGroup = 0x04,  // the file's group
    kNamedGroup = 0x08,
    kMask = 0x10,
    kOther = 0x20,
};

struct AclEntry {
    AclTag tag = AclTag::kOwner;
    uint16_t permissions = 0;  // S_IRWXO bits
    uint32_t id = UINT32_MAX;  // of kUser and kNamedGroup
};
using Acl = std::vector<AclEntry>;

ItemBytes encode_acl(const Acl& acl);
// The entries of a value, in its order: owner, users, group, groups, mask, others; a mask where users or
// groups are named. kInvalid for everything else, kTooBig above kAclBytesMax.
Result<Acl> decode_acl(std::span<const std::byte> value);

}  // namespace cowraid
