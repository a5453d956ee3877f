// SPDX-License-Identifier: MIT
// Devices in reserve: they wait, take the place of members that fail, and go.
#include <unistd.h>

#include <thread>

#include "format/feature_table.h"
#include "fs/volume/commit_mutant.h"
#include "tests/filesystem/spares_steps.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

TEST_CASE("spares: one waits over mounts, takes the place of a member that fails, and carries its share")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Contents contents = fill(volume.fs(), prng, 5 * kMiB);
    const uint32_t device = volume.add_device(kSpareBytes);
    const auto spare = add_spare(volume, device);
    REQUIRE(spare.ok());
    CHECK(spare->value == 5);
    volume.fs().committer.use_spares();
    CHECK(volume.fs().volume->spare_table().size() == 1);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
    mount(volume, spare_options());
    CHECK(volume.fs().volume->spares().path(*spare) == "member5");
    CHECK(volume.fs().info().members.size() == 4);
    CHECK(volume.fs().info().spares.size() == 1);
    require_contents(volume.fs(), contents);
    fail_writes(volume, 1, prng, contents);
    REQUIRE(volume.fs().volume->members().failed({2}));
    volume.fs().committer.use_spares();
    CHECK(device_of(volume, {2}) == "member5");
    CHECK(volume.fs().volume->spare_table().empty());
    CHECK((volume.fs().volume->superblock().incompat_features & feature_bit("spares")) == 0);
    catch_up(volume.fs());
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume, {1});
    // The old device is nobody's, and any other may go.
    for (const uint32_t lost : {0u, 2u, 3u}) {
        mount(volume, spare_options(), {1, lost});
        CHECK(device_of(volume, {2}) == "member5");
        require_contents(volume.fs(), contents);
        volume.kill();
    }
}

TEST_CASE("spares: power fails at every write of adding one")
{
    Prng prng(seed());
    uint64_t events = 0;
    int with = 0, without = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; cut = next_cut(cut)) {
        CAPTURE(cut);
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        const Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        std::string why;
        const auto added = volume.fs().committer.add_spare(volume.borrow_one(device), why);
        if (cut == 0)
            events = volume.power().events() - begin;
        CHECK((added.ok() || cut > 0));
        volume.power_cut(prng);
        volume.power().turn_on();
        mount(volume, spare_options(),
              has_superblock(volume, device) ? std::vector<uint32_t>{} : std::vector<uint32_t>{device});
        const std::vector<MemberRecord> table = volume.fs().volume->spare_table();
        CHECK((table.size() == 1 || !added.ok()));
        // No superblock names a spare that is not found.
        for (const MemberRecord& line : table)
            CHECK(volume.fs().volume->spares().path(line.id) == "member5");
        (table.empty() ? without : with) += 1;
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
    }
    CHECK(with > 1 / kCutStep);
    CHECK(without > 2 / kCutStep);
}

namespace {

bool has_torn_superblocks(SimVolume& volume)
{
    bool any = false;
    for (uint32_t device = 0; device < 5; ++device) {
        const Result<RingReading> rings = read_rings(*volume.borrow_one(device));
        any = any || (rings.ok() && rings->damaged_slots > 0);
    }
    return any;
}

// Power cuts while a spare takes a member's place.
struct SpareCuts {
    int lost = 0;  // how many left a device that is neither
    std::vector<uint64_t> in_superblocks;  // that left torn superblocks
};

// At each event, or at those of `only`. Before a cut volumes are the same every time.
SpareCuts cut_takeovers(Prng& fate, const std::vector<uint64_t>& only, const PowerCutOptions& options = {})
{
    SpareCuts cuts;
    uint64_t events = 0, more_commits = 0;
    int waiting = 0, renewed = 0;
    const auto next = [&](uint64_t cut) {
        const auto behind = std::upper_bound(only.begin(), only.end(), cut);
        return only.empty() ? next_cut(cut) : behind == only.end() ? events : *behind;
    };
    for (uint64_t cut = 0; cut == 0 || cut < events; cut = next(cut)) {
        CAPTURE(cut);
        Prng prng(seed());
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        REQUIRE(add_spare(volume, device).ok());
        const uint64_t own = newest_on(volume, device);
        // So many that its first superblock as a member is for the slot of its own.
        for (uint64_t commit = 0; commit < more_commits; ++commit) {
            const std::string name = "more" + std::to_string(commit);
            contents[name] = random_content(prng, 100);
            write_file(volume.fs(), name, contents[name]);
            REQUIRE(volume.fs().step(true).ok());
        }
        fail_writes(volume, 1, prng, contents);
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        volume.fs().committer.use_spares();
        if (cut == 0) {
            events = volume.power().events() - begin;
            more_commits =
                (own + 4 * kSuperblockSlotCount - newest_on(volume, device)) % kSuperblockSlotCount;
        }
        const bool done = device_of(volume, {2}) == "member5";
        const bool returned = done && volume.power().on();
        volume.power_cut(fate, options);
        volume.power().turn_on();
        if (has_torn_superblocks(volume))
            cuts.in_superblocks.push_back(cut);
        const bool found = has_superblock(volume, device);
        // The others may go on without it, once more.
        const bool alone = !done && fate.chance(1, 4);
        if (alone) {
            mount(volume, spare_options(), {1, device});
            contents["alone"] = random_content(prng, 100 * kKiB);
            write_file(volume.fs(), "alone", contents["alone"]);
            REQUIRE(volume.unmount().ok());
        }
        mount(volume, spare_options(), found ? std::vector<uint32_t>{1} : std::vector<uint32_t>{1, device});
        const bool in_place = device_of(volume, {2}) == "member5";
        CHECK((in_place || !returned));
        require_contents(volume.fs(), contents);
        (in_place ? renewed : waiting) += 1;
        // It goes on by itself.
        volume.fs().committer.use_spares();
        if (device_of(volume, {2}) != "member5") {
            // Where the others went on without it, it may be left out.
            cuts.lost += alone ? 0 : 1;
            continue;
        }
        catch_up(volume.fs());
        // Who went on without it did not learn what became of it.
        CHECK((volume.fs().volume->spare_table().empty() || alone));
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {1});
        mount(volume, spare_options(), {1, static_cast<uint32_t>(fate.below(2) * 2)});
        require_contents(volume.fs(), contents);
        volume.kill();
    }
    if (only.empty()) {
        CHECK(waiting > 5 / kCutStep);
        CHECK(renewed > 0);
        CHECK(cuts.in_superblocks.size() > 1);
    }
    return cuts;
}

}  // namespace

TEST_CASE("spares: power fails at every write of one that takes a member's place")
{
    Prng fate(seed());
    CHECK(cut_takeovers(fate, {}).lost == 0);
}

#ifdef COWRAID_MUTANTS
TEST_CASE("spares: with wrong orders of its superblocks a power cut loses one")
{
    // Cuts that often tear both copies.
    constexpr PowerCutOptions kTorn{.keep_percent = 20, .tear_percent = 60};
    Prng right_fate(seed());
    CHECK(cut_takeovers(right_fate, {}, kTorn).lost == 0);
    for (const CommitMutant mutant : {CommitMutant::kSpareTorn, CommitMutant::kSpareLast}) {
        const MutantScope scope(mutant);
        CAPTURE(static_cast<uint32_t>(mutant));
        Prng fate(seed());
        const SpareCuts all = cut_takeovers(fate, {}, kTorn);
        int lost = all.lost;
        int rounds = 0;
        for (; rounds < 100 && lost == 0; ++rounds)
            lost = cut_takeovers(fate, all.in_superblocks, kTorn).lost;
        CHECK(lost > 0);
        MESSAGE("lost after round ", rounds);
    }
}
#endif

// Put in a place it would be found by its own superblock, as a spare still.
TEST_CASE("spares: one that was there at later commits than the members is left out")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    const Contents contents = fill(volume.fs(), prng, kMiB);
    const uint32_t device = volume.add_device(kSpareBytes);
    const auto spare = add_spare(volume, device);
    REQUIRE(spare.ok());
    REQUIRE(volume.unmount().ok());
    Superblock own = read_rings(*volume.borrow_one(device))->valid.front();
    own.generation.value += 50;
    REQUIRE(write_spare(*volume.borrow_one(device), own, *spare).ok());
    mount(volume, spare_options());
    CHECK(volume.fs().volume->spares().path(*spare).empty());
    std::string why;
    CHECK_FALSE(volume.fs().committer.online_member({}, volume.borrow_one(device), why).ok());
    CHECK(why.find("later commit") != std::string::npos);
    require_contents(volume.fs(), contents);
}

TEST_CASE("spares: one that is put in a place by hand and fails is marked, too")
{
    Prng prng(seed());
    for (const bool serves : {true, false}) {
        CAPTURE(serves);
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        const auto spare = add_spare(volume, device);
        REQUIRE(spare.ok());
        if (!serves)
            fail_writes(volume, 1, prng, contents);
        volume.cable(device).add_rule({.kinds = kFaultWrites});
        std::string why;
        CHECK(volume.fs().committer.replace_member({2}, nullptr, why, *spare).err() == Err::kIo);
        CHECK(volume.fs().volume->spares().useless(*spare));
        require_contents(volume.fs(), contents);
    }
}

TEST_CASE("spares: the smallest that will do, and the next where one fails")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Contents contents = fill(volume.fs(), prng, 2 * kMiB);
    std::string why;
    const uint32_t small = volume.add_device(kSpareBytes - 16 * kMiB);
    CHECK(volume.fs().committer.add_spare(volume.borrow_one(small), why).err() == Err::kInvalid);
    CHECK(why.find("the smallest member has") != std::string::npos);
    const uint32_t large = volume.add_device(kSpareBytes + 64 * kMiB);
    const uint32_t broken = volume.add_device(kSpareBytes + 16 * kMiB);
    const uint32_t better = volume.add_device(kSpareBytes + 32 * kMiB);
    const auto large_id = add_spare(volume, large);
    const auto broken_id = add_spare(volume, broken);
    const auto better_id = add_spare(volume, better);
    REQUIRE((large_id.ok() && broken_id.ok() && better_id.ok()));
    volume.cable(broken).add_rule({.kinds = kFaultWrites});
    fail_writes(volume, 3, prng, contents);
    volume.fs().committer.use_spares();
    CHECK(device_of(volume, {4}).empty());
    CHECK(volume.fs().volume->spares().useless(*broken_id));
    volume.fs().committer.use_spares();
    CHECK(device_of(volume, {4}) == volume.member(better).name());
    CHECK(volume.fs().volume->spare_table().size() == 2);
    catch_up(volume.fs());
    // A second one fails: the third takes its place.
    fail_writes(volume, 0, prng, contents);
    volume.fs().committer.use_spares();
    CHECK(device_of(volume, {1}) == volume.member(large).name());
    catch_up(volume.fs());
    require_contents(volume.fs(), contents);
    // The broken one can be removed, a spare that is none cannot.
    CHECK(volume.fs().committer.remove_spare(*broken_id, why).ok());
    why.clear();
    CHECK(volume.fs().committer.remove_spare(*large_id, why).err() == Err::kInvalid);
    CHECK(volume.fs().volume->spare_table().empty());
    REQUIRE(volume.unmount().ok());
    require_clean(volume, {0, 3, small, broken});
}

TEST_CASE("spares: who is out by order keeps its place, who is missing after a while does not")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Contents contents = fill(volume.fs(), prng, kMiB);
    const uint32_t device = volume.add_device(kSpareBytes);
    const auto spare = add_spare(volume, device);
    REQUIRE(spare.ok());
    std::string why;
    REQUIRE(volume.fs().committer.offline_member({3}, why).ok());
    volume.fs().committer.use_spares();
    CHECK(device_of(volume, {3}).empty());
    CHECK(volume.fs().volume->spare_table().size() == 1);
    REQUIRE(volume.unmount().ok());
    // Not there at the mount: it may only be late.
    mount(volume, degraded_options(), {2});
    volume.fs().committer.use_spares();
    CHECK(device_of(volume, {3}).empty());
    REQUIRE(volume.unmount().ok());
    mount(volume, spare_options(), {2});
    volume.fs().committer.use_spares();
    CHECK(device_of(volume, {3}) == "member5");
    catch_up(volume.fs());
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume, {2});
}

TEST_CASE("spares: one that is removed is blank, and one that is away or forgotten harms nothing")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    const Contents contents = fill(volume.fs(), prng, kMiB);
    const uint32_t first = volume.add_device(kSpareBytes);
    const uint32_t second = volume.add_device(kSpareBytes);
    const auto first_id = add_spare(volume, first);
    const auto second_id = add_spare(volume, second);
    REQUIRE((first_id.ok() && second_id.ok()));
    REQUIRE(volume.unmount().ok());
    // Away, it is missed by nobody.
    mount(volume, spare_options(), {first});
    CHECK_FALSE(volume.fs().volume->degraded());
    CHECK(volume.fs().volume->spares().path(*first_id).empty());
    CHECK(volume.fs().volume->spares().path(*second_id) == volume.member(second).name());
    std::string why;
    REQUIRE(volume.fs().committer.remove_spare(*first_id, why).ok());
    REQUIRE(volume.fs().committer.remove_spare(*second_id, why).ok());
    REQUIRE(volume.unmount().ok());
    CHECK(has_superblock(volume, first));
    CHECK_FALSE(has_superblock(volume, second));
    // The first one is back and does not know.
    mount(volume, spare_options(), {second});
    CHECK(volume.fs().volume->spare_table().empty());
    CHECK(volume.fs().info().spares.empty());
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    // Spares alone are no volume.
    CHECK(volume.mount(spare_options(), why, {0, 1, 2, 3, second}).err() == Err::kNotFound);
    CHECK(why.find("only spares") != std::string::npos);
}

TEST_CASE("spares: a member that failed may come back for a while")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Contents contents = fill(volume.fs(), prng, kMiB);
    REQUIRE(add_spare(volume, volume.add_device(kSpareBytes)).ok());
    REQUIRE(volume.unmount().ok());
    mount(volume, degraded_options());
    fail_writes(volume, 1, prng, contents);
    volume.fs().committer.use_spares();
    CHECK(device_of(volume, {2}).empty());
    REQUIRE(volume.unmount().ok());
    // Recorded as failed, and not there: it may be late all the same.
    mount(volume, degraded_options(), {1});
    volume.fs().committer.use_spares();
    CHECK(device_of(volume, {2}).empty());
    volume.cable(1).remove_all_rules();
    std::string why;
    REQUIRE_MESSAGE(volume.fs().committer.online_member({2}, volume.borrow_one(1), why).ok(), why);
    catch_up(volume.fs());
    require_contents(volume.fs(), contents);
    CHECK(volume.fs().volume->spare_table().size() == 1);
}

TEST_CASE("spares: one that fails at any write leaves the member its place")
{
    Prng prng(seed());
    bool done = false;
    int back = 0;
    for (uint64_t skip = 0; !done && skip < 200; ++skip) {
        CAPTURE(skip);
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        const auto spare = add_spare(volume, device);
        REQUIRE(spare.ok());
        fail_writes(volume, 1, prng, contents);
        volume.cable(device).add_rule({.kinds = kFaultWrites | kFaultFlushes, .skip = skip});
        volume.fs().committer.use_spares();
        done = device_of(volume, {2}) == "member5";
        if (done)
            break;
        CHECK((volume.fs().volume->spares().useless(*spare) || volume.fs().volume->spare_table().empty()));
        volume.cable(1).remove_all_rules();
        std::string why;
        // It has its own device, which nobody else can open meanwhile.
        REQUIRE_MESSAGE(volume.fs().committer.online_member({2}, nullptr, why).ok(), why);
        CHECK(device_of(volume, {2}) == "member2");
        // What it has may be all that there is of a node: its columns are not those of a new device.
        for (const GroupRecord& group : volume.fs().volume->map().groups)
            for (const GroupColumn& column : group.columns)
                CHECK((!column.stale() || column.stale_since > group.created_generation));
        catch_up(volume.fs());
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {device});
        ++back;
    }
    CHECK(done);
    CHECK(back > 5);
}

namespace {

// Of superblocks on the device since the spare came: how many do not name it.
size_t superblocks_without(SimVolume& volume, uint32_t device, MemberId spare)
{
    const RingReading rings = read_rings(*volume.borrow_one(device)).take();
    return static_cast<size_t>(
        std::count_if(rings.valid.begin(), rings.valid.end(), [=](const Superblock& one) {
            return one.next_member_id > spare.value && one.spare(spare) == nullptr;
        }));
}

}  // namespace

TEST_CASE("spares: one with which a single request fails before it is a member is a spare still")
{
    Prng prng(seed());
    bool done = false;
    int kept = 0, members = 0;
    for (uint64_t skip = 0; !done && skip < 200; ++skip) {
        CAPTURE(skip);
        SimVolume volume({3, kSpareBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
        make_for_spares(volume);
        Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        const auto spare = add_spare(volume, device);
        REQUIRE(spare.ok());
        fail_writes(volume, 1, prng, contents);
        volume.cable(device).add_rule({.kinds = kFaultWrites | kFaultFlushes, .skip = skip, .limit = 1});
        volume.fs().committer.use_spares();
        done = device_of(volume, {2}) == "member4";
        if (done)
            break;
        if (superblocks_without(volume, 0, *spare) > 0) {
            // It had its first superblock as a member, durable, before any other got one.
            ++members;
            continue;
        }
        ++kept;
        CHECK(superblocks_without(volume, 2, *spare) == 0);
        CHECK(volume.fs().volume->spares().useless(*spare));
        REQUIRE(volume.unmount().ok());
        mount(volume, spare_options(), {1});
        CHECK(volume.fs().volume->spares().path(*spare) == "member4");
        volume.fs().committer.use_spares();
        CHECK(device_of(volume, {2}) == "member4");
        CHECK(volume.fs().volume->spare_table().empty());
        catch_up(volume.fs());
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {1});
    }
    CHECK(done);
    CHECK(kept > 5);
    CHECK(members <= 3);  // two copies once more, and the flush after them
}

TEST_CASE(
    "spares: with three members one that fails as it takes a place does not keep the others from a mount")
{
    Prng prng(seed());
    bool done = false;
    int back = 0;
    for (uint64_t skip = 0; !done && skip < 200; ++skip) {
        CAPTURE(skip);
        SimVolume volume({3, kSpareBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB});
        make_for_spares(volume);
        Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        REQUIRE(add_spare(volume, device).ok());
        fail_writes(volume, 1, prng, contents);
        volume.cable(device).add_rule({.kinds = kFaultWrites | kFaultFlushes, .skip = skip});
        volume.fs().committer.use_spares();
        done = device_of(volume, {2}) == "member4";
        if (done)
            break;
        // Both devices say that they are the member, or one of them does.
        REQUIRE(volume.unmount().ok());
        volume.cable(device).remove_all_rules();
        volume.cable(1).remove_all_rules();
        mount(volume, degraded_options());
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        ++back;
    }
    CHECK(done);
    CHECK(back > 5);
}

TEST_CASE("spares: a device that is one comes back as one, and as no member")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    const Contents contents = fill(volume.fs(), prng, kMiB);
    const uint32_t device = volume.add_device(kSpareBytes);
    const auto spare = add_spare(volume, device);
    REQUIRE(spare.ok());
    Committer* committer = &volume.fs().committer;
    std::string why;
    CHECK(committer->online_member({}, volume.borrow_one(device), why).err() == Err::kInvalid);
    CHECK(why == "spare 5 (member5) is there");
    REQUIRE(volume.unmount().ok());
    mount(volume, spare_options(), {device});
    committer = &volume.fs().committer;
    why.clear();
    const auto back = committer->online_member({}, volume.borrow_one(device), why);
    REQUIRE_MESSAGE(back.ok(), why);
    CHECK(*back == *spare);
    CHECK(volume.fs().volume->spares().path(*spare) == "member5");
    // The number of what it never became is a member's now.
    REQUIRE(volume.unmount().ok());
    SimVolume other(kFourRaid5);
    make_for_spares(other);
    const uint32_t forged = other.add_device(kSpareBytes);
    Superblock own = other.fs().volume->superblock();
    own.incompat_features |= feature_bit("spares");
    own.spares = {spare_record({5}, uuid_random(), kSpareBytes)};
    own.next_member_id = 6;
    REQUIRE(write_spare(*other.borrow_one(forged), own, {5}).ok());
    why.clear();
    const auto added = other.fs().committer.add_member(other.borrow_one(other.add_device(kSpareBytes)), why);
    REQUIRE(added.ok());
    CHECK(*added == MemberId{5});
    CHECK(other.fs().committer.online_member({}, other.borrow_one(forged), why).err() == Err::kInvalid);
    CHECK(why.find("was spare 5 and is none of this volume") != std::string::npos);
    REQUIRE(other.fs().committer.remove_spare({5}, why).err() == Err::kInvalid);
}

TEST_CASE("spares: uuids do not make a device a spare or a member, an epoch of the volume does")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    const Contents contents = fill(volume.fs(), prng, kMiB);
    const uint32_t device = volume.add_device(kSpareBytes), forged = volume.add_device(kSpareBytes);
    const auto spare = add_spare(volume, device);
    REQUIRE(spare.ok());
    Superblock own = volume.fs().volume->superblock();
    own.epochs = {{prng.next(), {1}}};
    REQUIRE(write_spare(*volume.borrow_one(forged), own, *spare).ok());
    REQUIRE(volume.unmount().ok());
    // One that waits is told of each new epoch.
    for (uint32_t mounts = 0; mounts < kEpochHistoryCount + 2; ++mounts) {
        mount(volume, spare_options(), {0, forged});
        REQUIRE(volume.fs().volume->spares().path(*spare) == "member5");
        REQUIRE(volume.unmount().ok());
    }
    mount(volume, spare_options(), {0, device});
    CHECK(volume.fs().volume->spares().path(*spare).empty());
    std::string why;
    CHECK(volume.fs().committer.online_member({}, volume.borrow_one(forged), why).err() == Err::kInvalid);
    CHECK(why ==
          "member6 says it is spare 5, but it may belong to another volume of the same uuid, or was away for "
          "more degraded mounts than the volume remembers; look at its members with cowraid filesystem show "
          "before anything is written to it");
    why.clear();
    REQUIRE_MESSAGE(volume.fs().committer.online_member({}, volume.borrow_one(device), why).ok(), why);
    REQUIRE(volume.unmount().ok());
    // A member that was away for as long is out, and says so; it is filled like a new one.
    mount(volume, spare_options(), {forged});
    CHECK(volume.fs().volume->degraded());
    CHECK(volume.fs().committer.online_member({}, volume.borrow_one(0), why).err() == Err::kInvalid);
    CHECK(
        why.starts_with("member1 says it is member 1, but it may belong to another volume of the same uuid"));
    CHECK(why.find("look at its members with cowraid filesystem show") != std::string::npos);
    CHECK(why.find("-f") == std::string::npos);
    REQUIRE(volume.fs().committer.replace_member({1}, volume.borrow_one(0), why).ok());
    catch_up(volume.fs());
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume, {forged});
}

TEST_CASE("spares: a refusal costs no spare, and none is removed while it takes a place")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    const Contents contents = fill(volume.fs(), prng, kMiB);
    const auto spare = add_spare(volume, volume.add_device(kSpareBytes));
    REQUIRE(spare.ok());
    Committer& committer = volume.fs().committer;
    Spares& spares = volume.fs().volume->spares();
    std::string why;
    REQUIRE(committer.replace_member({3}, volume.borrow_one(volume.add_device(kSpareBytes)), why).ok());
    std::thread remover;
    {
        MutexLock lock(committer.remount_mutex);
        CHECK(committer.put_in_place({9}, true, nullptr, *spare, why).err() == Err::kInvalid);
        CHECK(committer.put_in_place({2}, true, nullptr, *spare, why).err() == Err::kBusy);
        REQUIRE(spares.device(*spare) != nullptr);
        remover = std::thread([&] {
            std::string ignored;
            committer.remove_spare(*spare, ignored).ignore();
        });
        usleep(100'000);
        CHECK(spares.device(*spare) != nullptr);
    }
    remover.join();
    CHECK(spares.device(*spare) == nullptr);
    CHECK(volume.fs().volume->spare_table().empty());
    finish_replacement(volume.fs());
    require_contents(volume.fs(), contents);
}
