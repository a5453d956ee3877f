// SPDX-License-Identifier: MIT
// Members that are made smaller while the volume is used.
#include "fs/volume/commit_mutant.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using State = BalanceStatus::State;

constexpr uint64_t kFullBytes = 160 * kMiB;  // nine slots
constexpr uint64_t kSmallBytes = 96 * kMiB + 8 * kKiB;  // five, and a piece of the next one
constexpr uint64_t kSmallSlots = 5;
constexpr VolumeShape kParity{4, kFullBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB};
constexpr VolumeShape kTwoParities{5, kFullBytes, ProfileId::kRaid6, ProfileId::kRaid6, 16 * kKiB};
constexpr VolumeShape kCopies{3, kFullBytes, ProfileId::kRaid1, ProfileId::kRaid1, 16 * kKiB};
constexpr VolumeShape kStripedPairs{5, kFullBytes, ProfileId::kRaid10, ProfileId::kRaid10, 16 * kKiB};
constexpr VolumeShape kAlone{2, kFullBytes, ProfileId::kSingle, ProfileId::kRaid1, 16 * kKiB};

Status start_shrinking(Filesystem& fs, uint64_t size_bytes, std::string& why, MemberId member = {1})
{
    return fs.committer.balance.start({.profiles = fs.volume->profiles(),
                                       .content = kAllContent,
                                       .member = member,
                                       .shrink_bytes = size_bytes},
                                      why);
}

const MemberRecord& line_of(Filesystem& fs)
{
    return *fs.volume->superblock().member({1});
}

// Groups with a slot of the member behind those that it keeps, made by that commit or later.
int groups_beyond(Filesystem& fs, Generation since = {})
{
    int count = 0;
    for (const GroupRecord& group : fs.volume->map().groups)
        for (const GroupColumn& column : group.columns)
            for (const SlotRun& run : column.runs)
                if (column.member == MemberId{1} && run.first_slot + run.slot_count > kSmallSlots &&
                    group.created_generation >= since)
                    ++count;
    return count;
}

// Low slots come free again, so that what is left lies in high ones.
Contents fill_high_slots(Filesystem& fs, Prng& prng)
{
    const uint64_t available = fs.statistics().available_blocks * kBlockBytes;
    write_file(fs, "first", random_content(prng, available / 100 * 45));
    REQUIRE(fs.step(true).ok());
    Contents contents = fill(fs, prng, available / 100 * 20);
    REQUIRE(fs.names.unlink(kRoot, "first").ok());
    for (int step = 0; step < 8; ++step)
        REQUIRE(fs.step(true).ok());
    REQUIRE(groups_beyond(fs) > 0);
    return contents;
}

// The volume does not care what is behind the member's end now.
void overwrite_beyond(SimVolume& volume, Prng& prng)
{
    const std::vector<std::byte> garbage = random_content(prng, kFullBytes - kSmallBytes);
    volume.member(0).poke(kSmallBytes, garbage);
}

}  // namespace

TEST_CASE("shrinking: what lies beyond moves, the end of the device is nobody's, and it can grow again")
{
    Prng prng(seed());
    for (const VolumeShape& shape : {kParity, kTwoParities, kCopies, kStripedPairs, kAlone}) {
        CAPTURE(find_profile(shape.data_profile)->name);
        SimVolume volume(shape);
        make_and_mount(volume);
        Contents contents = fill_high_slots(volume.fs(), prng);
        const uint64_t before = volume.fs().statistics().total_blocks;
        std::string why;
        const Status started = start_shrinking(volume.fs(), kSmallBytes, why);
        REQUIRE_MESSAGE(started.ok(), why);
        CHECK(volume.fs().committer.balance.status().shrink_bytes == kSmallBytes);
        const BalanceStatus status = finish(volume.fs());
        CHECK(status.state == State::kFinished);
        CHECK(status.groups_stuck == 0);
        CHECK(line_of(volume.fs()).size_bytes == kSmallBytes);
        CHECK(line_of(volume.fs()).slot_count == kSmallSlots);
        CHECK(groups_beyond(volume.fs()) == 0);
        CHECK(volume.fs().statistics().total_blocks < before);
        CHECK(volume.fs().volume->superblock().balance == BalanceRecord());
        overwrite_beyond(volume, prng);
        contents["later"] = random_content(prng, 5 * kMiB);
        write_file(volume.fs(), "later", contents["later"]);
        REQUIRE(volume.fs().step(true).ok());
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
        if (find_profile(shape.data_profile)->tolerance > 0) {
            mount(volume, degraded_options(), {2});
            require_contents(volume.fs(), contents);
            volume.kill();
        }
        mount(volume, manual_options());
        CHECK(line_of(volume.fs()).size_bytes == kSmallBytes);
        const auto larger = volume.fs().committer.grow_member({1}, why, 128 * kMiB);
        REQUIRE_MESSAGE(larger.ok(), why);
        CHECK(*larger == 128 * kMiB);
        const auto grown = volume.fs().committer.grow_member({1}, why);
        REQUIRE_MESSAGE(grown.ok(), why);
        CHECK(*grown == kFullBytes);
        // Groups that were made meanwhile may be narrower.
        CHECK(volume.fs().statistics().total_blocks > before / 100 * 95);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

TEST_CASE("shrinking: killed or cut off at any time it goes on by itself, beside writers")
{
    Prng prng(seed());
    for (const int steps : {0, 1, 2, 3, 5, 8}) {
        CAPTURE(steps);
        SimVolume volume(steps % 2 == 0 ? kParity : kCopies);
        make_and_mount(volume);
        Contents contents = fill_high_slots(volume.fs(), prng);
        std::string why;
        REQUIRE_MESSAGE(start_shrinking(volume.fs(), kSmallBytes, why).ok(), why);
        const Generation begun = volume.fs().volume->superblock().generation.next();
        bool smaller = false;
        for (int mounts = 0; mounts < 200 && !smaller; ++mounts) {
            const std::string name = "beside" + std::to_string(mounts % 8);
            const std::vector<std::byte> content = random_content(prng, 1 + prng.below(kMiB));
            if (contents.count(name) == 0) {
                write_file(volume.fs(), name, content);
                REQUIRE(volume.fs().step(true).ok());
                contents[name] = content;
            }
            continue_balance(volume.fs(), steps + mounts, true);
            require_contents(volume.fs(), contents);
            CHECK(groups_beyond(volume.fs(), begun) == 0);
            if (prng.chance(1, 2))
                volume.kill();
            else
                volume.power_cut(prng);
            mount(volume, manual_options());
            CHECK((volume.fs().volume->superblock().incompat_features >> 8 & 1) ==
                  (volume.fs().volume->superblock().balance.shrink_bytes != 0 ? 1 : 0));
            smaller = line_of(volume.fs()).size_bytes == kSmallBytes;
            CHECK((smaller || volume.fs().volume->superblock().balance.shrink_bytes == kSmallBytes));
        }
        CHECK(smaller);
        overwrite_beyond(volume, prng);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

TEST_CASE("shrinking: power fails at every write of its last step, and the size fits what is there")
{
    Prng prng(seed());
    uint64_t events = 0;
    int smaller = 0, as_before = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; cut = next_cut(cut)) {
        CAPTURE(cut);
        SimVolume volume(kCopies);
        make_and_mount(volume);
        const Contents contents = fill(volume.fs(), prng, kMiB);
        std::string why;
        REQUIRE(start_shrinking(volume.fs(), kSmallBytes, why).ok());
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        continue_balance(volume.fs(), 50, true);
        const bool finished = volume.fs().committer.balance.status().state == State::kFinished;
        if (cut == 0) {
            REQUIRE(finished);
            events = volume.power().events() - begin;
        }
        volume.power_cut(prng);
        volume.power().turn_on();
        mount(volume, manual_options());
        const bool now = line_of(volume.fs()).size_bytes == kSmallBytes;
        CHECK((now || !finished));
        (now ? smaller : as_before) += 1;
        if (now)
            overwrite_beyond(volume, prng);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
    CHECK(smaller > 1 / kCutStep);
    CHECK(as_before > 2 / kCutStep);
}

TEST_CASE("shrinking: what would not do is refused as its plan is, and nothing changes")
{
    Prng prng(seed());
    SimVolume volume(kParity);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    const auto refused = [&](uint64_t size_bytes, Err err, const char* text, MemberId member = {1}) {
        std::string why, planned;
        BalancePlan plan;
        const Superblock before = fs.volume->superblock();
        const Status status = fs.committer.balance.plan({.profiles = fs.volume->profiles(),
                                                         .content = kAllContent,
                                                         .member = member,
                                                         .shrink_bytes = size_bytes},
                                                        plan, planned);
        CHECK(status.err() == err);
        CHECK(start_shrinking(fs, size_bytes, why, member).err() == err);
        CHECK(why == planned);
        CHECK_MESSAGE(why.find(text) != std::string::npos, why);
        CHECK(fs.volume->superblock().members == before.members);
        CHECK(fs.volume->superblock().balance == before.balance);
    };
    refused(kFullBytes, Err::kInvalid, "can be made smaller, to 64.00MiB at least");
    refused(kFullBytes + kMiB, Err::kInvalid, "can be made smaller");
    refused(64 * kMiB - 1, Err::kInvalid, "64.00MiB at least");
    refused(1, Err::kInvalid, "64.00MiB at least");
    refused(kSmallBytes, Err::kInvalid, "there is no member 9", {9});
    const uint64_t available = fs.statistics().available_blocks * kBlockBytes;
    Contents contents = fill(fs, prng, available / 10 * 8);
    refused(64 * kMiB, Err::kNoSpace, "no room");
    REQUIRE(fs.names.unlink(kRoot, "large").ok());
    contents.erase("large");
    REQUIRE(fs.step(true).ok());
    std::string why;
    const uint32_t device = volume.add_device(kFullBytes);
    REQUIRE(fs.committer.replace_member({1}, volume.borrow_one(device), why).ok());
    refused(kSmallBytes, Err::kBusy, "part of a replacement");
    REQUIRE(fs.committer.replace.cancel(why).ok());
    REQUIRE_MESSAGE(start_shrinking(fs, kSmallBytes, why).ok(), why);
    refused(kSmallBytes, Err::kBusy, "is being made smaller");
    CHECK(fs.committer.grow_member({1}, why).err() == Err::kBusy);
    CHECK_MESSAGE(why.find("is being made smaller") != std::string::npos, why);
    CHECK(fs.committer.replace_member({1}, volume.borrow_one(device), why).err() == Err::kBusy);
    CHECK(why.find("is being made smaller") != std::string::npos);
    require_contents(fs, contents);
}

TEST_CASE("shrinking: paused and cancelled the room is everybody's, and resuming asks for it anew")
{
    Prng prng(seed());
    SimVolume volume(kCopies);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Contents contents = fill(fs, prng, 3 * kMiB);
    const uint64_t before = fs.statistics().available_blocks;
    std::string why;
    REQUIRE(start_shrinking(fs, kSmallBytes, why).ok());
    CHECK(fs.statistics().available_blocks < before);
    REQUIRE(fs.committer.balance.pause(why).ok());
    CHECK(fs.statistics().available_blocks == before);
    contents["much"] = random_content(prng, before * kBlockBytes / 10 * 9);
    write_file(fs, "much", contents["much"]);
    REQUIRE(fs.step(true).ok());
    CHECK(groups_beyond(fs) > 0);
    CHECK(fs.committer.balance.resume(why).err() == Err::kNoSpace);
    REQUIRE(fs.committer.balance.cancel(why).ok());
    CHECK(line_of(fs).size_bytes == kFullBytes);
    REQUIRE(fs.names.unlink(kRoot, "much").ok());
    contents.erase("much");
    for (int step = 0; step < 6; ++step)
        REQUIRE(fs.step(true).ok());
    REQUIRE_MESSAGE(start_shrinking(fs, kSmallBytes, why).ok(), why);
    CHECK(finish(fs).state == State::kFinished);
    CHECK(line_of(fs).size_bytes == kSmallBytes);
    require_contents(fs, contents);
}

TEST_CASE("shrinking: a member that is away, and one that fails on the way, are made smaller all the same")
{
    Prng prng(seed());
    for (const bool before : {true, false}) {
        SimVolume volume(kParity);
        make_and_mount(volume);
        Contents contents = fill_high_slots(volume.fs(), prng);
        std::string why;
        if (before) {
            REQUIRE(volume.unmount().ok());
            mount(volume, degraded_options(), {0});
        }
        REQUIRE_MESSAGE(start_shrinking(volume.fs(), kSmallBytes, why).ok(), why);
        continue_balance(volume.fs(), 2, true);
        volume.cable(0).add_rule({.action = FaultAction::kGone});
        change_one(volume.fs(), prng, contents);
        REQUIRE(volume.fs().step(true).ok());
        CHECK(finish(volume.fs()).state == State::kFinished);
        CHECK(line_of(volume.fs()).size_bytes == kSmallBytes);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        volume.cable(0).remove_all_rules();
        overwrite_beyond(volume, prng);
        mount(volume, degraded_options());
        CHECK_FALSE(volume.fs().volume->degraded());
        require_contents(volume.fs(), contents);
    }
}

#ifdef COWRAID_MUTANTS

TEST_CASE("shrinking: new groups keep off what is going")
{
    Prng prng(seed());
    for (const bool wrong : {false, true}) {
        const MutantScope mutant(wrong ? CommitMutant::kShrunkPartUsed : CommitMutant::kNone);
        SimVolume volume(kCopies);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        std::string why;
        REQUIRE_MESSAGE(start_shrinking(fs, kSmallBytes, why).ok(), why);
        const Generation begun = fs.volume->superblock().generation.next();
        const uint64_t much = fs.statistics().available_blocks * kBlockBytes / 10 * 9;
        write_file(fs, "much", random_content(prng, much));
        REQUIRE(fs.step(true).ok());
        CHECK((groups_beyond(fs, begun) > 0) == wrong);
    }
}

#endif

TEST_CASE("shrinking: the member is replaced by a spare all the same, running or paused")
{
    Prng prng(seed());
    for (const bool paused : {false, true}) {
        CAPTURE(paused);
        SimVolume volume(kParity);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        const Contents contents = fill(fs, prng, 8 * kMiB);
        std::string why;
        const uint32_t device = volume.add_device(kFullBytes);
        REQUIRE(fs.committer.add_spare(volume.borrow_one(device), why).ok());
        REQUIRE(start_shrinking(fs, kSmallBytes, why).ok());
        if (paused)
            REQUIRE(fs.committer.balance.pause(why).ok());
        MemberSet& members = fs.volume->members();
        members.set_error_budget(4);
        members.note_repair({1}, {0}, MemberSet::Repair::kDoesNotHold);
        fs.committer.use_spares();
        CHECK(fs.volume->replacing().source == MemberId{1});
        CHECK_FALSE(fs.committer.balance.status().active());
        for (int step = 0; step < 2000 && fs.committer.replace.status().active(); ++step)
            if (!fs.committer.replace.step())
                REQUIRE(fs.step(true).ok());
        CHECK(members.path({1}) == volume.member(device).name());
        require_contents(fs, contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {0});
    }
}
