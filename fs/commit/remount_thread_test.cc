// SPDX-License-Identifier: MIT
// Becoming read-only and writable again with threads: nothing that was acknowledged is lost, and the threads
// do their work again afterwards.
#include <doctest/doctest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "base/large_memory.h"
#include "base/thread.h"
#include "fs/make_volume.h"
#include "tests/support/capture.h"
#include "tests/support/names_volume.h"

using namespace cowraid;

namespace {

// A member that can be made to fail, all of it or what writes, or to keep flushes waiting.
class GatedMember final : public BlockDevice {
public:
    explicit GatedMember(SimDevice& device) : device_(device) { }
    [[nodiscard]] uint64_t size_bytes() const override { return device_.size_bytes(); }
    [[nodiscard]] const char* name() const override { return device_.name(); }
    void perform(IoRequest& request) override
    {
        while (request.kind == IoKind::kFlush && gate_closed) {
            flush_waits = true;
            usleep(1000);
        }
        const bool fails = gone || (request.kind != IoKind::kRead && writes_left-- <= 0);
        if (fails)
            request.result = Err::kMemberGone;
        else
            device_.perform(request);
    }

    std::atomic<bool> gone{false}, gate_closed{false}, flush_waits{false};
    std::atomic<int64_t> writes_left{INT64_MAX};

private:
    SimDevice& device_;
};

// A mirror of three: without one of them the commit under way is the last.
struct Mirror {
    std::array<SimDevice, 3> devices;
    std::array<GatedMember, 3> members{GatedMember(devices[0]), GatedMember(devices[1]),
                                       GatedMember(devices[2])};
    std::unique_ptr<Filesystem> fs;

    explicit Mirror(uint64_t member_bytes = 128 * kMiB)
        : devices{SimDevice("one", member_bytes), SimDevice("two", member_bytes),
                  SimDevice("three", member_bytes)}
    {
        MakeOptions make;
        make.data_profile = make.metadata_profile = ProfileId::kRaid1c3;
        std::string why;
        auto views = this->views();
        REQUIRE(make_volume(views, make, why).ok());
    }
    std::vector<std::unique_ptr<BlockDevice>> views()
    {
        std::vector<std::unique_ptr<BlockDevice>> views;
        for (GatedMember& member : members)
            views.push_back(view_of(member));
        return views;
    }
    void open(const MountOptions& options)
    {
        std::string why;
        auto assembly = assemble(views(), why);
        REQUIRE(assembly.ok());
        auto opened = Filesystem::open(assembly.take(), options, why);
        REQUIRE_MESSAGE(opened.ok(), why);
        fs = opened.take();
    }
};

void* sync_in_thread(void* fs)
{
    CHECK(static_cast<Filesystem*>(fs)->committer.sync().ok());
    return nullptr;
}

// A sync that nobody answers ends with an error.
struct TimedSync {
    Filesystem& fs;
    Status result;
    std::atomic<bool> done{false};
};

bool syncs_in_time(Filesystem& fs)
{
    constexpr int kMilliseconds = 20'000;
    TimedSync sync{fs, {}};
    const auto run = [](void* argument) -> void* {
        auto& sync = *static_cast<TimedSync*>(argument);
        sync.result = sync.fs.committer.sync();
        sync.done = true;
        return nullptr;
    };
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, run, &sync) == 0);
    for (int i = 0; i < kMilliseconds && !sync.done; ++i)
        usleep(1000);
    if (!sync.done)
        fs.store.commits.suspend(Err::kShutdown);
    pthread_join(thread, nullptr);
    return sync.result.ok();
}

// One of several that want different things.
struct Remounter {
    Filesystem& fs;
    bool read_only;
    int refused = 0;
};

void* remount_in_thread(void* argument)
{
    Remounter& remounter = *static_cast<Remounter*>(argument);
    std::string why;
    for (int i = 0; i < 60; ++i)
        remounter.refused += remounter.fs.committer.remount(remounter.read_only, why).ok() ? 0 : 1;
    return nullptr;
}

bool write_text(Filesystem& fs, InodeNumber inode, std::string_view text)
{
    return fs.files.write(inode, 0, bytes_of(text), {}, {}).ok();
}

// Carried out while the test is told that it is not.
struct SlowOrder final : CommitOrder {
    explicit SlowOrder(Status result) : result(result) { }

    Status apply(std::string&) override
    {
        begun = true;
        usleep(200'000);
        return result;
    }
    void applied() override { done = true; }

    const Status result;
    std::atomic<bool> begun{false}, done{false};
};

// Commits before which an order came too late. Meanwhile the volume becomes read-only, and the last commit
// takes the order: in another thread, which succeeds or fails.
struct LateDriver final : CommitDriver {
    LateDriver(Filesystem& fs, SlowOrder& order, bool fails) : fs(fs), order(order), fails(fails) { }

    static void* last_commit(void* self)
    {
        LateDriver& driver = *static_cast<LateDriver*>(self);
        CommitOrders& orders = driver.fs.committer.orders;
        if (orders.apply())
            driver.fails ? orders.failed(Err::kIo) : orders.applied();
        return nullptr;
    }
    Status commit() override
    {
        fs.store.service.become(ServiceState::Kind::kReading);
        REQUIRE(pthread_create(&thread, nullptr, last_commit, this) == 0);
        while (!order.begun)
            usleep(1000);
        return {};
    }
    Status flush() override { return {}; }
    Status finish_removals() override { return {}; }
    FsyncLog* records() override { return nullptr; }

    Filesystem& fs;
    SlowOrder& order;
    const bool fails;
    pthread_t thread{};
};

}  // namespace

TEST_CASE("remount: an order that the last commit before read-only takes is answered as it ends")
{
    TestVolume volume(manual_options());
    Filesystem& fs = volume.fs();
    CommitDriver* const driver = fs.store.driver;
    for (const Err result : {Err::kOk, Err::kBusy})
        for (const bool fails : {false, true}) {
            const Ref<SlowOrder> order = make_ref<SlowOrder>(result);
            LateDriver late(fs, *order, fails);
            fs.store.driver = &late;
            std::string why;
            const Err answer = fs.committer.orders.carry_out(Ref<CommitOrder>(order.get()), why).err();
            CHECK(answer == (result != Err::kOk ? result : fails ? Err::kIo : Err::kOk));
            CHECK(order->done == (answer == Err::kOk));
            pthread_join(late.thread, nullptr);
            fs.store.driver = driver;
            // Nothing is left of it.
            CHECK_FALSE(fs.committer.orders.waiting(CommitOrder::When::kBefore));
            const Ref<SlowOrder> next = make_ref<SlowOrder>(Err::kOk);
            CHECK(fs.committer.orders.carry_out(Ref<CommitOrder>(next.get()), why).err() == Err::kReadOnly);
            CHECK_FALSE(next->begun);
            fs.store.service.become(ServiceState::Kind::kWriting);
        }
}

TEST_CASE("a member fails: what comes beside the commit that records it is acknowledged and kept")
{
    MountOptions options;
    options.commit_seconds = 300;
    Mirror mirror;
    mirror.open(options);
    Filesystem& fs = *mirror.fs;
    const InodeNumber file = make_file(fs, kRoot, "file");
    REQUIRE(write_text(fs, file, "first"));
    REQUIRE(fs.committer.fsync(file, Committer::SyncWhat::kAll).ok());
    mirror.members[1].gone = true;
    REQUIRE(write_text(fs, file, "other"));
    REQUIRE(fs.committer.fsync(file, Committer::SyncWhat::kAll).ok());  // by a record: finds out
    // Without that member no new group has three copies: the groups there are go on without it.
    REQUIRE(write_text(fs, file, "third"));
    mirror.members[0].gate_closed = true;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, sync_in_thread, &fs) == 0);
    while (!mirror.members[0].flush_waits)
        usleep(1000);
    CHECK(write_text(fs, file, "after"));
    mirror.members[0].gate_closed = false;
    pthread_join(thread, nullptr);
    make_file(fs, kRoot, "more");
    REQUIRE(fs.committer.fsync(file, Committer::SyncWhat::kAll).ok());
    mirror.fs.reset();  // the daemon dies
    options.degraded = true;
    options.manual_commit = true;
    mirror.members[1].gone = false;
    mirror.open(options);
    std::array<std::byte, 5> got{};
    REQUIRE(mirror.fs->files.read(file, 0, got).ok());
    CHECK(text_of(got) == "after");
    CHECK(mirror.fs->names.lookup(kRoot, "more").ok());
}

TEST_CASE("remount: files are deleted again after read-only and back")
{
    MountOptions options;
    TestVolume volume(options);
    std::string why;
    const uint64_t before = volume.fs().statistics().inode_count;
    const InodeNumber open_file = make_file(volume.fs(), kRoot, "open");
    REQUIRE(volume.fs().names.unlink(kRoot, "open").ok());
    REQUIRE(volume.fs().committer.remount(true, why).ok());
    volume.fs().names.forget(open_file, 1);
    REQUIRE(volume.fs().committer.remount(false, why).ok());
    const InodeNumber file = make_file(volume.fs(), kRoot, "file");
    REQUIRE(volume.fs().names.unlink(kRoot, "file").ok());
    volume.fs().names.forget(file, 1);
    for (int i = 0; i < 60'000 && volume.fs().statistics().inode_count != before; ++i)
        usleep(1000);
    CHECK(volume.fs().statistics().inode_count == before);
}

TEST_CASE("remount: the commit thread alone may change the volume, and everybody once it has ended")
{
#ifdef COWRAID_DEBUG
    constexpr bool kChecked = true;
#else
    constexpr bool kChecked = false;
#endif
    TestVolume volume(MountOptions{});
    Filesystem& fs = volume.fs();
    std::string why;
    for (int round = 0; round < 2; ++round) {
        make_file(fs, kRoot, "file" + std::to_string(round));
        REQUIRE(fs.committer.sync().ok());
        CHECK(fs.volume->commit_thread().elsewhere() == kChecked);
        const VolumeInfo info = fs.info();
        REQUIRE(fs.committer.remount(true, why).ok());
        CHECK(!fs.volume->commit_thread().elsewhere());
        // What others were told is what the volume says of itself.
        const Superblock& superblock = fs.volume->superblock();
        CHECK(info.uuid == superblock.volume_uuid);
        CHECK(info.label == superblock.label);
        CHECK(info.chunk_bytes == superblock.chunk_bytes);
        CHECK(info.generation <= superblock.generation);
        CHECK(fs.volume->member_table() == superblock.members);
        CHECK(fs.volume->profiles().data == superblock.data_profile);
        CHECK(fs.volume->log_epoch() == superblock.log_epoch);
        CHECK(fs.info().generation == superblock.generation);
        REQUIRE(fs.committer.remount(false, why).ok());
    }
}

TEST_CASE("remount: what comes together is carried out one after the other")
{
    MountOptions options;
    TestVolume volume(options);
    Filesystem& fs = volume.fs();
    Remounter remounters[] = {{fs, true}, {fs, false}, {fs, false}};
    pthread_t threads[std::size(remounters)];
    for (size_t i = 0; i < std::size(remounters); ++i)
        REQUIRE(pthread_create(&threads[i], nullptr, remount_in_thread, &remounters[i]) == 0);
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    for (const Remounter& remounter : remounters)
        CHECK(remounter.refused == 0);
    std::string why;
    REQUIRE(fs.committer.remount(false, why).ok());
    const InodeNumber file = make_file(fs, kRoot, "file");
    CHECK(write_text(fs, file, "text"));
    CHECK(fs.committer.sync().ok());
}

TEST_CASE("threads that are refused: the mount fails, a volume that is read-only stays so")
{
    Mirror mirror;
    mirror.open({});
    const InodeNumber file = make_file(*mirror.fs, kRoot, "file");
    CHECK(write_text(*mirror.fs, file, "text"));
    REQUIRE(mirror.fs->close().ok());
    const auto is_whole = [&] {
        std::array<std::byte, 4> got;
        CHECK(mirror.fs->files.read(file, 0, got).ok());
        CHECK(text_of(got) == "text");
    };
    const char* const refused = err_text(Err::kNoThread);
    uint32_t threads = 0;
    for (bool opened = false; !opened; ++threads) {
        CAPTURE(threads);
        std::string why;
        mirror.fs.reset();
        auto assembly = assemble(mirror.views(), why);
        REQUIRE(assembly.ok());
        limit_threads(threads);
        auto filesystem = Filesystem::open(assembly.take(), {}, why);
        limit_threads(kThreadsUnlimited);
        opened = filesystem.ok();
        CHECK(filesystem.err() == (opened ? Err::kOk : Err::kNoThread));
        CHECK(why == (opened ? "" : refused));
        if (opened)
            mirror.fs = filesystem.take();
    }
    CHECK(threads > 10);
    is_whole();
    REQUIRE(mirror.fs->close().ok());
    MountOptions reading;
    reading.read_only = true;
    mirror.fs.reset();
    mirror.open(reading);
    Filesystem& fs = *mirror.fs;
    uint32_t failures = 0;
    for (bool writes = false; !writes; ++failures) {
        CAPTURE(failures);
        std::string why;
        limit_threads(failures);
        writes = fs.committer.remount(false, why).ok();
        limit_threads(kThreadsUnlimited);
        CHECK(why == (writes ? "" : refused));
        CHECK(fs.store.service.read_only() != writes);
        CHECK_FALSE(fs.store.service.failed());
        CHECK(write_text(fs, file, "text") == writes);
        is_whole();
    }
    CHECK(failures > 8);
    CHECK(write_text(fs, make_file(fs, kRoot, "more"), "text"));
    CHECK(fs.committer.sync().ok());
    REQUIRE(fs.close().ok());
}

TEST_CASE("remount: after one that was refused for lack of threads the next one has a thread that commits")
{
    for (const bool reading : {false, true}) {
        CAPTURE(reading);
        Mirror mirror;
        MountOptions options;
        options.read_only = reading;
        mirror.open(options);
        Filesystem& fs = *mirror.fs;
        std::string why;
        REQUIRE(fs.committer.remount(true, why).ok());
        for (const uint32_t threads : {0U, 1U, 2U}) {
            limit_threads(threads);
            const Status refused = fs.committer.remount(false, why);
            limit_threads(kThreadsUnlimited);
            REQUIRE(refused.err() == Err::kNoThread);
            const Status writes = fs.committer.remount(false, why);
            REQUIRE(writes.ok());
            const std::string name = "file" + std::to_string(threads);
            const InodeNumber file = make_file(fs, kRoot, name);
            REQUIRE(write_text(fs, file, name));
            REQUIRE(syncs_in_time(fs));
            REQUIRE(fs.committer.remount(true, why).ok());
            std::array<std::byte, 5> got{};
            REQUIRE(fs.files.read(file, 0, got).ok());
            CHECK(text_of(got) == name);
        }
        mirror.fs.reset();  // the daemon dies
        mirror.open({});
        for (const char* name : {"file0", "file1", "file2"})
            CHECK(mirror.fs->names.lookup(kRoot, name).ok());
        REQUIRE(mirror.fs->close().ok());
    }
}

TEST_CASE("remount: after one that was refused what fails is logged, as no superblock says so")
{
    for (const uint32_t threads : {0U, 1U, 4U}) {
        CAPTURE(threads);
        MountOptions options;
        options.read_only = true;
        TestVolume volume(options);
        Filesystem& fs = volume.fs();
        std::string why;
        limit_threads(threads);
        const Status refused = fs.committer.remount(false, why);
        limit_threads(kThreadsUnlimited);
        REQUIRE(refused.err() == Err::kNoThread);
        Captured log;
        const MemberId member{2};
        CHECK(fs.store.volume.members().fail(std::span(&member, 1)));
        CHECK(log.text().find("failed: out of service") != std::string::npos);
    }
}

TEST_CASE("remount: a volume that becomes read-only gives back what it has no use for")
{
    TestVolume volume(MountOptions{});
    Filesystem& fs = volume.fs();
    const InodeNumber file = make_file(fs, kRoot, "file");
    const std::vector<std::byte> content(kMiB, std::byte{7});
    for (uint64_t at = 0; at < 16 * kMiB; at += kMiB)
        REQUIRE(fs.files.write(file, at, content, {}, {}).ok());
    std::string why;
    REQUIRE(fs.committer.remount(true, why).ok());
    const size_t held = large_bytes_held();
    large_trim();
    large_trim();
    CHECK(large_bytes_held() == held);
    std::vector<std::byte> read(kMiB);
    REQUIRE(fs.files.read(file, 15 * kMiB, read).ok());
    CHECK(read == content);
}

TEST_CASE("remount: a volume that stops meanwhile is not remounted, whichever write is the first that fails")
{
    uint32_t stopped = 0;
    bool remounted = false;
    for (int64_t writes = 0; !remounted; ++writes) {
        CAPTURE(writes);
        REQUIRE(writes < 1000);
        Mirror mirror(2 * kGiB);
        MountOptions options;
        options.manual_commit = true;
        mirror.open(options);
        Filesystem& fs = *mirror.fs;
        const InodeNumber file = make_file(fs, kRoot, "file");
        REQUIRE(write_text(fs, file, "text"));
        std::string why;
        REQUIRE(fs.committer.remount(true, why).ok());
        // No room is left in any group, so one is planned, and the first commit makes it.
        const auto groups = fs.store.allocator.group_numbers(kGroupData);
        REQUIRE(!groups.empty());
        for (const GroupNumbers& group : groups)
            fs.store.allocator.set_group_state(group.address, Allocator::GroupState::kClosed);
        for (GatedMember& member : mirror.members)
            member.writes_left = writes;
        const Status status = fs.committer.remount(false, why);
        remounted = status.ok();
        CHECK_FALSE((remounted && fs.store.service.failed()));
        CHECK(why.empty() == remounted);
        CHECK(write_text(fs, file, "more") == remounted);
        stopped += fs.store.service.stopped() ? 1 : 0;
        std::array<std::byte, 4> got{};
        REQUIRE(fs.files.read(file, 0, got).ok());
        CHECK(text_of(got) == (remounted ? "more" : "text"));
        mirror.fs->close().ignore();
    }
    CHECK(stopped > 5);
}
