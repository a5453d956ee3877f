// SPDX-License-Identifier: MIT
// What members may have missed, by column of a block group: recorded in the map before anything that a column
// lacks is acknowledged (I-32).
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "fs/volume/commit_mutant.h"
#include "fs/volume/volume.h"

namespace cowraid {

namespace {

bool contains(const std::vector<MemberId>& members, MemberId id)
{
    return std::find(members.begin(), members.end(), id) != members.end();
}

// Whether an entry of the write-intent log is of a row of the group.
bool names_row_of(const IntentScan& scan, const GroupRecord& group)
{
    const std::span<const LoggedRow> rows = scan.rows();
    const auto at =
        std::lower_bound(rows.begin(), rows.end(), group.address,
                         [](const LoggedRow& row, VolumeAddress address) { return row.row < address; });
    return at != rows.end() && at->row < group.address + group.span_bytes();
}

bool has_stale_column(const GroupMap& map, MemberId id)
{
    return std::any_of(map.groups.begin(), map.groups.end(), [&](const GroupRecord& group) {
        return std::any_of(group.columns.begin(), group.columns.end(),
                           [&](const GroupColumn& column) { return column.member == id && column.stale(); });
    });
}

// Whether it lacks only what it was away for by the table.
bool as_recorded(const MemberRecord& line, const AssembledMember& member)
{
    return line.state != MemberState::kPresent && member.missed_from >= line.missing_since;
}

}  // namespace

bool Volume::mark_stale(GroupRecord& group, MemberId member, Generation since)
{
    return mark_lacking(group, member, std::max(since, first_written(group)));
}

Generation Volume::first_written(const GroupRecord& group) const
{
    const bool made = group.created_generation <= committed_.generation;
    return made ? group.created_generation.next() : group.created_generation;
}

bool Volume::mark_blank(GroupRecord& group, MemberId member)
{
    return mark_lacking(group, member, group.created_generation);
}

bool Volume::mark_lacking(GroupRecord& group, MemberId member, Generation since)
{
    const auto column = std::find_if(group.columns.begin(), group.columns.end(),
                                     [&](const GroupColumn& have) { return have.member == member; });
    if (column == group.columns.end())
        return false;
    if (is_mutant(CommitMutant::kStaleUnrecorded) || (column->stale() && column->stale_since <= since))
        return false;
    column->stale_since = since;
    newly_stale_.push_back(group);
    map_changed_ = true;
    return true;
}

void Volume::publish_stale()
{
    if (newly_stale_.empty())
        return;
    const Status known = array_->update_groups(newly_stale_, committed_);
    CW_ASSERT(known.ok());  // the array has these groups already
    newly_stale_.clear();
}

// Its rings are those of an older state than the table says: a copy of the device, or one that forgot writes.
// One that only has a commit of its own, which nobody acknowledged, missed nothing: the next commit takes its
// place.
void Volume::distrust(const AssembledMember& member)
{
    if (!member.stale || contains(away_, member.id) || as_recorded(*committed_.member(member.id), member))
        return;
    map_changed_ = true;
    if (member.missed_from > committed_.generation)
        return;
    distrusted_.push_back(member.id);
    for (GroupRecord& group : map_.groups)
        mark_stale(group, member.id, member.missed_from);
}

// The target lacks no more than its source, as long as that is away, too.
bool Volume::copies_outdated(const AssembledMember& member) const
{
    const ReplaceRecord& replace = committed_.replace;
    if (!replace.names(member.id) || is_mutant(CommitMutant::kAbsentTargetTrusted))
        return false;
    const bool source_there = members_.device(replace.source) != nullptr;
    if (member.stale)
        return source_there || !as_recorded(*committed_.member(member.id), member);
    return member.id == replace.target && source_there && members_.device(member.id) == nullptr;
}

void Volume::caught_up(std::vector<StaleColumn> columns)
{
    MutexLock lock(mutex_);
    caught_up_.insert(caught_up_.end(), columns.begin(), columns.end());
    has_caught_up_.store(true);
}

bool Volume::has_caught_up() const
{
    return has_caught_up_.load();
}

std::vector<StaleColumn> Volume::take_caught_up()
{
    MutexLock lock(mutex_);
    return std::exchange(caught_up_, {});
}

void Volume::apply_caught_up()
{
    std::vector<MemberId> members;
    for (const StaleColumn& at : std::exchange(caught_up_flushed_, {})) {
        const auto group = std::find_if(map_.groups.begin(), map_.groups.end(),
                                        [&](const GroupRecord& have) { return have.address == at.group; });
        const bool copied = at.member == next_.replace.target;
        const uint64_t arrivals =
            members_.arrivals(at.member) + (copied ? members_.arrivals(next_.replace.source) : 0);
        // A device that came meanwhile, the same one perhaps, may have nothing of it.
        if (group == map_.groups.end() || members_.device(at.member) == nullptr || arrivals != at.arrivals)
            continue;
        if (copied) {
            group->flags |= kGroupCopied;
            newly_stale_.push_back(*group);
            map_changed_ = true;
        }
        for (GroupColumn& column : group->columns)
            if (column.member == at.member && column.stale_since == at.since) {
                column.stale_since = {};
                newly_stale_.push_back(*group);
                map_changed_ = true;
                members.push_back(at.member);
            }
    }
    publish_stale();
    {
        MutexLock lock(mutex_);
        has_caught_up_.store(!caught_up_.empty());
    }
    for (const MemberId id : members_.ids())
        if (contains(members, id) && !has_stale_column(map_, id))
            CW_LOG_INFO("%s has caught up", members_.name(id).c_str());
}

bool Volume::record_away()
{
    bool recorded = false;
    // Its last flush that counts came before the superblock of the trees there are.
    const Generation since = committed_.root.generation.next();
    for (const MemberId id : missing_members()) {
        if (contains(away_, id))
            continue;
        away_.push_back(id);
        recorded = true;
        if (id == next_.replace.target && members_.device(next_.replace.source) != nullptr &&
            !is_mutant(CommitMutant::kAbsentTargetTrusted))
            forget_copied();
        for (GroupRecord& group : map_.groups)
            if (!closed_.contains(group.address))
                mark_stale(group, id, since);
    }
    publish_stale();
    return recorded;
}

void Volume::record_recovery(const IntentScan& scan)
{
    for (GroupRecord& group : map_.groups) {
        std::vector<MemberId> lacking;
        bool absent = false;
        uint32_t without = 0;
        for (const GroupColumn& column : group.columns) {
            const bool away = members_.device(column.member) == nullptr;
            if (away || (column.stale() && !is_mutant(CommitMutant::kStaleNotWhole)))
                lacking.push_back(column.member);
            absent = absent || away;
            without += away || column.stale();
        }
        // An entry is on the member of every parity column of its row that was not stale. Rows that have none
        // were written, or not, and no window says so.
        const uint32_t parity = find_profile(group.profile)->parity;
        const bool entries_lost = parity > 0 && without >= parity;
        if (!entries_lost && !names_row_of(scan, group))
            continue;
        // Of rows that the source already holds right the target may not have all.
        if (!is_mutant(CommitMutant::kRecoveredCopyTrusted) && forget_copied(group))
            members_.forget_successor();
        if (lacking.empty())
            continue;
        for (const MemberId id : lacking)
            mark_stale(group, id, {});
        if (absent)
            closed_.erase(group.address);
    }
    publish_stale();
}

void Volume::reopen_group(VolumeAddress address, Allocator& allocator)
{
    commit_thread_.assert_here();
    const auto at = std::find_if(map_.groups.begin(), map_.groups.end(),
                                 [&](const GroupRecord& group) { return group.address == address; });
    CW_ASSERT(at != map_.groups.end());
    for (const GroupColumn& column : at->columns)
        if (members_.device(column.member) == nullptr)
            mark_stale(*at, column.member, committed_.root.generation.next());
    closed_.erase(address);
    publish_stale();
    if (!map_changed_)
        allocator.set_group_state(address, Allocator::GroupState::kOpen);
    else if (std::find(reopened_.begin(), reopened_.end(), address) == reopened_.end())
        reopened_.push_back(address);
}

}  // namespace cowraid
