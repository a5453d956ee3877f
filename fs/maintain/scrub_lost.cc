// SPDX-License-Identifier: MIT
// What a scrub lists as lost, and what it reads again before that is settled.
#include <algorithm>
#include <ctime>

#include "base/buffer.h"
#include "base/log.h"
#include "base/log_count.h"
#include "fs/maintain/damaged_files.h"
#include "fs/maintain/scrub.h"

namespace cowraid {

void Scrub::note_lost(const Step& step)
{
    for (const VolumeAddress address : step.report.lost) {
        note_damage(store_, address, 1, step.started, step.pass_id);
        log_count(LogLevel::kError, "scrub", "blocks that cannot be recovered, by address", 1,
                  {.first = address.value, .last = address.value + kBlockBytes - 1});
    }
    for (const BlockRef& node : step.counts.lost_nodes)
        note_damage(store_, node.address, kNodeBlocks, step.started, step.pass_id);
}

bool Scrub::goes_on(uint64_t number) const
{
    MutexLock lock(mutex_);
    return number == number_ && status_.state == ScrubState::kRunning && !stopped_;
}

namespace {

// For a block that is read: all of its row, when it must be recovered.
void spend_turn(WorkTurns& turns, const Ref<const ArrayGroup>& group)
{
    turns.spend(kSeekBytes * (group ? group->geometry.columns() : 1), kRoomForSingles);
}

}  // namespace

constexpr uint64_t kRecheckedMax = 1024;  // blocks at a time: what was found good may be lost soon after

// The first of them that are in use, if that is known. Returns the end of what was looked at.
VolumeAddress Scrub::recheck_some(const DamagedRun& run, VolumeAddress from, WorkTurns& turns)
{
    std::vector<BlockRun> used;
    const Status known = store_.allocator.live_blocks(from, kRecheckedMax, used);
    if (!known.ok() && known.err() != Err::kInvalid)
        return run.end();
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(from);
    AlignedBuffer memory(kBlockBytes);
    uint64_t blocks = 0;
    VolumeAddress good = from;  // all from there on is
    const auto forget_to = [&](VolumeAddress end) {
        if (good < end)
            store_.damage.forget(good, (end - good) / kBlockBytes);
    };
    for (const BlockRun& part : used) {
        for (uint64_t block = 0; block < part.block_count; ++block) {
            const VolumeAddress address = part.address + block * kBlockBytes;
            if (address >= run.end())
                break;
            spend_turn(turns, group);
            if (!is_lost(store_, address, memory))
                continue;
            forget_to(address);
            good = address + kBlockBytes;
        }
        blocks += part.block_count;
    }
    // The last ones that were found may not be the last that there are.
    const VolumeAddress end =
        blocks < kRecheckedMax
            ? run.end()
            : std::min(run.end(), used.back().address + used.back().block_count * kBlockBytes);
    forget_to(end);
    return end;
}

// What is listed and was not found lost by it is good, or free, or nobody's any more. False: it was not
// looked at, since the scrub does not go on.
bool Scrub::recheck_damage(const Step& step, WorkTurns& turns)
{
    const bool saw_all = saw_all_nodes();
    const bool resumed = status().number == 0;
    const auto now = static_cast<uint64_t>(std::time(nullptr));
    for (const DamagedRun& run : store_.damage.runs()) {
        if (run.found_by == step.pass_id)
            continue;
        const Ref<const ArrayGroup> group = store_.volume.array().group_at(run.first);
        if (group && has_mirrored_nodes(*group)) {
            // It may have met one before somebody else could not read it; an earlier mount says only when.
            const bool since = resumed && run.found_seconds >= step.started && run.found_seconds <= now;
            if (saw_all && run.listed_in < step.pass_id && !since)
                store_.damage.forget(run.first, run.block_count);
            continue;
        }
        for (VolumeAddress at = run.first; at < run.end(); at = recheck_some(run, at, turns))
            if (!goes_on(step.number))
                return false;
    }
    return true;
}

// Also when it was freed, whether or not it is listed still: nobody is charged for what has its place then.
bool Scrub::is_node_lost(const BlockRef& ref)
{
    const View view = store_.timeline.view();
    if (!store_.damage.touches(ref.address, ref.address + kNodeBytes))
        return true;
    AlignedBuffer memory(kNodeBytes);
    return !store_.node_reader.read_node(ref, 0, memory).ok();
}

namespace {

// Until the rows of blocks are looked at again that could not be mended: a member may be back.
constexpr uint64_t kMendAgainMs = 10 * 60 * 1000;

// What the open state uses of it, if that is known.
std::vector<DamagedRun> used_parts(Store& store, const DamagedRun& run)
{
    std::vector<BlockRun> used;
    const Status known = store.allocator.live_blocks(run.first, run.block_count, used);
    std::vector<DamagedRun> parts;
    if (!known.ok() && known.err() != Err::kInvalid)
        return parts;
    for (const BlockRun& there : used) {
        DamagedRun part = run;
        part.first = there.address;
        if (part.first >= run.end())
            break;
        part.block_count = std::min<uint64_t>(there.block_count, (run.end() - part.first) / kBlockBytes);
        parts.push_back(part);
    }
    return parts;
}

}  // namespace

// Rows from the window of the free-space tree that has `at` on, until `at` is at or behind `end`. False:
// something there is wrong and stays so for now.
bool Scrub::mend_rows(const ArrayGroup& group, VolumeAddress& at, VolumeAddress end, WorkTurns& turns)
{
    const VolumeAddress first = group.record.address;
    const uint64_t stripe_bytes = group.geometry.stripe_data_bytes();
    const uint64_t window = window_stripes(group.geometry);
    const ScrubOrder order{.piece_bytes = kHeldBackBytes};
    ScrubPosition position{
        .tree = kTreeCount, .group = first, .stripe = (at - first) / stripe_bytes / window * window};
    bool mended = true;
    while (at < end && mended && !stopped()) {
        ScrubPiece piece;
        ScrubReport report;
        ScrubWalkCounts counts;
        mended = next_piece(store_, order, position, piece, turns, report, counts).ok();
        // Behind the last rows in use.
        if (!piece.group || piece.group->record.address != first || piece.last) {
            at = end;
            break;
        }
        scrub_rows(store_, order, piece, turns, report);
        turns.pause();
        // What is in use there may have become bad meanwhile; when it is deleted the row is mended. With a
        // member away it may only lack that.
        const bool degraded = store_.volume.degraded();
        if (!degraded)
            for (const VolumeAddress address : report.lost)
                note_damage(store_, address, 1, static_cast<uint64_t>(std::time(nullptr)),
                            DamageList::kByReader);
        at = first + position.stripe * stripe_bytes;
        mended = mended && (report.lost.empty() || !degraded) && !report.given_up &&
                 report.unrepaired + report.unsettled + report.unverified == 0;
    }
    return mended && at >= end;
}

// Others may have these places now, in rows that cannot be mended yet: what is good leaves the list. What is
// not in use any more stays there until its row is mended.
void Scrub::recheck_used(const std::vector<DamagedRun>& used, WorkTurns& turns)
{
    AlignedBuffer memory(kBlockBytes);
    for (const DamagedRun& run : used)
        for (VolumeAddress at = run.first; at < run.end(); at = at + kBlockBytes) {
            if (stopped())
                return;
            spend_turn(turns, store_.volume.array().group_at(at));
            if (is_lost(store_, at, memory))
                continue;
            const Result<bool> still = store_.allocator.is_used(at);
            if (still.ok() && *still)
                store_.damage.forget(at, 1);
        }
}

// `seen`: rows up to there were looked at before, with the result `mended`. False: they are not yet.
bool Scrub::mend_free(const ArrayGroup& group, const DamagedRun& run, VolumeAddress& seen, bool& mended,
                      WorkTurns& turns)
{
    if (VolumeAddress from = std::max(run.first, seen); from < run.end()) {
        mended = mend_rows(group, from, run.end(), turns);
        seen = from;
    }
    for (VolumeAddress known = run.first; mended && known < run.end();) {
        if (stopped())
            return false;
        known = recheck_some(run, known, turns);
    }
    return mended;
}

void Scrub::mend(const FreedDamage& freed, VolumeAddress& seen, bool& mended, WorkTurns& turns)
{
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(freed.run.first);
    if (!group)
        return store_.damage.forget(freed.run.first, freed.run.block_count);
    for (VolumeAddress at = freed.run.first; at < freed.run.end();) {
        DamagedRun part = freed.run;
        part.first = at;
        part.block_count = std::min<uint64_t>((freed.run.end() - at) / kBlockBytes, kRecheckedMax);
        const VolumeAddress end = at = part.end();
        std::vector<DamagedRun> used = used_parts(store_, part);
        recheck_used(used, turns);
        if (stopped()) {
            part.block_count = (freed.run.end() - part.first) / kBlockBytes;
            return store_.damage.give_back({part, freed.freed}, 0);
        }
        used.push_back({end, 0, 0});
        // What is free between them. What is lost and in use is told of again when it is freed.
        VolumeAddress free = part.first;
        for (const DamagedRun& there : used) {
            part.first = free;
            part.block_count = (there.first - free) / kBlockBytes;
            free = there.end();
            if (part.block_count > 0 && (stopped() || !mend_free(*group, part, seen, mended, turns)))
                store_.damage.give_back({part, freed.freed}, stopped() ? 0 : monotonic_ms() + kMendAgainMs);
        }
    }
}

bool Scrub::mend_freed()
{
    if (!store_.damage.awaits_mend() || stopped())
        return false;
    const TransactionId committed = store_.timeline.view().committed->transaction;
    const std::vector<FreedDamage> all = store_.damage.take_freed(committed, monotonic_ms());
    WorkTurns turns(store_.budget, work_of(scope_), store_.volume.members().rotational());
    VolumeAddress seen;
    bool mended = true;
    for (const FreedDamage& freed : all) {
        if (stopped())
            store_.damage.give_back(freed, 0);
        else
            mend(freed, seen, mended, turns);
    }
    // What others noted the next commit stores anyway; a volume that has stopped never does.
    if (!all.empty() && store_.damage.changed())
        store_.commits.request_commit();
    return !all.empty();
}

bool Scrub::stopped() const
{
    MutexLock lock(mutex_);
    return stopped_;
}

// Reads them again; what can be read now is listed no more. Who is stopped knows nothing: the columns stay
// as they are for the next mount.
bool Scrub::are_lost(const Step& step, WorkTurns& turns)
{
    AlignedBuffer memory(kBlockBytes);
    bool all = true;
    for (const BlockRef& node : step.lost_nodes) {
        if (stopped())
            return false;
        spend_turn(turns, store_.volume.array().group_at(node.address));
        if (is_node_lost(node))
            continue;
        store_.damage.forget(node.address, kNodeBlocks);
        all = false;
    }
    for (const VolumeAddress address : step.lost) {
        if (stopped())
            return false;
        spend_turn(turns, store_.volume.array().group_at(address));
        const Result<bool> used = store_.allocator.is_used(address);
        const bool unused = used.ok() && !*used;
        if (!unused && is_lost(store_, address, memory))
            continue;
        store_.damage.forget(address, 1);
        all = all && unused;
    }
    return all;
}

}  // namespace cowraid
