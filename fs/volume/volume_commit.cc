// SPDX-License-Identifier: MIT
// What makes a volume's state durable: map, superblocks, member states, in which order.
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
#include "journal/log_life.h"

namespace cowraid {

void Volume::next_is_committed()
{
    generation_.store(next_.generation.value);
    log_epoch_.store(next_.log_epoch);
    keeps_rights_.store((next_.readonly_features & feature_bit("rights")) != 0);
    balance_is_committed();
    MutexLock lock(mutex_);
    // Groups are made on new members once this superblock is durable.
    for (const MemberRecord& record : next_.members)
        if (committed_.member(record.id) == nullptr) {
            slots_.add_member(record, members_.device(record.id) != nullptr);
            slots_.set_leaving(record.id, true);
        }
    if (committed_.data_profile != next_.data_profile ||
        committed_.metadata_profile != next_.metadata_profile)
        forget_potential();
    shown_ = committed_ = next_;
}

Status Volume::write_map(MapWrite how, Generation generation)
{
    if (!map_changed_)
        return {};
    // No mount takes a map with such marks otherwise.
    CW_DEBUG_ASSERT((next_.replace.active() && !taking_over_) ||
                    std::none_of(map_.groups.begin(), map_.groups.end(),
                                 [](const GroupRecord& group) { return (group.flags & kGroupCopied) != 0; }));
    map_.generation = generation;
    MapRef reference;
    const std::vector<std::byte> bytes = encode_group_map(map_, committed_.volume_uuid, reference);
    // The place that the last durable superblock names must survive until the next one is durable.
    const uint32_t other = is_mutant(CommitMutant::kMapInPlace) ? 0 : 1;
    const uint32_t place = committed_.map.bytes != 0 ? committed_.map.place ^ other : 0;
    reference.place = place;
    reference.generation = generation;
    next_.map = reference;
    if (how == MapWrite::kPrepare)
        return {};
    return write_group_map(members_, next_, bytes, place);
}

Status Volume::flush()
{
    return flush_members(members_);
}

bool Volume::counters_changed() const
{
    commit_thread_.assert_here();
    return std::any_of(committed_.members.begin(), committed_.members.end(), [&](const MemberRecord& record) {
        return members_.counters(record.id) != record.counters;
    });
}

// Flushes all members, with no write in place under way. `covered`: the log entries whose writes it covers.
Status Volume::flush_data(uint64_t& covered)
{
    Array::FlushBarrier barrier(*array_);
    CW_TRY(flush());
    barrier.flushed();
    covered = barrier.covered;
    return {};
}

// Of members that are away only those that the map in memory, which is on the members now, is told of: one
// that failed since then has everything this superblock refers to.
void Volume::note_member_states(Generation generation)
{
    for (MemberRecord& record : next_.members) {
        record.counters = members_.counters(record.id);
        const bool away = std::find(away_.begin(), away_.end(), record.id) != away_.end();
        if (!away && record.state != MemberState::kPresent) {
            record.state = MemberState::kPresent;
            record.missing_since = {};
            CW_LOG_INFO("%s is in service", members_.name(record.id).c_str());
        }
        if (!away || record.state != MemberState::kPresent)
            continue;
        record.state = members_.failed(record.id) ? MemberState::kFailed : MemberState::kMissing;
        record.missing_since = generation;
        if (record.state == MemberState::kFailed)
            CW_LOG_ERROR(
                "%s failed: out of service since commit %llu; %s", members_.name(record.id).c_str(),
                static_cast<unsigned long long>(generation.value),
                tolerance_text(next_, map_, away_, needed_for_writing(voter_count(next_), half_)).c_str());
    }
}

// A number that no other mount of this volume has, nor one of a copy of its members: entries of theirs are
// dead here, and superblocks of one generation that differ in it were written apart.
void Volume::begin_log_epoch()
{
    next_.log_epoch = random_u64() | 1;
}

void Volume::set_live(uint32_t log, bool live)
{
    commit_thread_.assert_here();
    if (live && next_.live_logs == 0)
        begin_log_epoch();
    next_.live_logs = live ? next_.live_logs | log : next_.live_logs & ~log;
}

void Volume::set_tree_commits(uint64_t count)
{
    commit_thread_.assert_here();
    next_.tree_commits = count;
    if (wants_rights_.load(std::memory_order_relaxed))
        next_.readonly_features |= feature_bit("rights");
    if (renew_log_epoch_)
        begin_log_epoch();
    renew_log_epoch_ = false;
}

Status Volume::write_superblock(Generation generation, const BlockRef& root)
{
    next_.generation = generation;
    next_.root = root;
    next_.incompat_features |= needed_features_;
    note_member_states(generation);
    CW_TRY(write_to_new_members());
    CW_TRY(write_to_successor());
    if (is_mutant(CommitMutant::kShrunkFirst) && next_.balance.shrink_bytes != 0) {
        Superblock early = next_;
        early.member(next_.balance.member)->slot_count = first_emptied_slot(next_.balance);
        CW_TRY(write_superblocks(members_, early));
    } else
        CW_TRY(write_superblocks(members_, next_));
    next_is_committed();
    return {};
}

Status Volume::make_durable(MapWrite how, Generation generation, const BlockRef& root, uint64_t& covered)
{
    commit_thread_.assert_here();
    apply_caught_up();
    record_away();
    while (true) {
        std::vector<StaleColumn> caught_up = take_caught_up();
        CW_TRY(write_map(how, generation));
        CW_TRY(flush_data(covered));
        caught_up_flushed_.insert(caught_up_flushed_.end(), caught_up.begin(), caught_up.end());
        if (record_away())
            continue;
        const Status written = write_superblock(generation, root);
        if (written.err() == Err::kStale) {
            // Nobody else may have another one of that number (I-33).
            record_away();
            generation = generation.next();
            continue;
        }
        CW_TRY(written);
        CW_TRY(flush());
        if (how == MapWrite::kPrepare) {
            CW_TRY(write_map(MapWrite::kNow, generation));
            next_.map = committed_.map;
        }
        map_changed_ = false;
        // That all know of a successor one more says, to mounts at which many are away.
        const bool took_over = std::exchange(took_over_, false);
        // A member that failed while its superblock was written is still called present by the others'.
        if (!record_away() && !took_over)
            return {};
        generation = generation.next();
    }
}

void Volume::commit_done(Allocator& allocator)
{
    commit_thread_.assert_here();
    await_discard();
    for (std::vector<VolumeAddress>* groups : {&planned_, &reopened_}) {
        for (const VolumeAddress address : *groups)
            if (!allocator.numbers_of(address)->closed)  // else it is emptied, or about to leave
                allocator.set_group_state(address, Allocator::GroupState::kOpen);
        groups->clear();
    }
    give_dropped_back();
    std::vector<MemberId> table;
    for (const MemberRecord& record : committed_.members)
        table.push_back(record.id);
    if (table != settled_)
        settle_members(std::exchange(settled_, table));
    if (committed_.replace.active())
        members_.set_quorums({quorum_of(committed_, committed_)});  // its target may have all now
    // A majority that lacks nothing: one that is being filled may fail, and the half goes on.
    const std::vector<GroupRecord>& groups = map_.groups;
    const MemberId target = committed_.replace.target;
    const auto is_whole = [&](const MemberRecord& record) {
        return record.id != target && members_.device(record.id) != nullptr &&
               std::none_of(groups.begin(), groups.end(), [&](const GroupRecord& group) {
                   return std::any_of(group.columns.begin(), group.columns.end(),
                                      [&](const GroupColumn& column) {
                                          return column.member == record.id && column.stale();
                                      });
               });
    };
    if (half_ &&
        static_cast<size_t>(std::count_if(committed_.members.begin(), committed_.members.end(), is_whole)) >=
            needed_for_writing(voter_count(committed_), false)) {
        half_ = false;  // what quorum_of() asks for now
        half_ = !members_.require({quorum_of(committed_, committed_)});
    }
    MutexLock lock(mutex_);
    for (const MemberRecord& record : committed_.members)
        if (!is_mutant(CommitMutant::kShrunkSlotsStay) && slots_.resize_member(record))
            forget_potential();
}

void Volume::give_dropped_back()
{
    MutexLock lock(mutex_);
    if (dropped_.empty())
        return;
    for (const GroupRecord& group : dropped_) {
        slots_.give_back(group);
        for (const GroupColumn& column : group.columns)
            for (const SlotRun& run : column.runs)
                freed_.push_back({column.member, run.first_slot, run.slot_count});
    }
    dropped_.clear();
    forget_potential();
}

Status Volume::recover_rows(const MountOptions& options, ChecksumSink& sink, RecoveryCounts& counts)
{
    commit_thread_.assert_here();
    const bool read_only = array_->read_only();
    uint64_t next_sequence = 1;
    if (intent_log_live()) {
        IntentScan scan(members_, committed_);
        if (!read_only && scan.next_sequence() > kMaxIntentSequence / 2)
            return Err::kRange;
        if (!read_only) {
            record_recovery(scan);
            CW_TRY(publish_map());
        }
        CW_TRY(array_->recover_rows(scan, sink, counts));
        // Members that failed in between.
        if (!read_only)
            record_recovery(scan);
        next_sequence = scan.next_sequence();
        // With live rows the commit that follows makes everything in the logs dead.
        if (counts.rows == 0 && !read_only)
            CW_TRY(scan.erase());
    }
    if (read_only)
        return {};
    if (counts.rows > 0)
        CW_TRY(flush());
    if (intent_log_)
        return {};
    auto log = std::make_unique<IntentLog>(members_, committed_, next_sequence);
    PartialWriteOptions partial = options.partial_writes;
    if (options.manual_commit)
        partial.worker_count = 0;
    CW_TRY(array_->start_partial_writes(*log, partial));
    intent_log_.set(std::move(log));
    return {};
}

// A changed map without new trees.
Status Volume::publish_map()
{
    uint64_t covered = 0;
    return map_changed_ ? make_durable(MapWrite::kNow, committed_.generation.next(), committed_.root, covered)
                        : Status();
}

void Volume::end_writing()
{
    array_->set_read_only(true);
    members_.set_recorded(false);
}

Status Volume::begin_writing()
{
    commit_thread_.assert_here();
    members_.set_recorded(true);
    for (const MemberId id : damaged_rings_)
        members_.count(id, MemberCounter::kSuperblock);
    damaged_rings_.clear();
    CW_TRY(go_on_taking_over());
    CW_TRY(erase_slots(members_, damaged_slots_));
    damaged_slots_.clear();
    // Neighbours that a crash left one commit apart are alike again before anything else is written.
    if (found_map_) {
        std::vector<MemberId> trusted;
        for (const MemberRecord& record : committed_.members)
            if (std::find(distrusted_.begin(), distrusted_.end(), record.id) == distrusted_.end())
                trusted.push_back(record.id);
        CW_TRY(rewrite_commit(members_, committed_, *found_map_, trusted));
    }
    found_map_.reset();
    distrusted_.clear();
    const bool returned =
        std::any_of(committed_.members.begin(), committed_.members.end(), [&](const MemberRecord& record) {
            return record.state != MemberState::kPresent && members_.device(record.id) != nullptr;
        });
    if (!degraded() && !returned && !map_changed_ && taken_over_.value == 0)
        return {};
    const Generation generation = committed_.generation.next();
    const bool new_epoch = degraded();
    if (new_epoch) {
        next_.epochs.insert(next_.epochs.begin(), {random_u64(), generation});
        if (next_.epochs.size() > kEpochHistoryCount)
            next_.epochs.resize(kEpochHistoryCount);
        // Entries that may be there stay known by the epoch that they carry.
        if (next_.live_logs == 0)
            next_.log_epoch = next_.epochs.front().epoch;
    }
    uint64_t covered = 0;
    CW_TRY(make_durable(MapWrite::kNow, generation, committed_.root, covered));
    if (std::exchange(taken_over_, {}).value != 0)
        members_.set_quorums({quorum_of(committed_, committed_)});
    replaced_.reset();
    // They are known by their epoch, and the history drops the oldest.
    for (const MemberRecord& spare : committed_.spares)
        if (BlockDevice* const device = spares_.device(spare.id); device != nullptr && new_epoch)
            if (const Status moved = move_spare(*device, committed_, spare.id); !moved.ok())
                CW_LOG_WARNING("spare %u (%s) cannot be written: %s", spare.id.value, device->name(),
                               err_text(moved.err()));
    return {};
}

}  // namespace cowraid
