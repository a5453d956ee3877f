// SPDX-License-Identifier: MIT
#include "fs/volume/volume.h"

#include <algorithm>

#include "base/assert.h"
#include "base/log.h"
#include "base/random.h"
#include "device/superblock_store.h"
#include "format/feature_table.h"
#include "fs/volume/commit_mutant.h"
#include "fs/volume/missing_members.h"
#include "journal/intent_scan.h"

namespace cowraid {

namespace {

// Why this version must not write the volume whatever its members, if so.
ReadOnlyReason unwritable(const Superblock& superblock)
{
    if (unhandled_features(FeatureClass::kReadOnly, superblock.readonly_features) != 0)
        return {"the volume uses features that this version can only read",
                "unmount it and mount it with a version that knows them"};
    // Reached by forgery only.
    if (superblock.generation.value > kMaxGeneration / 2 || superblock.tree_commits > kMaxGeneration / 2 ||
        superblock.next_group_address > kMaxVolumeAddress / 8 * 7)
        return {"the volume's numbers of commits or addresses are used up", "copy what is in it"};
    return {};
}

// As what a group of that content is made now.
const Profile& profile_in(const Superblock& superblock, uint32_t content)
{
    if ((content & kGroupData) != 0)
        return *find_profile(superblock.data_profile);
    const Profile& metadata = *find_profile(superblock.metadata_profile);
    return (content & kGroupMetadata) != 0 ? metadata : Volume::system_profile_of(metadata);
}

// Blocks of nodes that the slots of a group are sure to hold as groups of `profile`, once it is empty and
// they are free: no more than it has of its own profile.
uint64_t blocks_as(const Profile& profile, const GroupRecord& group, size_t voters)
{
    const Geometry geometry = geometry_of(group);
    if (group.profile == profile.id)
        return geometry.data_blocks();
    const uint64_t members = std::max<uint64_t>(profile.min_members, voters);
    const uint64_t slots = geometry.columns() * geometry.row_count();
    return std::min(geometry.data_blocks(), slots * (members - profile.parity) / members / profile.copies);
}

}  // namespace

Result<std::unique_ptr<Volume>> Volume::open(Assembly assembly, const MountOptions& options, std::string& why)
{
    std::unique_ptr<Volume> volume(new Volume());
    CW_TRY(volume->load(std::move(assembly), options, why));
    return volume;
}

Status Volume::load(Assembly assembly, const MountOptions& options, std::string& why)
{
    commit_thread_.assert_here();
    begin_with(std::move(assembly.superblock));
    next_.unmounted = false;
    take_members(assembly, options);
    Result<GroupMap> map = read_group_map(members_, committed_);
    if (!map.ok()) {
        why = "the block-group map cannot be read on any member";
        return map.status();
    }
    map_ = map.take();
    found_map_ = map_;
    for (const GroupRecord& group : map_.groups)
        if ((group.flags & kGroupChosen) != 0)
            chosen_.insert(group.address);
    for (const AssembledMember& member : assembly.members) {
        distrust(member);
        if (copies_outdated(member))
            forget_copied();
    }
    const bool emptying = std::any_of(map_.groups.begin(), map_.groups.end(), [](const GroupRecord& group) {
        return (group.flags & kGroupEmptying) != 0;
    });
    if (emptying && !may_have_moved_blocks()) {
        why = "the block-group map speaks of moved blocks, the superblock of none";
        return Err::kCorrupt;
    }
    const std::string lacking = lacking_text(assembly, committed_.replace, members_, map_);
    // Of one that is to be erased nobody needs to be afraid.
    const MemberId replaced = replaced_ == nullptr ? taken_over_ : MemberId();
    why = assess_missing(committed_, map_, away_, replaced, lacking, options, read_only_);
    if (!why.empty())
        return Err::kInvalid;
    if (!lacking.empty())
        degraded_reason_ =
            lacking + "; " +
            tolerance_text(committed_, map_, away_, needed_for_writing(voter_count(committed_), half_));
    if (read_only_.text.empty())
        read_only_ = unwritable(committed_);
    Array::Options array_options;
    array_options.read_only = options.read_only || read_only_advised();
    array_ = std::make_unique<Array>(members_, array_options);
    CW_TRY(install_groups(why));
    balance_is_committed();
    prepare_target();
    // By what the map says.
    members_.set_quorums({quorum_of(committed_, committed_)});
    heed_balance(committed_.balance, true);
    return {};
}

void Volume::take_members(Assembly& assembly, const MountOptions& options)
{
    for (AssembledMember& member : assembly.members) {
        if (!member.reason.text.empty())
            reasons_.emplace_back(member.id, member.reason);
        if (member.device == nullptr)
            away_.push_back(member.id);
        else if (member.damaged.slots != DamagedSlots{}.slots)
            damaged_slots_.push_back(member.damaged);
        // One that missed commits serves what it has: the map says which columns lack something.
        members_.add(member.id, std::move(member.device), committed_.member(member.id)->counters);
    }
    for (AssembledSpare& spare : assembly.spares)
        spares_.add(spare.id, std::move(spare.device));
    members_.set_error_budget(options.error_budget);
    members_.set_read_deadline_ms(uint64_t{options.read_deadline_seconds} * 1000);
    members_.set_slow_io_ms(uint64_t{options.slow_io_seconds} * 1000);
    // Half of them suffices only where others are missing now: the epoch that writing begins with says so
    // before anything is acknowledged.
    half_ =
        options.half && voter_count(committed_, away_) < needed_for_writing(voter_count(committed_), false);
    members_.set_quorums({quorum_of(committed_, committed_)});
    damaged_rings_ = std::move(assembly.damaged_rings);
    taken_over_ = assembly.taken_over;
    replaced_ = std::move(assembly.replaced);
    force_ = options.half;
}

std::vector<std::unique_ptr<BlockDevice>> Volume::give_devices()
{
    commit_thread_.assert_here();
    std::vector<std::unique_ptr<BlockDevice>> devices = members_.give_devices();
    for (const MemberRecord& spare : committed_.spares)
        if (spares_.device(spare.id) != nullptr)
            devices.push_back(spares_.take(spare.id));
    if (replaced_ != nullptr)
        devices.push_back(std::move(replaced_));
    return devices;
}

void Volume::begin_with(Superblock superblock)
{
    committed_ = next_ = std::move(superblock);
    identity_ = {committed_.volume_uuid, committed_.label, committed_.chunk_bytes, committed_.name_hash_seed};
    generation_.store(committed_.generation.value);
    log_epoch_.store(committed_.log_epoch);
    needed_features_ = committed_.incompat_features & (feature_bit("inode_flags") | feature_bit("cut_files"));
    may_have_moved_blocks_.store((committed_.incompat_features & feature_bit("remap")) != 0);
    may_have_frames_.store((committed_.incompat_features & feature_bit("zstd")) != 0);
    keeps_rights_.store((committed_.readonly_features & feature_bit("rights")) != 0);
    MutexLock lock(mutex_);
    shown_ = committed_;
}

MemberReason Volume::reason_of(MemberId id) const
{
    for (const auto& [member, reason] : reasons_)
        if (member == id)
            return reason;
    return {};
}

std::unique_ptr<Volume> Volume::create(std::vector<std::unique_ptr<BlockDevice>> devices,
                                       Superblock superblock)
{
    CW_ASSERT(devices.size() == superblock.members.size());
    std::unique_ptr<Volume> volume(new Volume());
    volume->make_empty(std::move(devices), std::move(superblock));
    return volume;
}

void Volume::make_empty(std::vector<std::unique_ptr<BlockDevice>> devices, Superblock superblock)
{
    commit_thread_.assert_here();
    begin_with(std::move(superblock));
    MutexLock lock(mutex_);
    for (size_t i = 0; i < devices.size(); ++i) {
        const MemberRecord& record = committed_.members[i];
        members_.add(record.id, std::move(devices[i]), record.counters);
        slots_.add_member(record, true);
        settled_.push_back(record.id);
    }
    members_.set_quorums({quorum_of(committed_, committed_)});
    array_ = std::make_unique<Array>(members_, Array::Options{});
}

Status Volume::install_groups(std::string& why)
{
    MutexLock lock(mutex_);
    for (const MemberRecord& record : committed_.members) {
        slots_.add_member(record, members_.device(record.id) != nullptr);
        settled_.push_back(record.id);
    }
    newly_stale_.clear();
    for (const GroupRecord& group : map_.groups) {
        const bool absent = std::any_of(group.columns.begin(), group.columns.end(), [&](const auto& column) {
            return members_.device(column.member) == nullptr;
        });
        if (absent)
            closed_.insert(group.address);
        const Status taken = slots_.take(group);
        const Status added = taken.ok() ? array_->add_group(group, committed_) : taken;
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

const Profile& Volume::system_profile_of(const Profile& metadata)
{
    if (metadata.parity == 0)
        return metadata;
    return mirror_of(metadata.tolerance + 1);
}

const Profile& Volume::profile_for(uint32_t content) const
{
    commit_thread_.assert_here();
    return profile_in(committed_, content);
}

const Profile& Volume::shown_profile(uint32_t content) const
{
    return profile_in(shown_, content);
}

uint32_t Volume::chunk_bytes_for(uint32_t content) const
{
    return (content & kGroupData) != 0 ? identity_.chunk_bytes
                                       : std::max<uint32_t>(identity_.chunk_bytes, kNodeBytes);
}

bool Volume::member_failed_since_commit() const
{
    commit_thread_.assert_here();
    return std::any_of(committed_.members.begin(), committed_.members.end(), [&](const MemberRecord& r) {
        return r.state == MemberState::kPresent && members_.device(r.id) == nullptr;
    });
}

bool Volume::map_has_room(const GroupRecord& group) const
{
    const uint64_t bytes = encoded_bytes(map_, group);
    return bytes <= kMaxMapBytes && group.span_bytes() <= kMaxVolumeAddress - group.address.value &&
           std::all_of(committed_.members.begin(), committed_.members.end(),
                       [=](const MemberRecord& record) { return bytes <= record.map_bytes; });
}

void Volume::note_present() const
{
    bool changed = false;
    for (const MemberRecord& record : shown_.members)
        changed = slots_.set_present(record.id, members_.device(record.id) != nullptr) || changed;
    if (changed)
        forget_potential();
}

Volume::PlannedWidths Volume::planned_widths(VolumeAddress address) const
{
    commit_thread_.assert_here();
    const auto at = std::find_if(map_.groups.begin(), map_.groups.end(),
                                 [&](const GroupRecord& group) { return group.address == address; });
    CW_ASSERT(at != map_.groups.end());
    MutexLock lock(mutex_);
    note_present();
    const Profile& profile = profile_for(at->content);
    const std::vector<SlotAllocator::Share> left = left_by(at->content, SlotMembers::kPresent);
    SlotAllocator slots = slots_;
    const uint32_t now = slots.planned_width(profile, left);
    slots.give_back(*at);
    return {now, slots.planned_width(profile, left)};
}

Status Volume::plan_group(uint32_t content, SlotMembers members, Slots slots, Allocator& allocator)
{
    commit_thread_.assert_here();
    if ((content & (kGroupMetadata | kGroupSystem)) != 0 && system_is_metadata())
        content = kGroupMetadata | kGroupSystem;
    if (map_.groups.size() >= kMaxGroups)
        return Err::kNoSpace;
    MutexLock lock(mutex_);
    note_present();
    std::vector<SlotAllocator::Share> left;
    if (slots == Slots::kBesideKept)
        left = left_by(content, members);
    CW_ASSIGN(GroupRecord group,
              slots_.plan_group(profile_for(content), chunk_bytes_for(content), members, left));
    group.address = {next_.next_group_address};
    group.content = content;
    group.created_generation = committed_.generation.next();
    for (GroupColumn& column : group.columns)
        if (members_.device(column.member) == nullptr)
            column.stale_since = group.created_generation;
    group.flags |= born_copied(group) ? kGroupCopied : 0;
    const Status added = map_has_room(group) ? array_->add_group(group, committed_) : Err::kNoSpace;
    if (!added.ok()) {
        slots_.give_back(group);
        return added;
    }
    next_.next_group_address += group.span_bytes();
    const Geometry geometry = geometry_of(group);
    if (geometry.sets > 1)
        next_.incompat_features |= feature_bit("sets");
    allocator.add_group(group, {group.address, 0, geometry.row_count(), geometry.stripe_count()},
                        Allocator::GroupState::kPlanned);
    planned_.push_back(group.address);
    map_.groups.push_back(std::move(group));
    map_changed_ = true;
    forget_potential();
    return {};
}

void Volume::note_frames()
{
    commit_thread_.assert_here();
    next_.incompat_features |= feature_bit("zstd");
    may_have_frames_.store(true, std::memory_order_relaxed);
}

void Volume::note_inline_frames()
{
    commit_thread_.assert_here();
    note_frames();
    next_.incompat_features |= feature_bit("inline_frames");
}

bool Volume::may_have_frames() const
{
    return may_have_frames_.load(std::memory_order_relaxed);
}

bool Volume::may_have_inode_flags() const
{
    return (needed_features_ & feature_bit("inode_flags")) != 0;
}

bool Volume::may_have_moved_blocks() const
{
    return may_have_moved_blocks_.load(std::memory_order_relaxed);
}

void Volume::set_emptying(VolumeAddress address)
{
    commit_thread_.assert_here();
    const auto at = std::find_if(map_.groups.begin(), map_.groups.end(),
                                 [&](const GroupRecord& group) { return group.address == address; });
    CW_ASSERT(at != map_.groups.end());
    at->flags |= kGroupEmptying;
    next_.incompat_features |= feature_bit("remap");
    may_have_moved_blocks_.store(true, std::memory_order_relaxed);
    map_changed_ = true;
}

void Volume::drop_groups(std::span<const VolumeAddress> addresses)
{
    commit_thread_.assert_here();
    if (addresses.empty())
        return;
    const auto leaves = [&](VolumeAddress address) {
        return std::binary_search(addresses.begin(), addresses.end(), address);
    };
    array_->remove_groups(addresses);
    std::erase_if(closed_, leaves);
    std::erase_if(planned_, leaves);
    std::erase_if(reopened_, leaves);
    MutexLock lock(mutex_);
    const auto gone = std::stable_partition(map_.groups.begin(), map_.groups.end(),
                                            [&](const GroupRecord& group) { return !leaves(group.address); });
    dropped_.insert(dropped_.end(), std::make_move_iterator(gone),
                    std::make_move_iterator(map_.groups.end()));
    map_.groups.erase(gone, map_.groups.end());
    forget_potential();
    map_changed_ = true;
}

uint64_t Volume::dropped_blocks() const
{
    MutexLock lock(mutex_);
    uint64_t blocks = 0;
    for (const GroupRecord& group : dropped_)
        blocks += (group.content & kGroupData) != 0 ? geometry_of(group).data_blocks() : 0;
    return blocks;
}

// What metadata comes to need if all slots that are free hold data, in groups on `members`.
MetadataNeed Volume::metadata_need_when_full(SlotMembers members) const
{
    std::optional<MetadataNeed>& known = need_[static_cast<size_t>(members)];
    if (!known)
        known = metadata_need_of(shown_profile(kGroupData), shown_profile(kGroupMetadata), members);
    return *known;
}

MetadataNeed Volume::metadata_need_of(const Profile& data, const Profile& metadata, SlotMembers members) const
{
    uint64_t blocks = slots_.potential_blocks(data, identity_.chunk_bytes, {}, members);
    for (const GroupRecord& group : groups_there())
        blocks += (group.content & kGroupData) != 0 ? geometry_of(group).data_blocks() : 0;
    const auto columns = static_cast<double>(std::max<size_t>(data.min_members, voter_count(shown_)));
    const MetadataNeed need = metadata_need(blocks, columns / (columns - data.parity));
    return metadata.parity == 0 ? MetadataNeed{need.file_blocks + need.system_blocks, 0} : need;
}

std::vector<SlotAllocator::Share> Volume::left_by(uint32_t content, SlotMembers members,
                                                  const GroupRecord* another) const
{
    if ((content & kGroupData) == 0)
        return {};
    return left_for_nodes(metadata_need_when_full(members), shown_profile(kGroupMetadata), another);
}

std::vector<SlotAllocator::Share> Volume::left_for_nodes(const MetadataNeed& need, const Profile& profile,
                                                         const GroupRecord* another,
                                                         const std::vector<VolumeAddress>& without) const
{
    const size_t voters = voter_count(shown_);
    const Profile& system_profile = system_profile_of(profile);
    MetadataNeed left = need;
    const auto lower = [](uint64_t& one, uint64_t blocks) {
        const uint64_t by = std::min(one, blocks);
        one -= by;
        return blocks - by;
    };
    // A group for nodes of all trees counts once.
    const auto count = [&](const GroupRecord& group) {
        uint64_t more = UINT64_MAX;
        if ((group.content & kGroupMetadata) != 0 || profile.parity == 0)
            more = lower(left.file_blocks, blocks_as(profile, group, voters));
        if ((group.content & kGroupSystem) != 0)
            lower(left.system_blocks, std::min(more, blocks_as(system_profile, group, voters)));
    };
    for (const GroupRecord& group : groups_there())
        if ((group.content & (kGroupMetadata | kGroupSystem)) != 0 &&
            !std::binary_search(without.begin(), without.end(), group.address))
            count(group);
    if (another != nullptr && (another->content & (kGroupMetadata | kGroupSystem)) != 0)
        count(*another);
    return {{&profile, left.file_blocks}, {&system_profile, left.system_blocks}};
}

bool Volume::keeps_slots_for(uint32_t content, const VolumeProfiles& profiles) const
{
    const Profile& metadata = *find_profile(profiles.metadata);
    MutexLock lock(mutex_);
    const bool current = profiles.data == shown_.data_profile && metadata.id == shown_.metadata_profile;
    const MetadataNeed need =
        current ? metadata_need_when_full(SlotMembers::kAll)
                : metadata_need_of(*find_profile(profiles.data), metadata, SlotMembers::kAll);
    const bool first = (content & kGroupMetadata) != 0 || metadata.parity == 0;
    return left_for_nodes(need, metadata, nullptr)[first ? 0 : 1].blocks > 0;
}

uint64_t Volume::known_potential(size_t content_index, SlotMembers members) const
{
    constexpr uint32_t kContents[] = {kGroupData, kGroupMetadata, kGroupSystem};
    std::optional<uint64_t>& known = potential_[content_index][static_cast<size_t>(members)];
    if (known)
        return *known;
    if (content_index == 0)
        known = slots_.potential_blocks(shown_profile(kGroupData), identity_.chunk_bytes,
                                        left_by(kGroupData, members), members);
    else
        known = slots_.potential_blocks(shown_profile(kContents[content_index]),
                                        chunk_bytes_for(kContents[content_index]), {}, members);
    return *known;
}

uint64_t Volume::potential_blocks(uint32_t content, SlotMembers members) const
{
    MutexLock lock(mutex_);
    note_present();
    const size_t index = content & kGroupData ? 0 : content & kGroupMetadata ? 1 : 2;
    const uint64_t blocks = known_potential(index, members);
    return index == 0 && members == SlotMembers::kPresentFirst
               ? std::min(blocks, known_potential(index, SlotMembers::kAll))
               : blocks;
}

uint64_t Volume::data_potential(const SlotAllocator& slots) const
{
    uint64_t blocks = UINT64_MAX;
    for (const SlotMembers members : {SlotMembers::kPresentFirst, SlotMembers::kAll})
        blocks = std::min(blocks, slots.potential_blocks(shown_profile(kGroupData), identity_.chunk_bytes,
                                                         left_by(kGroupData, members), members));
    return blocks;
}

uint64_t Volume::narrowing_blocks(std::vector<VolumeAddress> groups, bool with_dropped) const
{
    MutexLock lock(mutex_);
    note_present();
    std::optional<Narrowing>& known = narrowing_[with_dropped ? 1 : 0];
    if (known && known->groups == groups)
        return known->blocks;
    SlotAllocator slots = slots_;
    uint64_t blocks = 0;
    const auto give_back = [&](const GroupRecord& group) {
        slots.give_back(group);
        blocks += geometry_of(group).data_blocks();
    };
    for (const GroupRecord& group : groups_there())
        if (std::binary_search(groups.begin(), groups.end(), group.address))
            give_back(group);
    for (const GroupRecord& group : dropped_)
        if (with_dropped && (group.content & kGroupData) != 0)
            give_back(group);
    if (blocks > 0) {
        const uint64_t before = data_potential(slots_);
        const uint64_t after = data_potential(slots);
        blocks -= std::min(blocks, after - std::min(after, before));
    }
    known = {std::move(groups), blocks};
    return blocks;
}

std::optional<uint64_t> Volume::potential_after(uint32_t content, SlotMembers members) const
{
    MutexLock lock(mutex_);
    note_present();
    SlotAllocator slots = slots_;
    Result<GroupRecord> group = slots.plan_group(shown_profile(content), chunk_bytes_for(content), members,
                                                 left_by(content, members));
    if (!group.ok())
        return std::nullopt;
    group->content = content;
    const uint64_t blocks =
        slots.potential_blocks(shown_profile(kGroupData), identity_.chunk_bytes,
                               left_by(kGroupData, SlotMembers::kAll, &*group), SlotMembers::kAll);
    return (content & kGroupData) != 0 ? blocks + geometry_of(*group).data_blocks() : blocks;
}

uint64_t Volume::metadata_kept_blocks(uint32_t content) const
{
    MutexLock lock(mutex_);
    const MetadataNeed need = metadata_need_when_full(SlotMembers::kAll);
    return content == kGroupSystem ? need.system_blocks : need.file_blocks;
}

}  // namespace cowraid
