// SPDX-License-Identifier: MIT
#include "device/lineage.h"

#include <algorithm>

namespace cowraid {

namespace {

// Where other's newest epoch stands in head's history; the size of the history when it is not there.
size_t epoch_position(const Superblock& head, const Superblock& other)
{
    const auto found = std::find_if(head.epochs.begin(), head.epochs.end(), [&](const EpochRecord& record) {
        return record.epoch == other.epochs.front().epoch;
    });
    return static_cast<size_t>(found - head.epochs.begin());
}

bool absent(const MemberRecord* record)
{
    return record != nullptr && record->state != MemberState::kPresent;
}

bool same_content(const Superblock& a, const Superblock& b)
{
    return a.root == b.root && a.map.generation == b.map.generation && a.map.checksum == b.map.checksum;
}

size_t absent_count(const Superblock& superblock)
{
    return static_cast<size_t>(std::count_if(superblock.members.begin(), superblock.members.end(),
                                             [](const MemberRecord& record) { return absent(&record); }));
}

}  // namespace

bool newer_commit(const Superblock& a, const Superblock& b)
{
    return a.generation != b.generation ? a.generation > b.generation : absent_count(a) > absent_count(b);
}

bool history_covers(const Superblock& head, const Superblock& other)
{
    if (epoch_position(head, other) < head.epochs.size())
        return true;
    if (head.epochs.size() < kEpochHistoryCount || other.generation >= head.epochs.back().generation)
        return false;
    const MemberRecord* line = head.member(other.member_id);
    return line == nullptr || (absent(line) && other.generation < line->missing_since);
}

bool diverged(const RingReading& head_reading, const Superblock& other)
{
    const Superblock& head = head_reading.valid.front();
    for (const Superblock& older : head_reading.valid) {
        if (older.generation == other.generation &&
            older.epochs.front().epoch == other.epochs.front().epoch && !same_content(older, other))
            return true;
    }
    const size_t position = epoch_position(head, other);
    if (position == 0 || position == head.epochs.size())
        return false;
    // Head's side left the other's epoch with commit `left`. The other may hold a commit of that number: a
    // crash kept it from all members, so nobody acknowledged it, and its table still counts head's member
    // in. A commit made without head's member was acknowledged.
    const Generation left = head.epochs[position - 1].generation;
    if (other.generation != left)
        return other.generation > left;
    return absent(other.member(head.member_id));
}

std::optional<Generation> missed_from(const Superblock& head, const Superblock& other)
{
    const MemberRecord* line = head.member(other.member_id);
    if (absent(line))
        return line->missing_since;
    const size_t position = epoch_position(head, other);
    if (position == 0)
        return std::nullopt;
    if (position == head.epochs.size())
        return other.generation.next();
    // Data and map are flushed on every present member before the first superblock of a commit is written.
    // So a member that only lacks the superblocks of commits which began an epoch, each cut short by a
    // crash, has everything they refer to.
    const Generation left = head.epochs[position - 1].generation;
    const bool neighbour = other.generation.value + 1 >= left.value &&
                           head.generation.value <= other.generation.value + position;
    if (neighbour)
        return std::nullopt;
    return std::min(other.generation.next(), left);
}

}  // namespace cowraid
