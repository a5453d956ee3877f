// SPDX-License-Identifier: MIT
// The volume below the trees: members, superblock, block-group map, array, and where new groups go.
// Changed by mount and by the commit thread only, except where noted.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "alloc/allocator.h"
#include "alloc/slot_allocator.h"
#include "base/mutex.h"
#include "base/status.h"
#include "device/assembly.h"
#include "device/member_set.h"
#include "format/profile.h"
#include "fs/mount_options.h"
#include "fs/space_budget.h"
#include "journal/intent_log.h"
#include "raid56/array.h"

namespace cowraid {

class Volume {
public:
    // Takes over the assembled members, reads the map, installs every group in the array. Writes nothing.
    static Result<std::unique_ptr<Volume>> open(Assembly assembly, const MountOptions& options,
                                                std::string& why);
    // For mkfs: a volume without groups or trees, generation 0.
    static std::unique_ptr<Volume> create(std::vector<std::unique_ptr<BlockDevice>> devices,
                                          Superblock superblock);

    [[nodiscard]] MemberSet& members() { return members_; }
    [[nodiscard]] Array& array() { return *array_; }
    [[nodiscard]] const Superblock& superblock() const { return superblock_; }
    [[nodiscard]] const GroupMap& map() const { return map_; }
    [[nodiscard]] const Profile& data_profile() const { return *find_profile(superblock_.data_profile); }
    [[nodiscard]] const Profile& metadata_profile() const
    {
        return *find_profile(superblock_.metadata_profile);
    }
    // Profile of the groups that hold checksum, free-space and root trees: the metadata profile when that
    // is mirrored or single, else the mirror with the same tolerance.
    [[nodiscard]] const Profile& system_profile() const;
    // Whether metadata and system trees share groups.
    [[nodiscard]] bool system_is_metadata() const;
    [[nodiscard]] const Profile& profile_for(uint32_t content) const;

    // Members not in service: absent, stale or failed.
    [[nodiscard]] std::vector<MemberId> missing_members() const;
    [[nodiscard]] bool degraded() const { return !missing_members().empty(); }
    // A member failed since the last superblock was written.
    [[nodiscard]] bool member_failed_since_commit() const;
    // Members that must take a superblock for a commit to count: a majority of the member table.
    [[nodiscard]] size_t quorum() const;

    // Plans a new group and adds it to the map of the next commit and to the array. The allocator learns
    // of it as kPlanned. kNoSpace when no slots are left.
    Status plan_group(uint32_t content, Allocator& allocator);
    // Whether the superblock says so: a remap tree may be there.
    [[nodiscard]] bool may_have_moved_blocks() const;
    // The group's blocks are about to move: says so in the map of the next commit.
    void set_emptying(VolumeAddress address);
    // Gives the slots of an empty group back, from the next commit on.
    Status drop_group(VolumeAddress address, Allocator& allocator);
    [[nodiscard]] bool map_changed() const { return map_changed_; }
    // Blocks that unallocated slots could still hold as `content`; as data, beside what is kept for metadata.
    [[nodiscard]] uint64_t potential_blocks(uint32_t content) const;
    // What groups of metadata or system content should come to, those there are included (fs/space_budget.h,
    // metadata_need).
    [[nodiscard]] uint64_t metadata_kept_blocks(uint32_t content) const;

    // Durability, in this order (design 5.4). `generation` is the one being committed.
    // Writes the map into its alternate place if it changed. kPrepare only makes it known to the superblock
    // (a wrong protocol, for the crash tests).
    enum class MapWrite : uint8_t { kNow, kPrepare };
    Status write_map(MapWrite how, Generation generation);
    Status flush();
    // Records the commit: roots, map, member states and counters. Does not flush.
    Status write_superblock(Generation generation, const BlockRef& root);
    // The superblock written last is durable: planned groups are open.
    void commit_done(Allocator& allocator);

    // begin_writing() would drop the epoch of the last commit, by which entries of the logs are known: 63
    // degraded mounts in a row ended before their first commit.
    [[nodiscard]] bool would_forget_logs() const;
    // First writes of a mount: erases torn superblock slots, rewrites the commit that was found on all
    // present members; then, when degraded, marks missing members and stamps a random epoch. Flushed.
    Status begin_writing();
    // After open(): brings the rows that the write-intent logs name to a state that has every committed
    // block. `sink` learns the checksums of all their blocks, which must be in the next commit. When the
    // volume is to be written, after begin_writing(): flushed, and writes in place are started. A read-only
    // volume is not changed.
    Status recover_rows(const MountOptions& options, ChecksumSink& sink, RecoveryCounts& counts);
    // Whether the superblocks say that the write-intent log may hold live entries: before that is durable no
    // row may be written in place. What is set here is in the next superblock.
    [[nodiscard]] bool intent_log_live() const { return (superblock_.live_logs & kLiveIntentLog) != 0; }
    void set_intent_log_live(bool live) { set_live(kLiveIntentLog, live); }
    // The same for the fsync log.
    [[nodiscard]] bool fsync_log_live() const { return (superblock_.live_logs & kLiveFsyncLog) != 0; }
    void set_fsync_log_live(bool live) { set_live(kLiveFsyncLog, live); }
    // For the next superblock: that of a commit with new trees.
    void set_tree_commits(uint64_t count) { superblock_.tree_commits = count; }
    // The volume may be read but must not be written: too few members (half of them or fewer, or below a
    // minimum), or something in it that this version cannot write.
    [[nodiscard]] bool read_only_advised() const { return read_only_reason_ != nullptr; }
    // Why, for the user; null when it may be written.
    [[nodiscard]] const char* read_only_reason() const { return read_only_reason_; }
    // Present but behind: they count as missing until they are caught up.
    [[nodiscard]] const std::vector<MemberId>& stale_members() const { return stale_; }
    void set_label(const std::string& label) { superblock_.label = label; }

private:
    Volume() = default;
    void set_live(uint32_t log, bool live)
    {
        superblock_.live_logs = live ? superblock_.live_logs | log : superblock_.live_logs & ~log;
    }
    void note_member_states(Generation generation);
    Status install_groups(std::string& why);
    // The map can take one more group: its bytes, and an address for it.
    [[nodiscard]] bool map_has_room(const GroupRecord& group) const;
    [[nodiscard]] MetadataNeed metadata_need_when_full() const CW_REQUIRES(mutex_);
    [[nodiscard]] uint64_t potential_data_blocks() const CW_REQUIRES(mutex_);
    void forget_potential() CW_REQUIRES(mutex_)
    {
        potential_known_ = {};
        need_known_ = false;
    }

    MemberSet members_;
    std::unique_ptr<IntentLog> intent_log_;  // null until writes in place are started
    std::unique_ptr<Array> array_;
    Superblock superblock_;
    GroupMap map_;
    SlotAllocator slots_;
    bool map_changed_ = false;
    std::vector<VolumeAddress> planned_;  // groups of the map not yet published
    std::vector<GroupRecord> dropped_;  // slots return when the map without them is durable
    bool map_written_ = false;  // superblock_.map names a place that must not be overwritten
    MapRef pending_map_;  // of the map written but not yet named by a superblock
    const char* read_only_reason_ = nullptr;  // static text
    bool map_in_place_ = false;  // a wrong protocol, for the crash tests
    std::vector<MemberId> stale_;
    std::vector<DamagedSlots> damaged_slots_;  // found by open(), for begin_writing()
    std::vector<MemberId> damaged_rings_;  // not by a crash: to be counted by begin_writing()
    // slots_, map_.groups, and what slots could still hold, read by statfs; indexed data, metadata, system.
    mutable Mutex mutex_{LockRank::kSlots};
    mutable std::array<uint64_t, 3> potential_{};
    mutable std::array<bool, 3> potential_known_{};
    mutable MetadataNeed need_;
    mutable bool need_known_ = false;
};

}  // namespace cowraid
