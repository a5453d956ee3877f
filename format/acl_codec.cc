// SPDX-License-Identifier: MIT
#include "format/acl_codec.h"

#include <sys/stat.h>

#include <cstring>

#include "format/items.h"

namespace cowraid {

namespace {

// Places of the entries in a list. A tag of the first three kinds stands once.
constexpr bool may_follow(AclTag before, AclTag tag)
{
    switch (tag) {
    case AclTag::kOwner:
        return false;
    case AclTag::kUser:
    case AclTag::kGroup:
        return before == AclTag::kOwner || before == AclTag::kUser;
    case AclTag::kNamedGroup:
    case AclTag::kMask:
        return before == AclTag::kGroup || before == AclTag::kNamedGroup;
    case AclTag::kOther:
        return before == AclTag::kGroup || before == AclTag::kMask;
    }
    return false;
}

Status validate_entries(const Acl& acl)
{
    if (acl.empty() || acl.front().tag != AclTag::kOwner || acl.back().tag != AclTag::kOther)
        return Err::kInvalid;
    bool named = false, masked = false;
    for (size_t i = 0; i < acl.size(); ++i) {
        const AclEntry& entry = acl[i];
        if ((i > 0 && !may_follow(acl[i - 1].tag, entry.tag)) ||
            (entry.permissions & ~uint32_t{S_IRWXO}) != 0)
            return Err::kInvalid;
        const bool names = entry.tag == AclTag::kUser || entry.tag == AclTag::kNamedGroup;
        if (names && entry.id == UINT32_MAX)
            return Err::kInvalid;
        named = named || names;
        masked = masked || entry.tag == AclTag::kMask;
    }
    return named && !masked ? Err::kInvalid : Err::kOk;
}

}  // namespace

ItemBytes encode_acl(const Acl& acl)
{
    ItemBytes value(sizeof(DiskAcl) + acl.size() * sizeof(DiskAclEntry));
    const DiskAcl head{kAclVersion};
    std::memcpy(value.data(), &head, sizeof head);
    std::byte* out = value.data() + sizeof head;
    for (const AclEntry& entry : acl) {
        const DiskAclEntry disk{static_cast<uint16_t>(entry.tag), entry.permissions, entry.id};
        std::memcpy(out, &disk, sizeof disk);
        out += sizeof disk;
    }
    return value;
}

Result<Acl> decode_acl(std::span<const std::byte> value)
{
    DiskAcl head;
    if (value.size() > kAclBytesMax)
        return Err::kTooBig;
    if (value.size() < sizeof head || (value.size() - sizeof head) % sizeof(DiskAclEntry) != 0)
        return Err::kInvalid;
    std::memcpy(&head, value.data(), sizeof head);
    if (head.version != kAclVersion)
        return Err::kInvalid;
    Acl acl((value.size() - sizeof head) / sizeof(DiskAclEntry));
    const std::byte* in = value.data() + sizeof head;
    for (AclEntry& entry : acl) {
        DiskAclEntry disk;
        std::memcpy(&disk, in, sizeof disk);
        in += sizeof disk;
        entry = {static_cast<AclTag>(disk.tag.get()), disk.permissions, disk.id};
    }
    CW_TRY(validate_entries(acl));
    return acl;
}

}  // namespace cowraid
