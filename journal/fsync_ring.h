// SPDX-License-Identifier: MIT
// The fsync log without its threads: which batch gets which numbers, members and places, when it counts as
// durable, when it may be acknowledged. journal/fsync_log.h adds the lock and the waiting.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "device/member_set.h"
#include "format/fsync_codec.h"
#include "format/superblock_codec.h"
#include "journal/member_ring.h"

namespace cowraid {

// A batch on its way to the members. Whoever got it from FsyncRing::begin() owns it.
struct RecordWrite {
    enum class CopyState : uint8_t { kChosen, kDurable, kLost };
    struct Copy {
        MemberId member;
        DeviceOffset offset;
        CopyState state = CopyState::kChosen;
        bool settled = false;  // its member is free for others again
    };
    FsyncHeader header;
    AlignedBuffer blocks;  // the same for all members
    std::vector<Copy> copies;
    bool finished = false;  // nothing more to do for it
    bool waiting = false;  // for a member that another write uses
    Status result;  // once finished
};

// Between begin() and settle(), without any lock: one sequential, durable write for each copy that has none
// yet. Members that fail are counted, and taken out of service unless the volume cannot do without them.
void write_fsync_copies(MemberSet& members, RecordWrite& write);

// Calls must not overlap.
class FsyncRing {
public:
    // Every batch goes to `tolerance` + 1 members, or to all when fewer are in service; members that leave
    // count for this and get none, so that there may be no room (kNoSpace). Numbering begins at
    // `first_sequence`. `committed` is the last durable commit; it must not be below what a scan asked for
    // (FsyncScan::commit_at_least()).
    FsyncRing(MemberSet& members, const Superblock& superblock, uint32_t tolerance, uint64_t first_sequence,
              Generation committed);

    // Begins with a batch: numbers and places are given, `blocks` are to be filled by
    // encode_fsync_batch(). Generations must be committed + 1 or committed + 2.
    // kBusy: nothing done; again after the next settle() or retire(). kStale: the generation is committed, or
    // records of a younger one are in the log already, so that this one's commit is under way. kIo: no member
    // left. kNoSpace: the ring is full. From then on everything of this generation is refused, and what is of
    // a younger one has to wait for retire(): so nothing is ever logged that came after something refused, as
    // long as that is not committed.
    Result<std::unique_ptr<RecordWrite>> begin(uint32_t record_count, uint32_t content_bytes,
                                               Generation generation, uint64_t epoch);

    // After a round of writes. kFinished: durable on enough members, or failed. kAgain: other
    // members were chosen in place of failed ones. kWait: they will be, after another write's settle().
    enum class Next { kFinished, kAgain, kWait };
    Next settle(RecordWrite& write);
    // Whether the write has finished and all that began before it have been answered: then this is its
    // answer, and its last mention here. A batch behind a failed one fails with it. kTooManyFaults:
    // MemberSet::stopped().
    bool answer(RecordWrite& write, Status& result);

    // Records of generations up to this one are in a durable commit.
    void retire(Generation committed);

    // Blocks of the member's ring that are not to be chosen until release(); who finds no room meanwhile
    // waits (kBusy). False: they may be needed, or there is no such ring.
    bool hold(MemberId member, DeviceOffset first, uint64_t bytes);
    void release(MemberId member, DeviceOffset first);

    // Batches that begin from now on may go to it, too.
    void add_member(const MemberRecord& record) { logs_.push_back({MemberRing(record, LogKind::kFsync)}); }

    // Batches that begin from now on go to that many members and one more.
    void set_tolerance(uint32_t tolerance) { copies_ = tolerance + 1; }

    // Of members in service.
    [[nodiscard]] LogUsage usage() const;

private:
    struct MemberLog {
        MemberRing ring;  // a batch's blocks are needed until its generation is committed
        bool busy = false;  // a write uses it
    };
    MemberLog* find(MemberId member);
    [[nodiscard]] bool usable(const MemberLog& log, const RecordWrite& write) const;
    Status choose(RecordWrite& write, uint32_t copies);
    Next fail(RecordWrite& write, Err why);
    void block(Err why, Generation until);

    MemberSet& members_;
    const Uuid volume_uuid_;
    uint32_t copies_;
    std::vector<MemberLog> logs_;
    size_t turn_ = 0;  // index of the log that is asked first
    uint64_t next_sequence_;
    uint64_t acknowledged_;  // what is numbered below is durable or dead
    Generation committed_;
    // The newest generation in the log: its first record and the generation before it.
    Generation run_generation_;
    uint64_t run_first_;
    Generation run_before_;
    std::deque<RecordWrite*> order_;  // begun and not answered
    uint32_t waiting_count_ = 0;
    Status blocked_;  // why everything is refused
    Generation blocked_until_;
};

}  // namespace cowraid
