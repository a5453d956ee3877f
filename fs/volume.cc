// SPDX-License-Identifier: MIT
#include "fs/volume.h"

#include <algorithm>

#include "base/assert.h"
#include "base/log.h"
#include "base/random.h"
#include "device/superblock_store.h"
#include "format/feature_table.h"
#include "fs/commit_mutant.h"
#include "journal/intent_scan.h"

namespace cowraid {

namespace {

// Whether a stale member may simply take part again. One that was absent when it was left out missed nothing
// in its own block groups: they were closed for allocation from the first write on. One that failed while
// writes were under way may have missed some, and must be caught up first.
bool missed_nothing(const AssembledMember& member, const MemberRecord& record)
{
    return member.stale && member.device != nullptr && record.state == MemberState::kMissing;
}

// Why the volume cannot be mounted with these members, or empty. Fills `must_be_read_only`.
std::string judge_missing(const Superblock& superblock, const GroupMap& map,
                          const std::vector<MemberId>& missing, const MountOptions& options,
                          bool& must_be_read_only)
{
    must_be_read_only = false;
    if (missing.empty())
        return {};
    std::string names;
    for (const MemberId id : missing)
        names += (names.empty() ? "" : ", ") + std::to_string(id.value);
    if (!options.degraded && !options.rescue)
        return "member " + names + " missing; add the device, or mount with -o degraded";
    for (const GroupRecord& group : map.groups) {
        const auto absent = static_cast<uint32_t>(
            std::count_if(group.columns.begin(), group.columns.end(), [&](const GroupColumn& column) {
                return std::find(missing.begin(), missing.end(), column.member) != missing.end();
            }));
        if (absent <= find_profile(group.profile)->tolerance)
            continue;
        if (options.rescue && options.read_only) {
            must_be_read_only = true;
            return {};
        }
        return "member " + names + " missing, more than " + find_profile(group.profile)->name +
               " tolerates; what is left can be read with -o ro,rescue";
    }
    const size_t present = superblock.members.size() - missing.size();
    must_be_read_only = present * 2 <= superblock.members.size() ||
                        present < find_profile(superblock.data_profile)->min_members ||
                        present < find_profile(superblock.metadata_profile)->min_members;
    return {};
}

// Why this version must not write the volume whatever its members, or null.
const char* unwritable(const Superblock& superblock)
{
    if (unhandled_features(FeatureClass::kReadOnly, superblock.readonly_features) != 0)
        return "the volume uses features that this version can only read";
    if (!find_profile(superblock.data_profile)->allocatable ||
        !find_profile(superblock.metadata_profile)->allocatable)
        return "this version makes no block groups of the volume's profile";
    // Reached by forgery only.
    if (superblock.generation.value > kMaxGeneration / 2 || superblock.tree_commits > kMaxGeneration / 2 ||
        superblock.next_group_address > kMaxVolumeAddress / 2)
        return "the volume's numbers of commits or addresses are used up";
    return nullptr;
}

}  // namespace

Result<std::unique_ptr<Volume>> Volume::open(Assembly assembly, const MountOptions& options, std::string& why)
{
    std::unique_ptr<Volume> volume(new Volume());
    std::vector<MemberId> missing;
    volume->superblock_ = std::move(assembly.superblock);
    for (AssembledMember& member : assembly.members) {
        MemberRecord& record = *volume->superblock_.member(member.id);
        if (missed_nothing(member, record)) {
            member.stale = false;
        } else if (member.stale && member.device != nullptr) {
            volume->stale_.push_back(member.id);
            // It missed writes while the table called it present: it must not pass for one that was merely
            // away.
            if (record.state == MemberState::kPresent) {
                record.state = MemberState::kFailed;
                record.missing_since = member.missed_from;
            }
        }
        if (member.stale || member.device == nullptr)
            missing.push_back(member.id);
        if (!member.stale && member.damaged.slots != DamagedSlots{}.slots)
            volume->damaged_slots_.push_back(member.damaged);
        // A stale member is absent until it is caught up: nothing is read from it.
        volume->members_.add(member.id, member.stale ? nullptr : std::move(member.device), record.counters);
    }
    volume->damaged_rings_ = std::move(assembly.damaged_rings);
    Result<GroupMap> map = read_group_map(volume->members_, volume->superblock_);
    if (!map.ok()) {
        why = "the block-group map cannot be read on any member";
        return map.err();
    }
    volume->map_ = map.take();
    const bool emptying =
        std::any_of(volume->map_.groups.begin(), volume->map_.groups.end(),
                    [](const GroupRecord& group) { return (group.flags & kGroupEmptying) != 0; });
    if (emptying && !volume->may_have_moved_blocks()) {
        why = "the block-group map speaks of moved blocks, the superblock of none";
        return Err::kCorrupt;
    }
    bool must_be_read_only = false;
    why = judge_missing(volume->superblock_, volume->map_, missing, options, must_be_read_only);
    if (!why.empty())
        return Err::kInvalid;
    volume->read_only_reason_ =
        must_be_read_only ? "too few members are present for safe writing" : unwritable(volume->superblock_);
    volume->map_written_ = true;
    volume->map_in_place_ = is_mutant(options, CommitMutant::kMapInPlace);
    Array::Options array_options;
    array_options.read_only = options.read_only || volume->read_only_advised();
    volume->array_ = std::make_unique<Array>(volume->members_, array_options);
    CW_TRY(volume->install_groups(why));
    return volume;
}

std::unique_ptr<Volume> Volume::create(std::vector<std::unique_ptr<BlockDevice>> devices,
                                       Superblock superblock)
{
    CW_ASSERT(devices.size() == superblock.members.size());
    std::unique_ptr<Volume> volume(new Volume());
    volume->superblock_ = std::move(superblock);
    for (size_t i = 0; i < devices.size(); ++i) {
        const MemberRecord& record = volume->superblock_.members[i];
        volume->members_.add(record.id, std::move(devices[i]), record.counters);
        volume->slots_.add_member(record, true);
    }
    volume->array_ = std::make_unique<Array>(volume->members_, Array::Options{});
    return volume;
}

Status Volume::install_groups(std::string& why)
{
    for (const MemberRecord& record : superblock_.members)
        slots_.add_member(record, members_.device(record.id) != nullptr);
    for (const GroupRecord& group : map_.groups) {
        const Status taken = slots_.take(group);
        const Status added = taken.ok() ? array_->add_group(group, superblock_) : taken;
        if (!added.ok()) {
            why = "the block-group map contradicts itself at address " + std::to_string(group.address.value);
            return added;
        }
    }
    return {};
}

bool Volume::system_is_metadata() const
{
    return metadata_profile().parity == 0;
}

const Profile& Volume::system_profile() const
{
    if (system_is_metadata())
        return metadata_profile();
    return *find_profile(metadata_profile().parity == 1 ? ProfileId::kRaid1 : ProfileId::kRaid1c3);
}

const Profile& Volume::profile_for(uint32_t content) const
{
    if (content & kGroupData)
        return data_profile();
    return content & kGroupMetadata ? metadata_profile() : system_profile();
}

std::vector<MemberId> Volume::missing_members() const
{
    std::vector<MemberId> missing;
    for (const MemberRecord& record : superblock_.members)
        if (members_.device(record.id) == nullptr)
            missing.push_back(record.id);
    return missing;
}

bool Volume::member_failed_since_commit() const
{
    return std::any_of(superblock_.members.begin(), superblock_.members.end(), [&](const MemberRecord& r) {
        return r.state == MemberState::kPresent && members_.device(r.id) == nullptr;
    });
}

size_t Volume::quorum() const
{
    return superblock_.members.size() / 2 + 1;
}

bool Volume::map_has_room(const GroupRecord& group) const
{
    const uint64_t bytes = encoded_bytes(map_, group);
    return bytes <= kMaxMapBytes && group.span_bytes() <= kMaxVolumeAddress - group.address.value &&
           std::all_of(superblock_.members.begin(), superblock_.members.end(),
                       [=](const MemberRecord& record) { return bytes <= record.map_bytes; });
}

Status Volume::plan_group(uint32_t content, Allocator& allocator)
{
    if ((content & (kGroupMetadata | kGroupSystem)) != 0 && system_is_metadata())
        content = kGroupMetadata | kGroupSystem;
    if (map_.groups.size() >= kMaxGroups)
        return Err::kNoSpace;
    MutexLock lock(mutex_);
    CW_ASSIGN(GroupRecord group, slots_.plan_group(profile_for(content), superblock_.chunk_bytes));
    group.address = {superblock_.next_group_address};
    group.content = content;
    group.created_generation = superblock_.generation.next();
    const Status added = map_has_room(group) ? array_->add_group(group, superblock_) : Err::kNoSpace;
    if (!added.ok()) {
        slots_.give_back(group);
        return added;
    }
    superblock_.next_group_address += group.span_bytes();
    const Geometry geometry = geometry_of(group);
    allocator.add_group(group, {group.address, 0, geometry.row_count(), geometry.stripe_count()},
                        Allocator::GroupState::kPlanned);
    planned_.push_back(group.address);
    map_.groups.push_back(std::move(group));
    map_changed_ = true;
    forget_potential();
    return {};
}

bool Volume::may_have_moved_blocks() const
{
    return (superblock_.incompat_features & feature_bit("remap")) != 0;
}

void Volume::set_emptying(VolumeAddress address)
{
    const auto at = std::find_if(map_.groups.begin(), map_.groups.end(),
                                 [&](const GroupRecord& group) { return group.address == address; });
    CW_ASSERT(at != map_.groups.end());
    at->flags |= kGroupEmptying;
    superblock_.incompat_features |= feature_bit("remap");
    map_changed_ = true;
}

Status Volume::drop_group(VolumeAddress address, Allocator& allocator)
{
    const auto at = std::find_if(map_.groups.begin(), map_.groups.end(),
                                 [&](const GroupRecord& group) { return group.address == address; });
    if (at == map_.groups.end())
        return Err::kNotFound;
    CW_TRY(allocator.remove_group(address));
    array_->remove_group(address);
    MutexLock lock(mutex_);
    dropped_.push_back(std::move(*at));
    map_.groups.erase(at);
    forget_potential();
    map_changed_ = true;
    return {};
}

// What metadata comes to need if all slots that are free hold data.
MetadataNeed Volume::metadata_need_when_full() const
{
    if (need_known_)
        return need_;
    const Profile& data = data_profile();
    uint64_t blocks = slots_.potential_blocks(data, superblock_.chunk_bytes);
    for (const GroupRecord& group : map_.groups)
        blocks += (group.content & kGroupData) != 0 ? geometry_of(group).data_blocks() : 0;
    const auto columns = static_cast<double>(std::max<size_t>(data.min_members, superblock_.members.size()));
    need_ = metadata_need(blocks, columns / (columns - data.parity));
    if (system_is_metadata())
        need_ = {need_.file_blocks + need_.system_blocks, 0};
    need_known_ = true;
    return need_;
}

// Beside slots that metadata will need.
uint64_t Volume::potential_data_blocks() const
{
    uint64_t metadata = 0;
    uint64_t system = 0;
    for (const GroupRecord& group : map_.groups) {
        metadata += (group.content & kGroupMetadata) != 0 ? geometry_of(group).data_blocks() : 0;
        system += (group.content & kGroupSystem) != 0 ? geometry_of(group).data_blocks() : 0;
    }
    const MetadataNeed need = metadata_need_when_full();
    const SlotAllocator::Share kept[] = {
        {&metadata_profile(), need.file_blocks - std::min(need.file_blocks, metadata)},
        {&system_profile(), need.system_blocks - std::min(need.system_blocks, system)},
    };
    return slots_.potential_blocks(data_profile(), superblock_.chunk_bytes, kept);
}

uint64_t Volume::potential_blocks(uint32_t content) const
{
    MutexLock lock(mutex_);
    const size_t index = content & kGroupData ? 0 : content & kGroupMetadata ? 1 : 2;
    if (!potential_known_[index]) {
        potential_[index] = index == 0
                                ? potential_data_blocks()
                                : slots_.potential_blocks(profile_for(content), superblock_.chunk_bytes);
        potential_known_[index] = true;
    }
    return potential_[index];
}

uint64_t Volume::metadata_kept_blocks(uint32_t content) const
{
    MutexLock lock(mutex_);
    const MetadataNeed need = metadata_need_when_full();
    return content == kGroupSystem ? need.system_blocks : need.file_blocks;
}

Status Volume::write_map(MapWrite how, Generation generation)
{
    if (!map_changed_)
        return {};
    map_.generation = generation;
    MapRef reference;
    const std::vector<std::byte> bytes = encode_group_map(map_, superblock_.volume_uuid, reference);
    // The place that the last durable superblock names must survive until the next one is durable.
    const uint32_t other = map_in_place_ ? 0 : 1;
    const uint32_t place = map_written_ ? superblock_.map.place ^ other : 0;
    reference.place = place;
    reference.generation = generation;
    pending_map_ = reference;
    if (how == MapWrite::kPrepare)
        return {};
    return write_group_map(members_, superblock_, bytes, place, quorum());
}

Status Volume::flush()
{
    return flush_members(members_, quorum());
}

void Volume::note_member_states(Generation generation)
{
    for (MemberRecord& record : superblock_.members) {
        record.counters = members_.counters(record.id);
        if (members_.device(record.id) != nullptr && record.state == MemberState::kMissing) {
            record.state = MemberState::kPresent;
            record.missing_since = {};
            CW_LOG_INFO("member %u takes part again", record.id.value);
        }
        if (members_.device(record.id) != nullptr || record.state != MemberState::kPresent)
            continue;
        record.state = members_.failed(record.id) ? MemberState::kFailed : MemberState::kMissing;
        record.missing_since = generation;
        CW_LOG_ERROR("member %u is out of service since commit %llu", record.id.value,
                     static_cast<unsigned long long>(generation.value));
        MutexLock lock(mutex_);
        slots_.set_usable(record.id, false);
        forget_potential();
    }
}

Status Volume::write_superblock(Generation generation, const BlockRef& root)
{
    superblock_.generation = generation;
    superblock_.root = root;
    if (map_changed_)
        superblock_.map = pending_map_;
    note_member_states(generation);
    return write_superblocks(members_, superblock_, quorum());
}

void Volume::commit_done(Allocator& allocator)
{
    if (!map_changed_)
        return;
    map_changed_ = false;
    map_written_ = true;
    for (const VolumeAddress address : planned_)
        allocator.set_group_state(address, Allocator::GroupState::kOpen);
    planned_.clear();
    MutexLock lock(mutex_);
    for (const GroupRecord& group : dropped_)
        slots_.give_back(group);
    dropped_.clear();
    forget_potential();
}

Status Volume::recover_rows(const MountOptions& options, ChecksumSink& sink, RecoveryCounts& counts)
{
    const bool read_only = options.read_only || read_only_advised();
    uint64_t next_sequence = 1;
    if (intent_log_live()) {
        IntentScan scan(members_, superblock_);
        CW_TRY(array_->recover_rows(scan, sink, counts));
        next_sequence = scan.next_sequence();
        // With live rows the commit that follows makes everything in the logs dead.
        if (counts.rows == 0 && !read_only)
            CW_TRY(scan.erase(quorum()));
    }
    if (counts.rows > 0)
        CW_LOG_INFO("%llu rows were being written in place when the volume was left: %llu changed",
                    static_cast<unsigned long long>(counts.rows),
                    static_cast<unsigned long long>(counts.changed));
    if (read_only)
        return {};
    if (counts.rows > 0)
        CW_TRY(flush());
    if (intent_log_)
        return {};
    intent_log_ = std::make_unique<IntentLog>(members_, superblock_, next_sequence);
    PartialWriteOptions partial = options.partial_writes;
    if (options.manual_commit)
        partial.worker_count = 0;
    return array_->start_partial_writes(*intent_log_, partial);
}

bool Volume::would_forget_logs() const
{
    const std::vector<EpochRecord>& epochs = superblock_.epochs;
    return superblock_.live_logs != 0 && degraded() && epochs.size() == kEpochHistoryCount &&
           epochs[kEpochHistoryCount - 2].generation > superblock_.root.generation;
}

Status Volume::begin_writing()
{
    for (const MemberId id : damaged_rings_)
        members_.count(id, MemberCounter::kSuperblock);
    damaged_rings_.clear();
    CW_TRY(erase_slots(members_, damaged_slots_, quorum()));
    damaged_slots_.clear();
    // Neighbours that a crash left one commit apart are alike again before anything else is written.
    CW_TRY(rewrite_commit(members_, superblock_, map_, quorum()));
    const bool returned =
        std::any_of(superblock_.members.begin(), superblock_.members.end(), [&](const MemberRecord& record) {
            return record.state == MemberState::kMissing && members_.device(record.id) != nullptr;
        });
    if (!degraded() && !returned)
        return {};
    const Generation generation = superblock_.generation.next();
    if (degraded()) {
        superblock_.epochs.insert(superblock_.epochs.begin(), {random_u64(), generation});
        if (superblock_.epochs.size() > kEpochHistoryCount)
            superblock_.epochs.resize(kEpochHistoryCount);
    }
    CW_TRY(write_superblock(generation, superblock_.root));
    return flush();
}

}  // namespace cowraid
