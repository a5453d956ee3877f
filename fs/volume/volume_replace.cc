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
#include "fs/volume/volume.h"

namespace cowraid {

namespace {

bool has_column_on(const GroupRecord& group, MemberId id)
{
    return std::any_of(group.columns.begin(), group.columns.end(),
                       [=](const GroupColumn& column) { return column.member == id; });
}

}  // namespace

ReplaceRecord Volume::replacing() const
{
    MutexLock lock(mutex_);
    return committed_.replace;
}

// The source counts until the end, the target from then on.
bool Volume::may_replace() const
{
    const size_t before = member_table().size();
    return before - missing_members().size() >= needed_for_writing(before + 1, half_);
}

MemberId Volume::begin_replace(MemberId source, std::unique_ptr<BlockDevice> device, uint64_t seconds)
{
    MemberRecord record = *next_.member(source);
    record.counters = {};
    const MemberId target = add_member(record, std::move(device));
    members_.set_leaving(target, true);
    next_.replace = {source, target, seconds};
    next_.incompat_features |= feature_bit("replace");
    forget_copied();
    return target;
}

bool Volume::end_replace()
{
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

void Volume::forget_copied(GroupRecord& group)
{
    if ((group.flags & kGroupCopied) == 0)
        return;
    group.flags &= ~kGroupCopied;
    newly_stale_.push_back(group);
    map_changed_ = true;
}

void Volume::forget_copied()
{
    for (GroupRecord& group : map_.groups)
        forget_copied(group);
}

bool Volume::born_copied(const GroupRecord& group) const
{
    const ReplaceRecord& replace = committed_.replace;
    return replace.active() && next_.replace == replace && has_column_on(group, replace.source) &&
           members_.device(replace.source) != nullptr && members_.device(replace.target) != nullptr;
}

bool Volume::take_over()
{
    const ReplaceRecord& replace = next_.replace;
    const bool source_away = members_.device(replace.source) == nullptr;
    const auto takes_part = [&](const MemberRecord& record) {
        return record.id != replace.source && members_.device(record.id) != nullptr;
    };
    const auto count =
        static_cast<size_t>(std::count_if(committed_.members.begin(), committed_.members.end(), takes_part));
    if (members_.device(replace.target) == nullptr ||
        count < needed_for_writing(committed_.members.size(), half_))
        return false;
    const auto lacks = [&](const GroupRecord& group) {
        return has_column_on(group, replace.source) && (group.flags & kGroupCopied) == 0;
    };
    if (!source_away && !is_mutant(CommitMutant::kTakenOverEarly) &&
        std::any_of(map_.groups.begin(), map_.groups.end(), lacks))
        return false;
    for (GroupRecord& group : map_.groups) {
        if (source_away && lacks(group))
            mark_stale(group, replace.source, group.created_generation);
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
    std::erase_if(next.members,
                  [&](const MemberRecord& record) { return record.id == next_.replace.target; });
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

// The target says first what it is from now on: before another superblock says that the old device is
// nobody's. A mount after a crash finds one of the two.
Status Volume::write_to_successor()
{
    if (!std::exchange(taking_over_, false))
        return {};
    const ReplaceRecord replace = next_.replace;
    BlockDevice* const device = members_.device(replace.target);
    if (device == nullptr)
        return {};
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
        return members_.fail({&replace.target, 1}) ? Err::kOk : Err::kTooManyFaults;
    }
    BlockDevice* const served = members_.device(replace.source);
    next_ = std::move(next);
    members_.take_over(replace.source, replace.target);
    members_.reset_counters(replace.source);
    members_.set_quorums({quorum_of(next_, committed_)});
    std::erase(away_, replace.source);
    successor_ = replace.target;
    predecessor_ = served;
    open_whole_groups();
    return {};
}

}  // namespace cowraid
