// SPDX-License-Identifier: MIT
// Catching up goes by the last write of windows of the free-space tree. Members go and power fails around
// writes into rows that hold other blocks; what is called current afterwards is.
#include <cstdlib>

#include "tests/filesystem/volume_contents.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

VolumeShape shape_of(ProfileId profile, bool small_log)
{
    const bool raid6 = profile == ProfileId::kRaid6;
    return {raid6 ? 5u : 4u, 160 * kMiB,
            profile,         raid6 ? ProfileId::kRaid1c3 : ProfileId::kRaid1,
            16 * kKiB,       small_log ? 8 * kBlockBytes : 0};
}

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
        fill_with_holes();
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
    // Rows with room over many windows.
    void fill_with_holes()
    {
        for (int index = 0; index < 30; ++index)
            for (const auto& [name, bytes] :
                 {std::pair("large", 3000000), std::pair("small", 30000), std::pair("gone", 30000)}) {
                const std::string path = name + std::to_string(index);
                contents_[path] = random_content(prng_, prng_.below(static_cast<uint64_t>(bytes)) + 1);
                write_file(volume_.fs(), path, contents_[path]);
            }
        REQUIRE(volume_.fs().step(true).ok());
        for (int index = 0; index < 30; ++index) {
            const std::string path = "gone" + std::to_string(index);
            REQUIRE(volume_.fs().names.unlink(kRoot, path).ok());
            contents_.erase(path);
        }
        REQUIRE(volume_.fs().step(true).ok());
    }
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
            change(1);
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
            change(1 + static_cast<int>(prng_.below(prng_.chance(1, 2) ? 20 : 400)));
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

// Of rounds from `first` on, each another volume; ends with the first that has any, if `until_found`.
uint64_t left_over(ProfileId profile, uint64_t first, uint64_t rounds, bool until_found)
{
    uint64_t left = 0;
    for (uint64_t number = first; number < first + rounds && (left == 0 || !until_found); ++number) {
        CAPTURE(number);
        const uint64_t more = MissedWindows(shape_of(profile, number % 2 == 0), number).run();
        CHECK((until_found || more == 0));
        if (until_found && more > 0)
            MESSAGE("found in volume ", number);
        left += more;
    }
    return left;
}

uint64_t setting(const char* name, uint64_t usual)
{
    const char* const text = getenv(name);
    return text == nullptr ? usual : strtoull(text, nullptr, 10);
}

}  // namespace

// COWRAID_WINDOW_ROUNDS: how many volumes of each profile (12), from number COWRAID_WINDOW_FIRST on (0).
TEST_CASE("missed windows: what is called current has all, whatever a power cut left")
{
    const uint64_t first = setting("COWRAID_WINDOW_FIRST", 0), rounds = setting("COWRAID_WINDOW_ROUNDS", 12);
    for (const ProfileId profile : {ProfileId::kRaid5, ProfileId::kRaid6}) {
        CAPTURE(static_cast<uint32_t>(profile));
        left_over(profile, first, rounds, false);
    }
}

#ifdef COWRAID_MUTANTS
namespace {

struct WindowMutant {
    CommitMutant mutant;
    ProfileId profile;
    uint64_t first;  // where one is found early, as the code is
};

}  // namespace

TEST_CASE("missed windows: a window left out is found by a scrub")
{
    for (const WindowMutant& one : {WindowMutant{CommitMutant::kFirstMissedLeftOut, ProfileId::kRaid6, 65},
                                    WindowMutant{CommitMutant::kBetweenUnnoted, ProfileId::kRaid6, 94},
                                    WindowMutant{CommitMutant::kRecoveryUnnoted, ProfileId::kRaid6, 432},
                                    WindowMutant{CommitMutant::kStaleNotWhole, ProfileId::kRaid5, 438}}) {
        CAPTURE(static_cast<uint32_t>(one.mutant));
        {
            const MutantScope scope(one.mutant);
            CHECK(left_over(one.profile, one.first, 400, true) > 0);
        }
        CHECK(left_over(one.profile, one.first, 1, true) == 0);
    }
}
#endif
