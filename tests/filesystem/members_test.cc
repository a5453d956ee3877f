// SPDX-License-Identifier: MIT
// Devices that become members of a mounted volume, and members that are removed from it.
#include "base/text.h"
#include "device/superblock_store.h"
#include "tests/filesystem/volume_contents.h"
#include "tests/filesystem/volume_shapes.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using State = BalanceStatus::State;

Result<MemberId> add(SimVolume& volume, uint32_t device)
{
    std::string why;
    auto added = volume.fs().committer.add_member(volume.borrow_one(device), why);
    CHECK_MESSAGE(added.ok() == why.empty(), why);
    return added;
}

Status start_removal(Filesystem& fs, MemberId member, std::string& why)
{
    return fs.committer.balance.start(
        {.profiles = fs.volume->profiles(), .content = kAllContent, .member = member}, why);
}

void remove(Filesystem& fs, MemberId member)
{
    std::string why;
    const Status started = start_removal(fs, member, why);
    REQUIRE_MESSAGE(started.ok(), why);
    const BalanceStatus status = finish(fs);
    CHECK(status.state == State::kFinished);
    CHECK(status.groups_stuck == 0);
}

std::vector<uint32_t> member_ids(Filesystem& fs)
{
    std::vector<uint32_t> ids;
    for (const MemberRecord& record : fs.volume->member_table())
        ids.push_back(record.id.value);
    return ids;
}

bool has_column_on(Filesystem& fs, MemberId member)
{
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups())
        for (const GroupColumn& column : group->record.columns)
            if (column.member == member)
                return true;
    return false;
}

bool is_blank(SimVolume& volume, uint32_t device)
{
    std::vector<std::byte> ring(kSuperblockSlotBytes * kSuperblockSlotCount);
    for (const uint64_t offset : kSuperblockRingOffset) {
        volume.member(device).peek(offset, ring);
        if (std::any_of(ring.begin(), ring.end(), [](std::byte byte) { return byte != std::byte{0}; }))
            return false;
    }
    return true;
}

}  // namespace

TEST_CASE("members: one is added, new groups use it, and as many may be lost as before")
{
    for (const VolumeShape& shape :
         {kRaid5, kRaid6, kNodesUnderParity, kMirrors, kSingle, kPairs, kStriped}) {
        CAPTURE(find_profile(shape.data_profile)->name);
        CAPTURE(find_profile(shape.metadata_profile)->name);
        SimVolume volume(shape);
        make_and_mount(volume);
        Prng prng(seed());
        Contents contents = fill(volume.fs(), prng, 5 * kMiB);
        const uint64_t before = volume.fs().statistics().total_blocks;
        const uint32_t device = volume.add_device(kMemberBytes);
        const auto added = add(volume, device);
        REQUIRE(added.ok());
        CHECK(added->value == shape.member_count + 1);
        CHECK(volume.fs().statistics().total_blocks > before);
        // Whatever there is moves into groups over all members.
        REQUIRE(
            start_balance(volume.fs(), {.profiles = volume.fs().volume->profiles(), .content = kAllContent})
                .ok());
        CHECK(finish(volume.fs()).state == State::kFinished);
        CHECK(has_column_on(volume.fs(), *added));
        contents["later"] = random_content(prng, 3 * kMiB);
        write_file(volume.fs(), "later", contents["later"]);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
        std::vector<uint32_t> absent;
        for (uint32_t member = 0; member < find_profile(shape.data_profile)->tolerance; ++member)
            absent.push_back(member);
        mount(volume, absent.empty() ? manual_options() : degraded_options(), absent);
        require_contents(volume.fs(), contents);
    }
}

TEST_CASE("members: one is removed, and as many of the others may be lost as before")
{
    for (const VolumeShape& shape : {kRaid5, kRaid6, kNodesUnderParity, kMirrors, kPairs}) {
        CAPTURE(find_profile(shape.data_profile)->name);
        CAPTURE(find_profile(shape.metadata_profile)->name);
        SimVolume volume(shape);
        make_and_mount(volume);
        Prng prng(seed());
        const Contents contents = fill(volume.fs(), prng, 9 * kMiB);
        REQUIRE(has_column_on(volume.fs(), {2}));
        remove(volume.fs(), {2});
        CHECK(member_ids(volume.fs()).size() == shape.member_count - 1);
        CHECK_FALSE(has_column_on(volume.fs(), {2}));
        CHECK(is_blank(volume, 1));
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {1});
        std::vector<uint32_t> absent = {1};
        for (uint32_t member = 0; absent.size() <= find_profile(shape.data_profile)->tolerance; member += 2)
            absent.push_back(member);
        mount(volume, degraded_options(), absent);
        require_contents(volume.fs(), contents);
    }
}

TEST_CASE("members: a removal that ends with the next commit may be asked to go on before it")
{
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    Prng prng(seed());
    const Contents contents = fill(volume.fs(), prng, 5 * kMiB);
    std::string why;
    REQUIRE_MESSAGE(start_removal(volume.fs(), {2}, why).ok(), why);
    for (int burst = 0; burst < 300 && volume.fs().committer.balance.status().active(); ++burst) {
        continue_balance(volume.fs(), 50, false);
        const bool runs = volume.fs().volume->superblock().balance.state == BalanceState::kRunning;
        if (runs && volume.fs().volume->balance_ends())
            CHECK(volume.fs().balance_step() == CleanProgress::kNeedsCommit);
        REQUIRE(volume.fs().step(true).ok());
    }
    volume.fs().balance_step();
    CHECK(volume.fs().committer.balance.status().state == State::kFinished);
    CHECK(member_ids(volume.fs()).size() == kRaid5.member_count - 1);
    require_contents(volume.fs(), contents);
}

TEST_CASE("members: one that is missing is removed, and the volume is whole again")
{
    for (const VolumeShape& shape : {kRaid5, kRaid6, kMirrors, kPairs}) {
        CAPTURE(find_profile(shape.data_profile)->name);
        SimVolume volume(shape);
        make_and_mount(volume);
        Prng prng(seed());
        const Contents contents = fill(volume.fs(), prng, 9 * kMiB);
        REQUIRE(volume.unmount().ok());
        mount(volume, degraded_options(), {2});
        CHECK(volume.fs().volume->degraded());
        remove(volume.fs(), {3});
        CHECK_FALSE(volume.fs().volume->degraded());
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        // When its device is there again it is nobody's.
        mount(volume, manual_options());
        CHECK(member_ids(volume.fs()).size() == shape.member_count - 1);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {2});
    }
}

TEST_CASE("members: one that was taken offline is removed, and erased where it can be written")
{
    for (const bool reachable : {true, false}) {
        CAPTURE(reachable);
        SimVolume volume(kRaid5);
        make_and_mount(volume);
        Prng prng(seed());
        const Contents contents = fill(volume.fs(), prng, 5 * kMiB);
        std::string why;
        REQUIRE_MESSAGE(volume.fs().committer.offline_member({3}, why).ok(), why);
        CHECK_FALSE(is_blank(volume, 2));
        if (!reachable)
            volume.cable(2).add_rule({.kinds = kFaultWrites});
        remove(volume.fs(), {3});
        CHECK(is_blank(volume, 2) == reachable);
        CHECK(member_ids(volume.fs()) == std::vector<uint32_t>{1, 2, 4});
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {2});
        mount(volume, manual_options(), {2});
        require_contents(volume.fs(), contents);
    }
}

TEST_CASE("members: killed or cut off at any time, a removal goes on by itself")
{
    Prng prng(seed());
    for (const int steps : {0, 1, 2, 3, 5, 8, 13, 21}) {
        CAPTURE(steps);
        SimVolume volume(kRaid5);
        make_and_mount(volume);
        const Contents contents = fill(volume.fs(), prng, 5 * kMiB);
        std::string why;
        REQUIRE(start_removal(volume.fs(), {1}, why).ok());
        bool removed = false;
        for (int mounts = 0; mounts < 200 && !removed; ++mounts) {
            continue_balance(volume.fs(), steps + mounts, true);
            require_contents(volume.fs(), contents);
            crash(volume, prng);
            // Its superblocks are erased once it is nobody's; until then it is a member.
            const bool blank = is_blank(volume, 0);
            std::vector<uint32_t> without;
            if (blank)
                without.push_back(0);
            mount(volume, manual_options(), without);
            removed = member_ids(volume.fs()).size() == 3;
            CHECK((removed || !blank));
        }
        CHECK(removed);
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {0});
    }
}

TEST_CASE("members: power fails at every write of adding one; before or after, all is there")
{
    Prng prng(seed());
    uint64_t events = 0;
    uint32_t with = 0, without = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; cut = next_cut(cut)) {
        CAPTURE(cut);
        SimVolume volume(kRaid5);
        make_and_mount(volume);
        Contents contents;
        contents["file"] = random_content(prng, 600 * kKiB);
        write_file(volume.fs(), "file", contents["file"]);
        REQUIRE(volume.fs().step(true).ok());
        const uint32_t device = volume.add_device(kMemberBytes);
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        std::string why;
        const auto added = volume.fs().committer.add_member(volume.borrow_one(device), why);
        if (cut == 0) {
            REQUIRE(added.ok());
            events = volume.power().events() - begin;
        }
        CHECK((added.ok() || cut > 0));
        volume.power_cut(prng);
        volume.power().turn_on();
        // A scan finds what has a superblock. Before, the others may be used without the new one.
        const bool found = read_rings(*volume.borrow_one(device)).ok();
        if (std::string ignored; volume.mount(manual_options(), ignored, {device}).ok()) {
            write_file(volume.fs(), "alone", contents["file"]);
            REQUIRE(volume.unmount().ok());
        }
        mount(volume, manual_options(), found ? std::vector<uint32_t>{} : std::vector<uint32_t>{device});
        const size_t members = member_ids(volume.fs()).size();
        CHECK((members == 5 || (members == 4 && !added.ok())));
        (members == 5 ? with : without) += 1;
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, members == 5 ? std::vector<uint32_t>{} : std::vector<uint32_t>{device});
    }
    CHECK(with > 2 / kCutStep);
    CHECK(without > 2 / kCutStep);
}

TEST_CASE("members: power fails at every write of a replacement, with the old device still there")
{
    Prng prng(seed());
    uint64_t events = 0;
    int old = 0, renewed = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; cut = next_cut(cut)) {
        CAPTURE(cut);
        SimVolume volume(kRaid5);
        make_and_mount(volume);
        Contents contents = fill(volume.fs(), prng, kMiB);
        REQUIRE(volume.unmount().ok());
        mount(volume, degraded_options(), {1});
        contents["without"] = random_content(prng, 300 * kKiB);
        write_file(volume.fs(), "without", contents["without"]);
        REQUIRE(volume.fs().step(true).ok());
        const uint32_t device = volume.add_device(kMemberBytes);
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        std::string why;
        const Status replaced = volume.fs().committer.replace_member({2}, volume.borrow_one(device), why);
        if (cut == 0)
            events = volume.power().events() - begin;
        CHECK((replaced.ok() || cut > 0));
        volume.power_cut(prng);
        volume.power().turn_on();
        const bool found = read_rings(*volume.borrow_one(device)).ok();
        mount(volume, degraded_options(), found ? std::vector<uint32_t>{} : std::vector<uint32_t>{device});
        const bool in_service = volume.fs().volume->members().device({2}) != nullptr;
        (in_service && volume.fs().volume->members().path({2}) == "member5" ? renewed : old) += 1;
        CHECK((!replaced.ok() || in_service));
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
    }
    CHECK(old > 5 / kCutStep);
    CHECK(renewed > 1 / kCutStep);
}

TEST_CASE("members: power fails at every write of a member that comes back")
{
    Prng prng(seed());
    uint64_t events = 0;
    int back = 0, away = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; cut = next_cut(cut)) {
        CAPTURE(cut);
        SimVolume volume(kRaid5);
        make_and_mount(volume);
        Contents contents = fill(volume.fs(), prng, kMiB);
        volume.cable(1).add_rule({.kinds = kFaultWrites});
        contents["without"] = random_content(prng, 300 * kKiB);
        write_file(volume.fs(), "without", contents["without"]);
        REQUIRE(volume.fs().step(true).ok());
        REQUIRE(volume.fs().volume->members().device({2}) == nullptr);
        volume.cable(1).remove_all_rules();
        const Generation known = volume.fs().volume->superblock().generation;
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        std::string why;
        const auto online = volume.fs().committer.online_member({2}, nullptr, why);
        if (cut == 0)
            events = volume.power().events() - begin;
        CHECK((online.ok() || cut > 0));
        volume.power_cut(prng);
        volume.power().turn_on();
        const bool present = read_rings(*volume.borrow_one(1))->valid.front().generation > known;
        CHECK((present || !online.ok()));
        (present ? back : away) += 1;
        // The others may go on without it, once more.
        if (prng.chance(1, 2)) {
            mount(volume, degraded_options(), {1});
            require_contents(volume.fs(), contents);
            contents["alone"] = random_content(prng, 100 * kKiB);
            write_file(volume.fs(), "alone", contents["alone"]);
            REQUIRE(volume.unmount().ok());
        }
        mount(volume, manual_options());
        require_contents(volume.fs(), contents);
        for (int step = 0; step < 1000 && volume.fs().catch_up_step().ok(); ++step)
            if (step % 8 == 7)
                REQUIRE(volume.fs().step(true).ok());
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
        mount(volume, degraded_options(), {static_cast<uint32_t>(prng.chance(1, 2) ? 0 : 3)});
        require_contents(volume.fs(), contents);
    }
    CHECK(back > 0);
    CHECK(away > 5 / kCutStep);
}

TEST_CASE("members: a device that fails while it is added is no member, and the volume goes on")
{
    Prng prng(seed());
    for (const VolumeShape& shape : {kSingle, kMirrors, kRaid5, kStriped, kPairs}) {
        CAPTURE(shape.member_count);
        SimVolume volume(shape);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        const Contents contents = fill(fs, prng, 3 * kMiB);
        std::vector<uint32_t> others;
        for (uint64_t good = 0;; ++good) {
            REQUIRE(good < 100);
            const uint32_t device = volume.add_device(kMemberBytes);
            volume.cable(device).add_rule({.kinds = kFaultWrites | kFaultFlushes, .skip = good});
            std::string why;
            const auto added = fs.committer.add_member(volume.borrow_one(device), why);
            CHECK_FALSE(fs.store.service.stopped());
            if (added.ok())
                break;
            CHECK(added.err() == Err::kIo);
            CHECK(member_ids(fs).size() == shape.member_count);
            CHECK_FALSE(fs.volume->degraded());
            REQUIRE(fs.step(true).ok());
            others.push_back(device);
        }
        CHECK(others.size() > 2);
        CHECK(member_ids(fs).size() == shape.member_count + 1);
        require_contents(fs, contents);
        others.push_back(others.back() + 1);
        volume.kill();
        mount(volume, degraded_options(), others);
        require_contents(volume.fs(), contents);
    }
}

TEST_CASE("members: a removal is asked to rest between any of its steps, and ends all the same")
{
    Prng prng(seed());
    int too_late = 0;
    for (int round = 0; round < 24; ++round) {
        const VolumeShape& shape = round % 2 == 0 ? kRaid5 : kMirrors;
        SimVolume volume(shape);
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        const Contents contents = fill(fs, prng, 5 * kMiB);
        std::string why;
        REQUIRE(start_removal(fs, {1}, why).ok());
        for (int step = 0; step < 2000 && fs.committer.balance.status().state == State::kRunning; ++step) {
            const bool commits = fs.balance_step() == CleanProgress::kNeedsCommit;
            if (!commits || prng.chance(3, 4)) {
                REQUIRE((!commits || fs.step(true).ok()));
                continue;
            }
            const Status paused = fs.committer.balance.pause(why);
            CHECK((paused.ok() || paused.err() == Err::kInvalid));
            too_late += paused.ok() ? 0 : 1;
            if (paused.ok())
                REQUIRE(fs.committer.balance.resume(why).ok());
        }
        CHECK(fs.committer.balance.status().state == State::kFinished);
        CHECK(member_ids(fs).size() == shape.member_count - 1);
        require_contents(fs, contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume, {0});
    }
    CHECK(too_late > 2);  // between its last step and the commit that it asked for
}

TEST_CASE("members: resuming a removal asks for room anew")
{
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const Contents contents = fill(fs, prng, 5 * kMiB);
    std::string why;
    REQUIRE(start_removal(fs, {1}, why).ok());
    REQUIRE(fs.committer.balance.pause(why).ok());
    const Result<Attributes> made = fs.names.make_node(kRoot, "reserved", S_IFREG | 0644, 0, {});
    REQUIRE(made.ok());
    const uint64_t available = fs.statistics().available_blocks * kBlockBytes;
    REQUIRE(fs.files.allocate_range(made->inode, 0, 0, available / 100 * 90).ok());
    REQUIRE(fs.step(true).ok());
    CHECK(fs.committer.balance.resume(why).err() == Err::kNoSpace);
    CHECK_MESSAGE(why.find("no room") != std::string::npos, why);
    CHECK(fs.committer.balance.status().state == State::kPaused);
    REQUIRE(fs.files.write(made->inode, 0, random_content(prng, available / 100 * 90), {}, {}).ok());
    REQUIRE(fs.step(true).ok());
    require_contents(fs, contents);
}

TEST_CASE("members: what a removal has done is not undone by what comes while it rests")
{
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    Contents contents = fill(fs, prng, 5 * kMiB);
    std::string why;
    REQUIRE(start_removal(fs, {1}, why).ok());
    BalanceStatus before;
    for (int step = 0; step < 1000 && before.groups_left == before.groups_total; ++step) {
        if (fs.balance_step() == CleanProgress::kNeedsCommit)
            REQUIRE(fs.step(true).ok());
        before = fs.committer.balance.status();
    }
    REQUIRE(before.state == State::kRunning);
    REQUIRE(before.groups_left < before.groups_total);
    REQUIRE(fs.committer.balance.pause(why).ok());
    for (int index = 0; index < 10; ++index) {
        const std::string name = "more" + std::to_string(index);
        contents[name] = random_content(prng, 4 * kMiB);
        write_file(fs, name, contents[name]);
        REQUIRE(fs.step(true).ok());
    }
    REQUIRE_MESSAGE(fs.committer.balance.resume(why).ok(), why);
    fs.balance_step();
    const BalanceStatus after = fs.committer.balance.status();
    CHECK(after.bytes_left > before.bytes_left);
    CHECK(after.groups_total - after.groups_left >= before.groups_total - before.groups_left);
    CHECK(after.bytes_total >= after.bytes_left);
    CHECK(after.bytes_total - after.bytes_left + kMiB >= before.bytes_total - before.bytes_left);
    CHECK(finish(fs).state == State::kFinished);
    require_contents(fs, contents);
}

TEST_CASE("members: a removal rests when another member fails, because its own is needed then")
{
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const Contents contents = fill(fs, prng, 5 * kMiB);
    std::string why;
    REQUIRE(start_removal(fs, {1}, why).ok());
    fs.balance_step();
    volume.cable(2).add_rule({.kinds = kFaultWrites | kFaultFlushes});
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.volume->degraded());
    continue_balance(fs, 100, true);
    CHECK(fs.committer.balance.status().state == State::kPaused);
    const std::string steps = "bring back or replace what is out of service, or add a device";
    CHECK_FALSE(fs.volume->members().leaving({1}));
    CHECK(fs.committer.balance.resume(why).err() == Err::kInvalid);
    CHECK(why == "without member 1 too few devices are in service; " + steps +
                     "; cowraid balance cancel keeps the member");
    // Another device is one of these ways.
    REQUIRE_MESSAGE(add(volume, volume.add_device(kMemberBytes)).ok(), why);
    REQUIRE_MESSAGE(fs.committer.balance.resume(why).ok(), why);
    REQUIRE(fs.committer.balance.pause(why).ok());
    // First the one that failed, then this one.
    REQUIRE(fs.committer.balance.cancel(why).ok());
    REQUIRE(fs.step(true).ok());
    remove(fs, {3});
    require_contents(fs, contents);
    CHECK(member_ids(fs) == std::vector<uint32_t>{1, 2, 4, 5});
}

TEST_CASE("members: a device that has grown is used, and power may fail at every write of that")
{
    Prng prng(seed());
    uint64_t events = 0;
    int grown = 0, as_before = 0;
    for (uint64_t cut = 0; cut == 0 || cut < events; cut = next_cut(cut)) {
        CAPTURE(cut);
        SimVolume volume(kMirrors);
        make_and_mount(volume);
        const Contents contents = fill(volume.fs(), prng, kMiB);
        const uint64_t before = volume.fs().statistics().total_blocks;
        std::string why;
        CHECK(volume.fs().committer.grow_member({1}, why).err() == Err::kInvalid);
        CHECK(why.find("no more than before") != std::string::npos);
        // Less than a slot is of no use, and nobody says that it is used.
        volume.member(0).enlarge(kMemberBytes + kMinSlotBytes / 2);
        CHECK(volume.fs().committer.grow_member({1}, why).err() == Err::kInvalid);
        const MemberRecord line = volume.fs().volume->member_table().front();
        const std::string next = size_text(line.slots_offset + (line.slot_count + 1) * line.slot_bytes);
        CHECK(why.ends_with("it grows by steps of " + size_text(line.slot_bytes) + ", to " + next + " next"));
        REQUIRE(volume.fs().step(true).ok());
        CHECK(volume.fs().volume->member_table().front().size_bytes == kMemberBytes);
        for (uint32_t member = 0; member < 3; ++member)
            volume.member(member).enlarge(2 * kMemberBytes);
        const uint64_t begin = volume.power().events();
        if (cut > 0)
            volume.power().arm(cut);
        const auto size = volume.fs().committer.grow_member({1}, why);
        if (cut == 0) {
            REQUIRE(size.ok());
            CHECK(*size == 2 * kMemberBytes);
            events = volume.power().events() - begin;
            REQUIRE(volume.fs().committer.grow_member({2}, why).ok());
            CHECK(volume.fs().statistics().total_blocks > before + kMemberBytes / kBlockBytes / 10 * 9);
            CHECK(volume.fs().committer.grow_member({4}, why).err() == Err::kInvalid);
            // Into the new slots.
            const uint64_t room = volume.fs().statistics().available_blocks * kBlockBytes;
            const std::vector<std::byte> large = random_content(prng, room / 10 * 9);
            write_file(volume.fs(), "beyond", large);
            REQUIRE(volume.fs().step(true).ok());
            volume.kill();
            mount(volume, manual_options());
            require_contents(volume.fs(), {{"beyond", large}});
        }
        volume.power_cut(prng);
        volume.power().turn_on();
        mount(volume, manual_options());
        const bool now = volume.fs().volume->member_table().front().size_bytes == 2 * kMemberBytes;
        CHECK((now || !size.ok()));
        (now ? grown : as_before) += 1;
        require_contents(volume.fs(), contents);
        REQUIRE(volume.unmount().ok());
        require_clean(volume);
    }
    CHECK(grown > 1 / kCutStep);
    CHECK(as_before > 2 / kCutStep);
}

TEST_CASE("members: what would not do is refused, and nothing changes")
{
    SimVolume volume(kMirrors);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const Contents contents = fill(fs, prng, 4 * kMiB);
    std::string why;
    CHECK(fs.committer.add_member(volume.borrow_one(volume.add_device(32 * kMiB)), why).err() ==
          Err::kInvalid);
    CHECK(why.find("members have 64.00MiB") != std::string::npos);
    const uint32_t dead = volume.add_device(kMemberBytes);
    volume.cable(dead).add_rule({.kinds = kFaultWrites});
    CHECK(fs.committer.add_member(volume.borrow_one(dead), why).err() == Err::kIo);
    CHECK(why.find("cannot be written") != std::string::npos);
    CHECK(member_ids(fs).size() == 3);
    CHECK(start_removal(fs, {7}, why).err() == Err::kInvalid);
    CHECK(why.find("there is no member 7") != std::string::npos);
    CHECK(fs.volume->superblock().balance == BalanceRecord());
    remove(fs, {1});
    CHECK(start_removal(fs, {2}, why).err() == Err::kInvalid);
    CHECK_MESSAGE(why.find("too few devices") != std::string::npos, why);
    CHECK(member_ids(fs) == std::vector<uint32_t>{2, 3});
    require_contents(fs, contents);
    // A member comes in its place, with a number of its own.
    const uint32_t device = volume.add_device(kMemberBytes);
    const auto added = add(volume, device);
    REQUIRE(added.ok());
    CHECK(added->value == 4);
    remove(fs, {2});
    CHECK(member_ids(fs) == std::vector<uint32_t>{3, 4});
    require_contents(fs, contents);
}

TEST_CASE("members: a removal that would not fit is refused; cancelled, the member takes blocks again")
{
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    const uint64_t available = fs.statistics().available_blocks * kBlockBytes;
    const Contents contents = fill(fs, prng, available / 10 * 8);
    std::string why;
    CHECK(start_removal(fs, {1}, why).err() == Err::kNoSpace);
    CHECK(why.find("add devices") != std::string::npos);
    const uint32_t device = volume.add_device(kMemberBytes);
    REQUIRE(add(volume, device).ok());
    REQUIRE(start_removal(fs, {1}, why).ok());
    CHECK(fs.committer.balance.status().member.value == 1);
    continue_balance(fs, 5, true);
    REQUIRE(fs.committer.balance.cancel(why).ok());
    CHECK_FALSE(fs.volume->members().leaving({1}));
    const Status again = start_removal(fs, {1}, why);
    REQUIRE_MESSAGE(again.ok(), why);
    CHECK(fs.volume->members().leaving({1}));
    CHECK(finish(fs).state == State::kFinished);
    CHECK(member_ids(fs) == std::vector<uint32_t>{2, 3, 4, 5});
    require_contents(fs, contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume, {0});
}

TEST_CASE("members: beside writers, one comes and one goes, again and again")
{
    SimVolume volume(kRaid5);
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    Contents contents = fill(fs, prng, 7 * kMiB);
    std::vector<uint32_t> gone;
    for (uint32_t oldest = 1; oldest <= 4; ++oldest) {
        REQUIRE(add(volume, volume.add_device(kMemberBytes)).ok());
        std::string why;
        REQUIRE(start_removal(fs, {oldest}, why).ok());
        for (int number = 0; number < 5000; ++number) {
            if (fs.committer.balance.status().state != State::kRunning)
                break;
            if (fs.balance_step() == CleanProgress::kNeedsCommit || prng.chance(1, 8))
                REQUIRE(fs.step(true).ok());
            change_one(fs, prng, contents);
            if (prng.chance(1, 4))
                REQUIRE(fs.committer.fsync(find_file(fs, contents.begin()->first), Committer::SyncWhat::kAll)
                            .ok());
        }
        CHECK(fs.committer.balance.status().state == State::kFinished);
        gone.push_back(oldest - 1);
        REQUIRE(fs.step(true).ok());
        require_contents(fs, contents);
    }
    CHECK(member_ids(fs) == std::vector<uint32_t>{5, 6, 7, 8});
    volume.power_cut(prng);
    mount(volume, manual_options(), gone);
    require_contents(volume.fs(), contents);
    REQUIRE(volume.unmount().ok());
    require_clean(volume, gone);
}

TEST_CASE("adding: a device that cannot become a member keeps what is on it")
{
    SimVolume volume({3, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 16 * kKiB});
    make_and_mount(volume);
    REQUIRE(volume.unmount().ok());
    // No number is left.
    for (uint32_t member = 0; member < 3; ++member)
        for (const uint64_t ring : kSuperblockRingOffset)
            for (uint64_t slot = 0; slot < kSuperblockSlotCount; ++slot) {
                std::vector<std::byte> bytes(kSuperblockSlotBytes);
                volume.member(member).peek(ring + slot * kSuperblockSlotBytes, bytes);
                Result<Superblock> superblock = decode_superblock(bytes);
                if (!superblock.ok())
                    continue;
                superblock->next_member_id = UINT32_MAX;
                volume.member(member).poke(ring + slot * kSuperblockSlotBytes,
                                           encode_superblock(*superblock));
            }
    mount(volume, manual_options());
    Prng prng(seed());
    const uint32_t index = volume.add_device(96 * kMiB);
    const std::vector<std::byte> content = random_content(prng, 96 * kMiB);
    volume.member(index).poke(0, content);
    std::string why;
    CHECK(volume.fs().committer.add_member(volume.borrow_one(index), why).err() == Err::kInvalid);
    CHECK(why.find("as many members as it can") != std::string::npos);
    std::vector<std::byte> after(content.size());
    volume.member(index).peek(0, after);
    CHECK(same(after, content));
    REQUIRE(volume.unmount().ok());
}
