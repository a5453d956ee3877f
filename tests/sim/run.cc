// SPDX-License-Identifier: MIT
#include "tests/sim/run.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "tests/sim/actor.h"
#include "tests/sim/compare.h"
#include "tests/sim/injector.h"
#include "tests/sim/membership.h"
#include "tests/sim/repeatable.h"
#include "tests/sim/shape.h"
#include "tests/sim/world.h"
#include "tests/support/mutant_scope.h"
#include "tests/support/recorded.h"

namespace cowraid::test {

namespace {

constexpr uint64_t kOperationsAfterwards = 100;

// kCutInFirstCommit: of a mount, when new block groups are published.
enum class Ending : uint8_t {
    kCut,
    kCutInCommit,
    kCutInFsync,
    kCutInFirstCommit,
    kCutInOperation,
    kOverload,
    kKill,
    kUnmount
};

class Run {
public:
    Run(const RunOptions& options, const MachineShape& shape, EventCounts& events)
        : options_(options),
          world_(shape, options.seed, events),
          injector_(world_),
          actor_(world_, injector_),
          membership_(world_, injector_)
    {
        if (options.verbose)
            world_.tell_everything();
    }
    void go();
    [[nodiscard]] const World& world() const { return world_; }

private:
    [[nodiscard]] bool going() const { return !world_.failed(); }
    Prng& prng() { return world_.prng; }
    Machine& machine() { return world_.machine; }
    std::vector<Ending> choose_endings();
    void start();
    void phase(Ending ending, uint64_t operation_count);
    void operate(uint64_t count);
    void step();
    void last_stand();
    void scrub_beside_rot();
    bool scrub_pass(bool beside_rot, ScrubStatus& status);

    // Ends of a mount.
    void end(Ending ending);
    void lose_power();
    void operate_until_power_fails(Ending ending);
    void count_mount();
    void overload();
    bool hits_planned_groups();
    void look_stopped();
    void look_spared(const Recorded& recorded);
    void unmount();

    // Begins of a mount.
    void look_read_only();
    void mount_again();
    bool try_mount(MountOptions& options, const std::vector<uint32_t>& absent);
    void settle_state();
    bool matches_a_candidate(Model& matched);

    void compare_now();
    void check_counters();
    void check_offline();

    const RunOptions& options_;
    World world_;
    Injector injector_;
    Actor actor_;
    Membership membership_;
    std::set<uint32_t> left_out_;  // members that some writable mount went without
    bool interrupted_ = false;  // the last mount ended inside a call
    bool was_stopped_ = false;  // by too many failures; all members are back
};

PowerCutOptions choose_cut(Prng& prng)
{
    PowerCutOptions options;
    options.keep_percent = static_cast<uint32_t>(prng.below(101));
    options.tear_percent = static_cast<uint32_t>(prng.below(101 - options.keep_percent));
    options.unit_bytes = prng.chance(1, 2) ? 512 : 4096;
    return options;
}

// Three power cuts at least, and something else now and then, in any order.
std::vector<Ending> Run::choose_endings()
{
    std::vector<Ending> endings{Ending::kCut, Ending::kCutInCommit, Ending::kCutInFsync};
    const Ending others[] = {Ending::kUnmount,        Ending::kKill,        Ending::kOverload,
                             Ending::kCutInOperation, Ending::kCutInCommit, Ending::kCutInFsync};
    for (uint64_t count = prng().between(1, 4); count > 0; --count)
        endings.push_back(others[prng().below(std::size(others))]);
    for (size_t i = endings.size(); i > 1; --i)
        std::swap(endings[i - 1], endings[prng().below(i)]);
    return endings;
}

void Run::start()
{
    std::string why;
    const Status made = machine().make(why);
    if (!made.ok()) {
        world_.violation("mkfs: %s", why.c_str());
        return;
    }
    mount_again();
    if (going() && machine().shape().tight)
        actor_.fill_volume();
}

void Run::operate(uint64_t count)
{
    for (; count > 0 && going() && !world_.power_lost(); --count)
        step();
}

void Run::step()
{
    if (prng().chance(1, 60))
        membership_.step();
    else if (!membership_.go_on())
        actor_.step();
    membership_.settle();
}

void Run::operate_until_power_fails(Ending ending)
{
    if (ending == Ending::kCutInCommit) {
        // About as far as a commit goes.
        const uint64_t before = machine().power().events();
        actor_.commit();
        const uint64_t usual = machine().power().events() - before;
        operate(prng().between(1, 30));
        machine().power().arm(1 + prng().below(usual + 10));
        actor_.commit();
    } else if (ending == Ending::kCutInFsync) {
        actor_.fsync();  // makes the log ready
        operate(prng().between(1, 8));
        machine().power().arm(1 + prng().below(12));
        actor_.fsync();
    } else {
        machine().power().arm(1 + prng().below(60));
        if (ending == Ending::kCutInFirstCommit)
            actor_.commit();
    }
    for (int i = 0; i < 300 && going() && !world_.power_lost(); ++i)
        step();
    interrupted_ = world_.power_lost();
    if (interrupted_)
        world_.events.add(world_.in_commit ? Event::kCutInCommit : Event::kCutInOperation);
}

void Run::lose_power()
{
    world_.note("power is lost%s", interrupted_ ? " inside a call" : "");
    world_.events.add(Event::kPowerCut);
    machine().power_cycle(prng(), choose_cut(prng()));
}

// What the mount that ends now did.
void Run::count_mount()
{
    const VolumeInfo info = world_.fs().info();
    world_.events.add(Event::kReconstructed, info.blocks_reconstructed);
    world_.events.add(Event::kRepaired, info.blocks_repaired);
    world_.events.add(Event::kJoinedBlocks, info.joined_blocks);
    world_.events.add(Event::kCompressed, world_.fs().files.compressed_file_blocks);
    world_.events.add(Event::kMovedBlocks, info.moved_blocks);
    world_.events.add(Event::kEmptiedGroups, info.emptied_groups);
    world_.events.add(Event::kRecoveredRows, info.recovered_rows);
    world_.events.add(Event::kReplayed, info.replayed_records);
}

void Run::unmount()
{
    world_.note("unmount");
    count_mount();
    const Status status = machine().unmount();
    if (!status.ok()) {
        world_.violation("unmount: %s", err_text(status.err()));
        return;
    }
    world_.events.add(Event::kUnmount);
    world_.committed();
    if (prng().chance(1, 2)) {
        injector_.end_faults();
        check_offline();
    }
}

// New groups that the commit was to make, and that no map on a member has.
bool Run::hits_planned_groups()
{
    const std::vector<GroupRecord>& groups = world_.fs().volume->map().groups;
    return std::any_of(groups.begin(), groups.end(), [&](const GroupRecord& group) {
        return !can_spare(group, injector_.overload_hits());
    });
}

// One member too many fails. The volume stops, or block groups can do without all of them.
void Run::overload()
{
    const auto all_in_service = [&] {
        return !world_.fs().info().degraded && !injector_.may_be_degraded() &&
               !machine().find(Place::kTarget);
    };
    if (!all_in_service())
        return;
    operate(prng().below(10));
    if (!going() || !all_in_service())
        return;
    const Recorded before = read_recorded(machine().disks());
    injector_.overload();
    world_.overloaded = true;
    for (uint64_t count = prng().below(3); count > 0 && going(); --count)
        actor_.fsync();
    actor_.commit();
    world_.overloaded = false;
    if (!going())
        return;
    const Recorded after = read_recorded(machine().disks());
    const Verdict verdict = examine(before, after, injector_.overload_hits());
    if (verdict == Verdict::kStopped && !world_.stopped())
        world_.violation("too many members failed, and the volume goes on");
    else if (verdict == Verdict::kSpared && world_.stopped() && !hits_planned_groups())
        world_.violation("the volume stopped, though it can do without the members that failed");
    else if (world_.stopped())
        look_stopped();
    else
        look_spared(after);
}

// The volume reads what it holds, and is left by a kill or a power cut; then nothing is wrong any more.
void Run::look_stopped()
{
    // Nobody was told, but it may be on the members.
    interrupted_ = was_stopped_ = true;
    const std::string why = compare_tree(world_.fs(), prng(), world_.now, {});
    if (!why.empty())
        world_.violation("stopped by too many failures: %s", why.c_str());
    world_.events.add(Event::kStopped);
    const VolumeInfo info = world_.fs().info();
    for (const MemberInfo& member : info.members)
        if (member.state != MemberState::kPresent)
            injector_.left_service(member.id.value - 1);
}

// The commit was acknowledged: superblocks say who left.
void Run::look_spared(const Recorded& recorded)
{
    for (const uint32_t index : injector_.overload_hits()) {
        const MemberRecord* member = recorded.superblock.member({index + 1});
        // Its removal may have ended by that commit.
        if (member != nullptr && member->state != MemberState::kFailed)
            world_.violation("member %u failed a commit, and no superblock says so", index + 1);
        injector_.left_service(index);
    }
    world_.events.add(Event::kSpared);
    compare_now();
}

void Run::end(Ending ending)
{
    interrupted_ = was_stopped_ = false;
    world_.half_changed.reset();
    if (ending == Ending::kCutInCommit || ending == Ending::kCutInFsync ||
        ending == Ending::kCutInFirstCommit || ending == Ending::kCutInOperation)
        operate_until_power_fails(ending);
    if (!going())
        return;
    if (!world_.power_lost())
        count_mount();
    switch (ending) {
    case Ending::kUnmount:
        return unmount();
    case Ending::kOverload:
        overload();
        injector_.end_faults();
        world_.note("kill");
        machine().kill();
        if (prng().chance(1, 2))
            lose_power();
        return;
    case Ending::kKill:
        world_.note("kill");
        world_.events.add(Event::kKill);
        return machine().kill();
    case Ending::kCut:
    case Ending::kCutInCommit:
    case Ending::kCutInFsync:
    case Ending::kCutInFirstCommit:
    case Ending::kCutInOperation:
        return lose_power();
    }
}

// The states that the volume may be in: as of the last commit, or of one that was interrupted.
bool Run::matches_a_candidate(Model& matched)
{
    std::string why[2];
    for (int i = 0; i < (interrupted_ ? 2 : 1); ++i) {
        matched = i == 0 ? world_.durable : world_.now;
        matched.drop_unnamed();
        why[i] = compare_tree(world_.fs(), prng(), matched, world_.half_changed);
        if (why[i].empty()) {
            if (i == 1)
                world_.events.add(Event::kNewerState);
            world_.events.add(Event::kCompare);
            return true;
        }
    }
    world_.violation("after remount: %s%s%s", why[0].c_str(),
                     interrupted_ ? "; taken for the interrupted commit: " : "", why[1].c_str());
    return false;
}

// Finds out which state was durable and goes on from it.
void Run::settle_state()
{
    Model matched;
    if (!matches_a_candidate(matched))
        return;
    world_.now = matched;
    world_.durable = std::move(matched);
    world_.half_changed.reset();
    interrupted_ = false;
    world_.note("flush");
    const Status status = world_.fs().step(false);
    if (!world_.settle("removing files without names", status.err(), Err::kOk))
        return;
    const uint64_t count = world_.fs().statistics().inode_count;
    if (count != world_.now.inodes().size())
        world_.violation("after remount: %llu inodes, expected %zu", static_cast<unsigned long long>(count),
                         world_.now.inodes().size());
}

// With members left out, and without a single write.
void Run::look_read_only()
{
    const std::vector<uint32_t> absent = injector_.choose_absent(Injector::Absence::kReadOnly);
    if (absent.empty())
        return;
    MountOptions options = manual_options();
    options.read_only = true;
    options.degraded = true;
    world_.note("mount read-only without member %u%s", absent.front() + 1,
                absent.size() > 1 ? " and another" : "");
    std::string why;
    const uint64_t events_before = machine().power().events();
    if (!machine().mount(options, why, absent).ok()) {
        world_.violation("read-only degraded mount: %s", why.c_str());
        return;
    }
    world_.events.add(Event::kReadOnlyDegradedMount);
    world_.events.add(Event::kAbsent, absent.size());
    Model matched;
    matches_a_candidate(matched);
    check_counters();
    count_mount();
    machine().kill();
    if (machine().power().events() != events_before)
        world_.violation("a read-only mount wrote to its members");
}

// False when power failed on the way, or nothing can be done.
bool Run::try_mount(MountOptions& options, const std::vector<uint32_t>& absent)
{
    std::string why;
    if (prng().chance(1, 12))
        machine().power().arm(1 + prng().below(60));
    Status status = machine().mount(options, why, absent);
    if (!status.ok() && !world_.power_lost() && !options.degraded && injector_.may_be_degraded()) {
        options.degraded = true;
        world_.note("mount degraded (%s)", why.c_str());
        status = machine().mount(options, why, absent);
    }
    if (world_.power_lost()) {
        world_.note("power is lost inside the mount");
        world_.events.add(Event::kPowerCut);
        world_.events.add(Event::kCutInMount);
        machine().power_cycle(prng(), choose_cut(prng()));
        return false;
    }
    machine().power().turn_on();  // not armed any more
    if (!status.ok())
        world_.violation("mount: %s: %s", err_text(status.err()), why.c_str());
    return status.ok();
}

void Run::mount_again()
{
    if (prng().chance(1, 2))
        injector_.end_faults();
    if (!was_stopped_ && !membership_.unsettled() && prng().chance(1, 5))
        look_read_only();
    MountOptions options = manual_options();
    // Rows are joined from the first commit on, or as the volume would by itself.
    if (prng().chance(1, 2))
        options.join_above = 0;
    options.partial_writes.rmw_level = static_cast<RmwLevel>(prng().below(3));
    options.compression = {.on = world_.compresses, .level = 1};
    // Spares wait for nobody, or for longer than a run; which of the two is not the clock's business.
    options.spare_seconds = prng().chance(2, 3) ? 0 : options.spare_seconds;
    options.error_budget = 0;
    options.partial_writes.stripe_cache_size = prng().chance(1, 2) ? 17 : 1024;
    std::vector<uint32_t> absent;
    if (!was_stopped_ && !membership_.unsettled() && prng().chance(1, 6))
        absent = injector_.choose_absent(Injector::Absence::kWritable);
    options.degraded = !absent.empty();
    left_out_.insert(absent.begin(), absent.end());
    while (going()) {
        world_.note("mount%s", absent.empty() ? "" : " without some members");
        if (try_mount(options, absent))
            break;
    }
    if (!going())
        return;
    const VolumeInfo info = world_.fs().info();
    if (info.read_only)
        world_.violation("the volume is mounted read-only: %s", info.read_only_reason.c_str());
    if (info.degraded && was_stopped_)
        world_.violation("too many members failed at once, and now one counts as failed");
    world_.events.add(info.degraded ? Event::kDegradedMount : Event::kMount);
    world_.events.add(Event::kAbsent, absent.size());
    world_.mounted();
    membership_.mounted();
    settle_state();
    check_counters();
}

// Only members that were hurt may have errors counted, and nothing may be lost.
void Run::check_counters()
{
    const VolumeInfo info = world_.fs().info();
    for (const MemberInfo& member : info.members) {
        if (injector_.ever_hurt().contains(member.id.value - 1))
            continue;
        for (size_t kind = 0; kind < kMemberCounterCount; ++kind)
            if (member.counters[kind] != 0)
                world_.violation("member %u was never hurt and counts %llu errors of kind %zu",
                                 member.id.value, static_cast<unsigned long long>(member.counters[kind]),
                                 kind);
    }
    if (info.blocks_unrecoverable != 0)
        world_.violation("%llu blocks are lost", static_cast<unsigned long long>(info.blocks_unrecoverable));
}

void Run::compare_now()
{
    if (!going() || world_.power_lost())
        return;
    world_.note("compare everything");
    std::string why = compare_tree(world_.fs(), prng(), world_.now, {});
    for (const auto& [number, shared] : world_.now.inodes())
        if (why.empty() && shared->inode.links == 0)
            why = compare_inode(world_.fs(), prng(), {number}, shared->inode);
    if (!world_.returned())
        return;
    world_.events.add(Event::kCompare);
    if (!why.empty())
        world_.violation("while mounted: %s", why.c_str());
    check_counters();
}

// Whatever it finds must be the fault of members that were hurt, and must heal.
void Run::check_offline()
{
    if (!going())
        return;
    world_.note("check");
    CheckReport report;
    std::string why;
    if (!machine().check(report, why).ok()) {
        world_.violation("check: %s", why.c_str());
        return;
    }
    world_.events.add(Event::kCheck);
    // Where the log entries of a row were on a member that was away or hurt, nobody can say after a crash
    // what its unused blocks hold.
    const bool unused_may_differ = !injector_.hurt().empty() || !left_out_.empty();
    for (const CheckFinding& finding : report.findings)
        world_.note("found: %s: %s (address %llu, member %u%s)", finding.kind.c_str(), finding.text.c_str(),
                    static_cast<unsigned long long>(finding.address), finding.member,
                    finding.repairable ? ", repairable" : "");
    for (const CheckFinding& finding : report.findings)
        if (!(finding.kind == "pad" && unused_may_differ) &&
            (finding.member == 0 || !injector_.hurt().contains(finding.member - 1) || !finding.repairable))
            world_.violation("check: %s: %s (address %llu, member %u%s)", finding.kind.c_str(),
                             finding.text.c_str(), static_cast<unsigned long long>(finding.address),
                             finding.member, finding.repairable ? ", repairable" : "");
    // What a member missed counts against tolerance until it was written anew.
    // What is copied so far nobody looks at.
    if (!report.clean() || report.stale_columns > 0 || machine().find(Place::kTarget))
        return;
    world_.events.add(Event::kCleanCheck);
    world_.events.add(Event::kHealed, injector_.hurt().empty() ? 0 : 1);
    injector_.all_is_well();
}

// To its end; `beside_rot`: members rot meanwhile, and the volume is used. False: the run is over, or the
// mount.
bool Run::scrub_pass(bool beside_rot, ScrubStatus& status)
{
    Scrub& scrub = world_.fs().committer.scrub;
    scrub.cancel().ignore();
    do {
        if (beside_rot && prng().chance(1, 8))
            injector_.rot();
        if (beside_rot)
            operate(prng().below(3));
        if (!going() || world_.power_lost())
            return false;
        scrub.resume().ignore();
        status = world_.fs().scrub_step();
        if (!world_.returned())
            return false;
        world_.events.add(Event::kScrubStep);
        world_.events.add(Event::kScrubbed, status.state == ScrubState::kFinished ? 1 : 0);
    } while (status.state == ScrubState::kRunning);
    return status.state == ScrubState::kFinished;
}

// One pass beside rot, one for what rotted behind it; then there is nothing to be found.
void Run::scrub_beside_rot()
{
    const auto whole = [&] {
        const VolumeInfo info = world_.fs().info();
        return !info.read_only && std::all_of(info.members.begin(), info.members.end(), [](const auto& one) {
            return one.in_service() && one.stale_groups == 0;
        });
    };
    injector_.end_faults();
    if (!going() || !whole())
        return;
    world_.note("scrub beside rot");
    ScrubStatus status;
    if (!scrub_pass(true, status))
        return;
    // Of what is not committed a pass sees nothing.
    actor_.commit();
    if (!going() || !whole() || !scrub_pass(false, status) || !scrub_pass(false, status))
        return;
    if (!status.all_well() || status.repaired + status.adopted > 0)
        world_.violation("a scrub after another: %llu blocks repaired, %llu not, %llu adopted, %llu lost, "
                         "%llu unverified, %llu nodes unreadable",
                         static_cast<unsigned long long>(status.repaired),
                         static_cast<unsigned long long>(status.unrepaired),
                         static_cast<unsigned long long>(status.adopted),
                         static_cast<unsigned long long>(status.lost),
                         static_cast<unsigned long long>(status.unverified),
                         static_cast<unsigned long long>(status.unreadable_nodes));
    world_.events.add(Event::kScrubTrial);
}

void Run::phase(Ending ending, uint64_t operation_count)
{
    // The first commits of a volume and of a degraded mount publish block groups.
    while (going() && prng().chance(1, world_.fs().info().generation.value < 10 ? 2 : 12)) {
        operate(prng().below(10));
        end(Ending::kCutInFirstCommit);
        if (going())
            mount_again();
    }
    if (going() && injector_.hurt().empty() && prng().chance(1, 2)) {
        operate(prng().below(20));
        end(Ending::kOverload);
        if (going())
            mount_again();
    }
    if (!going())
        return;
    const uint64_t before_fault = prng().below(operation_count);
    operate(before_fault);
    injector_.strike();
    operate(operation_count - before_fault);
    if (prng().chance(1, 12))
        scrub_beside_rot();
    if (prng().chance(1, 3))
        compare_now();
    if (going())
        end(ending);
    if (going())
        mount_again();
}

// Faults are over: all can be read, the check finds nothing but what they left, and the volume goes on.
void Run::last_stand()
{
    injector_.end_faults();
    compare_now();
    if (going())
        end(Ending::kUnmount);
    check_offline();
    if (going())
        mount_again();
    injector_.end_faults();
    operate(kOperationsAfterwards);
    compare_now();
    if (going())
        end(Ending::kUnmount);
    check_offline();
}

void Run::go()
{
    start();
    const std::vector<Ending> endings = choose_endings();
    for (const Ending ending : endings)
        phase(ending, divide_up(options_.operation_count, endings.size()));
    if (going())
        last_stand();
}

}  // namespace

RunResult run_seed(const RunOptions& options, EventCounts& events)
{
    const MutantScope mutant(options.mutant);
    repeat_from(options.seed);
    Prng prng(options.seed);
    const MachineShape shape = choose_shape(prng, options.data_profile);
    RunResult result;
    result.shape = shape_text(shape);
    Run run(options, shape, events);
    run.go();
    result.ok = !run.world().failed();
    result.violation = run.world().violation_text();
    result.story = run.world().story();
    return result;
}

}  // namespace cowraid::test
