// SPDX-License-Identifier: MIT
// A balance that is let begin ends, however full the volume is; one that would not end is refused.
#include <unistd.h>

#include "tests/filesystem/volume_contents.h"
#include "tests/filesystem/volume_shapes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using State = BalanceStatus::State;

constexpr uint64_t kFileBytes = 8 * kMiB;

Status plan_only(Filesystem& fs, const BalanceOptions& options)
{
    BalancePlan plan;
    std::string why;
    const Status status = fs.committer.balance.plan(options, plan, why);
    CHECK(status.ok() == why.empty());
    return status;
}

std::string name_of(uint32_t file)
{
    return "file" + std::to_string(file);
}

// Files until it would be refused, less one. How many are left.
uint32_t fill_as_far_as_it_fits(Filesystem& fs, const BalanceOptions& options,
                                const std::vector<std::byte>& content)
{
    uint32_t files = 0;
    do {
        REQUIRE(files < 100);
        write_file(fs, name_of(files++), content);
        REQUIRE(fs.step(true).ok());
    } while (plan_only(fs, options).ok());
    CHECK(plan_only(fs, options).err() == Err::kNoSpace);
    REQUIRE(fs.names.unlink(kRoot, name_of(--files)).ok());
    while (!plan_only(fs, options).ok()) {
        REQUIRE(files > 0);
        REQUIRE(fs.names.unlink(kRoot, name_of(--files)).ok());
        for (int commit = 0; commit < 4; ++commit)  // slots come back
            REQUIRE(fs.step(true).ok());
    }
    return files;
}

// Nodes: folders whose files have attributes, and nothing else.
void fill_with_nodes(Filesystem& fs, uint32_t attribute_mib)
{
    Prng prng(seed());
    for (uint32_t i = 0; i < attribute_mib * 17; ++i) {
        const Result<Attributes> made =
            fs.names.make_node(kRoot, "nodes" + std::to_string(i), S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        REQUIRE(fs.names.set_xattr(made->inode, "user.a", random_content(prng, 60000), 0).ok());
        fs.names.forget(made->inode, 1);
        if (i % 64 == 0)
            REQUIRE(fs.step(true).ok());
    }
}

void require_end(const VolumeShape& shape, const BalanceOptions& options, uint32_t files_min,
                 uint32_t attribute_mib = 0)
{
    CAPTURE(find_profile(shape.data_profile)->name);
    CAPTURE(find_profile(options.profiles.data)->name);
    CAPTURE(options.member.value);
    SimVolume volume(shape);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    fill_with_nodes(fs, attribute_mib);
    Prng prng(seed());
    const std::vector<std::byte> content = random_content(prng, kFileBytes);
    const uint32_t files = fill_as_far_as_it_fits(fs, options, content);
    CHECK(files >= files_min);
    REQUIRE(start_balance(fs, options).ok());
    const BalanceStatus status = finish(fs);
    CHECK(status.state == State::kFinished);
    CHECK(status.groups_stuck == 0);
    for (uint32_t file = 0; file < files; ++file)
        require_content(fs, find_file(fs, name_of(file)), content);
    REQUIRE(volume.unmount().ok());
    const bool removed = options.member.value != 0 && options.shrink_bytes == 0;
    require_clean(volume, removed ? std::vector{options.member.value - 1} : std::vector<uint32_t>());
}

BalanceOptions conversion(ProfileId data)
{
    return {.profiles = {data, ProfileId::kRaid1c3}, .content = kAllContent, .convert = true, .force = true};
}

VolumeShape four_of(ProfileId data)
{
    return {4, kMemberBytes, data, ProfileId::kRaid1c3, 16 * kKiB};
}

}  // namespace

TEST_CASE("balance: one that is let begin on a volume as full as may be ends")
{
    require_end(four_of(ProfileId::kRaid5), conversion(ProfileId::kRaid6), 20);
    require_end(four_of(ProfileId::kRaid5), conversion(ProfileId::kRaid1c3), 12);
    require_end(four_of(ProfileId::kRaid1c3), conversion(ProfileId::kRaid5), 15);
    require_end(four_of(ProfileId::kRaid0), conversion(ProfileId::kRaid10), 20);
}

TEST_CASE("balance: nodes that become wider count")
{
    VolumeShape shape = four_of(ProfileId::kRaid5);
    shape.metadata_profile = ProfileId::kRaid1;
    require_end(shape, conversion(ProfileId::kRaid6), 12, 30);
    require_end(shape, conversion(ProfileId::kRaid1), 12, 30);
}

TEST_CASE("balance: large chunks take no room of their own")
{
    VolumeShape shape = four_of(ProfileId::kRaid5);
    shape.chunk_bytes = kMiB;
    SimVolume volume(shape);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const std::vector<std::byte> content = random_content(prng, kFileBytes);
    uint32_t files = 0;
    while (fs.info().available_bytes > 80 * kMiB) {
        write_file(fs, name_of(files++), content);
        REQUIRE(fs.step(true).ok());
    }
    CHECK(files > 30);
    REQUIRE(start_balance(fs, {.profiles = {ProfileId::kRaid5, ProfileId::kRaid1c3}, .content = kGroupData})
                .ok());
    CHECK(finish(fs).state == State::kFinished);
    CHECK(fs.info().available_bytes > 70 * kMiB);
    for (uint32_t file = 0; file < files; ++file)
        require_content(fs, find_file(fs, name_of(file)), content);
}

TEST_CASE("balance: it begins once as much is removed as a refusal says")
{
    SimVolume volume(four_of(ProfileId::kRaid5));
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const std::vector<std::byte> content = random_content(prng, kFileBytes);
    uint32_t files = 0;
    while (fs.info().available_bytes > 180 * kMiB) {
        write_file(fs, name_of(files++), content);
        REQUIRE(fs.step(true).ok());
    }
    const BalanceOptions options = conversion(ProfileId::kRaid1c3);
    BalancePlan plan;
    std::string why;
    REQUIRE(fs.committer.balance.plan(options, plan, why).err() == Err::kNoSpace);
    double lacking = 0;
    const size_t at = why.find("remove files of ");
    REQUIRE_MESSAGE(at != std::string::npos, why);
    REQUIRE(sscanf(why.c_str() + at, "remove files of %lfMiB", &lacking) == 1);
    CHECK(lacking > 20);
    uint32_t removed = 0;
    for (; removed * 8 < lacking; ++removed)
        REQUIRE(fs.names.unlink(kRoot, name_of(removed * 2)).ok());  // everywhere
    for (int commit = 0; commit < 4; ++commit)
        REQUIRE(fs.step(true).ok());
    REQUIRE(start_balance(fs, options).ok());
    CHECK(finish(fs).state == State::kFinished);
    CHECK(removed + 3 < files / 2);
}

TEST_CASE("balance: a member is emptied of as much as the others are said to take")
{
    const VolumeShape shape{4, kMemberBytes, ProfileId::kRaid1c3, ProfileId::kRaid1, 16 * kKiB};
    const VolumeProfiles profiles{shape.data_profile, shape.metadata_profile};
    require_end(shape, {.profiles = profiles, .content = kAllContent, .member = {4}}, 10);
    require_end(
        shape, {.profiles = profiles, .content = kAllContent, .member = {4}, .shrink_bytes = 100 * kMiB}, 13);
}

TEST_CASE("balance: groups of too many present members are not promised those that are away")
{
    SimVolume volume({3, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1c3, 16 * kKiB});
    make_and_mount(volume);
    Prng prng(seed());
    fill(volume.fs(), prng, 5 * kMiB);
    REQUIRE(volume.unmount().ok());
    mount(volume, degraded_options(), {2});
    const VolumeProfiles profiles{ProfileId::kRaid5, ProfileId::kRaid1c3};
    std::string why;
    const BalanceOptions all{.profiles = profiles, .content = kAllContent};
    CHECK(volume.fs().committer.balance.start(all, why).err() == Err::kNoSpace);
    // Of two a group of raid5 can be made.
    REQUIRE(start_balance(volume.fs(), {.profiles = profiles, .content = kGroupData}).ok());
    CHECK(finish(volume.fs()).state == State::kFinished);
}

TEST_CASE("balance: the time that it waits for room is none that it ran")
{
    SimVolume volume(four_of(ProfileId::kRaid5));
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const BalanceOptions options = conversion(ProfileId::kRaid6);
    const uint32_t files = fill_as_far_as_it_fits(fs, options, random_content(prng, kFileBytes));
    REQUIRE(start_balance(fs, options).ok());
    std::string why;
    REQUIRE_MESSAGE(fs.committer.offline_member({4}, why).ok(), why);
    Balance& balance = fs.committer.balance;
    const auto step = [&] {
        if (fs.balance_step() == CleanProgress::kNeedsCommit)
            REQUIRE(fs.step(true).ok());
    };
    for (int count = 0; count < 20000 && !balance.status().waits_for_room; ++count)
        step();
    const BalanceStatus waits = balance.status();
    REQUIRE(waits.waits_for_room);
    for (int count = 0; count < 5; ++count) {
        usleep(40000);
        step();
    }
    CHECK(balance.status().waits_for_room);
    CHECK(balance.status().run_ms == waits.run_ms);
    for (uint32_t file = 0; file < files; ++file)
        REQUIRE(fs.names.unlink(kRoot, name_of(file)).ok());
    REQUIRE(fs.step(true).ok());
    const BalanceStatus ended = finish(fs);
    CHECK(ended.state == State::kFinished);
    CHECK_FALSE(ended.waits_for_room);
}
