// SPDX-License-Identifier: MIT
// Metadata under parity, where a node takes only rows that hold nothing: files come and go until there is no
// more room. What such a volume takes then is compared with what it takes when nothing ever goes.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/filesystem/check_content.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr size_t kValueBytes = 6000;

// A volume of small files that are nothing but metadata, each with a value of its own.
class ValueFiles {
public:
    explicit ValueFiles(const VolumeShape& shape) : volume_(shape) { make_and_mount(volume_); }

    [[nodiscard]] uint64_t live() const { return live_.size(); }
    // Of nodes that files need.
    [[nodiscard]] uint64_t used_bytes()
    {
        uint64_t used = 0;
        for (const SpaceInfo& space : volume_.fs().info().spaces)
            used += (space.content & kGroupMetadata) != 0 ? space.used_bytes : 0;
        return used;
    }

    // Nodes that commits wrote so far, of all trees.
    [[nodiscard]] uint64_t written_nodes() { return volume_.fs().info().data_bytes_written / kNodeBytes; }

    // False: no space.
    bool add()
    {
        const uint64_t number = next_++;
        const Result<Attributes> made =
            volume_.fs().names.make_node(kRoot, name_of(number), S_IFREG | 0644, 0, {});
        Status status = made.status();
        if (status.ok()) {
            status = volume_.fs().names.set_xattr(made->inode, "user.x", value_of(number), 0);
            volume_.fs().names.forget(made->inode, 1);
            if (!status.ok())
                REQUIRE(volume_.fs().names.unlink(kRoot, name_of(number)).ok());
        }
        if (status.ok())
            live_.push_back(number);
        else
            REQUIRE_MESSAGE(status.err() == Err::kNoSpace, err_text(status.err()));
        commit_sometimes();
        return status.ok();
    }
    void remove(size_t index)
    {
        const Status status = volume_.fs().names.unlink(kRoot, name_of(live_[index]));
        REQUIRE_MESSAGE(status.ok(), err_text(status.err()));
        live_[index] = live_.back();
        live_.pop_back();
        commit_sometimes();
    }
    // Metadata only, from the profile it has.
    void convert(ProfileId to)
    {
        std::string why;
        const BalanceOptions options{.profiles = {volume_.fs().volume->profiles().data, to},
                                     .content = kGroupMetadata | kGroupSystem,
                                     .convert = true,
                                     .force = true};
        const Status status = volume_.fs().committer.balance.start(options, why);
        REQUIRE_MESSAGE(status.ok(), why);
    }
    void balance(uint64_t steps)
    {
        for (; steps > 0; --steps)
            if (volume_.fs().balance_step() == CleanProgress::kNeedsCommit)
                commit();
    }
    // Groups whose content is that, and nothing else.
    [[nodiscard]] uint64_t groups_for(uint32_t content)
    {
        uint64_t count = 0;
        for (const Ref<const ArrayGroup>& group : volume_.fs().volume->array().groups())
            count += group->record.content == content ? 1 : 0;
        return count;
    }
    // So much of what data could have, in percent, is no room for nodes.
    void reserve_data(uint64_t percent)
    {
        Filesystem& fs = volume_.fs();
        const Result<Attributes> made = fs.names.make_node(kRoot, "reserved", S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        const uint64_t bytes = fs.statistics().available_blocks * kBlockBytes / 100 * percent;
        REQUIRE(fs.files.allocate_range(made->inode, 0, 0, bytes).ok());
        fs.names.forget(made->inode, 1);
        commit();
    }
    [[nodiscard]] Balance& balance_control() { return volume_.fs().committer.balance; }
    void kill_and_mount()
    {
        commit();
        volume_.kill();
        mount(volume_, manual_options());
    }
    void mount_without(uint32_t member)
    {
        REQUIRE(volume_.unmount().ok());
        MountOptions options = manual_options();
        options.degraded = true;
        mount(volume_, options, {member});
    }
    void commit()
    {
        const Status status = volume_.fs().step(true);
        REQUIRE_MESSAGE(status.ok(), err_text(status.err()));
    }
    void require_values()
    {
        for (const uint64_t number : live_) {
            const Result<Attributes> found = volume_.fs().names.lookup(kRoot, name_of(number));
            REQUIRE_MESSAGE(found.ok(), err_text(found.err()));
            const Result<std::vector<std::byte>> value = volume_.fs().names.get_xattr(found->inode, "user.x");
            REQUIRE(value.ok());
            REQUIRE(*value == value_of(number));
            volume_.fs().names.forget(found->inode, 1);
        }
    }
    void unmount_and_check()
    {
        REQUIRE(volume_.unmount().ok());
        REQUIRE_CLEAN(Image::copy_of(volume_).check());
    }

private:
    static std::string name_of(uint64_t number) { return "f" + std::to_string(number); }
    static std::vector<std::byte> value_of(uint64_t number)
    {
        std::vector<std::byte> value(kValueBytes);
        Prng(number + 1).fill(value.data(), value.size());
        return value;
    }
    void commit_sometimes()
    {
        if (++operations_ % 100 == 0)
            commit();
    }

    SimVolume volume_;
    std::vector<uint64_t> live_;
    uint64_t next_ = 0;
    uint64_t operations_ = 0;
};

// Changes of a full volume; more of them with COWRAID_LONG.
uint64_t rounds_when_full()
{
    return std::getenv("COWRAID_LONG") != nullptr ? 500 : 150;
}

// What a volume takes when none of its files ever goes.
struct Fill {
    uint64_t used_bytes, files;
};

Fill fill_without_churn(const VolumeShape& shape, uint64_t reserved_percent = 0)
{
    ValueFiles files(shape);
    if (reserved_percent > 0)
        files.reserve_data(reserved_percent);
    while (files.add()) { }
    return {files.used_bytes(), files.live()};
}

enum class Members : uint8_t { kAll, kOneAwayWhenFull };

// Fills a volume in which files also go until there is no room, keeps on changing it, and empties it.
void check_churn(const VolumeShape& shape, Members members = Members::kAll)
{
    const Fill most = fill_without_churn(shape);
    ValueFiles files(shape);
    Prng prng(seed());
    uint64_t removed = 0;
    bool room = true;
    while (room) {
        room = files.add();
        for (; room && files.live() > most.files / 2 && prng.chance(1, 3); ++removed)
            files.remove(prng.below(files.live()));
    }
    MESSAGE((files.used_bytes() / kKiB), " of ", (most.used_bytes / kKiB), " KiB of nodes, ", files.live(),
            " of ", most.files, " files, ", removed, " removed");
    CHECK(removed > most.files / 10);
    CHECK(files.used_bytes() * 10 >= most.used_bytes * 9);
    if (members == Members::kOneAwayWhenFull)
        files.mount_without(1);
    // Full, and still changing.
    for (uint64_t round = 0; round < rounds_when_full(); ++round) {
        files.remove(prng.below(files.live()));
        files.add();
    }
    CHECK(files.used_bytes() * 10 >= most.used_bytes * (members == Members::kAll ? 8 : 5));
    files.require_values();
    for (uint64_t count = files.live() / 4 * 3; count > 0; --count)
        files.remove(prng.below(files.live()));
    files.require_values();
    if (members == Members::kAll)
        files.unmount_and_check();
}

// Nodes that a commit of one file that goes and one that comes writes on average, in a volume where files
// came and went until it was full to `percent`.
uint64_t nodes_per_commit(const VolumeShape& shape, const Fill& most, uint64_t percent)
{
    constexpr uint64_t kCommits = 64;
    ValueFiles files(shape);
    Prng prng(seed());
    while (files.used_bytes() * 100 < most.used_bytes * percent) {
        REQUIRE(files.add());
        if (files.live() > most.files / 3 && prng.chance(1, 3))
            files.remove(prng.below(files.live()));
    }
    files.commit();
    const uint64_t before = files.written_nodes();
    for (uint64_t count = 0; count < kCommits; ++count) {
        files.remove(prng.below(files.live()));
        REQUIRE(files.add());
        files.commit();
    }
    return (files.written_nodes() - before) / kCommits;
}

constexpr uint64_t kReservedPercent = 70;

enum class Then : uint8_t { kGoesOn, kPaused, kCancelled, kKilled };

// Groups of all kinds: for nodes of files alone, of system trees alone, of both.
void check_mixed(const VolumeShape& shape, ProfileId to, const Fill& most, Then then, uint32_t until_none)
{
    CAPTURE(static_cast<int>(then));
    CAPTURE(until_none);
    ValueFiles files(shape);
    files.reserve_data(kReservedPercent);
    Prng prng(seed());
    while (files.live() * 3 < most.files)
        REQUIRE(files.add());
    files.commit();
    files.convert(to);
    files.balance(4);
    const auto runs = [&] {
        return files.balance_control().status().state == BalanceStatus::State::kRunning;
    };
    // To parity groups of that kind stay; then it goes on until few of the old ones are left.
    for (int step = 0; step < 1000 && files.groups_for(until_none) > 0; ++step) {
        if (files.groups_for(kGroupMetadata | kGroupSystem) == 1)
            break;
        files.balance(1);
    }
    REQUIRE(runs());
    MESSAGE(files.groups_for(kGroupMetadata), " for files, ", files.groups_for(kGroupSystem), " for system, ",
            files.groups_for(kGroupMetadata | kGroupSystem), " for both");
    std::string why;
    if (then == Then::kPaused)
        REQUIRE(files.balance_control().pause(why).ok());
    if (then == Then::kCancelled)
        REQUIRE(files.balance_control().cancel(why).ok());
    if (then == Then::kKilled)
        files.kill_and_mount();
    while (files.live() > most.files / 4)
        files.remove(prng.below(files.live()));
    while (files.add())
        if (prng.chance(1, 20))
            files.balance(1);
    MESSAGE(files.live(), " of ", most.files, " files");
    // Where the last group of both kinds lies by chance decides whether another wide group fits beside it: in
    // three of a hundred volumes none does, and the balance waits.
    CHECK(files.live() * 10 >= most.files * 6);
    for (uint64_t round = 0; round < rounds_when_full(); ++round) {
        files.remove(prng.below(files.live()));
        files.add();
    }
    for (uint64_t count = files.live() / 4 * 3; count > 0; --count)
        files.remove(prng.below(files.live()));
    files.require_values();
    files.unmount_and_check();
}

// Two of the combinations, `odd` ones or others; all of them with COWRAID_LONG.
void check_mixed_profiles(const VolumeShape& from, const VolumeShape& to, bool odd)
{
    const bool all = std::getenv("COWRAID_LONG") != nullptr;
    const Fill before = fill_without_churn(from, kReservedPercent);
    const Fill after = fill_without_churn(to, kReservedPercent);
    const Fill& most = before.files < after.files ? before : after;
    for (const Then then : {Then::kGoesOn, Then::kPaused, Then::kCancelled, Then::kKilled})
        for (const uint32_t until_none : {0U, kGroupSystem}) {
            const bool first = until_none == 0;
            if (all || (odd ? (then == Then::kPaused || then == Then::kKilled) && !first
                            : (then == Then::kGoesOn || then == Then::kCancelled) && first))
                check_mixed(from, to.metadata_profile, most, then, until_none);
        }
}

constexpr VolumeShape kMirrored{4, 80 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * 1024};
constexpr VolumeShape kRaid5OfFour{4, 80 * kMiB, ProfileId::kRaid5, ProfileId::kRaid5, 64 * 1024};
constexpr VolumeShape kRaid6OfFive{5, 80 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6, 8 * 1024};

}  // namespace

TEST_CASE("node space: files come and go, raid5, four members")
{
    check_churn(kRaid5OfFour);
}

TEST_CASE("node space: files come and go, raid5, three members, chunks smaller than a node")
{
    check_churn({3, 80 * kMiB, ProfileId::kRaid5, ProfileId::kRaid5, 4 * 1024});
}

TEST_CASE("node space: files come and go, raid6, five members")
{
    check_churn(kRaid6OfFive);
}

TEST_CASE("node space: files come and go with a member away")
{
    check_churn(kRaid5OfFour, Members::kOneAwayWhenFull);
    check_churn(kRaid6OfFive, Members::kOneAwayWhenFull);
}

TEST_CASE("node space: files come and go, raid6, rows of seven nodes")
{
    check_churn({9, 64 * kMiB, ProfileId::kRaid5, ProfileId::kRaid6, 16 * 1024});
}

TEST_CASE("node space: files come and go while metadata leaves parity, and comes under it")
{
    constexpr VolumeShape parity{4, 224 * kMiB, ProfileId::kRaid5, ProfileId::kRaid5, 64 * 1024};
    constexpr VolumeShape mirrored{4, 224 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024};
    check_mixed_profiles(parity, mirrored, false);
    check_mixed_profiles(mirrored, parity, true);
}

// Moving nodes costs nothing where they are mirrored and where there are free rows, and little else.
TEST_CASE("node space: what a commit of one change writes")
{
    struct Row {
        const char* name;
        VolumeShape shape;
        uint64_t percent, nodes_max;
    };
    const Row rows[] = {
        {"mirrored", kMirrored, 50, 13},
        {"mirrored", kMirrored, 90, 13},
        {"raid5", kRaid5OfFour, 50, 18},
        {"raid5", kRaid5OfFour, 90, 40},
    };
    Fill most{};
    for (const Row& row : rows) {
        CAPTURE(row.name);
        CAPTURE(row.percent);
        if (row.percent == 50)
            most = fill_without_churn(row.shape);
        const uint64_t nodes = nodes_per_commit(row.shape, most, row.percent);
        MESSAGE(nodes, " nodes");
        CHECK(nodes <= row.nodes_max);
    }
}
