// SPDX-License-Identifier: MIT
#include "tests/support/sample_volume.h"

#include <algorithm>

#include "base/assert.h"

namespace cowraid::test {

SampleVolume::SampleVolume(uint64_t seed, uint32_t member_count) : prng(seed)
{
    prng.fill(state.volume_uuid.bytes.data(), state.volume_uuid.bytes.size());
    state.epochs = {{.epoch = prng.next(), .generation = {1}}};
    state.log_epoch = state.epochs.front().epoch;
    state.next_member_id = member_count + 1;
    state.next_group_address = kMiB;
    state.created_seconds = 1'000'000 + seed;
    for (uint32_t id = 1; id <= member_count; ++id) {
        MemberRecord record = *plan_member_layout(kMinMemberBytes);
        record.id = {id};
        prng.fill(record.uuid.bytes.data(), record.uuid.bytes.size());
        state.members.push_back(record);
        disks_.push_back(std::make_unique<SimDevice>("/dev/m" + std::to_string(id), kMinMemberBytes));
    }
    commit(state, all());
}

Ids SampleVolume::all() const
{
    Ids ids;
    for (const MemberRecord& record : state.members)
        ids.push_back(record.id.value);
    return ids;
}

std::vector<std::unique_ptr<BlockDevice>> SampleVolume::devices(const Ids& ids)
{
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (const uint32_t id : ids)
        devices.push_back(std::make_unique<BorrowedDevice>(disk(id)));
    return devices;
}

void SampleVolume::fill(MemberSet& members, const Ids& ids)
{
    for (const uint32_t id : all()) {
        const bool here = std::find(ids.begin(), ids.end(), id) != ids.end();
        members.add({id}, here ? std::make_unique<BorrowedDevice>(disk(id)) : nullptr, {});
    }
}

void SampleVolume::commit(Superblock& history, const Ids& ids, const Ids& reached)
{
    history.root = {
        .address = {kBlockBytes}, .generation = history.generation.next(), .checksums = {prng.next()}};
    commit_states(history, ids, reached);
}

void SampleVolume::commit_states(Superblock& history, const Ids& ids, const Ids& reached)
{
    history.generation = history.generation.next();
    history.map.place ^= 1;
    const std::vector<std::byte> map =
        encode_group_map({.generation = history.generation, .groups = {}}, history.volume_uuid, history.map);
    MemberSet members;
    fill(members, ids);
    CW_ASSERT(write_group_map(members, history, map, history.map.place).ok());
    CW_ASSERT(flush_members(members).ok());
    MemberSet lucky;
    fill(lucky, reached);
    CW_ASSERT(write_superblocks(lucky, history).ok());
    CW_ASSERT(flush_members(lucky).ok());
}

void SampleVolume::rewrite(const Superblock& history, const Ids& ids)
{
    MemberSet members;
    fill(members, ids);
    const GroupMap map{.generation = history.map.generation, .groups = {}};
    CW_ASSERT(rewrite_commit(members, history, map).ok());
}

void SampleVolume::mount_degraded(Superblock& history, const Ids& ids)
{
    for (MemberRecord& record : history.members) {
        if (std::find(ids.begin(), ids.end(), record.id.value) == ids.end() &&
            record.state == MemberState::kPresent) {
            record.state = MemberState::kMissing;
            record.missing_since = history.generation.next();
        }
    }
    history.epochs.insert(history.epochs.begin(),
                          {.epoch = prng.next(), .generation = history.generation.next()});
    if (history.epochs.size() > kEpochHistoryCount)
        history.epochs.pop_back();
}

void SampleVolume::fail(Superblock& history, uint32_t id)
{
    history.member({id})->state = MemberState::kFailed;
    history.member({id})->missing_since = history.generation.next();
}

void SampleVolume::restore(Superblock& history, uint32_t id)
{
    history.member({id})->state = MemberState::kPresent;
    history.member({id})->missing_since = {0};
}

void SampleVolume::rot_slot(uint32_t id, uint32_t ring, uint64_t generation)
{
    std::byte noise[kSuperblockSlotBytes];
    prng.fill(noise, sizeof noise);
    disk(id).poke(kSuperblockRingOffset[ring] + generation % kSuperblockSlotCount * kSuperblockSlotBytes,
                  noise);
}

}  // namespace cowraid::test
