// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "device/scan.h"
#include "tests/support/device_files.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kMemberBytes = 64 * kMiB;

Superblock make_superblock(const Uuid& volume, const std::string& label, uint32_t member_count)
{
    Superblock superblock;
    superblock.volume_uuid = volume;
    superblock.generation = {1};
    superblock.epochs = {{77, {1}}};
    superblock.next_member_id = member_count + 1;
    superblock.next_group_address = 1 * kGiB;
    superblock.map = {.generation = {1}, .checksum = 5, .bytes = kBlockBytes, .place = 0};
    superblock.label = label;
    for (uint32_t id = 1; id <= member_count; ++id) {
        auto record = plan_member_layout(kMemberBytes);
        REQUIRE(record.ok());
        record->id = {id};
        record->uuid = uuid_random();
        record->state = MemberState::kPresent;
        superblock.members.push_back(record.take());
    }
    return superblock;
}

void put_superblock(const std::string& path, Superblock superblock, uint32_t id, uint32_t ring)
{
    superblock.member_id = {id};
    const std::vector<std::byte> slot = encode_superblock(superblock);
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    const uint64_t index = superblock.generation.value % kSuperblockSlotCount;
    const auto at = static_cast<off_t>(kSuperblockRingOffset[ring] + index * kSuperblockSlotBytes);
    REQUIRE(pwrite(fd.get(), slot.data(), slot.size(), at) == static_cast<ssize_t>(slot.size()));
    REQUIRE(fsync(fd.get()) == 0);
}

std::vector<std::string> paths_of(const ScanResult& found)
{
    std::vector<std::string> paths;
    for (const FoundMember& member : found.members)
        paths.push_back(member.path);
    return paths;
}

// Two volumes of image files in one directory, and things that are no members.
struct Shelf {
    TempDir dir;
    Uuid first = uuid_random();
    Uuid second = uuid_random();
    std::vector<std::string> first_paths;
    std::string second_path;
    ScanOptions options{.directories = {}, .paths = {}, .block_devices = ScanOptions::BlockDevices::kSkip};

    Shelf()
    {
        const Superblock superblock = make_superblock(first, "alpha", 3);
        for (uint32_t id = 1; id <= 3; ++id) {
            // Names do not sort like ids, and the last member has only its second ring.
            first_paths.push_back(dir.file("image" + std::to_string(9 - id), kMemberBytes));
            put_superblock(first_paths.back(), superblock, id, id == 3 ? 1 : 0);
        }
        second_path = dir.file("other", kMemberBytes);
        put_superblock(second_path, make_superblock(second, "beta", 1), 1, 0);
        dir.file("blank", kMemberBytes);
        dir.file("small", 1 * kMiB);
        CHECK(symlink(first_paths[0].c_str(), dir.path("link").c_str()) == 0);
    }
};

}  // namespace

TEST_CASE("any one image file finds its siblings, and only them")
{
    Shelf shelf;
    std::string why;
    for (const std::string& path : shelf.first_paths) {
        const auto found = scan_for(path, shelf.options, why);
        REQUIRE_MESSAGE(found.ok(), why);
        CHECK(paths_of(*found) == shelf.first_paths);
        for (uint32_t index = 0; index < 3; ++index)
            CHECK(found->members[index].superblock.member_id == MemberId{index + 1});
    }
    // By another name: the name that was given is the one that is reported.
    const auto linked = scan_for(shelf.dir.path("link"), shelf.options, why);
    REQUIRE(linked.ok());
    REQUIRE(linked->members.size() == 3);
    CHECK(linked->members[0].path == shelf.dir.path("link"));
    const auto other = scan_for(shelf.second_path, shelf.options, why);
    REQUIRE(other.ok());
    CHECK(paths_of(*other) == std::vector<std::string>{shelf.second_path});
}

TEST_CASE("label and uuid find a volume, plain or with their prefix")
{
    Shelf shelf;
    shelf.options.directories.push_back({.path = shelf.dir.path("."), .owner = geteuid()});
    const auto found_count = [&](const std::string& name) {
        std::string why;
        const auto found = scan_for(name, shelf.options, why);
        CHECK(why.empty() == found.ok());
        return found.ok() ? found->members.size() : 0;
    };
    CHECK(found_count("alpha") == 3);
    CHECK(found_count("LABEL=alpha") == 3);
    CHECK(found_count("beta") == 1);
    CHECK(found_count(uuid_text(shelf.first)) == 3);
    CHECK(found_count("UUID=" + uuid_text(shelf.second)) == 1);
    CHECK(found_count("gamma") == 0);
    CHECK(found_count(uuid_text(uuid_random())) == 0);
    CHECK(found_count("UUID=nonsense") == 0);
    CHECK(scan_members(shelf.options).members.size() == 4);
}

TEST_CASE("a label of two volumes is refused, naming both")
{
    Shelf shelf;
    shelf.options.directories.push_back({.path = shelf.dir.path("."), .owner = geteuid()});
    const Uuid twin = uuid_random();
    put_superblock(shelf.dir.file("twin", kMemberBytes), make_superblock(twin, "alpha", 1), 1, 0);
    std::string why;
    CHECK(scan_for("alpha", shelf.options, why).err() == Err::kInvalid);
    CHECK(why.find(uuid_text(twin)) != std::string::npos);
    CHECK(why.find(uuid_text(shelf.first)) != std::string::npos);
    CHECK(why.find(uuid_text(shelf.second)) == std::string::npos);
    const auto found = scan_for(uuid_text(twin), shelf.options, why);
    REQUIRE(found.ok());
    CHECK(found->members.size() == 1);
}

TEST_CASE("what is no member says so, and the newest superblock of a member counts")
{
    Shelf shelf;
    std::string why;
    CHECK(scan_for(shelf.dir.path("blank"), shelf.options, why).err() == Err::kNotFound);
    CHECK(why.find("not a member") != std::string::npos);
    CHECK(scan_for(shelf.dir.path("small"), shelf.options, why).err() == Err::kNotFound);
    CHECK(scan_for(shelf.dir.path("absent"), shelf.options, why).err() == Err::kNotFound);
    CHECK(why.find("does not exist") != std::string::npos);
    CHECK(scan_for("/dev/null", shelf.options, why).err() == Err::kInvalid);
    Superblock newer = make_superblock(shelf.second, "renamed", 1);
    newer.generation = {2};
    put_superblock(shelf.second_path, newer, 1, 1);
    const auto member = inspect_member(shelf.second_path, why);
    REQUIRE(member.ok());
    CHECK(member->superblock.label == "renamed");
    CHECK(member->superblock.generation == Generation{2});
}

TEST_CASE("loop devices are found among the block devices and preferred to their files")
{
    Shelf shelf;
    const LoopDevice loop(shelf.first_paths[1]);
    if (loop.name().empty()) {
        MESSAGE("no loop devices here: skipped");
        return;
    }
    shelf.options.block_devices = ScanOptions::BlockDevices::kSearch;
    std::string why;
    const auto by_uuid = scan_for(uuid_text(shelf.first), shelf.options, why);
    REQUIRE_MESSAGE(by_uuid.ok(), why);
    CHECK(paths_of(*by_uuid) == std::vector<std::string>{loop.name()});
    const auto by_sibling = scan_for(shelf.first_paths[0], shelf.options, why);
    REQUIRE(by_sibling.ok());
    CHECK(paths_of(*by_sibling) ==
          std::vector<std::string>{shelf.first_paths[0], loop.name(), shelf.first_paths[2]});
    const auto by_file = scan_for(shelf.first_paths[1], shelf.options, why);
    REQUIRE(by_file.ok());
    CHECK(paths_of(*by_file) == paths_of(*by_sibling));
}

TEST_CASE("files of other users beside an image are no members")
{
    if (geteuid() != 0) {
        MESSAGE("not root: skipped");
        return;
    }
    constexpr uid_t kOwner = 1234, kOther = 4321;
    Shelf shelf;
    std::string why;
    const auto give = [&](const std::string& path, uid_t user) {
        REQUIRE(chown(path.c_str(), user, user) == 0);
    };
    give(shelf.dir.path("."), kOwner);
    give(shelf.first_paths[0], kOwner);
    give(shelf.first_paths[1], kOther);
    auto found = scan_for(shelf.first_paths[0], shelf.options, why);
    REQUIRE_MESSAGE(found.ok(), why);
    CHECK(paths_of(*found) == std::vector<std::string>{shelf.first_paths[0], shelf.first_paths[2]});
    REQUIRE(found->notes.size() == 1);
    CHECK(found->notes[0].find(shelf.first_paths[1] + " belongs to user 4321: left out") == 0);
    CHECK(found->members[1].owner == uid_t{0});  // still root's when it is opened
    CHECK(!found->members[0].owner.has_value());  // named: whoever owns it

    // A directory into which others can put files is not searched at all.
    const struct {
        mode_t mode;
        uid_t owner;
    } open_to_others[] = {{0777, kOwner}, {01777, 0}, {0775, kOwner}, {0755, kOther}};
    for (const auto& directory : open_to_others) {
        CAPTURE(directory.mode);
        give(shelf.dir.path("."), directory.owner);
        REQUIRE(chmod(shelf.dir.path(".").c_str(), directory.mode) == 0);
        found = scan_for(shelf.first_paths[0], shelf.options, why);
        REQUIRE(found.ok());
        CHECK(paths_of(*found) == std::vector<std::string>{shelf.first_paths[0]});
        REQUIRE(found->notes.size() == 1);
        CHECK(found->notes[0].find("is not searched; name all members") != std::string::npos);
    }
}
