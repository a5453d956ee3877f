// SPDX-License-Identifier: MIT
#include "fs/txn/damage_list.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/log.h"
#include "format/damage_codec.h"
#include "format/superblock_codec.h"
#include "fs/txn/store.h"

namespace cowraid {

namespace {

// Items for which room is reserved at a time.
constexpr uint32_t kItemsMax = 64;

// Whether the leaf for the item can be read. A commit that needs one that cannot is the end of writing.
bool can_store(Store& store, VolumeAddress first)
{
    std::vector<std::byte> ignored;
    const View view = store.timeline.view();
    const Status found = tree_lookup(store.cache, view.committed->file_tree, damage_key(first), ignored);
    return found.ok() || found.err() == Err::kNotFound;
}

}  // namespace

// The part of a run of an item with that key which is in the group of its beginning. Where it ends: items
// had runs of neighbouring groups once.
VolumeAddress DamageList::add_loaded(Store& store, DamagedRun run, VolumeAddress key)
{
    const VolumeAddress end = run.end();
    const Ref<const ArrayGroup> group = store.volume.array().group_at(run.first);
    MutexLock lock(mutex_);
    const auto store_anew = [&](VolumeAddress first) {
        mutex_.assert_held();
        if (changed_.size() < kRunsMax)  // the next mount finds the others
            changed_.insert(first);
    };
    const uint64_t data_bytes = group ? group->record.data_bytes() : 0;
    // Of no group: it went meanwhile, or somebody made that up.
    if (!group || run.first - group->record.address >= data_bytes || runs_.size() >= kRunsMax) {
        store_anew(key);
        return end;
    }
    const uint64_t left = (group->record.address + data_bytes - run.first) / kBlockBytes;
    run.block_count = std::min(run.block_count, left);
    if (run.first != key || run.end() != end)
        store_anew(run.first);
    // Readers may have found some of it meanwhile.
    remove(run.first, run.end());
    runs_[run.first] = run;
    block_count_ += run.block_count;
    if (group->geometry.parity > 0)
        await({{run, {}}});
    return run.end();
}

Status DamageList::load(Store& store)
{
    ItemScan scan(store.items, store.items.view(), damage_key({0}), damage_key({UINT64_MAX}));
    Status status = scan.next();
    for (; status.ok(); status = scan.next()) {
        const Result<DamageRecord> record = decode_damage(scan.value());
        const VolumeAddress first{scan.key().offset};
        if (!record.ok() || first.value > kMaxVolumeAddress || first.value % kBlockBytes != 0 ||
            record->block_count > (kMaxVolumeAddress - first.value) / kBlockBytes)
            continue;
        const VolumeAddress end = first + record->block_count * kBlockBytes;
        for (VolumeAddress at = first; at < end;)
            at = add_loaded(store, {at, (end - at) / kBlockBytes, record->found_seconds}, first);
    }
    return status.err() == Err::kNotFound ? Status() : status;
}

DamageList::Runs::const_iterator DamageList::first_behind(VolumeAddress address) const
{
    auto at = runs_.upper_bound(address);
    if (at != runs_.begin())
        if (const auto before = std::prev(at); before->second.end() > address)
            return before;
    return at;
}

void DamageList::set(const DamagedRun& run)
{
    runs_[run.first] = run;
    changed_.insert(run.first);
    block_count_ += run.block_count;
}

// Runs that reach beyond the range keep what is outside.
void DamageList::remove(VolumeAddress first, VolumeAddress end)
{
    for (auto at = first_behind(first); at != runs_.end() && at->first < end; at = first_behind(first)) {
        const DamagedRun run = at->second;
        runs_.erase(at);
        changed_.insert(run.first);
        block_count_ -= run.block_count;
        DamagedRun left = run;
        left.block_count = (first - run.first) / kBlockBytes;
        if (run.first < first)
            set(left);
        left.first = end;
        left.block_count = (run.end() - end) / kBlockBytes;
        if (run.end() > end)
            set(left);
    }
}

uint64_t DamageList::begin_pass()
{
    MutexLock lock(mutex_);
    return ++passes_;
}

void DamageList::note(VolumeAddress first, uint64_t block_count, uint64_t found_seconds, uint64_t found_by,
                      VolumeAddress group)
{
    MutexLock lock(mutex_);
    DamagedRun run{first, block_count, found_seconds, found_by, passes_};
    const auto listed = first_behind(first);
    const bool all_listed =
        listed != runs_.end() && listed->first <= first && listed->second.end() >= run.end();
    if (all_listed && (found_by == kByReader || listed->second.found_by == found_by))
        return;
    if (runs_.size() >= kRunsMax) {
        if (!std::exchange(full_, true))
            CW_LOG_WARNING("the list of damaged blocks is full: more are damaged than it names");
        return;
    }
    remove(first, run.end());
    // Scrubs find neighbours one after the other. Groups without parity have no gaps between them.
    if (const auto before = first_behind({first.value - kBlockBytes});
        before != runs_.end() && before->first < first && before->first >= group &&
        before->second.found_by == found_by && before->second.found_seconds == found_seconds) {
        run.first = before->first;
        run.block_count += before->second.block_count;
        block_count_ -= before->second.block_count;
    }
    set(run);
}

void DamageList::forget(VolumeAddress first, uint64_t block_count)
{
    if (empty() || block_count == 0)
        return;
    MutexLock lock(mutex_);
    remove(first, first + block_count * kBlockBytes);
}

void DamageList::await(const Awaiting& awaiting)
{
    if (awaiting_.size() >= kRunsMax)
        return;  // the next mount finds it
    awaiting_.push_back(awaiting);
    awaiting_count_ = awaiting_.size();
}

void DamageList::await_mend(VolumeAddress first, uint64_t block_count, TransactionId id)
{
    const VolumeAddress end = first + block_count * kBlockBytes;
    MutexLock lock(mutex_);
    for (auto at = first_behind(first); at != runs_.end() && at->first < end; ++at) {
        DamagedRun part = at->second;
        part.first = std::max(first, at->first);
        part.block_count = (std::min(end, at->second.end()) - part.first) / kBlockBytes;
        await({{part, id}});
    }
}

std::vector<FreedDamage> DamageList::take_freed(TransactionId id, uint64_t now_ms)
{
    MutexLock lock(mutex_);
    const auto taken = std::partition(awaiting_.begin(), awaiting_.end(), [&](const Awaiting& awaiting) {
        return awaiting.damage.freed > id || awaiting.due_ms > now_ms;
    });
    std::vector<FreedDamage> all;
    for (auto awaiting = taken; awaiting != awaiting_.end(); ++awaiting)
        all.push_back(awaiting->damage);
    awaiting_.erase(taken, awaiting_.end());
    awaiting_count_ = awaiting_.size();
    std::sort(all.begin(), all.end(),
              [](const FreedDamage& a, const FreedDamage& b) { return a.run.first < b.run.first; });
    return all;
}

void DamageList::give_back(const FreedDamage& freed, uint64_t due_ms)
{
    MutexLock lock(mutex_);
    await({freed, due_ms});
}

bool DamageList::touches(VolumeAddress first, VolumeAddress end) const
{
    MutexLock lock(mutex_);
    const auto at = first_behind(first);
    return at != runs_.end() && at->first < end;
}

std::vector<DamagedRun> DamageList::runs() const
{
    MutexLock lock(mutex_);
    std::vector<DamagedRun> all;
    all.reserve(runs_.size());
    for (const auto& [first, run] : runs_)
        all.push_back(run);
    return all;
}

bool DamageList::full() const
{
    MutexLock lock(mutex_);
    return runs_.size() >= kRunsMax || !unstored_.empty();
}

void DamageList::retry()
{
    MutexLock lock(mutex_);
    changed_.merge(unstored_);
    unstored_.clear();
}

bool DamageList::changed() const
{
    MutexLock lock(mutex_);
    return !changed_.empty();
}

void DamageList::store_changes(Store& store)
{
    size_t left = 0;  // not what comes meanwhile, or this might never end
    {
        MutexLock lock(mutex_);
        left = changed_.size();
    }
    while (left > 0 && store_some(store))
        left -= std::min<size_t>(left, kItemsMax);
}

void DamageList::leave_unstored(Store& store, std::vector<Item>& items)
{
    const auto kept = std::stable_partition(items.begin(), items.end(),
                                            [&](const Item& item) { return can_store(store, item.first); });
    MutexLock lock(mutex_);
    for (auto item = kept; item != items.end(); ++item)
        unstored_.insert(item->first);
    if (kept != items.end() && !std::exchange(told_unstored_, true))
        CW_LOG_WARNING("the list of damaged blocks cannot be kept: a node of the file tree is lost");
    items.erase(kept, items.end());
}

// False: there is nothing more, or no room. No record of the fsync log carries these items. What changes
// meanwhile is for the next commit.
bool DamageList::store_some(Store& store)
{
    std::vector<Item> items;
    ChangeReservation reserved(store.ledger);
    if (!changed() || !reserved.take(changes_of_items(kItemsMax), Leave::kNothing))
        return false;
    {
        MutexLock lock(mutex_);
        while (!changed_.empty() && items.size() < kItemsMax) {
            const VolumeAddress first = changed_.extract(changed_.begin()).value();
            const auto run = runs_.find(first);
            items.emplace_back(first, std::nullopt);
            if (run != runs_.end())
                items.back().second = DamageRecord{run->second.found_seconds, run->second.block_count};
        }
    }
    leave_unstored(store, items);
    ReadLock gate(store.gate);
    Transaction& open = store.timeline.open_in_gate();
    open.loggable = false;
    open.dirty = true;
    for (const auto& [first, record] : items) {
        if (record)
            open.items.put(damage_key(first), encode_damage(*record));
        else
            open.items.erase(damage_key(first));
    }
    return true;
}

void note_freed(Store& store, VolumeAddress first, uint64_t block_count, TransactionId id)
{
    const VolumeAddress end = first + block_count * kBlockBytes;
    if (store.damage.empty() || block_count == 0 || !store.damage.touches(first, end))
        return;
    const Ref<const ArrayGroup> group = store.volume.array().group_at(first);
    if (group && group->geometry.parity > 0)
        store.damage.await_mend(first, block_count, id);
    else
        store.damage.forget(first, block_count);
}

void note_damage(Store& store, VolumeAddress first, uint64_t block_count, uint64_t found_seconds,
                 uint64_t found_by)
{
    const Ref<const ArrayGroup> group = store.volume.array().group_at(first);
    store.damage.note(first, block_count, found_seconds, found_by,
                      group ? group->record.address : VolumeAddress());
    const VolumeAddress end = first + block_count * kBlockBytes;
    const BlockRun all{first, static_cast<uint32_t>(block_count)};
    std::vector<BlockRun> live;
    const Status known = store.allocator.live_in(all, live);
    if (!known.ok() && known.err() != Err::kInvalid) {
        // Not in memory: used is what was not freed since the last commit.
        std::vector<BlockRun> freed;
        store.allocator.pinned_in(all, freed).ignore();
        for (const BlockRun& run : freed)
            note_freed(store, run.address, run.block_count, store.timeline.open()->id);
        return;
    }
    live.push_back({end, 0});
    VolumeAddress at = first;
    for (const BlockRun& run : live) {
        if (run.address > at)
            note_freed(store, at, (std::min(run.address, end) - at) / kBlockBytes, store.timeline.open()->id);
        at = std::max(at, run.address + run.block_count * kBlockBytes);
        if (at >= end)
            break;
    }
}

bool holds_expected(const ReadPiece& piece, uint32_t block)
{
    return checksum_of(piece.memory + uint64_t{block} * kBlockBytes, kBlockBytes) == piece.checksums[block];
}

void note_lost(Store& store, const ReadPiece& piece)
{
    if (piece.result.err() != Err::kTooManyFaults)
        return;
    const bool neighbours = piece.bad_blocks == piece.last_bad - piece.first_bad + 1;
    const auto now = static_cast<uint64_t>(std::time(nullptr));
    for (uint32_t first = piece.first_bad, at = first; at <= piece.last_bad; first = ++at) {
        while (at <= piece.last_bad && (neighbours || !holds_expected(piece, at)))
            ++at;
        if (at > first)
            note_damage(store, piece.address + uint64_t{first} * kBlockBytes, at - first, now,
                        DamageList::kByReader);
    }
}

}  // namespace cowraid
