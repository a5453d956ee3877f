// SPDX-License-Identifier: MIT
// Operations on a volume cross each other, each in threads of its own as in the daemon: conversions, members
// that are added, removed, made smaller and larger, the replacement of members, scrubs, members that leave
// and come back, a spare that takes the place of one that fails, the cleaner that empties groups for a
// balance; beside writers, until all have ended, or until power fails. COWRAID_ROUNDS: how often (3).
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "base/clock.h"
#include "device/superblock_store.h"
#include "tests/filesystem/volume_contents.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kCrossedBytes = 384 * kMiB;
constexpr VolumeShape kCrossedShape{5, kCrossedBytes, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * kKiB};
constexpr uint32_t kSuccessors = 3;  // devices that members are replaced by
constexpr uint32_t kAdditions = 3;  // and that become members
constexpr uint64_t kCrossedBlocks = 512;  // of each file
constexpr uint32_t kCrossedWriters = 2;
constexpr uint64_t kCrossedMs = 4000;
constexpr uint64_t kCrossedMsMax = 120000;
constexpr uint64_t kSettleMs = 120'000;

std::vector<std::byte> versioned_block(uint64_t file, uint64_t block, uint64_t version)
{
    std::vector<std::byte> content(kBlockBytes);
    Prng prng(file * 1'000'003 + block * 7919 + version * 104'729);
    prng.fill(content.data(), content.size());
    std::memcpy(content.data(), &version, sizeof version);
    return content;
}

// A file of which every block holds one of the versions since the last fsync.
class VersionedFile {
public:
    VersionedFile(Filesystem& fs, uint64_t number, uint64_t random)
        : fs_(fs), number_(number), prng_(random), latest_(kCrossedBlocks, 0), safe_(kCrossedBlocks, 0)
    {
        const Result<Attributes> made = fs.names.make_node(kRoot, name(), S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        inode_ = made->inode;
        for (uint64_t block = 0; block < kCrossedBlocks; ++block)
            REQUIRE(
                fs.files.write(inode_, block * kBlockBytes, versioned_block(number, block, 0), {}, {}).ok());
    }
    [[nodiscard]] std::string name() const { return "versions" + std::to_string(number_); }
    [[nodiscard]] uint64_t versions() const { return version_; }

    // False: the volume takes no more.
    bool step()
    {
        const uint64_t count = prng_.between(1, 24);
        const uint64_t first = prng_.below(kCrossedBlocks - count);
        ++version_;
        std::vector<std::byte> content;
        for (uint64_t block = first; block < first + count; ++block) {
            latest_[block] = version_;
            const std::vector<std::byte> piece = versioned_block(number_, block, version_);
            content.insert(content.end(), piece.begin(), piece.end());
        }
        if (!fs_.files.write(inode_, first * kBlockBytes, content, {}, {}).ok())
            return false;
        if (!prng_.chance(1, 5))
            return true;
        if (!fs_.committer.fsync(inode_, Committer::SyncWhat::kAll).ok())
            return false;
        safe_ = latest_;
        return true;
    }

    // Blocks that hold what they must not. `exact`: nothing but what was written last.
    [[nodiscard]] uint64_t wrong_blocks(Filesystem& fs, bool exact) const
    {
        std::vector<std::byte> content(kCrossedBlocks * kBlockBytes);
        const Result<size_t> bytes = fs.files.read(find_file(fs, name()), 0, content);
        REQUIRE_MESSAGE(bytes.ok(), err_text(bytes.err()));
        REQUIRE(*bytes == content.size());
        uint64_t wrong = 0;
        for (uint64_t block = 0; block < kCrossedBlocks; ++block) {
            const std::byte* const at = content.data() + block * kBlockBytes;
            uint64_t version;
            std::memcpy(&version, at, sizeof version);
            const std::vector<std::byte> wanted = versioned_block(number_, block, version);
            const bool good = version >= (exact ? latest_ : safe_)[block] && version <= latest_[block] &&
                              std::memcmp(at, wanted.data(), kBlockBytes) == 0;
            wrong += good ? 0 : 1;
        }
        return wrong;
    }

private:
    Filesystem& fs_;
    const uint64_t number_;
    Prng prng_;
    InodeNumber inode_;
    uint64_t version_ = 0;
    std::vector<uint64_t> latest_, safe_;
};

// What the threads share.
struct Crossing {
    SimVolume& volume;
    Filesystem& fs;
    uint64_t random;
    std::atomic<bool> ending{false};
    std::atomic<uint32_t> balances{0}, replacements{0}, scrubs{0}, departures{0}, returns{0};
    std::atomic<uint32_t> additions{0}, removals{0}, shrinkings{0}, growths{0};

    [[nodiscard]] bool ends() const { return ending.load() || !volume.power().on(); }
    [[nodiscard]] MemberId some_member(Prng& prng) const
    {
        const std::vector<MemberRecord> table = fs.volume->member_table();
        return table[prng.below(table.size())].id;
    }
};

void rest(Prng& prng, uint64_t ms_max)
{
    usleep(static_cast<useconds_t>(prng.between(1, ms_max * 1000)));
}

struct CrossingWriter {
    Crossing* crossing;
    VersionedFile* file;
    bool stopped = false;

    static void* run(void* self)
    {
        auto& writer = *static_cast<CrossingWriter*>(self);
        while (!writer.crossing->ends() && !writer.stopped) {
            writer.stopped = !writer.file->step();
            usleep(1000);
        }
        return nullptr;
    }
};

// One balance at a time: to another profile and back, off a member that goes, or off the end of one.
bool start_balance_by_chance(Crossing& crossing, Prng& prng, bool& narrow)
{
    Balance& balance = crossing.fs.committer.balance;
    const VolumeProfiles now = crossing.fs.volume->profiles();
    std::string why;
    if (prng.chance(1, 3) && crossing.fs.volume->member_table().size() > kCrossedShape.member_count) {
        const bool began =
            balance
                .start({.profiles = now, .content = kAllContent, .member = crossing.some_member(prng)}, why)
                .ok();
        crossing.removals += began ? 1 : 0;
        return began;
    }
    if (prng.chance(1, 3)) {
        const uint64_t size = kCrossedBytes - kMinSlotBytes * prng.between(2, 8);
        const bool began = balance
                               .start({.profiles = now,
                                       .content = kAllContent,
                                       .member = crossing.some_member(prng),
                                       .shrink_bytes = size},
                                      why)
                               .ok();
        crossing.shrinkings += began ? 1 : 0;
        return began;
    }
    const VolumeProfiles profiles = narrow ? VolumeProfiles{ProfileId::kRaid5, ProfileId::kRaid1}
                                           : VolumeProfiles{ProfileId::kRaid6, ProfileId::kRaid1c3};
    const bool began =
        balance.start({.profiles = profiles, .content = kAllContent, .convert = true, .force = true}, why)
            .ok();
    crossing.balances += began ? 1 : 0;
    narrow = narrow != began;
    return began;
}

void* balance_again_and_again(void* argument)
{
    auto& crossing = *static_cast<Crossing*>(argument);
    Prng prng(crossing.random + 1);
    Balance& balance = crossing.fs.committer.balance;
    std::string why;
    for (bool narrow = true; !crossing.ends(); rest(prng, 60)) {
        if (start_balance_by_chance(crossing, prng, narrow))
            continue;
        if (prng.chance(1, 8)) {
            balance.pause(why).ignore();
            rest(prng, 20);
            balance.resume(why).ignore();
        } else if (prng.chance(1, 16)) {
            balance.cancel(why).ignore();
        }
    }
    return nullptr;
}

// Members come, and those that were made smaller get their room back.
void* add_and_grow(void* argument)
{
    auto& crossing = *static_cast<Crossing*>(argument);
    Prng prng(crossing.random + 5);
    std::string why;
    for (uint32_t used = 0; !crossing.ends(); rest(prng, 100)) {
        if (used < kAdditions && prng.chance(1, 3)) {
            const uint32_t device = crossing.volume.shape().member_count + 1 + kSuccessors + used++;
            if (crossing.fs.committer.add_member(crossing.volume.borrow_one(device), why).ok())
                ++crossing.additions;
        }
        if (crossing.fs.committer.grow_member(crossing.some_member(prng), why).ok())
            ++crossing.growths;
    }
    return nullptr;
}

void* replace_again_and_again(void* argument)
{
    auto& crossing = *static_cast<Crossing*>(argument);
    Prng prng(crossing.random + 2);
    std::string why;
    for (uint32_t used = 0; !crossing.ends(); rest(prng, 40)) {
        // A refusal costs the device.
        if (used < kSuccessors && !crossing.fs.committer.replace.status().active()) {
            const MemberId source = crossing.some_member(prng);
            const uint32_t device = crossing.volume.shape().member_count + 1 + used++;
            if (crossing.fs.committer.replace_member(source, crossing.volume.borrow_one(device), why).ok())
                ++crossing.replacements;
        } else if (prng.chance(1, 40)) {
            crossing.fs.committer.replace.cancel(why).ignore();
        }
    }
    return nullptr;
}

void* scrub_again_and_again(void* argument)
{
    auto& crossing = *static_cast<Crossing*>(argument);
    Prng prng(crossing.random + 3);
    for (; !crossing.ends(); rest(prng, 50)) {
        if (crossing.fs.committer.scrub.start({}).ok())
            ++crossing.scrubs;
        else if (prng.chance(1, 20))
            crossing.fs.committer.scrub.cancel().ignore();
    }
    return nullptr;
}

void* leave_and_return(void* argument)
{
    auto& crossing = *static_cast<Crossing*>(argument);
    Prng prng(crossing.random + 4);
    std::string why;
    for (; !crossing.ends(); rest(prng, 80)) {
        const MemberId member = crossing.some_member(prng);
        if (crossing.fs.committer.offline_member(member, why).ok())
            ++crossing.departures;
        rest(prng, 80);
        for (const MemberId id : crossing.fs.volume->missing_members())
            if (crossing.fs.committer.online_member(id, nullptr, why).ok())
                ++crossing.returns;
    }
    return nullptr;
}

// Until nothing is under way any more, and nobody lacks anything.
bool settles(Filesystem& fs)
{
    std::string why;
    const uint64_t begin = monotonic_ms();
    while (monotonic_ms() < begin + kSettleMs && fs.store.service.check_writable().ok()) {
        const VolumeInfo info = fs.info();
        const bool whole =
            std::all_of(info.members.begin(), info.members.end(), [](const MemberInfo& member) {
                return member.in_service() && member.stale_groups == 0;
            });
        if (whole && !fs.committer.replace.status().active() && !fs.committer.balance.status().active())
            return true;
        if (fs.committer.balance.status().state == BalanceStatus::State::kPaused)
            fs.committer.balance.resume(why).ignore();
        for (const MemberId id : fs.volume->missing_members())
            fs.committer.online_member(id, nullptr, why).status().ignore();
        usleep(20000);
    }
    const VolumeInfo info = fs.info();
    const ReplaceStatus replace = fs.committer.replace.status();
    const BalanceStatus balance = fs.committer.balance.status();
    MESSAGE("read-only: " << info.read_only_reason << "; replace " << static_cast<int>(replace.state) << ", "
                          << replace.groups_copied << " of " << replace.groups_total << "; balance "
                          << static_cast<int>(balance.state) << ", " << balance.groups_left << " groups of "
                          << balance.bytes_left << " bytes left, waits for room: " << balance.waits_for_room);
    for (const MemberInfo& member : info.members)
        MESSAGE("member " << member.id.value << ": " << member.path << ", " << member.reason << ", lacks "
                          << member.stale_groups);
    return false;
}

std::vector<uint32_t> blank_devices(SimVolume& volume)
{
    std::vector<uint32_t> blank;
    for (uint32_t index = 0; index < volume.member_count(); ++index)
        if (!read_rings(*volume.borrow_one(index)).ok())
            blank.push_back(index);
    return blank;
}

MountOptions threaded_options()
{
    MountOptions options;
    options.degraded = true;
    options.commit_seconds = 1;
    options.spare_seconds = 0;
    return options;
}

enum class CrossingKind : uint8_t { kToTheEnd, kMemberFails, kPowerFails };
constexpr uint64_t kCrossingKinds = 3;

// What each kind of work is to have begun, or done; slow machines take their time.
bool crossed(const Crossing& crossing, CrossingKind kind)
{
    return (kind == CrossingKind::kMemberFails || (crossing.departures > 0 && crossing.returns > 0)) &&
           crossing.balances > 0 && crossing.replacements > 0 && crossing.scrubs > 0 &&
           crossing.additions > 0 && crossing.removals > 0 && crossing.shrinkings > 0 &&
           crossing.growths > 0 && crossing.fs.info().emptied_groups > 0;
}

std::vector<void* (*)(void*)> workers_of(CrossingKind kind)
{
    std::vector<void* (*)(void*)> workers{balance_again_and_again, add_and_grow, replace_again_and_again,
                                          scrub_again_and_again};
    // With a member away raid5 stops when another one fails.
    if (kind != CrossingKind::kMemberFails)
        workers.push_back(leave_and_return);
    return workers;
}

void run_crossing(Crossing& crossing, std::deque<VersionedFile>& files, CrossingKind kind)
{
    std::vector<CrossingWriter> writers;
    for (VersionedFile& file : files)
        writers.push_back({&crossing, &file});
    std::vector<pthread_t> threads;
    const auto begin = [&](void* (*run)(void*), void* argument) {
        threads.emplace_back();
        REQUIRE(pthread_create(&threads.back(), nullptr, run, argument) == 0);
    };
    for (CrossingWriter& writer : writers)
        begin(CrossingWriter::run, &writer);
    for (void* (*const run)(void*) : workers_of(kind))
        begin(run, &crossing);
    const uint64_t started = monotonic_ms();
    bool fails = kind == CrossingKind::kMemberFails;
    while ((monotonic_ms() < started + kCrossedMs || !crossed(crossing, kind)) &&
           monotonic_ms() < started + kCrossedMsMax && crossing.volume.power().on()) {
        usleep(10000);
        if (fails && monotonic_ms() > started + kCrossedMs / 3) {
            crossing.volume.cable(0).add_rule({.action = FaultAction::kGone});
            fails = false;
        }
    }
    crossing.ending.store(true);
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    for (const CrossingWriter& writer : writers)
        CHECK((!writer.stopped || !crossing.volume.power().on()));
    CHECK((crossed(crossing, kind) || kind == CrossingKind::kPowerFails));
    MESSAGE("balances " << crossing.balances.load() << ", replacements " << crossing.replacements.load()
                        << ", scrubs " << crossing.scrubs.load() << ", departures "
                        << crossing.departures.load() << ", returns " << crossing.returns.load()
                        << ", additions " << crossing.additions.load() << ", removals "
                        << crossing.removals.load() << ", shrinkings " << crossing.shrinkings.load()
                        << ", growths " << crossing.growths.load() << ", emptied groups "
                        << crossing.fs.info().emptied_groups);
}

void cross(CrossingKind kind, uint64_t random)
{
    Prng prng(random);
    SimVolume volume(kCrossedShape);
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    const uint32_t spare = volume.add_device(volume.shape().member_bytes);
    for (uint32_t device = 0; device < kSuccessors + kAdditions; ++device)
        volume.add_device(volume.shape().member_bytes);
    mount(volume, threaded_options(), blank_devices(volume));
    std::deque<VersionedFile> files;
    for (uint32_t number = 0; number < kCrossedWriters; ++number)
        files.emplace_back(volume.fs(), number, random * 10 + number);
    REQUIRE(volume.fs().committer.sync().ok());
    if (kind == CrossingKind::kMemberFails)
        REQUIRE(volume.fs().committer.add_spare(volume.borrow_one(spare), why).ok());
    if (kind == CrossingKind::kPowerFails)
        volume.power().arm(prng.between(500, 20000));
    {
        Crossing crossing{.volume = volume, .fs = volume.fs(), .random = random};
        run_crossing(crossing, files, kind);
    }
    const bool exact = kind != CrossingKind::kPowerFails;
    if (!exact) {
        volume.kill();
        volume.power_cut(prng);
        volume.power().turn_on();
        mount(volume, threaded_options(), blank_devices(volume));
    }
    for (const VersionedFile& file : files) {
        CHECK(file.versions() > 10);
        CHECK(file.wrong_blocks(volume.fs(), exact) == 0);
    }
    REQUIRE(settles(volume.fs()));
    for (const VersionedFile& file : files)
        CHECK(file.wrong_blocks(volume.fs(), exact) == 0);
    REQUIRE(volume.unmount().ok());
    std::vector<uint32_t> absent = blank_devices(volume);
    const bool failed = kind == CrossingKind::kMemberFails;
    if (failed && std::find(absent.begin(), absent.end(), 0u) == absent.end())
        absent.push_back(0);
    require_clean(volume, absent);
}

}  // namespace

TEST_CASE("crossing threads: whatever is done to members and groups, all at once, beside writers")
{
    const char* const rounds = getenv("COWRAID_ROUNDS");
    for (uint64_t round = 0; round < (rounds != nullptr ? strtoull(rounds, nullptr, 0) : kCrossingKinds);
         ++round) {
        CAPTURE(seed());
        CAPTURE(round);
        cross(static_cast<CrossingKind>(round % kCrossingKinds), seed() + round);
    }
}
