// SPDX-License-Identifier: MIT
#include "fs/make_volume.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>

#include "alloc/slot_allocator.h"
#include "base/random.h"
#include "device/superblock_store.h"
#include "format/feature_table.h"
#include "format/items.h"
#include "format/superblock.h"
#include "fs/commit/committer.h"
#include "fs/commit/mount.h"
#include "fs/filesystem.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/operation.h"

namespace cowraid {

namespace {

// Volume addresses start here: 0 must stay invalid, and every group is aligned to its columns.
constexpr uint64_t kFirstGroupAddress = kMaxSlotBytes;

std::string mib_text(uint64_t bytes)
{
    return std::to_string(bytes / kMiB) + " MiB";
}

Status check_options(const MakeOptions& options, size_t member_count, std::string& why)
{
    const Profile* data = find_profile(options.data_profile);
    const Profile* metadata = find_profile(options.metadata_profile);
    for (const Profile* profile : {data, metadata}) {
        if (profile == nullptr) {
            why = "there is no such profile";
            return Err::kUnsupported;
        }
        if (member_count < profile->min_members) {
            why = std::string(profile->name) + " needs at least " + std::to_string(profile->min_members) +
                  " devices, " + std::to_string(member_count) + " given";
            return Err::kInvalid;
        }
    }
    if (!is_power_of_two(options.chunk_bytes) || options.chunk_bytes < kMinChunkBytes ||
        options.chunk_bytes > kMaxChunkBytes) {
        why = "the chunk size must be a power of two from 4 KiB to 1 MiB";
        return Err::kInvalid;
    }
    if (!label_is_valid(options.label)) {
        why = "the label must be UTF-8, shorter than " + std::to_string(kLabelBytes) +
              " bytes, without control characters";
        return Err::kInvalid;
    }
    if (member_count > kMaxMembers) {
        why = "a volume has at most " + std::to_string(kMaxMembers) + " members";
        return Err::kInvalid;
    }
    return {};
}

Superblock identity_of(const MakeOptions& options)
{
    Superblock superblock;
    superblock.volume_uuid = options.volume_uuid == Uuid{} ? uuid_random() : options.volume_uuid;
    superblock.label = options.label;
    superblock.chunk_bytes = options.chunk_bytes;
    superblock.data_profile = options.data_profile;
    superblock.metadata_profile = options.metadata_profile;
    superblock.next_group_address = kFirstGroupAddress;
    superblock.created_seconds =
        options.created_seconds != 0 ? options.created_seconds : static_cast<uint64_t>(time(nullptr));
    superblock.name_hash_seed = random_u64();
    superblock.epochs = {{random_u64(), {1}}};
    superblock.log_epoch = superblock.epochs.front().epoch;
    return superblock;
}

Status add_members(const MakeOptions& options, const std::vector<MakeDevice>& devices, Superblock& superblock,
                   std::string& why)
{
    for (const MakeDevice& device : devices) {
        Result<MemberRecord> record = plan_member_layout(device.size_bytes);
        if (!record.ok()) {
            why = device.name + " has " + mib_text(device.size_bytes) + "; members have " +
                  mib_text(kMinMemberBytes) + " to " + mib_text(kMaxMemberBytes);
            return record.err();
        }
        record->id = {superblock.next_member_id++};
        record->uuid = uuid_random();
        record->state = MemberState::kPresent;
        if (options.intent_log_bytes != 0)
            record->intent_log_bytes = std::min(record->intent_log_bytes, options.intent_log_bytes);
        superblock.members.push_back(record.take());
    }
    return {};
}

Status check_spares(const std::vector<MakeDevice>& spares, const Superblock& superblock, std::string& why)
{
    uint64_t least = UINT64_MAX;
    for (const MemberRecord& member : superblock.members)
        least = std::min(least, member.size_bytes);
    for (const MakeDevice& spare : spares)
        CW_TRY(check_spare_size(spare.name, spare.size_bytes, least, why));
    if (spares.size() > kMaxMembers - superblock.members.size()) {
        why = "a volume has at most " + std::to_string(kMaxMembers) + " members and spares";
        return Err::kInvalid;
    }
    return {};
}

// The groups that every volume begins with: for metadata, for system trees where these have their own, for
// data.
Status check_first_groups(const Superblock& superblock, const std::vector<MakeDevice>& devices,
                          std::string& why)
{
    SlotAllocator slots;
    for (const MemberRecord& member : superblock.members)
        slots.add_member(member, true);
    const Profile& metadata = *find_profile(superblock.metadata_profile);
    std::vector<const Profile*> wanted = {&metadata};
    if (metadata.parity != 0)
        wanted.push_back(&Volume::system_profile_of(metadata));
    wanted.push_back(find_profile(superblock.data_profile));
    for (const Profile* const profile : wanted) {
        if (slots.plan_group(*profile, superblock.chunk_bytes).ok())
            continue;
        const auto [small, large] =
            std::minmax_element(devices.begin(), devices.end(),
                                [](const auto& a, const auto& b) { return a.size_bytes < b.size_bytes; });
        why = "the devices are too small for these profiles";
        if (small->size_bytes < large->size_bytes)
            why += ", " + small->name + " (" + mib_text(small->size_bytes) + ") beside " + large->name +
                   " (" + mib_text(large->size_bytes) + ") above all";
        why += "; use larger devices or fewer copies";
        return Err::kNoSpace;
    }
    return {};
}

Result<Superblock> plan_superblock(const MakeOptions& options, const std::vector<MakeDevice>& devices,
                                   const std::vector<MakeDevice>& spares, std::string& why)
{
    CW_TRY(check_options(options, devices.size(), why));
    Superblock superblock = identity_of(options);
    CW_TRY(add_members(options, devices, superblock, why));
    CW_TRY(check_spares(spares, superblock, why));
    CW_TRY(check_first_groups(superblock, devices, why));
    return superblock;
}

std::vector<MakeDevice> sizes_of(const std::vector<std::unique_ptr<BlockDevice>>& devices)
{
    std::vector<MakeDevice> sizes;
    for (const std::unique_ptr<BlockDevice>& device : devices)
        sizes.push_back({std::string(device->name()), device->size_bytes()});
    return sizes;
}

Status make_root_directory(Filesystem& filesystem, const MakeOptions& options)
{
    InodeAttributes attributes;
    attributes.uid = options.root_uid;
    attributes.gid = options.root_gid;
    attributes.mode = S_IFDIR | 0755;
    attributes.link_count = 2;
    attributes.parent = kRootInode;
    attributes.generation = 1;
    if (options.compress) {
        attributes.flags = kInodeCompress;
        filesystem.volume->need_features(feature_bit("inode_flags"));
    }
    attributes.accessed = attributes.modified = attributes.changed = attributes.created = current_time();
    const Ref<Transaction> open = filesystem.store.timeline.open();
    open->dirty = true;
    open->items.put(inode_key({kRootInode}), encode_inode(attributes));
    filesystem.names.inode_count = 1;
    filesystem.names.next_inode = kRootInode + 1;
    return filesystem.committer.commit();
}

// With the next commit.
Status add_spares(Volume& volume, const std::vector<std::unique_ptr<BlockDevice>>& spares)
{
    for (const std::unique_ptr<BlockDevice>& spare : spares) {
        Superblock own;
        CW_ASSERT(volume.plan_spare(spare->size_bytes(), own));
        CW_TRY(erase_rings(*spare));
        CW_TRY(write_spare(*spare, own, own.spares.back().id));
        volume.add_spare(own);
    }
    return {};
}

}  // namespace

ProfileId default_metadata_profile(ProfileId data_profile, size_t member_count)
{
    const size_t copies = std::max<size_t>(find_profile(data_profile)->tolerance + 1, 2);
    return mirror_of(std::min(copies, member_count)).id;
}

Status check_make(const MakeOptions& options, const std::vector<MakeDevice>& devices,
                  const std::vector<MakeDevice>& spares, std::string& why)
{
    return plan_superblock(options, devices, spares, why).status();
}

Result<MakeResult> make_volume(std::vector<std::unique_ptr<BlockDevice>>& devices, const MakeOptions& options,
                               std::string& why, std::vector<std::unique_ptr<BlockDevice>> spares)
{
    CW_ASSIGN(Superblock superblock, plan_superblock(options, sizes_of(devices), sizes_of(spares), why));
    for (const std::unique_ptr<BlockDevice>& device : devices)
        if (const Status erased = erase_rings(*device); !erased.ok()) {
            why = std::string(device->name()) + " cannot be written";
            return erased;
        }
    MakeResult result;
    result.volume_uuid = superblock.volume_uuid;
    for (const MemberRecord& member : superblock.members)
        result.raw_bytes += member.size_bytes;

    MountOptions mount;
    mount.manual_commit = true;
    RootContent empty;
    empty.committed = Ref<const Committed>(make_ref<Committed>().get());
    Filesystem filesystem(mount, Volume::create(std::move(devices), std::move(superblock)), empty);
    Volume& volume = *filesystem.volume;
    Store& store = filesystem.store;
    devices.clear();
    Status status = volume.plan_group(kGroupMetadata, SlotMembers::kPresent, Slots::kAny, store.allocator);
    if (status.ok() && !volume.system_is_metadata())
        status = volume.plan_group(kGroupSystem, SlotMembers::kPresent, Slots::kAny, store.allocator);
    if (status.ok())
        status = volume.plan_group(kGroupData, SlotMembers::kPresent, Slots::kAny, store.allocator);
    if (status.ok())
        status = make_root_directory(filesystem, options);
    if (status.ok())
        status = add_spares(volume, spares);
    if (status.ok())
        status = filesystem.committer.commit_clean();
    if (!status.ok()) {
        if (why.empty())
            why = std::string("writing the new filesystem failed: ") + err_text(status.err());
        return status;
    }
    refresh_budget(store);
    result.available_bytes = store.ledger.data_available() * kBlockBytes;
    return result;
}

}  // namespace cowraid
