// SPDX-License-Identifier: MIT
// What members missed is written to them when they are back, and then others may go.
#include <unistd.h>

#include <algorithm>

#include "tests/filesystem/fill_steps.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/support/mutant_scope.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

// Files from before members fail, from meanwhile, and files changed meanwhile; small ones in between, so that
// nodes of all trees change.
void miss_writes(StaleWorld& world, const Members& failing)
{
    world.mount();
    for (int file = 0; file < 40; ++file)
        world.write("small" + std::to_string(file), 3000);
    world.write("before", 6 * kMiB + 100);
    for (const uint32_t member : failing)
        world.fail_writes(member);
    world.write("meanwhile", 2 * kMiB);
    world.write("before", kMiB);
    for (int file = 0; file < 40; file += 3)
        world.write("small" + std::to_string(file), 5000);
    world.unmount();
}

constexpr VolumeShape kStalePairs{5, 96 * kMiB, ProfileId::kRaid10, ProfileId::kRaid10, 16 * 1024};
constexpr VolumeShape kFourCopies{7, 96 * kMiB, ProfileId::kRaid1c4, ProfileId::kRaid1c4, 64 * 1024};

}  // namespace

TEST_CASE("catching up: what members missed is written, they are current, and as many others may go")
{
    for (const LossCase& one :
         {LossCase{kStaleRaid5, {1}}, LossCase{kStaleRaid6, {0, 1}}, LossCase{kStaleNodesUnderParity, {1, 2}},
          LossCase{kStaleMirrors, {1}}, LossCase{kStalePairs, {2}}, LossCase{kFourCopies, {0, 2, 5}}}) {
        CAPTURE(static_cast<uint32_t>(one.shape.data_profile));
        CAPTURE(static_cast<uint32_t>(one.shape.metadata_profile));
        StaleWorld world(one.shape);
        miss_writes(world, one.away);
        world.mount();
        REQUIRE(world.stale_groups() > 0);
        const ScrubStatus status = catch_up(world);
        CHECK(status.state == ScrubState::kFinished);
        CHECK(status.repaired > 0);
        CHECK_FALSE(status.damaged());
        CHECK(world.stale_groups() == 0);
        CHECK(world.fs->catch_up_step().err() == Err::kNotFound);
        for (const uint32_t member : one.away)
            CHECK(world.wrong_blocks(member) == 0);
        // A scrub finds nothing: all that was missed is there.
        ScrubStatus scrubbed;
        while (scrubbed.state != ScrubState::kFinished)
            scrubbed = world.fs->scrub_step();
        CHECK(scrubbed.repaired == 0);
        CHECK_FALSE(scrubbed.damaged());
        CHECK(world.read_back() == 0);
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
}

TEST_CASE("catching up: nodes that are older than the absence are not read")
{
    StaleWorld world(kStaleRaid5);
    world.mount();
    for (int file = 0; file < 4000; ++file)
        REQUIRE(world.fs->names
                    .make_node({kRootInode}, "a name that takes room " + std::to_string(file), S_IFREG | 0644,
                               0, {})
                    .ok());
    REQUIRE(world.fs->step(true).ok());
    world.fail_writes(1);
    world.write("meanwhile", 20000);
    world.unmount();
    world.mount();
    const ScrubStatus status = catch_up(world);
    CHECK(world.stale_groups() == 0);
    CHECK(status.nodes > 0);
    ScrubStatus all;
    while (all.state != ScrubState::kFinished)
        all = world.fs->scrub_step();
    CHECK(status.nodes * 2 < all.nodes);
    CHECK(world.read_back() == 0);
}

#ifdef COWRAID_MUTANTS
TEST_CASE("catching up: wrong protocols leave what a scrub finds")
{
    for (const CommitMutant mutant :
         {CommitMutant::kNone, CommitMutant::kCaughtUpUnread, CommitMutant::kCaughtUpNoNodes}) {
        CAPTURE(static_cast<uint32_t>(mutant));
        StaleWorld world(kStaleRaid5);
        miss_writes(world, {1});
        world.mount();
        {
            const MutantScope scope(mutant);
            catch_up(world);
        }
        CHECK(world.stale_groups() == 0);
        ScrubStatus scrubbed;
        while (scrubbed.state != ScrubState::kFinished)
            scrubbed = world.fs->scrub_step();
        CHECK((scrubbed.repaired > 0) == (mutant != CommitMutant::kNone));
    }
}
#endif

TEST_CASE("catching up: a member that fails meanwhile stays without what it missed")
{
    StaleWorld world(kStaleRaid6);
    miss_writes(world, {1});
    world.mount();
    REQUIRE(world.info_of(1).stale_groups > 0);
    world.fail_writes(1);
    catch_up(world);
    CHECK(world.info_of(1).state == MemberState::kFailed);
    CHECK(world.info_of(1).stale_groups > 0);
    CHECK(world.read_back() == 0);
    world.unmount();
    world.mount();
    CHECK(catch_up(world).state == ScrubState::kFinished);
    CHECK(world.stale_groups() == 0);
    world.unmount();
    world.mount(degraded_options(), {2, 3});
    CHECK(world.read_back() == 0);
}

TEST_CASE("catching up: columns are current although other members do not have what these lack")
{
    StaleWorld world(kStaleRaid5);
    miss_writes(world, {1});
    world.mount();
    REQUIRE(world.stale_groups() > 1);
    // Of every row that the member lacks another block is gone, too.
    const uint64_t begin = world.fs->volume->superblock().members.front().slots_offset;
    world.unmount();
    std::vector<std::byte> block(kBlockBytes);
    for (uint64_t offset = begin; offset < kStaleRaid5.member_bytes; offset += kBlockBytes) {
        world.prng.fill(block.data(), block.size());
        world.volume.member(2).poke(offset, block);
    }
    world.mount();
    const ScrubStatus status = catch_up(world);
    CHECK(status.lost > 0);
    CHECK(status.lost == world.fs->store.damage.block_count());
    CHECK(world.stale_groups() == 0);
    CHECK(world.read_back() > 0);
}

TEST_CASE("catching up: a scrub of everything does it, too")
{
    StaleWorld world(kStaleRaid6);
    miss_writes(world, {1, 4});
    world.mount();
    ScrubStatus status;
    while (status.state != ScrubState::kFinished)
        status = world.fs->scrub_step();
    REQUIRE(world.fs->step(true).ok());
    CHECK(world.stale_groups() == 0);
    world.unmount();
    world.mount(degraded_options(), {0, 2});
    CHECK(world.read_back() == 0);
}

TEST_CASE("catching up: power goes before the map says so, and nothing is believed too early")
{
    StaleWorld world(kStaleRaid5);
    miss_writes(world, {1});
    world.mount();
    ScrubStatus status;
    while (status.state != ScrubState::kFinished)
        status = *world.fs->catch_up_step();
    CHECK(world.stale_groups() > 0);
    world.fs.reset();
    world.mount();
    CHECK(world.stale_groups() > 0);
    const ScrubStatus again = catch_up(world);
    CHECK(again.repaired == 0);
    CHECK(world.stale_groups() == 0);
}

namespace {

// `by_scrub`: a scrub of everything is ahead, and records the parity.
void require_durable_parity(bool by_scrub)
{
    StaleWorld world(kStaleRaid5);
    MountOptions options = degraded_options();
    options.join_above = 0;
    world.mount(options);
    for (int file = 0; file < 200; ++file)
        world.write("file" + std::to_string(file), kBlockBytes);
    // No room for block groups without the member.
    world.write("large", world.fs->statistics().available_blocks * kBlockBytes / 100 * 95);
    for (int file = 0; file < 200; file += 2) {
        REQUIRE(world.fs->names.unlink({kRootInode}, "file" + std::to_string(file)).ok());
        world.files.erase("file" + std::to_string(file));
    }
    REQUIRE(world.fs->step(true).ok());
    world.unmount();
    // One block of a row is written, and of the others none is in memory: nobody knows its parity.
    world.mount(options);
    world.fail_writes(1);
    for (int file = 0; file < 200; file += 4)
        world.write("file" + std::to_string(file), kBlockBytes);
    REQUIRE(world.info_of(1).state == MemberState::kFailed);
    world.unmount();
    world.mount();
    uint64_t recorded = 0;
    CHECK(cut_fillings(world, 1, [&](const ScrubStatus& found) {
              recorded += found.adopted;
              ScrubStatus ahead;
              for (int step = 0; by_scrub && step < 1000 && ahead.adopted == 0; ++step)
                  ahead = world.fs->scrub_step();
              recorded += ahead.adopted;
          }) > 5);
    CHECK(recorded > 0);
    world.unmount();
    CHECK(world.check().clean());
    for (const uint32_t lost : {0, 2, 3}) {
        CAPTURE(lost);
        options.read_only = true;
        world.mount(options, {lost});
        CHECK(world.read_back() == 0);
        world.fs.reset();
    }
}

}  // namespace

TEST_CASE("catching up: parity is current when the checksum it was given anew is durable")
{
    for (const bool by_scrub : {false, true}) {
        CAPTURE(by_scrub);
        require_durable_parity(by_scrub);
    }
}

namespace {

// Some group cannot do without these members as long as its stale columns are not written.
bool is_needed(const GroupMap& map, const Members& members)
{
    return std::any_of(map.groups.begin(), map.groups.end(), [&](const GroupRecord& group) {
        const auto lacking =
            std::count_if(group.columns.begin(), group.columns.end(), [&](const GroupColumn& column) {
                return column.stale() ||
                       std::find(members.begin(), members.end(), column.member.value - 1) != members.end();
            });
        return lacking > find_profile(group.profile)->tolerance;
    });
}

}  // namespace

TEST_CASE("replacing: what lost members held is written to new devices, and as many others may go")
{
    int refusals = 0;
    for (const LossCase& one :
         {LossCase{kStaleRaid5, {1}}, LossCase{kStaleRaid6, {0, 3}}, LossCase{kStaleNodesUnderParity, {1, 2}},
          LossCase{kStaleMirrors, {1}}, LossCase{kStalePairs, {2}}, LossCase{kFourCopies, {0, 2, 5}}}) {
        CAPTURE(static_cast<uint32_t>(one.shape.data_profile));
        CAPTURE(static_cast<uint32_t>(one.shape.metadata_profile));
        StaleWorld world(one.shape);
        write_before(world);
        world.mount(degraded_options(), one.away);
        world.write("meanwhile", kMiB);
        for (const uint32_t member : one.away)
            replace(world, member);
        CHECK(world.read_back() == 0);
        std::string why;
        Members others;
        for (uint32_t member = 0; others.size() < one.away.size(); ++member)
            if (std::find(one.away.begin(), one.away.end(), member) == one.away.end())
                others.push_back(member);
        const bool needed = is_needed(world.fs->volume->map(), others);
        world.unmount();
        // Not called current before they are.
        if (needed)
            CHECK_FALSE(world.try_mount(degraded_options(), others, why).ok());
        refusals += needed;
        world.mount();
        CHECK_FALSE(world.fs->info().degraded);
        CHECK(world.stale_groups() > 0);
        const ScrubStatus status = catch_up(world);
        CHECK(status.repaired > 0);
        CHECK_FALSE(status.damaged());
        CHECK(world.stale_groups() == 0);
        for (uint32_t member = 0; member < one.shape.member_count; ++member)
            CHECK(world.wrong_blocks(member) == 0);
        world.unmount();
        const CheckReport report = world.check();
        CHECK(report.clean());
        CHECK(report.stale_columns == 0);
        world.mount(degraded_options(), others);
        CHECK(world.read_back() == 0);
    }
    CHECK(refusals >= 5);
}

TEST_CASE("replacing: members that fail are replaced while the volume is used, and power may fail meanwhile")
{
    for (const bool power_fails : {false, true})
        for (const LossCase& one : {LossCase{kStaleRaid5, {1}}, LossCase{kStaleRaid6, {0, 3}},
                                    LossCase{kStaleNodesUnderParity, {1, 2}}, LossCase{kStaleMirrors, {1}},
                                    LossCase{kStalePairs, {2}}, LossCase{kFourCopies, {0, 2, 5}}}) {
            CAPTURE(power_fails);
            CAPTURE(static_cast<uint32_t>(one.shape.data_profile));
            CAPTURE(static_cast<uint32_t>(one.shape.metadata_profile));
            StaleWorld world(one.shape);
            write_before(world);
            world.mount();
            world.write("meanwhile", kMiB);
            for (const uint32_t member : one.away)
                world.fail_writes(member);
            world.write("without", 2 * kMiB);
            REQUIRE(world.fs->info().degraded);
            for (const uint32_t member : one.away) {
                replace(world, member);
                world.write("between", 300 * kKiB);
            }
            CHECK_FALSE(world.fs->info().degraded);
            // Beside writers, who go on in what is written already and in what is not.
            for (int step = 0; step < (power_fails ? 3 : 40); ++step) {
                world.fs->catch_up_step().status().ignore();
                world.write("file" + std::to_string(world.prng.below(6)), 1 + world.prng.below(400 * kKiB));
            }
            if (power_fails) {
                world.fs.reset();
                world.volume.power_cut(world.prng);
                world.mount();
            }
            for (int round = 0; round < 10 && world.stale_groups() > 0; ++round)
                CHECK_FALSE(catch_up(world).damaged());
            CHECK(world.stale_groups() == 0);
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
}

TEST_CASE("replacing: a scrub that met the device before calls nothing of the next one current")
{
    for (int before = 1; before <= 8; ++before) {
        CAPTURE(before);
        StaleWorld world(kStaleRaid5);
        write_before(world);
        world.mount();
        world.fail_writes(1);
        world.write("without", 4 * kMiB);
        SimDevice& device = world.volume.member(1);
        auto cable = std::make_unique<FaultDevice>(std::make_unique<BorrowedDevice>(device), seed());
        FaultDevice& fault = *cable;
        std::string why;
        REQUIRE(world.fs->committer.replace_member({2}, std::move(cable), why).ok());
        ScrubStatus scrub;
        for (int step = 0; step < before; ++step)
            scrub = world.fs->scrub_step();
        fault.add_rule({.action = FaultAction::kError, .kinds = kFaultWrites});
        world.write("without", kMiB);
        REQUIRE(world.fs->info().degraded);
        replace(world, 1);
        for (int step = 0; step < 1000 && scrub.state == ScrubState::kRunning; ++step)
            scrub = world.fs->scrub_step();
        REQUIRE(scrub.state == ScrubState::kFinished);
        REQUIRE(world.fs->step(true).ok());
        REQUIRE(world.fs->step(true).ok());
        // What is called current is.
        const bool current = world.stale_groups() == 0;
        world.unmount();
        world.mount(degraded_options(), current ? Members{0} : Members{});
        CHECK(world.read_back() == 0);
    }
}

TEST_CASE("replacing: the old device is left out when it is back, and a smaller one is refused")
{
    StaleWorld world(kStaleRaid5);
    write_before(world);
    SimDevice& device = world.volume.member(1);
    std::vector<std::byte> old(device.size_bytes());
    device.peek(0, old);
    world.mount(degraded_options(), {1});
    std::string why;
    CHECK(
        world.fs->committer.replace_member({2}, std::make_unique<SimDevice>("small", 64 * kMiB), why).err() ==
        Err::kNoSpace);
    replace(world, 1);
    world.unmount();
    SimDevice back("back", device.size_bytes());
    back.poke(0, old);
    std::vector<std::unique_ptr<BlockDevice>> devices = world.volume.borrow({});
    devices.push_back(std::make_unique<BorrowedDevice>(back));
    const Result<Assembly> assembly = assemble(std::move(devices), why);
    REQUIRE_MESSAGE(assembly.ok(), why);
    CHECK(assembly->notes == std::vector<std::string>{"back was member 2 and has been replaced: left out"});
    CHECK(assembly->missing().empty());
    devices = world.volume.borrow({});
    devices.push_back(std::make_unique<BorrowedDevice>(back));
    CHECK(assemble(std::move(devices), why, {.named = {"back"}}).err() == Err::kInvalid);
    CHECK(why == "back was member 2 and has been replaced: leave it out");
    // Without the new one it cannot take its place again.
    devices = world.volume.borrow({1});
    devices.push_back(std::make_unique<BorrowedDevice>(back));
    const Result<Assembly> without = assemble(std::move(devices), why);
    REQUIRE_MESSAGE(without.ok(), why);
    CHECK(without->missing() == std::vector<MemberId>{{2}});
}

// Its uuid is no secret: mkfs takes any. More devices, later commits.
TEST_CASE("replacing: devices of a stranger with the uuid of the volume replace none of its members")
{
    StaleWorld world({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024});
    write_before(world);
    world.mount();
    const Uuid uuid = world.fs->volume->identity().uuid;
    const uint64_t generation = world.fs->volume->superblock().generation.value;
    world.unmount();
    std::vector<std::unique_ptr<SimDevice>> foreign;
    const auto borrow_foreign = [&] {
        std::vector<std::unique_ptr<BlockDevice>> devices;
        for (const std::unique_ptr<SimDevice>& device : foreign)
            devices.push_back(std::make_unique<BorrowedDevice>(*device));
        return devices;
    };
    for (int index = 0; index < 3; ++index)
        foreign.push_back(std::make_unique<SimDevice>("foreign" + std::to_string(index), 96 * kMiB));
    std::string why;
    std::vector<std::unique_ptr<BlockDevice>> devices = borrow_foreign();
    REQUIRE(make_volume(devices,
                        {.label = "x",
                         .volume_uuid = uuid,
                         .data_profile = ProfileId::kRaid1,
                         .metadata_profile = ProfileId::kRaid1},
                        why)
                .ok());
    Result<Assembly> own = assemble(borrow_foreign(), why);
    REQUIRE_MESSAGE(own.ok(), why);
    Result<std::unique_ptr<Filesystem>> fs = Filesystem::open(own.take(), manual_options(), why);
    REQUIRE_MESSAGE(fs.ok(), why);
    while ((*fs)->volume->superblock().generation.value < generation + 20) {
        write_file(**fs, "evil" + std::to_string((*fs)->volume->superblock().generation.value),
                   random_content(world.prng, kBlockBytes));
        REQUIRE((*fs)->step(true).ok());
    }
    REQUIRE((*fs)->close().ok());
    fs->reset();
    devices = world.volume.borrow({});
    for (std::unique_ptr<BlockDevice>& device : borrow_foreign())
        devices.push_back(std::move(device));
    CHECK_FALSE(assemble(std::move(devices), why).ok());
    CHECK(why.find("member 1") != std::string::npos);
    devices = world.volume.borrow({});
    CHECK(assemble(std::move(devices), why).ok());
}

// With the threads of a mounted volume. Each row has another block that is wrong: such rows are repaired one
// by one, and read back.
TEST_CASE("catching up: what a member did not store is tried again while the volume is mounted")
{
    constexpr uint32_t kAway = 1, kRotten = 2;
    constexpr uint64_t kRows = 1600;  // of each group, from its begin
    StaleWorld world(kStaleRaid6);
    fail_while_writing(world, {kAway});
    world.mount();
    REQUIRE(world.stale_groups() > 0);
    std::vector<size_t> rules;
    for (const Ref<const ArrayGroup>& group : world.fs->volume->array().groups())
        for (uint32_t column = 0; column < group->geometry.columns(); ++column) {
            if (group->record.content != kGroupData)
                continue;
            const uint64_t offset = group->locate(column, 0).offset.value;
            const uint32_t member = group->record.columns[column].member.value - 1;
            for (uint64_t row = 0; member == kRotten && row < kRows; ++row)
                world.volume.member(member).poke(offset + row * kBlockBytes,
                                                 random_content(world.prng, kBlockBytes));
            if (member == kAway)
                rules.push_back(world.volume.cable(member).add_rule({.action = FaultAction::kLost,
                                                                     .kinds = kFaultWrites,
                                                                     .begin = offset,
                                                                     .end = offset + kRows * kBlockBytes,
                                                                     .limit = 1}));
        }
    world.unmount();
    MountOptions options = manual_options();
    options.manual_commit = false;
    options.retry_seconds = 1;
    world.mount(options);
    for (int look = 0; look < 600 && world.stale_groups() > 0; ++look)
        usleep(50'000);
    CHECK(world.stale_groups() == 0);
    uint64_t lost = 0;
    for (const size_t rule : rules)
        lost += world.volume.cable(kAway).hits(rule);
    CHECK(lost > 0);
    CHECK(world.read_back() == 0);
    world.unmount();
    // What was not to be filled is still wrong on the other one.
    world.mount();
    scrub_all(world);
    CHECK(world.wrong_blocks(kAway) == 0);
    CHECK(world.read_back() == 0);
    world.unmount();
    CHECK(world.check().clean());
}
