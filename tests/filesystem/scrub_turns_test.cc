// SPDX-License-Identifier: MIT
// What a scrub takes in one turn while somebody uses the volume, and when it gives the turn back.
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "tests/filesystem/fill_steps.h"
#include "tests/filesystem/scrub_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr VolumeShape kLongChunks{6, 192 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kMiB};
constexpr uint64_t kSlack = 6 * 64 * kKiB;  // a row of the shortest runs of each member

// Somebody uses the volume.
ScrubStatus scrub_beside_user(Filesystem& fs)
{
    WorkBudget& budget = fs.store.budget;
    for (int step = 0; step < 5000; ++step) {
        budget.foreground.began(monotonic_ns());
        const uint64_t turns = budget.turns_begun(), before = fs.committer.scrub.status().bytes_done;
        const ScrubStatus status = fs.scrub_step();
        budget.foreground.ended();
        const uint64_t bytes = status.bytes_done - std::min(status.bytes_done, before);
        CHECK(bytes <= (budget.turns_begun() - turns) * (kHeldBackBytes + kSlack));
        if (status.state == ScrubState::kFinished)
            return status;
    }
    FAIL("the scrub does not end");
    return {};
}

}  // namespace

TEST_CASE("scrub turns: long chunks are cut for users, and everything is met once")
{
    SimVolume volume(kLongChunks);
    make_and_mount(volume);
    Prng prng(seed());
    const std::vector<std::byte> content = random_content(prng, 24 * kMiB);
    const InodeNumber file = make_file(volume.fs(), "file", content);
    REQUIRE(volume.fs().step(true).ok());
    const ScrubStatus whole = scrub(volume.fs());
    require_quiet(whole);
    CHECK(whole.data_blocks > content.size() / kBlockBytes);
    const ScrubStatus pieces = scrub_beside_user(volume.fs());
    require_quiet(pieces);
    CHECK(pieces.data_blocks == whole.data_blocks);
    CHECK(pieces.parity_blocks == whole.parity_blocks);
    CHECK(pieces.nodes == whole.nodes);
    CHECK(pieces.bytes_done == whole.bytes_done);
    // What is wrong in cut runs is repaired, each block once.
    const uint64_t slots = slots_offset(volume.fs());
    for (uint64_t at = slots; at < kLongChunks.member_bytes; at += 37 * kBlockBytes)
        rot(volume, prng, 1, at);
    const ScrubStatus mended = scrub_beside_user(volume.fs());
    CHECK(mended.repaired > content.size() / kBlockBytes / 5 / 37);
    CHECK_FALSE(mended.damaged());
    require_quiet(scrub(volume.fs()));
    require_content(volume.fs(), file, content);
}

namespace {

// A commit that waits in its first flush until the scrub beside it, which meets damage, has given its turn
// back.
struct HeldCommit {
    Filesystem* fs = nullptr;
    std::thread scrubber{};
    bool gave_back = false;

    static void call(void* self, uint64_t)
    {
        constexpr uint64_t kPatienceMs = 5000, kSteadyMs = 200;
        auto& held = *static_cast<HeldCommit*>(self);
        if (held.scrubber.joinable())
            return;
        WorkBudget& budget = held.fs->store.budget;
        const uint64_t before = budget.turns_begun();
        held.scrubber = std::thread([&held] { scrub(*held.fs); });
        uint64_t idle_since = 0;  // no turn is under way
        for (const uint64_t end = monotonic_ms() + kPatienceMs; monotonic_ms() < end; usleep(1000)) {
            const bool idle = budget.turns_begun() > before + 2 && budget.turns_under_way() == 0;
            if (!idle)
                idle_since = 0;
            else if (idle_since == 0)
                idle_since = monotonic_ms();
            held.gave_back = idle && monotonic_ms() > idle_since + kSteadyMs;
            if (held.gave_back)
                return;
        }
    }
};

}  // namespace

TEST_CASE("scrub turns: one that waits for a commit gives its turn back, and repairs after it")
{
    SimVolume volume(kStaleRaid5);
    make_and_mount(volume);
    Prng prng(seed());
    const std::vector<std::byte> content = random_content(prng, 4 * kMiB);
    const InodeNumber file = make_file(volume.fs(), "file", content);
    REQUIRE(volume.fs().step(true).ok());
    // All that data groups have on one member, but no nodes.
    for (const Ref<const ArrayGroup>& group : volume.fs().volume->array().groups())
        if (group->record.content == kGroupData)
            for (uint64_t row = 0; row < group->geometry.rows() * 4; ++row)
                rot(volume, prng, group->record.columns[1].member.value - 1,
                    group->locate(1, row * kBlockBytes).offset.value);
    make_file(volume.fs(), "other", {});
    HeldCommit held{&volume.fs()};
    volume.set_slow_hook({HeldCommit::call, &held});
    const size_t rule = volume.cable(0).add_rule(
        {.action = FaultAction::kSlow, .kinds = kFaultFlushes, .limit = 1, .delay_microseconds = 1});
    CHECK(volume.fs().step(true).ok());
    REQUIRE(held.scrubber.joinable());
    held.scrubber.join();
    CHECK(held.gave_back);
    volume.cable(0).remove_rule(rule);
    CHECK(volume.fs().committer.scrub.status().repaired > 0);
    require_quiet(scrub(volume.fs()));
    require_content(volume.fs(), file, content);
}

TEST_CASE("what a member lacks is left by readers to who fills it, and healed when nobody does")
{
    StaleWorld world(kStaleRaid5);
    fail_while_writing(world, {1});
    world.mount();
    REQUIRE(world.stale_groups() > 0);
    Scrub& filling = world.fs->committer.catch_up;
    const auto repaired_by_reading = [&] {
        const uint64_t before = world.fs->info().blocks_repaired;
        CHECK(world.read_back() == 0);
        return world.fs->info().blocks_repaired - before;
    };
    REQUIRE(filling.start({}).ok());
    CHECK(repaired_by_reading() == 0);
    REQUIRE(filling.cancel().ok());
    CHECK(repaired_by_reading() > 0);
    CHECK(repaired_by_reading() == 0);
    world.unmount();
}
