// SPDX-License-Identifier: MIT
// A member in service is replaced (I-35): the target is a member without columns, to which everything is
// written that is written to the source. Groups that were copied as well are marked in the map. In the end
// the target gets the source's line of the member table, in one superblock, which it has before all others.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/log.h"
#include "device/superblock_store.h"
#include "format/feature_table.h"
#include "fs/volume/commit_mutant.h"
#include "fs/volume/missing_members.h"
#include "fs/volume/volume.h"

namespace cowraid {

namespace {

// Null: it has none.
const GroupColumn* column_on(const GroupRecord& group, MemberId id)
{
    const auto at = std::find_if(group.columns.begin(), group.columns.end(),
                                 [=](const GroupColumn& column) { return column.member == id; });
    return at == group.columns.end() ? nullptr : &*at;
}

}  // namespace

ReplaceRecord Volume::replacing() const
{
    MutexLock lock(mutex_);
    return shown_.replace;
}

bool Volume::source_failed() const
{
    MutexLock lock(mutex_);
    const MemberRecord* const source = shown_.member(shown_.replace.source);
    return source != nullptr && members_.device(source->id) == nullptr &&
           (members_.failed(source->id) || source->state == MemberState::kFailed);
}

MemberId Volume::begin_replace(MemberId source, std::unique_ptr<BlockDevice> device, uint64_t seconds,
                               MemberId spare)
{
    commit_thread_.assert_here();
    MemberRecord record = *next_.member(source);
    record.counters = {};
    const MemberId target = add_member(record, std::move(device));
    members_.set_leaving(target, true);
    next_.replace = {source, target, seconds};
    next_.incompat_features |= feature_bit("replace");
    becomes_target_ = spare;
    if (spare.value != 0)
        drop_spare(spare);
    forget_copied();
    return target;
}

bool Volume::end_replace()
{
    commit_thread_.assert_here();
    if (!remove_member(next_.replace.target))
        return false;
    members_.set_mirror(next_.replace.source, {});
    next_.replace = {};
    next_.incompat_features &= ~feature_bit("replace");
    forget_copied();
    return true;
}

void Volume::prepare_target()
{
    const ReplaceRecord& replace = committed_.replace;
    if (!replace.active())
        return;
    members_.set_leaving(replace.target, true);
    if (!is_mutant(CommitMutant::kWrittenToOneOnly))
        members_.set_mirror(replace.source, replace.target);
    MutexLock lock(mutex_);
    slots_.set_leaving(replace.target, true);
    forget_potential();
}

bool Volume::forget_copied(GroupRecord& group)
{
    if ((group.flags & kGroupCopied) == 0)
        return false;
    group.flags &= ~kGroupCopied;
    newly_stale_.push_back(group);
    map_changed_ = true;
    return true;
}

void Volume::forget_copied()
{
    for (GroupRecord& group : map_.groups)
        forget_copied(group);
    members_.forget_successor();
}

bool Volume::born_copied(const GroupRecord& group) const
{
    const ReplaceRecord& replace = committed_.replace;
    return replace.active() && next_.replace == replace && column_on(group, replace.source) != nullptr &&
           members_.device(replace.source) != nullptr && members_.device(replace.target) != nullptr;
}

bool Volume::take_over(NotCopied groups)
{
    commit_thread_.assert_here();
    apply_caught_up();  // a mark that came later would be of no replacement
    const ReplaceRecord& replace = next_.replace;
    const bool stale = groups == NotCopied::kStale;
    const auto lacks = [&](const GroupRecord& group) {
        return column_on(group, replace.source) != nullptr && (group.flags & kGroupCopied) == 0;
    };
    if (members_.device(replace.target) == nullptr ||
        (!stale && !is_mutant(CommitMutant::kTakenOverEarly) &&
         std::any_of(map_.groups.begin(), map_.groups.end(), lacks)))
        return false;
    for (GroupRecord& group : map_.groups) {
        if (stale && lacks(group)) {
            stale_before_.emplace_back(group.address, column_on(group, replace.source)->stale_since);
            mark_blank(group, replace.source);
        }
        forget_copied(group);
    }
    publish_stale();
    map_changed_ = true;
    taking_over_ = true;
    return true;
}

// What the next superblock says once the target has taken over.
Superblock Volume::with_successor() const
{
    Superblock next = next_;
    MemberRecord& line = *next.member(next_.replace.source);
    line = *next.member(next_.replace.target);
    line.id = next_.replace.source;
    line.state = MemberState::kPresent;
    line.missing_since = {};
    line.counters = {};
    std::erase_if(next.members, [target = next_.replace.target](const MemberRecord& record) {
        return record.id == target;
    });
    next.member_id = next_.replace.source;
    next.replace = {};
    next.incompat_features &= ~feature_bit("replace");
    return next;
}

namespace {

// Both copies, durable.
Status write_own_superblock(BlockDevice& device, const Superblock& superblock)
{
    const std::vector<std::byte> bytes = encode_superblock(superblock);
    AlignedBuffer copy(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.data());
    const uint64_t slot = superblock.generation.value % kSuperblockSlotCount * kSuperblockSlotBytes;
    for (const uint64_t ring : kSuperblockRingOffset)
        CW_TRY(write_device(device, {ring + slot}, copy.span()));
    IoRequest flush{.kind = IoKind::kFlush, .device = &device};
    run_io({&flush, 1});
    return flush.result;
}

}  // namespace

// So that nobody takes the old device for a member. False: it may say all the same that it is one.
bool Volume::erase_source(BlockDevice* device)
{
    const bool erased = device != nullptr && erase_rings(*device).ok();
    if (!erased)
        CW_LOG_WARNING("%s is replaced, and its superblocks are not erased: when the volume is not mounted, "
                       "cowraid device wipe it",
                       device != nullptr ? device->name() : "the old device");
    return erased;
}

// The target says first what it is from now on, then the old device says nothing any more, then the others
// say it: a mount after a crash finds one of the two. kStale: the target may say so, and is out of service.
Status Volume::write_to_successor()
{
    if (!std::exchange(taking_over_, false))
        return {};
    const Status written = hand_over();
    if (written.err() == Err::kStale)
        keep_source();
    stale_before_.clear();
    return written;
}

// It is the member still, and lacks what it lacked before, and what record_away() finds again.
void Volume::keep_source()
{
    const MemberId source = next_.replace.source;
    for (const auto& [address, since] : stale_before_)
        for (GroupRecord& group : map_.groups)
            for (GroupColumn& column : group.columns)
                if (group.address == address && column.member == source) {
                    column.stale_since = since;
                    newly_stale_.push_back(group);
                    map_changed_ = true;
                }
    publish_stale();
    std::erase(away_, source);
}

// Power failed in the middle of that: it goes on, before anybody else gets the superblock.
Status Volume::go_on_taking_over()
{
    if (taken_over_.value == 0)
        return {};
    std::vector<MemberSet::Quorum> quorums = {quorum_of(committed_, committed_)};
    const bool erased = replaced_ != nullptr && erase_source(replaced_.get());
    if (!erased && !force_)
        quorums.push_back(quorum_without(committed_, taken_over_));
    if (members_.require(std::move(quorums)))
        return {};
    CW_LOG_ERROR("the device that a replaced member had cannot be erased, and without it too few members are "
                 "there: detach it and mount again, to read; degraded=force writes");
    return Err::kTooManyFaults;
}

Status Volume::hand_over()
{
    const ReplaceRecord replace = next_.replace;
    BlockDevice* const device = members_.device(replace.target);
    if (members_.stopped())
        return Err::kTooManyFaults;
    if (device == nullptr)
        return Err::kStale;
    Superblock next = with_successor();
    if (is_mutant(CommitMutant::kSuccessorLast)) {
        std::vector<MemberId> others;
        for (const MemberRecord& record : next.members)
            if (record.id != replace.source)
                others.push_back(record.id);
        CW_TRY(write_superblocks(members_, next, others));
    }
    if (!write_own_superblock(*device, next).ok()) {
        members_.count(replace.target, MemberCounter::kWriteErrors);
        return members_.fail({&replace.target, 1}) ? Err::kStale : Err::kTooManyFaults;
    }
    // Others may have found out meanwhile that it fails: then the source is what there is.
    BlockDevice* const old = members_.device(replace.source);
    if (!members_.take_over(replace.source, replace.target))
        return Err::kStale;
    std::vector<MemberSet::Quorum> quorums = {quorum_of(next, next)};
    if (!erase_source(old)) {
        // It and those that get no such superblock must not be a majority by the table before.
        quorums.push_back(quorum_without(next, replace.source));
    }
    if (!members_.require(std::move(quorums)))
        return Err::kTooManyFaults;
    next_ = std::move(next);
    members_.reset_counters(replace.source);
    std::erase(away_, replace.source);
    successor_ = replace.target;
    took_over_ = true;
    open_whole_groups();
    return {};
}

}  // namespace cowraid
