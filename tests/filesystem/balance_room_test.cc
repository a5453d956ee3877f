// SPDX-License-Identifier: MIT
// A balance that is let begin ends while nobody writes, however full the volume is; one that would not end is
// refused. COWRAID_BALANCE_SHAPES: on so many shapes by chance.
#include <unistd.h>

#include <cstdlib>

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

TEST_CASE("balance: a missing member is removed from half-empty groups, whatever room is left")
{
    const VolumeProfiles profiles{ProfileId::kRaid5, ProfileId::kRaid1};
    const BalanceOptions removal{.profiles = profiles, .content = kAllContent, .member = {4}};
    int removed = 0;
    for (uint64_t left_mib = 80; left_mib <= 128; left_mib += 16) {
        CAPTURE(left_mib);
        SimVolume volume({4, 256 * kMiB, profiles.data, profiles.metadata, 16 * kKiB});
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Prng prng(seed());
        const std::vector<std::byte> content = random_content(prng, kFileBytes);
        uint32_t files = 0;
        for (; fs.info().available_bytes > left_mib * kMiB; ++files) {
            write_file(fs, name_of(files), content);
            REQUIRE(fs.step(true).ok());
        }
        for (uint32_t file = 0; file < files; file += 2)
            REQUIRE(fs.names.unlink(kRoot, name_of(file)).ok());
        for (int commit = 0; commit < 4; ++commit)
            REQUIRE(fs.step(true).ok());
        std::string why;
        REQUIRE_MESSAGE(fs.committer.offline_member({4}, why).ok(), why);
        if (!plan_only(fs, removal).ok())
            continue;
        ++removed;
        REQUIRE(start_balance(fs, removal).ok());
        const BalanceStatus status = finish(fs);
        CHECK(status.state == State::kFinished);
        CHECK(status.groups_stuck == 0);
        for (uint32_t file = 1; file < files; file += 2)
            require_content(fs, find_file(fs, name_of(file)), content);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {3});
    }
    CHECK(removed > 0);
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
    CHECK(waits.degraded);
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

namespace {

struct BalanceShape {
    std::vector<uint64_t> member_mib;
    VolumeProfiles from, to;
    uint64_t file_mib = 4;
    uint64_t files_max = UINT64_MAX;
};

void commit_all(Filesystem& fs)
{
    for (int commit = 0; commit < 4; ++commit)  // slots come back
        REQUIRE(fs.step(true).ok());
}

// Files of the same content until there is no room for another.
uint32_t fill_up(Filesystem& fs, const BalanceShape& shape, const std::vector<std::byte>& content)
{
    for (uint32_t files = 0; files < shape.files_max; ++files) {
        const std::string name = "file" + std::to_string(files);
        const Result<Attributes> made = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        if (!made.ok())
            return files;
        const bool written = fs.files.write(made->inode, 0, content, {}, {}).ok();
        fs.names.forget(made->inode, 1);
        REQUIRE(fs.step(true).ok());
        if (!written) {
            REQUIRE(fs.names.unlink(kRoot, name).ok());
            return files;
        }
    }
    return static_cast<uint32_t>(shape.files_max);
}

// As full as the plan lets it be. False: it is refused even when there are no files.
bool require_end_of(const BalanceShape& shape)
{
    SimVolume volume({0, 0, shape.from.data, shape.from.metadata, 16 * kKiB});
    std::string text = std::string(find_profile(shape.from.data)->name) + "/" +
                       find_profile(shape.from.metadata)->name + " to " + find_profile(shape.to.data)->name +
                       "/" + find_profile(shape.to.metadata)->name + ", files of " +
                       std::to_string(shape.file_mib) + " MiB on";
    for (const uint64_t mib : shape.member_mib) {
        volume.add_device(mib * kMiB);
        text += " " + std::to_string(mib);
    }
    CAPTURE(text);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const std::vector<std::byte> content = random_content(prng, shape.file_mib * kMiB);
    uint32_t files = fill_up(fs, shape, content);
    const BalanceOptions options{
        .profiles = shape.to, .content = kAllContent, .convert = true, .force = true};
    commit_all(fs);
    while (files > 0 && !plan_only(fs, options).ok()) {
        REQUIRE(fs.names.unlink(kRoot, "file" + std::to_string(--files)).ok());
        commit_all(fs);
    }
    const bool begins = plan_only(fs, options).ok();
    MESSAGE(text, ": ", std::string(begins ? "begins" : "refused"), " with ", files, " files");
    if (begins) {
        REQUIRE(start_balance(fs, options).ok());
        const BalanceStatus status = finish(fs);
        CHECK(status.state == BalanceStatus::State::kFinished);
        CHECK(status.groups_stuck == 0);
    }
    for (uint32_t file = 0; file < files; ++file)
        require_content(fs, find_file(fs, "file" + std::to_string(file)), content);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
    return begins;
}

constexpr ProfileId k1 = ProfileId::kRaid1, k5 = ProfileId::kRaid5;

}  // namespace

TEST_CASE("balance shapes: mirrors become parity on a volume that has no free slots")
{
    CHECK(require_end_of({{130, 130, 130, 130, 130}, {k1, k5}, {k5, k5}}));
    CHECK(require_end_of({{160, 200, 200, 90, 90}, {k1, k1}, {k5, k1}}));
    CHECK(require_end_of({{160, 200, 200, 90, 90}, {k1, k5}, {k5, k5}, 4, 44}));
    CHECK(require_end_of({{160, 200, 200, 90, 90}, {k1, k5}, {k5, k5}}));
    if (!kSanitized)
        CHECK(require_end_of({{480, 600, 600, 270, 270}, {k1, k5}, {k5, k5}, 16}));
}

TEST_CASE("balance shapes: data that takes slots first leaves nodes room")
{
    CHECK(require_end_of({{100, 100, 100, 100, 100}, {ProfileId::kRaid0, ProfileId::kRaid1c3}, {k1, k5}, 5}));
    CHECK(require_end_of({{160, 90, 200, 160}, {k5, ProfileId::kRaid1c3}, {k1, ProfileId::kRaid1c3}, 1}));
}

TEST_CASE("balance shapes: by chance")
{
    constexpr ProfileId kProfiles[] = {ProfileId::kSingle, ProfileId::kRaid0,  ProfileId::kRaid1,
                                       ProfileId::kRaid5,  ProfileId::kRaid6,  ProfileId::kRaid1c3,
                                       ProfileId::kRaid10, ProfileId::kRaid1c4};
    constexpr ProfileId kNodeProfiles[] = {ProfileId::kRaid1, ProfileId::kRaid5, ProfileId::kRaid6,
                                           ProfileId::kRaid1c3};
    const char* const wanted = getenv("COWRAID_BALANCE_SHAPES");
    const int count = wanted == nullptr ? (kSanitized ? 3 : 15) : atoi(wanted);
    Prng prng(seed());
    int begun = 0;
    for (int number = 0; number < count; ++number) {
        CAPTURE(number);
        BalanceShape shape;
        const auto one_of = [&](const auto& profiles) {
            return profiles[prng.below(std::size(profiles))];
        };
        shape.from = {one_of(kProfiles), one_of(kNodeProfiles)};
        shape.to = {one_of(kProfiles), prng.chance(1, 2) ? shape.from.metadata : one_of(kNodeProfiles)};
        size_t members = 2 + prng.below(4);
        for (const ProfileId profile :
             {shape.from.data, shape.from.metadata, shape.to.data, shape.to.metadata})
            members = std::max<size_t>(members, find_profile(profile)->min_members);
        const uint64_t mib = 90 + 10 * prng.below(8);
        const bool uneven = prng.chance(2, 3);
        for (size_t member = 0; member < members; ++member)
            shape.member_mib.push_back(mib + (uneven ? 10 * prng.below(12) : 0));
        shape.file_mib = 1 + prng.below(6);
        begun += require_end_of(shape) ? 1 : 0;
    }
    CHECK(begun * 2 > count);
}
