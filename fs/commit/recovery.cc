// SPDX-License-Identifier: MIT
// From what a crash left to a filesystem that reads or writes.
#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "fs/commit/committer.h"
#include "fs/commit/fsync_collect.h"
#include "fs/commit/replay.h"
#include "fs/names/removal.h"
#include "fs/txn/group_planning.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

// Of one run, which a mount or a remount begins.
constexpr uint32_t kMembersAlike = 1 << 0;  // all have the commit that was found
constexpr uint32_t kRowsWhole = 1 << 1;  // those that the write-intent log names
constexpr uint32_t kRoomPlanned = 1 << 2;
constexpr uint32_t kRowsSafe = 1 << 3;  // they have their commit, or share that of the records
constexpr uint32_t kAllCommitted = 1 << 4;
// These stay.
constexpr uint32_t kRecordsApplied = 1 << 5;  // those of the fsync log; or rescue goes without
constexpr uint32_t kLogDead = 1 << 6;  // the fsync log has nothing that the trees lack

// One run of a table of passes.
struct Recovery {
    Committer& committer;
    std::string& why;
    bool is_replayed;  // before it: by the mount, for reading
    RecoveryCounts counts;
};

// Whether it is what the log holds that makes recovery fail, and may do so at every mount.
bool is_of_log(const Committer& committer, Status status)
{
    return !status.ok() && status.err() != Err::kNoMemory && status.err() != Err::kNoThread &&
           !committer.store.volume.members().stopped();
}

Status begin_writing(Recovery& recovery)
{
    Store& store = recovery.committer.store;
    CW_TRY(store.volume.begin_writing());
    store.service.become(ServiceState::Kind::kStarting);
    return {};
}

// What recovery records counts as a write of its window (I-36): a member that fails before the commit may
// lack it.
class RecoverySink final : public TransactionChecksumSink {
public:
    RecoverySink(Transaction& transaction, Allocator& allocator)
        : TransactionChecksumSink(transaction, &allocator), transaction_(transaction), allocator_(allocator)
    {
    }
    void record(VolumeAddress address, std::span<const Checksum> checksums) override
    {
        TransactionChecksumSink::record(address, checksums);
        ++transaction_.rewritten_stripes;
        for (size_t block = 0; block < checksums.size() && !is_mutant(CommitMutant::kRecoveryUnnoted);
             ++block)
            allocator_.note_rewritten(address + block * kBlockBytes, transaction_.id);
    }
    // Groups of recovered rows stay in memory until the commit. A free block taken for one in use would leave
    // its row as the crash did.
    bool in_use(VolumeAddress address) override
    {
        const Result<bool> used = allocator_.is_used(address, Allocator::Ask::kInAnyCase);
        return !used.ok() || *used;
    }

private:
    Transaction& transaction_;
    Allocator& allocator_;
};

// Rows that were being written in place. The open transaction learns their checksums; a volume that is
// mounted read-only is not changed.
Status recover_rows(Recovery& recovery)
{
    Store& store = recovery.committer.store;
    RecoverySink sink(*store.timeline.open(), store.allocator);
    const Status status = store.volume.recover_rows(store.options, sink, recovery.counts);
    // What a read-only mount has recovered is recovered again when it may write.
    std::atomic<uint64_t>& rows = recovery.committer.recovered_rows;
    rows = std::max<uint64_t>(rows, recovery.counts.rows);
    if (status.err() == Err::kNoThread)
        recovery.why = err_text(status.err());
    // Reached by forgery only.
    if (status.err() == Err::kRange)
        recovery.why =
            "the numbers of the write-intent log are used up; mount with ro and copy what the volume holds";
    return status;
}

// Log entries of rows die with a commit that has their checksums, before there are new ones. With records to
// replay it comes before that, and changes nothing that they rest on: they count from the commit before it.
Status commit_rows(Recovery& recovery)
{
    Store& store = recovery.committer.store;
    // Entries that members have which are away must not count when these return: they die with the commit,
    // too.
    if (recovery.counts.rows == 0 && !(store.volume.intent_log_live() && store.volume.degraded()))
        return {};
    store.timeline.open()->dirty = true;
    // Remounted for writing: the records are in the open transaction already.
    if ((recovery.committer.recovered & kRecordsApplied) != 0) {
        store.service.become(ServiceState::Kind::kCommittingRows);
        return {};
    }
    if (store.volume.fsync_log_live())
        store.number_commits_from({store.volume.superblock().tree_commits});
    return recovery.committer.commit();
}

Status apply_records(Recovery& recovery)
{
    Committer& committer = recovery.committer;
    if ((committer.recovered & kRecordsApplied) != 0)
        return {};
    if (!committer.store.volume.fsync_log_live()) {
        committer.recovered |= kLogDead;
        return {};
    }
    const MountOptions& options = committer.store.options;
    const Status status = replay_fsync_log(committer, recovery.why);
    if (status.ok() || !(options.rescue && options.read_only)) {
        committer.held_up_by_log = is_of_log(committer, status);
        return status;
    }
    CW_LOG_WARNING("%s: mounted without it", recovery.why.c_str());
    recovery.why.clear();
    return {};
}

// Everything that the logs hold, in the trees.
Status commit_all(Recovery& recovery)
{
    Store& store = recovery.committer.store;
    refresh_budget(store);
    if (store.volume.any_log_live()) {
        store.timeline.open()->dirty = true;
        store.volume.renew_log_epoch();
    }
    Committer& committer = recovery.committer;
    if (store.timeline.open()->dirty) {
        const Status status = committer.commit();
        // A mount takes less room than a remount, whose rows, beside the records, take no new blocks.
        const bool is_room = status.err() == Err::kNoSpace && recovery.is_replayed;
        committer.held_up_by_log = is_of_log(committer, status) && committer.replayed_records > 0 &&
                                   (!is_room || committer.held_up_by_log);
        CW_TRY(status);
    }
    store.service.become(ServiceState::Kind::kStarting);
    return {};
}

// From now on fsync may append to the log.
Status start_fsync_log(Recovery& recovery)
{
    Committer& committer = recovery.committer;
    Volume& volume = committer.store.volume;
    if (!committer.fsync_log)
        committer.fsync_log.set(std::make_unique<FsyncLog>(volume.members(), volume.superblock(),
                                                           volume.tolerance(), committer.next_record,
                                                           Generation{volume.superblock().tree_commits}));
    if (!volume.fsync_log_live())
        return {};
    WriteLock gate(committer.store.gate);
    committer.syncs.set_wants_log(true);
    restart_tracking(committer, true);
    return {};
}

struct RecoveryPass {
    const char* name;  // "NAME failed"
    Status (*run)(Recovery& recovery);
    uint32_t needs;
    uint32_t leaves;
};

constexpr RecoveryPass kWritingPasses[] = {
    {"writing superblocks", begin_writing, 0, kMembersAlike},
    {"recovering rows after a crash", recover_rows, kMembersAlike, kRowsWhole},
    {"planning block groups", [](Recovery& recovery) { return plan_ahead(recovery.committer.store); },
     kRowsWhole, kRoomPlanned},
    {"committing recovered rows", commit_rows, kRoomPlanned, kRowsSafe},
    {"replaying the fsync log", apply_records, kRoomPlanned, kRecordsApplied},
    {"committing what the logs hold", commit_all, kRowsSafe | kRecordsApplied, kAllCommitted | kLogDead},
    {"starting the fsync log", start_fsync_log, kAllCommitted, 0},
    {"looking for deleted files", [](Recovery& recovery) { return queue_orphans(recovery.committer.names); },
     kAllCommitted, 0},
};

// In memory only.
constexpr RecoveryPass kReadingPasses[] = {
    {"recovering rows after a crash", recover_rows, 0, kRowsWhole},
    {"replaying the fsync log", apply_records, kRowsWhole, kRecordsApplied},
};

// What the user may do about a pass that failed with that.
std::string help_after(const Recovery& recovery, Status status)
{
    const char* const reading =
        status.err() == Err::kTooManyFaults ? "; what is there can be read with -o ro" : "";
    if (recovery.committer.held_up_by_log)
        return recovery.is_replayed ? "; " + recovery.committer.step_to_write()
                                    : help_without_log(recovery.committer, reading);
    return status.err() == Err::kNoSpace && recovery.is_replayed
               ? "; unmount it and mount it for writing, which takes less room"
               : reading;
}

Status run_recovery(Committer& committer, std::span<const RecoveryPass> passes, std::string& why)
{
    const uint64_t begun_ns = monotonic_ns();
    const uint64_t records_before = committer.replayed_records;
    Recovery recovery{committer, why, records_before > 0 && committer.store.service.keeps_log(), {}};
    Status result;
    committer.recovered &= kRecordsApplied | kLogDead;
    for (const RecoveryPass& pass : passes) {
        if ((pass.needs & ~committer.recovered) != 0)
            continue;
        const Status status = pass.run(recovery);
        if (status.ok()) {
            committer.recovered |= pass.leaves;
            continue;
        }
        result = status;
        if (why.empty())
            why =
                std::string(pass.name) + " failed: " + err_text(status.err()) + help_after(recovery, status);
        // Without room what needs none goes on: it can be read then.
        if (status != Status(Err::kNoSpace))
            break;
    }
    const uint64_t records = committer.replayed_records - records_before;
    if (result.ok() && recovery.counts.rows + records > 0)
        CW_LOG_INFO("recovered %llu rows and %llu records in %.2f s",
                    static_cast<unsigned long long>(recovery.counts.rows),
                    static_cast<unsigned long long>(records),
                    static_cast<double>(monotonic_ns() - begun_ns) / 1e9);
    return result;
}

void become_read_only(Committer& committer)
{
    committer.store.service.become((committer.recovered & kLogDead) != 0 ? ServiceState::Kind::kReading
                                                                         : ServiceState::Kind::kKeepingLog);
}

// Groups that hold nothing give their slots back before a write fills them: with a member that is back wider
// ones can be made. What takes more commits goes on while mounted. An error stops the filesystem.
void return_empty_groups(Committer& committer)
{
    constexpr int kCommitsMax = 8;
    for (int commits = 0; commits < kCommitsMax; ++commits)
        if (!committer.commit().ok() || !committer.empty_groups.wants_commit())
            return;
}

}  // namespace

Status Committer::start_writing(std::string& why)
{
    if (const Status status = run_recovery(*this, kWritingPasses, why); !status.ok()) {
        if (!store.service.failed())
            become_read_only(*this);
        return status;
    }
    refresh_budget(store);
    store.commits.resume();
    store.service.become(ServiceState::Kind::kWriting);
    return_empty_groups(*this);
    cleaner.reserve_for_marked();
    const Status started = store.options.manual_commit ? Status() : background.start();
    if (!started.ok()) {
        why = err_text(started.err());
        stop_writing().ignore();  // after an error the logs hold what is lacking
    }
    return started;
}

Status Committer::start(std::string& why)
{
    const bool advised = store.volume.read_only_advised();
    if (advised)
        store.service.set_reason(store.volume.read_only_reason().text.c_str());
    store.damage.load(store).ignore();  // where it cannot be read, a scrub finds the damage again
    if (store.options.read_only || advised) {
        CW_TRY(run_recovery(*this, kReadingPasses, why));
        become_read_only(*this);
        return {};
    }
    const Status status = start_writing(why);
    // What the logs hold is in memory and can be read, unless it is to be dropped, or was left out.
    if (status.err() != Err::kNoSpace || (recovered & kRecordsApplied) == 0 ||
        store.options.without_fsync_log || (store.options.drop_fsync_log && held_up_by_log))
        return status;
    store.service.set_reason("no room for what the logs hold");
    store.volume.end_writing();
    return {};
}

}  // namespace cowraid
