// SPDX-License-Identifier: MIT
#include "device/lineage.h"

#include <algorithm>

namespace cowraid {

namespace {

using Epochs = std::vector<EpochRecord>;

// Where `epoch` stands in a history; its size when it is not there.
size_t position_of(const Epochs& history, uint64_t epoch)
{
    const auto found = std::find_if(history.begin(), history.end(),
                                    [=](const EpochRecord& record) { return record.epoch == epoch; });
    return static_cast<size_t>(found - history.begin());
}

bool absent(const MemberRecord& record)
{
    return record.state != MemberState::kPresent;
}

size_t absent_count(const Superblock& superblock)
{
    return static_cast<size_t>(std::count_if(superblock.members.begin(), superblock.members.end(), absent));
}

bool same_content(const Superblock& a, const Superblock& b)
{
    return a.root == b.root && a.map.generation == b.map.generation && a.map.checksum == b.map.checksum;
}

// Whether a slot of head has the commit number and epoch of `other`, but another content.
bool contradicted(const RingReading& head_reading, const Superblock& other)
{
    return std::any_of(head_reading.valid.begin(), head_reading.valid.end(), [&](const Superblock& older) {
        return older.generation == other.generation &&
               older.epochs.front().epoch == other.epochs.front().epoch && !same_content(older, other);
    });
}

// A history holds the newest kEpochHistoryCount epochs. `other` may be of one that dropped off: then it is
// older than all that are listed, and head's table says it was away since.
bool older_than_history(const Superblock& head, const Superblock& other)
{
    if (head.epochs.size() < kEpochHistoryCount || other.generation >= head.epochs.back().generation)
        return false;
    const MemberRecord* line = head.member(other.member_id);
    return line == nullptr || (absent(*line) && other.generation < line->missing_since);
}

// Whether member `id` took part in the commit that began `epoch` on head's side.
bool took_part(const Superblock& head, const EpochRecord& epoch, MemberId id,
               std::span<const Superblock* const> all)
{
    // Later commits were only made once that one was on every member its table counts as present.
    const MemberRecord* line = head.member(id);
    if (head.generation > epoch.generation && line != nullptr &&
        (!absent(*line) || line->missing_since > epoch.generation))
        return true;
    return std::any_of(all.begin(), all.end(), [&](const Superblock* newest) {
        return newest->member_id == id && position_of(newest->epochs, epoch.epoch) < newest->epochs.size();
    });
}

// `other` has one commit that head's side has not, numbered as the one that began `epoch` there. A commit is
// acknowledged when every member it counts as present has it; a member that went along with head's side
// instead has it not.
bool never_acknowledged(const Superblock& head, const EpochRecord& epoch, const Superblock& other,
                        std::span<const Superblock* const> all)
{
    return std::any_of(other.members.begin(), other.members.end(), [&](const MemberRecord& record) {
        return record.id != other.member_id && !absent(record) && took_part(head, epoch, record.id, all);
    });
}

}  // namespace

bool newer_commit(const Superblock& a, const Superblock& b)
{
    return a.generation != b.generation ? a.generation > b.generation : absent_count(a) > absent_count(b);
}

bool follows(const RingReading& head_reading, const Superblock& other, std::span<const Superblock* const> all)
{
    const Superblock& head = head_reading.valid.front();
    if (contradicted(head_reading, other))
        return false;
    // `branch` is the epoch in which head's side left the newest epoch that both know.
    size_t common = position_of(head.epochs, other.epochs.front().epoch);
    if (common == 0)
        return other.generation <= head.generation;
    if (common < head.epochs.size()) {
        const EpochRecord& branch = head.epochs[common - 1];
        if (other.generation != branch.generation)
            return other.generation < branch.generation;
        return never_acknowledged(head, branch, other, all);
    }
    // The other may have begun an epoch of its own, with one commit that a crash cut short.
    if (other.epochs.size() > 1 && other.epochs.front().generation == other.generation) {
        common = position_of(head.epochs, other.epochs[1].epoch);
        if (common != 0 && common < head.epochs.size() &&
            head.epochs[common - 1].generation == other.generation &&
            never_acknowledged(head, head.epochs[common - 1], other, all))
            return true;
    }
    return older_than_history(head, other);
}

std::optional<Generation> missed_from(const Superblock& head, const Superblock& other)
{
    const MemberRecord* line = head.member(other.member_id);
    if (line != nullptr && absent(*line))
        return line->missing_since;
    const size_t position = position_of(head.epochs, other.epochs.front().epoch);
    if (position == 0)
        return std::nullopt;
    // Not in the list: a commit of its own that nobody acknowledged, which it must forget.
    if (position == head.epochs.size())
        return other.generation;
    // Data and map are flushed on every present member before the first superblock of a commit is written.
    // So a member that only lacks the superblocks of commits which began an epoch, each cut short by a
    // crash, has everything they refer to.
    const Generation left = head.epochs[position - 1].generation;
    const bool neighbour =
        other.generation.next() == left && head.generation.value <= other.generation.value + position;
    if (neighbour)
        return std::nullopt;
    return std::min(other.generation.next(), left);
}

}  // namespace cowraid
