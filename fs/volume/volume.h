// SPDX-License-Identifier: MIT
// The volume below the trees: members, superblock, block-group map, array, and where new groups go.
// Changed by the commit thread only, which every function asserts that is not for any thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "alloc/allocator.h"
#include "alloc/slot_allocator.h"
#include "base/mutex.h"
#include "base/set_once.h"
#include "base/status.h"
#include "base/thread_role.h"
#include "device/assembly.h"
#include "device/member_set.h"
#include "format/profile.h"
#include "fs/volume/missing_members.h"
#include "fs/volume/mount_options.h"
#include "fs/volume/node_bound.h"
#include "fs/volume/spares.h"
#include "journal/intent_log.h"
#include "journal/intent_scan.h"
#include "raid56/array.h"

namespace cowraid {

// Which slots a new group may take.
enum class Slots : uint8_t {
    kBesideKept,  // data: not those that metadata will need; metadata: not those that are reserved for data
    kAny,
};

// What no commit changes.
struct VolumeIdentity {
    Uuid uuid;
    std::string label;
    uint32_t chunk_bytes = 0;
    uint64_t name_hash_seed = 0;
};

// What new groups are made as.
struct VolumeProfiles {
    ProfileId data, metadata;
};

// All that the last commit had in the group was as it must be, when a scrub read it.
struct VerifiedGroup {
    VolumeAddress address;
    uint64_t seconds = 0;  // since 1970: when reading it began
};

// A column that the map calls stale.
struct StaleColumn {
    VolumeAddress group;
    MemberId member;
    Generation since;
    uint64_t arrivals = 0;  // of the member, then (MemberSet); of a target, and of its source
};

class Volume {
public:
    // Takes over the assembled members, reads the map, installs every group in the array. Writes nothing.
    static Result<std::unique_ptr<Volume>> open(Assembly assembly, const MountOptions& options,
                                                std::string& why);
    // What open() took over, to be assembled again. This volume may only be destroyed, before the devices.
    [[nodiscard]] std::vector<std::unique_ptr<BlockDevice>> give_devices();
    // For mkfs: a volume without groups or trees, generation 0.
    static std::unique_ptr<Volume> create(std::vector<std::unique_ptr<BlockDevice>> devices,
                                          Superblock superblock);

    // Begins with the thread of that name. Before, and after it has ended, whoever mounts, remounts, unmounts
    // or checks is alone.
    [[nodiscard]] ThreadRole& commit_thread() { return commit_thread_; }

    // For any thread.

    [[nodiscard]] MemberSet& members() { return members_; }
    [[nodiscard]] Array& array() { return *array_; }
    [[nodiscard]] Spares& spares() { return spares_; }
    [[nodiscard]] const VolumeIdentity& identity() const { return identity_; }
    // Of the superblock written last, as what follows.
    [[nodiscard]] Generation generation() const { return {generation_.load()}; }
    // It changes while no log is live: nobody writes records then, before the commit that changes it is
    // durable.
    [[nodiscard]] uint64_t log_epoch() const { return log_epoch_.load(); }
    [[nodiscard]] VolumeProfiles profiles() const;
    [[nodiscard]] std::vector<MemberRecord> member_table() const;
    // Lines of devices in reserve. Their devices: spares().
    [[nodiscard]] std::vector<MemberRecord> spare_table() const;
    // A member in service is being replaced: what is written to the source is written to the target, too,
    // from the superblock on that begins it.
    [[nodiscard]] ReplaceRecord replacing() const;
    // Its source is out of service because it failed, not because it is not there.
    [[nodiscard]] bool source_failed() const;
    // Half of the members suffices for writing.
    [[nodiscard]] bool writes_with_half() const { return half_.load(); }
    // So many members more than writing needs are in service.
    [[nodiscard]] size_t spare_voters() const;
    // Members not in service: absent or failed.
    [[nodiscard]] std::vector<MemberId> missing_members() const;
    // One is missing that has a share in the volume: any but the target of a replacement.
    [[nodiscard]] bool degraded() const;
    // What to do about a volume that has stopped writing.
    [[nodiscard]] std::string step_after_stop() const;
    // Whether enough others are in service to remove that one.
    [[nodiscard]] bool may_remove_member(MemberId id) const;
    // Whether the superblock says so: a remap tree may be there.
    [[nodiscard]] bool may_have_moved_blocks() const;
    // Files may have compressed extents from the next commit on. Commit thread.
    void note_frames();
    [[nodiscard]] bool may_have_frames() const;
    // And such that are kept in their items.
    void note_inline_frames();
    [[nodiscard]] bool may_have_inode_flags() const;
    // Whether the last superblock has the feature `rights`; the next one has it after keep_rights().
    [[nodiscard]] bool keeps_rights() const { return keeps_rights_.load(std::memory_order_relaxed); }
    void keep_rights() { wants_rights_.store(true, std::memory_order_relaxed); }
    // Of dropped data groups whose slots return with the next commit.
    [[nodiscard]] uint64_t dropped_blocks() const;
    // The superblock of the next commit has these incompatible features, too. True: the last one has them, or
    // another has asked.
    bool need_features(uint64_t features)
    {
        return (needed_features_.fetch_or(features) & features) == features;
    }
    // Blocks that unallocated slots could still hold as `content`; as data, beside what is kept for metadata.
    // kPresentFirst, as data: at most what kAll says. A failure changes nothing of that.
    [[nodiscard]] uint64_t potential_blocks(uint32_t content,
                                            SlotMembers members = SlotMembers::kPresentFirst) const;
    // The blocks of data that unallocated slots of all members and a new group of data could still hold once
    // plan_group() has made that group, whatever it is for. Nothing: it would not.
    [[nodiscard]] std::optional<uint64_t> potential_after(uint32_t content, SlotMembers members) const;
    // The blocks of data that unallocated slots could still hold with members of such sizes more.
    [[nodiscard]] uint64_t potential_with(std::span<const uint64_t> member_bytes) const;
    // By how many blocks the capacity falls when these groups of data give their slots back, and the dropped
    // ones if `with_dropped`: what is made of their slots may have fewer data columns. Addresses rise.
    [[nodiscard]] uint64_t narrowing_blocks(std::vector<VolumeAddress> groups, bool with_dropped) const;
    // What groups of metadata or system content should come to, those there are included
    // (fs/volume/node_bound.h, metadata_need).
    [[nodiscard]] uint64_t metadata_kept_blocks(uint32_t content) const;
    // Whether data leaves slots to groups of metadata or system content that are to come, new groups being
    // made as `profiles` say.
    [[nodiscard]] bool keeps_slots_for(uint32_t content, const VolumeProfiles& profiles) const;
    // Of new groups. A node fits into a chunk, so that it takes rows of one column.
    [[nodiscard]] uint32_t chunk_bytes_for(uint32_t content) const;
    // The next part of slots that came free since the last call, at most `bytes_max` long; nothing: that was
    // all. No map names it, neither a durable one nor the next, and nobody writes there until end_discard():
    // a group that is planned there meanwhile waits before it takes blocks. One thread at a time.
    [[nodiscard]] std::optional<MemberPart> begin_discard(uint64_t bytes_max);
    void end_discard();
    // begin_discard() may have another one, or has begun one.
    [[nodiscard]] bool has_free_parts() const;
    // Free slots count as having come free, those that lie side by side for so many bytes of a member.
    void discard_free_slots(uint64_t bytes_min);
    // Everything that these columns lacked was written to them, not flushed. Once a commit has flushed it the
    // next one calls them current, those that went out of service meanwhile excepted (I-32).
    void caught_up(std::vector<StaleColumn> columns);
    // A commit is due for it.
    [[nodiscard]] bool has_caught_up() const;
    // Null until rows may be written in place.
    [[nodiscard]] IntentLog* intent_log() { return intent_log_.get(); }
    // Rows that can be written in place between two commits of their checksums, at least.
    [[nodiscard]] uint64_t intent_log_rows() const
    {
        return intent_log_ ? intent_log_->row_count_min() : UINT64_MAX;
    }
    // The volume may be read but must not be written: too few members (half of them or fewer, or below a
    // minimum), or something in it that this version cannot write.
    [[nodiscard]] bool read_only_advised() const { return !read_only_.text.empty(); }
    // Why, for the user, and what to do about it; empty when it may be written. As long as the volume.
    [[nodiscard]] const ReadOnlyReason& read_only_reason() const { return read_only_; }
    // Which members were missing or behind when it was opened, why, and how many more may fail; empty when
    // none.
    [[nodiscard]] const std::string& degraded_reason() const { return degraded_reason_; }
    // Why a member was absent or behind then; empty when it was not.
    [[nodiscard]] MemberReason reason_of(MemberId id) const;

    // For the commit thread.

    // The one written last.
    [[nodiscard]] const Superblock& superblock() const
    {
        commit_thread_.assert_here();
        return committed_;
    }
    [[nodiscard]] const GroupMap& map() const
    {
        commit_thread_.assert_here();
        return map_;
    }
    // Change with a commit that begins a balance.
    [[nodiscard]] const Profile& data_profile() const { return profile_for(kGroupData); }
    [[nodiscard]] const Profile& metadata_profile() const { return profile_for(kGroupMetadata); }
    // The most members that what is written may lose.
    [[nodiscard]] uint32_t tolerance() const
    {
        return std::max(data_profile().tolerance, metadata_profile().tolerance);
    }
    // Profile of the groups that hold checksum, free-space and root trees: the metadata profile when that
    // is mirrored or single, else the mirror with the same tolerance.
    [[nodiscard]] static const Profile& system_profile_of(const Profile& metadata);
    [[nodiscard]] const Profile& system_profile() const { return profile_for(kGroupSystem); }
    // Whether metadata and system trees share groups.
    [[nodiscard]] bool system_is_metadata() const;
    [[nodiscard]] const Profile& profile_for(uint32_t content) const;

    // The next superblock says that this balance is under way and that new groups are made so.
    void set_balance(const BalanceRecord& balance, const VolumeProfiles& profiles);
    // Those that a balance with kBalanceChosen empties; for good with set_balance(), which its begin is.
    void choose_groups(std::set<VolumeAddress> groups)
    {
        commit_thread_.assert_here();
        chosen_ = std::move(groups);
    }
    // The next superblock ends the one that is under way.
    [[nodiscard]] bool balance_ends() const
    {
        commit_thread_.assert_here();
        return next_.balance.state == BalanceState::kNone;
    }
    // Whether `balance` empties groups like that one, however full they are; new groups being made as
    // `profiles` say.
    [[nodiscard]] bool selects(const BalanceRecord& balance, const VolumeProfiles& profiles,
                               const GroupRecord& group) const;
    // Blocks of data that could still be held by slots that no group has.
    [[nodiscard]] uint64_t potential_in_balance(const BalanceRecord& balance,
                                                const VolumeProfiles& profiles) const;
    // And by those of groups that the balance empties, beside groups for as many nodes as `nodes`, or as many
    // as they come to be.
    [[nodiscard]] uint64_t potential_after_balance(const BalanceRecord& balance,
                                                   const VolumeProfiles& profiles,
                                                   const MetadataNeed& nodes) const;

    // A data group that the balance empties, in blocks: what is in it, what must be free for its last stripes
    // beside that, and its own free rows, which others cannot use any more.
    struct DataMove {
        Ref<const ArrayGroup> group;
        uint64_t blocks = 0, margin = 0, own_rows = 0;
    };
    // `rows`: free, in groups that stay; `reserved`: by writers; `slack`: what is not offered to anybody who
    // reserves; `nodes`: as in potential_after_balance().
    struct DataMoves {
        std::vector<DataMove> moves;
        uint64_t rows = 0, reserved = 0, slack = 0;
        MetadataNeed nodes;
    };
    // Whether there is room for each of the moves, the emptiest group being emptied first and its slots
    // coming free with it; whether nodes are moved before or after.
    [[nodiscard]] bool has_room_for(const BalanceRecord& balance, const VolumeProfiles& profiles,
                                    const DataMoves& moves) const;

    // What the slots are asked for, of which groups of nodes are made.
    struct NodeDemand {
        uint64_t data_blocks;  // that they must hold beside nodes
        uint64_t system_blocks;  // of other trees than those of files, where these have groups of their own
        bool files;  // or of these alone
        std::vector<VolumeAddress> leaving;  // groups whose slots are free by then, by rising addresses
    };
    // The same of nodes of file trees, beside `demand`, of which groups are made first. Not `files`: of nodes
    // of the other trees. 0 when there is no room for `demand`.
    [[nodiscard]] uint64_t node_potential_in_balance(const BalanceRecord& balance,
                                                     const VolumeProfiles& profiles, bool emptied,
                                                     const NodeDemand& demand) const;

    // What the next superblock says of the last scrub, and the next map of groups that it found as they must
    // be. Address 0 stands for all groups with mirrored nodes.
    void note_scrub(const ScrubRecord& scrub, std::span<const VerifiedGroup> groups);
    // The next commit writes the map anew, to its other place.
    void renew_map()
    {
        commit_thread_.assert_here();
        map_changed_ = true;
    }

    // Of errors of members, since the last superblock was written.
    [[nodiscard]] bool counters_changed() const;
    // A member failed since the last superblock was written.
    [[nodiscard]] bool member_failed_since_commit() const;

    // Plans a new group and adds it to the map of the next commit and to the array. The allocator learns
    // of it as kPlanned. kNoSpace when no slots are left.
    Status plan_group(uint32_t content, SlotMembers members, Slots slots, Allocator& allocator);
    // Data columns that the next group of the same content has, on members that are present: just now, and if
    // this one were not there. 0: none can be.
    struct PlannedWidths {
        uint32_t now, without;
    };
    [[nodiscard]] PlannedWidths planned_widths(VolumeAddress address) const;
    // A group with columns on members that are away takes new blocks again, once a durable map calls those
    // columns stale: at once if it does, else with the next map (I-32).
    void reopen_group(VolumeAddress address, Allocator& allocator);
    // The group's blocks are about to move: says so in the map of the next commit.
    void set_emptying(VolumeAddress address);
    // Gives the slots of groups that the allocator has forgotten back, from the next commit on. Their
    // addresses rise.
    void drop_groups(std::span<const VolumeAddress> addresses);
    [[nodiscard]] bool map_changed() const
    {
        commit_thread_.assert_here();
        return map_changed_;
    }
    // What was written so far and the map, then a superblock that names `root`, durable (design 5.4). A
    // member that fails on the way is recorded before any superblock calls it failed: its columns as stale in
    // the map, then itself, in a further round and generation if need be. `covered`: the log entries whose
    // writes are on members now. kPrepare writes the map last (a wrong protocol, for the crash tests).
    enum class MapWrite : uint8_t { kNow, kPrepare };
    Status make_durable(MapWrite how, Generation generation, const BlockRef& root, uint64_t& covered);
    // Another device for a member that is not in service, in two steps, each followed by a commit. The first
    // makes the old device nobody's: in no crash do both count. With the second the new one is in service and
    // lacks everything. No record of the fsync log goes to it before set_leaving(id, false). `blank` gets the
    // groups that this changes nothing about: the old device had no column of them, or a blank one.
    Uuid disown_member(MemberId id, std::set<VolumeAddress>& blank);
    void replace_member(MemberId id, std::unique_ptr<BlockDevice> device);
    // A member that is not in service is there again, on `device` or (null) on the one that it had, whose
    // logs hold nothing. With the next superblock it is in service; its columns lack what the map says and,
    // unless that is 0, what was written from `lacks_from` on. set_leaving() as for replace_member().
    void return_member(MemberId id, std::unique_ptr<BlockDevice> device, Generation lacks_from);
    // With the next superblock `device`, whose logs hold nothing, is the target, another member of the layout
    // of `source`. As for add_member(). `spare`, unless 0, had the device, and is none any more; if the
    // device fails with that superblock it has its line still.
    MemberId begin_replace(MemberId source, std::unique_ptr<BlockDevice> device, uint64_t seconds,
                           MemberId spare);
    // With the next superblock the target is no member any more. False: nothing is written any more.
    [[nodiscard]] bool end_replace();
    // With the next superblock the target takes the place of the source: its line in the member table, and
    // its columns, which lack what the source's lack. No data is written meanwhile, and no record of the
    // fsync log goes to the source before MemberSet::set_leaving(source, false). False: the target is not in
    // service, or not all is copied; with kStale columns of groups that are not lack everything.
    enum class NotCopied : uint8_t { kRefused, kStale };
    [[nodiscard]] bool take_over(NotCopied groups);
    // One member more or less, with the next superblock, which must be on a majority of the members before
    // and of those after. The table of the last one must be that of the next. False: there is no room for
    // another, beside `others` that are to come before it.
    [[nodiscard]] bool may_add_member(const MemberRecord& record, uint32_t others = 0) const;
    // What is added has no superblock. If it fails, or too few are in service, the superblock that comes has
    // no such member.
    MemberId add_member(MemberRecord record, std::unique_ptr<BlockDevice> device);
    // One more with the next superblock. What the device must have before: that superblock, with a line of it
    // at the end. False: there is no room for one.
    [[nodiscard]] bool plan_spare(uint64_t size_bytes, Superblock& own) const;
    void add_spare(const Superblock& own);
    // disown_member() is taken back: `uuid` is what it changed. Its columns are as if they lacked everything,
    // but not blank where they were not.
    void own_again(MemberId id, const Uuid& uuid, const std::set<VolumeAddress>& blank);
    // The next superblock has no such spare.
    void drop_spare(MemberId id);
    // It has one still.
    void keep_spare(const MemberRecord& line);
    // drop_spare() of one whose device replace_member() has given to that member. It is a spare still when
    // the device fails before it has its first superblock as that member.
    void use_spare(MemberId spare, MemberId member);
    // What is removed has no column of any group. False: too few others are in service.
    [[nodiscard]] bool remove_member(MemberId id);
    // The member's device has grown to that: more slots with the next superblock. False: it has not, or more
    // is of no use.
    [[nodiscard]] bool grow_member(MemberId id, uint64_t size_bytes);
    // The member uses no more of its device than that, with the next superblock: no group has a column
    // beyond. False: as for may_shrink().
    [[nodiscard]] bool shrink_member(MemberId id, uint64_t size_bytes);
    // Whether there may be such a member: no block group has columns too large for the members then.
    [[nodiscard]] bool may_shrink(const MemberRecord& shrunk) const;
    // The superblock written last is durable: planned and reopened groups are open.
    void commit_done(Allocator& allocator);

    // First writes of a mount: erases torn superblock slots, rewrites the commit that was found on all
    // present members, bit for bit; then records which members are away and what others are stale, and stamps
    // a random epoch when degraded. Flushed.
    Status begin_writing();
    // Nothing is written from now on, nor does a superblock say what failed. Until begin_writing(), before
    // which the array takes writes again.
    void end_writing();
    // After open(): brings the rows that the write-intent logs name to a state that has every committed
    // block. `sink` learns the checksums of all their blocks, which must be in the next commit. When the
    // array is written to, after begin_writing(): flushed, and writes in place are started. What a read-only
    // array is made of is not changed; it is recovered again when it becomes writable.
    Status recover_rows(const MountOptions& options, ChecksumSink& sink, RecoveryCounts& counts);
    // Whether the superblocks say that the write-intent log may hold live entries: before that is durable no
    // row may be written in place. What is set here is in the next superblock.
    [[nodiscard]] bool intent_log_live() const { return (superblock().live_logs & kLiveIntentLog) != 0; }
    void set_intent_log_live(bool live) { set_live(kLiveIntentLog, live); }
    // The same for the fsync log.
    [[nodiscard]] bool fsync_log_live() const { return (superblock().live_logs & kLiveFsyncLog) != 0; }
    void set_fsync_log_live(bool live) { set_live(kLiveFsyncLog, live); }
    // For the next superblock: that of a commit with new trees.
    void set_tree_commits(uint64_t count);
    // That superblock begins a log epoch: with its trees nothing in the logs counts any more.
    void renew_log_epoch()
    {
        commit_thread_.assert_here();
        renew_log_epoch_ = true;
    }
    [[nodiscard]] bool any_log_live() const { return superblock().live_logs != 0; }
    // Whether the superblocks written from now on say that a mount ended with them.
    void set_unmounting(bool unmounting)
    {
        commit_thread_.assert_here();
        next_.unmounted = unmounting;
    }

private:
    Volume() = default;
    Status load(Assembly assembly, const MountOptions& options, std::string& why);
    void make_empty(std::vector<std::unique_ptr<BlockDevice>> devices, Superblock superblock);
    void begin_with(Superblock superblock) CW_REQUIRES(commit_thread_);
    void take_members(Assembly& assembly, const MountOptions& options) CW_REQUIRES(commit_thread_);
    void set_live(uint32_t log, bool live);  // asserts what its callers should
    void begin_log_epoch() CW_REQUIRES(commit_thread_);
    // Which columns lack what a device of an older state cannot have.
    void distrust(const AssembledMember& member) CW_REQUIRES(commit_thread_);
    // Whether, since this is one of the two, the target may lack what was copied to it.
    [[nodiscard]] bool copies_outdated(const AssembledMember& member) const CW_REQUIRES(commit_thread_);
    // Steps of make_durable().
    Status write_map(MapWrite how, Generation generation) CW_REQUIRES(commit_thread_);
    Status flush();
    Status flush_data(uint64_t& covered);
    Status write_superblock(Generation generation, const BlockRef& root) CW_REQUIRES(commit_thread_);
    void next_is_committed() CW_REQUIRES(commit_thread_);
    void balance_is_committed() CW_REQUIRES(commit_thread_);
    // Nothing new comes to lie on a member that leaves.
    void set_leaving(MemberId id, bool leaving);
    // Nor on what a member loses. A balance begins to count, or no more.
    void heed_balance(const BalanceRecord& balance, bool counts) CW_REQUIRES(commit_thread_);
    // The first slot of its member that the balance empties.
    [[nodiscard]] uint64_t first_emptied_slot(const BalanceRecord& balance) const CW_REQUIRES(commit_thread_);
    Status write_to_new_members() CW_REQUIRES(commit_thread_);
    Status write_to_successor() CW_REQUIRES(commit_thread_);
    // Its steps, once the target is to take over.
    Status hand_over() CW_REQUIRES(commit_thread_);
    Status go_on_taking_over() CW_REQUIRES(commit_thread_);
    void keep_source() CW_REQUIRES(commit_thread_);
    bool erase_source(BlockDevice* device);
    [[nodiscard]] Superblock with_successor() const CW_REQUIRES(commit_thread_);
    // The target lacks something that the source has: no group counts as copied, and it stands in for nobody.
    void forget_copied() CW_REQUIRES(commit_thread_);
    // That group does not, and nothing else. False: it did not before.
    bool forget_copied(GroupRecord& group) CW_REQUIRES(commit_thread_);
    // Whether a new group has on the target all that it has on the source, which is nothing yet.
    [[nodiscard]] bool born_copied(const GroupRecord& group) const CW_REQUIRES(commit_thread_);
    // What set_leaving() and the mirror say of the target; after open(), and with a superblock that begins.
    void prepare_target() CW_REQUIRES(commit_thread_);
    // Columns of groups that are whole again.
    void open_whole_groups() CW_REQUIRES(commit_thread_);
    void settle_members(const std::vector<MemberId>& before) CW_REQUIRES(commit_thread_);
    void give_dropped_back();
    [[nodiscard]] bool is_free_slot(MemberId member, uint64_t slot) const CW_REQUIRES(mutex_);
    // What is begun where slots were taken meanwhile ends.
    void await_discard();
    Status publish_map() CW_REQUIRES(commit_thread_);
    void note_member_states(Generation generation) CW_REQUIRES(commit_thread_);
    // Before a superblock calls a member failed, the map calls its columns stale wherever it may have missed
    // a write since open(). False: there was nothing to be recorded.
    bool record_away() CW_REQUIRES(commit_thread_);
    // Before rows are recovered: columns of those rows' groups whose members are absent, or that are stale,
    // are stale as a whole, and so in groups of which no other member may have had the log entries.
    void record_recovery(const IntentScan& scan) CW_REQUIRES(commit_thread_);
    // The map calls the member's column of the group stale, at least since `since`; or blank: its device has
    // nothing of the group but what is written from now on. False: it does, or there is no such column.
    bool mark_stale(GroupRecord& group, MemberId member, Generation since) CW_REQUIRES(commit_thread_);
    bool mark_blank(GroupRecord& group, MemberId member) CW_REQUIRES(commit_thread_);
    bool mark_lacking(GroupRecord& group, MemberId member, Generation since) CW_REQUIRES(commit_thread_);
    // The commit that may write to it first: the one after that which makes it.
    [[nodiscard]] Generation first_written(const GroupRecord& group) const CW_REQUIRES(commit_thread_);
    // The array learns what these and apply_caught_up() did.
    void publish_stale() CW_REQUIRES(commit_thread_);
    // Columns whose writes are flushed are stale no more.
    void apply_caught_up() CW_REQUIRES(commit_thread_);
    // Those that a flush which begins now covers.
    std::vector<StaleColumn> take_caught_up();
    Status install_groups(std::string& why) CW_REQUIRES(commit_thread_);
    MemberSet::Quorum quorum_of(const Superblock& table, const Superblock& majority_of) const
        CW_REQUIRES(commit_thread_);
    // The map can take one more group: its bytes, and an address for it.
    [[nodiscard]] bool map_has_room(const GroupRecord& group) const CW_REQUIRES(commit_thread_);
    [[nodiscard]] MetadataNeed metadata_need_when_full(SlotMembers members) const CW_REQUIRES(mutex_);
    [[nodiscard]] MetadataNeed metadata_need_of(const Profile& data, const Profile& metadata,
                                                SlotMembers members) const CW_REQUIRES(mutex_);
    // What groups for nodes are made of present members, at the least, and the balance does not empty.
    [[nodiscard]] std::vector<SlotAllocator::Share>
    left_for_nodes_after(const VolumeProfiles& profiles, const MetadataNeed& nodes,
                         const std::vector<VolumeAddress>& emptied) const CW_REQUIRES(mutex_);
    // Groups `nodes` are made first.
    [[nodiscard]] static bool fit_beside(const Profile& data, const DataMoves& all, const SlotAllocator& free,
                                         const std::vector<SlotAllocator::Share>& nodes);
    // As left_by(), for nodes of that profile. What groups of others give back counts, too; those `without`
    // do not count, by rising address.
    [[nodiscard]] std::vector<SlotAllocator::Share>
    left_for_nodes(const MetadataNeed& need, const Profile& profile, const GroupRecord* another,
                   const std::vector<VolumeAddress>& without = {}) const CW_REQUIRES(mutex_);
    // What groups of data leave: groups of metadata that are to come, beside those there are and `another`.
    // Other groups leave nothing.
    [[nodiscard]] std::vector<SlotAllocator::Share> left_by(uint32_t content, SlotMembers members,
                                                            const GroupRecord* another = nullptr) const
        CW_REQUIRES(mutex_);
    // Groups of that content that the balance empties, by rising address.
    [[nodiscard]] std::vector<VolumeAddress>
    emptied_groups(const BalanceRecord& balance, const VolumeProfiles& profiles, uint32_t content) const
        CW_REQUIRES(commit_thread_);
    // With those of `emptied` free.
    [[nodiscard]] SlotAllocator slots_in_balance(const BalanceRecord& balance,
                                                 const std::vector<VolumeAddress>& emptied) const
        CW_REQUIRES(commit_thread_, mutex_);
    [[nodiscard]] uint64_t known_potential(size_t content_index, SlotMembers members) const
        CW_REQUIRES(mutex_);
    // As potential_blocks() of data, of the slots that are free in `slots`.
    [[nodiscard]] uint64_t data_potential(const SlotAllocator& slots) const CW_REQUIRES(mutex_);
    // The slot allocator learns which members are in service: before anything is asked of it.
    void note_present() const CW_REQUIRES(mutex_);
    // Which groups there are, and where: they come and go with mutex_ held.
    [[nodiscard]] const std::vector<GroupRecord>& groups_there() const CW_REQUIRES(mutex_)
    {
        commit_thread_.assert_still();
        return map_.groups;
    }
    // As profile_for(), for who holds mutex_.
    [[nodiscard]] const Profile& shown_profile(uint32_t content) const CW_REQUIRES(mutex_);
    void forget_potential() const CW_REQUIRES(mutex_)
    {
        potential_ = {};
        narrowing_ = {};
        need_ = {};
    }

    // What narrowing_blocks() said last.
    struct Narrowing {
        std::vector<VolumeAddress> groups;
        uint64_t blocks;
    };

    // Constant once a mount has begun, or with locks of their own.
    MemberSet members_;
    Spares spares_;
    SetOnce<IntentLog> intent_log_;  // null until writes in place are started; the array uses it
    std::unique_ptr<Array> array_;
    VolumeIdentity identity_;
    ReadOnlyReason read_only_;  // constant since load()
    std::string degraded_reason_;
    std::vector<std::pair<MemberId, MemberReason>> reasons_;

    // MountOptions::half, until a majority is in service again.
    std::atomic<bool> half_{false};
    // What the incompatible features of next_ say.
    std::atomic<bool> may_have_moved_blocks_{false}, may_have_frames_{false};
    std::atomic<bool> keeps_rights_{false}, wants_rights_{false};  // what committed_ and next_ say, or will
    std::atomic<uint64_t> needed_features_{0};
    std::atomic<uint64_t> generation_{0}, log_epoch_{0};  // of committed_
    std::atomic<bool> has_caught_up_{false};  // caught_up_, or flushed

    ThreadRole commit_thread_;
    // Written last; found by open(), or what mkfs begins with.
    Superblock committed_ CW_GUARDED_BY(commit_thread_);
    // That of the next commit, as far as it is known.
    Superblock next_ CW_GUARDED_BY(commit_thread_);
    // Spares whose devices are those of members from the next superblock on, which they get before the
    // others.
    struct Arriving {
        MemberId member, spare;
    };
    std::vector<Arriving> arriving_ CW_GUARDED_BY(commit_thread_);
    // The spare whose device is the target from the next superblock on.
    MemberId becomes_target_ CW_GUARDED_BY(commit_thread_);
    bool renew_log_epoch_ CW_GUARDED_BY(commit_thread_) = false;
    // Groups come and go with mutex_ held, too: groups_there().
    GroupMap map_ CW_GUARDED_BY(commit_thread_);
    bool map_changed_ CW_GUARDED_BY(commit_thread_) = false;
    // As it was; until begin_writing() has written it again.
    std::optional<GroupMap> found_map_ CW_GUARDED_BY(commit_thread_);
    // Groups with kGroupChosen, or about to have it.
    std::set<VolumeAddress> chosen_ CW_GUARDED_BY(commit_thread_);
    std::vector<VolumeAddress> planned_ CW_GUARDED_BY(commit_thread_);  // groups of the map not yet published
    // Groups that the next durable map lets open.
    std::vector<VolumeAddress> reopened_ CW_GUARDED_BY(commit_thread_);
    // Groups with a column on an absent member since open(): nothing was written that a column lacks.
    std::set<VolumeAddress> closed_ CW_GUARDED_BY(commit_thread_);
    // The member table that is durable, by rising id.
    std::vector<MemberId> settled_ CW_GUARDED_BY(commit_thread_);
    // Out of service, and the map in memory says what they may miss.
    std::vector<MemberId> away_ CW_GUARDED_BY(commit_thread_);
    std::vector<GroupRecord> newly_stale_ CW_GUARDED_BY(commit_thread_);  // changed, unknown to the array
    std::vector<StaleColumn> caught_up_flushed_ CW_GUARDED_BY(commit_thread_);
    bool taking_over_ CW_GUARDED_BY(commit_thread_) = false;  // with the next superblock
    // Of columns of the source that take_over() called stale: since when they were before.
    std::vector<std::pair<VolumeAddress, Generation>> stale_before_ CW_GUARDED_BY(commit_thread_);
    // Took over with the last one, under another id before.
    MemberId successor_ CW_GUARDED_BY(commit_thread_);
    bool took_over_ CW_GUARDED_BY(commit_thread_) = false;  // with the last one, which is not settled
    // Found by open(), for begin_writing(): whose successor may be known to nobody else, and the device that
    // it had.
    MemberId taken_over_ CW_GUARDED_BY(commit_thread_);
    std::unique_ptr<BlockDevice> replaced_ CW_GUARDED_BY(commit_thread_);
    bool force_ CW_GUARDED_BY(commit_thread_) = false;  // MountOptions::half
    // Found by open(), for begin_writing().
    std::vector<DamagedSlots> damaged_slots_ CW_GUARDED_BY(commit_thread_);
    // Older than the table says; until a map that says so is durable their rings are all that tells.
    std::vector<MemberId> distrusted_ CW_GUARDED_BY(commit_thread_);
    // Not by a crash: to be counted by begin_writing().
    std::vector<MemberId> damaged_rings_ CW_GUARDED_BY(commit_thread_);

    mutable Mutex mutex_{LockRank::kSlots};
    // A copy of committed_: what others plan by and tell users.
    Superblock shown_ CW_GUARDED_BY(mutex_);
    mutable SlotAllocator slots_ CW_GUARDED_BY(mutex_);
    std::vector<StaleColumn> caught_up_ CW_GUARDED_BY(mutex_);
    // Slots return when the map without them is durable.
    std::vector<GroupRecord> dropped_ CW_GUARDED_BY(mutex_);
    // Slots that came free, from the byte `done_bytes` of the first on: if they still are.
    struct FreedSlots {
        MemberId member;
        uint64_t first = 0, count = 0;
        uint64_t done_bytes = 0;
    };
    std::deque<FreedSlots> freed_ CW_GUARDED_BY(mutex_);
    std::optional<FreedSlots> discarding_ CW_GUARDED_BY(mutex_);
    CondVar discarded_;
    // What slots could still hold: by data, metadata, system, and by SlotMembers.
    mutable std::array<std::array<std::optional<uint64_t>, 3>, 3> potential_ CW_GUARDED_BY(mutex_);
    mutable std::array<std::optional<MetadataNeed>, 3> need_ CW_GUARDED_BY(mutex_);  // by SlotMembers
    // Without and with groups that were dropped.
    mutable std::array<std::optional<Narrowing>, 2> narrowing_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
