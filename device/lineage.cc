// SPDX-License-Identifier: MIT
#include "device/lineage.h"

#include <algorithm>
#include <utility>

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

// Copies of a volume that were written apart may come to equal trees, but not to equal log epochs.
bool same_content(const Superblock& a, const Superblock& b)
{
    return a.log_epoch == b.log_epoch && a.root == b.root && a.map.generation == b.map.generation &&
           a.map.checksum == b.map.checksum;
}

// A device that was about to become a member in a commit that its volume does not know of: power failed. It
// had that superblock first, and nobody else did.
bool never_added(const Superblock& head, MemberId id)
{
    return head.member(id) == nullptr && id.value >= head.next_member_id;
}

// Whether a slot of head has the commit number and epoch of `other`, but another content.
bool contradicted(const RingReading& head_reading, const Superblock& other)
{
    if (never_added(head_reading.valid.front(), other.member_id))
        return false;
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

// Whether all of a member's commits are among those that led to `head`.
bool on_line(const Superblock& head, const Superblock& other)
{
    const size_t position = position_of(head.epochs, other.epochs.front().epoch);
    if (position == 0)
        return other.generation <= head.generation;
    return position < head.epochs.size() && other.generation < head.epochs[position - 1].generation;
}

// Whether `other` has exactly one commit that is not among those that led to `head`: one more in an epoch
// that head's side then left, or the first of an epoch of its own.
bool one_commit_apart(const Superblock& head, const Superblock& other)
{
    const size_t position = position_of(head.epochs, other.epochs.front().epoch);
    if (position < head.epochs.size())
        return position != 0 && other.generation == head.epochs[position - 1].generation;
    if (other.epochs.size() < 2 || other.epochs.front().generation != other.generation)
        return false;
    const size_t before = position_of(head.epochs, other.epochs[1].epoch);
    if (before == 0)
        return other.generation <= head.generation;
    return before < head.epochs.size() && other.generation <= head.epochs[before - 1].generation;
}

// Whether member `id` has the commit of head's side that is numbered `generation`.
bool took_part(const Superblock& head, Generation generation, MemberId id,
               std::span<const RingReading* const> all)
{
    // A mount writes the commit it found to every member it has before it makes the next one. So whoever the
    // table counts as present in a later commit has this one; the commit itself may have been cut short.
    const MemberRecord* line = head.member(id);
    if (line != nullptr &&
        (absent(*line) ? line->missing_since > generation.next() : head.generation > generation))
        return true;
    return std::any_of(all.begin(), all.end(), [&](const RingReading* reading) {
        const Superblock& newest = reading->valid.front();
        return newest.member_id == id && newest.generation >= generation && on_line(head, newest);
    });
}

// Whether the newest commit only recorded member states or an epoch, as the first one of every mount: the
// trees are those of the commit before, so nobody was promised anything that only this one has.
bool changes_nothing(const RingReading& reading)
{
    return reading.valid.size() > 1 && reading.valid[1].generation.next() == reading.valid[0].generation &&
           reading.valid[1].root == reading.valid[0].root;
}

// Whether the rings of member `id` were read and lack commit `generation`. A slot damaged in both rings lacks
// it as well: a crash tears what was never acknowledged, while rot of an acknowledged commit in both rings
// would have to hit every member that two such sides have in common.
bool lacks(Generation generation, MemberId id, std::span<const RingReading* const> all)
{
    return std::any_of(all.begin(), all.end(), [&](const RingReading* reading) {
        const Superblock& newest = reading->valid.front();
        return newest.member_id == id && newest.generation < generation && !reading->read_error;
    });
}

// A commit is acknowledged when every member it counts as present has it. Neither a member that has the
// commit of the same number of head's side has it, nor one that is not as far.
bool never_acknowledged(const Superblock& head, const Superblock& other,
                        std::span<const RingReading* const> all)
{
    return std::any_of(other.members.begin(), other.members.end(), [&](const MemberRecord& record) {
        return record.id != other.member_id && !absent(record) &&
               (took_part(head, other.generation, record.id, all) || lacks(other.generation, record.id, all));
    });
}

// A crash leaves neighbours one commit apart: every member has a commit before the next one begins. One that
// is further behind is a copy of older days, or lost writes. Where head's rings do not go back to the commit
// that it has, it may even be another.
std::optional<Generation> missed_in_epoch(const RingReading& head_reading, const Superblock& other)
{
    if (other.generation.next() >= head_reading.valid.front().generation)
        return std::nullopt;
    const bool known =
        std::any_of(head_reading.valid.begin(), head_reading.valid.end(),
                    [&](const Superblock& older) { return older.generation == other.generation; });
    return known ? other.generation.next() : Generation{1};
}

}  // namespace

bool newer_commit(const Superblock& a, const Superblock& b)
{
    return a.generation != b.generation ? a.generation > b.generation : absent_count(a) > absent_count(b);
}

bool follows(const RingReading& head_reading, const RingReading& other_reading,
             std::span<const RingReading* const> all)
{
    const Superblock& head = head_reading.valid.front();
    const Superblock& other = other_reading.valid.front();
    if (contradicted(head_reading, other))
        return false;
    return on_line(head, other) || older_than_history(head, other) ||
           (one_commit_apart(head, other) &&
            (changes_nothing(other_reading) || never_acknowledged(head, other, all)));
}

bool shares_epoch(const Superblock& head, const Superblock& other)
{
    return std::any_of(other.epochs.begin(), other.epochs.end(), [&](const EpochRecord& record) {
        return position_of(head.epochs, record.epoch) < head.epochs.size();
    });
}

std::string stranger_text(const std::string& device, const std::string& place)
{
    return device + " says it is " + place + ", but it may belong to another volume of the same uuid, or " +
           kForgotten + "; look at its members with cowraid filesystem show before anything is written to it";
}

std::optional<Generation> missed_from(const RingReading& head_reading, const Superblock& other)
{
    const Superblock& head = head_reading.valid.front();
    const MemberRecord* line = head.member(other.member_id);
    // What a member had when it left is at most one commit older than what its superblocks say: data is
    // flushed before them. One that is further behind is a copy of older days.
    if (line != nullptr && absent(*line))
        return other.generation.value + 2 < line->missing_since.value ? other.generation.next()
                                                                      : line->missing_since;
    const size_t position = position_of(head.epochs, other.epochs.front().epoch);
    if (position == 0)
        return missed_in_epoch(head_reading, other);
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

bool took_over_in_vain(const Superblock& head, const Superblock& own)
{
    return newer_commit(head, own) && head.replace.active() && head.replace.source == own.member_id &&
           head.member(head.replace.target)->uuid == own.member(own.member_id)->uuid;
}

void forget_take_over(RingReading& own, const Superblock& head)
{
    if (!own.before.empty() && took_over_in_vain(head, own.valid.front()))
        own.valid = std::exchange(own.before, {});
}

}  // namespace cowraid
