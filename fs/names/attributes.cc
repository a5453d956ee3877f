// SPDX-License-Identifier: MIT
// Reading and setting attributes, and the access time that reading a file leaves behind.
#include <sys/stat.h>

#include <compare>
#include <memory>
#include <utility>

#include "format/items.h"
#include "fs/files/file_blocks.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"
#include "fs/names/removal.h"
#include "fs/names/xattr.h"

namespace cowraid {

namespace {

constexpr time_t kAccessSecondsMax = 24 * 60 * 60;
constexpr uint32_t kModeBits = 07777;

bool valid_time(const std::optional<timespec>& time)
{
    return !time || (time->tv_nsec >= 0 && time->tv_nsec < 1'000'000'000);
}

Status check_request(Inode& inode, const SetAttributes& change)
{
    if (!valid_time(change.accessed) || !valid_time(change.modified) || !valid_time(change.changed))
        return Err::kInvalid;
    if (!change.size_bytes)
        return {};
    MutexLock lock(inode.mutex);
    if (inode.attributes.is_directory())
        return Err::kIsDirectory;
    if (!inode.attributes.is_regular())
        return Err::kInvalid;
    if (inode.attributes.fixed())
        return Err::kNotPermitted;
    return *change.size_bytes > INT64_MAX ? Err::kFileTooBig : Err::kOk;
}

// "Now" as a time is what reading and writing stamp, too.
bool allowed_by_flags(const InodeAttributes& attributes, const SetAttributes& change)
{
    const bool stamps_only =
        !change.mode && !change.uid && !change.gid && !change.accessed && !change.modified;
    return !attributes.immutable() && (!attributes.fixed() || stamps_only);
}

bool asks_for_more_than_size(const SetAttributes& change)
{
    return change.mode || change.uid || change.gid || change.accessed || change.modified || change.changed ||
           change.modified_now || change.accessed_now;
}

// A new owner does not inherit the power to act as the old one. Set-gid without group execution is a mark
// for mandatory locks and stays, unless the caller may not leave it.
void change_owner(InodeAttributes& attributes, const SetAttributes& change, const Caller& caller)
{
    if (!change.uid && !change.gid)
        return;
    attributes.uid = change.uid.value_or(attributes.uid);
    attributes.gid = change.gid.value_or(attributes.gid);
    if (attributes.is_directory())
        return;
    attributes.mode &= ~uint32_t{S_ISUID};
    if ((attributes.mode & S_IXGRP) != 0)
        attributes.mode &= ~uint32_t{S_ISGID};
    clear_set_id(attributes, caller);
}

void change_times(InodeAttributes& attributes, const SetAttributes& change)
{
    const timespec now = current_time();
    attributes.accessed = change.accessed_now ? now : change.accessed.value_or(attributes.accessed);
    attributes.modified = change.modified_now ? now : change.modified.value_or(attributes.modified);
    attributes.changed = change.changed.value_or(now);
}

bool not_later(const timespec& a, const timespec& b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec <= b.tv_nsec;
}

// relatime: the first access after a change, else once a day.
bool access_is_news(const InodeAttributes& attributes, const timespec& now, AccessTime rule)
{
    if (rule == AccessTime::kStrict)
        return now.tv_sec != attributes.accessed.tv_sec || now.tv_nsec != attributes.accessed.tv_nsec;
    return not_later(attributes.accessed, attributes.modified) ||
           not_later(attributes.accessed, attributes.changed) ||
           attributes.accessed.tv_sec <= now.tv_sec - kAccessSecondsMax;
}

}  // namespace

Result<Attributes> Names::get_attributes(InodeNumber inode)
{
    CW_ASSIGN(const InodeUse use, use_inode(*this, inode));
    MutexLock lock(use->mutex);
    return attributes_of(*use);
}

namespace {

// The access list says of owner, group and others what the mode says. Nothing is changed on failure.
Status change_acl(Store& store, Operation& op, Inode& inode, uint32_t mode) CW_REQUIRES(inode.mutex)
{
    CW_ASSIGN(Acl acl, find_acl(store, inode, kAccessAclName));
    if (acl.empty())
        return {};
    set_acl_permissions(acl, mode);
    CW_ASSIGN(const XattrSlot slot, find_xattr_slot(store, inode.number, kAccessAclName));
    put_xattr(store, op, inode, kAccessAclName, slot, encode_xattr(kAccessAclName, encode_acl(acl)));
    return {};
}

Result<Attributes> apply_locked(Store& store, Operation& op, Inode& inode, const SetAttributes& change,
                                const Caller& caller) CW_REQUIRES(inode.mutex)
{
    if (inode.removed)
        return Err::kStale;
    InodeAttributes& attributes = inode.attributes;
    if (!allowed_by_flags(attributes, change))
        return Err::kNotPermitted;
    if (change.mode)
        CW_TRY(change_acl(store, op, inode, *change.mode));
    change_owner(attributes, change, caller);
    if (change.mode)
        attributes.mode = (attributes.mode & ~kModeBits) | (*change.mode & kModeBits);
    change_times(attributes, change);
    const bool only_times = !change.mode && !change.uid && !change.gid;
    store_inode(op, inode, only_times ? Changed::kTimes : Changed::kContent);
    return attributes_of(inode);
}

Result<Attributes> apply_change(Store& store, Inode& inode, const SetAttributes& change, const Caller& caller)
{
    while (true) {
        const Result<bool> listed = change.mode ? has_xattr(store, inode, kAccessAclName) : false;
        CW_TRY(listed.status());
        Operation op(store);
        // Truncating works on a full volume, whatever the kernel sends along with it.
        CW_TRY(op.begin(change.size_bytes ? Operation::Kind::kShrink : Operation::Kind::kGrow,
                        1 + (*listed ? kAclItems : 0)));
        MutexLock lock(inode.mutex);
        const bool appeared = change.mode && !*listed && (inode.absent_xattrs & kAccessAclXattr) == 0;
        if (!appeared)
            return apply_locked(store, op, inode, change, caller);
    }
}

class SizeChange final : public AttributeChange {
public:
    SizeChange(Names& names, InodeUse use, const SetAttributes& change, const Caller& caller)
        : names_(names),
          use_(std::move(use)),
          change_(change),
          caller_(caller),
          truncation_(names.files.begin_truncation(use_.ref(), *change.size_bytes, caller))
    {
    }
    Result<Progress> step() override
    {
        if (!begun_)
            CW_TRY(names_.drop_capability(use_->number));
        begun_ = true;
        const Result<Progress> progress = truncation_->step();
        if (!progress.ok() && progress.err() != Err::kWouldWait)
            queue_end_of_cut(names_, *use_);
        CW_TRY(progress.status());
        if (*progress == Progress::kMore)
            return Progress::kMore;
        if (asks_for_more_than_size(change_)) {
            CW_ASSIGN(attributes, apply_change(names_.store, *use_, change_, caller_));
        } else {
            MutexLock lock(use_->mutex);
            attributes = attributes_of(*use_);
        }
        return Progress::kDone;
    }

private:
    Names& names_;
    const InodeUse use_;
    const SetAttributes change_;
    const Caller caller_;
    const std::unique_ptr<LongChange> truncation_;
    bool begun_ = false;
};

}  // namespace

Result<std::unique_ptr<AttributeChange>>
Names::begin_set_attributes(InodeNumber inode, const SetAttributes& change, const Caller& caller)
{
    CW_ASSERT(change.size_bytes.has_value());
    CW_ASSIGN(InodeUse use, use_inode(*this, inode));
    CW_TRY(check_request(*use, change));
    return std::unique_ptr<AttributeChange>(
        std::make_unique<SizeChange>(*this, std::move(use), change, caller));
}

Result<Attributes> Names::set_attributes(InodeNumber inode, const SetAttributes& change, const Caller& caller)
{
    if (change.size_bytes) {
        CW_ASSIGN(const std::unique_ptr<AttributeChange> whole, begin_set_attributes(inode, change, caller));
        CW_TRY(finish_change(*whole));
        return whole->attributes;
    }
    CW_ASSIGN(const InodeUse use, use_inode(*this, inode));
    CW_TRY(check_request(*use, change));
    return apply_change(store, *use, change, caller);
}

void Names::note_access(InodeNumber inode)
{
    const AccessTime rule = store.live.access_time;
    if (rule == AccessTime::kNever || !store.service.writing())
        return;
    Result<InodeUse> found = use_inode(*this, inode);
    if (!found.ok())
        return;
    const InodeUse& use = *found;
    const timespec now = current_time();
    {
        MutexLock lock(use->mutex);
        const bool counts = store.live.directory_times || !use->attributes.is_directory();
        if (!counts || (use->attributes.flags & kInodeNoAccessTime) != 0 ||
            !access_is_news(use->attributes, now, rule))
            return;
    }
    // An access time that cannot be stored is no reason to fail a read.
    Operation op(store);
    if (!op.begin(Operation::Kind::kMinor, 1).ok())
        return;
    MutexLock lock(use->mutex);
    if (use->removed || !access_is_news(use->attributes, now, rule))
        return;
    use->attributes.accessed = now;
    store_inode(op, *use, Changed::kTimes);
}

}  // namespace cowraid
