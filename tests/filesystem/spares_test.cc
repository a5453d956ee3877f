// SPDX-License-Identifier: MIT
// Devices in reserve: they wait, take the place of members that fail, and go.
#include <unistd.h>

#include <thread>

#include "device/superblock_store.h"
#include "format/feature_table.h"
#include "fs/volume/commit_mutant.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kSpareBytes = 160 * kMiB;
constexpr VolumeShape kFourRaid5{4, kSpareBytes, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB};

// A spare takes a place at once.
MountOptions spare_options()
{
    MountOptions options = degraded_options();
    options.spare_seconds = 0;
    return options;
}

void make_for_spares(SimVolume& volume)
{
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    mount(volume, spare_options());
}

Result<MemberId> add_spare(SimVolume& volume, uint32_t device)
{
    std::string why;
    auto added = volume.fs().committer.add_spare(volume.borrow_one(device), why);
    CHECK_MESSAGE(added.ok() == why.empty(), why);
    return added;
}

// Writes to the device fail, and somebody notices.
void fail_writes(SimVolume& volume, uint32_t device, Prng& prng, Contents& contents)
{
    volume.cable(device).add_rule({.kinds = kFaultWrites});
    const std::string name = "noticed" + std::to_string(device);
    contents[name] = random_content(prng, 300 * kKiB);
    write_file(volume.fs(), name, contents[name]);
    REQUIRE(volume.fs().step(true).ok());
}

void catch_up(Filesystem& fs)
{
    for (int step = 0; step < 10000; ++step) {
        const Result<ScrubStatus> status = fs.catch_up_step();
        REQUIRE((status.ok() || status.err() == Err::kNotFound));
        if (!status.ok() || status->state != ScrubState::kRunning)
            break;
    }
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.step(true).ok());
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups())
        for (const GroupColumn& column : group->record.columns)
            CHECK_FALSE(column.stale());
}

std::string device_of(SimVolume& volume, MemberId member)
{
    MemberSet& members = volume.fs().volume->members();
    return members.device(member) == nullptr ? "" : members.path(member);
}

uint64_t newest_on(SimVolume& volume, uint32_t device)
{
    return read_rings(*volume.borrow_one(device))->valid.front().generation.value;
}

bool has_superblock(SimVolume& volume, uint32_t device)
{
    return read_rings(*volume.borrow_one(device)).ok();
}

}  // namespace

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
    for (uint64_t cut = 0; cut == 0 || cut < events; ++cut) {
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
    CHECK(with > 1);
    CHECK(without > 2);
}

namespace {

// How often a power cut while a spare takes a member's place left a device that is neither.
int lost_spares(Prng& prng)
{
    uint64_t events = 0, more_commits = 0;
    int lost = 0, waiting = 0, renewed = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; ++cut) {
        CAPTURE(cut);
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
        volume.power_cut(prng);
        volume.power().turn_on();
        const bool found = has_superblock(volume, device);
        // The others may go on without it, once more.
        const bool alone = !done && prng.chance(1, 4);
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
            lost += alone ? 0 : 1;
            continue;
        }
        catch_up(volume.fs());
        // Who went on without it did not learn what became of it.
        CHECK((volume.fs().volume->spare_table().empty() || alone));
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {1});
        mount(volume, spare_options(), {1, static_cast<uint32_t>(prng.below(2) * 2)});
        require_contents(volume.fs(), contents);
        volume.kill();
    }
    CHECK(waiting > 5);
    CHECK(renewed > 0);
    return lost;
}

}  // namespace

TEST_CASE("spares: power fails at every write of one that takes a member's place")
{
    Prng prng(seed());
    CHECK(lost_spares(prng) == 0);
}

#ifdef COWRAID_MUTANTS
TEST_CASE("spares: with wrong orders of its superblocks a power cut loses one")
{
    for (const CommitMutant mutant : {CommitMutant::kSpareTorn, CommitMutant::kSpareLast}) {
        const MutantScope scope(mutant);
        CAPTURE(static_cast<uint32_t>(mutant));
        int lost = 0;
        // Both copies must be torn, which a cut in twenty does.
        for (uint64_t round = 0; round < 60 && lost == 0; ++round) {
            Prng prng(seed() + round);
            lost = lost_spares(prng);
        }
        CHECK(lost > 0);
    }
}
#endif

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

namespace {

// Copying to the end.
void finish_replacement(Filesystem& fs)
{
    for (int step = 0; step < 2000 && fs.replace_step(); ++step)
        continue;
    REQUIRE(fs.step(true).ok());
}

// More errors than the budget has, in one second.
void make_doubtful(SimVolume& volume, MemberId id)
{
    MemberSet& members = volume.fs().volume->members();
    members.set_error_budget(4);
    members.note_repair(id, {0}, MemberSet::Repair::kDoesNotHold);
    REQUIRE(members.doubtful(id));
}

}  // namespace

TEST_CASE("spares: a member over its error budget serves on while it is copied to one")
{
    Prng prng(seed());
    uint64_t events = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; ++cut) {
        CAPTURE(cut);
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        const Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        REQUIRE(add_spare(volume, device).ok());
        make_doubtful(volume, {2});
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        volume.fs().committer.use_spares();
        if (cut == 0) {
            events = volume.power().events() - begin;
            CHECK(device_of(volume, {2}) == "member2");
            CHECK(volume.fs().volume->replacing().source == MemberId{2});
            CHECK(volume.fs().volume->spare_table().empty());
            CHECK(volume.fs().info().spares.empty());
            // Another one has no spare, and nobody else's place is lost by it.
            make_doubtful(volume, {3});
            volume.fs().committer.use_spares();
            CHECK_FALSE(volume.fs().volume->degraded());
        } else {
            // It is the spare still, or the successor.
            volume.power_cut(prng);
            volume.power().turn_on();
            mount(volume, spare_options());
            CHECK(device_of(volume, {2}) == "member2");
            CHECK_FALSE(volume.fs().volume->degraded());
            if (!volume.fs().volume->replacing().active()) {
                REQUIRE(volume.fs().volume->spare_table().size() == 1);
                CHECK(volume.fs().volume->spares().path({5}) == "member5");
                make_doubtful(volume, {2});
                volume.fs().committer.use_spares();
            }
        }
        finish_replacement(volume.fs());
        CHECK(device_of(volume, {2}) == "member5");
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {1});
        mount(volume, spare_options(), {1, static_cast<uint32_t>(prng.below(2) * 2)});
        require_contents(volume.fs(), contents);
        volume.kill();
    }
}

TEST_CASE("spares: a member that is taken out while a spare is chosen for it keeps its place")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    const Contents contents = fill(volume.fs(), prng, kMiB);
    const auto spare = add_spare(volume, volume.add_device(kSpareBytes));
    REQUIRE(spare.ok());
    Committer& committer = volume.fs().committer;
    std::string why;
    REQUIRE(committer.offline_member({2}, why).ok());
    {
        MutexLock lock(committer.remount_mutex);
        CHECK(committer.put_in_place({2}, true, nullptr, *spare, why).err() == Err::kBusy);
    }
    CHECK(volume.fs().volume->spare_table().size() == 1);
    CHECK(volume.fs().volume->spares().device(*spare) != nullptr);
    REQUIRE(committer.online_member({2}, nullptr, why).ok());
    CHECK(device_of(volume, {2}) == "member2");
    require_contents(volume.fs(), contents);
}

TEST_CASE("spares: one that fails when copying to it begins is marked; who cancels keeps the others")
{
    Prng prng(seed());
    bool done = false;
    int marked = 0;
    for (uint64_t skip = 0; !done && skip < 200; ++skip) {
        CAPTURE(skip);
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        const Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kSpareBytes);
        const auto spare = add_spare(volume, device);
        const auto other = add_spare(volume, volume.add_device(kSpareBytes));
        REQUIRE((spare.ok() && other.ok()));
        make_doubtful(volume, {2});
        volume.cable(device).add_rule({.kinds = kFaultWrites, .skip = skip});
        Committer& committer = volume.fs().committer;
        committer.use_spares();
        done = volume.fs().volume->replacing().active();
        if (!done) {
            ++marked;
            CHECK(volume.fs().volume->spares().useless(*spare));
            CHECK(volume.fs().volume->spare_table().size() == 2);
            committer.use_spares();
            CHECK(volume.fs().volume->replacing().active());
            CHECK(volume.fs().volume->spare_table().size() == 1);
            CHECK(volume.fs().volume->spare_table().front().id == *spare);
        }
        CHECK(device_of(volume, {2}) == "member2");
        std::string why;
        REQUIRE(committer.replace.cancel(why).ok());
        const size_t left = volume.fs().volume->spare_table().size();
        CHECK(left == 1);
        committer.use_spares();
        CHECK_FALSE(volume.fs().volume->replacing().active());
        CHECK(volume.fs().volume->spare_table().size() == left);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
    }
    CHECK(done);
    CHECK(marked > 3);
}

namespace {

// Some blocks of the device are wrong, in the first group of data.
void spoil_some(SimVolume& volume, Prng& prng, uint32_t device)
{
    for (const Ref<const ArrayGroup>& group : volume.fs().volume->array().groups())
        for (uint32_t column = 0; column < group->record.columns.size(); ++column) {
            if (group->record.content != kGroupData ||
                group->record.columns[column].member.value != device + 1)
                continue;
            for (uint64_t block = 0; block < 6; ++block)
                volume.member(device).poke(group->extents[column].front().offset.value + block * kBlockBytes,
                                           random_content(prng, kBlockBytes));
            return;
        }
    FAIL("no such group");
}

}  // namespace

TEST_CASE("spares: a member that is out because repairs of it did not hold is copied, or else rebuilt")
{
    Prng prng(seed());
    for (const bool readable : {true, false}) {
        CAPTURE(readable);
        SimVolume volume(kFourRaid5);
        make_for_spares(volume);
        Contents contents = fill(volume.fs(), prng, 2 * kMiB);
        make_doubtful(volume, {2});
        REQUIRE(volume.fs().volume->members().fail_over_budget());
        REQUIRE(volume.fs().step(true).ok());
        contents["without"] = random_content(prng, kMiB);
        write_file(volume.fs(), "without", contents["without"]);
        REQUIRE(volume.fs().step(true).ok());
        const uint32_t device = volume.add_device(kSpareBytes);
        REQUIRE(add_spare(volume, device).ok());
        if (readable)
            spoil_some(volume, prng, 0);  // it has what is lost there
        else
            volume.cable(1).add_rule({.action = FaultAction::kGone});
        volume.fs().committer.use_spares();
        CHECK(volume.fs().volume->spare_table().empty());
        CHECK(volume.fs().volume->replacing().active() == readable);
        CHECK(device_of(volume, {2}) == (readable ? "member2" : "member5"));
        finish_replacement(volume.fs());
        CHECK(volume.fs().committer.replace.status().copy.lost == 0);
        CHECK(device_of(volume, {2}) == "member5");
        catch_up(volume.fs());
        require_contents(volume.fs(), contents);
        REQUIRE(volume.fs().committer.scrub.start({}).ok());
        for (int step = 0; step < 1000 && volume.fs().committer.scrub.step(); ++step)
            continue;
        CHECK_FALSE(volume.fs().committer.scrub.status().damaged());
        REQUIRE(volume.unmount().ok());
        volume.cable(1).remove_all_rules();
        mount(volume, spare_options(), {1, 3});
        CHECK(device_of(volume, {2}) == "member5");
        require_contents(volume.fs(), contents);
    }
}

TEST_CASE("spares: what is not whole loses nobody more by the budget")
{
    Prng prng(seed());
    SimVolume volume(kFourRaid5);
    make_for_spares(volume);
    Contents contents = fill(volume.fs(), prng, kMiB);
    fail_writes(volume, 0, prng, contents);
    make_doubtful(volume, {3});
    CHECK_FALSE(volume.fs().volume->members().fail_over_budget());
    CHECK(device_of(volume, {3}) == "member3");
    require_contents(volume.fs(), contents);
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
        catch_up(volume.fs());
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {device});
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
