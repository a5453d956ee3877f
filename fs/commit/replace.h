// SPDX-License-Identifier: MIT
// The replacement of a member in service (docs/DESIGN.md, "Members that are replaced"): its content is copied
// to the target beside everything else, and the target takes its place at the end. If the source fails
// and is not back soon the target takes its place, and what it lacks is caught up. Mounts go on with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fs/maintain/balance_plan.h"
#include "fs/maintain/scrub.h"

namespace cowraid {

struct Committer;

struct ReplaceStatus {
    enum class State : uint8_t { kNone, kRunning, kWaiting, kPaused, kFinished, kCancelled, kFailed };

    State state = State::kNone;  // kWaiting: for a device that is not there; kPaused: nothing is written
    MemberId source, target;
    uint64_t started = 0, ended = 0;  // seconds since 1970; 0: not yet
    uint64_t groups_copied = 0, groups_total = 0;  // with a column on the source
    std::string text;  // of kFailed, kPaused: why; of kWaiting: for what
    // Of this mount: bytes of the source that were copied, blocks of it that the others had, what is lost in
    // its rows, of any member.
    ScrubStatus copy;
    uint64_t source_lost = 0;  // bad blocks of the source in these, parity too

    // Something that the source had is in the list of damage, as far as is known.
    [[nodiscard]] bool still_lossy() const
    {
        return copy.lost + copy.unreadable_nodes > 0 && copy.listed_now.value_or(1) > 0;
    }
    [[nodiscard]] bool active() const
    {
        return state == State::kRunning || state == State::kWaiting || state == State::kPaused;
    }
};

// "none", "running", "waiting", "paused", "finished", "cancelled", "failed".
const char* replace_state_name(ReplaceStatus::State state);

// Thread-safe.
class Replace {
public:
    explicit Replace(Committer& committer);

    // `line`: of the source, which is in service, by Committer::may_replace(). `device`: nobody else's,
    // blank. kBusy: the member was changed meanwhile; kIo: the device failed. Errors and `why` besides as for
    // CommitOrders::carry_out(). `spare`, unless 0: as for Committer::put_in_place().
    Status start(const MemberRecord& line, std::unique_ptr<BlockDevice> device, std::string& why,
                 MemberId spare);
    // The source stays. kInvalid: nothing is under way.
    Status cancel(std::string& why);
    [[nodiscard]] ReplaceStatus status();
    // As measured_rate() of the last one that ended in this mount and told it; 0: none did.
    [[nodiscard]] uint64_t rate() const;

    // That member cannot be copied, as far as this mount knows, or nobody wants it: no spare is used for it.
    [[nodiscard]] bool gave_up(MemberId source) const;
    // It has another device now.
    void forget(MemberId source);

    // The member is in service only to be copied: when its successor fails it goes out again
    // (MemberSet::fail_for_repairs()), unless a replacement of it begins anew.
    void note_brought_back(MemberId source);

    // Commit thread: one begins with the next superblock; how the one that is under way ends with it.
    void note_begin(MemberId source);
    void note_end(const ReplaceStatus& ended);

    // As Scrub::hand_over_waiting().
    bool hand_over_waiting() { return copying_.hand_over_waiting(); }

    // One piece is copied, or what comes next is done. False: nothing is to be done now. No locks held.
    bool step();
    // Of the threads that take the steps: the first one waits for work, others help with copying. False:
    // stop().
    bool wait();
    bool help();
    void stop();
    void allow();

private:
    bool advance(const ReplaceRecord& record);
    bool give_up(const ReplaceRecord& record);
    bool copy_on();
    bool begin_pass();
    [[nodiscard]] bool lacks_nodes();
    bool note_pass(uint64_t groups_copied);
    bool take_over(const ReplaceRecord& record);
    bool end_vain(const ReplaceRecord& record);
    [[nodiscard]] bool all_copied(const ReplaceRecord& record);
    [[nodiscard]] const char* waits_for(const ReplaceRecord& record);
    Status end(const ReplaceRecord& record, ReplaceStatus::State state, const std::string& text,
               std::string& why, Volume::NotCopied not_copied = Volume::NotCopied::kRefused);
    void count_groups(ReplaceStatus& status);
    ScrubStatus so_far();

    Committer& committer_;
    Scrub copying_;
    mutable Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    ReplaceStatus last_ CW_GUARDED_BY(mutex_);  // that ended in this mount
    uint64_t rate_ CW_GUARDED_BY(mutex_) = 0;
    ScrubStatus passes_ CW_GUARDED_BY(mutex_);  // that ended before the one that runs
    bool pass_begun_ CW_GUARDED_BY(mutex_) = false;  // one that is not among them
    bool idle_ CW_GUARDED_BY(mutex_) = false;
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
    // One after the other, after which no group was copied.
    uint32_t vain_passes_ CW_GUARDED_BY(mutex_) = 0;
    std::vector<MemberId> gave_up_ CW_GUARDED_BY(mutex_);
    MemberId brought_back_ CW_GUARDED_BY(mutex_);
    uint64_t copied_before_ CW_GUARDED_BY(mutex_) = 0;  // groups, when the last pass began
};

}  // namespace cowraid
