// SPDX-License-Identifier: MIT
// A balance: block groups are emptied into groups made as new ones are made now, of another profile, over
// more members, or fuller. Nothing of a file or a tree changes but where blocks lie.
//
// What is to be done is in the superblock, so that a mount goes on with it: which groups, by their profile,
// by a member that is to be removed or made smaller, or by when they were made; where filters let only some
// of them through, the map says which these are. There is no position: what is left is what is left to be
// done.
//
// The way of a group: it takes blocks only when no other has room. Data moves as the cleaner moves it, one
// group after the other, the emptiest first (fs/maintain/cleaner.h). Of groups of nodes one at a time is
// closed, and commits write what is in it anew, elsewhere. What holds nothing leaves the map
// (fs/maintain/empty_groups.h).
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "fs/maintain/balance_filter.h"
#include "fs/maintain/balance_plan.h"
#include "fs/maintain/cleaner.h"
#include "fs/maintain/empty_groups.h"
#include "fs/maintain/node_search.h"
#include "fs/txn/commit_orders.h"

namespace cowraid {

struct BalanceOptions {
    VolumeProfiles profiles;  // of groups made from now on
    uint32_t content = 0;  // kGroupData | ...
    BalanceFilter data, metadata, system;  // of groups of that content
    bool convert = false;  // only groups of another profile
    MemberId member;  // 0, or only groups with a column on it: it is removed at the end
    uint64_t shrink_bytes = 0;  // or, unless 0, only those beyond that of its device: it has that size then
    bool force = false;  // fewer members may be lost afterwards
};

struct BalanceStatus {
    enum class State : uint8_t { kNone, kRunning, kPaused, kFinished, kCancelled };
    State state = State::kNone;
    VolumeProfiles profiles{};
    uint32_t content = 0;
    bool chosen = false;  // only of groups that filters let through when it began
    bool convert = false;
    MemberId member;
    bool has_device = false;  // `member`: in service or not
    uint64_t shrink_bytes = 0;  // the size that `member` gets; 0: it is removed, or there is none
    // Seconds since 1970; 0: not by this mount, which goes on with it, or not yet.
    uint64_t started = 0, ended = 0;
    uint64_t bytes_total = 0, bytes_left = 0;  // in use in the groups that it empties: when it began, and now
    uint64_t groups_left = 0;  // of them
    uint64_t groups_total = 0;  // that this mount saw, with those that came on the way
    // What this mount moved of it, and how long it ran meanwhile: pauses, and waiting for room, left out.
    uint64_t moved_bytes = 0, run_ms = 0;
    uint64_t rate = 0;  // as measured_rate() of the last one that ended and told it; 0: none
    uint64_t groups_stuck = 0;  // with blocks that cannot be moved
    uint64_t damaged_blocks = 0;  // that the list of damage has in groups that it empties
    bool waits_for_room = false;  // nothing goes on before space comes free
    bool degraded = false;  // a member is out of service, which may be what it waits for
    bool read_only = false;  // paused by that alone
    bool held_back = false;  // users of the volume go first just now

    [[nodiscard]] bool active() const { return state == State::kRunning || state == State::kPaused; }
};
const char* balance_state_name(BalanceStatus::State state);

class Balance {
public:
    Balance(Store& store, EmptyGroups& empty_groups, CommitOrders& orders, Cleaner& cleaner);

    // Any thread without locks, as pause(), resume(), cancel(): returns when it is durable. kBusy: one is
    // under way. kInvalid: it may not be; kNoSpace: what is in these groups would have no room; kReadOnly,
    // kShutdown. `why`: one line for the user.
    Status start(const BalanceOptions& options, std::string& why);
    // What start() would do, and whether it would refuse: as it, with the same `why`. Changes nothing.
    Status plan(const BalanceOptions& options, BalancePlan& plan, std::string& why);
    // kInvalid: there is none to be paused, resumed, cancelled. Groups that are marked to be emptied go on,
    // by the cleaner's pace. After cancel() groups of both kinds stay, new ones are made as it said.
    Status pause(std::string& why);
    Status resume(std::string& why);
    Status cancel(std::string& why);
    [[nodiscard]] BalanceStatus status() const;

    // Commit thread, no commit under way. One step, which moves about as many bytes.
    CleanProgress step(uint64_t bytes);
    // Commit thread: groups are loaded, or others than before are to be emptied. Their room is left to who
    // finds no other, and not counted on. What is left to be done is known then.
    void avoid_groups();
    // Nodes for the open transaction to move, with room reserved for them.
    void plan_moves();

private:
    class Order;
    class PlanOrder;
    Status begin(const BalanceOptions& options, std::string& why);
    Status change(BalanceStatus::State next, std::string& why);
    void reopen_groups();
    void enter(BalanceStatus::State state, const BalanceRecord& record, const VolumeProfiles& profiles,
               uint64_t started = 0);
    [[nodiscard]] uint64_t run_ms() const CW_REQUIRES(mutex_);
    void set_waits_for_room(bool waits, uint64_t since_ms) CW_REQUIRES(mutex_);
    Status make_record(const BalanceOptions& options, BalanceRecord& record, std::string& why);
    Status choose_groups(const BalanceOptions& options, BalanceRecord& record, std::string& why);
    // balance_plan.cc. Whether it may begin; change nothing.
    Status assess(const BalanceOptions& options, const BalanceRecord& record, BalancePlan& plan,
                  std::string& why) const;
    Status assess_tolerance(const BalanceOptions& options, const BalanceRecord& record, BalancePlan& plan,
                            std::string& why) const;
    Status assess_profile(const Profile& now, const Profile& then, std::string& why) const;
    Status assess_removal(const BalanceOptions& options, std::string& why) const;
    Status assess_shrinking(const BalanceOptions& options, std::string& why) const;
    [[nodiscard]] uint64_t damaged_blocks(const BalanceRecord& record, const VolumeProfiles& profiles) const;
    [[nodiscard]] bool selects(const BalanceRecord& record, const VolumeProfiles& profiles,
                               const GroupNumbers& numbers) const;
    struct DataNumbers {
        uint64_t moving = 0;  // blocks
        uint64_t largest = 0;  // what the slots of one group that moves can hold then
        Volume::DataMoves room;
    };
    [[nodiscard]] MetadataNeed nodes_after(const BalanceOptions& options) const;
    [[nodiscard]] DataNumbers data_numbers(const BalanceOptions& options, const BalanceRecord& record) const;
    [[nodiscard]] uint64_t too_many(const BalanceOptions& options, const BalanceRecord& record,
                                    const DataNumbers& data) const;
    Status assess_room(const BalanceOptions& options, const BalanceRecord& record, BalancePlan& plan,
                       std::string& why) const;
    struct EmptyNodes {
        std::vector<VolumeAddress> groups;  // addresses rise
        uint64_t file_blocks = 0, system_blocks = 0;  // for nodes of these trees

        [[nodiscard]] bool has(VolumeAddress group) const
        {
            return std::binary_search(groups.begin(), groups.end(), group);
        }
    };
    [[nodiscard]] EmptyNodes empty_nodes(const BalanceOptions& options, const BalanceRecord& record) const;
    struct NodeNumbers;
    [[nodiscard]] NodeNumbers node_numbers(const BalanceOptions& options, const BalanceRecord& record) const;
    struct Packing;
    [[nodiscard]] Packing packing(uint64_t usage_most) const;
    struct NodeSlots;
    [[nodiscard]] uint64_t node_slots(const BalanceOptions& options, const BalanceRecord& record,
                                      const NodeSlots& of, Volume::NodeDemand demand) const;
    [[nodiscard]] BalancePlan::Room room_for_nodes(const BalanceOptions& options, const BalanceRecord& record,
                                                   const BalancePlan& plan, const Packing& packed) const;
    [[nodiscard]] std::string advice_for_nodes(const BalanceOptions& options, const BalanceRecord& record,
                                               const BalancePlan& plan) const;
    Status assess_nodes(const BalanceOptions& options, const BalanceRecord& record, BalancePlan& plan,
                        std::string& why) const;
    [[nodiscard]] std::vector<GroupNumbers> chosen(uint32_t content) const;
    void close_nodes(uint32_t content);
    [[nodiscard]] bool have_room_for(uint32_t content, uint64_t blocks) const;
    // Groups that are closed and hold nodes that can be moved.
    [[nodiscard]] std::set<VolumeAddress> node_groups() const;
    void try_all_groups();
    [[nodiscard]] bool is_stuck(const GroupNumbers& numbers) const;
    [[nodiscard]] bool stays(const GroupNumbers& numbers) const;
    void notice_end();
    [[nodiscard]] bool end_member(const BalanceRecord& record);
    CleanProgress move_data(uint64_t bytes);
    CleanProgress rest();
    // Also of one that is paused. Whether a group that it empties has only commits to wait for.
    bool count_left();
    void end_pass();

    Store& store_;
    EmptyGroups& empty_groups_;
    Cleaner& cleaner_;
    CommitOrders& orders_;
    mutable Mutex mutex_{LockRank::kLeaf};
    BalanceStatus status_ CW_GUARDED_BY(mutex_);
    uint64_t running_since_ms_ CW_GUARDED_BY(mutex_) = 0;  // by monotonic_ms()

    // Commit thread.
    std::optional<TransactionId> looked_;  // when it looked at groups last, this one was committed
    bool wants_moves_ = false;  // the next commit moves nodes
    bool no_room_for_moves_ = false;  // the last one that should could not
    NodePosition position_;
    bool found_any_ = false;  // nodes, since the search began at the first tree
    uint32_t empty_passes_ = 0;  // over all trees, that found none
};

}  // namespace cowraid
