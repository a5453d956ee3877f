// SPDX-License-Identifier: MIT
#include "fs/maintain/scrub.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/log_count.h"
#include "fs/maintain/damaged_files.h"
#include "fs/maintain/scrub_heads.h"

namespace cowraid {

namespace {

uint64_t now_seconds()
{
    return static_cast<uint64_t>(std::time(nullptr));
}

unsigned long long as_ull(uint64_t value)
{
    return value;
}

void append_addresses(const std::vector<VolumeAddress>& more, std::vector<VolumeAddress>& out)
{
    const size_t room = kScrubAddressesMax - std::min(kScrubAddressesMax, out.size());
    out.insert(out.end(), more.begin(),
               more.begin() + static_cast<ptrdiff_t>(std::min<size_t>(room, more.size())));
}

void log_end(ScrubScope scope, const ScrubStatus& status)
{
    constexpr const char* kWork[] = {"scrub", "catching up", "copying a member"};
    log_message(status.damaged() ? LogLevel::kError : LogLevel::kInfo,
                "%s %s: %llu blocks repaired, %llu not, %llu lost, %llu tree nodes unreadable",
                kWork[static_cast<size_t>(scope)], scrub_state_name(status.state), as_ull(status.repaired),
                as_ull(status.unrepaired), as_ull(status.lost), as_ull(status.unreadable_nodes));
}

}  // namespace

const char* scrub_state_name(ScrubState state)
{
    constexpr const char* kNames[] = {"none", "running", "paused", "finished", "cancelled"};
    return kNames[static_cast<size_t>(state)];
}

const char* scrub_plan_name(ScrubOptions::Plan plan)
{
    constexpr const char* kNames[] = {"full", "percent", "new", "bad"};
    return kNames[static_cast<size_t>(plan)];
}

bool parse_scrub_plan(std::string_view name, ScrubOptions::Plan& plan)
{
    using Plan = ScrubOptions::Plan;
    for (const Plan one : {Plan::kFull, Plan::kPercent, Plan::kNew, Plan::kBad})
        if (name == scrub_plan_name(one)) {
            plan = one;
            return true;
        }
    return false;
}

Scrub::Scrub(Store& store, CommitOrders& orders, ScrubScope scope)
    : store_(store), orders_(orders), scope_(scope), pass_id_(store.damage.begin_pass())
{
    MutexLock lock(mutex_);
    if (scope == ScrubScope::kAll)
        load(store.volume.superblock().scrub);
}

namespace {

ScrubSelection selection_for(Store& store, ScrubScope scope, const ScrubOptions& options)
{
    ScrubSelection selection{.new_only = options.plan == ScrubOptions::Plan::kNew,
                             .damaged_only = options.plan == ScrubOptions::Plan::kBad};
    if (options.plan == ScrubOptions::Plan::kPercent)
        selection.bytes_max = bytes_of_percent(store, options.percent);
    selection.as_it_is = options.as_it_is;
    selection.first = order_by_margin(store, scope);
    if (options.older_than > 0) {
        const uint64_t now = now_seconds();
        selection.verified_before = std::max<uint64_t>(1, now - std::min(now, options.older_than));
    }
    return selection;
}

}  // namespace

Status Scrub::start(const ScrubOptions& options)
{
    return start_pass(options, false);
}

// Those that are not good again, or freed.
std::set<VolumeAddress> Scrub::settled_blocks() const
{
    std::set<VolumeAddress> blocks;
    {
        MutexLock lock(mutex_);
        blocks = settled_.blocks;
    }
    std::erase_if(blocks, [&](VolumeAddress at) { return !store_.damage.touches(at, at + kBlockBytes); });
    return blocks;
}

Status Scrub::nothing_to_do()
{
    MutexLock lock(mutex_);
    settled_ = {};
    return Err::kNotFound;
}

bool Scrub::has_scope() const
{
    const Groups groups = store_.volume.array().groups();
    return scope_ == ScrubScope::kAll ||
           std::any_of(groups.begin(), groups.end(),
                       [&](const Ref<const ArrayGroup>& group) { return in_scope(store_, scope_, *group); });
}

// `goes_on`: with what the pass before it left.
Status Scrub::start_pass(const ScrubOptions& options, bool goes_on)
{
    CW_TRY(store_.service.check_writable());
    if (!has_scope())
        return nothing_to_do();
    const ScrubSelection selection = selection_for(store_, scope_, options);
    const uint64_t bytes = scrub_bytes(store_, scope_, selection);
    std::set<VolumeAddress> settled = settled_blocks();
    const uint64_t pass_id = store_.damage.begin_pass();
    {
        MutexLock lock(mutex_);
        if (status_.state == ScrubState::kRunning || status_.state == ScrubState::kPaused)
            return Err::kBusy;
        const uint64_t earlier = std::max(status_.earlier_unrepaired, status_.unrepaired);
        if (status_.state == ScrubState::kFinished && !goes_on)
            settled_ = {};
        else
            settled_.blocks = std::move(settled);
        settled_before_ = settled_.blocks;
        before_ = status_;
        if (scope_ != ScrubScope::kStale || !options.as_it_is) {
            status_ = {};
            status_.lost = settled_.blocks.size();
            append_addresses({settled_.blocks.begin(), settled_.blocks.end()}, status_.lost_addresses);
        }
        status_.unreadable_nodes = 0;  // else it is the rest of the pass that ended, and meets them again
        status_.earlier_unrepaired = earlier;
        status_.options = options;
        status_.number = ++begun_;
        status_.started = now_seconds();
        status_.ended = 0;
        status_.bytes_total = status_.bytes_done + bytes;
        begin_position(selection);
        pass_id_ = pass_id;
        bytes_begun_ = 0;
        unreached_ = false;
        passes_.clear();
        ++number_;
        enter_running();
    }
    store_.commits.request_commit();
    return {};
}

Status Scrub::pause()
{
    {
        MutexLock lock(mutex_);
        if (status_.state != ScrubState::kRunning)
            return Err::kInvalid;
        leave_running(ScrubState::kPaused);
    }
    store_.commits.request_commit();
    return {};
}

Status Scrub::resume()
{
    CW_TRY(store_.service.check_writable());
    {
        MutexLock lock(mutex_);
        if (status_.state != ScrubState::kPaused)
            return Err::kInvalid;
        enter_running();
    }
    store_.commits.request_commit();
    return {};
}

Status Scrub::cancel()
{
    {
        MutexLock lock(mutex_);
        if (status_.state != ScrubState::kRunning && status_.state != ScrubState::kPaused)
            return Err::kInvalid;
        if (const ScrubPosition& at = durable_position(); selection_.bytes_max > 0 && !at.rows_done)
            position_.round = at.group;
        end(ScrubState::kCancelled);
    }
    store_.commits.request_commit();
    return {};
}

void Scrub::end(ScrubState state)
{
    leave_running(state);
    status_.ended = now_seconds();
    ++number_;
    issued_.clear();
    changed_.notify_all();
}

void Scrub::enter_running()
{
    status_.state = ScrubState::kRunning;
    if (scope_ == ScrubScope::kStale)
        store_.volume.array().set_filling(true);
    since_ms_ = monotonic_ms();
    changed_.notify_all();
}

void Scrub::leave_running(ScrubState state)
{
    status_.run_ms = run_ms();
    if (scope_ == ScrubScope::kStale)
        store_.volume.array().set_filling(false);
    status_.state = state;
    changed_.notify_all();
}

uint64_t Scrub::run_ms() const
{
    const bool runs = status_.state == ScrubState::kRunning && !stopped_;
    return status_.run_ms + (runs ? monotonic_ms() - since_ms_ : 0);
}

ScrubStatus Scrub::status(ScrubStatus* before) const
{
    MutexLock lock(mutex_);
    if (before != nullptr)
        *before = before_;
    ScrubStatus status = status_;
    status.run_ms = run_ms();
    // What came meanwhile is read, too; what went is not.
    const bool finished = status.state == ScrubState::kFinished;
    status.bytes_total = finished ? status.bytes_done : std::max(status.bytes_total, status.bytes_done);
    status.listed_now = store_.damage.block_count();
    status.held_back = status.state == ScrubState::kRunning && store_.budget.holds_back();
    // The next mount that may write goes on with it.
    if (status.state == ScrubState::kRunning && !store_.service.writing())
        status.state = ScrubState::kPaused;
    return status;
}

void Scrub::add(const ScrubReport& report, const ScrubWalkCounts& counts)
{
    status_.bytes_done += (report.data_blocks + report.parity_blocks) * kBlockBytes + counts.head_bytes;
    status_.data_blocks += report.data_blocks;
    status_.parity_blocks += report.parity_blocks;
    status_.nodes += counts.nodes;
    status_.heads += counts.heads;
    status_.repaired += report.repaired;
    status_.unrepaired += report.unrepaired;
    status_.unverified += report.unverified;
    status_.adopted += report.adopted;
    std::vector<VolumeAddress> lost;
    for (const VolumeAddress address : report.lost)
        if (!settled_before_.contains(address))
            lost.push_back(address);
    status_.lost += lost.size();
    status_.unreadable_nodes += counts.unreadable_nodes;
    status_.members += report.members;
    for (const auto& [member, blocks] : report.lost_on)
        status_.lost_on[member] += blocks;
    unreached_ = unreached_ || counts.unreached;
    append_addresses(lost, status_.lost_addresses);
}

namespace {

// Members in service, and how often each came into service. Taken before the view that a pass reads by: what
// one lacks that comes later is in no such view.
using Arrivals = std::map<MemberId, uint64_t>;

Arrivals arrivals_of(const MemberSet& members)
{
    Arrivals arrivals;
    for (const MemberId id : members.ids())
        if (const uint64_t count = members.arrivals(id); members.device(id) != nullptr)
            arrivals[id] = count;
    return arrivals;
}

// Those that a pass can write to. Of a copy the target's, which has none in the map yet.
void add_columns(Store& store, ScrubScope scope, const Arrivals& arrivals, const ArrayGroup& whole,
                 std::vector<StaleColumn>& out)
{
    const GroupRecord& group = whole.record;
    if (scope == ScrubScope::kReplaced) {
        // One of the two that comes into service meanwhile makes a difference.
        const ReplaceRecord replace = store.volume.replacing();
        const auto from = arrivals.find(replace.source), to = arrivals.find(replace.target);
        if (from != arrivals.end() && to != arrivals.end() && in_scope(store, scope, whole))
            out.push_back({group.address, replace.target, {}, from->second + to->second});
        return;
    }
    for (const GroupColumn& column : group.columns)
        if (const auto at = arrivals.find(column.member); column.stale() && at != arrivals.end())
            out.push_back({group.address, column.member, column.stale_since, at->second});
}

constexpr VolumeAddress kNodesOfAllGroups{0};

}  // namespace

namespace {

std::vector<StaleColumn> node_columns(Store& store, ScrubScope scope, const Arrivals& arrivals)
{
    std::vector<StaleColumn> columns;
    for (const Ref<const ArrayGroup>& group : store.volume.array().groups())
        if (has_mirrored_nodes(*group))
            add_columns(store, scope, arrivals, *group, columns);
    return columns;
}

// Of columns that hold nothing else (Array::fill_copies()).
void erase_partly_stale(Store& store, std::vector<StaleColumn>& columns)
{
    std::erase_if(columns, [&](const StaleColumn& column) {
        const Ref<const ArrayGroup> group = store.volume.array().group_at(column.group);
        return !group || column.since > group->record.created_generation;
    });
}

bool has_empty_node_columns(Store& store)
{
    std::vector<StaleColumn> columns =
        node_columns(store, ScrubScope::kStale, arrivals_of(store.volume.members()));
    erase_partly_stale(store, columns);
    return !columns.empty();
}

}  // namespace

void Scrub::note_begun(Step& step, const ScrubPosition& before, const ScrubPosition& after)
{
    const bool nodes = before.in_trees();
    if (!nodes && !step.piece.group)
        return;
    step.pass = nodes ? kNodesOfAllGroups : step.piece.group->record.address;
    Pass& pass = passes_[*step.pass];
    if (nodes ? before.at_begin() : step.piece.first) {
        pass.begun = true;
        pass.seconds = now_seconds();
        pass.columns = step.columns;
    }
    pass.issued = nodes ? !after.in_trees() : step.piece.last;
    ++pass.steps;
}

void Scrub::note_finished(Step& step, std::vector<StaleColumn>& current)
{
    const auto at = step.pass ? passes_.find(*step.pass) : passes_.end();
    if (at == passes_.end())
        return;
    Pass& pass = at->second;
    --pass.steps;
    pass.failed = pass.failed || step.failed();
    pass.incomplete = pass.incomplete || step.incomplete();
    pass.lost.insert(pass.lost.end(), step.report.lost.begin(), step.report.lost.end());
    pass.lost_nodes.insert(pass.lost_nodes.end(), step.counts.lost_nodes.begin(),
                           step.counts.lost_nodes.end());
    // A source takes what is not listed with it, whenever it leaves.
    pass.incomplete = pass.incomplete || (scope_ != ScrubScope::kReplaced &&
                                          pass.lost.size() + pass.lost_nodes.size() > DamageList::kRunsMax);
    pass.unverified = pass.unverified || step.report.unsettled + step.report.unverified > 0;
    if (!pass.complete())
        return;
    if (!pass.incomplete && step.order.mode == ScrubMode::kRepair) {
        // Copying records nothing.
        const bool lossy = pass.lost.size() + pass.lost_nodes.size() > 0;
        (scope_ == ScrubScope::kReplaced && !lossy ? current : step.waiting).swap(pass.columns);
        step.lost.swap(pass.lost);
        step.lost_nodes.swap(pass.lost_nodes);
    }
    if (!pass.failed && !pass.unverified && scope_ == ScrubScope::kAll)
        verified_.push_back({*step.pass, pass.seconds});
    passes_.erase(at);
}

// A limit is kept in steps of a fraction of a second.
ScrubOrder Scrub::order() const
{
    ScrubOrder order{
        .mode = status_.options.mode, .scope = scope_, .selection = selection_, .bytes_begun = bytes_begun_};
    if (status_.options.limit > 0)
        order.piece_bytes = std::clamp(status_.options.limit / 16, kMiB, order.piece_bytes);
    if (store_.budget.holds_back())  // a turn for each of its reads
        order.piece_bytes = WorkBudget::held_back_bytes(kHeldBackBytes, store_.volume.members().rotational());
    return order;
}

// Nodes are verified, and written over what was copied as it was.
void Scrub::await_rows(const Step& step, const ScrubPosition& before, const ScrubPosition& after)
{
    MutexLock lock(mutex_);
    while (after.mirrors_done && !before.mirrors_done && step.number == number_ && !issued_.empty())
        changed_.wait(mutex_);
}

// Finds the next piece. False: there is no scrub to be brought on, or all of it is under way.
bool Scrub::begin(Step& step, WorkTurns& turns)
{
    MutexLock walk(walk_mutex_);
    ScrubPosition before;
    {
        MutexLock lock(mutex_);
        if (status_.state != ScrubState::kRunning || position_.done)
            return false;
        before = position_;
        step.order = order();
        step.number = number_;
        step.started = status_.started;
        step.pass_id = pass_id_;
    }
    ScrubPosition position = before;
    const Arrivals arrivals = arrivals_of(store_.volume.members());
    if (before.at_begin())
        step.columns = node_columns(store_, scope_, arrivals);
    if (before.at_begin() && scope_ == ScrubScope::kStale && step.order.selection.as_it_is)
        erase_partly_stale(store_, step.columns);
    if (!next_piece(store_, step.order, position, step.piece, turns, step.report, step.counts).ok())
        ++step.counts.unreadable_nodes;
    if (step.piece.group && !before.in_trees())
        add_columns(store_, scope_, arrivals, *step.piece.group, step.columns);
    // One that came into service since the piece was chosen.
    std::erase_if(step.columns, [&](const StaleColumn& column) { return column.since < step.piece.since; });
    await_rows(step, before, position);
    MutexLock lock(mutex_);
    if (step.number != number_)
        return true;
    position_ = position;
    step.last = position.done;
    bytes_begun_ += step.piece.bytes;
    note_begun(step, before, position);
    status_.bytes_total -= std::min(status_.bytes_total, step.piece.blocks.left_out_bytes);
    step.sequence = ++sequence_;
    issued_.emplace(step.sequence,
                    Issued{.before = before, .bytes = step.piece.bytes, .report = {}, .counts = {}});
    return true;
}

// True: it was the last step of the scrub, which ended so.
bool Scrub::finish(Step& step, ScrubStatus& ended, std::vector<StaleColumn>& current)
{
    MutexLock lock(mutex_);
    if (step.number != number_)
        return false;
    note_finished(step, current);
    settling_ += step.waiting.empty() ? 0 : 1;
    Issued& own = issued_.at(step.sequence);
    own.ended = true;
    own.report = std::move(step.report);
    own.counts = step.counts;
    for (auto first = issued_.begin(); first != issued_.end() && first->second.ended;
         first = issued_.erase(first))
        add(first->second.report, first->second.counts);
    changed_.notify_all();
    if (!position_.done || !issued_.empty())
        return false;
    end(ScrubState::kFinished);
    status_.unreadable_nodes = std::max<uint64_t>(status_.unreadable_nodes, settled_.nodes.size());
    if (selection_.takes_all() && status_.unverified == 0 && !unreached_)
        status_.earlier_unrepaired = 0;
    // Errors that pass had a pass.
    begins_as_it_is_.store(scope_ == ScrubScope::kStale && unreached_ && !selection_.as_it_is);
    ended = status_;
    return true;
}

// Asked to stop, it left something of its piece out. Who goes on begins where a mount would.
void Scrub::give_back(const Step& step)
{
    MutexLock lock(mutex_);
    if (step.number != number_)
        return;
    const ScrubRecord now = record();
    ++number_;
    issued_.clear();
    passes_.clear();
    load(now);
    changed_.notify_all();
}

// Nodes that none of its steps met are in no tree.
bool Scrub::saw_all_nodes() const
{
    MutexLock lock(mutex_);
    return !unreached_ && !passes_.contains(kNodesOfAllGroups);
}

bool Scrub::step()
{
    Step step;
    WorkTurns turns(store_.budget, work_of(scope_), store_.volume.members().rotational());
    if (!begin(step, turns))
        return false;
    if (step.piece.head)
        scrub_head(store_, orders_, *step.piece.head, step.order.mode, turns, step.report, step.counts);
    else if (step.piece.group && !step.piece.blocks.rows.empty())
        scrub_rows(store_, step.order, step.piece, turns, step.report);
    turns.pause();
    // Heads are looked at between commits, of which there are none now.
    const bool no_commits = step.piece.head && !store_.service.writing();
    if (step.report.given_up || no_commits) {
        give_back(step);
        return true;
    }
    // While nobody else can have these places.
    note_lost(step);
    step.piece.view = {};  // what follows may take long
    const bool rechecks = step.last && scope_ == ScrubScope::kAll && step.order.mode == ScrubMode::kRepair;
    if (rechecks && !recheck_damage(step, turns)) {
        give_back(step);
        return true;
    }
    ScrubStatus ended;
    std::vector<StaleColumn> current;
    const bool was_last = finish(step, ended, current);
    settle_waiting(step, turns);
    if (was_last) {
        log_end(scope_, ended);
        store_.commits.request_commit();
        const bool as_it_is = begins_as_it_is_.exchange(false);
        if (as_it_is && !begins_again_.load() && has_empty_node_columns(store_))
            start_pass({.as_it_is = true}, true).ignore();
    }
    // Who settles last may not be who took the last step.
    if (status().state == ScrubState::kFinished && begins_again_.exchange(false))
        start_pass({}, true).ignore();
    if (!current.empty()) {
        store_.volume.caught_up(std::move(current));
        store_.commits.request_commit();
    }
    return true;
}

namespace {

// The last transaction that may hold what was recorded so far.
TransactionId last_recorded(const View& view)
{
    if (view.open->dirty)
        return view.open->id;
    return view.committing ? view.committing->id : view.committed->transaction;
}

}  // namespace

// Errors may have passed meanwhile: then more can be had, and filling, or copying, begins again. A scrub of
// all leaves that to the next one. What is copied as it is stays as it is, and is listed.
void Scrub::settle_waiting(Step& step, WorkTurns& turns)
{
    if (step.waiting.empty())
        return;
    const bool as_it_is = scope_ == ScrubScope::kReplaced && step.order.selection.as_it_is;
    const bool for_good = as_it_is || are_lost(step, turns);
    if (!for_good && scope_ == ScrubScope::kStale)
        begins_again_.store(true);
    const TransactionId recorded = last_recorded(store_.timeline.view());
    const bool lossy = !(step.lost.empty() && step.lost_nodes.empty());
    {
        MutexLock lock(mutex_);
        --settling_;
        if (!for_good)
            return;
        waiting_.push_back({recorded, lossy, std::move(step.waiting)});
        if (scope_ == ScrubScope::kStale && settled_.blocks.size() < DamageList::kRunsMax) {
            settled_.blocks.insert(step.lost.begin(), step.lost.end());
            for (const BlockRef& node : step.lost_nodes)
                settled_.nodes.insert(node.address);
        }
    }
    store_.commits.request_commit();
}

bool Scrub::has_waiting() const
{
    MutexLock lock(mutex_);
    return settling_ > 0 || !waiting_.empty();
}

bool Scrub::hand_over_waiting()
{
    const TransactionId durable = store_.timeline.view().committed->transaction;
    std::vector<Waiting> ready;
    {
        MutexLock lock(mutex_);
        const auto first = std::stable_partition(waiting_.begin(), waiting_.end(),
                                                 [&](const Waiting& one) { return one.recorded > durable; });
        ready.assign(std::make_move_iterator(first), std::make_move_iterator(waiting_.end()));
        waiting_.erase(first, waiting_.end());
    }
    if (ready.empty())
        return false;
    // What they lack was noted before they were, and what changed the list before was committed since.
    const bool full = store_.damage.full(), listed = !store_.damage.changed();
    std::vector<StaleColumn> columns;
    for (Waiting& one : ready) {
        // Whether the source of a copy stays is not for the list to say.
        const bool waits = scope_ != ScrubScope::kReplaced || !full;
        if (one.lossy && full && waits) {
            store_.damage.retry();  // for a later pass, which comes when the list may be whole
        } else if (one.lossy && !listed && waits) {
            MutexLock lock(mutex_);
            waiting_.push_back(std::move(one));
        } else {
            columns.insert(columns.end(), one.columns.begin(), one.columns.end());
        }
    }
    if (columns.empty())
        return false;
    store_.volume.caught_up(std::move(columns));
    return true;
}

// How long what was begun so far should take: what other threads have under way counts, too.
uint64_t Scrub::due_ms() const
{
    uint64_t bytes = status_.bytes_done;
    for (const auto& [sequence, issued] : issued_)
        bytes += issued.bytes;
    return status_.options.limit == 0 ? 0 : bytes * 1000 / status_.options.limit;
}

bool Scrub::wait()
{
    MutexLock lock(mutex_);
    while (!stopped_) {
        if (std::exchange(may_mend_, false))
            return true;
        // One that becomes read-only ends its threads, and one that has stopped is unmounted next.
        if (status_.state != ScrubState::kRunning || position_.done || !store_.service.writing())
            changed_.wait(mutex_);
        else if (const uint64_t due = due_ms(), run = run_ms(); run < due)
            changed_.wait_for(mutex_, due - run);
        else
            return true;
    }
    return false;
}

void Scrub::note_commit()
{
    if (!store_.damage.awaits_mend())
        return;
    MutexLock lock(mutex_);
    may_mend_ = true;
    changed_.notify_all();
}

void Scrub::stop()
{
    MutexLock lock(mutex_);
    status_.run_ms = run_ms();
    stopped_ = true;
    changed_.notify_all();
}

void Scrub::allow()
{
    MutexLock lock(mutex_);
    stopped_ = false;
    since_ms_ = monotonic_ms();
}

}  // namespace cowraid
