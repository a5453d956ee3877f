// SPDX-License-Identifier: MIT
// A member stops to answer while it is filled, copied or scrubbed: the volume is unmounted all the same, and
// when the member answers again the work goes on with what it left out.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "sim/holding_device.h"
#include "tests/filesystem/fill_steps.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kHangingMs = 30'000;  // and no less time has what must not wait for it
constexpr uint32_t kHanging = 1;

// With the threads of a mounted volume; reads of the members in service can be held.
class HangingWorld {
public:
    explicit HangingWorld(const VolumeShape& shape) : world(shape)
    {
        world.mount();
        world.write("before", 6 * kMiB + 100);
        world.unmount();
        options.manual_commit = false;
        options.read_deadline_seconds = 1;
    }
    ~HangingWorld() { release(); }

    void mount(const Members& absent = {})
    {
        std::vector<std::unique_ptr<BlockDevice>> devices;
        for (std::unique_ptr<BlockDevice>& device : world.volume.borrow(absent))
            devices.push_back(hold_back(std::move(device)));
        std::string why;
        Result<Assembly> assembly = assemble(std::move(devices), why);
        REQUIRE_MESSAGE(assembly.ok(), why);
        Result<std::unique_ptr<Filesystem>> opened = Filesystem::open(assembly.take(), options, why);
        REQUIRE_MESSAGE(opened.ok(), why);
        world.fs = opened.take();
    }
    std::unique_ptr<BlockDevice> hold_back(std::unique_ptr<BlockDevice> device)
    {
        auto made = std::make_unique<HoldingDevice>(std::move(device));
        devices_.push_back(made.get());
        return made;
    }
    HoldingDevice& last_device() { return *devices_.back(); }
    HoldingDevice& device_of(const char* name)
    {
        for (HoldingDevice* const device : devices_)
            if (device->name() == std::string(name))
                return *device;
        FAIL("no such device");
        return *devices_.front();
    }

    // It is read, known to be slow, and waited for.
    void wait_until_it_hangs(HoldingDevice& device)
    {
        const uint64_t begin = monotonic_ms();
        while (!world.fs->volume->members().slow(device) && monotonic_ms() < begin + kHangingMs)
            usleep(5000);
        REQUIRE(world.fs->volume->members().slow(device));
    }
    // Users read and write; work of another kind has its turn.
    void require_turns()
    {
        WorkBudget& budget = world.fs->store.budget;
        const uint64_t begin = monotonic_ms();
        do {
            budget.foreground.began(monotonic_ns());
            budget.foreground.ended();
            if (budget.begin_turn(BackgroundWork::kMove, monotonic_ns()) == 0) {
                budget.end_turn(BackgroundWork::kMove, monotonic_ns());
                return;
            }
            usleep(1000);
        } while (monotonic_ms() < begin + kHangingMs);
        FAIL("who waits for a member keeps its turn");
    }
    // While the member hangs. What it then answers is wrong, and nobody's memory.
    void unmount_hanging()
    {
        std::atomic<bool> done{false};
        std::thread unmounter([&] {
            CHECK(world.fs->close().ok());
            done = true;
        });
        const uint64_t begin = monotonic_ms();
        while (!done && monotonic_ms() < begin + kHangingMs)
            usleep(5000);
        CHECK(done);
        release();
        unmounter.join();
        world.fs.reset();
    }
    void release()
    {
        for (HoldingDevice* const device : devices_)
            device->release(HoldingDevice::Release::kPoison);
        devices_.clear();
    }
    // Without the devices left out, and when others are lost, too.
    void require_whole(const Members& left_out)
    {
        CHECK(world.stale_groups() == 0);
        CHECK(world.read_back() == 0);
        world.unmount();
        CheckReport report;
        std::string why;
        REQUIRE_MESSAGE(world.volume.check(report, why, left_out).ok(), why);
        CHECK(report.clean());
        CHECK(report.stale_columns == 0);
        Members absent = left_out;
        absent.push_back(0);
        world.mount(degraded_options(), absent);
        CHECK(world.read_back() == 0);
        world.unmount();
    }

    StaleWorld world;
    MountOptions options = degraded_options();

private:
    std::vector<HoldingDevice*> devices_;
};

}  // namespace

TEST_CASE("hanging: a member that is filled stops to answer, and the volume is unmounted")
{
    for (const VolumeShape& shape : {kStaleRaid5, kStaleNodesUnderParity}) {
        CAPTURE(static_cast<uint32_t>(shape.data_profile));
        HangingWorld hanging(shape);
        StaleWorld& world = hanging.world;
        fail_while_writing(world, {kHanging});
        hanging.mount({kHanging});
        std::unique_ptr<BlockDevice> back = hanging.hold_back(world.volume.borrow_one(kHanging));
        HoldingDevice& device = hanging.last_device();
        device.hold(0, {world.fs->volume->member_table().front().slots_offset});  // not its superblock
        std::string why;
        REQUIRE_MESSAGE(world.fs->committer.online_member({kHanging + 1}, std::move(back), why).ok(), why);
        hanging.wait_until_it_hangs(device);
        hanging.require_turns();
        CHECK(world.stale_groups() > 0);
        hanging.unmount_hanging();
        world.mount();
        CHECK(world.stale_groups() > 0);
        CHECK(catch_up(world).state == ScrubState::kFinished);
        hanging.require_whole({});
    }
}

TEST_CASE("hanging: a member that is copied stops to answer, and the volume is unmounted")
{
    for (const VolumeShape& shape : {kStaleRaid5, kStaleMirrors}) {
        CAPTURE(static_cast<uint32_t>(shape.data_profile));
        HangingWorld hanging(shape);
        StaleWorld& world = hanging.world;
        hanging.mount();
        const uint32_t target = world.volume.add_device(shape.member_bytes);
        HoldingDevice& source = hanging.device_of("member2");
        source.hold();
        std::string why;
        REQUIRE_MESSAGE(
            world.fs->committer.replace_member({kHanging + 1}, world.volume.borrow_one(target), why).ok(),
            why);
        hanging.wait_until_it_hangs(source);
        hanging.require_turns();
        hanging.unmount_hanging();
        world.mount();
        for (int step = 0; step < 2000 && world.fs->replace_step(); ++step)
            continue;
        CHECK(world.fs->committer.replace.status().state == ReplaceStatus::State::kFinished);
        CHECK(world.fs->committer.replace.status().copy.repaired == 0);
        world.unmount();
        world.mount(manual_options(), {kHanging});
        hanging.require_whole({kHanging});
    }
}

TEST_CASE("hanging: a member stops to answer a scrub, which the next mount goes on with")
{
    ScrubStatus whole;  // of the same volume, without a member that hangs
    for (const bool hangs : {false, true}) {
        HangingWorld hanging(kStaleRaid5);
        StaleWorld& world = hanging.world;
        hanging.mount();
        HoldingDevice& device = hanging.device_of("member2");
        if (hangs)
            device.hold();
        REQUIRE(world.fs->committer.scrub.start({}).ok());
        if (hangs) {
            hanging.wait_until_it_hangs(device);
            hanging.require_turns();
        }
        hanging.unmount_hanging();
        world.mount();
        const ScrubStatus before = world.fs->committer.scrub.status();
        CHECK((!hangs || before.state == ScrubState::kRunning));
        const ScrubStatus status = before.state == ScrubState::kRunning ? scrub_all(world) : before;
        CHECK(status.state == ScrubState::kFinished);
        CHECK(status.repaired == 0);
        CHECK_FALSE(status.damaged());
        if (!hangs)
            whole = status;
        CHECK(status.data_blocks == whole.data_blocks);
        CHECK(status.parity_blocks == whole.parity_blocks);
        world.unmount();
    }
}

TEST_CASE("hanging: a large read of compressed and of plain pieces does without the member")
{
    constexpr size_t kFrames = 4, kFrameBytes = kFrameBlocksMax * kBlockBytes;
    HangingWorld hanging(kStaleRaid5);
    StaleWorld& world = hanging.world;
    hanging.options.memory_bytes = 128 * kMiB;  // the frames of a request are read in parts
    hanging.options.compression = {.on = true, .level = 1};
    std::vector<std::byte> content((kFrames + 1) * kFrameBytes);
    fill_text(world.prng, std::span(content).first(kFrames * kFrameBytes));
    world.prng.fill(content.data() + kFrames * kFrameBytes, kFrameBytes);
    hanging.mount();
    const Result<Attributes> made = world.fs->names.make_node({kRootInode}, "mixed", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    const InodeNumber file = made->inode;
    REQUIRE(world.fs->files.write(file, 0, content, {}, {}).ok());
    REQUIRE(world.fs->committer.sync().ok());
    REQUIRE(world.fs->close().ok());
    hanging.release();
    for (const char* const name : {"member1", "member2", "member3", "member4"}) {
        CAPTURE(name);
        hanging.mount();
        std::vector<std::byte> got(content.size());
        REQUIRE(world.fs->names.lookup({kRootInode}, "mixed").ok());
        REQUIRE(world.fs->files.read(file, 0, std::span(got).first(kBlockBytes)).ok());
        hanging.device_of(name).hold();
        std::atomic<bool> done{false};
        std::thread reader([&] {
            const Result<size_t> read = world.fs->files.read(file, 0, got);
            CHECK((read.ok() && *read == content.size()));
            done = true;
        });
        const uint64_t begin = monotonic_ms();
        while (!done && monotonic_ms() < begin + kHangingMs)
            usleep(5000);
        CHECK(done);
        CHECK(same(got, content));
        hanging.release();
        reader.join();
        REQUIRE(world.fs->close().ok());
    }
}
