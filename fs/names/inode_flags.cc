// SPDX-License-Identifier: MIT
// Flags of inodes: what chattr(1) sets. The kernel does not know them; who changes an inode asks.
#include "format/feature_table.h"
#include "format/items.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"

namespace cowraid {

namespace {

constexpr uint64_t kBoth = kInodeCompress | kInodeNoCompress;

// Others get these flags from their folder, too, where they mean nothing.
bool may_be_compressed(const InodeAttributes& attributes)
{
    return attributes.is_regular() || attributes.is_directory();
}

}  // namespace

Result<uint64_t> Names::get_flags(InodeNumber inode)
{
    CW_ASSIGN(const InodeUse use, use_inode(*this, inode));
    MutexLock lock(use->mutex);
    return use->attributes.flags & kInodeUserFlags &
           (may_be_compressed(use->attributes) ? UINT64_MAX : ~kBoth);
}

Status Names::set_flags(InodeNumber inode, uint64_t mask, uint64_t wanted, const Caller& caller)
{
    constexpr uint64_t kFixed = kInodeImmutable | kInodeAppend;
    if ((wanted & ~kInodeUserFlags) != 0)
        return Err::kUnsupported;
    CW_ASSIGN(const InodeUse use, use_inode(*this, inode));
    // What makes room on a full volume may begin with that.
    bool releases = false;
    {
        MutexLock lock(use->mutex);
        releases = (use->attributes.flags & mask & ~wanted & kFixed) != 0;
    }
    Operation op(store);
    CW_TRY(op.begin(releases ? Operation::Kind::kShrink : Operation::Kind::kGrow, 1));
    MutexLock lock(use->mutex);
    if (use->removed)
        return Err::kStale;
    InodeAttributes& attributes = use->attributes;
    if ((wanted & mask & kBoth) != 0 && !may_be_compressed(attributes))
        return Err::kUnsupported;
    mask &= kInodeUserFlags;
    const uint64_t flags = (attributes.flags & ~mask) | (wanted & mask);
    if ((flags & kBoth) == kBoth)
        return Err::kInvalid;
    const uint64_t changed = attributes.flags ^ flags;
    const bool is_root = caller.uid == 0;
    if (!is_root && !caller.has_fowner && caller.uid != attributes.uid)
        return Err::kNotPermitted;
    if (!is_root && !caller.has_linux_immutable && (changed & kFixed) != 0)
        return Err::kNotPermitted;
    if (changed == 0)
        return {};
    // A record of the fsync log would come before the superblock that says so.
    if (!store.volume.need_features(feature_bit("inode_flags")))
        op.transaction().loggable = false;
    attributes.flags = flags;
    attributes.changed = current_time();
    store_inode(op, *use);
    return {};
}

Status Names::check_open(InodeNumber inode, OpenFor what)
{
    CW_ASSIGN(const InodeUse use, use_inode(*this, inode));
    MutexLock lock(use->mutex);
    const bool allowed =
        !use->attributes.immutable() && (!use->attributes.fixed() || what == OpenFor::kAppending);
    return allowed ? Err::kOk : Err::kNotPermitted;
}

}  // namespace cowraid
