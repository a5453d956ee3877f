// SPDX-License-Identifier: MIT
// Members come and go (I-35): a superblock that changes the member table is on a majority of the members
// before and of those after, so that whoever can write the volume by either table has seen it.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "base/random.h"
#include "device/superblock_store.h"
#include "format/feature_table.h"
#include "fs/volume/commit_mutant.h"
#include "fs/volume/missing_members.h"
#include "fs/volume/volume.h"

namespace cowraid {

std::vector<MemberRecord> Volume::member_table() const
{
    MutexLock lock(mutex_);
    return shown_.members;
}

std::vector<MemberId> Volume::missing_members() const
{
    MutexLock lock(mutex_);
    std::vector<MemberId> missing;
    for (const MemberRecord& record : shown_.members)
        if (members_.device(record.id) == nullptr)
            missing.push_back(record.id);
    return missing;
}

bool Volume::degraded() const
{
    MutexLock lock(mutex_);
    const MemberId target = shown_.replace.target;
    return std::any_of(shown_.members.begin(), shown_.members.end(), [&](const MemberRecord& record) {
        return record.id != target && members_.device(record.id) == nullptr;
    });
}

std::string Volume::step_after_stop() const
{
    if (members_.stop_cause() == MemberSet::StopCause::kNone)
        return "unmount it, run cowraid check, mount it again (with -o ro what can be read can be copied)";
    if (members_.stop_cause() == MemberSet::StopCause::kTooManyFailed)
        return "unmount it, bring back the members that failed, and mount it again (without them -o "
               "ro,rescue "
               "reads what is left)";
    MutexLock lock(mutex_);
    std::vector<MemberId> away;
    for (const MemberRecord& record : shown_.members)
        if (members_.device(record.id) == nullptr || members_.stopped_it(record.id))
            away.push_back(record.id);
    return step_for_too_few("the members that failed",
                            voter_count(shown_, away) >= needed_for_writing(voter_count(shown_), true));
}

Uuid Volume::disown_member(MemberId id, std::set<VolumeAddress>& blank)
{
    commit_thread_.assert_here();
    const Uuid nobody = next_.member(id)->uuid = uuid_random();
    for (GroupRecord& group : map_.groups) {
        if (!mark_blank(group, id))
            blank.insert(group.address);
        closed_.erase(group.address);
    }
    map_changed_ = true;
    publish_stale();
    return nobody;
}

void Volume::own_again(MemberId id, const Uuid& uuid, const std::set<VolumeAddress>& blank)
{
    commit_thread_.assert_here();
    next_.member(id)->uuid = uuid;
    for (GroupRecord& group : map_.groups)
        for (GroupColumn& column : group.columns)
            if (column.member == id && !blank.contains(group.address)) {
                column.stale_since = first_written(group);
                newly_stale_.push_back(group);
            }
    map_changed_ = true;
    publish_stale();
}

void Volume::replace_member(MemberId id, std::unique_ptr<BlockDevice> device)
{
    commit_thread_.assert_here();
    members_.reset_counters(id);
    return_member(id, std::move(device), {});
}

void Volume::return_member(MemberId id, std::unique_ptr<BlockDevice> device, Generation lacks_from)
{
    commit_thread_.assert_here();
    for (GroupRecord& group : map_.groups)
        if (lacks_from != Generation{})
            mark_stale(group, id, lacks_from);
    publish_stale();
    map_changed_ = true;
    std::erase(away_, id);
    members_.set_leaving(id, true);
    // What the source turns out to have right after all was perhaps not written to the target. Without the
    // source it has missed what the source has, unless it is a copy of older days.
    const ReplaceRecord& replace = committed_.replace;
    if (replace.names(id) &&
        (id == replace.source || members_.device(replace.source) != nullptr || lacks_from != Generation{}))
        forget_copied();
    members_.put_in_service(id, std::move(device));
    if (replace.names(id))
        prepare_target();
    open_whole_groups();
}

// Where all members are there again a scrub may write.
void Volume::open_whole_groups()
{
    for (const GroupRecord& group : map_.groups)
        if (std::all_of(group.columns.begin(), group.columns.end(),
                        [&](const GroupColumn& column) { return members_.device(column.member) != nullptr; }))
            closed_.erase(group.address);
}

MemberSet::Quorum Volume::quorum_of(const Superblock& table, const Superblock& majority_of) const
{
    return quorum_for_writing(table, majority_of, map_, half_);
}

size_t Volume::spare_voters() const
{
    const std::vector<MemberId> missing = missing_members();
    MutexLock lock(mutex_);
    const size_t there = voter_count(shown_, missing);
    return there - std::min(there, needed_for_writing(voter_count(shown_), half_));
}

bool Volume::may_add_member(const MemberRecord& record, uint32_t others) const
{
    commit_thread_.assert_here();
    MapRef ignored;
    return next_.members.size() == committed_.members.size() &&
           next_.members.size() + next_.spares.size() + others < kMaxMembers &&
           next_.next_member_id < UINT32_MAX - others &&
           encode_group_map(map_, next_.volume_uuid, ignored).size() <= record.map_bytes;
}

uint64_t Volume::potential_with(std::span<const uint64_t> member_bytes) const
{
    MutexLock lock(mutex_);
    note_present();
    SlotAllocator slots = slots_;
    MemberId id{UINT32_MAX};
    for (const uint64_t bytes : member_bytes) {
        Result<MemberRecord> record = plan_member_layout(bytes);
        if (!record.ok())
            continue;
        record->id = {id.value--};
        slots.add_member(*record, true);
    }
    return data_potential(slots);
}

MemberId Volume::add_member(MemberRecord record, std::unique_ptr<BlockDevice> device)
{
    commit_thread_.assert_here();
    CW_ASSERT(may_add_member(record));
    record.id = {next_.next_member_id++};
    record.uuid = uuid_random();
    record.state = MemberState::kPresent;
    members_.add(record.id, std::move(device), {});
    next_.members.push_back(record);
    map_changed_ = true;
    return record.id;
}

std::vector<MemberRecord> Volume::spare_table() const
{
    MutexLock lock(mutex_);
    return shown_.spares;
}

bool Volume::plan_spare(uint64_t size_bytes, Superblock& own) const
{
    commit_thread_.assert_here();
    if (next_.members.size() + next_.spares.size() >= kMaxMembers || next_.next_member_id == UINT32_MAX)
        return false;
    // Of the last commit: a later one, of members, is newer in any case.
    own = committed_;
    own.incompat_features |= feature_bit("spares");
    own.spares = next_.spares;
    own.spares.push_back(spare_record({next_.next_member_id}, uuid_random(), size_bytes));
    own.next_member_id = next_.next_member_id + 1;
    return true;
}

void Volume::add_spare(const Superblock& own)
{
    commit_thread_.assert_here();
    next_.incompat_features |= feature_bit("spares");
    next_.spares.push_back(own.spares.back());
    next_.next_member_id = own.next_member_id;
    map_changed_ = true;
}

void Volume::use_spare(MemberId spare, MemberId member)
{
    commit_thread_.assert_here();
    drop_spare(spare);
    arriving_.push_back({member, spare});
}

void Volume::drop_spare(MemberId id)
{
    commit_thread_.assert_here();
    std::erase_if(next_.spares, [=](const MemberRecord& record) { return record.id == id; });
    if (next_.spares.empty())
        next_.incompat_features &= ~feature_bit("spares");
    map_changed_ = true;
}

void Volume::keep_spare(const MemberRecord& line)
{
    commit_thread_.assert_here();
    const auto behind = std::find_if(next_.spares.begin(), next_.spares.end(),
                                     [&](const MemberRecord& have) { return have.id > line.id; });
    next_.spares.insert(behind, line);
    next_.incompat_features |= feature_bit("spares");
}

bool Volume::grow_member(MemberId id, uint64_t size_bytes)
{
    commit_thread_.assert_here();
    MemberRecord* const record = next_.member(id);
    if (record == nullptr || !grow_member_layout(*record, size_bytes).ok())
        return false;
    map_changed_ = true;
    return true;
}

bool Volume::may_shrink(const MemberRecord& shrunk) const
{
    commit_thread_.assert_here();
    Superblock then = next_;
    *then.member(shrunk.id) = shrunk;
    return std::all_of(
        map_.groups.begin(), map_.groups.end(),
        [most = column_bytes_max(then)](const GroupRecord& group) { return group.column_bytes <= most; });
}

bool Volume::shrink_member(MemberId id, uint64_t size_bytes)
{
    commit_thread_.assert_here();
    MemberRecord shrunk = *next_.member(id);
    if (!shrink_member_layout(shrunk, size_bytes).ok() || !may_shrink(shrunk))
        return false;
    for (const GroupRecord& group : map_.groups)
        for (const GroupColumn& column : group.columns)
            for (const SlotRun& run : column.runs)
                CW_ASSERT(column.member != id || run.first_slot + run.slot_count <= shrunk.slot_count);
    *next_.member(id) = shrunk;
    map_changed_ = true;
    return true;
}

bool Volume::may_remove_member(MemberId id) const
{
    std::vector<MemberId> gone = missing_members();
    gone.push_back(id);
    MutexLock lock(mutex_);
    return voter_count(shown_, gone) >= needed_for_writing(voter_count(shown_), half_);
}

bool Volume::remove_member(MemberId id)
{
    commit_thread_.assert_here();
    CW_ASSERT(next_.members.size() == committed_.members.size());
    for (const GroupRecord& group : map_.groups)
        for (const GroupColumn& column : group.columns)
            CW_ASSERT(column.member != id);
    Superblock without = next_;
    std::erase_if(without.members, [=](const MemberRecord& record) { return record.id == id; });
    // It is not written to the member that leaves. A majority of more members is one of fewer, too.
    if (!members_.require({quorum_of(without, committed_)}))
        return false;
    next_.members = std::move(without.members);
    map_changed_ = true;
    return true;
}

// The next superblock goes to new members first: no crash leaves a member table that names a device without a
// superblock. One that fails before is no member, and its number is nobody's.
Status Volume::write_to_new_members()
{
    // A spare is found as the member that it becomes before anybody else calls it no spare (I-37).
    if (!arriving_.empty() && !is_mutant(CommitMutant::kSpareLast)) {
        std::vector<MemberId> members;
        for (const Arriving& one : arriving_)
            members.push_back(one.member);
        CW_TRY(write_superblocks(members_, next_, members));
        CW_TRY(flush());
        // One that failed before is a spare still.
        for (const Arriving& one : arriving_)
            if (const MemberRecord* const line = committed_.spare(one.spare);
                line != nullptr && members_.device(one.member) == nullptr)
                keep_spare(*line);
    }
    arriving_.clear();
    std::vector<MemberId> added;
    for (const MemberRecord& record : next_.members)
        if (committed_.member(record.id) == nullptr)
            added.push_back(record.id);
    if (added.empty())
        return {};
    if (is_mutant(CommitMutant::kNewMemberLast)) {
        std::vector<MemberId> others;
        for (const MemberRecord& record : committed_.members)
            others.push_back(record.id);
        CW_TRY(write_superblocks(members_, next_, others));
    }
    CW_TRY(write_superblocks(members_, next_, added));
    CW_TRY(flush());
    const std::vector<MemberSet::Quorum> both = {quorum_of(committed_, committed_), quorum_of(next_, next_)};
    const bool in_service = members_.device(added.front()) != nullptr;
    if (in_service && members_.require(both))
        return {};
    std::erase_if(next_.members, [&](const MemberRecord& record) { return record.id == added.front(); });
    if (next_.replace.target == added.front()) {
        next_.replace = {};
        next_.incompat_features &= ~feature_bit("replace");
        if (const MemberRecord* const line = committed_.spare(becomes_target_); line != nullptr)
            keep_spare(*line);
    }
    BlockDevice* const device = members_.device(added.front());
    members_.remove(added.front());
    if (device != nullptr)
        erase_rings(*device).ignore();  // its superblock is of a commit that never comes
    return {};
}

void Volume::set_leaving(MemberId id, bool leaving)
{
    members_.set_leaving(id, leaving);
    MutexLock lock(mutex_);
    slots_.set_leaving(id, leaving);
    forget_potential();
}

void Volume::heed_balance(const BalanceRecord& balance, bool counts)
{
    if (balance.state != BalanceState::kRunning)
        return;
    if (balance.removed().value != 0)
        set_leaving(balance.member, counts);
    if (balance.shrink_bytes == 0 || is_mutant(CommitMutant::kShrunkPartUsed))
        return;
    MutexLock lock(mutex_);
    slots_.set_limit(balance.member, counts ? first_emptied_slot(balance) : UINT64_MAX);
    forget_potential();
}

void Volume::balance_is_committed()
{
    const BalanceRecord before = std::exchange(committed_.balance, next_.balance);
    if (before == committed_.balance)
        return;
    // A member that this superblock removes, or what it loses by it, is left alone to its end.
    const MemberRecord* const member = next_.member(before.member);
    if (member != nullptr &&
        (member->size_bytes != before.shrink_bytes || is_mutant(CommitMutant::kShrunkSlotsStay)))
        heed_balance(before, false);
    heed_balance(committed_.balance, true);
}

// The superblock with this table is durable.
void Volume::settle_members(const std::vector<MemberId>& before)
{
    for (const MemberRecord& record : committed_.members) {
        if (std::find(before.begin(), before.end(), record.id) != before.end())
            continue;
        if (intent_log_)
            intent_log_->add_member(record);
        MutexLock lock(mutex_);
        slots_.set_leaving(record.id, false);
        forget_potential();
    }
    prepare_target();
    members_.set_quorums({quorum_of(committed_, committed_)});
    for (const MemberId id : before) {
        if (committed_.member(id) != nullptr)
            continue;
        std::erase(away_, id);
        if (id != std::exchange(successor_, {})) {
            const std::string name = members_.name(id);
            BlockDevice* device = members_.device(id);
            // One taken offline by order can be written, unless it did not answer: commits would wait for it.
            BlockDevice* const idle = members_.idle_device(id);
            if (device == nullptr && idle != nullptr && !members_.failed(id) &&
                idle->in_flight().oldest_ms() == 0 && idle->in_flight().slow_count() == 0)
                device = idle;
            members_.remove(id);
            // So that nobody takes it for a member.
            const bool erased = device != nullptr && erase_rings(*device).ok();
            CW_LOG_INFO("%s is removed%s", name.c_str(), erased ? "; its superblocks are erased" : "");
        }
        MutexLock lock(mutex_);
        slots_.remove_member(id);
        forget_potential();
    }
}

}  // namespace cowraid
