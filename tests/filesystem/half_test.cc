// SPDX-License-Identifier: MIT
// Writing with half of the members, because a user said so (degraded=force).
#include "tests/filesystem/scrub_steps.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

MountOptions half_options()
{
    MountOptions options = manual_options();
    options.degraded = options.half = true;
    return options;
}

struct Case {
    ProfileId data, metadata;
    uint32_t members;
};
constexpr Case kCases[] = {{ProfileId::kRaid6, ProfileId::kRaid1c3, 4},
                           {ProfileId::kRaid1, ProfileId::kRaid1, 2}};

std::vector<uint32_t> second_half(uint32_t members)
{
    std::vector<uint32_t> half;
    for (uint32_t index = members / 2; index < members; ++index)
        half.push_back(index);
    return half;
}

std::vector<uint32_t> first_half(uint32_t members)
{
    std::vector<uint32_t> half;
    for (uint32_t index = 0; index < members / 2; ++index)
        half.push_back(index);
    return half;
}

void require_content(Filesystem& fs, InodeNumber file, const std::vector<std::byte>& content)
{
    std::vector<std::byte> read(content.size());
    REQUIRE(read_file(fs, file, read).ok());
    REQUIRE(same(read, content));
}

}  // namespace

TEST_CASE(
    "half: without being told nothing is written; with it everything works, power cuts included, until all "
    "members are replaced")
{
    for (const Case& one : kCases) {
        CAPTURE(static_cast<int>(one.data));
        SimVolume volume({one.members, 96 * kMiB, one.data, one.metadata, 16 * kKiB});
        make_and_mount(volume);
        Prng prng(seed());
        const std::vector<std::byte> content = random_content(prng, 900 * kKiB);
        const InodeNumber file = make_file(volume.fs(), "file", content);
        REQUIRE(volume.unmount().ok());
        const std::vector<uint32_t> gone = second_half(one.members);
        std::string why;
        CHECK(volume.mount(manual_options(), why, gone).err() == Err::kInvalid);
        CHECK_MESSAGE(why.find("mount with -o degraded to read, degraded=force to write with half of the "
                               "members (no further member may fail then)") != std::string::npos,
                      why);
        mount(volume, degraded_options(), gone);
        CHECK(volume.fs().store.service.read_only());
        require_content(volume.fs(), file, content);
        REQUIRE(volume.unmount().ok());

        mount(volume, half_options(), gone);
        REQUIRE(volume.fs().store.service.writing());
        CHECK(volume.fs().info().may_fail_writing == 0);
        const std::vector<std::byte> more = random_content(prng, 700 * kKiB);
        const InodeNumber committed = make_file(volume.fs(), "committed", more);
        REQUIRE(volume.fs().step(true).ok());
        const InodeNumber logged = make_file(volume.fs(), "logged", more);
        REQUIRE(volume.fs().committer.fsync(logged, Committer::SyncWhat::kAll).ok());
        volume.power_cut(prng);
        mount(volume, half_options(), gone);
        require_content(volume.fs(), file, content);
        require_content(volume.fs(), committed, more);
        require_content(volume.fs(), logged, more);
        // New devices take the places.
        for (const uint32_t index : gone) {
            const uint32_t device = volume.add_device(96 * kMiB);
            REQUIRE_MESSAGE(
                volume.fs().committer.replace_member({index + 1}, volume.borrow_one(device), why).ok(), why);
        }
        for (int step = 0; step < 1000 && volume.fs().catch_up_step().ok(); ++step)
            REQUIRE(volume.fs().step(true).ok());
        CHECK_FALSE(scrub(volume.fs()).damaged());
        REQUIRE(volume.unmount().ok());
        // Without the two that were there all the time.
        std::vector<uint32_t> all_gone = first_half(one.members);
        all_gone.insert(all_gone.end(), gone.begin(), gone.end());
        mount(volume, half_options(), all_gone);
        require_content(volume.fs(), file, content);
        require_content(volume.fs(), logged, more);
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("half: members that were away come back, and are caught up")
{
    for (const Case& one : kCases) {
        SimVolume volume({one.members, 96 * kMiB, one.data, one.metadata, 16 * kKiB});
        make_and_mount(volume);
        Prng prng(seed());
        REQUIRE(volume.unmount().ok());
        mount(volume, half_options(), second_half(one.members));
        const std::vector<std::byte> content = random_content(prng, 900 * kKiB);
        const InodeNumber file = make_file(volume.fs(), "file", content);
        REQUIRE(volume.unmount().ok());
        mount(volume, manual_options());
        for (int step = 0; step < 1000 && volume.fs().catch_up_step().ok(); ++step)
            REQUIRE(volume.fs().step(true).ok());
        CHECK_FALSE(scrub(volume.fs()).damaged());
        REQUIRE(volume.unmount().ok());
        mount(volume, half_options(), first_half(one.members));
        require_content(volume.fs(), file, content);
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("half: two halves that were written apart are refused together, and each can be had alone")
{
    for (const Case& one : kCases) {
        SimVolume volume({one.members, 96 * kMiB, one.data, one.metadata, 16 * kKiB});
        make_and_mount(volume);
        Prng prng(seed());
        REQUIRE(volume.unmount().ok());
        std::vector<std::vector<std::byte>> contents;
        std::vector<InodeNumber> files;
        const std::vector<std::vector<uint32_t>> absent = {second_half(one.members), first_half(one.members)};
        for (const auto& gone : absent) {
            mount(volume, half_options(), gone);
            contents.push_back(random_content(prng, 300 * kKiB));
            files.push_back(make_file(volume.fs(), "mine", contents.back()));
            REQUIRE(volume.unmount().ok());
        }
        std::string why;
        REQUIRE_FALSE(volume.mount(half_options(), why).ok());
        CAPTURE(why);
        CHECK(why.find("split brain") != std::string::npos);
        for (size_t half = 0; half < 2; ++half) {
            mount(volume, half_options(), absent[half]);
            require_content(volume.fs(), files[half], contents[half]);
            REQUIRE(volume.unmount().ok());
        }
    }
}

// Else what was acknowledged without the other one, before a superblock says so, would be lost silently.
TEST_CASE("half: with all members there a majority is asked for, and again when it is there again")
{
    for (const bool replaced : {false, true}) {
        CAPTURE(replaced);
        SimVolume volume({2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 16 * kKiB});
        make_and_mount(volume);
        Prng prng(seed());
        REQUIRE(volume.unmount().ok());
        uint32_t second = 1;
        if (replaced) {
            mount(volume, half_options(), {1});
            second = volume.add_device(96 * kMiB);
            std::string why;
            REQUIRE(volume.fs().committer.replace_member({2}, volume.borrow_one(second), why).ok());
            while (volume.fs().catch_up_step().ok())
                REQUIRE(volume.fs().step(true).ok());
        } else {
            mount(volume, half_options());
        }
        const InodeNumber file = make_file(volume.fs(), "file", random_content(prng, 10000));
        REQUIRE(volume.fs().committer.fsync(file, Committer::SyncWhat::kAll).ok());
        REQUIRE(volume.fs().step(true).ok());
        REQUIRE(volume.fs().confirm().ok());
        volume.cable(second).add_rule({.action = FaultAction::kGone});
        const InodeNumber late = make_file(volume.fs(), "late", random_content(prng, 10000));
        CHECK_FALSE(volume.fs().committer.fsync(late, Committer::SyncWhat::kAll).ok());
        volume.power_cut(prng);
        volume.cable(second).remove_all_rules();
    }
}

TEST_CASE("half: a member that is being filled may fail, and the half writes on")
{
    for (const Case& one : kCases) {
        SimVolume volume({one.members, 96 * kMiB, one.data, one.metadata, 16 * kKiB});
        make_and_mount(volume);
        Prng prng(seed());
        REQUIRE(volume.unmount().ok());
        const std::vector<uint32_t> gone = second_half(one.members);
        mount(volume, half_options(), gone);
        const std::vector<std::byte> content = random_content(prng, 900 * kKiB);
        const InodeNumber file = make_file(volume.fs(), "file", content);
        REQUIRE(volume.fs().step(true).ok());
        const uint32_t device = volume.add_device(96 * kMiB);
        std::string why;
        const MemberId member{gone.front() + 1};
        REQUIRE_MESSAGE(volume.fs().committer.replace_member(member, volume.borrow_one(device), why).ok(),
                        why);
        CHECK(volume.fs().volume->writes_with_half());
        volume.cable(device).add_rule({.kinds = kFaultWrites});
        const InodeNumber more = make_file(volume.fs(), "more", content);
        REQUIRE(volume.fs().step(true).ok());
        CHECK(volume.fs().volume->members().failed(member));
        REQUIRE(volume.fs().store.service.writing());
        require_content(volume.fs(), file, content);
        require_content(volume.fs(), more, content);
        // A majority that lacks nothing ends it.
        const uint32_t better = volume.add_device(96 * kMiB);
        REQUIRE(volume.fs().committer.replace_member(member, volume.borrow_one(better), why).ok());
        for (int step = 0; step < 1000 && volume.fs().catch_up_step().ok(); ++step)
            REQUIRE(volume.fs().step(true).ok());
        CHECK_FALSE(volume.fs().volume->writes_with_half());
        require_content(volume.fs(), more, content);
        REQUIRE(volume.unmount().ok());
    }
}

TEST_CASE("half: of the only member and its successor one goes on after a power cut")
{
    constexpr VolumeShape kAlone{1, 160 * kMiB, ProfileId::kSingle, ProfileId::kSingle, 16 * kKiB};
    Prng prng(seed());
    int successor_goes = 0, source_goes = 0, forced = 0;
    for (uint64_t cut = 0, events = 1; cut <= events; ++cut) {
        CAPTURE(cut);
        SimVolume volume(kAlone);
        make_and_mount(volume);
        const Contents contents = fill(volume.fs(), prng, kMiB);
        const uint32_t device = volume.add_device(kAlone.member_bytes);
        std::string why;
        REQUIRE(volume.fs().committer.replace_member({1}, volume.borrow_one(device), why).ok());
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        for (int step = 0; step < 2000 && volume.fs().replace_step(); ++step)
            continue;
        events = cut == 0 ? volume.power().events() - begin : events;
        volume.power_cut(prng);
        volume.power().turn_on();
        const auto goes = [&](uint32_t absent, bool half) {
            MountOptions options = degraded_options();
            options.half = half;
            if (!volume.mount(options, why, {absent}).ok())
                return false;
            require_contents(volume.fs(), contents);
            const bool written = !volume.fs().store.service.read_only();
            if (written)
                REQUIRE(volume.unmount().ok());
            else
                volume.kill();
            return written;
        };
        const bool successor = goes(0, false);
        const bool source = goes(device, false);
        CHECK_FALSE((successor && source));
        CHECK((successor || cut > 0));
        successor_goes += successor ? 1 : 0;
        source_goes += source ? 1 : 0;
        // The source is gone, and nobody can tell: the user may say so.
        if (!successor && !source) {
            ++forced;
            CHECK(goes(0, true));
        }
    }
    CHECK(successor_goes > 0);
    CHECK(source_goes > 0);
    CHECK(forced > 0);
}
