// SPDX-License-Identifier: MIT
#include "fs/commit/background.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/large_memory.h"
#include "base/malloc_release.h"
#include "fs/commit/committer.h"
#include "fs/commit/memory_pace.h"
#include "fs/commit/retry_pace.h"
#include "fs/names/removal.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

// Memory reclaim must not wait for writes that this very thread carries out.
void prepare_thread(const char* name)
{
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);  // refused without privilege: then there is no such writeback
    pthread_setname_np(pthread_self(), name);
}

constexpr int kNiceOfBackground = 10;
// As <linux/ioprio.h> has them, of which some versions name a parameter "class" and are no C++.
constexpr int kIoprioWhoProcess = 1, kIoprioClassBestEffort = 2, kIoprioClassShift = 13;
constexpr int kLowestBestEffort = 7;

// Schedulers of processors, and of devices that know priorities, serve users first. Most locks that these
// threads share with users are held for moments. Not so stripes that are repaired or filled, and the gate
// meanwhile: who needs one of them waits for members at this priority.
void yield_to_users()
{
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceOfBackground);
    syscall(SYS_ioprio_set, kIoprioWhoProcess, 0,
            kIoprioClassBestEffort << kIoprioClassShift | kLowestBestEffort);
}

constexpr uint64_t kMicrosecondsPerMs = 1000;
// How often to look whether there is something to clean.
constexpr uint64_t kCleanLookUs = 2000 * kMicrosecondsPerMs;
// Between steps, however short they are: some only find out that they must wait.
constexpr uint64_t kCleanPauseUs = 10 * kMicrosecondsPerMs;
// The next commit when slots wait for it; superblocks that confirm the last one.
constexpr uint64_t kSoonUs = 200 * kMicrosecondsPerMs;
// How often to look whether a member has failed.
constexpr uint64_t kHealthLookMs = 1000;
// Without a change for so long the volume counts as idle.
constexpr uint64_t kIdleUs = 5000 * kMicrosecondsPerMs;
// What a step of a balance moves at most when nobody has changed anything for so long, and how long it should
// take at most: who writes next waits for it.
constexpr uint64_t kQuietUs = 1000 * kMicrosecondsPerMs;
constexpr uint64_t kQuietStepBytes = 16 * kMiB;
constexpr uint64_t kStepUs = 50 * kMicrosecondsPerMs;
// And while users wait: a turn of the budget.
uint64_t held_back_step_bytes(const Store& store)
{
    return WorkBudget::held_back_bytes(kMiB, store.volume.members().rotational());
}

// Where members answer at once, what a user waits for beside a step are all its requests together.
constexpr uint32_t kHeldBackDepth = 1;

template <typename Step> CleanProgress beside_users(const Store& store, Step step)
{
    if (!store.budget.holds_back() || store.volume.members().rotational())
        return step();
    const IoDepthScope scope(kHeldBackDepth);
    return step();
}

uint64_t clock_us()
{
    return monotonic_ns() / 1000;
}

uint64_t left_us(uint64_t now, uint64_t until)
{
    return until > now ? until - now : 0;
}

uint64_t first_pause_ms(const Committer& committer)
{
    return uint64_t{committer.store.options.retry_seconds} * 1000;
}

// When the cleaner takes its steps. It never makes a writer wait for more than one.
class CleanPace {
public:
    explicit CleanPace(Committer& committer) : committer_(committer) { }

    [[nodiscard]] uint64_t next_us() const { return next_us_; }
    void step();

private:
    bool idle(uint64_t now);
    void retry();
    bool balance(uint64_t begin);
    void work(uint64_t begin, bool is_idle, const CleanPressure& pressure);

    Committer& committer_;
    RetryPace retries_{first_pause_ms(committer_), monotonic_ms()};
    uint64_t next_us_ = clock_us() + kCleanLookUs;
    uint64_t last_change_ = 0;
    uint64_t changed_us_ = clock_us();
    uint64_t quiet_bytes_ = kQuietStepBytes;  // of the next such step
    uint64_t step_us_ = 0;  // what the last step of the cleaner took
};

bool CleanPace::idle(uint64_t now)
{
    if (const uint64_t change = committer_.store.changes.newest(); change != last_change_) {
        last_change_ = change;
        changed_us_ = now;
    }
    return now - changed_us_ >= kIdleUs;
}

void CleanPace::retry()
{
    Cleaner& cleaner = committer_.cleaner;
    retries_.step(
        monotonic_ms(), [&] { return cleaner.failed() || cleaner.emptying_blocks() > 0; },
        [&] { return cleaner.try_again(); });
}

// Somebody waits for its end: it has as much of the time as the budget says, and all of it, in larger steps,
// when nobody uses the volume.
bool CleanPace::balance(uint64_t begin)
{
    const bool is_quiet = !committer_.store.budget.holds_back();
    const bool is_large = is_quiet && begin - changed_us_ >= kQuietUs;
    const uint64_t small_bytes = is_quiet ? CleanPolicy::kStepBytes : held_back_step_bytes(committer_.store);
    const CleanProgress progress = beside_users(
        committer_.store, [&] { return committer_.balance.step(is_large ? quiet_bytes_ : small_bytes); });
    if (progress == CleanProgress::kNothing)
        return false;
    if (is_large && progress == CleanProgress::kWorked)
        quiet_bytes_ = clock_us() - begin > kStepUs ? std::max(CleanPolicy::kStepBytes, quiet_bytes_ / 2)
                                                    : std::min(kQuietStepBytes, quiet_bytes_ * 2);
    if (progress == CleanProgress::kNeedsCommit) {
        committer_.commit().ignore();  // an error has stopped the filesystem
        committer_.discards.choose();  // a group that leaves may have stripes that wait for that
    }
    next_us_ = clock_us() + (progress == CleanProgress::kNeedsCommit ? kCleanPauseUs : 0);
    return true;
}

void CleanPace::step()
{
    const uint64_t begin = clock_us();
    retry();
    const bool is_idle = idle(begin);
    const CleanPressure pressure = committer_.cleaner.pressure(is_idle);
    WorkBudget& budget = committer_.store.budget;
    const bool balances = committer_.balance.status().state == BalanceStatus::State::kRunning;
    const bool urgent = CleanPolicy::urgency(pressure) > 0 && !balances;
    const uint64_t pause_ns = urgent ? budget.begin_urgent_turn(monotonic_ns())  // writers need the stripes
                                     : budget.begin_turn(BackgroundWork::kMove, monotonic_ns());
    if (pause_ns > 0) {
        next_us_ = begin + std::min(pause_ns, ForegroundLoad::kQuietNs) / 1000 + 1;
        return;
    }
    next_us_ = begin + kCleanLookUs;
    work(begin, is_idle, pressure);
    if (urgent)
        budget.end_urgent_turn(monotonic_ns());
    else
        budget.end_turn(BackgroundWork::kMove, monotonic_ns());
}

void CleanPace::work(uint64_t begin, bool is_idle, const CleanPressure& pressure)
{
    if (balance(begin))
        return;
    // While writers wait, only where they will soon wait for stripes; the pauses bound its share then.
    if (committer_.store.wants_flush() && CleanPolicy::urgency(pressure) == 0)
        return;
    const CleanWhen when = committer_.store.live.clean ? CleanWhen::kPolicy : CleanWhen::kMarked;
    // Where members seek only steps that take long are shortened: most of a short one is seeking.
    const bool is_quick = step_us_ <= kCleanPauseUs && committer_.store.volume.members().rotational();
    const uint64_t bytes = committer_.store.budget.holds_back() && !is_quick
                               ? held_back_step_bytes(committer_.store)
                               : CleanPolicy::kStepBytes;
    const auto step = [&] {
        return committer_.cleaner.step({.when = when, .idle = is_idle, .bytes = bytes});
    };
    // Who writes waits for the stripes of an urgent one.
    const bool urgent = CleanPolicy::urgency(pressure) > 0;
    const CleanProgress progress = urgent ? step() : beside_users(committer_.store, step);
    if (progress == CleanProgress::kNothing)
        return;
    // Where space is short nobody waits for the next commit by the clock.
    if (progress == CleanProgress::kNeedsCommit) {
        if (!urgent)
            return;
        committer_.commit().ignore();  // an error has stopped the filesystem
        committer_.discards.choose();
    }
    const uint64_t end = clock_us();
    step_us_ = end - begin;
    next_us_ = end + std::max(kCleanPauseUs * bytes / CleanPolicy::kStepBytes,
                              CleanPolicy::pause_us(end - begin, pressure));
}

// When the last commit is confirmed: not at once, so that nobody who comes meanwhile waits for it.
class ConfirmPace {
public:
    explicit ConfirmPace(Committer& committer) : committer_(committer) { }

    [[nodiscard]] uint64_t next_us() const { return next_us_; }
    // After every round of work.
    void step();

private:
    Committer& committer_;
    uint64_t next_us_ = clock_us() + kSoonUs;
};

void ConfirmPace::step()
{
    const uint64_t now = clock_us();
    if (now >= next_us_)
        committer_.confirm().ignore();  // an error has stopped the filesystem
    if (committer_.store.service.stopped() || committer_.confirmed())
        next_us_ = UINT64_MAX;
    else if (next_us_ == UINT64_MAX || next_us_ <= now)
        next_us_ = now + kSoonUs;
}

}  // namespace

void* Background::commit_main(void* self)
{
    Committer& committer = static_cast<Background*>(self)->committer_;
    committer.store.volume.commit_thread().begin();
    prepare_thread("cowraid-commit");
    uint64_t committed_us = clock_us();
    bool soon = false;
    uint64_t last_change = committer.store.changes.newest();
    CleanPace pace(committer);
    ConfirmPace confirm(committer);
    MemoryPace memory(committer.store.options);
    while (true) {
        uint64_t now = clock_us();
        const uint64_t interval_us =
            soon ? kSoonUs : uint64_t{committer.store.live.commit_seconds} * 1000 * kMicrosecondsPerMs;
        const uint64_t commit_us = committed_us + interval_us;
        const uint64_t next_us = std::min({commit_us, pace.next_us(), confirm.next_us()});
        const uint64_t pause_us = left_us(now, next_us);
        const CommitQueue::Work work = committer.store.commits.sleep(divide_up(pause_us, kMicrosecondsPerMs));
        now = clock_us();
        const bool commit = work.commit || now >= commit_us;
        // Errors have stopped the filesystem and are logged; waiters got them.
        if (commit)
            committer.commit().ignore();
        else if (work.flush)
            committer.flush().ignore();
        if (work.stop)
            return nullptr;
        if (commit) {
            large_trim();
            // What is free between two bursts is for the next one, unless none comes.
            const uint64_t change = committer.store.changes.newest();
            if (std::exchange(last_change, change) == change)
                malloc_release();
            committer.empty_groups.step();
            committer.discards.choose();
            committer.scrub.note_commit();
            committed_us = clock_us();
            soon = committer.store.service.writing() && committer.empty_groups.wants_commit();
        } else {
            memory.step();  // twice in a row a trim gives back all that is free
        }
        if (clock_us() >= pace.next_us())
            pace.step();
        confirm.step();
    }
}

namespace {

// Nodes of what was removed are free after a commit. Where data may have their slots it does not wait for the
// clock.
void commit_removed(Committer& committer)
{
    constexpr uint64_t kWorthACommit = kMiB;
    const uint64_t metadata = committer.store.allocator.numbers(kGroupMetadata).total_blocks;
    if (!committer.names.removals.empty() || committer.names.removed_bytes < kWorthACommit ||
        metadata <= committer.store.volume.metadata_kept_blocks(kGroupMetadata))
        return;
    committer.names.removed_bytes = 0;
    committer.store.commits.request_commit();
}

}  // namespace

void* Background::removal_main(void* self)
{
    Committer& committer = static_cast<Background*>(self)->committer_;
    prepare_thread("cowraid-remove");
    InodeNumber inode;
    while (committer.names.removals.pop(inode)) {
        remove_inode(committer.names, inode).ignore();  // its orphan item stays: it is tried again
        commit_removed(committer);
    }
    return nullptr;
}

void* Background::scrub_main(void* self)
{
    Committer& committer = static_cast<Background*>(self)->committer_;
    prepare_thread("cowraid-scrub");
    yield_to_users();
    while (committer.scrub.wait()) {
        if (!committer.scrub.mend_freed())
            committer.scrub.step();
    }
    return nullptr;
}

void* Background::catch_up_main(void* self)
{
    Committer& committer = static_cast<Background*>(self)->committer_;
    prepare_thread("cowraid-catchup");
    yield_to_users();
    while (committer.catch_up.wait())
        committer.catch_up.step();
    return nullptr;
}

void* Background::discard_main(void* self)
{
    Committer& committer = static_cast<Background*>(self)->committer_;
    prepare_thread("cowraid-discard");
    yield_to_users();
    while (committer.discards.wait())
        while (committer.discards.step())
            continue;
    return nullptr;
}

// Not the commit thread, which may wait for the very member.
void* Background::health_main(void* self)
{
    auto& background = *static_cast<Background*>(self);
    Committer& committer = background.committer_;
    prepare_thread("cowraid-health");
    RetryPace fills(first_pause_ms(committer), monotonic_ms());
    RetryPace removals(first_pause_ms(committer), monotonic_ms());
    MemoryPace memory(committer.store.options);  // a flush may take longer
    while (true) {
        {
            MutexLock lock(background.stop_mutex_);
            if (!background.stopping_)
                background.stop_.wait_for(background.stop_mutex_, kHealthLookMs);
            if (background.stopping_)
                return nullptr;
        }
        memory.step();
        fills.step(
            monotonic_ms(), [&] { return committer.catch_up.has_scope(); },
            [&] { return committer.catch_up.start({}); });
        RemovalQueue& removing = committer.names.removals;
        removals.step(
            monotonic_ms(), [&] { return !removing.all_done(); }, [&] { return removing.retry(); });
        committer.store.volume.members().spend_slow_ios();
        // With a spare at hand a doubtful member is copied.
        committer.use_spares();
        if (committer.fail_over_budget())
            committer.store.commits.request_commit();  // what skips it is acknowledged after that
    }
}

void* Background::replace_main(void* self)
{
    Committer& committer = static_cast<Background*>(self)->committer_;
    prepare_thread("cowraid-replace");
    while (committer.replace.wait())
        while (committer.replace.step())
            continue;
    return nullptr;
}

void* Background::copy_main(void* self)
{
    Committer& committer = static_cast<Background*>(self)->committer_;
    prepare_thread("cowraid-copy");
    while (committer.replace.help())
        continue;
    return nullptr;
}

Status Background::start_threads()
{
    CW_TRY(commit_thread_.start(commit_main, this));
    CW_TRY(removal_thread_.start(removal_main, this));
    CW_TRY(discard_thread_.start(discard_main, this));
    for (Thread& thread : scrub_threads_)
        CW_TRY(thread.start(scrub_main, this));
    for (Thread& thread : catch_up_threads_)
        CW_TRY(thread.start(catch_up_main, this));
    CW_TRY(health_thread_.start(health_main, this));
    CW_TRY(replace_thread_.start(replace_main, this));
    return copy_thread_.start(copy_main, this);
}

Status Background::start()
{
    running_ = true;
    {
        MutexLock lock(stop_mutex_);
        stopping_ = false;
    }
    committer_.writing_since_ms = monotonic_ms();
    committer_.names.removals.start();
    committer_.discards.allow();
    committer_.scrub.allow();
    committer_.catch_up.allow();
    committer_.replace.allow();
    committer_.store.volume.members().stop_waiting(false);
    // Members that were away, or failed, are there again: as soon as it is mounted.
    committer_.catch_up.cancel().ignore();  // from before a remount
    committer_.catch_up.start({}).ignore();  // mostly there is nothing
    const Status started = start_threads();
    if (!started.ok())
        stop();
    return started;
}

void Background::stop()
{
    if (!running_)
        return;
    running_ = false;
    {
        MutexLock lock(stop_mutex_);
        stopping_ = true;
        stop_.notify_all();
    }
    health_thread_.join();
    committer_.scrub.stop();
    committer_.catch_up.stop();
    committer_.replace.stop();
    committer_.store.volume.members().stop_waiting(true);  // their steps end
    replace_thread_.join();
    copy_thread_.join();
    for (Thread& thread : catch_up_threads_)
        thread.join();
    for (Thread& thread : scrub_threads_)
        thread.join();
    committer_.names.removals.stop();
    removal_thread_.join();
    committer_.discards.stop();
    discard_thread_.join();
    if (commit_thread_.started()) {
        committer_.store.commits.request_stop();
        commit_thread_.join();
        committer_.store.volume.commit_thread().end();
    }
    committer_.discards.finish();
}

}  // namespace cowraid
