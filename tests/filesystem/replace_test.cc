// SPDX-License-Identifier: MIT
// A member in service is replaced: what its successor has in the end, whatever fails on the way.
#include <tuple>

#include "fs/maintain/damaged_files.h"
#include "tests/filesystem/replace_steps.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using ReplaceState = ReplaceStatus::State;

std::vector<VolumeAddress> sorted(std::vector<VolumeAddress> addresses)
{
    std::sort(addresses.begin(), addresses.end());
    addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
    return addresses;
}

}  // namespace

TEST_CASE("replace: the successor has everything, and the volume is as redundant as before")
{
    for (const VolumeShape& shape :
         {kRaid5, kRaid6, kNodesUnderParity, kMirrors, kPairs, kStriped, kSingle}) {
        CAPTURE(find_profile(shape.data_profile)->name);
        SimVolume volume(shape);
        make_and_mount(volume);
        Prng prng(seed());
        Contents contents = fill(volume.fs(), prng, 5 * kMiB);
        const uint32_t device = start(volume);
        CHECK(volume.fs().volume->members().path(kSource) == "member2");
        CHECK(volume.fs().committer.replace.status().state == ReplaceState::kRunning);
        const ReplaceStatus status = run(volume);
        CHECK(status.state == ReplaceState::kFinished);
        CHECK(status.copy.lost == 0);
        CHECK(status.copy.repaired == 0);
        CHECK(status.copy.bytes_done > 0);
        CHECK(status.groups_total > 0);
        CHECK(status.groups_copied == status.groups_total);
        CHECK(is_member(volume, device));
        CHECK(read_rings(*volume.borrow_one(kSourceDevice)).err() == Err::kNotFound);
        contents["later"] = random_content(prng, 3 * kMiB);
        write_file(volume.fs(), "later", contents["later"]);
        REQUIRE(volume.fs().step(true).ok());
        require_redundant(volume, contents, kSourceDevice);
    }
}

TEST_CASE("replace: writers go on beside it, and what they write is on both")
{
    Prng prng(seed());
    for (int round = 0; round < 24; ++round) {
        const VolumeShape& shape = round % 3 == 0 ? kMirrors : round % 3 == 1 ? kRaid5 : kNodesUnderParity;
        SimVolume volume(shape);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Contents contents = fill(fs, prng, 9 * kMiB);
        const uint32_t device = start(volume);
        for (int step = 0; step < 2000 && fs.committer.replace.status().active(); ++step) {
            for (uint64_t change = prng.below(6); change > 0; --change)
                change_one(fs, prng, contents);
            if (prng.chance(1, 8)) {
                const std::string name = "new" + std::to_string(step);
                contents[name] = random_content(prng, 1 + prng.below(2 * kMiB));
                write_file(fs, name, contents[name]);
            }
            if (prng.chance(1, 4))
                REQUIRE(fs.step(true).ok());
            fs.replace_step();
        }
        CHECK(fs.committer.replace.status().state == ReplaceState::kFinished);
        CHECK(is_member(volume, device));
        REQUIRE(fs.step(true).ok());
        require_redundant(volume, contents, kSourceDevice);
    }
}

TEST_CASE(
    "replace: bad blocks of the member and of another one are solved, or exactly they are lost and named")
{
    Prng prng(seed());
    uint64_t lost = 0, solved = 0;
    for (int round = 0; round < 12; ++round) {
        const VolumeShape& shape = round % 2 == 0 ? kRaid5 : kRaid6;
        SimVolume volume(shape);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        const Contents contents = fill(fs, prng, 9 * kMiB);
        spoil(volume, prng, kSourceDevice, kGroupData, 3 * kMiB, 120);
        spoil(volume, prng, 3, kGroupData, 3 * kMiB, 120);
        REQUIRE(fs.committer.scrub.start({.mode = ScrubMode::kLook}).ok());
        for (int step = 0; step < 1000 && fs.committer.scrub.step(); ++step)
            continue;
        const ScrubStatus seen = fs.committer.scrub.status();
        REQUIRE(seen.state == ScrubState::kFinished);
        const uint32_t device = start(volume);
        const ReplaceStatus status = run(volume);
        CHECK(status.state == ReplaceState::kFinished);
        CHECK(is_member(volume, device));
        CHECK(sorted(status.copy.lost_addresses) == sorted(seen.lost_addresses));
        CHECK(status.copy.repaired > 20);
        solved += status.copy.repaired;
        lost += status.copy.lost;
        if (shape.data_profile == ProfileId::kRaid6)
            CHECK(status.copy.lost == 0);
        REQUIRE(fs.step(true).ok());
        const auto named = find_damaged_files(fs.store, 100);
        REQUIRE(named.ok());
        CHECK((named->files.size() > 0) == (status.copy.lost > 0));
        // Only where blocks were lost something cannot be read.
        for (const auto& [name, content] : contents) {
            std::vector<std::byte> read(content.size());
            const bool good = fs.files.read(find_file(fs, name), 0, read).ok();
            CHECK((!good || read == content));
            CHECK((good || status.copy.lost > 0));
        }
    }
    CHECK(lost > 0);
    CHECK(solved > 500);
}

TEST_CASE("replace: the last good copy of nodes may be on the member")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    const Contents contents = fill(volume.fs(), prng, 5 * kMiB);
    spoil(volume, prng, 3, kGroupSystem, 4 * kMiB, 2000);
    start(volume);
    CHECK(run(volume).state == ReplaceState::kFinished);
    volume.cable(3).remove_all_rules();
    require_contents(volume.fs(), contents);
}

TEST_CASE("replace: power fails at every write, and one of the two devices is the member, with everything")
{
    Prng prng(seed());
    uint64_t events = 0;
    int old = 0, renewed = 0, unfinished = 0;
    for (const VolumeShape& shape : {kRaid5, kMirrors}) {
        events = 0;
        for (uint64_t cut = 0; cut == 0 || cut < events; cut = next_cut(cut)) {
            CAPTURE(cut);
            SimVolume volume(shape);
            make_and_mount(volume);
            Contents contents = fill(volume.fs(), prng, kMiB);
            const uint32_t device = volume.add_device(kMemberBytes);
            const uint64_t begin = volume.power().events();
            if (cut > 0)
                volume.power().arm(cut);
            std::string why;
            const bool started = start(volume, device, why).ok();
            const bool finished = started && run(volume).state == ReplaceState::kFinished;
            if (cut == 0)
                events = volume.power().events() - begin;
            CHECK((finished || cut > 0));
            volume.power_cut(prng);
            volume.power().turn_on();
            std::vector<uint32_t> blank;
            for (const uint32_t index : {kSourceDevice, device})
                if (!read_rings(*volume.borrow_one(index)).ok())
                    blank.push_back(index);
            // Any other one may be lost as well.
            std::vector<uint32_t> absent = blank;
            absent.push_back(static_cast<uint32_t>(prng.below(volume.member_count())));
            MountOptions reading = degraded_options();
            reading.read_only = true;
            mount(volume, reading, absent);
            require_contents(volume.fs(), contents);
            volume.kill();
            mount(volume, manual_options(), blank);
            CHECK_FALSE(volume.fs().volume->degraded());
            (is_member(volume, device) ? renewed : old) += 1;
            CHECK((!finished || is_member(volume, device)));
            require_contents(volume.fs(), contents);
            contents["later"] = random_content(prng, 300 * kKiB);
            write_file(volume.fs(), "later", contents["later"]);
            REQUIRE(volume.fs().step(true).ok());
            if (volume.fs().committer.replace.status().active()) {
                ++unfinished;
                CHECK(run(volume).state == ReplaceState::kFinished);
            }
            require_redundant(volume, contents, is_member(volume, device) ? kSourceDevice : device);
        }
    }
    CHECK(old > 5 / kCutStep);
    CHECK(renewed > 2 / kCutStep);
    CHECK(unfinished > 10 / kCutStep);
}

namespace {

// Whether a mount of these devices writes; it writes that file then.
bool goes_on(SimVolume& volume, const std::vector<uint32_t>& there, const std::string& name,
             const std::vector<std::byte>& content, const Contents& contents, bool half = false)
{
    std::vector<uint32_t> absent = blank_ones(volume);
    for (uint32_t index = 0; index < volume.member_count(); ++index)
        if (std::find(there.begin(), there.end(), index) == there.end())
            absent.push_back(index);
    MountOptions options = degraded_options();
    options.half = half;
    std::string why;
    if (!volume.mount(options, why, absent).ok())
        return false;
    require_contents(volume.fs(), contents);
    const bool written = !volume.fs().store.service.read_only();
    CHECK((written || volume.fs().volume->read_only_advised()));
    if (written) {
        write_file(volume.fs(), name, content);
        REQUIRE(volume.fs().step(true).ok());
    }
    volume.kill();
    return written;
}

// A volume whose power failed at that event of taking over, or (0) afterwards: with its successor, and with
// the source, there is the least majority of the members by one of the tables.
struct CutApart {
    CutApart(const VolumeShape& shape, Prng& prng, uint64_t cut) : volume(shape)
    {
        make_and_mount(volume);
        contents = fill(volume.fs(), prng, kMiB);
        device = up_to_taking_over(volume);
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        run(volume);
        events = volume.power().events() - begin;
        volume.power_cut(prng);
        volume.power().turn_on();
        for (uint32_t index = 0; index < volume.member_count(); ++index)
            if (index != kSourceDevice && index != device)
                (with_successor.size() < shape.member_count / 2 ? with_successor : with_source)
                    .push_back(index);
        with_successor.push_back(device);
        with_source.push_back(kSourceDevice);
    }

    SimVolume volume;
    Contents contents;
    std::vector<uint32_t> with_successor, with_source;
    uint32_t device = 0;
    uint64_t events = 0;  // until it is done, if power does not fail
};

}  // namespace

TEST_CASE("replace: power fails as the successor takes over, and of two parts only one goes on writing")
{
    constexpr VolumeShape kOdd{3, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB};
    enum class First : uint8_t { kSuccessor, kBoth, kSource, kForced };
    Prng prng(seed());
    for (const VolumeShape& shape : {kOdd, kRaid6})
        for (const First first : {First::kSuccessor, First::kBoth, First::kSource, First::kForced}) {
            int before = 0, after = 0;
            const uint64_t events = CutApart(shape, prng, 0).events;
            for (uint64_t cut = 0; cut <= events; ++cut) {
                CAPTURE(shape.member_count);
                CAPTURE(static_cast<int>(first));
                CAPTURE(cut);
                CutApart apart(shape, prng, cut);
                SimVolume& volume = apart.volume;
                Contents contents = apart.contents;
                // With both the first part is a majority anyhow.
                if (first == First::kBoth)
                    apart.with_successor.push_back(kSourceDevice);
                const auto successor = read_rings(*volume.borrow_one(apart.device));
                const bool taken = successor.ok() && successor->valid.front().member_id == kSource;
                const auto content = random_content(prng, 100 * kKiB);
                const auto& [one, other] = first == First::kSource
                                               ? std::tie(apart.with_source, apart.with_successor)
                                               : std::tie(apart.with_successor, apart.with_source);
                const bool goes =
                    goes_on(volume, one, "one", content, apart.contents, first == First::kForced);
                const bool shared =
                    !read_rings(*volume.borrow_one(kSourceDevice)).ok() ? false : first == First::kBoth;
                const bool too =
                    first != First::kForced && goes_on(volume, other, "other", content, apart.contents);
                CHECK((!goes || !too || shared));
                CHECK((goes || cut > 0 || first == First::kSource));
                CHECK((goes || !taken || first != First::kForced));
                before += goes ? 1 : 0;
                after += too ? 1 : 0;
                if (goes)
                    contents["one"] = content;
                if (too)
                    contents["other"] = content;
                std::string why;
                const Status all = volume.mount(manual_options(), why, blank_ones(volume));
                REQUIRE_MESSAGE(all.ok(), why);
                require_contents(volume.fs(), contents);
            }
            CHECK(before > 3);
            CHECK((after > 3 || first == First::kBoth || first == First::kForced));
        }
}

// Of the last superblocks of the source nothing is left, of older ones all.
TEST_CASE("replace: power fails as the source is erased, which was a member for longer")
{
    Prng prng(seed());
    int torn = 0;
    const uint64_t events = CutApart(kRaid5, prng, 0).events;
    for (uint64_t cut = 1; cut <= events; ++cut) {
        CAPTURE(cut);
        CutApart apart(kRaid5, prng, cut);
        SimVolume& volume = apart.volume;
        const auto reading = read_rings(*volume.borrow_one(kSourceDevice));
        const auto taken = read_rings(*volume.borrow_one(apart.device));
        if (!reading.ok() || !taken.ok() || taken->valid.front().member_id != kSource)
            continue;
        const std::vector<std::byte> zeros(kSuperblockSlotBytes);
        bool older = false;
        for (const Superblock& one : reading->valid) {
            older = older || !one.replace.active();
            for (const uint64_t ring : kSuperblockRingOffset)
                if (one.replace.active())
                    volume.member(kSourceDevice)
                        .poke(ring + one.generation.value % kSuperblockSlotCount * kSuperblockSlotBytes,
                              zeros);
        }
        REQUIRE(older);
        ++torn;
        std::string why;
        const Status all = volume.mount(manual_options(), why);
        REQUIRE_MESSAGE(all.ok(), why);
        CHECK(is_member(volume, apart.device));
        CHECK_FALSE(volume.fs().volume->degraded());
        require_contents(volume.fs(), apart.contents);
        CHECK(read_rings(*volume.borrow_one(kSourceDevice)).err() == Err::kNotFound);
    }
    CHECK(torn > 0);
}

TEST_CASE("replace: mounts go on with it, without copying again what was copied")
{
    Prng prng(seed());
    for (const bool power_fails : {false, true}) {
        SimVolume volume({4, 512 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * kKiB});
        make_and_mount(volume);
        Contents contents;
        for (int index = 0; index < 24; ++index) {
            contents["file" + std::to_string(index)] = random_content(prng, 4 * kMiB);
            write_file(volume.fs(), "file" + std::to_string(index), contents["file" + std::to_string(index)]);
        }
        REQUIRE(volume.fs().step(true).ok());
        const uint32_t device = start(volume);
        const uint64_t total = volume.fs().committer.replace.status().groups_total;
        REQUIRE(total > 3);
        uint64_t bytes = 0, copied = 0;
        int mounts = 0;
        while (mounts < 100 && volume.fs().committer.replace.status().active()) {
            for (int step = 0; step < 6 && volume.fs().replace_step(); ++step)
                continue;
            REQUIRE(volume.fs().step(true).ok());
            const ReplaceStatus status = volume.fs().committer.replace.status();
            bytes += status.copy.bytes_done;
            CHECK((!status.active() || status.groups_copied >= copied));
            copied = status.groups_copied;
            if (!status.active())
                break;
            if (power_fails)
                volume.power_cut(prng);
            else
                REQUIRE(volume.unmount().ok());
            volume.power().turn_on();
            mount(volume, manual_options());
            ++mounts;
        }
        CHECK(mounts > 2);
        CHECK(is_member(volume, device));
        // A third of the data and of the parity is on each of four, and nodes; groups may be begun twice.
        CHECK(bytes < 96 * kMiB / 3 * 2);
        require_redundant(volume, contents, kSourceDevice);
    }
}

TEST_CASE("replace: the successor fails at any write, and the volume goes on as if nothing had been")
{
    Prng prng(seed());
    int failures = 0;
    for (const VolumeShape& shape : {kRaid5, kMirrors, kStriped}) {
        for (uint64_t good = 0;; ++good) {
            REQUIRE(good < 400);
            SimVolume volume(shape);
            make_and_mount(volume);
            Filesystem& fs = volume.fs();
            Contents contents = fill(fs, prng, kMiB);
            const uint32_t device = volume.add_device(kMemberBytes);
            volume.cable(device).add_rule({.kinds = kFaultWrites | kFaultFlushes, .skip = good});
            std::string why;
            const bool started = start(volume, device, why).ok();
            for (int step = 0; step < 400 && fs.replace_step(); ++step)
                if (step < 10)
                    change_one(fs, prng, contents);
            const bool committed = fs.step(true).ok();
            const ReplaceStatus status = run(volume);
            if (is_member(volume, device))
                break;  // what fails from now on is the member
            REQUIRE(committed);
            CHECK_FALSE(fs.store.service.stopped());
            REQUIRE(fs.step(true).ok());
            ++failures;
            CHECK((!started || status.state == ReplaceState::kFailed));
            CHECK_FALSE(fs.volume->replacing().active());
            CHECK(fs.volume->member_table().size() == shape.member_count);
            CHECK_FALSE(fs.volume->degraded());
            // Whatever it says that it is, nobody takes it for a member.
            volume.power_cut(prng);
            volume.cable(device).remove_all_rules();
            mount(volume, manual_options(),
                  read_rings(*volume.borrow_one(device)).ok() ? std::vector<uint32_t>{}
                                                              : std::vector<uint32_t>{device});
            require_redundant(volume, contents, device);
        }
    }
    CHECK(failures > 30);
}

TEST_CASE("replace: the member fails between any steps, and its successor takes its place and catches up")
{
    Prng prng(seed());
    int early = 0;
    for (const VolumeShape& shape : {kRaid5, kRaid6, kMirrors}) {
        for (int steps = 0;; ++steps) {
            REQUIRE(steps < 100);
            SimVolume volume(shape);
            make_and_mount(volume);
            Filesystem& fs = volume.fs();
            Contents contents = fill(fs, prng, 3 * kMiB);
            const uint32_t device = start(volume);
            bool more = true;
            for (int step = 0; step < steps && more; ++step) {
                more = fs.replace_step();
                change_one(fs, prng, contents);
            }
            if (!fs.committer.replace.status().active())
                break;
            ++early;
            volume.cable(kSourceDevice).add_rule({.action = FaultAction::kGone});
            change_one(fs, prng, contents);
            REQUIRE(fs.step(prng.chance(1, 2)).ok());
            const ReplaceStatus status = run(volume);
            CHECK(status.state == ReplaceState::kFinished);
            CHECK(is_member(volume, device));
            for (int step = 0; step < 1000 && fs.catch_up_step().ok(); ++step)
                if (step % 8 == 7)
                    REQUIRE(fs.step(true).ok());
            REQUIRE(fs.step(true).ok());
            require_redundant(volume, contents, kSourceDevice);
        }
    }
    CHECK(early > 10);
}

TEST_CASE("replace: while the successor is away the member serves alone, and copying begins anew")
{
    Prng prng(seed());
    for (int round = 0; round < 6; ++round) {
        SimVolume volume(kRaid5);
        make_and_mount(volume);
        Contents contents = fill(volume.fs(), prng, 5 * kMiB);
        const uint32_t device = start(volume);
        for (int step = 0; step < 3 + round; ++step)
            volume.fs().replace_step();
        if (!volume.fs().committer.replace.status().active())
            break;
        REQUIRE(volume.fs().step(true).ok());
        const size_t epochs = volume.fs().volume->superblock().epochs.size();
        REQUIRE(volume.unmount().ok());
        mount(volume, manual_options(), {device});
        CHECK(volume.fs().committer.replace.status().state == ReplaceState::kWaiting);
        CHECK_FALSE(volume.fs().volume->degraded());
        CHECK(volume.fs().info().degraded_reason.empty());
        CHECK(volume.fs().volume->superblock().epochs.size() == epochs);
        CHECK_FALSE(volume.fs().replace_step());
        for (int change = 0; change < 30; ++change)
            change_one(volume.fs(), prng, contents);
        REQUIRE(volume.unmount().ok());
        mount(volume, manual_options());
        CHECK(volume.fs().committer.replace.status().groups_copied == 0);
        CHECK(run(volume).state == ReplaceState::kFinished);
        CHECK(is_member(volume, device));
        require_redundant(volume, contents, kSourceDevice);
    }
}

TEST_CASE("replace: where nothing is written any more it is paused, and so is a balance")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    const Contents contents = fill(volume.fs(), prng, 5 * kMiB);
    start(volume);
    const BalanceOptions options{.profiles = volume.fs().volume->profiles(), .content = kGroupData};
    REQUIRE(start_balance(volume.fs(), options).ok());
    CHECK(volume.fs().committer.replace.status().state == ReplaceState::kRunning);
    CHECK(volume.fs().committer.balance.status().state == BalanceStatus::State::kRunning);
    std::string why;
    REQUIRE(volume.fs().committer.remount(true, why).ok());
    const ReplaceStatus paused = volume.fs().committer.replace.status();
    CHECK(paused.state == ReplaceState::kPaused);
    CHECK(paused.active());
    CHECK_FALSE(paused.text.empty());
    CHECK(volume.fs().committer.balance.status().state == BalanceStatus::State::kPaused);
    REQUIRE(volume.fs().committer.remount(false, why).ok());
    CHECK(volume.fs().committer.balance.status().state == BalanceStatus::State::kRunning);
    CHECK(run(volume).state == ReplaceState::kFinished);
    require_contents(volume.fs(), contents);
}

TEST_CASE("replace: cancelled after any steps, it leaves the member and an empty device")
{
    Prng prng(seed());
    for (int steps = 0; steps < 12; ++steps) {
        SimVolume volume(kRaid5);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        const Contents contents = fill(fs, prng, 5 * kMiB);
        const uint32_t device = start(volume);
        for (int step = 0; step < steps; ++step)
            fs.replace_step();
        std::string why;
        const Status cancelled = fs.committer.replace.cancel(why);
        if (is_member(volume, device)) {
            CHECK(cancelled.err() == Err::kInvalid);
            break;
        }
        REQUIRE_MESSAGE(cancelled.ok(), why);
        CHECK(fs.committer.replace.status().state == ReplaceState::kCancelled);
        CHECK_FALSE(fs.replace_step());
        CHECK(read_rings(*volume.borrow_one(device)).err() == Err::kNotFound);
        CHECK(is_member(volume, kSourceDevice));
        require_redundant(volume, contents, device);
    }
}

TEST_CASE("replace: what cannot be is refused with a reason, and nothing changes")
{
    Prng prng(seed());
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const Contents contents = fill(fs, prng, 3 * kMiB);
    std::string why;
    const uint32_t small = volume.add_device(kMemberBytes - kMiB);
    CHECK(start(volume, small, why).err() == Err::kNoSpace);
    CHECK_MESSAGE(why.find("use one that is not smaller") != std::string::npos, why);
    const uint32_t device = start(volume);
    const uint32_t another = volume.add_device(kMemberBytes);
    CHECK(fs.committer.replace_member({1}, volume.borrow_one(another), why).err() == Err::kBusy);
    CHECK(fs.committer.replace_member({9}, volume.borrow_one(another), why).err() == Err::kInvalid);
    for (const uint32_t member : {2u, 5u}) {
        CHECK(fs.committer.balance
                  .start({.profiles = fs.volume->profiles(), .content = kAllContent, .member = {member}}, why)
                  .err() == Err::kBusy);
        CHECK(fs.committer.grow_member({member}, why).err() == Err::kBusy);
    }
    CHECK(run(volume).state == ReplaceState::kFinished);
    CHECK(is_member(volume, device));
    REQUIRE(fs.committer.balance
                .start({.profiles = fs.volume->profiles(), .content = kAllContent, .member = kSource}, why)
                .ok());
    CHECK(start(volume, another, why).err() == Err::kBusy);
    require_contents(fs, contents);
}

TEST_CASE("replace: a plan refuses what the command would, says what it takes, and changes nothing")
{
    Prng prng(seed());
    for (const bool in_service : {true, false})
        for (const bool by_spare : {false, true}) {
            CAPTURE(in_service);
            CAPTURE(by_spare);
            SimVolume volume(kRaid5);
            make_and_mount(volume);
            const Contents contents = fill(volume.fs(), prng, 9 * kMiB);
            const uint32_t device = volume.add_device(kMemberBytes);
            const std::vector<std::byte> before = random_content(prng, 16 * kMiB);
            volume.member(device).poke(0, before);
            std::string why;
            MemberId spare;
            if (by_spare) {
                const auto added = volume.fs().committer.add_spare(volume.borrow_one(device), why);
                REQUIRE_MESSAGE(added.ok(), why);
                spare = *added;
            }
            if (!in_service) {
                REQUIRE(volume.unmount().ok());
                mount(volume, degraded_options(), {kSourceDevice});
            }
            Committer& committer = volume.fs().committer;
            const auto plan_with = [&](MemberId id, uint64_t bytes, BalancePlan& plan) {
                return committer.plan_replacement(id, "it", bytes, spare, plan, why);
            };
            const Superblock superblock = volume.fs().volume->superblock();
            BalancePlan plan;
            REQUIRE_MESSAGE(plan_with(kSource, kMemberBytes, plan).ok(), why);
            CHECK(plan.device.needed == kMemberBytes);
            CHECK(plan.device.there == kMemberBytes);
            CHECK(plan.moved_bytes > 2 * kMiB);
            CHECK(plan.tolerance_before == (in_service ? 1 : 0));
            CHECK(plan.tolerance_meanwhile == plan.tolerance_before);
            CHECK(plan.tolerance_after == 1);
            CHECK(plan.rate == 0);
            CHECK(plan_with({9}, kMemberBytes, plan).err() == Err::kInvalid);
            if (!by_spare) {
                CHECK(plan_with(kSource, kMemberBytes - kMiB, plan).err() == Err::kNoSpace);
                CHECK_MESSAGE(why.find("use one that is not smaller") != std::string::npos, why);
                std::vector<std::byte> after(before.size());
                volume.member(device).peek(0, after);
                CHECK(after == before);
            } else {
                CHECK(committer.plan_replacement(kSource, "", 0, {77}, plan, why).err() == Err::kInvalid);
                CHECK(volume.fs().volume->spares().device(spare) != nullptr);
            }
            CHECK_FALSE(volume.fs().volume->replacing().active());
            CHECK(volume.fs().volume->superblock().members == superblock.members);
            CHECK(volume.fs().volume->superblock().spares == superblock.spares);
            // Then it is as the plan said.
            REQUIRE_MESSAGE(
                committer
                    .replace_member(kSource,
                                    by_spare ? std::unique_ptr<BlockDevice>() : volume.borrow_one(device),
                                    why, spare)
                    .ok(),
                why);
            CHECK(committer.replace_member({1}, nullptr, why, {77}).err() == Err::kInvalid);
            if (in_service) {
                CHECK(plan_with({1}, kMemberBytes, plan).err() == (by_spare ? Err::kInvalid : Err::kBusy));
                const ReplaceStatus status = run(volume);
                CHECK(status.state == ReplaceState::kFinished);
                CHECK(status.copy.bytes_done < plan.moved_bytes * 2 + kMiB);
                CHECK(status.copy.bytes_done + kMiB > plan.moved_bytes / 2);
                CHECK(committer.replace.rate() == 0);  // too small to tell how long the next one takes
            } else {
                for (int step = 0; step < 1000 && volume.fs().catch_up_step().ok(); ++step)
                    if (step % 8 == 7)
                        REQUIRE(volume.fs().step(true).ok());
                REQUIRE(volume.fs().step(true).ok());
            }
            CHECK(is_member(volume, device));
            require_redundant(volume, contents, kSourceDevice);
        }
}

// A row may be written in place while a reader keeps its freed blocks from being free: the rest of the row is
// not written then.
TEST_CASE("replace: rows of which all blocks were freed are copied while a reader needs them")
{
    Prng prng(seed());
    for (const VolumeShape& shape : {kRaid5, kRaid6}) {
        SimVolume volume(shape);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        const Contents contents = fill(fs, prng, 2 * kMiB);
        write_file(fs, "gone", random_content(prng, 2 * kBlockBytes));
        REQUIRE(fs.step(true).ok());
        View reader = fs.store.timeline.view();
        const InodeNumber gone = find_file(fs, "gone");
        REQUIRE(fs.names.unlink(kRoot, "gone").ok());
        fs.names.forget(gone, 1000);
        REQUIRE(fs.step(true).ok());
        REQUIRE(fs.step(true).ok());
        std::vector<uint64_t> offsets;  // on the source and on its successor
        for (const Ref<const ArrayGroup>& group : fs.volume->array().groups()) {
            const Geometry& geometry = group->geometry;
            std::vector<BlockRun> pinned;
            if (group->record.content == kGroupData)
                REQUIRE(fs.store.allocator
                            .pinned_in({group->record.address, static_cast<uint32_t>(geometry.data_blocks())},
                                       pinned)
                            .ok());
            for (const BlockRun& run : pinned)
                for (uint32_t column = 0; column < geometry.columns(); ++column)
                    if (group->record.columns[column].member == kSource) {
                        const uint64_t block = (run.address - group->record.address) / kBlockBytes;
                        const uint64_t row =
                            block / geometry.stripe_data_blocks() * geometry.rows() + block % geometry.rows();
                        offsets.push_back(group->locate(column, row * kBlockBytes).offset.value);
                    }
        }
        REQUIRE_FALSE(offsets.empty());
        const uint32_t device = start(volume);
        CHECK(run(volume).state == ReplaceState::kFinished);
        std::vector<std::byte> copied(kBlockBytes), wanted(kBlockBytes);
        for (const uint64_t offset : offsets) {
            volume.member(kSourceDevice).peek(offset, wanted);
            volume.member(device).peek(offset, copied);
            CHECK((copied == wanted));
        }
        reader = {};
        require_redundant(volume, contents, kSourceDevice);
    }
}

TEST_CASE("replace: a member of a degraded volume")
{
    Prng prng(seed());
    for (const VolumeShape& shape : {kRaid5, kRaid6, kMirrors}) {
        SimVolume volume(shape);
        make_and_mount(volume);
        Contents contents = fill(volume.fs(), prng, 5 * kMiB);
        REQUIRE(volume.unmount().ok());
        mount(volume, degraded_options(), {0});
        const uint32_t device = volume.add_device(kMemberBytes);
        std::string why;
        const Status started = start(volume, device, why);
        REQUIRE_MESSAGE(started.ok(), why);
        for (int step = 0; step < 2000 && volume.fs().replace_step(); ++step)
            change_one(volume.fs(), prng, contents);
        CHECK(is_member(volume, device));
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        mount(volume, degraded_options(), {0, kSourceDevice});
        require_contents(volume.fs(), contents);
    }
}

#ifdef COWRAID_MUTANTS

namespace {

// Something the successor lacks, or that the volume has lost.
bool harmed(CommitMutant mutant, Prng& prng, uint64_t round)
{
    const MutantScope scope(mutant);
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    Contents contents = fill(volume.fs(), prng, 5 * kMiB);
    const uint32_t device = start(volume);
    if (mutant == CommitMutant::kSuccessorLast)
        while (volume.fs().committer.replace.status().groups_copied <
               volume.fs().committer.replace.status().groups_total)
            volume.fs().replace_step();
    if (mutant == CommitMutant::kSuccessorLast)
        volume.power().arm(1 + round);
    for (int step = 0; step < 2000 && volume.fs().replace_step(); ++step)
        if (mutant == CommitMutant::kWrittenToOneOnly) {
            change_one(volume.fs(), prng, contents);
        } else if (mutant == CommitMutant::kAbsentTargetTrusted && step == 6) {
            REQUIRE(volume.fs().step(true).ok());
            REQUIRE(volume.unmount().ok());
            mount(volume, degraded_options(), {device});
            for (int change = 0; change < 30; ++change)
                change_one(volume.fs(), prng, contents);
            REQUIRE(volume.unmount().ok());
            mount(volume, manual_options());
        }
    volume.power_cut(prng);
    volume.power().turn_on();
    std::string why;
    std::vector<uint32_t> blank;
    for (const uint32_t index : {kSourceDevice, device})
        if (!read_rings(*volume.borrow_one(index)).ok())
            blank.push_back(index);
    if (!volume.mount(manual_options(), why, blank).ok() || volume.fs().volume->degraded())
        return true;
    run(volume);
    if (!is_member(volume, device))
        return false;
    const ScrubStatus found = scrub(volume.fs());
    return found.repaired + found.lost + found.unreadable_nodes > 0;
}

}  // namespace

TEST_CASE("replace: every wrong protocol is caught")
{
    Prng prng(seed());
    for (const CommitMutant mutant :
         {CommitMutant::kNone, CommitMutant::kWrittenToOneOnly, CommitMutant::kAbsentTargetTrusted,
          CommitMutant::kTakenOverEarly, CommitMutant::kSuccessorLast, CommitMutant::kCopiedNoNodes}) {
        CAPTURE(static_cast<uint32_t>(mutant));
        int caught = 0;
        for (uint64_t round = 0; round < (mutant == CommitMutant::kSuccessorLast ? 200 : 20) && caught == 0;
             ++round)
            caught += harmed(mutant, prng, round) ? 1 : 0;
        CHECK((caught > 0) == (mutant != CommitMutant::kNone));
    }
}

#endif
