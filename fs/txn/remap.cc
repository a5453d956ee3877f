// SPDX-License-Identifier: MIT
#include "fs/txn/remap.h"

#include <algorithm>

#include "format/window_codec.h"
#include "fs/txn/store.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

using TableOf = BlockTable Transaction::*;

// The entries of one window, through all layers; those that are gone are 0.
Status read_window(NodeCache& cache, const View& view, TableOf table, ItemType type, uint64_t window_address,
                   BlockWindow& out)
{
    out = {};
    ((*view.open).*table).merge_into({window_address}, out);
    if (view.committing)
        ((*view.committing).*table).merge_into({window_address}, out);
    if (out.mask == UINT64_MAX || !view.committed->remap_tree.root.address.valid())
        return {};
    std::vector<std::byte> payload;
    const Key key{window_address, static_cast<uint8_t>(type), 0};
    const Status found = tree_lookup(cache, view.committed->remap_tree, key, payload);
    if (found.err() == Err::kNotFound)
        return {};
    CW_TRY(found);
    BlockWindow stored;
    if (!decode_remap_window(payload, stored))
        return Err::kCorrupt;
    out.fill_from(stored);
    return {};
}

// Calls `visit` with every address of the range and its entry, 0 for none.
template <typename Visit>
Status for_entries(NodeCache& cache, const View& view, TableOf table, ItemType type, VolumeAddress address,
                   uint64_t block_count, Visit visit)
{
    BlockWindow window;
    const uint64_t end = address.value + block_count * kBlockBytes;
    for (uint64_t at = address.value; at < end;) {
        const uint64_t window_address = round_down(at, kChecksumWindowBytes);
        CW_TRY(read_window(cache, view, table, type, window_address, window));
        const uint64_t window_end = at + std::min(end - at, kChecksumWindowBytes - (at - window_address));
        for (; at < window_end; at += kBlockBytes) {
            const size_t bit = (at - window_address) / kBlockBytes;
            visit(VolumeAddress{at}, (window.mask >> bit & 1) != 0 ? window.values[bit] : 0);
        }
    }
    return {};
}

}  // namespace

RemapLookup::RemapLookup(NodeCache& cache, const Array& array, bool has_tree)
    : cache_(cache), array_(array), active_(has_tree)
{
    for (const Ref<const ArrayGroup>& group : array.groups())
        if ((group->record.flags & kGroupEmptying) != 0)
            add_emptying(group->record.address);
}

void RemapLookup::add_emptying(VolumeAddress group_address)
{
    MutexLock lock(mutex_);
    emptying_.insert(group_address);
    active_ = true;
}

void RemapLookup::remove_emptying(VolumeAddress group_address)
{
    MutexLock lock(mutex_);
    emptying_.erase(group_address);
}

bool RemapLookup::is_emptying(VolumeAddress group_address) const
{
    MutexLock lock(mutex_);
    return emptying_.count(group_address) != 0;
}

bool RemapLookup::may_have_moved(VolumeAddress logical) const
{
    if (!active_)
        return false;
    const Ref<const ArrayGroup> group = array_.group_at(logical);
    // A group that leaves meanwhile is no emptying one any more, and is in the table no more.
    return !group || is_emptying(group->record.address) || !array_.group_at(logical);
}

namespace {

// Where the first group behind an address that is in none begins.
VolumeAddress next_group(const Array& array, VolumeAddress address)
{
    for (const Ref<const ArrayGroup>& group : array.groups())
        if (group->record.address > address)
            return group->record.address;
    return {UINT64_MAX};
}

}  // namespace

Status RemapLookup::one_step(const View& view, VolumeAddress logical, uint64_t block_count,
                             std::vector<RemappedRun>& out) const
{
    VolumeAddress run_limit;  // of the last run's group: its data ends there
    bool joins = false;
    const auto visit = [&](VolumeAddress at, uint64_t entry) {
        const VolumeAddress physical{entry != 0 ? entry : at.value};
        if (joins && physical < run_limit) {
            RemappedRun& last = out.back();
            const uint64_t bytes = last.block_count * kBlockBytes;
            if (last.physical + bytes == physical && last.moved() == (entry != 0)) {
                ++last.block_count;
                return;
            }
        }
        const Ref<const ArrayGroup> group = array_.group_at(physical);
        run_limit = group ? group->record.address + group->record.data_bytes() : next_group(array_, physical);
        joins = true;
        out.push_back({at, physical, 1});
    };
    return for_entries(cache_, view, &Transaction::moved_to, ItemType::kMovedTo, logical, block_count, visit);
}

// A physical address has no entry itself (I-28), but where a damaged tree does not say the logical address of
// a block, it was moved on under its physical one.
Status RemapLookup::resolve(const View& view, VolumeAddress logical, uint64_t block_count,
                            std::vector<RemappedRun>& out) const
{
    if (!may_have_moved(logical)) {
        out.push_back({logical, logical, block_count});
        return {};
    }
    std::vector<RemappedRun> first;
    std::vector<RemappedRun> second;
    CW_TRY(one_step(view, logical, block_count, first));
    for (const RemappedRun& run : first) {
        second.clear();
        if (run.moved() && may_have_moved(run.physical))
            CW_TRY(one_step(view, run.physical, run.block_count, second));
        else
            second.push_back({run.physical, run.physical, run.block_count});
        for (const RemappedRun& next : second)
            out.push_back({run.logical + (next.logical - run.physical), next.physical, next.block_count});
    }
    return {};
}

Status RemapLookup::logical_of(const View& view, VolumeAddress physical, std::span<VolumeAddress> out) const
{
    size_t next = 0;
    const auto visit = [&](VolumeAddress at, uint64_t entry) {
        out[next++] = {entry != 0 ? entry : at.value};
    };
    return for_entries(cache_, view, &Transaction::moved_from, ItemType::kMovedFrom, physical, out.size(),
                       visit);
}

Status RemapLookup::verify(const View& view, std::span<const RemappedRun> runs) const
{
    std::vector<VolumeAddress> logicals;
    for (const RemappedRun& run : runs) {
        if (!run.moved())
            continue;
        logicals.resize(run.block_count);
        CW_TRY(logical_of(view, run.physical, logicals));
        for (uint64_t i = 0; i < run.block_count; ++i)
            if (logicals[i] != run.logical + i * kBlockBytes)
                return Err::kCorrupt;
    }
    return {};
}

Status find_physical(Store& store, const View& view, VolumeAddress logical, uint64_t block_count,
                     std::vector<RemappedRun>& out)
{
    if (is_mutant(CommitMutant::kFreeUnresolved)) {
        out.push_back({logical, logical, block_count});
        return {};
    }
    const size_t before = out.size();
    CW_TRY(store.remap.resolve(view, logical, block_count, out));
    return store.remap.verify(view, std::span(out).subspan(before));
}

Status free_physical(Store& store, Transaction& transaction, std::span<const RemappedRun> runs)
{
    std::vector<uint64_t> none;
    for (const RemappedRun& run : runs) {
        CW_TRY(store.allocator.free_blocks(run.physical, run.block_count, transaction.id));
        note_freed(store, run.physical, run.block_count, transaction.id);
        if (!run.moved())
            continue;
        none.assign(run.block_count, 0);
        transaction.moved_to.put(run.logical, none);
        transaction.moved_from.put(run.physical, none);
    }
    return {};
}

}  // namespace cowraid
