// SPDX-License-Identifier: MIT
// Users go first: the latencies of a reader and of a writer beside each kind of work in the background, and
// the speed of that work when nobody uses the volume. Members are disk drives, time is simulated, so that a
// run is the same each time, on any machine.
#include <linux/falloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/clock.h"
#include "sim/spindle_device.h"
#include "sim/virtual_time.h"
#include "tests/filesystem/volume_contents.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kDriveBytes = 192 * kMiB;
constexpr uint32_t kDrives = 4;
constexpr size_t kReadFileBytes = 64 * kMiB, kWrittenFileBytes = 16 * kMiB;
constexpr uint64_t kFilledBytes = 160 * kMiB;
// What one drive gives when its heads stay on their way: a track in a turn and the skew.
constexpr SpindleConstants kDrive;
constexpr double kDriveRate = 1e9 * kDrive.track_blocks * kBlockBytes / static_cast<double>(kDrive.turn) *
                              kDrive.track_blocks / (kDrive.track_blocks + kDrive.skew_blocks);
// Of a request, without what members do for it.
constexpr useconds_t kRequestUs = 30;
constexpr useconds_t kLookUs = 20'000;
constexpr uint64_t kSecondNs = 1'000'000'000;

// RAID5 on drives that outlive its mounts.
class DriveVolume {
public:
    // With the files of the users, and one that fills it up to `bytes`.
    explicit DriveVolume(uint64_t bytes)
    {
        while (drives_.size() < kDrives)
            add_drive();
        std::string why;
        std::vector<std::unique_ptr<BlockDevice>> devices = borrow();
        REQUIRE_MESSAGE(
            make_volume(
                devices,
                {.label = "drives", .data_profile = ProfileId::kRaid5, .metadata_profile = ProfileId::kRaid1},
                why)
                .ok(),
            why);
        devices.clear();
        mount(manual_options());
        Prng prng(seed());
        write_file(*fs_, "read", random_content(prng, kReadFileBytes));
        write_file(*fs_, "written", random_content(prng, kWrittenFileBytes));
        for (uint64_t at = kReadFileBytes + kWrittenFileBytes; at < bytes; at += 4 * kMiB) {
            write_file(*fs_, "big" + std::to_string(at), random_content(prng, 4 * kMiB));
            REQUIRE(fs_->step(false).ok());
        }
    }
    // Nearly full, of files with holes: few stripes are free, and many are nearly.
    void scatter()
    {
        Prng prng(seed() + 3);
        std::vector<std::string> names;
        while (fs_->statistics().available_blocks > 40 * kMiB / kBlockBytes) {
            names.push_back("scattered" + std::to_string(names.size()));
            write_file(*fs_, names.back(), random_content(prng, kMiB));
            if (names.size() % 16 == 0)
                REQUIRE(fs_->step(false).ok());
        }
        for (const std::string& name : names)
            for (uint64_t at = 0; at < kMiB; at += 64 * kKiB)
                REQUIRE(fs_->files
                            .allocate_range(find_file(*fs_, name), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                            at, 40 * kKiB)
                            .ok());
        REQUIRE(fs_->step(true).ok());
    }
    // From now on members take their time, and threads do what they do in a daemon.
    void start()
    {
        REQUIRE(fs_->close().ok());
        fs_.reset();
        for (const std::unique_ptr<SpindleDevice>& drive : drives_)
            drive->engage();
        mount({});
    }
    ~DriveVolume()
    {
        CHECK(fs_->close().ok());
        fs_.reset();
    }
    DriveVolume(const DriveVolume&) = delete;
    DriveVolume& operator=(const DriveVolume&) = delete;

    [[nodiscard]] Filesystem& fs() { return *fs_; }
    std::unique_ptr<BlockDevice> another()
    {
        add_drive();
        drives_.back()->engage();
        return std::make_unique<BorrowedDevice>(*drives_.back());
    }

private:
    void add_drive()
    {
        const uint64_t number = drives_.size();
        drives_.push_back(std::make_unique<SpindleDevice>(
            std::make_unique<SimDevice>("drive" + std::to_string(number + 1), kDriveBytes),
            SpindleOptions{.phase = number * 1'234'567}));
        drives_.back()->bypass();
    }
    std::vector<std::unique_ptr<BlockDevice>> borrow()
    {
        std::vector<std::unique_ptr<BlockDevice>> devices;
        for (const std::unique_ptr<SpindleDevice>& drive : drives_)
            devices.push_back(std::make_unique<BorrowedDevice>(*drive));
        return devices;
    }
    void mount(const MountOptions& options)
    {
        std::string why;
        Result<Assembly> assembly = assemble(borrow(), why);
        REQUIRE_MESSAGE(assembly.ok(), why);
        Result<std::unique_ptr<Filesystem>> opened = Filesystem::open(std::move(*assembly), options, why);
        REQUIRE_MESSAGE(opened.ok(), why);
        fs_ = std::move(*opened);
    }

    std::vector<std::unique_ptr<SpindleDevice>> drives_;
    std::unique_ptr<Filesystem> fs_;
};

// Reads single blocks of a file by chance, or writes them, with an fsync each.
struct DriveUser {
    Filesystem& fs;
    InodeNumber file;
    uint64_t blocks;
    bool writes;
    uint64_t period_ns;  // from request to request; 0: the next when one is answered
    Prng prng;
    std::atomic<bool> ending{false};
    std::vector<uint64_t> latencies{};  // nanoseconds

    // As the front end does with each request.
    template <typename Request> void ask(Request request)
    {
        ForegroundLoad& load = fs.store.budget.foreground;
        load.began(monotonic_ns());
        usleep(kRequestUs);
        request();
        load.ended();
    }
    void step()
    {
        const uint64_t offset = prng.below(blocks) * kBlockBytes;
        std::vector<std::byte> block(kBlockBytes);
        if (!writes) {
            ask([&] { REQUIRE(fs.files.read(file, offset, block).ok()); });
            return;
        }
        prng.fill(block.data(), block.size());
        ask([&] { REQUIRE(fs.files.write(file, offset, block, {}, {}).ok()); });
        ask([&] { REQUIRE(fs.committer.fsync(file, Committer::SyncWhat::kData).ok()); });
    }
    static void* run(void* self)
    {
        auto& user = *static_cast<DriveUser*>(self);
        for (uint64_t next = monotonic_ns(); !user.ending; next += user.period_ns) {
            const uint64_t now = monotonic_ns();
            if (user.period_ns > 0 && now < next)
                usleep(static_cast<useconds_t>((next - now) / 1000));
            const uint64_t began = monotonic_ns();
            user.step();
            user.latencies.push_back(monotonic_ns() - began);
        }
        return nullptr;
    }
    // In milliseconds.
    [[nodiscard]] double percentile(uint64_t percent)
    {
        REQUIRE(latencies.size() > 400);
        const auto at = latencies.begin() + static_cast<ptrdiff_t>(latencies.size() * percent / 100);
        std::nth_element(latencies.begin(), at, latencies.end());
        return static_cast<double>(*at) / 1e6;
    }
};

// Of reader and writer.
struct Periods {
    uint64_t read_ns = 0, write_ns = 0;
};
struct Measured {
    uint64_t reads = 0, writes = 0;
    double read_ms = 0, write_ms = 0;  // 99th percentiles
};

// Users for so long; `look` is called every now and then.
template <typename Look>
Measured use(DriveVolume& volume, const Periods& periods, uint64_t seconds, Look look)
{
    Filesystem& fs = volume.fs();
    DriveUser reader{fs,    find_file(fs, "read"), kReadFileBytes / kBlockBytes,
                     false, periods.read_ns,       Prng(seed() + 1)};
    DriveUser writer{fs,   find_file(fs, "written"), kWrittenFileBytes / kBlockBytes,
                     true, periods.write_ns,         Prng(seed() + 2)};
    pthread_t threads[2];
    REQUIRE(pthread_create(&threads[0], nullptr, DriveUser::run, &reader) == 0);
    REQUIRE(pthread_create(&threads[1], nullptr, DriveUser::run, &writer) == 0);
    for (const uint64_t end = monotonic_ns() + seconds * kSecondNs; monotonic_ns() < end; usleep(kLookUs))
        look();
    reader.ending = writer.ending = true;
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    MESSAGE("reads " << reader.latencies.size() << ": " << reader.percentile(50) << ", "
                     << reader.percentile(99) << " ms; writes " << writer.latencies.size() << ": "
                     << writer.percentile(50) << ", " << writer.percentile(99) << " ms");
    return {reader.latencies.size(), writer.latencies.size(), reader.percentile(99), writer.percentile(99)};
}

constexpr uint64_t kFullSeconds = 8, kUsedSeconds = 25, kIdleSeconds = 2;

// Half of what the volume gives when nothing else is asked of it.
Periods half_load(DriveVolume& volume)
{
    const Measured full = use(volume, {}, kFullSeconds, [] {});
    return {2 * kFullSeconds * kSecondNs / full.reads, 2 * kFullSeconds * kSecondNs / full.writes};
}

// Work in the background.
struct Work {
    void (*prepare)(DriveVolume&);  // what comes before it and is there without it, too
    void (*go_on)(DriveVolume&);  // begins it again when it has ended, if it can
    uint64_t (*bytes)(DriveVolume&);  // of members that the last one dealt with
    uint64_t least_rate = 1;  // bytes a second, beside users
};

// Lets it go on, and adds up what it does.
struct WorkProgress {
    DriveVolume& volume;
    const Work& work;
    uint64_t last = 0, bytes = 0;

    void look()
    {
        const uint64_t now = work.bytes(volume);
        bytes += now < last ? now : now - last;
        last = now;
        work.go_on(volume);
    }
};

// The slowest of a hundred requests are at most twice as slow as without it. `drives`: how many of them bound
// its rate; `share`: what it has of that, at least, without users, and a twentieth of it beside them; 0:
// there is nothing to do then.
void expect_users_first(DriveVolume& volume, const Work& work, double drives, double share)
{
    volume.start();
    work.prepare(volume);
    const Periods periods = half_load(volume);
    const Measured quiet = use(volume, periods, kUsedSeconds, [] {});
    WorkProgress progress{volume, work};
    progress.look();
    const Measured beside = use(volume, periods, kUsedSeconds, [&] { progress.look(); });
    MESSAGE("read " << beside.read_ms / quiet.read_ms << ", write " << beside.write_ms / quiet.write_ms
                    << " of quiet; " << progress.bytes / kMiB << " MiB in " << kUsedSeconds << " s");
    CHECK(progress.bytes > work.least_rate * kUsedSeconds);
    CHECK(beside.read_ms <= 2 * quiet.read_ms);
    CHECK(beside.write_ms <= 2 * quiet.write_ms);
    if (share == 0)
        return;
    const double beside_rate = static_cast<double>(std::exchange(progress.bytes, 0)) / kUsedSeconds;
    const uint64_t begin = monotonic_ns();
    for (; monotonic_ns() < begin + kIdleSeconds * kSecondNs; usleep(kLookUs))
        progress.look();
    const double rate =
        static_cast<double>(progress.bytes) * 1e9 / static_cast<double>(monotonic_ns() - begin);
    MESSAGE("beside them " << beside_rate / rate << " of the rate without users, which is " << rate / kMiB
                           << " MiB/s, " << rate / (drives * kDriveRate) << " of " << drives << " drives");
    CHECK(rate > share * drives * kDriveRate);
    CHECK(beside_rate > rate / 20);
}

void nothing_before(DriveVolume&) { }

}  // namespace

TEST_CASE("users first: beside a scrub")
{
    const VirtualTime time;
    DriveVolume volume(kFilledBytes);
    const Work work{nothing_before, [](DriveVolume& one) { one.fs().committer.scrub.start({}).ignore(); },
                    [](DriveVolume& one) {
                        return one.fs().committer.scrub.status().bytes_done;
                    }};
    expect_users_first(volume, work, kDrives, 0.3);
}

TEST_CASE("users first: beside a member that is copied")
{
    const VirtualTime time;
    DriveVolume volume(kFilledBytes);
    const Work work{nothing_before,
                    [](DriveVolume& one) {
                        std::string why;
                        if (!one.fs().committer.replace.status().active())
                            REQUIRE(one.fs().committer.replace_member({2}, one.another(), why).ok());
                    },
                    [](DriveVolume& one) {
                        return one.fs().committer.replace.status().copy.bytes_done;
                    }};
    expect_users_first(volume, work, 1, 0.2);
}

TEST_CASE("users first: beside a member that is filled")
{
    const VirtualTime time;
    DriveVolume volume(kFilledBytes);
    const auto take_out = [](DriveVolume& one) {
        std::string why;
        REQUIRE_MESSAGE(one.fs().committer.offline_member({2}, why).ok(), why);
    };
    const Work work{take_out,
                    [](DriveVolume& one) {
                        std::string why;
                        Committer& committer = one.fs().committer;
                        if (committer.catch_up.status().state == ScrubState::kRunning)
                            return;
                        committer.offline_member({2}, why).ignore();
                        committer.replace_member({2}, one.another(), why).ignore();
                    },
                    [](DriveVolume& one) {
                        return one.fs().committer.catch_up.status().bytes_done;
                    }};
    expect_users_first(volume, work, kDrives, 0.1);
}

TEST_CASE("users first: beside a balance")
{
    const VirtualTime time;
    DriveVolume volume(kFilledBytes);
    const Work work{
        nothing_before,
        [](DriveVolume& one) {
            std::string why;
            Balance& balance = one.fs().committer.balance;
            if (!balance.status().active())
                REQUIRE_MESSAGE(
                    balance.start({.profiles = one.fs().volume->profiles(), .content = kGroupData}, why).ok(),
                    why);
        },
        [](DriveVolume& one) {
            return one.fs().committer.balance.status().moved_bytes;
        }};
    expect_users_first(volume, work, kDrives, 0.06);
}

namespace {

// Until it is to be measured, so that there is something to clean then.
void leave_uncleaned(DriveVolume& volume)
{
    volume.fs().store.live.clean = false;
}

void clean(DriveVolume& volume)
{
    Filesystem& fs = volume.fs();
    REQUIRE((fs.store.live.clean || fs.info().moved_blocks == 0));
    fs.store.live.clean = true;
}

}  // namespace

TEST_CASE("users first: beside a cleaner that writers need")
{
    const VirtualTime time;
    DriveVolume volume(kReadFileBytes + kWrittenFileBytes);
    volume.scatter();
    const Work work{leave_uncleaned, clean,
                    [](DriveVolume& one) { return one.fs().info().moved_blocks * kBlockBytes; }, kMiB / 4};
    expect_users_first(volume, work, kDrives, 0);
}

// A piece that waits for its turn is a reader for which emptied groups stay: the cleaner would not end
// either.
TEST_CASE("users first: beside a scrub and a cleaner that writers need")
{
    const VirtualTime time;
    DriveVolume volume(kReadFileBytes + kWrittenFileBytes);
    volume.scatter();
    const Work work{leave_uncleaned,
                    [](DriveVolume& one) {
                        clean(one);
                        one.fs().committer.scrub.start({}).ignore();
                    },
                    [](DriveVolume& one) { return one.fs().committer.scrub.status().bytes_done; }, 4 * kMiB};
    expect_users_first(volume, work, kDrives, 0);
    const uint64_t moved = volume.fs().info().moved_blocks;
    MESSAGE("moved " << moved << " blocks");
    CHECK(moved > 1000);
}
