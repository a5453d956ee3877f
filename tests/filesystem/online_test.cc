// SPDX-License-Identifier: MIT
// Members that come back while the volume is mounted, and what may not.
#include <algorithm>

#include "sim/borrowed_device.h"
#include "tests/filesystem/stale_world.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

const LossCase kLossCases[] = {
    {kStaleRaid5, {1}}, {kStaleRaid6, {0, 3}}, {kStaleNodesUnderParity, {1, 2}}, {kStaleMirrors, {1}}};

std::unique_ptr<BlockDevice> device_of(StaleWorld& world, uint32_t member)
{
    return std::make_unique<BorrowedDevice>(world.volume.member(member));
}

void come_back(StaleWorld& world, uint32_t member, std::unique_ptr<BlockDevice> device)
{
    std::string why;
    const Result<MemberId> back = world.fs->committer.online_member({member + 1}, std::move(device), why);
    REQUIRE_MESSAGE(back.ok(), why);
    CHECK(back->value == member + 1);
    CHECK(world.info_of(member).in_service());
}

// Mended, and on the device that it had.
void mend(StaleWorld& world, uint32_t member)
{
    world.faults[member]->remove_all_rules();
    come_back(world, member, nullptr);
}

void catch_up_online(StaleWorld& world)
{
    for (int step = 0; step < 3000 && world.stale_groups() > 0; ++step) {
        const Result<ScrubStatus> status = world.fs->catch_up_step();
        REQUIRE(status.ok());
        CHECK_FALSE(status->damaged());
        if (status->state == ScrubState::kFinished)
            REQUIRE(world.fs->step(true).ok());
    }
    CHECK(world.stale_groups() == 0);
}

// Blocks that a scrub of everything had to write.
uint64_t found_by_scrub(StaleWorld& world)
{
    ScrubStatus scrubbed;
    for (int step = 0; step < 3000 && scrubbed.state != ScrubState::kFinished; ++step)
        scrubbed = world.fs->scrub_step();
    CHECK(scrubbed.state == ScrubState::kFinished);
    CHECK_FALSE(scrubbed.damaged());
    return scrubbed.repaired;
}

// Everything is there, and still is when as many others go.
void require_whole(StaleWorld& world, const LossCase& one)
{
    CHECK(found_by_scrub(world) == 0);
    CHECK(world.read_back() == 0);
    for (uint32_t member = 0; member < one.shape.member_count; ++member)
        CHECK(world.wrong_blocks(member) == 0);
    world.unmount();
    const CheckReport report = world.check();
    CHECK(report.clean());
    CHECK(report.stale_columns == 0);
    Members others;
    for (uint32_t member = 0; others.size() < one.away.size(); ++member)
        if (std::find(one.away.begin(), one.away.end(), member) == one.away.end())
            others.push_back(member);
    world.mount(degraded_options(), others);
    CHECK(world.read_back() == 0);
}

enum class How : uint8_t { kAbsent, kFailed, kFailedOtherPath, kOffline };

void leave(StaleWorld& world, const Members& away, How how)
{
    if (how == How::kAbsent) {
        world.mount(degraded_options(), away);
        return;
    }
    world.mount();
    world.write("meanwhile", kMiB);
    for (const uint32_t member : away) {
        std::string why;
        if (how == How::kOffline)
            REQUIRE_MESSAGE(world.fs->committer.offline_member({member + 1}, why).ok(), why);
        else
            world.fail_writes(member);
    }
}

}  // namespace

TEST_CASE("online: members come back while the volume is used, and as many others may go")
{
    for (const How how : {How::kAbsent, How::kFailed, How::kFailedOtherPath, How::kOffline})
        for (const bool power_fails : {false, true})
            for (const LossCase& one : kLossCases) {
                CAPTURE(static_cast<uint32_t>(how));
                CAPTURE(power_fails);
                CAPTURE(static_cast<uint32_t>(one.shape.data_profile));
                CAPTURE(static_cast<uint32_t>(one.shape.metadata_profile));
                StaleWorld world(one.shape);
                write_before(world);
                leave(world, one.away, how);
                world.write("without", 2 * kMiB);
                world.write("before", kMiB);
                REQUIRE(world.fs->info().degraded);
                for (const uint32_t member : one.away) {
                    if (how == How::kFailed || how == How::kOffline)
                        mend(world, member);
                    else
                        come_back(world, member, device_of(world, member));
                    world.write("between", 300 * kKiB);
                }
                CHECK_FALSE(world.fs->info().degraded);
                // With one absent, what is new goes where all are.
                CHECK((how == How::kAbsent || world.stale_groups() > 0));
                CHECK(world.read_back() == 0);
                for (int step = 0; step < (power_fails ? 3 : 40); ++step) {
                    world.fs->catch_up_step().status().ignore();
                    world.write("file" + std::to_string(world.prng.below(6)),
                                1 + world.prng.below(400 * kKiB));
                }
                if (power_fails) {
                    world.fs.reset();
                    world.volume.power_cut(world.prng);
                    world.mount();
                }
                catch_up_online(world);
                require_whole(world, one);
            }
}

TEST_CASE("online: a member comes back, fails again, and comes back, again and again")
{
    for (const LossCase& one : kLossCases) {
        CAPTURE(static_cast<uint32_t>(one.shape.data_profile));
        StaleWorld world(one.shape);
        write_before(world);
        world.mount();
        for (int round = 0; round < 12; ++round) {
            CAPTURE(round);
            world.fail_writes(1);
            world.write("round" + std::to_string(round % 4), 1 + world.prng.below(kMiB));
            REQUIRE(world.info_of(1).state == MemberState::kFailed);
            mend(world, 1);
            const uint64_t steps = world.prng.below(12);
            for (uint64_t step = 0; step < steps; ++step)
                world.fs->catch_up_step().status().ignore();
            if (round % 5 == 4)
                catch_up_online(world);
        }
        catch_up_online(world);
        require_whole(world, {one.shape, {1}});
    }
}

namespace {

std::vector<std::byte> image_of(StaleWorld& world, uint32_t member)
{
    std::vector<std::byte> image(world.volume.member(member).size_bytes());
    world.volume.member(member).peek(0, image);
    return image;
}

// A scrub writes to a member, which fails and is back before the scrub ends. How much another scrub finds
// wrong in what is called current.
uint64_t wrong_after_earlier_pass(uint64_t steps_before)
{
    StaleWorld world(kStaleRaid5);
    write_before(world);
    // Out of date, but with a part of every group.
    const std::vector<std::byte> old = image_of(world, 1);
    world.mount();
    for (int file = 0; file < 4; ++file)
        world.write("later" + std::to_string(file), kMiB);
    world.unmount();
    world.volume.member(1).poke(0, old);
    world.mount();
    REQUIRE(world.info_of(1).stale_groups > 0);
    // Room in front of what a pass has looked at.
    REQUIRE(world.fs->names.unlink({kRootInode}, "before").ok());
    world.files.erase("before");
    for (int commit = 0; commit < 4; ++commit)
        world.write("small", 100);
    ScrubStatus pass;
    for (uint64_t step = 0; step < steps_before; ++step)
        pass = world.fs->scrub_step();
    world.fail_writes(1);
    world.write("without", 4 * kMiB);
    REQUIRE(world.info_of(1).state == MemberState::kFailed);
    mend(world, 1);
    for (int step = 0; step < 1000 && pass.state == ScrubState::kRunning; ++step)
        pass = world.fs->scrub_step();
    REQUIRE(world.fs->step(true).ok());
    REQUIRE(world.fs->step(true).ok());
    CHECK(world.read_back() == 0);
    found_by_scrub(world);
    return world.wrong_blocks(1);
}

}  // namespace

TEST_CASE("online: what a scrub wrote to a member before it failed again does not make it current")
{
    for (uint64_t before = 1; before <= 12; ++before) {
        CAPTURE(before);
        CHECK(wrong_after_earlier_pass(before) == 0);
    }
}

namespace {

// A copy of the member from before the last commits that it had takes its place. How much of what it lacks
// is left when it is called current.
enum class Way : uint8_t { kOnline, kMount };

uint64_t wrong_after_old_copy(Way way)
{
    StaleWorld world(kStaleRaid5);
    write_before(world);
    const std::vector<std::byte> old = image_of(world, 1);
    world.mount();
    for (int file = 0; file < 5; ++file)
        world.write("later" + std::to_string(file), kMiB);
    world.unmount();
    world.mount(degraded_options(), {1});
    world.write("without", kMiB);
    if (way == Way::kOnline) {
        world.volume.member(1).poke(0, old);
        come_back(world, 1, device_of(world, 1));
    } else {
        world.unmount();
        world.volume.member(1).poke(0, old);
        world.mount();
    }
    catch_up_online(world);
    const uint64_t wrong = found_by_scrub(world);
    CHECK(world.read_back() == 0);
    return wrong;
}

}  // namespace

TEST_CASE("online: of a copy from before it went nothing is believed that it cannot have")
{
    CHECK(wrong_after_old_copy(Way::kOnline) == 0);
    CHECK(wrong_after_old_copy(Way::kMount) == 0);
#ifdef COWRAID_MUTANTS
    const MutantScope scope(CommitMutant::kOlderCopyTrusted);
    CHECK(wrong_after_old_copy(Way::kOnline) > 0);
#endif
}

// The first writes of the mount must not make the copy look like the newest before the map says what it
// lacks.
TEST_CASE(
    "online: of an older copy nothing is believed after power failed at any write of the mount that met it")
{
    uint64_t events = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; ++cut) {
        CAPTURE(cut);
        StaleWorld world(kStaleRaid5);
        write_before(world);
        const std::vector<std::byte> old = image_of(world, 1);
        world.mount();
        for (int file = 0; file < 4; ++file)
            world.write("later" + std::to_string(file), 300 * kKiB);
        world.unmount();
        world.mount(degraded_options(), {1});
        world.write("without", 300 * kKiB);
        world.unmount();
        world.volume.member(1).poke(0, old);
        PowerSupply& power = world.volume.power();
        const uint64_t begin = power.events();
        if (cut > 0)
            power.arm(cut);
        std::string why;
        (void)world.try_mount(manual_options(), {}, why).ok();
        if (cut == 0)
            events = power.events() - begin;
        world.fs.reset();
        world.volume.power_cut(world.prng);
        power.turn_on();
        world.mount();
        catch_up_online(world);
        CHECK(found_by_scrub(world) == 0);
        CHECK(world.read_back() == 0);
    }
    CHECK(events > 8);
}

TEST_CASE("online: a member that was written apart is refused and left as it is")
{
    StaleWorld world(kStaleRaid6);
    write_before(world);
    std::vector<std::vector<std::byte>> before;
    for (uint32_t member = 0; member < kStaleRaid6.member_count; ++member)
        before.push_back(image_of(world, member));
    // With the member, and with all others: each side has commits that the other lacks.
    world.mount(degraded_options(), {3});
    world.write("one side", kMiB);
    world.write("one side", 2 * kMiB);
    world.unmount();
    const std::vector<std::byte> apart = image_of(world, 1);
    for (uint32_t member = 0; member < kStaleRaid6.member_count; ++member)
        world.volume.member(member).poke(0, before[member]);
    world.files.erase("one side");
    world.mount(degraded_options(), {1});
    world.write("other side", kMiB);
    world.volume.member(1).poke(0, apart);
    std::string why;
    CHECK(world.fs->committer.online_member({}, device_of(world, 1), why).err() == Err::kInvalid);
    CHECK(why.find("split brain: ") == 0);
    CHECK(why.find("cowraid replace start -f 2 ") != std::string::npos);
    CHECK(why.find("cowraid device remove 2") != std::string::npos);
    CHECK(image_of(world, 1) == apart);
    CHECK_FALSE(world.info_of(1).in_service());
    world.write("other side", 2 * kMiB);
    CHECK(world.read_back() == 0);
    // As it was before it comes back.
    world.volume.member(1).poke(0, before[1]);
    come_back(world, 1, device_of(world, 1));
    catch_up_online(world);
    require_whole(world, {kStaleRaid6, {1}});
}

TEST_CASE("online: what is no member that may come back is refused, and nothing changes")
{
    StaleWorld world(kStaleRaid5), other(kStaleRaid5);
    write_before(world);
    const std::vector<std::byte> member1 = image_of(world, 1);
    world.mount(degraded_options(), {1});
    const auto refused = [&](MemberId id, std::unique_ptr<BlockDevice> device, const std::string& reason) {
        std::string why;
        const Status status = world.fs->committer.online_member(id, std::move(device), why).status();
        CHECK_FALSE(status.ok());
        CHECK_MESSAGE(why.find(reason) != std::string::npos, why);
    };
    refused({2}, nullptr, "member 2 has no device; attach it");
    refused({1}, nullptr, "is in service");
    refused({}, device_of(world, 0), "is in service");
    refused({9}, nullptr, "no device");
    refused({}, device_of(other, 1), "belongs to volume");
    refused({}, std::make_unique<SimDevice>("blank", 96 * kMiB), "carries no superblock");
    auto small = std::make_unique<SimDevice>("small", 80 * kMiB);
    small->poke(0, std::span(member1).subspan(0, 80 * kMiB));
    refused({}, std::move(small), "is shrunken");
    auto dead = std::make_unique<FaultDevice>(device_of(world, 1), seed());
    dead->add_rule({.kinds = kFaultWrites});
    refused({}, std::move(dead), "cannot be written");
    CHECK(world.info_of(1).state == MemberState::kMissing);
    // Its logs are erased, and it may still come.
    world.write("without", kMiB);
    come_back(world, 1, device_of(world, 1));
    catch_up_online(world);
    std::string why;
    REQUIRE(world.fs->committer.offline_member({2}, why).ok());
    CHECK(world.info_of(1).state == MemberState::kMissing);
    REQUIRE(world.fs->committer.replace_member({2}, std::make_unique<SimDevice>("new", 96 * kMiB), why).ok());
    refused({}, device_of(world, 1), "has been replaced");
    catch_up_online(world);
    REQUIRE(world.fs->committer.offline_member({2}, why).ok());
    refused({}, device_of(world, 1), "has been replaced");
    CHECK(world.read_back() == 0);
}

namespace {

uint64_t degraded_groups(StaleWorld& world)
{
    uint64_t count = 0;
    for (const GroupNumbers& numbers : world.fs->store.allocator.group_numbers(kAllContent))
        count += numbers.degraded ? 1 : 0;
    return count;
}

// Most of it free, but all slots are in use.
void fill_and_thin_out(StaleWorld& world)
{
    int count = 0;
    while (world.fs->volume->potential_blocks(kGroupData) > 0) {
        REQUIRE(count < 1000);
        world.write("mega" + std::to_string(count++), kMiB);
    }
    for (int index = 0; index < count; ++index) {
        const std::string name = "mega" + std::to_string(index);
        if (index % 8 == 0)
            continue;
        REQUIRE(world.fs->names.unlink(kRoot, name).ok());
        world.files.erase(name);
    }
    for (int commit = 0; commit < 4; ++commit)
        world.write("small", 100);
}

}  // namespace

TEST_CASE("online: block groups of a member that has caught up take blocks as any, and a balance ends")
{
    // The room of the other raid6 volume is too small for a group to be emptied.
    for (const LossCase& one : {kLossCases[0], kLossCases[2], kLossCases[3]}) {
        CAPTURE(static_cast<uint32_t>(one.shape.data_profile));
        StaleWorld world(one.shape);
        write_before(world);
        world.mount();
        fill_and_thin_out(world);
        for (const uint32_t member : one.away)
            world.fail_writes(member);
        world.write("without", 2 * kMiB);
        CHECK(degraded_groups(world) > 0);
        for (const uint32_t member : one.away)
            mend(world, member);
        catch_up_online(world);
        REQUIRE(world.fs->step(true).ok());
        CHECK(degraded_groups(world) == 0);
        std::string why;
        const BalanceOptions all_data{.profiles = world.fs->volume->profiles(), .content = kGroupData};
        REQUIRE_MESSAGE(world.fs->committer.balance.start(all_data, why).ok(), why);
        CHECK(finish(*world.fs).state == BalanceStatus::State::kFinished);
        require_whole(world, one);
    }
}

TEST_CASE("offline: refused where the volume cannot do without")
{
    for (const LossCase& one : kLossCases) {
        CAPTURE(static_cast<uint32_t>(one.shape.data_profile));
        StaleWorld world(one.shape);
        write_before(world);
        world.mount();
        std::string why;
        CHECK(world.fs->committer.offline_member({99}, why).err() == Err::kInvalid);
        for (const uint32_t member : one.away)
            REQUIRE_MESSAGE(world.fs->committer.offline_member({member + 1}, why).ok(), why);
        world.write("without", kMiB);
        const MemberId more{one.shape.member_count};
        CHECK(world.fs->committer.offline_member(more, why).err() == Err::kInvalid);
        CHECK(why.find("cannot do without") != std::string::npos);
        CHECK(world.fs->committer.offline_member({one.away[0] + 1}, why).err() == Err::kInvalid);
        CHECK(why.find("is out of service already") != std::string::npos);
        world.write("without", 2 * kMiB);
        // Back, it lacks what it missed: another one cannot go before that is written.
        for (const uint32_t member : one.away)
            come_back(world, member, nullptr);
        if (find_profile(one.shape.data_profile)->parity > 0)
            CHECK(world.fs->committer.offline_member(more, why).err() == Err::kInvalid);
        catch_up_online(world);
        CHECK(world.fs->committer.offline_member(more, why).ok());
        CHECK(world.read_back() == 0);
    }
}
