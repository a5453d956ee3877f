// SPDX-License-Identifier: MIT
// Conversions of every profile into every profile, of data and of metadata, over members of uneven size and
// beside writers. COWRAID_CONVERT_MIB says how much data each begins with.
#include <cstdlib>

#include "base/sanitizer.h"
#include "format/feature_table.h"
#include "tests/filesystem/volume_contents.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kMemberMib[] = {160, 304, 192, 224, 256};

struct Cell {
    VolumeProfiles from, to;
};

// Data over mirrored nodes, then nodes beside data under parity.
std::vector<Cell> all_cells()
{
    std::vector<Cell> cells;
    for (const Profile& from : profiles())
        for (const Profile& to : profiles())
            cells.push_back({{from.id, ProfileId::kRaid1}, {to.id, ProfileId::kRaid1}});
    for (const Profile& from : profiles())
        for (const Profile& to : profiles())
            cells.push_back({{ProfileId::kRaid5, from.id}, {ProfileId::kRaid5, to.id}});
    return cells;
}

uint64_t large_bytes()
{
    const char* const wanted = getenv("COWRAID_CONVERT_MIB");
    return wanted != nullptr ? strtoull(wanted, nullptr, 10) * kMiB : 9 * kMiB;
}

const Profile& expected_profile(const GroupRecord& group, const VolumeProfiles& profiles)
{
    if ((group.content & kGroupData) != 0)
        return *find_profile(profiles.data);
    const Profile& metadata = *find_profile(profiles.metadata);
    return (group.content & kGroupMetadata) != 0 ? metadata : Volume::system_profile_of(metadata);
}

void require_profiles(Filesystem& fs, const VolumeProfiles& profiles)
{
    CHECK(fs.volume->profiles().data == profiles.data);
    CHECK(fs.volume->profiles().metadata == profiles.metadata);
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups())
        CHECK(group->record.profile == expected_profile(group->record, profiles).id);
}

// Earlier versions must not look for chunks of these profiles.
void require_feature(Filesystem& fs, const VolumeProfiles& profiles)
{
    const auto striped = [](ProfileId id) {
        return id == ProfileId::kRaid0 || id == ProfileId::kRaid10;
    };
    const bool set = (fs.volume->superblock().incompat_features & feature_bit("sets")) != 0;
    CHECK(set == (striped(profiles.data) || striped(profiles.metadata)));
}

void convert_beside_writers(Filesystem& fs, Prng& prng, const VolumeProfiles& to, Contents& contents)
{
    REQUIRE(start_balance(fs, {.profiles = to, .content = kAllContent, .convert = true, .force = true}).ok());
    for (int step = 0; step < 5000; ++step) {
        if (fs.committer.balance.status().state != BalanceStatus::State::kRunning)
            break;
        if (fs.balance_step() == CleanProgress::kNeedsCommit || prng.chance(1, 8))
            REQUIRE(fs.step(true).ok());
        change_one(fs, prng, contents);
    }
    CHECK(fs.committer.balance.status().state == BalanceStatus::State::kFinished);
    CHECK(fs.committer.balance.status().groups_stuck == 0);
    REQUIRE(fs.step(true).ok());
}

void run_cell(const Cell& cell, uint64_t seed)
{
    CAPTURE(find_profile(cell.from.data)->name);
    CAPTURE(find_profile(cell.from.metadata)->name);
    CAPTURE(find_profile(cell.to.data)->name);
    CAPTURE(find_profile(cell.to.metadata)->name);
    Prng prng(seed);
    SimVolume volume({0, 0, cell.from.data, cell.from.metadata, 16 * kKiB});
    for (const uint64_t mib : kMemberMib)
        volume.add_device(mib * kMiB);
    make_and_mount(volume);
    Contents contents = fill(volume.fs(), prng, large_bytes());
    require_profiles(volume.fs(), cell.from);
    require_feature(volume.fs(), cell.from);
    convert_beside_writers(volume.fs(), prng, cell.to, contents);
    require_profiles(volume.fs(), cell.to);
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
    const uint32_t tolerance =
        std::min(find_profile(cell.to.data)->tolerance, find_profile(cell.to.metadata)->tolerance);
    const std::vector<std::vector<uint32_t>> sets = sets_of(tolerance, volume.member_count());
    for (const std::vector<uint32_t>& absent : sets) {
        MountOptions look = degraded_options();
        look.read_only = true;
        mount(volume, look, absent);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
    }
    const std::vector<uint32_t>& absent = sets[seed % sets.size()];
    mount(volume, absent.empty() ? manual_options() : degraded_options(), absent);
    require_contents(volume.fs(), contents);
    require_profiles(volume.fs(), cell.to);
    if ((volume.fs().volume->superblock().incompat_features & feature_bit("sets")) == 0)
        require_feature(volume.fs(), cell.to);
}

}  // namespace

TEST_CASE("convert: every profile into every profile")
{
    // One of eleven with a sanitizer: no multiple of eight, so that pairs of different profiles come.
    constexpr uint64_t kStep = kSanitized ? 11 : 1;
    Prng prng(seed());
    const std::vector<Cell> cells = all_cells();
    CHECK(cells.size() == 2 * 64);
    for (uint64_t index = seed() % kStep; index < cells.size(); index += kStep)
        run_cell(cells[index], prng.below(1000));
}
