// SPDX-License-Identifier: MIT
// Members that fail the same step of a commit or of a log: within tolerance they leave service, recorded
// before anything is acknowledged; beyond it nothing is acknowledged or recorded, and writing stops.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "format/member_layout.h"
#include "format/profile.h"
#include "tests/filesystem/tree_text.h"
#include "tests/filesystem/volume_steps.h"
#include "tests/support/recorded.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

const VolumeShape kFailureShapes[] = {
    {4, 224 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024},
    {6, 224 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024},
    // Without one member more than tolerated no majority is left.
    {3, 224 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024},
    {5, 224 * kMiB, ProfileId::kRaid1c3, ProfileId::kRaid1c3, 64 * 1024},
    {4, 224 * kMiB, ProfileId::kRaid10, ProfileId::kRaid10, 64 * 1024},
};

uint32_t tolerance_of(const VolumeShape& shape)
{
    return find_profile(shape.data_profile)->tolerance;
}

enum class Call : uint8_t { kSync, kFsync };

// What fails: requests of some kinds into one area of each victim.
struct Step {
    const char* name;
    Call call;
    uint32_t kinds;
    void (*area)(const MemberRecord&, FaultRule&);
};

void whole_member(const MemberRecord&, FaultRule&) { }

void area_of(FaultRule& rule, uint64_t begin, uint64_t bytes)
{
    rule.begin = begin;
    rule.end = begin + bytes;
}

const Step kSteps[] = {
    {"data", Call::kSync, kFaultWrites,
     [](const MemberRecord& member, FaultRule& rule) {
         area_of(rule, member.slots_offset, member.slot_bytes * member.slot_count);
     }},
    {"superblock", Call::kSync, kFaultWrites,
     [](const MemberRecord&, FaultRule& rule) {
         area_of(rule, kSuperblockRingOffset[1], uint64_t{kSuperblockSlotBytes} * kSuperblockSlotCount);
     }},
    {"block-group map", Call::kSync, kFaultWrites,
     [](const MemberRecord& member, FaultRule& rule) {
         area_of(rule, member.map_offset[0], member.map_offset[1] + member.map_bytes - member.map_offset[0]);
     }},
    {"write-intent log", Call::kSync, kFaultWrites,
     [](const MemberRecord& member, FaultRule& rule) {
         area_of(rule, member.intent_log_offset, member.intent_log_bytes);
     }},
    {"fsync log", Call::kFsync, kFaultWrites,
     [](const MemberRecord& member, FaultRule& rule) {
         area_of(rule, member.fsync_log_offset, member.fsync_log_bytes);
     }},
    {"fsync log, flush", Call::kFsync, kFaultFlushes, whole_member},
};

constexpr Step kFlushStep{"flush", Call::kSync, kFaultFlushes, whole_member};

// What a mount writes before anything else.
const Step kMountSteps[] = {kSteps[1], kSteps[2], kFlushStep};

// Some members of a volume that fail a step.
struct Case {
    const VolumeShape& shape;
    const Step& step;
    std::vector<uint32_t> victims;

    [[nodiscard]] std::string text() const
    {
        std::string text = std::string(find_profile(shape.data_profile)->name) + ", " + step.name + " of";
        for (const uint32_t victim : victims)
            text += " " + std::to_string(victim);
        return text;
    }
};

// Every step failed by every set of as many members as are tolerated, and `more`.
std::vector<Case> cases_of(std::span<const Step> steps, uint32_t more)
{
    std::vector<Case> cases;
    uint64_t number = seed();
    for (const VolumeShape& shape : kFailureShapes)
        for (const Step& step : steps)
            for (const std::vector<uint32_t>& victims :
                 sets_of(tolerance_of(shape) + more, shape.member_count))
                if (number++ % kCutStep == 0)
                    cases.push_back({shape, step, victims});
    return cases;
}

// Of so many that all cases have.
constexpr size_t enough(size_t trials)
{
    return kCutStep == 1 ? trials : trials / kCutStep / 2;
}

// A mounted volume some of whose members are to fail.
class Trial {
public:
    // `join_above` is the mount option: 0 for writes in place, which use the write-intent log.
    Trial(const VolumeShape& shape, double join_above)
        : shape_(shape), join_above_(join_above), volume_(shape)
    {
        start();
    }

    void add_rules(const Step& step, const std::vector<uint32_t>& victims, uint64_t skip = 0);
    Status act(Call call);
    [[nodiscard]] uint32_t victims_hit() const;
    // Power fails or the daemon dies, and the faults are over.
    void end(bool power_fails);
    void expect_nothing_acknowledged();
    void expect_none_taken_out();
    void expect_ordinary_mount();
    void expect_failed(uint32_t count);
    void expect_return();
    Status try_mount(std::string& why);

    SimVolume& volume() { return volume_; }
    Filesystem& fs() { return volume_.fs(); }

private:
    void start();
    bool mount();
    InodeNumber write(const char* name, size_t bytes);
    void expect_goes_on();

    const VolumeShape shape_;
    const double join_above_;
    SimVolume volume_;
    Prng prng_{1};
    struct Active {
        uint32_t victim;
        size_t rule;
    };
    std::vector<Active> active_;
    std::string acknowledged_, newest_;  // as tree_text() shows them
};

InodeNumber Trial::write(const char* name, size_t bytes)
{
    Result<Attributes> file = fs().names.lookup(kRoot, name);
    if (!file.ok())
        file = fs().names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
    REQUIRE_MESSAGE(file.ok(), err_text(file.err()));
    std::vector<std::byte> content(bytes);
    prng_.fill(content.data(), bytes);
    const Result<size_t> written = fs().files.write(file->inode, 0, content, {}, {});
    REQUIRE_MESSAGE(written.ok(), err_text(written.err()));
    return file->inode;
}

Status Trial::try_mount(std::string& why)
{
    MountOptions options = manual_options();
    options.join_above = join_above_;
    return volume_.mount(options, why);
}

bool Trial::mount()
{
    std::string why;
    const Status status = try_mount(why);
    CHECK_MESSAGE(status.ok(), why);
    return status.ok();
}

// With logs ready for use, files of one block each whose rows have room for more, and changes to come.
void Trial::start()
{
    std::string why;
    REQUIRE_MESSAGE(volume_.make(why).ok(), why);
    REQUIRE(mount());
    write("large", 2 * kMiB);
    REQUIRE(fs().committer.sync().ok());
    for (const char* name : {"a", "b", "c"}) {
        write(name, 5 * kBlockBytes);
        REQUIRE(fs().committer.sync().ok());
    }
    // The first makes the log ready.
    for (const size_t blocks : {6, 7}) {
        write("b", blocks * kBlockBytes);
        REQUIRE(fs().committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
    }
    REQUIRE(fs().info().fsync_records > 0);
    acknowledged_ = tree_text(fs());
    write("c", 3 * kBlockBytes);
    write("small", 4 * kBlockBytes);
    newest_ = tree_text(fs());
}

void Trial::add_rules(const Step& step, const std::vector<uint32_t>& victims, uint64_t skip)
{
    for (const uint32_t victim : victims) {
        FaultRule rule{.action = FaultAction::kError, .kinds = step.kinds, .skip = skip};
        step.area(plan_member_layout(shape_.member_bytes).take(), rule);
        active_.push_back({victim, volume_.cable(victim).add_rule(rule)});
    }
}

Status Trial::act(Call call)
{
    const Status status =
        call == Call::kSync ? fs().committer.sync() : fs().committer.fsync(kRoot, Committer::SyncWhat::kAll);
    if (status.ok())
        acknowledged_ = newest_;
    return status;
}

uint32_t Trial::victims_hit() const
{
    uint32_t count = 0;
    for (const Active& active : active_)
        count += const_cast<SimVolume&>(volume_).cable(active.victim).hits(active.rule) > 0 ? 1 : 0;
    return count;
}

void Trial::end(bool power_fails)
{
    if (power_fails)
        volume_.power_cut(prng_);
    else
        volume_.kill();
    for (const Active& active : active_)
        volume_.cable(active.victim).remove_rule(active.rule);
    active_.clear();
}

void Trial::expect_nothing_acknowledged()
{
    const VolumeInfo info = fs().info();
    CHECK(info.read_only);
    const bool too_few = info.read_only_reason == "too few members are left for safe writing";
    CHECK((too_few || info.read_only_reason == "more members failed than the volume can do without"));
    const std::string step =
        too_few ? "unmount it and mount it with the members that failed"
                : "unmount it, bring back the members that failed, and mount it again (without them -o ro";
    CHECK(info.read_only_step.substr(0, step.size()) == step);
    // A step that would succeed now proves nothing about what came before it.
    CHECK_FALSE(fs().committer.sync().ok());
    CHECK_FALSE(fs().committer.fsync(kRoot, Committer::SyncWhat::kAll).ok());
    CHECK_FALSE(fs().names.make_node(kRoot, "refused", S_IFREG | 0644, 0, {}).ok());
    CHECK(tree_text(fs()) == newest_);
    std::string why;
    CHECK_FALSE(fs().committer.remount(true, why).ok());  // what was acknowledged may not be stored
    CHECK_FALSE(fs().committer.remount(false, why).ok());
}

void Trial::expect_none_taken_out()
{
    CHECK_FALSE(fs().info().degraded);
    for (const MemberInfo& member : fs().info().members)
        CHECK(member.state == MemberState::kPresent);
}

void Trial::expect_failed(uint32_t count)
{
    CHECK(fs().info().read_only_reason.empty());
    for (const MemberInfo& member : fs().info().members)
        count -= member.state == MemberState::kFailed ? 1 : 0;
    CHECK(count == 0);
}

// The volume takes changes and keeps them, and the check finds nothing.
void Trial::expect_goes_on()
{
    write("afterwards", 3 * kMiB);
    const std::string tree = tree_text(fs());
    REQUIRE(volume_.unmount().ok());
    CheckReport report;
    std::string why;
    REQUIRE_MESSAGE(volume_.check(report, why).ok(), why);
    if (!report.clean())
        FAIL_CHECK(report.findings.front().kind << ": " << report.findings.front().text);
    if (!mount())
        return;
    CHECK(tree_text(fs()) == tree);
    REQUIRE(volume_.unmount().ok());
}

void Trial::expect_ordinary_mount()
{
    if (!mount())
        return;
    const VolumeInfo info = fs().info();
    CHECK_FALSE(info.degraded);
    CHECK_FALSE(info.read_only);
    const std::string tree = tree_text(fs());
    CHECK((tree == acknowledged_ || tree == newest_));
    expect_goes_on();
}

// Members that failed were recorded as such, and take part again.
void Trial::expect_return()
{
    if (!mount())
        return;
    CHECK_FALSE(fs().info().read_only);
    CHECK(tree_text(fs()) == newest_);
    REQUIRE(volume_.unmount().ok());
}

}  // namespace

TEST_CASE("failures: one member more than tolerated fails a step, and the volume is as if nothing had been")
{
    size_t trials = 0;
    for (const Case& one : cases_of(kSteps, 1)) {
        INFO(one.text());
        Trial trial(one.shape, 0);
        trial.add_rules(one.step, one.victims);
        const Status status = trial.act(one.step.call);
        // A log entry is on some of the members only.
        if (trial.victims_hit() <= tolerance_of(one.shape)) {
            CHECK(status.ok());
            continue;
        }
        CHECK(status == Status(Err::kTooManyFaults));
        trial.expect_nothing_acknowledged();
        // Records of the fsync log try one member after the other; copies are of one batch, but not on all.
        const bool mirrored = find_profile(one.shape.data_profile)->parity == 0;
        if (one.step.call == Call::kSync && !(mirrored && &one.step == &kSteps[0]))
            trial.expect_none_taken_out();
        trial.end(trials % 2 == 0);
        trial.expect_ordinary_mount();
        ++trials;
    }
    CHECK(trials > enough(120));
}

TEST_CASE("failures: of all flushes of a sync, each in turn is failed by too many members")
{
    size_t trials = 0;
    for (const Case& one : cases_of({&kFlushStep, 1}, 1))
        for (uint64_t skip = 0;; ++skip) {
            INFO(one.text());
            CAPTURE(skip);
            Trial trial(one.shape, -1);
            trial.add_rules(one.step, one.victims, skip);
            const Status status = trial.act(one.step.call);
            if (trial.victims_hit() == 0) {
                CHECK(status.ok());
                CHECK(skip >= 2);
                break;
            }
            CHECK(status == Status(Err::kTooManyFaults));
            trial.expect_nothing_acknowledged();
            trial.expect_none_taken_out();
            trial.end(trials % 2 == 0);
            trial.expect_ordinary_mount();
            ++trials;
        }
    CHECK(trials > enough(70));
}

TEST_CASE("failures: as many members as tolerated fail a step, are recorded, and applications see no error")
{
    size_t trials = 0;
    for (const Case& one : cases_of(kSteps, 0)) {
        INFO(one.text());
        Trial trial(one.shape, 0);
        trial.add_rules(one.step, one.victims);
        REQUIRE(trial.act(one.step.call).ok());
        REQUIRE(trial.fs().committer.sync().ok());
        const uint32_t hit = trial.victims_hit();
        trial.expect_failed(hit);
        if (hit == 0)
            continue;
        trial.end(trials % 2 == 0);
        trial.expect_return();
        ++trials;
    }
    CHECK(trials > enough(120));
}

TEST_CASE("failures: members of different block groups leave together, those of one stop the volume")
{
    constexpr VolumeShape kMirrors{5, 224 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024};
    size_t stopped = 0, spared = 0;
    for (const std::vector<uint32_t>& victims : sets_of(2, kMirrors.member_count)) {
        INFO(Case{kMirrors, kFlushStep, victims}.text());
        Trial trial(kMirrors, -1);
        const Recorded before = read_recorded(trial.volume().members());
        trial.add_rules(kFlushStep, victims);
        const Status status = trial.act(Call::kSync);
        const Recorded after = read_recorded(trial.volume().members());
        const Verdict verdict = examine(before, after, {victims.begin(), victims.end()});
        REQUIRE(verdict != Verdict::kEither);
        if (verdict == Verdict::kStopped) {
            CHECK(status == Status(Err::kTooManyFaults));
            trial.expect_nothing_acknowledged();
            trial.expect_none_taken_out();
            trial.end(++stopped % 2 == 0);
            trial.expect_ordinary_mount();
            continue;
        }
        REQUIRE(status.ok());
        trial.expect_failed(2);
        for (const uint32_t victim : victims)
            CHECK(after.superblock.member({victim + 1})->state == MemberState::kFailed);
        trial.end(++spared % 2 == 0);
        trial.expect_return();
    }
    CHECK(stopped > 0);
    CHECK(spared > 0);
}

TEST_CASE("failures: one member more than tolerated fails what a mount writes, and the next one is ordinary")
{
    size_t trials = 0;
    for (const Case& one : cases_of(kMountSteps, 1))
        for (uint64_t skip = 0;; ++skip) {
            INFO(one.text());
            CAPTURE(skip);
            Trial trial(one.shape, 0);
            REQUIRE(trial.act(Call::kFsync).ok());
            trial.end(trials % 2 == 0);
            trial.add_rules(one.step, one.victims, skip);
            std::string why;
            const Status status = trial.try_mount(why);
            if (trial.victims_hit() == 0) {
                CHECK(status.ok());
                CHECK(skip >= 1);
                break;
            }
            CHECK(status == Status(Err::kTooManyFaults));
            CHECK((skip > 0 ? !why.empty() : why.find("writing superblocks failed") == 0));
            trial.end(trials % 2 == 0);
            trial.expect_ordinary_mount();
            ++trials;
            // Later ones in turn, with one set of victims.
            if (one.victims.back() > tolerance_of(one.shape))
                break;
        }
    CHECK(trials > enough(110));
}

TEST_CASE("failures: as many members as tolerated fail what a mount writes, and it goes on without them")
{
    size_t trials = 0;
    for (const Case& one : cases_of(kMountSteps, 0)) {
        INFO(one.text());
        Trial trial(one.shape, 0);
        REQUIRE(trial.act(Call::kFsync).ok());
        trial.end(trials % 2 == 0);
        trial.add_rules(one.step, one.victims);
        std::string why;
        REQUIRE_MESSAGE(trial.try_mount(why).ok(), why);
        trial.expect_failed(static_cast<uint32_t>(one.victims.size()));
        trial.end(trials % 2 == 0);
        trial.expect_return();
        ++trials;
    }
    CHECK(trials > enough(60));
}

namespace {

struct Answer final : public Completion {
    void done(Status answered) override
    {
        status = answered;
        given = true;
    }
    Status status;
    std::atomic<bool> given{false};
};

// Writing ends because superblocks that confirm a commit cannot be written, with a change that no commit has.
// False: they were there before members failed.
bool fail_confirmation(SimVolume& volume, InodeNumber file)
{
    REQUIRE(volume.fs().committer.sync().ok());
    std::vector<size_t> rules;
    for (uint32_t member = 0; member < 3; ++member)
        rules.push_back(
            volume.cable(member).add_rule({.action = FaultAction::kError, .kinds = kFaultWrites}));
    const std::vector<std::byte> content(kBlockBytes, std::byte{1});
    REQUIRE(volume.fs().files.write(file, 0, content, {}, {}).ok());
    for (int left = 1000; left > 0 && !volume.fs().info().read_only; --left)
        usleep(1000);
    for (uint32_t member = 0; member < 3; ++member)
        volume.cable(member).remove_rule(rules[member]);
    return volume.fs().info().read_only;
}

}  // namespace

TEST_CASE("failures: who comes for a commit is answered when the last one could not be confirmed")
{
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024});
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    MountOptions options;
    options.commit_seconds = 3600;
    mount(volume, options);
    const Result<Attributes> made = volume.fs().names.make_node(kRoot, "file", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    while (!fail_confirmation(volume, made->inode)) { }
    static Answer answer;  // one that never comes must not meet a dead stack
    volume.fs().committer.sync_async(&answer);
    for (int left = 60'000; left > 0 && !answer.given; --left)
        usleep(1000);
    CHECK(answer.given);
    CHECK(answer.status == Status(Err::kTooManyFaults));
    volume.kill();
}

TEST_CASE("failures: a rescue reads what a member that failed still has, when another one is lost")
{
    for (uint32_t failed = 0; failed < 4; ++failed)
        for (const uint32_t lost : {(failed + 1) % 4, (failed + 2) % 4}) {
            CAPTURE(failed);
            CAPTURE(lost);
            Trial trial(kFailureShapes[0], -1);
            trial.add_rules(kFlushStep, {failed});
            REQUIRE(trial.act(Call::kSync).ok());
            const std::string tree = tree_text(trial.fs());
            trial.end(false);
            MountOptions options = manual_options();
            options.read_only = options.degraded = true;
            std::string why;
            CHECK_FALSE(trial.volume().mount(options, why, {lost}).ok());
            CHECK(why.find("ro,rescue") != std::string::npos);
            options.rescue = true;
            REQUIRE_MESSAGE(trial.volume().mount(options, why, {lost}).ok(), why);
            CHECK(trial.fs().info().degraded);
            CHECK(tree_text(trial.fs()) == tree);
            CHECK(trial.fs().committer.remount(false, why) == Status(Err::kReadOnly));
        }
}
