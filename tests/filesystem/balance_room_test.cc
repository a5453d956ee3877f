// SPDX-License-Identifier: MIT
// A balance that is let begin ends, however full the volume is; one that would not end is refused.
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

void require_end(const VolumeShape& shape, const BalanceOptions& options, uint32_t files_min)
{
    CAPTURE(find_profile(shape.data_profile)->name);
    CAPTURE(find_profile(options.profiles.data)->name);
    CAPTURE(options.member.value);
    SimVolume volume(shape);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
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
