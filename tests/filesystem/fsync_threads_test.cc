// SPDX-License-Identifier: MIT
// Threads change files and call fsync while the commit thread commits and flushes early; then power fails.
// Every file must be as it was after some call not older than the last that was acknowledged.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <string>

#include "tests/filesystem/tree_text.h"
#include "tests/filesystem/volume_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr int kWriters = 4;
constexpr uint64_t kMaxBytes = 96 * kKiB;

using Content = std::vector<std::byte>;

struct Setting {
    VolumeShape shape;
    double join_above;
    uint64_t dirty_bytes_max;
};

const Setting kSettings[] = {
    {{4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024}, -1, 256 * kMiB},
    {{5, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024}, 0, 256 * kMiB},
    {{4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024}, 0, 64 * kKiB},
};

// One file, and what it may be after a crash: the first is the oldest.
class Writer {
public:
    Writer(Filesystem& fs, std::string name, uint64_t seed) : fs_(fs), name_(std::move(name)), prng_(seed)
    {
        const Result<Attributes> made = fs_.names.make_node(kRoot, name_, S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        inode_ = made->inode;
        history_.push_back({});
    }

    // Until an error.
    void run()
    {
        while (step()) { }
    }

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] uint64_t acknowledged() const { return acknowledged_; }
    [[nodiscard]] bool allows(const Content& content) const
    {
        return std::find(history_.begin(), history_.end(), content) != history_.end();
    }

private:
    bool step()
    {
        switch (prng_.below(10)) {
        case 0:
            return resize(prng_.below(kMaxBytes));
        case 1:
            return clear(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
        case 2:
            return clear(FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE);
        case 3:
            return replace();
        case 4:
        case 5:
        case 6:
            return fsync();
        default:
            return write(inode_, prng_.below(kMaxBytes - 20000), prng_.between(1, 20000));
        }
    }
    // The content that the next call leads to, if it is carried out.
    Content& next()
    {
        history_.push_back(history_.back());
        return history_.back();
    }
    bool write(InodeNumber inode, uint64_t offset, size_t bytes)
    {
        Content data(bytes);
        prng_.fill(data.data(), bytes);
        Content& content = next();
        content.resize(std::max<size_t>(content.size(), offset + bytes));
        std::copy(data.begin(), data.end(), content.begin() + static_cast<std::ptrdiff_t>(offset));
        return fs_.files.write(inode, offset, data, {}, {}).ok();
    }
    bool resize(uint64_t bytes)
    {
        next().resize(bytes);
        SetAttributes change;
        change.size_bytes = bytes;
        return fs_.names.set_attributes(inode_, change, {}).ok();
    }
    bool clear(int mode)
    {
        const uint64_t first = prng_.below(kMaxBytes / kBlockBytes);
        const uint64_t end = first + prng_.between(1, 8);
        Content& content = next();
        for (uint64_t at = first * kBlockBytes; at < std::min(end * kBlockBytes, content.size()); ++at)
            content[at] = {};
        return fs_.files.allocate_range(inode_, mode, first * kBlockBytes, (end - first) * kBlockBytes).ok();
    }
    // The way editors save.
    bool replace()
    {
        const std::string name = name_ + ".new";
        const Result<Attributes> made = fs_.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        if (!made.ok())
            return false;
        Content data(prng_.between(1, 20000));
        prng_.fill(data.data(), data.size());
        next() = data;
        if (!fs_.files.write(made->inode, 0, data, {}, {}).ok() ||
            !fs_.names.rename(kRoot, name, kRoot, name_, 0).ok())
            return false;
        fs_.names.forget(inode_, 1);
        inode_ = made->inode;
        return true;
    }
    bool fsync()
    {
        using What = Committer::SyncWhat;
        if (!fs_.committer.fsync(inode_, prng_.chance(1, 2) ? What::kAll : What::kData).ok())
            return false;
        history_.erase(history_.begin(), history_.end() - 1);
        ++acknowledged_;
        return true;
    }

    Filesystem& fs_;
    const std::string name_;
    Prng prng_;
    InodeNumber inode_;
    std::deque<Content> history_;
    uint64_t acknowledged_ = 0;
};

void* run_writer(void* writer)
{
    static_cast<Writer*>(writer)->run();
    return nullptr;
}

struct Committer {
    Filesystem& fs;
    PowerSupply& power;
};

// Commits at odd moments, until power fails.
void* run_committer(void* argument)
{
    const auto& committer = *static_cast<Committer*>(argument);
    Prng prng(7);
    do
        usleep(static_cast<useconds_t>(prng.between(500, 40000)));
    while (committer.power.on() && committer.fs.committer.sync().ok());
    return nullptr;
}

Content read_whole(Filesystem& fs, const std::string& name)
{
    const Result<Attributes> found = fs.names.lookup(kRoot, name);
    REQUIRE_MESSAGE(found.ok(), name);
    Content content(found->size_bytes);
    const Result<size_t> count = fs.files.read(found->inode, 0, content);
    REQUIRE_MESSAGE(count.ok(), err_text(count.err()));
    REQUIRE(*count == content.size());
    return content;
}

// Passes everything on until it is told to fail.
class FailingMember final : public BlockDevice {
public:
    FailingMember(std::unique_ptr<BlockDevice> device, const std::atomic<bool>& gone)
        : device_(std::move(device)), gone_(gone)
    {
    }
    [[nodiscard]] uint64_t size_bytes() const override { return device_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return device_->name(); }
    void perform(IoRequest& request) override
    {
        if (gone_)
            request.result = Err::kMemberGone;
        else
            device_->perform(request);
    }

private:
    std::unique_ptr<BlockDevice> device_;
    const std::atomic<bool>& gone_;
};

// The first member fails when `gone` says so.
std::unique_ptr<Filesystem> open(SimVolume& volume, const MountOptions& options,
                                 const std::atomic<bool>& gone)
{
    std::vector<std::unique_ptr<BlockDevice>> members = volume.borrow({});
    members[0] = std::make_unique<FailingMember>(std::move(members[0]), gone);
    std::string why;
    Result<Assembly> assembly = assemble(std::move(members), why);
    REQUIRE_MESSAGE(assembly.ok(), why);
    Result<std::unique_ptr<Filesystem>> fs = Filesystem::open(assembly.take(), options, why);
    REQUIRE_MESSAGE(fs.ok(), why);
    return fs.take();
}

// A file with holes between its blocks, so that there are rows to join.
void make_holes(Filesystem& fs)
{
    const Result<Attributes> made = fs.names.make_node(kRoot, "holes", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    const Content data(2 * kMiB, std::byte{1});
    REQUIRE(fs.files.write(made->inode, 0, data, {}, {}).ok());
    REQUIRE(fs.committer.sync().ok());
    for (uint64_t block = 0; block < data.size() / kBlockBytes; block += 2)
        REQUIRE(fs.files
                    .allocate_range(made->inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                    block * kBlockBytes, kBlockBytes)
                    .ok());
    REQUIRE(fs.committer.sync().ok());
}

// Until power fails. How many records were written.
uint64_t run_threads(Filesystem& fs, std::deque<Writer>& writers, PowerSupply& power,
                     std::atomic<bool>* lose_member, Prng& prng)
{
    Committer committer{fs, power};
    pthread_t threads[kWriters + 1];
    for (int i = 0; i < kWriters; ++i)
        REQUIRE(pthread_create(&threads[i], nullptr, run_writer, &writers[static_cast<size_t>(i)]) == 0);
    REQUIRE(pthread_create(&threads[kWriters], nullptr, run_committer, &committer) == 0);
    if (lose_member != nullptr) {
        usleep(static_cast<useconds_t>(prng.between(1000, 300000)));
        *lose_member = true;
    }
    for (int i = 0; i < kWriters; ++i)
        pthread_join(threads[i], nullptr);
    power.turn_off();  // they may have met the end of the space instead
    pthread_join(threads[kWriters], nullptr);
    return fs.info().fsync_records;
}

void compare(Filesystem& fs, const std::deque<Writer>& writers)
{
    for (const Writer& writer : writers) {
        CAPTURE(writer.name());
        CAPTURE(writer.acknowledged());
        CHECK(writer.allows(read_whole(fs, writer.name())));
    }
}

// Written to at once, or looked at first.
void mount_and_compare(SimVolume& volume, const std::deque<Writer>& writers, bool look_first)
{
    MountOptions options = test::manual_options();
    options.degraded = true;
    options.read_only = look_first;
    std::string why;
    REQUIRE_MESSAGE(volume.mount(options, why).ok(), why);
    compare(volume.fs(), writers);
    if (!look_first)
        return;
    REQUIRE_MESSAGE(volume.fs().committer.remount(false, why).ok(), why);
    compare(volume.fs(), writers);
}

uint64_t run_round(const Setting& setting, uint64_t seed)
{
    Prng prng(seed);
    SimVolume volume(setting.shape);
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    MountOptions options;
    options.commit_seconds = 1;
    options.join_above = setting.join_above;
    options.dirty_bytes_max = setting.dirty_bytes_max;
    std::atomic<bool> gone{false};
    std::unique_ptr<Filesystem> fs = open(volume, options, gone);
    make_holes(*fs);
    std::deque<Writer> writers;
    for (int i = 0; i < kWriters; ++i)
        writers.emplace_back(*fs, "file" + std::to_string(i), seed * 100 + static_cast<uint64_t>(i));
    REQUIRE(fs->committer.sync().ok());
    volume.power().arm(prng.between(1000, 12000));
    const bool lose_member = prng.chance(1, 3);
    CAPTURE(lose_member);
    const uint64_t records = run_threads(*fs, writers, volume.power(), lose_member ? &gone : nullptr, prng);
    fs.reset();
    volume.power_cut(prng);
    volume.power().turn_on();
    mount_and_compare(volume, writers, prng.chance(1, 2));
    REQUIRE(volume.unmount().ok());
    if (lose_member)
        return records;
    CheckReport report;
    REQUIRE_MESSAGE(volume.check(report, why).ok(), why);
    if (!report.clean())
        FAIL_CHECK(report.findings.front().kind << ": " << report.findings.front().text);
    return records;
}

}  // namespace

TEST_CASE("fsync from threads: power fails amid commits and early flushes")
{
    const char* rounds = getenv("COWRAID_ROUNDS");
    uint64_t records = 0;
    for (uint64_t round = 0; round < (rounds != nullptr ? strtoull(rounds, nullptr, 0) : 6); ++round) {
        CAPTURE(seed());
        CAPTURE(round);
        records += run_round(kSettings[round % std::size(kSettings)], seed() + round);
    }
    CHECK(records > 0);
}
