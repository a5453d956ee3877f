// SPDX-License-Identifier: MIT
#include "tests/support/format_sample.h"

#include <algorithm>

#include "base/assert.h"
#include "format/feature_table.h"
#include "format/profile.h"

namespace cowraid {

namespace {

uint64_t sample_size(Prng& prng)
{
    const uint64_t limit = uint64_t{1} << prng.between(27, 50);
    return std::max(kMinMemberBytes, prng.below(limit));
}

MemberRecord sample_member(Prng& prng, uint32_t id, Generation generation)
{
    MemberRecord record = *plan_member_layout(sample_size(prng));
    record.id = {id};
    prng.fill(record.uuid.bytes.data(), record.uuid.bytes.size());
    if (prng.chance(1, 4)) {
        record.state = prng.chance(1, 2) ? MemberState::kMissing : MemberState::kFailed;
        record.missing_since = {prng.between(1, generation.value)};
    }
    for (uint64_t& counter : record.counters)
        counter = prng.chance(1, 2) ? 0 : prng.next();
    return record;
}

std::vector<EpochRecord> sample_epochs(Prng& prng, Generation generation)
{
    std::vector<EpochRecord> epochs(prng.between(1, kEpochHistoryCount));
    Generation at = generation;
    for (EpochRecord& epoch : epochs) {
        at = {prng.between(1, at.value)};
        epoch = {.epoch = prng.next() | 1, .generation = at};
    }
    return epochs;
}

ProfileId sample_profile(Prng& prng)
{
    return profiles()[prng.below(profiles().size())].id;
}

// Slots of each member not yet given to a group.
using NextSlots = std::vector<uint32_t>;

// A column of `column_bytes` in one or two runs, or no runs when the member has no room.
GroupColumn sample_column(Prng& prng, const MemberRecord& member, uint64_t column_bytes, uint32_t& next_slot)
{
    GroupColumn column{.member = member.id, .runs = {}};
    const uint64_t count = column_bytes / member.slot_bytes;
    const bool split = count > 1 && prng.chance(1, 2);
    if (column_bytes % member.slot_bytes != 0 || next_slot + count + (split ? 1 : 0) > member.slot_count)
        return column;
    const auto first = static_cast<uint32_t>(split ? prng.between(1, count - 1) : count);
    column.runs.push_back({.first_slot = next_slot, .slot_count = first});
    next_slot += first;
    if (split) {
        next_slot += 1;
        const auto rest = static_cast<uint32_t>(count - first);
        column.runs.push_back({.first_slot = next_slot, .slot_count = rest});
        next_slot += rest;
    }
    return column;
}

// Members of a group in random order, as many as the profile allows for some k; fewer than the profile's
// minimum when the volume has not enough.
std::vector<size_t> sample_columns(Prng& prng, const Superblock& superblock, const Profile& profile,
                                   uint32_t& data_columns)
{
    std::vector<size_t> order(superblock.members.size());
    for (size_t index = 0; index < order.size(); ++index) {
        order[index] = index;
        std::swap(order[index], order[prng.below(index + 1)]);
    }
    const size_t most =
        profile.max_columns != 0 ? std::min<size_t>(profile.max_columns, order.size()) : order.size();
    const size_t data = most > profile.parity ? (most - profile.parity) / profile.copies : 0;
    data_columns = data == 0 ? 0 : static_cast<uint32_t>(prng.between(1, data));
    order.resize(data_columns == 0 ? 0 : size_t{data_columns} * profile.copies + profile.parity);
    return order;
}

// False when the volume has no room for the group that was drawn.
bool sample_group(Prng& prng, const Superblock& superblock, NextSlots& next_slots, GroupRecord& group)
{
    const Profile& profile = profiles()[prng.below(profiles().size())];
    const std::vector<size_t> order = sample_columns(prng, superblock, profile, group.data_columns);
    if (order.size() < profile.min_members)
        return false;
    group.profile = profile.id;
    group.content = profile.parity != 0 ? kGroupData : static_cast<uint32_t>(prng.between(1, 7));
    group.flags = static_cast<uint32_t>(prng.below(group.content == kGroupData ? 4 : 2));
    uint64_t largest_slot = 0;
    for (const size_t index : order)
        largest_slot = std::max(largest_slot, superblock.members[index].slot_bytes);
    group.column_bytes = largest_slot * prng.between(1, 3);
    group.chunk_bytes = kMinChunkBytes << prng.below(9);
    group.mapping_version = static_cast<uint32_t>(prng.next());
    group.created_generation = {prng.between(1, superblock.generation.value)};
    NextSlots after = next_slots;
    for (const size_t index : order) {
        group.columns.push_back(
            sample_column(prng, superblock.members[index], group.column_bytes, after[index]));
        if (group.columns.back().runs.empty())
            return false;
        if (prng.chance(1, 8))
            group.columns.back().stale_since = {
                prng.between(group.created_generation.value, superblock.generation.value)};
    }
    next_slots = after;
    return true;
}

}  // namespace

Superblock sample_superblock(Prng& prng, size_t member_count)
{
    Superblock superblock;
    prng.fill(superblock.volume_uuid.bytes.data(), superblock.volume_uuid.bytes.size());
    superblock.readonly_features = prng.next();
    superblock.compat_features = prng.next();
    superblock.generation = {prng.between(1, prng.chance(1, 2) ? 100 : kMaxGeneration)};
    superblock.epochs = sample_epochs(prng, superblock.generation);
    superblock.chunk_bytes = kMinChunkBytes << prng.below(9);
    superblock.data_profile = sample_profile(prng);
    superblock.metadata_profile = sample_profile(prng);
    superblock.next_group_address = kBlockBytes * prng.between(16, uint64_t{1} << 40);
    superblock.created_seconds = prng.next();
    if (prng.chance(3, 4)) {
        superblock.root.address = {kBlockBytes * prng.between(1, 8)};
        superblock.root.generation = {prng.between(1, superblock.generation.value)};
        for (Checksum& checksum : superblock.root.checksums)
            checksum = prng.next();
    }
    superblock.map = {.generation = {prng.between(1, superblock.generation.value)},
                      .checksum = prng.next(),
                      .bytes = static_cast<uint32_t>(kBlockBytes * prng.between(1, 512)),
                      .place = static_cast<uint32_t>(prng.below(2))};
    superblock.name_hash_seed = prng.next();
    superblock.live_logs = static_cast<uint32_t>(prng.below(kLiveLogsMask + 1));
    superblock.tree_commits = prng.between(0, kMaxGeneration);
    superblock.log_epoch = prng.next() | 1;
    superblock.unmounted = prng.chance(1, 2);
    if (prng.chance(1, 4))
        superblock.balance = {.state = prng.chance(1, 2) ? BalanceState::kRunning : BalanceState::kPaused,
                              .content = static_cast<uint32_t>(prng.between(1, kAllContent)),
                              .usage_max = static_cast<uint32_t>(prng.between(0, 100)),
                              .before = {prng.between(0, superblock.generation.value)},
                              .total_bytes = prng.next()};
    superblock.label.resize(prng.below(kLabelBytes));
    for (char& character : superblock.label)
        character = static_cast<char>(prng.between(1, 127));
    uint32_t id = 0;
    const size_t count =
        member_count != 0 ? member_count : prng.between(1, prng.chance(1, 8) ? kMaxMembers : 12);
    while (superblock.members.size() < count) {
        id += static_cast<uint32_t>(prng.between(1, 3));
        superblock.members.push_back(sample_member(prng, id, superblock.generation));
    }
    superblock.member_id = superblock.members[prng.below(count)].id;
    const size_t spares = member_count == 0 && count < 12 && prng.chance(1, 2) ? prng.between(1, 3) : 0;
    while (superblock.spares.size() < spares) {
        superblock.incompat_features |= feature_bit("spares");
        Uuid uuid;
        prng.fill(uuid.bytes.data(), uuid.bytes.size());
        id += static_cast<uint32_t>(prng.between(1, 3));
        superblock.spares.push_back(spare_record({id}, uuid, prng.between(kMinMemberBytes, kMaxMemberBytes)));
        if (prng.chance(1, 4))
            superblock.member_id = {id};
    }
    superblock.next_member_id = id + 1;
    return superblock;
}

GroupMap sample_group_map(Prng& prng, Superblock& superblock, size_t group_limit)
{
    GroupMap map{.generation = superblock.generation, .groups = {}};
    NextSlots next_slots(superblock.members.size());
    uint64_t address = kBlockBytes * prng.between(1, 1000);
    for (size_t attempt = 0; attempt < group_limit; ++attempt) {
        GroupRecord group{.address = {address}};
        if (!sample_group(prng, superblock, next_slots, group))
            continue;
        address += group.span_bytes() + kBlockBytes * prng.below(3);
        map.groups.push_back(std::move(group));
    }
    superblock.next_group_address = std::max(superblock.next_group_address, address);
    CW_ASSERT(address <= kMaxVolumeAddress);
    return map;
}

}  // namespace cowraid
