// SPDX-License-Identifier: MIT
#include "tests/crash/crash_replay.h"

#include <algorithm>
#include <climits>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/assert.h"
#include "base/checksum.h"
#include "format/items.h"
#include "sim/recording_device.h"
#include "sim/replay.h"
#include "tests/crash/mutant_device.h"
#include "tests/crash/orders.h"
#include "tests/crash/subsets.h"
#include "tests/crash/workload.h"
#include "tests/support/mutant_scope.h"
#include "tests/support/recorded.h"

namespace cowraid::test {

namespace {

// Up to this many undetermined writes, all subsets are tried.
constexpr uint32_t kExhaustiveWrites = 12;
constexpr uint32_t kRandomSubsets = 24;

// Each choice of writes is tried without losses and with some of the losses in turn.
constexpr uint32_t kLossesInTurn = 2;
constexpr uint32_t kStatesOfChoice = 1 + kLossesInTurn;

// The commit that fills most of the volume, and so needs new block groups.
constexpr uint32_t kGrowingCommit = 5;

// The member that is away meanwhile, by index, where members return.
constexpr uint32_t kReturning = 1;

// Members lost before recovery and after it, by index.
struct Losses {
    std::vector<uint32_t> before;
    std::vector<uint32_t> after;
};

// Adds members from `next` on to the losses so far, up to `left` more; each is lost before or after.
void add_losses(uint32_t member_count, uint32_t next, uint32_t left, const Losses& so_far,
                std::vector<Losses>& out)
{
    out.push_back(so_far);
    for (uint32_t member = next; left > 0 && member < member_count; ++member)
        for (const bool before : {true, false}) {
            Losses more = so_far;
            (before ? more.before : more.after).push_back(member);
            add_losses(member_count, member + 1, left - 1, more, out);
        }
}

// None first.
std::vector<Losses> all_losses(uint32_t member_count, uint32_t tolerance)
{
    std::vector<Losses> losses;
    add_losses(member_count, 0, tolerance, {}, losses);
    return losses;
}

bool is_set(const std::vector<bool>& by_snapshot, size_t snapshot)
{
    return snapshot < by_snapshot.size() && by_snapshot[snapshot];
}

class Replay final : public CommitWatcher {
public:
    explicit Replay(const CrashOptions& options) : options_(options), prng_(options.seed * 7919 + 1) { }

    CrashReport run();
    void committed_by_operation(DirectoryState state) override;

private:
    Status record();
    void acknowledge(const char* what);
    Result<std::unique_ptr<Filesystem>> open_recording(const std::vector<uint32_t>& absent);
    Status change_members(uint32_t commit, std::unique_ptr<Filesystem>& fs, Workload& workload);
    static Status order_member(Filesystem& fs, bool leaves, Workload& workload);
    void note_counts(Filesystem& fs);
    std::string return_members(std::vector<std::unique_ptr<ReplayDevice>>& devices, const Losses& losses,
                               size_t acknowledged);
    Status record_fsyncs(Filesystem& fs, Workload& workload);
    static void clean(Filesystem& fs);
    static bool trim_all(Filesystem& fs);
    std::string finish_scrub(Filesystem& fs, bool whole);
    std::string finish_orders(Filesystem& fs, bool whole, const DirectoryState& state);
    void spoil_ends(Filesystem& fs, std::vector<std::unique_ptr<ReplayDevice>>& devices);
    void try_instant(ReplayCursor& cursor, uint64_t instant, uint64_t budget);
    void try_state(ReplayCursor& cursor, const CrashChoice& choice, const Losses& losses);
    std::string recover(std::vector<std::unique_ptr<ReplayDevice>>& devices, const Losses& losses,
                        size_t acknowledged);
    std::string compare(std::vector<std::unique_ptr<ReplayDevice>>& devices,
                        const std::vector<uint32_t>& absent, bool writable, size_t acknowledged);
    std::string prove_refusal(std::vector<std::unique_ptr<ReplayDevice>>& devices,
                              const std::vector<uint32_t>& absent);
    std::string check(std::vector<std::unique_ptr<ReplayDevice>>& devices,
                      const std::vector<uint32_t>& absent);
    static std::vector<std::unique_ptr<BlockDevice>>
    borrow(std::vector<std::unique_ptr<ReplayDevice>>& devices, const std::vector<uint32_t>& absent);

    const CrashOptions options_;
    Prng prng_;
    std::optional<SimVolume> volume_;  // while the workload runs
    Recorder recorder_;
    Orders::Devices recorded_;  // its members
    std::optional<Orders> orders_;
    std::vector<std::set<uint64_t>> written_ends_;  // by device: blocks that the smallest member has not
    std::vector<DirectoryState> snapshots_;  // what commit or fsync number k made durable
    std::unordered_set<uint64_t> seen_;
    std::vector<Losses> losses_;
    size_t next_loss_ = 0;
    std::vector<uint32_t> tolerances_;  // by snapshot: members that may be lost as it is committed
    uint32_t tolerance_ = 0;  // in this state
    size_t left_at_ = SIZE_MAX;  // the first snapshot without the member that returns
    std::vector<bool> thin_;  // by snapshot: a member is out of service, or lacks something
    std::vector<bool> rotten_;  // by snapshot: blocks of a member may be bad
    bool may_be_refused_ = false;  // in this state too many members are lost
    std::vector<uint32_t> ever_away_;  // before this crash or during its recovery, by index
    bool mounted_for_writing_ = false;  // the last time
    CrashReport report_;
};

Result<std::unique_ptr<Filesystem>> Replay::open_recording(const std::vector<uint32_t>& absent)
{
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (uint32_t i = 0; i < recorded_.size(); ++i)
        if (std::find(absent.begin(), absent.end(), i) == absent.end())
            devices.push_back(std::make_unique<BorrowedDevice>(*recorded_[i]));
    MountOptions options = manual_options();
    options.join_above = options_.join_rows ? 0 : -1;
    options.compression = {.on = options_.compress, .level = 1};
    options.degraded = !absent.empty();
    options.spare_seconds = 0;
    options.discard = options_.discard ? DiscardMode::kAsync : DiscardMode::kOff;
    std::string why;
    Result<Assembly> assembly =
        assemble(std::move(devices), why, {.strangers = Strangers::kSkip, .named = {}});
    CW_ASSERT(assembly.ok());
    return Filesystem::open(assembly.take(), options, why);
}

void Replay::note_counts(Filesystem& fs)
{
    const VolumeInfo info = fs.info();
    report_.compressed_blocks += fs.files.compressed_blocks;
    report_.joined_blocks += info.joined_blocks;
    report_.checksum_commits += info.checksum_commits;
    report_.moved_blocks += info.moved_blocks;
    report_.emptied_groups += info.emptied_groups;
    report_.fsync_records += info.fsync_records;
    report_.discarded_bytes += info.discarded_bytes;
}

// A member leaves after a third of the commits, and is back for the last third.
Status Replay::change_members(uint32_t commit, std::unique_ptr<Filesystem>& fs, Workload& workload)
{
    const bool leaves = commit == options_.commits / 3;
    if (!options_.returning || (!leaves && commit != options_.commits / 3 * 2))
        return {};
    if (leaves)
        left_at_ = snapshots_.size();
    if (options_.by_order)
        return order_member(*fs, leaves, workload);
    note_counts(*fs);
    CW_TRY(fs->close());
    fs.reset();
    const std::vector<uint32_t> absent(leaves ? 1 : 0, kReturning);
    CW_ASSIGN(fs, open_recording(absent));
    return {};
}

// The order is a commit or two.
Status Replay::order_member(Filesystem& fs, bool leaves, Workload& workload)
{
    const MemberId member{kReturning + 1};
    std::string why;
    CW_TRY(leaves ? fs.committer.offline_member(member, why)
                  : fs.committer.online_member(member, nullptr, why).status());
    workload.note_commit();
    return {};
}

Status Replay::record()
{
    const MutantScope mutant(options_.mutant);
    std::string why;
    volume_.emplace(options_.shape);
    CW_ASSERT(volume_->make(why).ok());
    if (options_.change_members || options_.spares)
        volume_->add_device(options_.shape.member_bytes);
    for (uint32_t i = 0; i < volume_->member_count(); ++i) {
        SimDevice& member = volume_->member(i);
        auto recording =
            std::make_unique<RecordingDevice>(recorder_, std::make_unique<BorrowedDevice>(member));
        recorder_.set_start(recording->number(), member);
        recorded_.push_back(std::make_unique<FaultDevice>(
            std::make_unique<MutantDevice>(std::move(recording), options_.mutant, i == 0), i));
    }
    orders_.emplace(options_, prng_, recorded_, report_);
    CW_ASSIGN(std::unique_ptr<Filesystem> fs, open_recording({}));
    Workload workload(*fs, options_.seed, *this);
    workload.write_text(options_.compress);
    snapshots_.push_back({});
    acknowledge("mounted");
    for (uint32_t commit = 1; commit <= options_.commits; ++commit) {
        CW_TRY(change_members(commit, fs, workload));
        workload.use(*fs);
        CW_TRY(workload.change());
        if (commit == kGrowingCommit)
            CW_TRY(workload.grow(fs->statistics().available_blocks * kBlockBytes / 4 * 3));
        if (commit == kGrowingCommit + 1)
            CW_TRY(workload.shrink());
        if (options_.clean)
            clean(*fs);
        if (options_.catch_up)
            catch_up(*fs, 2);
        const bool failed_before = !orders_->failed().empty();
        const bool thin_before = options_.spares && orders_->thin(*fs);
        const bool rotten_before = orders_->rotten();
        CW_TRY(orders_->step(*fs, workload));
        const bool thin = thin_before || (options_.spares && orders_->thin(*fs));
        if (!failed_before && !orders_->failed().empty())
            left_at_ = snapshots_.size();
        snapshots_.push_back(workload.state());
        CW_TRY(fs->step(true));
        acknowledge("acknowledged");
        while (options_.discard && prng_.chance(2, 3) && fs->discard_step())
            continue;
        if (options_.scrub)
            CW_TRY(orders_->rot(*fs));
        if (prng_.chance(1, 3))
            CW_TRY(fs->confirm());
        CW_TRY(record_fsyncs(*fs, workload));
        thin_.resize(snapshots_.size(), thin);
        rotten_.resize(snapshots_.size(), rotten_before || orders_->rotten());
    }
    note_counts(*fs);
    fs.reset();
    recorded_.clear();
    volume_.reset();
    return {};
}

// The newest snapshot is durable.
void Replay::acknowledge(const char* what)
{
    recorder_.mark(snapshots_.size() - 1, what);
    tolerances_.push_back(tolerance_of(read_recorded(volume_->members())));
    const size_t count = tolerances_.size();
    report_.tolerance_changes += count > 1 && tolerances_[count - 1] != tolerances_[count - 2] ? 1 : 0;
}

void Replay::committed_by_operation(DirectoryState state)
{
    snapshots_.push_back(std::move(state));
    acknowledge("acknowledged by an operation that waited");
}

// As far as it goes before a commit.
void Replay::clean(Filesystem& fs)
{
    for (int step = 0; step < 4; ++step)
        if (fs.clean_step(CleanWhen::kAny) != CleanProgress::kWorked)
            return;
}

// What was rotten when it began is repaired, whether it began before the crash or not.
std::string Replay::finish_scrub(Filesystem& fs, bool whole)
{
    report_.resumed_scrubs += fs.committer.scrub.status().state == ScrubState::kRunning ? 1 : 0;
    for (const bool again : {false, true}) {
        ScrubStatus status = fs.scrub_step();
        while (status.state == ScrubState::kRunning)
            status = fs.scrub_step();
        if (status.damaged() || (whole && !status.all_well()))
            return "a scrub could not repair all";
        if (again && status.repaired > 0)
            return "a scrub left " + std::to_string(status.repaired) + " blocks to the next one";
        if (!fs.step(true).ok())
            return "the commit after a scrub failed";
    }
    return {};
}

struct Trimmed final : TrimCompletion {
    void done(Status status, uint64_t) override { ok = status.ok(), answered = true; }
    bool ok = false, answered = false;
};

bool Replay::trim_all(Filesystem& fs)
{
    Trimmed trimmed;
    fs.committer.discards.trim({}, &trimmed);
    for (int round = 0; round < 200 && !trimmed.answered; ++round) {
        if (!fs.step(true).ok())
            return false;
        while (fs.discard_step())
            continue;
    }
    return trimmed.ok;
}

// What recovery found goes on to its end, or as far as there is room. `whole`: no device is left out.
std::string Replay::finish_orders(Filesystem& fs, bool whole, const DirectoryState& state)
{
    if (options_.balance || options_.change_members || options_.resize)
        continue_balance(fs, 300, true);
    for (int step = 0; step < 300 && fs.replace_step(); ++step)
        continue;
    // Half of the members and fewer are read only.
    if (mounted_for_writing_ && options_.spares)
        fs.committer.use_spares();
    if (mounted_for_writing_ && (options_.catch_up || options_.spares)) {
        const uint64_t before = stale_groups(fs);
        catch_up(fs, INT_MAX);
        if (!fs.step(true).ok())
            return "the commit after catching up failed";
        report_.caught_up += before > 0 && stale_groups(fs) == 0 ? 1 : 0;
    }
    if (mounted_for_writing_ && options_.discard && !trim_all(fs))
        return "a trim does not end";
    if (mounted_for_writing_ && options_.scrub)
        if (std::string problem = finish_scrub(fs, whole); !problem.empty())
            return problem;
    // Of a member that failed the old device, the new one or the spare is there.
    if (options_.spares && whole && fs.volume->degraded())
        return "a device is no member and no spare any more";
    DirectoryState finished;
    std::string why;
    if (!read_state(fs, finished, why))
        return "while finishing: " + why;
    return finished == state ? std::string() : "finishing changed files";
}

// Nobody cares what is behind the end of a member.
void Replay::spoil_ends(Filesystem& fs, std::vector<std::unique_ptr<ReplayDevice>>& devices)
{
    const std::vector<std::byte> garbage(kBlockBytes, std::byte{0x5a});
    for (const MemberRecord& member : fs.volume->member_table()) {
        const uint32_t index = member.id.value - 1;
        const std::set<uint64_t>& written = written_ends_[index];
        const uint64_t end = divide_up(member.size_bytes, kBlockBytes);
        for (auto block = written.lower_bound(end); block != written.end(); ++block)
            devices[index]->poke(*block * kBlockBytes, garbage);
    }
}

// Some between two commits; most are records of the fsync log.
Status Replay::record_fsyncs(Filesystem& fs, Workload& workload)
{
    for (uint64_t count = prng_.below(4); count > 0; --count) {
        CW_TRY(workload.change());
        if (prng_.chance(1, 12))
            CW_TRY(fs.step(false));
        if (options_.clean && prng_.chance(1, 2))
            clean(fs);
        snapshots_.push_back(workload.state());
        CW_TRY(fs.committer.fsync({kRootInode}, Committer::SyncWhat::kAll));
        acknowledge("acknowledged fsync");
        workload.use(fs);  // it may have been a commit
    }
    return {};
}

std::vector<std::unique_ptr<BlockDevice>> Replay::borrow(std::vector<std::unique_ptr<ReplayDevice>>& devices,
                                                         const std::vector<uint32_t>& absent)
{
    std::vector<std::unique_ptr<BlockDevice>> borrowed;
    for (uint32_t i = 0; i < devices.size(); ++i)
        if (std::find(absent.begin(), absent.end(), i) == absent.end())
            borrowed.push_back(std::make_unique<BorrowedDevice>(*devices[i]));
    return borrowed;
}

// Whether more members lack something than every profile tolerates: those that are absent, and those that
// ever were and say so. No other may say so. What a rescue reads is what was written.
std::string Replay::prove_refusal(std::vector<std::unique_ptr<ReplayDevice>>& devices,
                                  const std::vector<uint32_t>& absent)
{
    const MutantScope right(CommitMutant::kNone);
    std::string why;
    Result<Assembly> assembly =
        assemble(borrow(devices, absent), why, {.strangers = Strangers::kSkip, .named = {}});
    MountOptions options = manual_options();
    options.degraded = options.read_only = options.rescue = true;
    Result<std::unique_ptr<Filesystem>> fs = Filesystem::open(assembly.take(), options, why);
    if (!fs.ok())
        return "refused to rescue: " + why;
    uint32_t lacking = 0;
    for (const MemberInfo& member : (*fs)->info().members) {
        if (member.state == MemberState::kPresent && member.stale_groups == 0)
            continue;
        ++lacking;
        const uint32_t index = member.id.value - 1;
        if (std::find(absent.begin(), absent.end(), index) == absent.end() &&
            std::find(ever_away_.begin(), ever_away_.end(), index) == ever_away_.end())
            return "member " + std::to_string(member.id.value) + " was never away and is called stale";
    }
    if (lacking <= tolerance_)
        return "refused, though only " + std::to_string(lacking) + " members lack something";
    DirectoryState state;
    if (read_state(**fs, state, why) &&
        std::find(snapshots_.begin(), snapshots_.end(), state) == snapshots_.end())
        return "a rescue reads what was never there";
    ++report_.refused;
    return {};
}

// Mounts and compares with the snapshots that may be there: the last acknowledged one, or the one whose
// commit was under way. Empty when all is well.
std::string Replay::compare(std::vector<std::unique_ptr<ReplayDevice>>& devices,
                            const std::vector<uint32_t>& absent, bool writable, size_t acknowledged)
{
    std::string why;
    Result<Assembly> assembly =
        assemble(borrow(devices, absent), why, {.strangers = Strangers::kSkip, .named = {}});
    if (!assembly.ok())
        return "assembly refused: " + why;
    MountOptions options = manual_options();
    options.degraded = !absent.empty() || options_.spares;
    options.read_only = !writable;
    options.spare_seconds = 0;
    const bool of_mounts = options_.mutant == CommitMutant::kReplaySkipped ||
                           options_.mutant == CommitMutant::kStaleUnrecorded ||
                           options_.mutant == CommitMutant::kCaughtUpUnread ||
                           options_.mutant == CommitMutant::kRecoveredCopyTrusted;
    const MutantScope mutant(of_mounts ? options_.mutant : CommitMutant::kNone);
    Result<std::unique_ptr<Filesystem>> fs = Filesystem::open(assembly.take(), options, why);
    mounted_for_writing_ = fs.ok() && !(*fs)->info().read_only;
    if (!fs.ok()) {
        if (may_be_refused_) {
            ++report_.refused;
            return {};
        }
        const std::string problem =
            options_.returning ? prove_refusal(devices, absent) : "only returning members are an excuse";
        return problem.empty() ? problem : "mount refused: " + why + ": " + problem;
    }
    report_.recovered_rows += (*fs)->info().recovered_rows;
    report_.replayed_records += (*fs)->info().replayed_records;
    if (options_.resize)
        spoil_ends(**fs, devices);
    DirectoryState state;
    if (!read_state(**fs, state, why))
        return why;
    const bool last = state == snapshots_[acknowledged];
    const bool next = acknowledged + 1 < snapshots_.size() && state == snapshots_[acknowledged + 1];
    if (!last && !next)
        return "content is neither that of the acknowledged commit or fsync nor of the next one";
    for (const MemberInfo& member : (*fs)->info().members)
        if (ever_away_.empty() && member.stale_groups > 0)
            return "member " + std::to_string(member.id.value) + " was never away and is called stale";
    for (const MemberInfo& member : (*fs)->info().members)
        for (size_t kind = 0; kind < member.counters.size(); ++kind)
            if (member.counters[kind] != 0 && kind != static_cast<size_t>(MemberCounter::kSuperblock) &&
                !orders_->failed().contains(member.id) && !orders_->ever_rotten().contains(member.id))
                return "a clean crash charged member " + std::to_string(member.id.value);
    if (writable && options_.clean) {
        clean(**fs);
        DirectoryState cleaned;
        if (!read_state(**fs, cleaned, why))
            return "while cleaning: " + why;
        if (cleaned != state)
            return "cleaning changed files";
    }
    const bool ordered = options_.balance || options_.change_members || options_.resize || options_.spares ||
                         options_.catch_up || options_.scrub || options_.discard;
    if (writable && ordered)
        if (std::string problem = finish_orders(**fs, absent.empty(), state); !problem.empty())
            return problem;
    if (writable && !(*fs)->close().ok())
        return "unmount after recovery failed";
    return {};
}

// What recovery leaves has nothing to be complained of but members that are missing.
std::string Replay::check(std::vector<std::unique_ptr<ReplayDevice>>& devices,
                          const std::vector<uint32_t>& absent)
{
    std::string why;
    Result<Assembly> assembly =
        assemble(borrow(devices, absent), why, {.strangers = Strangers::kSkip, .named = {}});
    if (!assembly.ok())
        return "assembly after recovery refused: " + why;
    CheckReport report;
    ++report_.checks;
    if (!check_volume(assembly.take(), {}, report, why).ok())
        return "check failed: " + why;
    report_.stale_returns += report.stale_columns > 0 ? 1 : 0;
    for (const CheckFinding& finding : report.findings)
        if (finding.kind != "member" || (absent.empty() && !options_.spares))
            return "check: " + finding.kind + ": " + finding.text;
    return {};
}

std::string Replay::recover(std::vector<std::unique_ptr<ReplayDevice>>& devices, const Losses& losses,
                            size_t acknowledged)
{
    std::string problem = compare(devices, losses.before, true, acknowledged);
    if (!problem.empty())
        return "recovery: " + problem;
    // With half of the members nothing may be written, and all is as the crash left it.
    if (mounted_for_writing_) {
        problem = check(devices, losses.before);
        if (!problem.empty())
            return problem;
    }
    if (options_.returning)
        return return_members(devices, losses, acknowledged);
    if (!losses.after.empty()) {
        std::vector<uint32_t> absent = losses.before;
        absent.insert(absent.end(), losses.after.begin(), losses.after.end());
        problem = compare(devices, absent, false, acknowledged);
        if (!problem.empty())
            return "after loss: " + problem;
    }
    return {};
}

// All members are back; then others are lost.
std::string Replay::return_members(std::vector<std::unique_ptr<ReplayDevice>>& devices, const Losses& losses,
                                   size_t acknowledged)
{
    ++report_.returned;
    std::string problem = compare(devices, {}, true, acknowledged);
    if (!problem.empty())
        return "with all members back: " + problem;
    problem = check(devices, {});
    if (!problem.empty())
        return "with all members back: " + problem;
    problem = compare(devices, losses.after, false, acknowledged);
    return problem.empty() ? problem : "lost after the return: " + problem;
}

std::string text_of(const Losses& losses)
{
    std::string text = "lost before:";
    for (const uint32_t member : losses.before)
        text += " " + std::to_string(member + 1);
    text += ", lost after:";
    for (const uint32_t member : losses.after)
        text += " " + std::to_string(member + 1);
    return text;
}

void Replay::try_state(ReplayCursor& cursor, const CrashChoice& choice, const Losses& losses)
{
    std::vector<std::unique_ptr<ReplayDevice>> devices;
    uint64_t hash = checksum_of(text_of(losses).data(), text_of(losses).size());
    for (uint32_t i = 0; i < recorder_.device_count(); ++i) {
        devices.push_back(cursor.device(i, choice[i]));
        const bool lost = std::find(losses.before.begin(), losses.before.end(), i) != losses.before.end();
        hash = hash * 0x9e3779b97f4a7c15u + (lost ? 1 : devices.back()->content_hash());
    }
    if (!seen_.insert(hash).second) {
        ++report_.duplicates;
        return;
    }
    ++report_.states;
    if (!losses.before.empty() || !losses.after.empty())
        ++report_.losses;
    const size_t acknowledged = cursor.marks().back().value;
    may_be_refused_ =
        !losses.before.empty() && (is_set(thin_, acknowledged) || is_set(thin_, acknowledged + 1));
    ever_away_ = losses.before;
    if (acknowledged + 1 >= left_at_)
        ever_away_.push_back(kReturning);
    const std::string problem = recover(devices, losses, acknowledged);
    if (problem.empty())
        return;
    ++report_.violations;
    if (report_.first_violation.empty())
        report_.first_violation =
            "instant " + std::to_string(cursor.instant()) + ", " + text_of(losses) + ": " + problem;
}

// Tries at most `budget` states of this instant, a random choice of those there are.
void Replay::try_instant(ReplayCursor& cursor, uint64_t instant, uint64_t budget)
{
    cursor.advance(instant);
    if (cursor.marks().empty())
        return;  // the mount itself is not acknowledged yet; its writes are the same as later ones
    ++report_.instants;
    const size_t acknowledged = cursor.marks().back().value;
    tolerance_ = tolerances_[acknowledged];
    if (acknowledged + 1 < tolerances_.size())
        tolerance_ = std::min(tolerance_, tolerances_[acknowledged + 1]);
    if (is_set(rotten_, acknowledged) || is_set(rotten_, acknowledged + 1))
        tolerance_ -= std::min(tolerance_, 1U);
    SubsetPlan plan =
        plan_subsets(cursor, recorder_.device_count(), kExhaustiveWrites, kRandomSubsets, prng_);
    const uint64_t stop_at = report_.states + budget;
    report_.exhaustive_instants += plan.exhaustive && plan.choices.size() * kStatesOfChoice <= budget ? 1 : 0;
    for (size_t i = plan.choices.size(); i > 1; --i)
        std::swap(plan.choices[i - 1], plan.choices[prng_.below(i)]);
    for (const CrashChoice& choice : plan.choices) {
        try_state(cursor, choice, losses_[0]);
        for (uint32_t turn = 0; turn < kLossesInTurn && tolerance_ > 0; ++turn) {
            do
                next_loss_ = next_loss_ % (losses_.size() - 1) + 1;
            while (losses_[next_loss_].before.size() + losses_[next_loss_].after.size() > tolerance_);
            try_state(cursor, choice, losses_[next_loss_]);
        }
        const bool stop = options_.stop_at_violation && report_.violations > 0;
        if (stop || report_.states >= stop_at)
            return;
    }
}

CrashReport Replay::run()
{
    if (const Status recorded = record(); !recorded.ok()) {
        report_.violations = 1;
        report_.first_violation = std::string("the workload itself failed: ") + err_text(recorded.err());
        return report_;
    }
    written_ends_.resize(recorder_.device_count());
    for (const RecordedWrite& write : recorder_.writes())
        for (uint64_t block = 0; options_.resize && block < write.content.size(); ++block)
            if (write.first_block + block >= kMinMemberBytes / kBlockBytes)
                written_ends_[write.device].insert(write.first_block + block);
    losses_ = all_losses(static_cast<uint32_t>(recorder_.device_count()),
                         *std::max_element(tolerances_.begin(), tolerances_.end()));
    ReplayCursor cursor(recorder_);
    const std::vector<uint64_t> instants = recorder_.instants();
    // With too few states for one choice at each instant, instants are left out evenly.
    const uint64_t crowding = divide_up(kStatesOfChoice * instants.size(),
                                        std::max<uint64_t>(options_.states_max * options_.shard_count, 1));
    const size_t stride = options_.shard_count * std::max<uint64_t>(crowding, 1);
    for (size_t i = options_.shard; i < instants.size(); i += stride) {
        // What earlier instants did not use is there for the later ones.
        const uint64_t instants_left = divide_up(instants.size() - i, stride);
        const uint64_t states_left = options_.states_max - report_.states;
        try_instant(cursor, instants[i], divide_up(states_left, instants_left));
        if (report_.states >= options_.states_max || (options_.stop_at_violation && report_.violations > 0))
            break;
    }
    return report_;
}

}  // namespace

CrashReport run_crash_replay(const CrashOptions& options)
{
    return Replay(options).run();
}

}  // namespace cowraid::test
