// SPDX-License-Identifier: MIT
// Rows of blocks that redundancy did not bring back, once these blocks are deleted.
#include "fs/maintain/damaged_files.h"
#include "tests/filesystem/scrub_steps.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr VolumeShape kMendShape{4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1c3, 16 * kKiB};

// Files of one block beside a victim whose lost blocks, and those of other such files, are deleted.
class Survivors {
public:
    Survivors(SimVolume& volume, Prng& prng) : volume_(volume), victim_(volume, prng, "file", 200)
    {
        victim_.spoil(prng);
        REQUIRE(scrub(volume.fs()).lost > 100);
    }
    // Half of the files that are left, on this member.
    void spoil_kept(Prng& prng, uint32_t member)
    {
        const std::vector<std::byte> now = image(volume_, member);
        for (uint64_t at = slots_offset(volume_.fs()); at < now.size(); at += kBlockBytes)
            for (size_t index = 0; index < kept_.size(); index += 2)
                if (same(std::span(now).subspan(at, kBlockBytes), victim_.small[kept_[index]]))
                    rot(volume_, prng, member, at);
    }
    void delete_lost(int commits_after = 3)
    {
        REQUIRE(volume_.fs().names.unlink(kRoot, "file").ok());
        volume_.fs().names.forget(victim_.file, 1000);
        for (size_t number = 0; number < victim_.small.size(); ++number)
            if (read(number).ok())
                kept_.push_back(number);
            else
                REQUIRE(volume_.fs().names.unlink(kRoot, name(number)).ok());
        REQUIRE(kept_.size() > 50);
        step(commits_after);
    }
    void delete_lost_without(uint32_t member)
    {
        REQUIRE(volume_.unmount().ok());
        mount(volume_, degraded_options(), {member});
        delete_lost();
        CHECK(volume_.fs().info().damaged_blocks > 0);
    }
    // What became bad since.
    void delete_bad()
    {
        const size_t before = kept_.size();
        std::erase_if(kept_, [&](size_t number) {
            const bool bad = !read(number).ok();
            if (bad)
                REQUIRE(volume_.fs().names.unlink(kRoot, name(number)).ok());
            return bad;
        });
        REQUIRE(kept_.size() < before);
        step(3);
    }
    void step(int commits)
    {
        for (; commits > 0; --commits)
            REQUIRE(volume_.fs().step(true).ok());
    }
    // Unmounts.
    void check_without(uint32_t away)
    {
        REQUIRE(volume_.unmount().ok());
        CheckReport report;
        std::string why;
        REQUIRE(volume_.check(report, why).ok());
        CHECK(report.clean());
        MountOptions options = degraded_options();
        options.read_only = true;
        mount(volume_, options, {away});
        for (const size_t number : kept_) {
            CAPTURE(number);
            REQUIRE(read(number).ok());
            REQUIRE(same(content_, victim_.small[number]));
        }
    }

private:
    static std::string name(size_t number) { return "file" + std::to_string(number); }
    Status read(size_t number)
    {
        const InodeNumber file = volume_.fs().names.lookup(kRoot, name(number))->inode;
        const Status status = read_file(volume_.fs(), file, content_);
        volume_.fs().names.forget(file, 1000);
        return status;
    }

    SimVolume& volume_;
    Victim victim_;
    std::vector<size_t> kept_;
    std::vector<std::byte> content_ = std::vector<std::byte>(kBlockBytes);
};

}  // namespace

TEST_CASE("mending: what shares rows with lost blocks that were deleted can lose a member again")
{
    // The first window of the free-space tree, further on in it, and another one.
    for (const size_t before : {size_t{1}, 700 * kKiB, 11 * kMiB}) {
        CAPTURE(before);
        SimVolume volume(kMendShape);
        make_and_mount(volume);
        Prng prng(seed());
        make_file(volume.fs(), "before", random_content(prng, before));
        REQUIRE(volume.fs().step(true).ok());
        Survivors survivors(volume, prng);
        survivors.delete_lost();
        CHECK(volume.fs().info().damaged_blocks == 0);
        survivors.check_without(2);
        survivors.check_without(3);
    }
}

TEST_CASE("mending: rows of lost blocks that are deleted while a member is away are mended at a later mount")
{
    SimVolume volume(kMendShape);
    make_and_mount(volume);
    Prng prng(seed());
    Survivors survivors(volume, prng);
    survivors.delete_lost_without(0);
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    bool filled = false;
    for (int step = 0; step < 1000 && !filled; ++step) {
        const Result<ScrubStatus> status = volume.fs().catch_up_step();
        filled = !status.ok() || status->state == ScrubState::kFinished;
    }
    REQUIRE(filled);
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    survivors.step(3);
    CHECK(volume.fs().info().damaged_blocks == 0);
    survivors.check_without(2);
    survivors.check_without(3);
}

TEST_CASE("mending: a file in the place of lost blocks that were deleted is not named as damaged")
{
    SimVolume volume(kMendShape);
    make_and_mount(volume);
    Prng prng(seed());
    Survivors survivors(volume, prng);
    survivors.delete_lost_without(0);
    // As long as there is room.
    Filesystem& fs = volume.fs();
    const std::vector<std::byte> content = random_content(prng, kMiB);
    std::vector<InodeNumber> files;
    for (bool written = true; written;) {
        const std::string name = "new" + std::to_string(files.size());
        const auto made = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        written = fs.files.write(made->inode, 0, content, {}, {}).ok();
        if (written)
            files.push_back(made->inode);
    }
    REQUIRE(files.size() > 100);
    survivors.step(1);
    REQUIRE(fs.info().damaged_blocks > 0);
    CHECK(find_damaged_files(fs.store, 10)->file_count > 0);  // until the rows are looked at again
    REQUIRE(volume.unmount().ok());
    mount(volume, degraded_options(), {0});
    survivors.step(1);
    CHECK(find_damaged_files(volume.fs().store, 10)->file_count == 0);
    std::vector<std::byte> read(content.size());
    for (size_t number = 0; number < files.size(); ++number) {
        REQUIRE(read_file(volume.fs(), find_file(volume.fs(), "new" + std::to_string(number)), read).ok());
        REQUIRE(same(read, content));
    }
    volume.kill();
}

TEST_CASE("mending: a block that is lost when its row is looked at is listed, and its row mended with it")
{
    SimVolume volume(kMendShape);
    make_and_mount(volume);
    Prng prng(seed());
    Survivors survivors(volume, prng);
    survivors.delete_lost(0);
    survivors.spoil_kept(prng, 2);
    survivors.step(3);
    const uint64_t listed = volume.fs().info().damaged_blocks;
    CHECK(listed > 0);
    CHECK(scrub(volume.fs()).lost == listed);
    survivors.delete_bad();
    CHECK(volume.fs().info().damaged_blocks == 0);
    survivors.check_without(3);
}

TEST_CASE("mending: what waits for a member asks for no commit, whatever others note")
{
    SimVolume volume(kMendShape);
    make_and_mount(volume);
    Prng prng(seed());
    Survivors survivors(volume, prng);
    survivors.delete_lost_without(0);
    Filesystem& fs = volume.fs();
    REQUIRE(fs.store.damage.awaits_mend());
    fs.store.commits.sleep(0);  // what was asked for until now
    note_damage(fs.store, (*fs.volume->array().groups().begin())->record.address, 1, 1,
                DamageList::kByReader);
    REQUIRE(fs.store.damage.changed());
    CHECK_FALSE(fs.committer.scrub.mend_freed());
    CHECK_FALSE(fs.store.commits.sleep(0).commit);
    volume.kill();
}

TEST_CASE("list of damage: neighbours in two groups stay listed over mounts")
{
    SimVolume volume({1, 128 * kMiB, ProfileId::kSingle, ProfileId::kSingle, 16 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const InodeNumber file = make_file(fs, "file", {});
    uint64_t written = 0;
    for (; fs.files.write(file, written, random_content(prng, kMiB), {}, {}).ok(); written += kMiB)
        REQUIRE(fs.step(written % (8 * kMiB) == 0).ok());
    REQUIRE(written > 32 * kMiB);
    REQUIRE(fs.step(true).ok());
    const std::vector<GroupRecord>& groups = fs.volume->map().groups;
    const auto second = std::find_if(groups.begin(), groups.end(), [&](const GroupRecord& group) {
        const auto used = [&](VolumeAddress address) {
            const Result<bool> known = fs.store.allocator.is_used(address);
            return known.ok() && *known;
        };
        const bool follows = std::any_of(groups.begin(), groups.end(), [&](const GroupRecord& first) {
            return first.address + first.data_bytes() == group.address && first.content == kGroupData;
        });
        return follows && group.content == kGroupData && used(group.address) &&
               used({group.address.value - kBlockBytes});
    });
    REQUIRE(second != groups.end());
    const uint64_t pass = fs.store.damage.begin_pass();
    for (const uint64_t at : {second->address.value - kBlockBytes, second->address.value})
        note_damage(fs.store, {at}, 1, 7, pass);
    CHECK(fs.info().damaged_blocks == 2);
    REQUIRE(fs.step(true).ok());
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    CHECK(volume.fs().info().damaged_blocks == 2);
    volume.kill();
}
