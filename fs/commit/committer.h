// SPDX-License-Identifier: MIT
// From the open transaction to a durable generation (design 5.4): commits, flushes, the fsync log, and what a
// mount does before the first of them.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/set_once.h"
#include "fs/commit/background.h"
#include "fs/commit/replace.h"
#include "fs/commit/sync_queue.h"
#include "fs/files/flush.h"
#include "fs/maintain/balance.h"
#include "fs/maintain/discards.h"
#include "fs/maintain/empty_groups.h"
#include "fs/maintain/scrub.h"
#include "fs/names/names.h"
#include "journal/fsync_log.h"

namespace cowraid {

struct RootContent;

struct Committer final : public CommitDriver, public FlushHost {
    explicit Committer(Names& volume_names);
    ~Committer() override;

    // Answers when everything that returned before the call is durable: sync() by a commit, fsync() by the
    // fsync log where that will do. With kData only what changed the inode, other than its times, matters;
    // with it everything earlier becomes durable. Thread-safe.
    enum class SyncWhat : uint8_t { kAll, kData };
    void sync_async(Completion* completion);
    Status sync();
    void fsync_async(InodeNumber inode, SyncWhat what, Completion* completion);
    Status fsync(InodeNumber inode, SyncWhat what);
    // ro -> rw and back. rw -> ro commits first. `why`: one line for the user. Thread-safe.
    Status remount(bool read_only, std::string& why);
    // Of a volume that was writing: what is acknowledged is committed, and everything is at rest.
    Status stop_writing();

    // Where everything would lie on a device of that size as one member more, after `others` that are added
    // before. kInvalid: it cannot be one. Errors and `why` as for add_member().
    Result<MemberRecord> plan_member(uint64_t size_bytes, uint32_t others, std::string& why);

    // One member more, in service at once: new block groups use it. `device`: nobody else's, overwritten. As
    // for CommitOrders::carry_out(); kInvalid: the device will not do; kIo: it failed. `why`: one line for
    // the user.
    Result<MemberId> add_member(std::unique_ptr<BlockDevice> device, std::string& why);

    // Another device for a member. One that is out of service gets it at once; it lacks everything until it
    // is caught up, which begins. For one in service: Replace::start(). The device: as for add_member().
    // kNoSpace: it is smaller than the member.
    // `spare`, unless 0: as for put_in_place(); kInvalid: there is none, or it is not there.
    Status replace_member(MemberId id, std::unique_ptr<BlockDevice> device, std::string& why,
                          MemberId spare = {});
    // What that would take with a device of that name and size, or with the spare, and the same refusals.
    // Changes nothing.
    Status plan_replacement(MemberId id, const std::string& name, uint64_t size_bytes, MemberId spare,
                            BalancePlan& plan, std::string& why);
    // The same, decided when the member was in service or not, as `serves` says: kBusy, kInvalid: that has
    // changed. `spare`, unless 0: the device is that of this spare, `device` is null, and its superblock
    // stays until it is the member's. kIo: the device failed; else it is the spare's still.
    Status put_in_place(MemberId id, bool serves, std::unique_ptr<BlockDevice> device, MemberId spare,
                        std::string& why) CW_REQUIRES(remount_mutex);

    // Whether a device of that size may be a spare, after `others`. kInvalid: it is smaller than every
    // member, or there is no place for it. `name` is for `why`.
    Status plan_spare(const std::string& name, uint64_t size_bytes, uint32_t others, std::string& why);
    // A device in reserve: it takes the place of a member that fails (fs/commit/spares.cc). Errors, `why` and
    // the device as for add_member(); kInvalid: it is smaller than every member.
    Result<MemberId> add_spare(std::unique_ptr<BlockDevice> device, std::string& why);
    // kInvalid: there is no such spare.
    Status remove_spare(MemberId id, std::string& why);
    // A device with the superblock `own`, as a spare, that was not there at the mount waits again. Decided
    // between two commits; no superblock says it. kInvalid: it is none, or is there already.
    Result<MemberId> return_spare(const Superblock& own, std::unique_ptr<BlockDevice> device,
                                  std::string& why) CW_REQUIRES(remount_mutex);
    // Whether a spare is to take the place of the member now: one in service that is doubtful is copied, one
    // that is away may come back until MountOptions::spare_seconds are over. Not one that a user took out.
    [[nodiscard]] bool wants_spare(const MemberRecord& member);
    // For how long a member that is out of service could have come back, milliseconds: not while the volume
    // was read-only.
    [[nodiscard]] uint64_t awaited_ms(MemberId id) const;
    // A member that is out of service had its time to come back (spare_seconds, longer where it is only not
    // there). Never one that a user took out.
    [[nodiscard]] bool is_given_up(MemberId id);
    // For each of them the smallest spare that will do; no thread but one calls this, without locks. Does
    // nothing while a remount is under way, which may wait for the thread.
    void use_spares();
    // MemberSet::fail_over_budget(), but nobody goes while a replacement is under way: what is being copied
    // is of use still.
    bool fail_over_budget();

    // A member that is out of service takes part again, on `device` or (null) on the one that it had: whoever
    // `device` says it is, or `id`. What it missed is written to it; that begins. kInvalid: it is no member
    // that may come back, as one that was written apart; kNoSpace: it is smaller; else as for add_member().
    Result<MemberId> online_member(MemberId id, std::unique_ptr<BlockDevice> device, std::string& why);
    // Out of service until it is called back, or to the next mount. kInvalid: the volume cannot do without.
    Status offline_member(MemberId id, std::string& why);

    // The member uses all of a device that has grown, or so much of it; its size. kInvalid: it has not, or is
    // not in service. Errors and `why` as for add_member().
    Result<uint64_t> grow_member(MemberId id, std::string& why, uint64_t wanted_bytes = UINT64_MAX);
    // The size that it would have, and the same errors. Changes nothing.
    Result<uint64_t> plan_growth(MemberId id, std::string& why, uint64_t wanted_bytes = UINT64_MAX);

    Status commit() override;
    Status flush() override;
    Status finish_removals() override;
    FsyncLog* records() override { return fsync_log.get(); }
    // Superblocks once more, with the next generation, unless there are such since the last commit. They show
    // that every member had that commit: one that lacks it is two behind, which no crash explains (I-16).
    // Threads as for commit(), as are errors.
    Status confirm();
    [[nodiscard]] bool confirmed() const;
    // After the last commit of a mount: superblocks say that there is nothing to be recovered.
    Status commit_clean();
    Status ensure_room(uint64_t data_blocks, uint64_t node_blocks) override;
    Status commit_checksums(FlushBatch& batch) override;
    // Stops the filesystem for writing because of `status`, and says why, once. Who waits for a commit is
    // answered. Commit thread. No locks held.
    void stop(const char* reason, Status status);

    // What to do about a volume that has stopped writing, or did not begin. Thread-safe.
    [[nodiscard]] std::string step_to_write() const;

    // What a mount starts from. Groups come into the allocator; writes nothing.
    void load(const RootContent& root);
    // Reads and writes as the mount's options and the volume allow. `why` on failure.
    Status start(std::string& why);
    // First writes, recovery, room ahead, orphans, threads. `why` on failure. kNoSpace when there is no room
    // to commit what the logs hold: once records are applied all of that is in memory and can be read.
    Status start_writing(std::string& why);

    Store& store;
    Files& files;
    Names& names;
    // One change between reading and writing at a time: its commits are made by the caller's thread. And one
    // device at a time that takes or takes again the place of a member: nobody erases the logs of one that is
    // in service.
    Mutex remount_mutex{LockRank::kRemount};
    EmptyGroups empty_groups;
    Discards discards;
    Cleaner cleaner;
    CommitOrders orders;
    Balance balance;
    Scrub scrub, catch_up;
    Replace replace;
    // Null until the filesystem is written to; then it stays.
    SetOnce<FsyncLog> fsync_log;
    SyncQueue syncs;
    std::atomic<uint64_t> commit_count{0};
    std::atomic<uint64_t> checksum_commits{0};  // on the way of flushes
    std::atomic<uint64_t> recovered_rows{0};  // by this mount
    std::atomic<uint64_t> replayed_records{0};  // by this mount
    std::atomic<uint64_t> writing_since_ms{0};  // monotonic; 0: commits are made by hand
    uint64_t spares_rest_ms = 0;  // until then (monotonic) use_spares() does nothing: it was refused
    // It did not start since records of the fsync log could not be applied or committed.
    std::atomic<bool> held_up_by_log{false};
    uint32_t recovered = 0;  // facts that passes of recovery left (fs/commit/recovery.cc)
    uint64_t next_record = 1;  // of the fsync log, by what a replay found in it
    Background background;  // last: its threads use everything above

private:
    // Whether that device may take the place of the member, whose line in the table is the answer. Nothing is
    // overwritten before.
    Result<MemberRecord> may_replace(MemberId id, const std::string& name, uint64_t size_bytes,
                                     BalancePlan& plan, std::string& why);
    // online_member(), with the lock.
    Result<MemberId> bring_back(MemberId id, std::unique_ptr<BlockDevice> device, std::string& why)
        CW_REQUIRES(remount_mutex);
    // put_in_place(). A member that is out because repairs of it did not hold has what others may lack: it
    // comes back, if it can, and is copied, unless another one is being replaced. `spare` is there, unless 0.
    Status take_place(MemberId id, bool serves, std::unique_ptr<BlockDevice> device, MemberId spare,
                      std::string& why) CW_REQUIRES(remount_mutex);
    // Not null. It stays as long as nobody else has the lock.
    Result<BlockDevice*> spare_device(MemberId spare, std::string& why) CW_REQUIRES(remount_mutex);
};

}  // namespace cowraid
