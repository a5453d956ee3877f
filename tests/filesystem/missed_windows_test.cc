// SPDX-License-Identifier: MIT
// Catching up goes by the last write of windows of the free-space tree. Members go and power fails around
// writes into rows that hold other blocks; what is called current afterwards is.
#include "tests/filesystem/volume_contents.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr VolumeShape kWindowsRaid5{4,         160 * kMiB,     ProfileId::kRaid5, ProfileId::kRaid1,
                                    16 * kKiB, 8 * kBlockBytes};
constexpr VolumeShape kWindowsRaid6{5,         160 * kMiB,     ProfileId::kRaid6, ProfileId::kRaid1c3,
                                    16 * kKiB, 8 * kBlockBytes};

MountOptions joining_options()
{
    MountOptions options = degraded_options();
    options.join_above = 0;
    return options;
}

// One volume, and what becomes of it by chance.
class MissedWindows {
public:
    MissedWindows(const VolumeShape& shape, uint64_t number)
        : volume_(shape), prng_(seed() * 1000003 + number)
    {
        make_and_mount(volume_);
        contents_ = fill(volume_.fs(), prng_, 14 * kMiB);
        REQUIRE(volume_.unmount().ok());
        missing_ = static_cast<uint32_t>(prng_.below(shape.member_count));
    }

    // Blocks that a scrub of everything finds wrong or unrecorded once all members are current.
    uint64_t run()
    {
        if (prng_.chance(1, 2))
            miss_some();
        cut_power_while_writing(prng_.chance(1, 2));
        if (prng_.chance(1, 2))
            fail_while_recovering();
        return left_over();
    }

private:
    void mount_all() { mount(volume_, joining_options()); }
    void change(int pieces)
    {
        for (int piece = 0; piece < pieces; ++piece) {
            const auto at =
                std::next(contents_.begin(), static_cast<ptrdiff_t>(prng_.below(contents_.size())));
            Filesystem& fs = volume_.fs();
            const Result<Attributes> found = fs.names.lookup(kRoot, at->first);
            if (!found.ok())
                continue;
            const std::vector<std::byte> bytes = random_content(prng_, 1 + prng_.below(12000));
            fs.files.write(found->inode, prng_.below(at->second.size()), bytes, {}, {}).status().ignore();
            fs.names.forget(found->inode, 1);
        }
    }
    // A member is away for a commit or two, and is back.
    void miss_some()
    {
        mount_all();
        const size_t rule = volume_.cable(missing_).add_rule({.kinds = kFaultWrites});
        for (uint64_t commit = 0; commit < 1 + prng_.below(2); ++commit) {
            change(3);
            volume_.fs().step(true).ignore();
        }
        volume_.unmount().ignore();
        volume_.cable(missing_).remove_rule(rule);
    }
    void cut_power_while_writing(bool member_fails)
    {
        mount_all();
        if (member_fails)
            volume_.cable(missing_).add_rule(
                {.kinds = kFaultWrites | kFaultFlushes, .skip = prng_.below(60)});
        volume_.power().arm(1 + prng_.below(400));
        for (int commit = 0; commit < 6; ++commit) {
            change(1 + static_cast<int>(prng_.below(40)));
            if (!volume_.fs().step(prng_.chance(2, 3)).ok())
                break;
        }
        restart();
    }
    void restart()
    {
        volume_.power_cut(prng_);
        volume_.power().turn_on();
        volume_.cable(missing_).remove_all_rules();
    }
    // What it was given by the mount that recovers is in its cache at most.
    void fail_while_recovering()
    {
        volume_.cable(missing_).add_rule({.kinds = kFaultFlushes, .skip = prng_.below(12)});
        std::string why;
        if (volume_.mount(joining_options(), why).ok()) {
            change(static_cast<int>(prng_.below(3)));
            volume_.fs().step(true).ignore();
        }
        restart();
    }
    uint64_t left_over()
    {
        mount_all();
        Filesystem& fs = volume_.fs();
        for (int step = 0; step < 3000; ++step) {
            const Result<ScrubStatus> status = fs.catch_up_step();
            if (!status.ok())
                break;
            if (status->state == ScrubState::kFinished)
                REQUIRE(fs.step(true).ok());
        }
        for (const MemberInfo& member : fs.info().members)
            CHECK(member.stale_groups == 0);
        ScrubStatus scrubbed;
        for (int step = 0; step < 3000 && scrubbed.state != ScrubState::kFinished; ++step)
            scrubbed = fs.scrub_step();
        CHECK_FALSE(scrubbed.damaged());
        return scrubbed.repaired + scrubbed.adopted;
    }

    SimVolume volume_;
    Prng prng_;
    Contents contents_;
    uint32_t missing_ = 0;
};

uint64_t left_over(const VolumeShape& shape, uint64_t rounds, bool stop_at_first)
{
    uint64_t left = 0;
    for (uint64_t number = 0; number < rounds; ++number) {
        CAPTURE(number);
        const uint64_t more = MissedWindows(shape, number).run();
        if (!stop_at_first)
            CHECK(more == 0);
        left += more;
        if (stop_at_first && left > 0) {
            MESSAGE("after " << number + 1);
            break;
        }
    }
    return left;
}

uint64_t rounds()
{
    const char* const text = getenv("COWRAID_WINDOW_ROUNDS");
    return text == nullptr ? 40 : strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("missed windows: what is called current has all, whatever a power cut left")
{
    left_over(kWindowsRaid5, rounds(), false);
    left_over(kWindowsRaid6, rounds(), false);
}

#ifdef COWRAID_MUTANTS
TEST_CASE("missed windows: a window left out is found by a scrub")
{
    for (const CommitMutant mutant : {CommitMutant::kFirstMissedLeftOut, CommitMutant::kBetweenUnnoted,
                                      CommitMutant::kRecoveryUnnoted, CommitMutant::kStaleNotWhole}) {
        CAPTURE(static_cast<uint32_t>(mutant));
        const MutantScope scope(mutant);
        uint64_t left = left_over(kWindowsRaid5, 400, true);
        if (left == 0)
            left = left_over(kWindowsRaid6, 400, true);
        CHECK(left > 0);
    }
}
#endif
