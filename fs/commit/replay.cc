// SPDX-License-Identifier: MIT
#include "fs/commit/replay.h"

#include <cstring>

#include "base/log.h"
#include "format/items.h"
#include "format/member_layout.h"
#include "fs/files/extents.h"
#include "fs/files/file_blocks.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

// A copy that cannot be read although the scan found it: the next scan goes without it.
constexpr int kScans = 3;

DirtyExtent copy_of(const LoggedBlocks& blocks)
{
    DirtyExtent extent{make_ref<SharedBuffer>(blocks.block_count * kBlockBytes), 0,
                       static_cast<uint32_t>(blocks.block_count)};
    std::memcpy(extent.buffer->buffer.data(), blocks.content, blocks.block_count * kBlockBytes);
    return extent;
}

// What the records that count say, one batch in memory at a time. Returns how many there are.
Result<uint64_t> read_records(Store& store, FsyncScan& scan, ReplayedState& state)
{
    uint64_t count = 0;
    for (const FsyncScan::Batch& batch : scan.batches()) {
        CW_ASSIGN(const FsyncContent content, scan.read(batch));
        for (const std::span<const std::byte> bytes : content.records) {
            const Result<FsyncRecord> record = decode_fsync_record(bytes);
            if (!record.ok())
                return Err::kCorrupt;
            state.add(*record);
            ++count;
        }
    }
    const size_t left_out = scan.left_out().size();
    if (left_out > 0)
        CW_LOG_WARNING(
            "fsync log: %zu batches behind commit %llu are left out: something before them is lost", left_out,
            static_cast<unsigned long long>(store.volume.superblock().tree_commits));
    return count;
}

// `refused`: it failed, and nothing is applied.
Status replay_scan(Committer& committer, FsyncScan& scan, bool& refused)
{
    refused = true;
    committer.next_record = scan.next_sequence();
    const TransactionId open = committer.store.timeline.open()->id;
    if (committer.store.commit_number(open) < scan.commit_at_least())
        committer.store.number_commits_from(scan.commit_at_least());
    if (committer.store.options.without_fsync_log)
        return {};
    ReplayedState state(committer);  // nothing is applied before all have been read
    CW_ASSIGN(const uint64_t count, read_records(committer.store, scan, state));
    if (count == 0)
        return {};
    CW_TRY(state.validate());
    refused = false;
    CW_TRY(state.apply());
    committer.replayed_records += count;
    return {};
}

constexpr const char* kBeforeIt = "; what was before can be read with -o ro,rescue";

}  // namespace

ReplayedState::ReplayedState(Committer& committer) : committer_(committer)
{
    const Ref<const Committed> committed = committer.store.timeline.view().committed;
    const TransactionId open = committer.store.timeline.open()->id;
    view_ = {make_ref<Transaction>(open), {}, committed};
    before_ = {make_ref<Transaction>(open), {}, committed};
}

void ReplayedState::add(const FsyncRecord& record)
{
    for (const FsyncRecord::Item& item : record.items) {
        if (item.erased)
            view_.open->items.erase(item.key);
        else
            view_.open->items.put(item.key, item.payload);
        if (item.key.type == static_cast<uint8_t>(ItemType::kExtent))
            extent_keys_.insert(item.key);
    }
    for (const LoggedBlocks& blocks : record.blocks) {
        DirtyMap& dirty = dirty_[blocks.inode.value];
        if (blocks.content == nullptr)
            dirty.erase(blocks.first_block, blocks.block_count);
        else
            dirty.insert(blocks.first_block, copy_of(blocks));
    }
    counters_fell_ = counters_fell_ || record.counters.next_inode < counters_.next_inode;
    counters_ = record.counters;
}

Status ReplayedState::validate()
{
    // Items were compared with the counters of their own record, and their numbers are not given again.
    if (counters_fell_ || counters_.next_inode < committer_.names.next_inode)
        return Err::kCorrupt;
    if (counters_.reserved_blocks > raw_blocks(committer_.store.volume.superblock().members))
        return Err::kCorrupt;
    for (const Key& key : extent_keys_) {
        CW_TRY(validate_extent(key));
        CW_TRY(settle_old_extent(key));
    }
    for (const auto& [inode, dirty] : dirty_)
        if (!dirty.empty())
            CW_TRY(validate_data({inode}, dirty));
    return {};
}

Status ReplayedState::validate_data(InodeNumber inode, const DirtyMap& dirty)
{
    ItemBytes payload;
    const Status found = committer_.store.items.get(view_, inode_key(inode), payload);
    if (!found.ok())
        return found.err() == Err::kNotFound ? Err::kCorrupt : found.err();
    CW_ASSIGN(const InodeAttributes attributes, decode_inode(payload));
    const auto& [last, extent] = *dirty.extents().rbegin();
    const bool inside = last + extent.block_count <= divide_up(attributes.size_bytes, kBlockBytes);
    return attributes.is_regular() && inside ? Status() : Status(Err::kCorrupt);
}

Status ReplayedState::add_dirty(InodeNumber number, const DirtyMap& dirty)
{
    CW_ASSIGN(const Ref<Inode> inode, committer_.files.inodes.get(number));
    MutexLock lock(inode->mutex);
    for (const auto& [first_block, extent] : dirty.extents()) {
        committer_.store.ledger.reserve_data_anyway(extent.block_count);
        committer_.store.ledger.apply(
            insert_dirty(committer_.files, inode, first_block, extent, extent.block_count));
    }
    return {};
}

void ReplayedState::apply_counters()
{
    committer_.names.next_inode = counters_.next_inode;
    committer_.names.inode_count = counters_.inode_count;
    const auto before = static_cast<uint64_t>(committer_.files.reserved_blocks.load());
    committer_.store.ledger.reserve_data_anyway(counters_.reserved_blocks);
    committer_.store.ledger.release_data(before);
    committer_.files.reserved_blocks = static_cast<int64_t>(counters_.reserved_blocks);
}

Status ReplayedState::apply()
{
    const Ref<Transaction> open = committer_.store.timeline.open();
    std::vector<RemappedRun> places;
    for (const FreedRun& run : freed_)
        CW_TRY(find_physical(committer_.store, before_, run.address, run.block_count, places));
    CW_TRY(free_physical(committer_.store, *open, places));
    for (const ItemTable::Change& change : view_.open->items.sorted()) {
        if (change.erased)
            open->items.erase(change.key);
        else
            open->items.put(change.key, change.value);
    }
    open->compressed_file_blocks -= gone_file_blocks_;
    open->compressed_blocks -= gone_blocks_;
    open->dirty = true;
    for (const auto& [inode, dirty] : dirty_)
        if (!dirty.empty())
            CW_TRY(add_dirty({inode}, dirty));
    apply_counters();
    return {};
}

std::string help_without_log(const Committer& committer, const char* reading, bool keeps_some)
{
    if (committer.store.options.drop_fsync_log)
        return {};
    return std::string(committer.store.volume.degraded() ? "; mount it with the members that are missing"
                                                         : "") +
           reading + "; as a last resort -o drop_fsync_log " +
           (keeps_some ? "goes on without the rest"
                       : "gives up all that fsync acknowledged since the last commit");
}

Status replay_fsync_log(Committer& committer, std::string& why)
{
    if (is_mutant(CommitMutant::kReplaySkipped))
        return {};
    Store& store = committer.store;
    Status status;
    bool refused = false;
    for (int attempt = 0; attempt < kScans; ++attempt) {
        FsyncScan scan(store.volume.members(), store.volume.superblock(),
                       {store.volume.superblock().tree_commits});
        if (scan.lost_acknowledged() && !store.options.takes_what_there_is()) {
            why = "no copy is left of something that fsync acknowledged" +
                  help_without_log(committer, kBeforeIt, true);
            return Err::kCorrupt;
        }
        status = replay_scan(committer, scan, refused);
        if (status != Status(Err::kIo) || !refused)
            break;
    }
    if (status.err() == Err::kCorrupt)
        why = "the fsync log contradicts the last commit" + help_without_log(committer, kBeforeIt);
    else if (!status.ok())
        why = std::string("the fsync log cannot be replayed: ") + err_text(status.err()) +
              help_without_log(committer, kBeforeIt);
    return status;
}

}  // namespace cowraid
