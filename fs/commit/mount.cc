// SPDX-License-Identifier: MIT
#include "fs/commit/mount.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/clock.h"
#include "base/log.h"
#include "base/out_of_memory.h"
#include "format/items.h"
#include "format/member_layout.h"
#include "fs/commit/committer.h"
#include "fs/commit/fsync_collect.h"
#include "fs/commit/replay.h"
#include "fs/names/removal.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

template <typename Disk>
Status lookup_struct(NodeCache& cache, const TreeRoot& tree, const Key& key, Disk& out)
{
    std::vector<std::byte> payload;
    CW_TRY(tree_lookup(cache, tree, key, payload));
    if (payload.size() != sizeof out)
        return Err::kCorrupt;
    std::memcpy(&out, payload.data(), sizeof out);
    return {};
}

Status lookup_root(NodeCache& cache, const TreeRoot& root, TreeRoot& tree)
{
    DiskTreeRoot disk;
    const Key key{tree.tree_id, static_cast<uint8_t>(ItemType::kTreeRoot), 0};
    CW_TRY(lookup_struct(cache, root, key, disk));
    tree.root = decode(disk.root);
    return block_ref_valid(tree.root, root.root.generation) ? Status() : Err::kCorrupt;
}

Status read_usages(NodeCache& cache, const TreeRoot& tree, std::vector<GroupUsage>& usages)
{
    const auto type = static_cast<uint8_t>(ItemType::kGroupSummary);
    TreeCursor cursor(cache, tree);
    CW_TRY(cursor.seek({0, type, 0}));
    while (cursor.valid() && cursor.key().object == 0 && cursor.key().type == type) {
        DiskGroupSummary disk;
        if (cursor.payload().size() != sizeof disk)
            return Err::kCorrupt;
        std::memcpy(&disk, cursor.payload().data(), sizeof disk);
        usages.push_back({{cursor.key().offset}, disk.used_blocks, disk.free_rows, disk.free_stripes});
        CW_TRY(cursor.next());
    }
    return {};
}

// What can be said of the counters without reading all inodes. A number that was given already would be given
// again; sums must not wrap.
Status validate_counters(NodeCache& cache, Volume& volume, const RootContent& content)
{
    const VolumeCounters& counters = content.counters;
    if (counters.next_inode <= kRootInode || counters.next_inode > kMaxInode ||
        counters.inode_count > counters.next_inode - kRootInode ||
        counters.reserved_blocks > raw_blocks(volume.superblock()))
        return Err::kCorrupt;
    TreeCursor last(cache, content.committed->file_tree);
    CW_TRY(last.seek_before(kMaxKey));
    return last.valid() && last.key().object >= counters.next_inode ? Err::kCorrupt : Err::kOk;
}

Status read_root_tree(Volume& volume, RootContent& content)
{
    constexpr uint64_t kCacheBytes = 4 * kMiB;
    ArrayNodeReader reader(volume.array());
    NodeCache cache(reader, volume.superblock().volume_uuid, kCacheBytes);
    const TreeRoot root{kRootTree, volume.superblock().root};
    Ref<Committed> committed = make_ref<Committed>();
    committed->generation = volume.superblock().generation;
    CW_TRY(lookup_root(cache, root, committed->file_tree));
    CW_TRY(lookup_root(cache, root, committed->checksum_tree));
    CW_TRY(lookup_root(cache, root, committed->free_space_tree));
    // Made with its first entry.
    if (const Status found = lookup_root(cache, root, committed->remap_tree); found.err() != Err::kNotFound)
        CW_TRY(found);
    if (committed->remap_tree.root.address.valid() && !volume.may_have_moved_blocks())
        return Err::kCorrupt;
    DiskVolume disk{};
    CW_TRY(lookup_struct(cache, root, {0, static_cast<uint8_t>(ItemType::kVolume), 0}, disk));
    content.counters = {disk.next_inode, disk.inode_count, disk.reserved_blocks};
    content.committed = Ref<const Committed>(committed.get());
    CW_TRY(validate_counters(cache, volume, content));
    return read_usages(cache, committed->free_space_tree, content.usages);
}

}  // namespace

Result<RootContent> read_root(Volume& volume, std::string& why)
{
    RootContent content;
    const Status status = read_root_tree(volume, content);
    if (!status.ok()) {
        why = std::string("the root tree cannot be read: ") + err_text(status.err());
        return status;
    }
    return content;
}

void Committer::load(const RootContent& root)
{
    store.allocator.set_memory_limit(usual_memory_bytes() / 4);
    std::unordered_map<uint64_t, GroupUsage> usages;
    for (const GroupUsage& usage : root.usages)
        usages.emplace(usage.group_address.value, usage);
    for (const GroupRecord& group : store.volume.map().groups) {
        const Geometry geometry = geometry_of(group);
        GroupUsage usage{group.address, 0, geometry.row_count(), geometry.stripe_count()};
        if (const auto at = usages.find(group.address.value); at != usages.end())
            usage = at->second;
        const bool emptying = (group.flags & kGroupEmptying) != 0;
        store.allocator.add_group(group, usage,
                                  emptying ? Allocator::GroupState::kClosed : Allocator::GroupState::kOpen);
    }
    close_degraded_groups(store);
    store.commits_before = store.volume.superblock().tree_commits;
    names.next_inode = root.counters.next_inode;
    names.inode_count = root.counters.inode_count;
    files.reserved_blocks = static_cast<int64_t>(root.counters.reserved_blocks);
    store.ledger.reserve_data_anyway(root.counters.reserved_blocks);
    refresh_budget(store);
}

namespace {

// After a crash, rows that were being written in place. The open transaction learns their checksums; a volume
// that is mounted read-only is not changed.
Status recover_rows(Committer& committer, RecoveryCounts& counts, std::string& why)
{
    TransactionChecksumSink sink(*committer.store.timeline.open(), &committer.store.allocator);
    const Status status = committer.store.volume.recover_rows(committer.store.options, sink, counts);
    committer.recovered_rows += counts.rows;
    // Reached by forgery only.
    if (status.err() == Err::kRange)
        why = "the numbers of the write-intent log are used up; mount with ro and copy what the volume holds";
    else if (!status.ok())
        why = std::string("recovering rows after a crash failed: ") + err_text(status.err());
    return status;
}

// Log entries of rows die with a commit that has their checksums, before there are new ones. With records to
// replay it comes before that, and changes nothing that they rest on: they count from the commit before it.
Status commit_rows(Committer& committer)
{
    committer.store.timeline.open()->dirty = true;
    // Remounted for writing: the records are in the open transaction already, which writes no rows in place.
    committer.store.whole_rows_only = committer.replay_done;
    if (committer.replay_done)
        return {};
    if (committer.store.volume.fsync_log_live())
        committer.store.commits_before.fetch_sub(1);
    return committer.commit();
}

Status replay_log(Committer& committer, std::string& why)
{
    if (committer.replay_done)
        return {};
    Status status = replay_fsync_log(committer, committer.replay, why);
    if (!status.ok() && committer.store.options.rescue && committer.store.options.read_only) {
        CW_LOG_WARNING("%s: mounted without it", why.c_str());
        why.clear();
        return {};
    }
    committer.replay_done = status.ok();
    return status;
}

// One line for what a crash left to do.
class RecoveryReport {
public:
    explicit RecoveryReport(const Committer& committer)
        : committer_(committer),
          begun_ns_(monotonic_ns()),
          rows_(committer.recovered_rows),
          records_(committer.replayed_records)
    {
    }
    void log() const
    {
        const uint64_t rows = committer_.recovered_rows - rows_;
        const uint64_t records = committer_.replayed_records - records_;
        if (rows + records > 0)
            CW_LOG_INFO("recovered %llu rows and %llu records in %.2f s",
                        static_cast<unsigned long long>(rows), static_cast<unsigned long long>(records),
                        static_cast<double>(monotonic_ns() - begun_ns_) / 1e9);
    }

private:
    const Committer& committer_;
    uint64_t begun_ns_;
    uint64_t rows_, records_;
};

// Everything that the logs hold, in the trees.
Status recover_and_commit(Committer& committer, std::string& why)
{
    const RecoveryReport report(committer);
    RecoveryCounts counts;
    CW_TRY(recover_rows(committer, counts, why));
    CW_TRY(plan_ahead(committer.store));
    // Entries that members have which are away must not count when these return: they die with the commit,
    // too.
    Status rows_kept;
    if (counts.rows > 0 || (committer.store.volume.intent_log_live() && committer.store.volume.degraded()))
        rows_kept = commit_rows(committer);
    if (rows_kept.ok() || rows_kept.err() == Err::kNoSpace)
        CW_TRY(replay_log(committer, why));
    CW_TRY(rows_kept);
    refresh_budget(committer.store);
    if (committer.store.volume.any_log_live()) {
        committer.store.timeline.open()->dirty = true;
        committer.store.volume.renew_log_epoch();
    }
    if (committer.store.timeline.open()->dirty)
        CW_TRY(committer.commit());
    committer.store.whole_rows_only = false;
    report.log();
    return {};
}

// From now on fsync may append to the log.
void start_fsync_log(Committer& committer)
{
    const Superblock& superblock = committer.store.volume.superblock();
    const uint32_t tolerance = std::max(committer.store.volume.data_profile().tolerance,
                                        committer.store.volume.metadata_profile().tolerance);
    if (!committer.fsync_log)
        committer.fsync_log =
            std::make_unique<FsyncLog>(committer.store.volume.members(), superblock, tolerance,
                                       committer.replay.next_sequence, Generation{superblock.tree_commits});
    committer.replay.log_live = false;
    if (!committer.store.volume.fsync_log_live())
        return;
    WriteLock gate(committer.store.gate);
    committer.syncs.set_wants_log(true);
    restart_tracking(committer, true);
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

namespace {

ServiceState::Kind read_only_kind(const ReplayResult& replay)
{
    return replay.log_live ? ServiceState::Kind::kKeepingLog : ServiceState::Kind::kReading;
}

}  // namespace

Status Committer::recover_in_memory(std::string& why)
{
    const RecoveryReport report(*this);
    RecoveryCounts counts;
    CW_TRY(recover_rows(*this, counts, why));
    CW_TRY(replay_log(*this, why));
    store.service.become(read_only_kind(replay));
    report.log();
    return {};
}

// Why writing cannot begin, with the next step.
static std::string start_problem(const char* what, Status status)
{
    return std::string(what) + " failed: " + err_text(status.err()) +
           (status.err() == Err::kTooManyFaults ? "; what is there can be read with -o ro" : "");
}

Status Committer::start_writing(std::string& why)
{
    Status status = store.volume.begin_writing();
    if (!status.ok()) {
        why = start_problem("writing superblocks", status);
        return status;
    }
    store.service.become(ServiceState::Kind::kStarting);
    status = recover_and_commit(*this, why);
    if (status.ok()) {
        start_fsync_log(*this);
        status = queue_orphans(names);
    }
    if (!status.ok()) {
        if (!store.service.failed())
            store.service.become(read_only_kind(replay));
        if (why.empty())
            why = start_problem("preparing to write", status);
        return status;
    }
    refresh_budget(store);
    store.commits.resume();
    store.service.become(ServiceState::Kind::kWriting);
    return_empty_groups(*this);
    if (!store.options.manual_commit)
        background.start();
    return {};
}

Status Committer::start(std::string& why)
{
    const char* const reason = store.volume.read_only_reason();
    if (reason != nullptr)
        store.service.set_reason(reason);
    if (store.options.read_only || reason != nullptr)
        return recover_in_memory(why);
    const Status status = start_writing(why);
    // What the logs hold is in memory and can be read.
    if (status.err() != Err::kNoSpace || !replay_done)
        return status;
    store.service.set_reason("no room for what the logs hold");
    store.volume.array().set_read_only(true);
    return {};
}

}  // namespace cowraid
