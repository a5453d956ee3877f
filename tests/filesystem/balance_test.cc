// SPDX-License-Identifier: MIT
// Balances of whole volumes on simulated members: from profile to profile, interrupted, beside writers, where
// there is no room, where something is lost.
#include "fs/txn/group_planning.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/filesystem/volume_shapes.h"
#include "tests/support/bytes.h"
#include <cstring>
#include <linux/falloc.h>

using namespace cowraid;
using namespace cowraid::test;

namespace {

using State = BalanceStatus::State;

constexpr uint32_t kChunkBytes = 16 * kKiB;
constexpr uint32_t kNodes = kGroupMetadata | kGroupSystem;

BalanceOptions conversion(ProfileId data, ProfileId metadata, bool force = false)
{
    return {.profiles = {data, metadata}, .content = kAllContent, .convert = true, .force = force};
}

void require_profiles(Filesystem& fs, ProfileId data, ProfileId metadata)
{
    CHECK(fs.volume->profiles().data == data);
    CHECK(fs.volume->profiles().metadata == metadata);
    const Profile& nodes = *find_profile(metadata);
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups()) {
        const uint32_t content = group->record.content;
        const ProfileId system = Volume::system_profile_of(nodes).id;
        CHECK(group->record.profile == (content == kGroupData     ? data
                                        : content == kGroupSystem ? system
                                                                  : metadata));
        CHECK((content == kGroupData || (content == kNodes) == (nodes.parity == 0)));
    }
}

struct SpoiltBlock {
    uint32_t member;
    uint64_t offset;
    std::vector<std::byte> content;  // that it had before
};

// Overwrites all nodes of a tree, those that no commit refers to as well.
std::vector<SpoiltBlock> spoil_nodes(SimVolume& volume, uint64_t tree, Prng& prng)
{
    std::vector<SpoiltBlock> spoilt;
    std::vector<std::byte> block(kBlockBytes);
    DiskNodeHeader header;
    for (uint32_t member = 0; member < volume.member_count(); ++member)
        for (uint64_t offset = 0; offset < kMemberBytes; offset += kBlockBytes) {
            volume.member(member).peek(offset, block);
            std::memcpy(&header, block.data(), sizeof(header));
            if (header.magic != kNodeMagic || header.tree_id != tree)
                continue;
            spoilt.push_back({member, offset, block});
            volume.member(member).poke(offset, random_content(prng, kBlockBytes));
        }
    return spoilt;
}

}  // namespace

TEST_CASE("balance: from profile to profile, and every byte is there when as many members are lost as may be")
{
    struct Case {
        ProfileId data, metadata, then_data, then_metadata;
        uint32_t members;
    };
    for (const Case& one :
         {Case{ProfileId::kRaid5, ProfileId::kRaid1, ProfileId::kRaid6, ProfileId::kRaid1c3, 4},
          Case{ProfileId::kRaid6, ProfileId::kRaid1c3, ProfileId::kRaid5, ProfileId::kRaid1, 5},
          Case{ProfileId::kRaid1, ProfileId::kRaid1, ProfileId::kRaid5, ProfileId::kRaid1, 3},
          Case{ProfileId::kRaid5, ProfileId::kRaid1, ProfileId::kRaid1, ProfileId::kRaid1, 3},
          Case{ProfileId::kSingle, ProfileId::kSingle, ProfileId::kRaid1, ProfileId::kRaid1, 2},
          Case{ProfileId::kRaid1c3, ProfileId::kRaid1c3, ProfileId::kSingle, ProfileId::kSingle, 4}}) {
        const uint32_t tolerance =
            std::min(find_profile(one.then_data)->tolerance, find_profile(one.then_metadata)->tolerance);
        CAPTURE(find_profile(one.data)->name);
        CAPTURE(find_profile(one.then_data)->name);
        SimVolume volume({one.members, kMemberBytes, one.data, one.metadata, kChunkBytes});
        make_and_mount(volume);
        Prng prng(seed());
        const Contents contents = fill(volume.fs(), prng, 9 * kMiB);
        REQUIRE(start_balance(volume.fs(), conversion(one.then_data, one.then_metadata, true)).ok());
        CHECK(start_balance(volume.fs(), conversion(one.then_data, one.then_metadata)).err() == Err::kBusy);
        const BalanceStatus status = finish(volume.fs());
        CHECK(status.state == State::kFinished);
        CHECK(status.bytes_total >= 9 * kMiB);
        CHECK(status.bytes_left == 0);
        CHECK(status.groups_stuck == 0);
        require_profiles(volume.fs(), one.then_data, one.then_metadata);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
        std::vector<uint32_t> absent;
        for (uint32_t member = 0; member < tolerance; ++member)
            absent.push_back(member);
        mount(volume, absent.empty() ? manual_options() : degraded_options(), absent);
        require_contents(volume.fs(), contents);
        require_profiles(volume.fs(), one.then_data, one.then_metadata);
    }
}

TEST_CASE("balance: before its first step, and the first one of a mount, it is known how much there is to do")
{
    SimVolume volume({4, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
    make_and_mount(volume);
    Prng prng(seed());
    const Contents contents = fill(volume.fs(), prng, 5 * kMiB);
    const BalanceOptions options = conversion(ProfileId::kRaid6, ProfileId::kRaid1c3);
    BalancePlan plan;
    std::string why;
    REQUIRE(volume.fs().committer.balance.plan(options, plan, why).ok());
    REQUIRE(start_balance(volume.fs(), options).ok());
    BalanceStatus begun = volume.fs().committer.balance.status();
    CHECK(begun.groups_left == plan.group_count);
    CHECK(begun.groups_total == plan.group_count);
    CHECK(begun.bytes_left >= 5 * kMiB);
    crash(volume, prng);
    mount(volume, manual_options());
    begun = volume.fs().committer.balance.status();
    CHECK(begun.state == State::kRunning);
    CHECK(begun.groups_left > 0);
    CHECK(begun.groups_left <= plan.group_count);  // one that was empty may be gone
    CHECK(begun.groups_total == begun.groups_left);
    CHECK(begun.bytes_left >= 5 * kMiB);
    CHECK(finish(volume.fs()).state == State::kFinished);
    require_contents(volume.fs(), contents);
    // What is that small tells nothing of how long the next one takes.
    CHECK(volume.fs().committer.balance.status().moved_bytes >= 5 * kMiB);
    REQUIRE_MESSAGE(volume.fs().committer.balance.plan(options, plan, why).ok(), why);
    CHECK(plan.rate == 0);
}

TEST_CASE("balance: its rate is told by what is large and takes long enough")
{
    CHECK(measured_rate(64 * kMiB, 4000) == 16 * kMiB);
    CHECK(measured_rate(64 * kMiB, 3000) == 64 * kMiB / 3);
    CHECK(measured_rate(64 * kMiB - 1, 4000) == 0);
    CHECK(measured_rate(100 * kMiB, 2999) == 0);
    CHECK(measured_rate(kMiB, 60000) == 0);
    CHECK(measured_rate(0, 0) == 0);
}

TEST_CASE("balance: killed after any number of steps it goes on by itself")
{
    Prng prng(seed());
    for (const int steps : {0, 1, 2, 3, 5, 8, 13, 21, 34, 55}) {
        CAPTURE(steps);
        SimVolume volume({4, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
        make_and_mount(volume);
        const Contents contents = fill(volume.fs(), prng, 5 * kMiB);
        REQUIRE(start_balance(volume.fs(), conversion(ProfileId::kRaid6, ProfileId::kRaid1c3)).ok());
        // Killed later every time: it comes to its end.
        for (int mounts = 0; mounts < 200; ++mounts) {
            if (volume.fs().committer.balance.status().state != State::kRunning)
                break;
            continue_balance(volume.fs(), steps + mounts, true);
            require_contents(volume.fs(), contents);
            crash(volume, prng);
            mount(volume, manual_options());
        }
        CHECK(volume.fs().committer.balance.status().state == State::kNone);
        require_profiles(volume.fs(), ProfileId::kRaid6, ProfileId::kRaid1c3);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

TEST_CASE("balance: beside writers")
{
    SimVolume volume({5, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    Contents contents = fill(fs, prng, 7 * kMiB);
    for (const auto& [data, metadata] :
         {std::pair(ProfileId::kRaid6, ProfileId::kRaid1c3), std::pair(ProfileId::kRaid1, ProfileId::kRaid1),
          std::pair(ProfileId::kRaid5, ProfileId::kRaid1)}) {
        REQUIRE(start_balance(fs, conversion(data, metadata, true)).ok());
        for (int number = 0; number < 5000; ++number) {
            if (fs.committer.balance.status().state != State::kRunning)
                break;
            if (fs.balance_step() == CleanProgress::kNeedsCommit || prng.chance(1, 8))
                REQUIRE(fs.step(true).ok());
            change_one(fs, prng, contents);
        }
        REQUIRE(fs.step(true).ok());
        require_profiles(fs, data, metadata);
        require_contents(fs, contents);
    }
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("balance: in large steps, out of several groups between two commits, beside writers and kills")
{
    Prng prng(seed());
    SimVolume volume({5, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
    make_and_mount(volume);
    Contents contents = fill(volume.fs(), prng, 90 * kMiB);
    REQUIRE(start_balance(volume.fs(), conversion(ProfileId::kRaid6, ProfileId::kRaid1c3)).ok());
    int64_t most_groups = 0;
    for (int mounts = 0; mounts < 40; ++mounts) {
        Filesystem& fs = volume.fs();
        for (int step = 0; step < 6 + mounts; ++step) {
            const std::vector<GroupRecord>& groups = fs.volume->map().groups;
            most_groups = std::max(most_groups, std::count_if(groups.begin(), groups.end(), [](auto& group) {
                                       return (group.flags & kGroupEmptying) != 0;
                                   }));
            if (fs.committer.balance.step(16 * kMiB) == CleanProgress::kNeedsCommit)
                REQUIRE(fs.step(true).ok());
            change_one(fs, prng, contents);
        }
        if (fs.committer.balance.status().state != State::kRunning)
            break;
        REQUIRE(fs.step(true).ok());
        fs.committer.balance.step(16 * kMiB);  // lost with what follows
        crash(volume, prng);
        mount(volume, manual_options());
        require_contents(volume.fs(), contents);
    }
    CHECK(most_groups > 1);
    require_profiles(volume.fs(), ProfileId::kRaid6, ProfileId::kRaid1c3);
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("balance: one flush goes into mirrors and under parity")
{
    for (const bool to_mirrors : {true, false}) {
        CAPTURE(to_mirrors);
        const ProfileId first = to_mirrors ? ProfileId::kRaid5 : ProfileId::kRaid1;
        const ProfileId then = to_mirrors ? ProfileId::kRaid1 : ProfileId::kRaid5;
        SimVolume volume({4, kMemberBytes, first, ProfileId::kRaid1, kChunkBytes});
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Prng prng(seed());
        // Groups that are mostly free, none of them empty, and no slots for many others.
        const uint64_t available = fs.statistics().available_blocks * kBlockBytes;
        write_file(fs, "space", random_content(prng, available / 10 * 8));
        Contents contents = fill(fs, prng, kMiB);
        for (uint64_t offset = 0; offset < available / 10 * 8; offset += kMiB)
            REQUIRE(fs.files
                        .allocate_range(find_file(fs, "space"), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                        offset, kMiB / 16 * 15)
                        .ok());
        for (int commit = 0; commit < 3; ++commit)
            REQUIRE(fs.step(true).ok());
        REQUIRE(start_balance(fs, conversion(then, ProfileId::kRaid1, true)).ok());
        const uint64_t room = fs.statistics().available_blocks * kBlockBytes;
        for (int piece = 0; piece < 60; ++piece) {
            const std::string name = "piece" + std::to_string(piece);
            contents[name] = random_content(prng, room / 80);
            write_file(fs, name, contents[name]);
            REQUIRE(fs.step(piece % 2 == 0).ok());
        }
        require_contents(fs, contents);
        continue_balance(fs, 2000, true);
        require_contents(fs, contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

TEST_CASE("balance: paused it rests over mounts; cancelled, groups of both kinds stay and take blocks")
{
    SimVolume volume({4, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
    make_and_mount(volume);
    Prng prng(seed());
    Contents contents = fill(volume.fs(), prng, 5 * kMiB);
    std::string why;
    CHECK(volume.fs().committer.balance.pause(why).err() == Err::kInvalid);
    CHECK(volume.fs().committer.balance.resume(why).err() == Err::kInvalid);
    CHECK(volume.fs().committer.balance.cancel(why).err() == Err::kInvalid);
    REQUIRE(start_balance(volume.fs(), conversion(ProfileId::kRaid6, ProfileId::kRaid1c3)).ok());
    continue_balance(volume.fs(), 3, true);
    REQUIRE(volume.fs().committer.balance.pause(why).ok());
    CHECK(volume.fs().balance_step() == CleanProgress::kNothing);
    REQUIRE(volume.unmount().ok());
    mount(volume, manual_options());
    CHECK(volume.fs().committer.balance.status().state == State::kPaused);
    CHECK(volume.fs().balance_step() == CleanProgress::kNothing);
    REQUIRE(volume.fs().committer.balance.resume(why).ok());
    continue_balance(volume.fs(), 2, true);
    REQUIRE(volume.fs().committer.balance.cancel(why).ok());
    CHECK(volume.fs().committer.balance.status().state == State::kCancelled);
    CHECK(volume.fs().balance_step() == CleanProgress::kNothing);
    contents["later"] = random_content(prng, 3 * kMiB);
    write_file(volume.fs(), "later", contents["later"]);
    REQUIRE(volume.fs().step(true).ok());
    require_contents(volume.fs(), contents);
    CHECK(volume.fs().volume->profiles().data == ProfileId::kRaid6);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
    mount(volume, manual_options());
    CHECK(volume.fs().committer.balance.status().state == State::kNone);
    require_contents(volume.fs(), contents);
}

TEST_CASE("balance: what cannot be is refused, and nothing changes")
{
    SimVolume volume({2, kMemberBytes, ProfileId::kRaid1, ProfileId::kRaid1, kChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const Contents contents = fill(fs, prng, 4 * kMiB);
    const auto refused = [&](const BalanceOptions& options, Err err, const char* text) {
        std::string why;
        CHECK(fs.committer.balance.start(options, why).err() == err);
        CHECK_MESSAGE(why.find(text) != std::string::npos, why);
        CHECK(fs.committer.balance.status().state == State::kNone);
        CHECK(fs.volume->superblock().balance == BalanceRecord());
        require_profiles(fs, ProfileId::kRaid1, ProfileId::kRaid1);
    };
    refused(conversion(ProfileId::kRaid6, ProfileId::kRaid1), Err::kInvalid, "raid6 needs 3 devices");
    refused(conversion(ProfileId::kSingle, ProfileId::kRaid1), Err::kInvalid, "--force");
    refused(conversion(ProfileId::kRaid1, ProfileId::kSingle), Err::kInvalid, "--force");
    refused(conversion(ProfileId::kRaid1, ProfileId::kRaid6), Err::kInvalid, "raid6 needs 3 devices");
    refused(conversion(ProfileId::kRaid10, ProfileId::kRaid1c4), Err::kInvalid, "raid1c4 needs 4 devices");
    refused(conversion(ProfileId::kRaid0, ProfileId::kRaid1), Err::kInvalid, "--force");
    require_contents(fs, contents);
}

TEST_CASE("balance: a conversion that would not fit is refused; one that just fits ends")
{
    for (const bool fits : {false, true}) {
        CAPTURE(fits);
        SimVolume volume({4, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Prng prng(seed());
        const uint64_t available = fs.statistics().available_blocks * kBlockBytes;
        // RAID6 has two thirds of what RAID5 has.
        const Contents contents = fill(fs, prng, fits ? available / 20 * 9 : available / 10 * 8);
        if (!fits) {
            CHECK(start_balance(fs, conversion(ProfileId::kRaid6, ProfileId::kRaid1c3)).err() ==
                  Err::kNoSpace);
            require_profiles(fs, ProfileId::kRaid5, ProfileId::kRaid1);
            continue;
        }
        REQUIRE(start_balance(fs, conversion(ProfileId::kRaid6, ProfileId::kRaid1c3)).ok());
        CHECK(finish(fs).state == State::kFinished);
        require_profiles(fs, ProfileId::kRaid6, ProfileId::kRaid1c3);
        require_contents(fs, contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

TEST_CASE("balance: of groups that are not too full, and of all of them, which gives slots back")
{
    SimVolume volume({4, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    Contents contents = fill(fs, prng, 60 * kMiB);
    for (int index = 0; index < 80; ++index)
        contents["mega" + std::to_string(index)] = random_content(prng, kMiB);
    for (int index = 0; index < 80; ++index)
        write_file(fs, "mega" + std::to_string(index), contents["mega" + std::to_string(index)]);
    REQUIRE(fs.step(true).ok());
    for (int index = 0; index < 80; index += index % 8 == 6 ? 2 : 1) {
        REQUIRE(fs.names.unlink(kRoot, "mega" + std::to_string(index)).ok());
        contents.erase("mega" + std::to_string(index));
    }
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.step(true).ok());
    std::vector<VolumeAddress> full;
    for (const GroupNumbers& numbers : fs.store.allocator.group_numbers(kGroupData))
        if (numbers.live_blocks * 100 > 30 * numbers.total_blocks)
            full.push_back(numbers.address);
    BalanceOptions options{.profiles = fs.volume->profiles(), .content = kGroupData};
    options.data.usage.most = 30;
    REQUIRE(start_balance(fs, options).ok());
    CHECK(finish(fs).state == State::kFinished);
    for (const VolumeAddress address : full)
        CHECK(fs.volume->array().group_at(address));
    const Groups before = fs.volume->array().groups();
    options = {.profiles = fs.volume->profiles(), .content = kAllContent};
    REQUIRE(start_balance(fs, options).ok());
    CHECK(finish(fs).state == State::kFinished);
    for (const Ref<const ArrayGroup>& group : before)
        CHECK_FALSE(fs.volume->array().group_at(group->record.address));
    require_contents(fs, contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

TEST_CASE("balance: blocks that are lost keep their group; the rest moves")
{
    SimVolume volume({3, kMemberBytes, ProfileId::kSingle, ProfileId::kRaid1, kChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    Contents contents = fill(fs, prng, 40 * kMiB);
    // One block of the large file, wherever it is.
    const uint64_t begin = fs.volume->superblock().members.front().slots_offset;
    bool spoilt = false;
    std::pair<uint32_t, uint64_t> where;
    const std::span lost(contents["large"].data() + 5 * kMiB, kBlockBytes);
    std::vector<std::byte> block(kBlockBytes);
    for (uint32_t member = 0; member < 3 && !spoilt; ++member)
        for (uint64_t offset = begin; offset < kMemberBytes && !spoilt; offset += kBlockBytes) {
            volume.member(member).peek(offset, block);
            spoilt = std::equal(block.begin(), block.end(), lost.begin());
            where = {member, offset};
            if (spoilt)
                volume.member(member).poke(offset, random_content(prng, kBlockBytes));
        }
    REQUIRE(spoilt);
    REQUIRE(start_balance(fs, conversion(ProfileId::kRaid1, ProfileId::kRaid1)).ok());
    const BalanceStatus status = finish(fs);
    CHECK(status.state == State::kFinished);
    CHECK(status.groups_stuck == 1);
    CHECK(status.bytes_left == kBlockBytes);
    std::vector<std::byte> read(4 * kMiB);
    REQUIRE(fs.files.read(find_file(fs, "large"), 0, read).ok());
    CHECK(std::equal(read.begin(), read.end(), contents["large"].begin()));
    CHECK_FALSE(fs.files.read(find_file(fs, "large"), 5 * kMiB, block).ok());
    // Who tries again when it can be read has success.
    const std::span<const std::byte> right(lost);
    volume.member(where.first).poke(where.second, std::vector<std::byte>(right.begin(), right.end()));
    REQUIRE(start_balance(fs, conversion(ProfileId::kRaid1, ProfileId::kRaid1)).ok());
    CHECK(finish(fs).groups_stuck == 0);
    require_profiles(fs, ProfileId::kRaid1, ProfileId::kRaid1);
    require_contents(fs, contents);
}

TEST_CASE("balance: with a member away it uses those that are there")
{
    SimVolume volume({5, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
    make_and_mount(volume);
    Prng prng(seed());
    const Contents contents = fill(volume.fs(), prng, 6 * kMiB);
    REQUIRE(volume.unmount().ok());
    mount(volume, degraded_options(), {3});
    REQUIRE(start_balance(volume.fs(), conversion(ProfileId::kRaid6, ProfileId::kRaid1c3)).ok());
    CHECK(finish(volume.fs()).state == State::kFinished);
    require_profiles(volume.fs(), ProfileId::kRaid6, ProfileId::kRaid1c3);
    REQUIRE(volume.unmount().ok());
    mount(volume, degraded_options(), {0, 3});
    require_contents(volume.fs(), contents);
}

namespace {

void convert_nodes_alone(ProfileId from, ProfileId to)
{
    CAPTURE(find_profile(from)->name);
    CAPTURE(find_profile(to)->name);
    SimVolume volume({5, kMemberBytes, ProfileId::kRaid5, from, kChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    // Some 30 MiB of nodes: several groups, and many times what one commit moves.
    for (int index = 0; index < 500; ++index) {
        const std::string name = "file" + std::to_string(index);
        const Result<Attributes> made = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        REQUIRE(fs.names.set_xattr(made->inode, "user.a", random_content(prng, 60000), 0).ok());
        fs.names.forget(made->inode, 1);
        if (index % 50 == 49)
            REQUIRE(fs.step(true).ok());
    }
    BalanceOptions options{.profiles = {ProfileId::kRaid5, to}, .content = kNodes, .convert = true};
    options.force = true;
    REQUIRE(start_balance(fs, options).ok());
    const BalanceStatus status = finish(fs);
    CHECK(status.state == State::kFinished);
    CHECK(status.bytes_total > 25 * kMiB);
    CHECK(status.groups_stuck == 0);
    require_profiles(fs, ProfileId::kRaid5, to);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

}  // namespace

TEST_CASE("balance: nodes alone, on a volume that nobody writes to")
{
    convert_nodes_alone(ProfileId::kRaid1, ProfileId::kRaid1c3);
    convert_nodes_alone(ProfileId::kRaid1, ProfileId::kRaid5);
    convert_nodes_alone(ProfileId::kRaid6, ProfileId::kRaid10);
    convert_nodes_alone(ProfileId::kRaid5, ProfileId::kRaid6);
    convert_nodes_alone(ProfileId::kRaid1c4, ProfileId::kRaid6);
}

TEST_CASE("balance: a node that cannot be read keeps its group, and the volume goes on")
{
    SimVolume volume({3, kMemberBytes, ProfileId::kSingle, ProfileId::kSingle, kChunkBytes});
    make_and_mount(volume);
    Prng prng(seed());
    const std::string names[] = {"first", "second", "third"};
    std::map<std::string, std::vector<std::byte>> values;
    for (const std::string& name : names) {
        const Result<Attributes> made = volume.fs().names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        values[name] = random_content(prng, 60000);
        REQUIRE(volume.fs().names.set_xattr(made->inode, "user.a", values[name], 0).ok());
        volume.fs().names.forget(made->inode, 1);
    }
    REQUIRE(volume.unmount().ok());
    // A block in the middle of the second value lies inside a leaf.
    const std::span lost(values["second"].data() + 30000, 64);
    std::vector<std::byte> block(kBlockBytes);
    bool spoilt = false;
    for (uint32_t member = 0; member < 3; ++member)
        for (uint64_t offset = 0; offset < kMemberBytes; offset += kBlockBytes) {
            volume.member(member).peek(offset, block);
            if (!contains(block, lost))
                continue;
            volume.member(member).poke(offset, random_content(prng, kBlockBytes));
            spoilt = true;
        }
    REQUIRE(spoilt);
    mount(volume, manual_options());
    Filesystem& fs = volume.fs();
    REQUIRE(start_balance(
                fs, {.profiles = {ProfileId::kSingle, ProfileId::kRaid1}, .content = kNodes, .convert = true})
                .ok());
    const BalanceStatus status = finish(fs);
    CHECK(status.state == State::kFinished);
    CHECK(status.groups_stuck == 1);
    CHECK(fs.store.stuck_groups.size() == 1);
    CHECK_FALSE(fs.store.service.stopped());
    write_file(fs, "later", values["first"]);
    REQUIRE(fs.step(true).ok());
}

// A tree whose nodes cannot be read, first by who lets groups go that hold nothing, then by the cleaner.
TEST_CASE("balance: it ends when groups cannot leave")
{
    for (const bool cleaner : {false, true}) {
        CAPTURE(cleaner);
        SimVolume volume({3, kMemberBytes, ProfileId::kRaid5, ProfileId::kSingle, kChunkBytes});
        make_and_mount(volume);
        Prng prng(seed());
        write_file(volume.fs(), "file", random_content(prng, 8 * kMiB));
        REQUIRE(volume.fs().step(true).ok());
        const BalanceOptions options{.profiles = volume.fs().volume->profiles(), .content = kGroupData};
        if (cleaner) {
            // Everything has moved, nothing has left.
            REQUIRE(start_balance(volume.fs(), options).ok());
            for (int step = 0; step < 1000; ++step) {
                const auto groups = volume.fs().store.allocator.group_numbers(kGroupData);
                const bool moved = std::any_of(groups.begin(), groups.end(), [&](const GroupNumbers& group) {
                    return volume.fs().store.remap.is_emptying(group.address) && group.live_blocks == 0;
                });
                if (moved)
                    break;
                if (volume.fs().balance_step() == CleanProgress::kNeedsCommit)
                    REQUIRE(volume.fs().step(true).ok());
            }
        } else {
            REQUIRE(volume.fs().names.unlink(kRoot, "file").ok());
            REQUIRE(volume.fs().step(true).ok());
            REQUIRE(volume.fs().step(true).ok());
        }
        REQUIRE(volume.unmount().ok());
        const std::vector<SpoiltBlock> spoilt = spoil_nodes(volume, kChecksumTree, prng);
        REQUIRE_FALSE(spoilt.empty());
        mount(volume, manual_options());
        if (!cleaner)
            REQUIRE(start_balance(volume.fs(), options).ok());
        const BalanceStatus status = finish(volume.fs());
        CHECK(status.state == State::kFinished);
        CHECK(status.groups_stuck == 1);
        CHECK_FALSE(volume.fs().store.service.stopped());
        CHECK(volume.fs().volume->superblock().balance == BalanceRecord());
        if (!cleaner)
            continue;
        // Who begins it again when the nodes can be read needs no other mount.
        for (const SpoiltBlock& block : spoilt)
            volume.member(block.member).poke(block.offset, block.content);
        REQUIRE(start_balance(volume.fs(), options).ok());
        CHECK(finish(volume.fs()).groups_stuck == 0);
    }
}

TEST_CASE("balance: writers keep the room that they were promised")
{
    SimVolume volume({4, kMemberBytes, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const uint64_t available = fs.statistics().available_blocks * kBlockBytes;
    const Result<Attributes> made = fs.names.make_node(kRoot, "reserved", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    REQUIRE(fs.files.allocate_range(made->inode, 0, 0, available / 100 * 75).ok());
    REQUIRE(fs.step(true).ok());
    // RAID1 has two thirds of what RAID5 has.
    CHECK(start_balance(fs, conversion(ProfileId::kRaid1, ProfileId::kRaid1)).err() == Err::kNoSpace);
    const std::vector<std::byte> content = random_content(prng, available / 100 * 70);
    REQUIRE(fs.files.write(made->inode, 0, content, {}, {}).ok());
    REQUIRE(fs.step(true).ok());
    // Groups that are half free are all emptied, and meanwhile what is free in them is for everybody.
    for (uint64_t offset = 0; offset < content.size(); offset += 128 * kKiB)
        REQUIRE(
            fs.files
                .allocate_range(made->inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, 64 * kKiB)
                .ok());
    for (int commit = 0; commit < 3; ++commit)
        REQUIRE(fs.step(true).ok());
    const uint64_t before = fs.statistics().available_blocks;
    REQUIRE(start_balance(fs, {.profiles = fs.volume->profiles(), .content = kGroupData}).ok());
    uint64_t least = before;
    for (int step = 0; step < 20000 && fs.committer.balance.status().state == State::kRunning; ++step) {
        if (fs.balance_step() == CleanProgress::kNeedsCommit)
            REQUIRE(fs.step(true).ok());
        least = std::min(least, fs.statistics().available_blocks);
    }
    CHECK(fs.committer.balance.status().state == State::kFinished);
    CHECK(least * 2 > before);
    CHECK(fs.statistics().available_blocks * 20 > before * 19);
}

TEST_CASE("balance: metadata does not become what there are no slots for")
{
    SimVolume volume({0, 0, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
    for (const uint64_t mib : {160, 160, 160, 80})
        volume.add_device(mib * kMiB);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    // As wide as there are members, until the smallest has nothing left.
    int files = 0;
    while (fs.volume->potential_blocks(kGroupData) * kBlockBytes > 160 * kMiB && files < 400) {
        write_file(fs, "file" + std::to_string(files++), random_content(prng, kMiB));
        if (files % 8 == 0)
            REQUIRE(fs.step(true).ok());
    }
    const uint64_t available = fs.statistics().available_blocks;
    std::string why;
    const BalanceOptions options{
        .profiles = {ProfileId::kRaid5, ProfileId::kRaid1c4}, .content = kNodes, .convert = true};
    CHECK(fs.committer.balance.start(options, why).err() == Err::kNoSpace);
    CHECK_MESSAGE(why.find("no room for metadata as raid1c4") != std::string::npos, why);
    CHECK(fs.committer.balance.status().state == State::kNone);
    CHECK(fs.statistics().available_blocks == available);
    // Of three members there are enough.
    REQUIRE(start_balance(fs, conversion(ProfileId::kRaid5, ProfileId::kRaid1c3)).ok());
    CHECK(finish(fs).state == State::kFinished);
    require_profiles(fs, ProfileId::kRaid5, ProfileId::kRaid1c3);
    REQUIRE(volume.unmount().ok());
    require_clean(volume);
}

// Metadata that takes more of the slots, and metadata that changes kind, beside data that is only reserved.
TEST_CASE("balance: of metadata, beside reserved data that takes all there is")
{
    for (const VolumeProfiles& nodes : {VolumeProfiles{ProfileId::kRaid1, ProfileId::kRaid1c4},
                                        VolumeProfiles{ProfileId::kRaid1, ProfileId::kRaid6},
                                        VolumeProfiles{ProfileId::kRaid5, ProfileId::kRaid1}}) {
        const ProfileId from = nodes.data, to = nodes.metadata;
        CAPTURE(find_profile(from)->name);
        CAPTURE(find_profile(to)->name);
        SimVolume volume({5, kMemberBytes, ProfileId::kRaid5, from, kChunkBytes});
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Prng prng(seed());
        for (int index = 0; index < 100; ++index) {
            const std::string name = "node" + std::to_string(index);
            const Result<Attributes> made = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {});
            REQUIRE(made.ok());
            REQUIRE(fs.names.set_xattr(made->inode, "user.a", random_content(prng, 60000), 0).ok());
            fs.names.forget(made->inode, 1);
        }
        const Result<Attributes> made = fs.names.make_node(kRoot, "reserved", S_IFREG | 0644, 0, {});
        REQUIRE(made.ok());
        REQUIRE(fs.step(true).ok());
        REQUIRE(fs.step(true).ok());
        const BalanceOptions options{
            .profiles = {ProfileId::kRaid5, to}, .content = kNodes, .convert = true, .force = true};
        // As much as it lets be reserved.
        const uint64_t available = fs.statistics().available_blocks * kBlockBytes;
        std::string why;
        uint64_t bytes = available / 100 * 99;
        REQUIRE(fs.files.allocate_range(made->inode, 0, 0, bytes).ok());
        while (bytes > available / 2 && !fs.committer.balance.start(options, why).ok()) {
            CHECK_MESSAGE(why.find("no room") != std::string::npos, why);
            bytes -= available / 100;
            REQUIRE(fs.files
                        .allocate_range(made->inode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, bytes,
                                        available / 100)
                        .ok());
            REQUIRE(fs.step(true).ok());
        }
        REQUIRE(fs.committer.balance.status().state == State::kRunning);
        MESSAGE((bytes * 100 / available), " % reserved");
        const uint64_t before = fs.statistics().available_blocks;
        uint64_t most = 0;
        for (int step = 0; step < 5000 && fs.committer.balance.status().state == State::kRunning; ++step) {
            const CleanProgress progress = fs.balance_step();
            if (progress == CleanProgress::kNothing)
                break;
            if (progress == CleanProgress::kNeedsCommit)
                REQUIRE(fs.step(true).ok());
            most = std::max(most, fs.statistics().available_blocks);
        }
        MESSAGE((before * kBlockBytes / kMiB), " MiB available, ", (most * kBlockBytes / kMiB), " at most, ",
                (fs.statistics().available_blocks * kBlockBytes / kMiB), " in the end");
        CHECK(fs.committer.balance.status().state == State::kFinished);
        require_profiles(fs, ProfileId::kRaid5, to);
        const std::vector<std::byte> content = random_content(prng, bytes);
        for (uint64_t offset = 0; offset < bytes; offset += 4 * kMiB) {
            const uint64_t length = std::min(4 * kMiB, bytes - offset);
            const std::span piece(content.data() + offset, length);
            REQUIRE(fs.files.write(made->inode, offset, piece, {}, {}).ok());
            REQUIRE(fs.step(true).ok());
        }
        CHECK_FALSE(fs.store.service.stopped());
        require_contents(fs, {{"reserved", content}});
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
}

namespace {

// As if other system trees had taken them: rows for system nodes, but for `left` blocks.
void take_system_rows(Filesystem& fs, uint64_t left)
{
    const uint64_t free_blocks = fs.store.allocator.numbers(kGroupSystem).free_row_blocks;
    REQUIRE(free_blocks > left);
    std::vector<RowRegion> regions;
    REQUIRE(fs.store.allocator
                .allocate(Stream::kSystem, kNodeBlocks, (free_blocks - left) / kNodeBlocks,
                          fs.store.timeline.open()->id, regions)
                .ok());
    refresh_budget(fs.store);
}

}  // namespace

// Old groups have much room for nodes of files, and what there is for all nodes is nearly full.
TEST_CASE("balance: metadata leaves parity, and system trees find room when that is cancelled")
{
    constexpr uint64_t kLeft = 3200;
    SimVolume volume({4, 224 * kMiB, ProfileId::kRaid5, ProfileId::kRaid5, kChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    for (int index = 0; index < 30; ++index)
        write_file(fs, "file" + std::to_string(index), random_content(prng, 10000));
    REQUIRE(fs.step(true).ok());
    BalanceOptions options{
        .profiles = {ProfileId::kRaid5, ProfileId::kRaid1}, .content = kNodes, .convert = true};
    REQUIRE(start_balance(fs, options).ok());
    const auto room_in = [&](uint32_t content) {
        uint64_t blocks = 0;
        for (const GroupNumbers& numbers : fs.store.allocator.group_numbers(kNodes))
            if (fs.volume->array().group_at(numbers.address)->record.content == content)
                blocks += numbers.open() ? numbers.free_row_blocks : 0;
        return blocks;
    };
    for (int commit = 0; commit < 20 && room_in(kNodes) == 0; ++commit) {
        write_file(fs, "step" + std::to_string(commit), random_content(prng, 10000));
        REQUIRE(fs.step(true).ok());
    }
    REQUIRE(room_in(kNodes) > 0);
    std::string why;
    REQUIRE(fs.committer.balance.cancel(why).ok());
    take_system_rows(fs, kLeft);
    REQUIRE(room_in(kGroupMetadata) > 2 * kLeft);
    for (int commit = 0; commit < 4; ++commit) {
        write_file(fs, "later" + std::to_string(commit), random_content(prng, 10000));
        REQUIRE(fs.step(true).ok());
    }
    CHECK(fs.store.allocator.numbers(kGroupSystem).free_row_blocks > kLeft);
}
