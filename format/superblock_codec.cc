// SPDX-License-Identifier: MIT
#include "format/superblock_codec.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/print.h"
#include "format/feature_table.h"
#include "format/member_layout.h"
#include "format/profile.h"

namespace cowraid {

namespace {

MemberRecord decode_member(const DiskMember& disk)
{
    MemberRecord record;
    record.id = {disk.member_id};
    record.state = static_cast<MemberState>(disk.state.get());
    std::memcpy(record.uuid.bytes.data(), disk.uuid, sizeof disk.uuid);
    record.size_bytes = disk.size_bytes;
    record.missing_since = {disk.missing_since};
    record.slots_offset = disk.slots_offset;
    record.slot_bytes = disk.slot_bytes;
    record.slot_count = disk.slot_count;
    record.map_offset = {disk.map_offset[0].get(), disk.map_offset[1].get()};
    record.map_bytes = disk.map_bytes;
    record.intent_log_offset = disk.intent_log_offset;
    record.intent_log_bytes = disk.intent_log_bytes;
    record.fsync_log_offset = disk.fsync_log_offset;
    record.fsync_log_bytes = disk.fsync_log_bytes;
    for (size_t index = 0; index < kMemberCounterCount; ++index)
        record.counters[index] = disk.counters[index];
    return record;
}

DiskMember encode_member(const MemberRecord& record)
{
    DiskMember disk;
    std::memset(&disk, 0, sizeof disk);
    disk.member_id = record.id.value;
    disk.state = static_cast<uint32_t>(record.state);
    std::memcpy(disk.uuid, record.uuid.bytes.data(), sizeof disk.uuid);
    disk.size_bytes = record.size_bytes;
    disk.missing_since = record.missing_since.value;
    disk.slots_offset = record.slots_offset;
    disk.slot_bytes = record.slot_bytes;
    disk.slot_count = record.slot_count;
    disk.map_offset[0] = record.map_offset[0];
    disk.map_offset[1] = record.map_offset[1];
    disk.map_bytes = record.map_bytes;
    disk.intent_log_offset = record.intent_log_offset;
    disk.intent_log_bytes = record.intent_log_bytes;
    disk.fsync_log_offset = record.fsync_log_offset;
    disk.fsync_log_bytes = record.fsync_log_bytes;
    for (size_t index = 0; index < kMemberCounterCount; ++index)
        disk.counters[index] = record.counters[index];
    return disk;
}

bool state_valid(const MemberRecord& record, Generation generation)
{
    switch (record.state) {
    case MemberState::kPresent:
        return record.missing_since.value == 0;
    case MemberState::kMissing:
    case MemberState::kFailed:
        return record.missing_since.value != 0 && record.missing_since <= generation;
    case MemberState::kSpare:
        break;
    }
    return false;
}

bool spares_valid(const Superblock& superblock)
{
    const std::vector<MemberRecord>& spares = superblock.spares;
    if (spares.size() > kMaxMembers - superblock.members.size() ||
        (!spares.empty() && (superblock.incompat_features & feature_bit("spares")) == 0))
        return false;
    uint32_t last_id = 0;
    for (const MemberRecord& record : spares) {
        if (record.id.value <= last_id || record.id.value >= superblock.next_member_id ||
            superblock.member(record.id) != nullptr || record.size_bytes < kMinMemberBytes ||
            record.size_bytes > kMaxMemberBytes ||
            record != spare_record(record.id, record.uuid, record.size_bytes))
            return false;
        last_id = record.id.value;
    }
    return true;
}

bool members_valid(const Superblock& superblock)
{
    if (superblock.members.empty() || superblock.members.size() > kMaxMembers)
        return false;
    std::vector<Uuid> uuids;
    uint32_t last_id = 0;
    for (const MemberRecord& record : superblock.members) {
        if (record.id.value <= last_id || !state_valid(record, superblock.generation) ||
            !member_layout_valid(record) || superblock.map.bytes > record.map_bytes)
            return false;
        last_id = record.id.value;
        uuids.push_back(record.uuid);
    }
    if (superblock.next_member_id <= last_id || !spares_valid(superblock))
        return false;
    for (const MemberRecord& spare : superblock.spares)
        uuids.push_back(spare.uuid);
    std::sort(uuids.begin(), uuids.end());
    return uuids.front() != Uuid{} && std::adjacent_find(uuids.begin(), uuids.end()) == uuids.end() &&
           (superblock.member(superblock.member_id) != nullptr || superblock.on_spare());
}

// Newest first, each epoch once, each begun no later than the one before it in the list.
bool epochs_valid(const Superblock& superblock)
{
    const std::vector<EpochRecord>& epochs = superblock.epochs;
    if (epochs.empty() || epochs.size() > kEpochHistoryCount)
        return false;
    Generation newer = superblock.generation;
    for (size_t index = 0; index < epochs.size(); ++index) {
        const EpochRecord& record = epochs[index];
        if (record.epoch == 0 || record.generation > newer)
            return false;
        newer = record.generation;
        for (size_t before = 0; before < index; ++before) {
            if (epochs[before].epoch == record.epoch)
                return false;
        }
    }
    return true;
}

bool root_valid(const Superblock& superblock)
{
    const BlockRef& root = superblock.root;
    if (!block_ref_valid(root, superblock.generation))
        return false;
    return !root.address.valid() || (superblock.next_group_address >= kNodeBytes &&
                                     root.address.value <= superblock.next_group_address - kNodeBytes);
}

bool map_ref_valid(const Superblock& superblock)
{
    const MapRef& map = superblock.map;
    return map.place < 2 && map.bytes != 0 && map.bytes % kBlockBytes == 0 && map.bytes <= kMaxMapBytes &&
           map.generation.value != 0 && map.generation <= superblock.generation;
}

bool shrink_valid(const Superblock& superblock)
{
    const BalanceRecord& balance = superblock.balance;
    const MemberRecord* const member = superblock.member(balance.member);
    MemberRecord shrunk = member != nullptr ? *member : MemberRecord();
    return balance.shrink_bytes == 0 || (shrink_member_layout(shrunk, balance.shrink_bytes).ok() &&
                                         (superblock.incompat_features & feature_bit("shrink")) != 0);
}

bool balance_valid(const Superblock& superblock)
{
    const BalanceRecord& balance = superblock.balance;
    if (balance.state == BalanceState::kNone)
        return balance == BalanceRecord();
    return (balance.state == BalanceState::kRunning || balance.state == BalanceState::kPaused) &&
           (balance.content & kAllContent) != 0 && (balance.content & ~(kAllContent | kBalanceChosen)) == 0 &&
           ((balance.content & kBalanceChosen) == 0 ||
            (superblock.incompat_features & feature_bit("chosen")) != 0) &&
           balance.usage_max <= 100 && balance.before <= superblock.generation.next() &&
           shrink_valid(superblock) &&
           (balance.member.value == 0 ||
            (superblock.member(balance.member) != nullptr && !superblock.replace.names(balance.member) &&
             balance.content == kAllContent && balance.usage_max == 100 && balance.before.value == 0));
}

bool scrub_valid(const ScrubRecord& scrub)
{
    if (scrub.state == ScrubState::kNone)
        return scrub == ScrubRecord();
    return scrub.state <= ScrubState::kCancelled && (scrub.flags & ~kScrubFlagsMask) == 0;
}

// What lies in a slot of the one lies there on the other.
bool replace_valid(const Superblock& superblock)
{
    const ReplaceRecord& replace = superblock.replace;
    if (!replace.active())
        return replace == ReplaceRecord();
    const MemberRecord* const source = superblock.member(replace.source);
    const MemberRecord* const target = superblock.member(replace.target);
    return source != nullptr && target != nullptr && source != target &&
           source->slots_offset == target->slots_offset && source->slot_bytes == target->slot_bytes &&
           source->slot_count == target->slot_count &&
           (superblock.incompat_features & feature_bit("replace")) != 0;
}

bool superblock_valid(const Superblock& superblock)
{
    if (superblock.volume_uuid == Uuid{} || superblock.generation.value == 0 ||
        superblock.generation.value > kMaxGeneration || superblock.tree_commits > kMaxGeneration)
        return false;
    if (!is_power_of_two(superblock.chunk_bytes) || superblock.chunk_bytes < kMinChunkBytes ||
        superblock.chunk_bytes > kMaxChunkBytes)
        return false;
    if (find_profile(superblock.data_profile) == nullptr ||
        find_profile(superblock.metadata_profile) == nullptr)
        return false;
    if (superblock.next_group_address == 0 || superblock.next_group_address % kBlockBytes != 0 ||
        superblock.next_group_address > kMaxVolumeAddress)
        return false;
    if (superblock.label.size() >= kLabelBytes || superblock.label.find('\0') != std::string::npos)
        return false;
    // Members first: what is under way is checked against their layouts.
    return root_valid(superblock) && map_ref_valid(superblock) && epochs_valid(superblock) &&
           members_valid(superblock) && balance_valid(superblock) && scrub_valid(superblock.scrub) &&
           replace_valid(superblock);
}

void decode_scrubbed(const DiskMember& disk, ScrubRecord& scrub)
{
    ScrubMemberNumbers found;
    std::copy(std::begin(disk.scrubbed), std::end(disk.scrubbed), found.numbers.begin());
    if (scrub.state != ScrubState::kNone && found != ScrubMemberNumbers())
        scrub.members[{disk.member_id}] = found;
}

void encode_scrubbed(const ScrubRecord& scrub, DiskMember& disk)
{
    if (const auto at = scrub.members.find({disk.member_id}); at != scrub.members.end())
        std::copy(at->second.numbers.begin(), at->second.numbers.end(), std::begin(disk.scrubbed));
}

// The head of the slot once the checksum over the length it states has been verified.
Result<DiskSuperblock> read_checked(std::span<const std::byte> slot)
{
    if (slot.size() < sizeof(DiskSuperblock))
        return Err::kCorrupt;
    DiskSuperblock disk;
    std::memcpy(&disk, slot.data(), sizeof disk);
    if (disk.magic != kSuperblockMagic)
        return Err::kNotFound;
    if (disk.bytes < sizeof disk || disk.bytes > kSuperblockSlotBytes || disk.bytes > slot.size())
        return Err::kCorrupt;
    if (disk.checksum != checksum_of(slot.subspan(sizeof disk.checksum, disk.bytes - sizeof disk.checksum)))
        return Err::kCorrupt;
    return disk;
}

ScrubRecord decode(const DiskScrub& disk)
{
    ScrubRecord scrub{.state = static_cast<ScrubState>(disk.state.get()),
                      .flags = disk.flags,
                      .limit = disk.limit,
                      .started = disk.started,
                      .ended = disk.ended,
                      .run_ms = disk.run_ms,
                      .verified_before = disk.verified_before,
                      .bytes_max = disk.bytes_max,
                      .numbers = {},
                      .members = {},
                      .key = {disk.key_object, disk.key_type, disk.key_offset},
                      .tree = disk.tree,
                      .group = {disk.group},
                      .stripe = disk.stripe};
    std::copy(std::begin(disk.numbers), std::end(disk.numbers), scrub.numbers.begin());
    return scrub;
}

void encode(const ScrubRecord& scrub, DiskScrub& disk)
{
    disk.state = static_cast<uint32_t>(scrub.state);
    disk.flags = scrub.flags;
    disk.limit = scrub.limit;
    disk.started = scrub.started;
    disk.ended = scrub.ended;
    disk.run_ms = scrub.run_ms;
    disk.verified_before = scrub.verified_before;
    disk.bytes_max = scrub.bytes_max;
    std::copy(scrub.numbers.begin(), scrub.numbers.end(), std::begin(disk.numbers));
    disk.key_object = scrub.key.object;
    disk.key_type = scrub.key.type;
    disk.key_offset = scrub.key.offset;
    disk.tree = scrub.tree;
    disk.group = scrub.group.value;
    disk.stripe = scrub.stripe;
}

void decode_fields(const DiskSuperblock& disk, Superblock& superblock)
{
    std::memcpy(superblock.volume_uuid.bytes.data(), disk.volume_uuid, sizeof disk.volume_uuid);
    superblock.incompat_features = disk.incompat_features;
    superblock.readonly_features = disk.readonly_features;
    superblock.compat_features = disk.compat_features;
    superblock.generation = {disk.generation};
    superblock.member_id = {disk.member_id};
    superblock.next_member_id = disk.next_member_id;
    superblock.chunk_bytes = disk.chunk_bytes;
    superblock.data_profile = static_cast<ProfileId>(disk.data_profile.get());
    superblock.metadata_profile = static_cast<ProfileId>(disk.metadata_profile.get());
    superblock.next_group_address = disk.next_group_address;
    superblock.created_seconds = disk.created_seconds;
    superblock.root = decode(disk.root);
    superblock.map = {.generation = {disk.map_generation},
                      .checksum = disk.map_checksum,
                      .bytes = disk.map_bytes,
                      .place = disk.map_place};
    superblock.name_hash_seed = disk.name_hash_seed;
    superblock.live_logs = disk.live_logs;
    superblock.tree_commits = disk.tree_commits;
    superblock.log_epoch = disk.log_epoch;
    superblock.unmounted = disk.unmounted == 1;
    superblock.balance = {.state = static_cast<BalanceState>(disk.balance.state.get()),
                          .content = disk.balance.content,
                          .usage_max = disk.balance.usage_max,
                          .member = {disk.balance.member},
                          .before = {disk.balance.before},
                          .total_bytes = disk.balance.total_bytes,
                          .shrink_bytes = disk.shrink_bytes};
    superblock.scrub = decode(disk.scrub);
    superblock.replace = {
        .source = {disk.replace.source}, .target = {disk.replace.target}, .started = disk.replace.started};
}

void encode_fields(const Superblock& superblock, DiskSuperblock& disk)
{
    disk.magic = kSuperblockMagic;
    disk.version = kFormatVersion;
    std::memcpy(disk.volume_uuid, superblock.volume_uuid.bytes.data(), sizeof disk.volume_uuid);
    disk.incompat_features = superblock.incompat_features;
    disk.readonly_features = superblock.readonly_features;
    disk.compat_features = superblock.compat_features;
    disk.generation = superblock.generation.value;
    disk.epoch = superblock.epochs.front().epoch;
    disk.member_id = superblock.member_id.value;
    disk.member_count = static_cast<uint32_t>(superblock.members.size());
    disk.spare_count = static_cast<uint32_t>(superblock.spares.size());
    disk.next_member_id = superblock.next_member_id;
    disk.block_bytes = kBlockBytes;
    disk.node_bytes = kNodeBytes;
    disk.chunk_bytes = superblock.chunk_bytes;
    disk.data_profile = static_cast<uint32_t>(superblock.data_profile);
    disk.metadata_profile = static_cast<uint32_t>(superblock.metadata_profile);
    disk.next_group_address = superblock.next_group_address;
    disk.created_seconds = superblock.created_seconds;
    disk.root = encode(superblock.root);
    disk.map_generation = superblock.map.generation.value;
    disk.map_checksum = superblock.map.checksum;
    disk.map_bytes = superblock.map.bytes;
    disk.map_place = superblock.map.place;
    disk.name_hash_seed = superblock.name_hash_seed;
    disk.live_logs = superblock.live_logs;
    disk.tree_commits = superblock.tree_commits;
    disk.log_epoch = superblock.log_epoch;
    disk.unmounted = superblock.unmounted ? 1 : 0;
    disk.balance.state = static_cast<uint32_t>(superblock.balance.state);
    disk.balance.content = superblock.balance.content;
    disk.balance.usage_max = superblock.balance.usage_max;
    disk.balance.member = superblock.balance.member.value;
    disk.balance.before = superblock.balance.before.value;
    disk.balance.total_bytes = superblock.balance.total_bytes;
    disk.shrink_bytes = superblock.balance.shrink_bytes;
    encode(superblock.scrub, disk.scrub);
    disk.replace.source = superblock.replace.source.value;
    disk.replace.target = superblock.replace.target.value;
    disk.replace.started = superblock.replace.started;
    std::memcpy(disk.label, superblock.label.data(), superblock.label.size());
    disk.epoch_count = static_cast<uint32_t>(superblock.epochs.size());
    for (size_t index = 0; index < superblock.epochs.size(); ++index)
        disk.epochs[index] = {superblock.epochs[index].epoch, superblock.epochs[index].generation.value};
}

// The epoch that commit `generation` was made under.
uint64_t epoch_of(const Superblock& superblock, Generation generation)
{
    for (const EpochRecord& record : superblock.epochs)
        if (record.generation <= generation)
            return record.epoch;
    return superblock.epochs.back().epoch;
}

}  // namespace

bool block_ref_valid(const BlockRef& ref, Generation newest)
{
    if (!ref.address.valid())
        return ref == BlockRef{};
    return ref.address.value % kBlockBytes == 0 && ref.generation.value != 0 && ref.generation <= newest;
}

BlockRef decode(const DiskBlockRef& disk)
{
    BlockRef ref{.address = {disk.address}, .generation = {disk.generation}};
    std::copy(std::begin(disk.checksums), std::end(disk.checksums), ref.checksums.begin());
    return ref;
}

DiskBlockRef encode(const BlockRef& ref)
{
    DiskBlockRef disk{.address = ref.address.value, .generation = ref.generation.value, .checksums = {}};
    std::copy(ref.checksums.begin(), ref.checksums.end(), std::begin(disk.checksums));
    return disk;
}

ScrubMemberNumbers& ScrubMemberNumbers::operator+=(const ScrubMemberNumbers& more)
{
    for (size_t index = 0; index < numbers.size(); ++index)
        numbers[index] += more.numbers[index];
    return *this;
}

ScrubbedMembers& operator+=(ScrubbedMembers& sum, const ScrubbedMembers& more)
{
    for (const auto& [member, numbers] : more)
        sum[member] += numbers;
    return sum;
}

void ScrubRecord::stay_at(const ScrubRecord& earlier)
{
    constexpr uint32_t kWhere = kScrubRowsDone | kScrubGroupWell;
    flags = (flags & ~kWhere) | (earlier.flags & kWhere);
    numbers = earlier.numbers;
    members = earlier.members;
    key = earlier.key;
    tree = earlier.tree;
    group = earlier.group;
    stripe = earlier.stripe;
}

MemberRecord spare_record(MemberId id, const Uuid& uuid, uint64_t size_bytes)
{
    return {.id = id, .state = MemberState::kSpare, .uuid = uuid, .size_bytes = size_bytes};
}

namespace {

const MemberRecord* find_line(const std::vector<MemberRecord>& lines, MemberId id)
{
    const auto found =
        std::lower_bound(lines.begin(), lines.end(), id,
                         [](const MemberRecord& have, MemberId want) { return have.id < want; });
    return found != lines.end() && found->id == id ? &*found : nullptr;
}

}  // namespace

const MemberRecord* Superblock::member(MemberId id) const
{
    return find_line(members, id);
}

const MemberRecord* Superblock::spare(MemberId id) const
{
    return find_line(spares, id);
}

MemberRecord* Superblock::member(MemberId id)
{
    return const_cast<MemberRecord*>(static_cast<const Superblock*>(this)->member(id));
}

std::vector<std::byte> encode_superblock(const Superblock& superblock)
{
    CW_ASSERT(superblock_valid(superblock));
    const uint64_t bytes =
        sizeof(DiskSuperblock) + (superblock.members.size() + superblock.spares.size()) * sizeof(DiskMember);
    std::vector<std::byte> slot(round_up(bytes, kBlockBytes));
    DiskSuperblock disk;
    std::memset(&disk, 0, sizeof disk);
    encode_fields(superblock, disk);
    disk.bytes = static_cast<uint32_t>(bytes);
    std::memcpy(slot.data(), &disk, sizeof disk);
    std::byte* place = slot.data() + sizeof disk;
    for (const std::vector<MemberRecord>* const lines : {&superblock.members, &superblock.spares})
        for (const MemberRecord& record : *lines) {
            DiskMember member = encode_member(record);
            encode_scrubbed(superblock.scrub, member);
            std::memcpy(place, &member, sizeof member);
            place += sizeof member;
        }
    disk.checksum = checksum_of(slot.data() + sizeof disk.checksum, bytes - sizeof disk.checksum);
    std::memcpy(slot.data(), &disk.checksum, sizeof disk.checksum);
    return slot;
}

uint32_t claimed_superblock_bytes(std::span<const std::byte> head)
{
    DiskSuperblock disk;
    if (head.size() < sizeof disk)
        return 0;
    std::memcpy(&disk, head.data(), sizeof disk);
    return disk.magic == kSuperblockMagic && disk.bytes <= kSuperblockSlotBytes ? uint32_t{disk.bytes} : 0;
}

Result<SuperblockIdentity> peek_superblock(std::span<const std::byte> slot)
{
    CW_ASSIGN(const DiskSuperblock disk, read_checked(slot));
    SuperblockIdentity identity;
    identity.version = disk.version;
    std::memcpy(identity.volume_uuid.bytes.data(), disk.volume_uuid, sizeof disk.volume_uuid);
    identity.incompat_features = disk.incompat_features;
    identity.readonly_features = disk.readonly_features;
    identity.compat_features = disk.compat_features;
    identity.generation = {disk.generation};
    return identity;
}

Result<Superblock> decode_superblock(std::span<const std::byte> slot)
{
    CW_ASSIGN(const DiskSuperblock disk, read_checked(slot));
    if (disk.version == 0)
        return Err::kCorrupt;
    if (disk.version != kFormatVersion ||
        unhandled_features(FeatureClass::kRefuse, disk.incompat_features) != 0)
        return Err::kUnsupported;
    if (disk.member_count > kMaxMembers || disk.spare_count > kMaxMembers || disk.epoch_count == 0 ||
        disk.epoch_count > kEpochHistoryCount ||
        disk.bytes != sizeof disk + (uint64_t{disk.member_count} + disk.spare_count) * sizeof(DiskMember) ||
        disk.block_bytes != kBlockBytes || (disk.live_logs & ~kLiveLogsMask) != 0 || disk.unmounted > 1 ||
        disk.node_bytes != kNodeBytes || disk.epoch != disk.epochs[0].epoch)
        return Err::kCorrupt;
    const void* end = std::memchr(disk.label, 0, sizeof disk.label);
    if (end == nullptr)
        return Err::kCorrupt;
    Superblock superblock;
    decode_fields(disk, superblock);
    superblock.label.assign(disk.label, static_cast<const uint8_t*>(end));
    for (uint32_t index = 0; index < disk.epoch_count; ++index)
        superblock.epochs.push_back({disk.epochs[index].epoch, {disk.epochs[index].generation}});
    for (uint32_t index = 0; index < disk.member_count + disk.spare_count; ++index) {
        DiskMember member;
        std::memcpy(&member, slot.data() + sizeof disk + index * sizeof member, sizeof member);
        (index < disk.member_count ? superblock.members : superblock.spares).push_back(decode_member(member));
        if (index < disk.member_count)
            decode_scrubbed(member, superblock.scrub);
    }
    if (superblock.log_epoch == 0)
        superblock.log_epoch = epoch_of(superblock, superblock.root.generation);
    if (!superblock_valid(superblock))
        return Err::kCorrupt;
    return superblock;
}

bool label_is_valid(std::string_view label)
{
    return label.size() < kLabelBytes && label.find('\t') == std::string_view::npos &&
           printable(label) == label;
}

}  // namespace cowraid
