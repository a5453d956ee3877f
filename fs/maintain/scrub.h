// SPDX-License-Identifier: MIT
// A scrub of the mounted volume: who asked for it, where it is, what it found. One at a time of each scope.
// That of all is in the superblock: a mount goes on with it. What is lost is in the list of damage
// (fs/txn/damage_list.h).
// What stale columns lack is written on the way; those that have all that can be had are handed to the
// volume, which calls them current (docs/DESIGN.md, "Members that missed writes").
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "fs/maintain/scrub_walk.h"
#include "fs/txn/commit_orders.h"
#include "fs/volume/volume.h"

namespace cowraid {

const char* scrub_state_name(ScrubState state);

struct ScrubOptions {
    ScrubMode mode = ScrubMode::kRepair;
    uint64_t limit = 0;  // bytes of members read per second; 0: as fast as they go
    // Of what is in block groups and not mirrored nodes: all, about so many percent, those after the ones
    // that the last such scrub read, what no scrub has verified, or groups with blocks that were found lost.
    enum class Plan : uint8_t { kFull, kPercent, kNew, kBad };
    Plan plan = Plan::kFull;
    uint32_t percent = 100;
    uint64_t older_than = 0;  // seconds: only what was verified before; 0: all
    bool as_it_is = false;  // of copying and filling (ScrubSelection)
};

// "full", "percent", "new", "bad".
const char* scrub_plan_name(ScrubOptions::Plan plan);
bool parse_scrub_plan(std::string_view name, ScrubOptions::Plan& plan);

struct ScrubStatus {
    ScrubState state = ScrubState::kNone;
    ScrubOptions options;
    uint64_t number = 0;  // of those begun in this mount, from 1; 0: an earlier one began it
    uint64_t started = 0, ended = 0;  // seconds since 1970; 0: not yet
    uint64_t run_ms = 0;  // that it ran, pauses left out
    // Bytes of members: done, and what a whole pass had to read when it began, as far as that was known;
    // never less than what is done, and no more at the end.
    uint64_t bytes_done = 0, bytes_total = 0;
    // In blocks of 4 KiB; nodes with all copies.
    uint64_t data_blocks = 0, parity_blocks = 0, nodes = 0;
    uint64_t heads = 0;  // copies of superblocks and block-group maps
    uint64_t repaired = 0, unrepaired = 0, adopted = 0, lost = 0, unreadable_nodes = 0;
    uint64_t unverified = 0;  // blocks on members that are not in service
    // Not repaired by a pass before this one, as far as is known: no pass has read everything since.
    uint64_t earlier_unrepaired = 0;
    ScrubbedMembers members;  // what was found on each
    std::map<MemberId, uint64_t> lost_on;  // ScrubReport::lost_on
    bool held_back = false;  // users of the volume go first just now
    // The first kScrubAddressesMax of the lost blocks that this mount found.
    std::vector<VolumeAddress> lost_addresses;

    // Blocks that are in the list of damage now, whoever found them; none: nobody asked.
    std::optional<uint64_t> listed_now;

    // Of what was lost something may still be.
    [[nodiscard]] bool still_lost() const
    {
        return unreadable_nodes > 0 || (lost > 0 && listed_now.value_or(lost) > 0);
    }
    // What is wrong and stays so.
    [[nodiscard]] bool damaged() const { return unrepaired > 0 || still_lost(); }
    // Everything was looked at, and is as it must be.
    [[nodiscard]] bool all_well() const
    {
        return state == ScrubState::kFinished && !damaged() && unverified == 0;
    }
};
inline constexpr size_t kScrubAddressesMax = 4096;

// Thread-safe.
class Scrub {
public:
    // Goes on with the scrub that the superblock tells of.
    Scrub(Store& store, CommitOrders& orders, ScrubScope scope);

    // kBusy: one runs or is paused. kReadOnly, kShutdown: nothing is written to the volume, and nobody takes
    // steps. kNotFound: nothing is in its scope.
    Status start(const ScrubOptions& options);
    // Whether something is in its scope.
    [[nodiscard]] bool has_scope() const;
    // kInvalid: there is none to be paused, resumed, cancelled. resume() as start(), too.
    Status pause();
    Status resume();
    Status cancel();
    // `before`: how the one before that one ended.
    [[nodiscard]] ScrubStatus status(ScrubStatus* before = nullptr) const;

    // One piece. False: nothing is to be done. Several at a time bring a scrub on: one reads while another
    // verifies. No locks held.
    bool step();
    // Rows of blocks that were listed as lost and are freed by a commit: what else they hold lacks redundancy
    // until they are written anew, or verified to be whole. The blocks are listed no more then. False: there
    // are none, or it is stopped. No locks held.
    bool mend_freed();
    // There may be such rows: the threads look for them. After a commit.
    void note_commit();
    // Of the threads that take the steps: waits for work, and as long as the limit says. False: stop().
    bool wait();
    void stop();  // the next mount, or allow(), goes on with a scrub that runs
    void allow();

    // What a commit makes durable: how far the scrub is, and groups that it found as they must be since the
    // last call. Taken before the transaction is closed: what was recorded anew on the way is in it.
    struct Progress {
        ScrubRecord record;
        std::vector<VerifiedGroup> verified;
    };
    Progress take_progress();
    // Whether that is worth a commit. Commit thread.
    [[nodiscard]] bool wants_commit() const;
    // Columns that have all that could be had are handed to the volume when what they lack is in the list of
    // damage, and what was recorded anew of their rows in the trees, both durable. False: there are none.
    // Commit thread, between commits.
    bool hand_over_waiting();
    // There are such columns.
    [[nodiscard]] bool has_waiting() const;

private:
    // What a step works on; `number` is of its scrub, `sequence` of the step.
    struct Step {
        uint64_t number = 0, sequence = 0;
        uint64_t started = 0, pass_id = 0;  // of its scrub
        bool last = false;  // of its scrub
        std::optional<VolumeAddress> pass;  // the Pass that it is part of
        ScrubOrder order;
        ScrubPiece piece;
        std::vector<StaleColumn> columns;  // of what begins with it
        // Of what ends with it: columns that wait for a commit, and the blocks that they lack.
        std::vector<StaleColumn> waiting;
        std::vector<VolumeAddress> lost;
        std::vector<BlockRef> lost_nodes;
        ScrubReport report;
        ScrubWalkCounts counts;

        // Something is not as it must be, or could not be looked at.
        [[nodiscard]] bool failed() const
        {
            return report.unrepaired + report.unsettled + report.lost.size() + counts.unreadable_nodes > 0;
        }
        // A column that it was to fill lacks something that could be had, now or later.
        [[nodiscard]] bool incomplete() const
        {
            // A source is given away: what could not be read of it is tried again before.
            const bool blind =
                counts.unreached || (order.scope == ScrubScope::kReplaced && !counts.lost_nodes.empty());
            return report.unfilled + report.unsettled > 0 || (piece.group && counts.unreadable_nodes > 0) ||
                   (blind && !order.selection.as_it_is);
        }
    };
    // What a pass over one group, or over all nodes, has shown so far.
    struct Pass {
        std::vector<StaleColumn> columns;  // stale when it began
        uint32_t steps = 0;  // under way
        bool begun = false, issued = false, failed = false, incomplete = false;
        bool unverified = false;  // some of it could not be read
        std::vector<VolumeAddress> lost;
        std::vector<BlockRef> lost_nodes;
        uint64_t seconds = 0;  // when it began

        [[nodiscard]] bool complete() const { return begun && issued && steps == 0; }
    };
    // What was found lost for good of columns that this filling hands over: passes that follow one another
    // meet it no more, or once more. As many as can be listed.
    struct Settled {
        std::set<VolumeAddress> blocks, nodes;
    };
    Status start_pass(const ScrubOptions& options, bool goes_on);
    Status nothing_to_do();
    [[nodiscard]] std::set<VolumeAddress> settled_blocks() const;
    bool begin(Step& step, WorkTurns& turns);
    [[nodiscard]] ScrubOrder order() const CW_REQUIRES(mutex_);
    void await_rows(const Step& step, const ScrubPosition& before, const ScrubPosition& after);
    void note_begun(Step& step, const ScrubPosition& before, const ScrubPosition& after) CW_REQUIRES(mutex_);
    // `current`: columns that no commit has to be waited for.
    void note_finished(Step& step, std::vector<StaleColumn>& current) CW_REQUIRES(mutex_);
    bool finish(Step& step, ScrubStatus& ended, std::vector<StaleColumn>& current);
    void give_back(const Step& step);
    void add(const ScrubReport& report, const ScrubWalkCounts& counts) CW_REQUIRES(mutex_);
    void begin_position(const ScrubSelection& selection) CW_REQUIRES(mutex_);
    [[nodiscard]] const ScrubPosition& durable_position() const CW_REQUIRES(mutex_);
    void load(const ScrubRecord& record) CW_REQUIRES(mutex_);
    [[nodiscard]] ScrubRecord record() const CW_REQUIRES(mutex_);
    void note_lost(const Step& step);
    void settle_waiting(Step& step, WorkTurns& turns);
    bool are_lost(const Step& step, WorkTurns& turns);
    bool is_node_lost(const BlockRef& ref);
    [[nodiscard]] bool saw_all_nodes() const;
    [[nodiscard]] bool goes_on(uint64_t number) const;
    bool recheck_damage(const Step& step, WorkTurns& turns);
    bool mend_rows(const ArrayGroup& group, VolumeAddress& at, VolumeAddress end, WorkTurns& turns);
    void mend(const FreedDamage& freed, VolumeAddress& seen, bool& mended, WorkTurns& turns);
    bool mend_free(const ArrayGroup& group, const DamagedRun& run, VolumeAddress& seen, bool& mended,
                   WorkTurns& turns);
    void recheck_used(const std::vector<DamagedRun>& used, WorkTurns& turns);
    VolumeAddress recheck_some(const DamagedRun& run, VolumeAddress from, WorkTurns& turns);
    [[nodiscard]] bool stopped() const;
    void enter_running() CW_REQUIRES(mutex_);
    void leave_running(ScrubState state) CW_REQUIRES(mutex_);
    [[nodiscard]] uint64_t run_ms() const CW_REQUIRES(mutex_);
    [[nodiscard]] uint64_t due_ms() const CW_REQUIRES(mutex_);
    void end(ScrubState state) CW_REQUIRES(mutex_);

    Store& store_;
    CommitOrders& orders_;
    const ScrubScope scope_;
    Mutex walk_mutex_{LockRank::kScrub};  // held by who finds the next piece, which may read nodes
    mutable Mutex mutex_{LockRank::kLeaf};
    CondVar changed_;
    ScrubStatus status_ CW_GUARDED_BY(mutex_), before_ CW_GUARDED_BY(mutex_);
    uint64_t begun_ CW_GUARDED_BY(mutex_) = 0;  // in this mount
    uint64_t pass_id_ CW_GUARDED_BY(mutex_);  // in the list of damage
    ScrubPosition position_ CW_GUARDED_BY(mutex_);
    uint64_t
        number_ CW_GUARDED_BY(mutex_) = 0;  // of the scrub: a step of one that was cancelled counts no more
    // Steps of this scrub under way, in the order of their pieces, and those that have ended before an
    // earlier one has. What they found counts in that order: with the position it is durable or not.
    struct Issued {
        ScrubPosition before;
        uint64_t bytes = 0;  // of its piece
        bool ended = false;
        ScrubReport report;
        ScrubWalkCounts counts;
    };
    std::map<uint64_t, Issued> issued_ CW_GUARDED_BY(mutex_);
    uint64_t sequence_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t bytes_begun_ CW_GUARDED_BY(mutex_) = 0;
    ScrubSelection selection_ CW_GUARDED_BY(mutex_);
    std::vector<VerifiedGroup> verified_ CW_GUARDED_BY(mutex_);
    // By address of the group, while steps of it are to come; of the nodes under address 0.
    std::map<VolumeAddress, Pass> passes_ CW_GUARDED_BY(mutex_);
    // Columns that wait for the list of damage, and for the commit of what was recorded anew of their rows.
    struct Waiting {
        TransactionId recorded;  // in it or an earlier one, by this pass or another
        bool lossy;
        std::vector<StaleColumn> columns;
    };
    std::vector<Waiting> waiting_ CW_GUARDED_BY(mutex_);
    uint32_t settling_ CW_GUARDED_BY(mutex_) = 0;  // threads that look whether columns are to wait
    Settled settled_ CW_GUARDED_BY(mutex_);
    std::set<VolumeAddress> settled_before_ CW_GUARDED_BY(mutex_);  // by passes before this one
    bool unreached_ CW_GUARDED_BY(mutex_) = false;  // there may be nodes that it could not get to
    std::atomic<bool> begins_again_{false}, begins_as_it_is_{false};  // when it ends
    uint64_t since_ms_ CW_GUARDED_BY(mutex_) = 0;  // when it began to run
    uint64_t taken_ms_ CW_GUARDED_BY(mutex_) = 0;  // when its progress was last made durable
    bool stopped_ CW_GUARDED_BY(mutex_) = false;
    bool may_mend_ CW_GUARDED_BY(mutex_) = false;  // note_commit()
};

}  // namespace cowraid
