// SPDX-License-Identifier: MIT
#include "tests/support/space_model.h"

#include <algorithm>
#include <atomic>

namespace cowraid {

namespace {

bool same(const SpaceWindow& a, const SpaceWindow& b)
{
    return a.last_write == b.last_write && a.block_count == b.block_count && a.used_count == b.used_count &&
           a.bitmap == b.bitmap;
}

bool same(const GroupUsage& a, const GroupUsage& b)
{
    return a.used_blocks == b.used_blocks && a.free_rows == b.free_rows && a.free_stripes == b.free_stripes;
}

}  // namespace

GroupRecord test_group(VolumeAddress address, ProfileId profile, uint32_t data_columns, uint32_t chunk_bytes,
                       uint64_t stripe_count, uint32_t content)
{
    GroupRecord group;
    group.address = address;
    group.content = content;
    group.profile = profile;
    group.column_bytes = stripe_count * chunk_bytes;
    group.chunk_bytes = chunk_bytes;
    group.data_columns = data_columns;
    return group;
}

GroupUsage all_free(const GroupRecord& group)
{
    const Geometry geometry = geometry_of(group);
    return {group.address, 0, geometry.row_count(), geometry.stripe_count()};
}

Status TestDisk::load_windows(VolumeAddress group_address, std::vector<SpaceWindow>& out)
{
    std::atomic_ref<uint64_t>(loads).fetch_add(1);  // threads of a test load at the same time
    CW_TRY(fails);
    for (auto at = windows.lower_bound({group_address.value, 0});
         at != windows.end() && at->first.first == group_address.value; ++at)
        out.push_back(at->second);
    return {};
}

bool TestDisk::record(const std::vector<SpaceWindow>& changed, const std::vector<GroupUsage>& summaries,
                      Generation generation)
{
    bool news = true;
    for (const SpaceWindow& window : changed) {
        SpaceWindow stored = window;
        stored.last_write = window.written ? generation : window.last_write;
        stored.written = false;
        const Key key = {window.group_address.value, window.first_stripe};
        const auto old = windows.find(key);
        news = news &&
               (old == windows.end() ? window.written || window.used_count > 0 : !same(old->second, stored));
        windows[key] = stored;
    }
    for (const GroupUsage& usage : summaries) {
        const auto old = usages.find(usage.group_address.value);
        news = news && (old == usages.end() || !same(old->second, usage));
        usages[usage.group_address.value] = usage;
    }
    return news;
}

bool TestDisk::is_used(const GroupRecord& group, uint64_t block) const
{
    const Geometry geometry = geometry_of(group);
    const uint64_t stripes = window_stripes(geometry);
    const uint64_t window_blocks = stripes * geometry.stripe_data_blocks();
    const auto found = windows.find({group.address.value, block / window_blocks * stripes});
    if (found == windows.end() || found->second.used_count == 0)
        return false;
    const uint64_t bit = block % window_blocks;
    return found->second.bitmap.empty() || (found->second.bitmap[bit / 8] >> (bit % 8) & 1) != 0;
}

GroupUsage TestDisk::usage(const GroupRecord& group) const
{
    const auto found = usages.find(group.address.value);
    return found == usages.end() ? all_free(group) : found->second;
}

bool ModelBlock::recorded(TransactionId transaction) const
{
    return state != State::kFree && allocated <= transaction &&
           !(state == State::kFreed && freed <= transaction);
}

bool ModelGroup::row_free(uint64_t stripe, uint32_t row) const
{
    for (uint32_t column = 0; column < geometry.data_columns; ++column) {
        const uint64_t block = (stripe * geometry.data_columns + column) * geometry.rows() + row;
        if (blocks[block].state != ModelBlock::State::kFree)
            return false;
    }
    return true;
}

uint64_t ModelGroup::partial_row_blocks() const
{
    uint64_t count = 0;
    for (uint64_t block = 0; block < blocks.size(); ++block) {
        const BlockPlace place = place_of(geometry, block * kBlockBytes);
        count +=
            blocks[block].state == ModelBlock::State::kFree && !row_free(place.stripe, place.row) ? 1 : 0;
    }
    return count;
}

uint64_t ModelGroup::room(uint32_t unit_blocks) const
{
    const uint32_t rows = geometry.rows();
    uint64_t units = 0;
    uint64_t run = 0;  // free rows of a stripe, or free stripes
    if (unit_blocks <= rows) {
        for (uint64_t stripe = 0; stripe < geometry.stripe_count(); ++stripe) {
            run = 0;
            for (uint32_t row = 0; row <= rows; ++row) {
                if (row < rows && row_free(stripe, row)) {
                    ++run;
                    continue;
                }
                units += run / unit_blocks * geometry.data_columns;
                run = 0;
            }
        }
        return units;
    }
    for (uint64_t stripe = 0; stripe <= geometry.stripe_count(); ++stripe) {
        bool whole = stripe < geometry.stripe_count();
        for (uint32_t row = 0; row < rows && whole; ++row)
            whole = row_free(stripe, row);
        if (whole) {
            ++run;
            continue;
        }
        units += run * geometry.stripe_data_blocks() / unit_blocks;
        run = 0;
    }
    return units;
}

GroupUsage ModelGroup::recorded_usage(TransactionId transaction) const
{
    GroupUsage usage = {record.address, 0, 0, 0};
    const uint32_t rows = geometry.rows();
    for (uint64_t stripe = 0; stripe < geometry.stripe_count(); ++stripe) {
        uint32_t free_rows = 0;
        for (uint32_t row = 0; row < rows; ++row) {
            bool free = true;
            for (uint32_t column = 0; column < geometry.data_columns; ++column) {
                const uint64_t block = (stripe * geometry.data_columns + column) * rows + row;
                const bool used = blocks[block].recorded(transaction);
                usage.used_blocks += used ? 1 : 0;
                free = free && !used;
            }
            free_rows += free ? 1 : 0;
        }
        usage.free_rows += free_rows;
        usage.free_stripes += free_rows == rows ? 1 : 0;
    }
    return usage;
}

ModelGroup* Model::at(VolumeAddress address)
{
    for (ModelGroup& group : groups) {
        if (group.record.address == address)
            return &group;
    }
    return nullptr;
}

uint64_t Model::room(uint32_t content, uint32_t unit_blocks) const
{
    uint64_t units = 0;
    for (const ModelGroup& group : groups) {
        if ((group.record.content & content) != 0 && group.state == Allocator::GroupState::kOpen)
            units += group.room(unit_blocks);
    }
    return units;
}

const char* Model::take(const std::vector<RowRegion>& regions, uint32_t content, uint32_t unit_blocks,
                        uint64_t unit_count, TransactionId transaction)
{
    uint64_t blocks = 0;
    for (const RowRegion& region : regions) {
        ModelGroup* group = at(region.group_address);
        if (group == nullptr || group->state != Allocator::GroupState::kOpen)
            return "region in a group that takes nothing";
        if ((group->record.content & content) == 0)
            return "region in a group of another content";
        const uint32_t rows = group->geometry.rows();
        const bool whole = region.first_row == 0 && region.row_count == rows;
        if (region.row_count == 0 || region.first_row + region.row_count > rows || region.stripe_count == 0 ||
            (!whole && region.stripe_count != 1) ||
            region.first_stripe + region.stripe_count > group->geometry.stripe_count())
            return "region outside of the group";
        if (region.used_blocks == 0 || region.used_blocks > region.block_count() ||
            region.used_blocks % unit_blocks != 0)
            return "region with a wrong number of used blocks";
        for (uint64_t stripe = 0; stripe < region.stripe_count; ++stripe) {
            for (uint32_t row = 0; row < region.row_count; ++row) {
                if (!group->row_free(region.first_stripe + stripe, region.first_row + row))
                    return "row that holds something";
            }
        }
        for (uint64_t index = 0; index < region.used_blocks; ++index) {
            const VolumeAddress address = region.block_address(index);
            const uint64_t block = (address - region.group_address) / kBlockBytes;
            if (block >= group->blocks.size() || group->blocks[block].state != ModelBlock::State::kFree)
                return "block that is not free";
            if (index % unit_blocks != 0 && address - region.block_address(index - 1) != kBlockBytes)
                return "unit that is not contiguous";
            group->blocks[block] = {ModelBlock::State::kLive, transaction, {}};
        }
        for (uint32_t row = 0; row < region.row_count; ++row) {
            if (group->row_free(region.first_stripe + region.stripe_count - 1, region.first_row + row))
                return "row of nothing but pads";
        }
        blocks += region.used_blocks;
    }
    return blocks == unit_count * unit_blocks ? nullptr : "not the blocks that were asked for";
}

const char* Model::take_of_partial_rows(const std::vector<BlockRun>& runs, TransactionId transaction)
{
    for (const BlockRun& run : runs) {
        const auto group = std::find_if(groups.begin(), groups.end(), [&](const ModelGroup& one) {
            return run.address >= one.record.address &&
                   run.address - one.record.address < one.blocks.size() * kBlockBytes;
        });
        if (group == groups.end() || group->state != Allocator::GroupState::kOpen ||
            group->geometry.parity == 0 || (group->record.content & kGroupData) == 0)
            return "partial row in a group that has none";
        const uint64_t first = (run.address - group->record.address) / kBlockBytes;
        const uint32_t rows = group->geometry.rows();
        if (run.block_count == 0 || first / rows != (first + run.block_count - 1) / rows)
            return "run over the end of a chunk";
        for (uint64_t block = first; block < first + run.block_count; ++block) {
            if (block >= group->blocks.size() || group->blocks[block].state != ModelBlock::State::kFree)
                return "block of a partial row that is not free";
            const BlockPlace place = place_of(group->geometry, block * kBlockBytes);
            if (group->row_free(place.stripe, place.row))
                return "block of a free row given as one of a partial row";
            group->blocks[block] = {ModelBlock::State::kLive, transaction, {}};
        }
    }
    return nullptr;
}

void Model::free_blocks(ModelGroup& group, uint64_t first, uint64_t count, TransactionId transaction)
{
    for (uint64_t block = first; block < first + count; ++block) {
        group.blocks[block].state = ModelBlock::State::kFreed;
        group.blocks[block].freed = transaction;
    }
}

void Model::release(TransactionId transaction)
{
    for (ModelGroup& group : groups) {
        for (ModelBlock& block : group.blocks) {
            if (block.state == ModelBlock::State::kFreed && block.freed <= transaction)
                block = {};
        }
    }
}

void Model::crash(TransactionId transaction)
{
    for (ModelGroup& group : groups) {
        for (ModelBlock& block : group.blocks)
            block = {
                block.recorded(transaction) ? ModelBlock::State::kLive : ModelBlock::State::kFree, {}, {}};
    }
}

SpaceNumbers Model::numbers(uint32_t content) const
{
    SpaceNumbers sum = {};
    for (const ModelGroup& group : groups) {
        if ((group.record.content & content) == 0)
            continue;
        sum.total_blocks += group.blocks.size();
        for (const ModelBlock& block : group.blocks) {
            sum.used_blocks += block.state == ModelBlock::State::kLive ? 1 : 0;
            sum.pinned_blocks += block.state == ModelBlock::State::kFreed ? 1 : 0;
        }
        const bool open = group.state == Allocator::GroupState::kOpen;
        if (!open && group.state != Allocator::GroupState::kDegraded)
            continue;
        for (const ModelBlock& block : group.blocks)
            sum.returning_blocks += block.state == ModelBlock::State::kFreed ? 1 : 0;
        (open ? sum.free_row_blocks : sum.degraded_row_blocks) += group.room(1);
        if (group.geometry.parity > 0 && (group.record.content & kGroupData) != 0)
            (open ? sum.partial_row_blocks : sum.degraded_partial_row_blocks) += group.partial_row_blocks();
        for (uint64_t stripe = 0; stripe < group.geometry.stripe_count(); ++stripe) {
            bool whole = true;
            for (uint32_t row = 0; row < group.geometry.rows() && whole; ++row)
                whole = group.row_free(stripe, row);
            (open ? sum.free_stripe_blocks : sum.degraded_stripe_blocks) +=
                whole ? group.geometry.stripe_data_blocks() : 0;
        }
    }
    return sum;
}

}  // namespace cowraid
