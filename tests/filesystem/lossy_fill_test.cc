// SPDX-License-Identifier: MIT
// A lost member is filled while blocks of another one are bad: with raid5 exactly these rows lose something,
// the files are named, and filling ends; with raid6 nothing is lost.
#include <algorithm>
#include <set>

#include "fs/maintain/damaged_files.h"
#include "tests/filesystem/fill_steps.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

using Addresses = std::set<uint64_t>;

constexpr uint32_t kLost = 1;
constexpr VolumeShape kSmallChunks5{4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 16 * kKiB};
constexpr VolumeShape kSmallChunks6{5, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 16 * kKiB};
constexpr VolumeShape kPairsOfTwo{4, 96 * kMiB, ProfileId::kRaid10, ProfileId::kRaid1c3, 16 * kKiB};

// Rows in use that both members have a part of, where the survivor's is going to be bad.
class BadRows {
public:
    // Every other bad block is wrong, and the others cannot be read; or all of the first group are wrong.
    enum class Mixed : uint8_t { kInGroups, kByGroup };
    explicit BadRows(StaleWorld& world, uint32_t survivor_index = 2, Mixed mixed = Mixed::kInGroups)
        : survivor(survivor_index), world_(world), mixed_(mixed)
    {
        for (const Ref<const ArrayGroup>& group : world.fs->volume->array().groups())
            if ((group->record.content & kGroupData) != 0)
                for (uint64_t stripe = 0; stripe < group->geometry.stripe_count(); ++stripe)
                    for (uint32_t row = 0; row < group->geometry.rows(); ++row)
                        look_at(*group, stripe, row);
    }
    void spoil()
    {
        for (const uint64_t offset : wrong)
            world_.volume.member(survivor).poke(offset, std::vector<std::byte>(kBlockBytes, std::byte{0x5a}));
        for (const uint64_t offset : unreadable)
            rules_.push_back(world_.volume.cable(survivor).add_rule({.action = FaultAction::kLatent,
                                                                     .kinds = kFaultReads,
                                                                     .begin = offset,
                                                                     .end = offset + kBlockBytes}));
    }
    void mend_unreadable()
    {
        for (const size_t rule : rules_)
            world_.volume.cable(survivor).remove_rule(rule);
    }

    const uint32_t survivor;
    std::vector<uint64_t> wrong, unreadable;  // on it
    // What is beyond the redundancy of one parity or copy: of all these rows, of those with wrong blocks.
    Addresses lost, lost_to_wrong;
    uint32_t data = 0, parity = 0, of_lost_member = 0;  // rows by what the survivor has in them; lost blocks

private:
    void look_at(const ArrayGroup& group, uint64_t stripe, uint32_t row)
    {
        const Geometry& geometry = group.geometry;
        std::set<uint64_t> used[2];
        bool any = false, both = false;
        uint64_t offset = 0;
        uint32_t column = UINT32_MAX;
        for (uint32_t cell = 0; cell < geometry.columns(); ++cell) {
            const BlockPlace place{stripe, cell / geometry.copies, row};
            const uint32_t at = group_column(geometry, stripe, place.column, cell % geometry.copies);
            const MemberId member = group.record.columns[at].member;
            const VolumeAddress address = group.record.address + offset_of(geometry, place);
            const bool in_use =
                place.column < geometry.data_columns && *world_.fs->store.allocator.is_used(address);
            any = any || in_use;
            both = both || member == MemberId{kLost + 1};
            if (member == MemberId{survivor + 1}) {
                offset = group.locate(at, column_offset(geometry, place)).offset.value;
                column = place.column;
            }
            if (in_use && (member == MemberId{survivor + 1} || member == MemberId{kLost + 1}))
                used[member == MemberId{kLost + 1} ? 1 : 0].insert(address.value);
        }
        if (!any || !both || column == UINT32_MAX || rows_++ % 3 != 0)
            return;
        if (!first_.valid())
            first_ = group.record.address;
        const bool is_wrong = mixed_ == Mixed::kByGroup ? group.record.address == first_
                                                        : (wrong.size() + unreadable.size()) % 2 == 0;
        (is_wrong ? wrong : unreadable).push_back(offset);
        (column < geometry.data_columns ? data : parity) += 1;
        for (const std::set<uint64_t>& blocks : used) {
            lost.insert(blocks.begin(), blocks.end());
            if (is_wrong)
                lost_to_wrong.insert(blocks.begin(), blocks.end());
        }
        of_lost_member += static_cast<uint32_t>(used[1].size());
    }

    StaleWorld& world_;
    const Mixed mixed_;
    VolumeAddress first_{0};
    std::vector<size_t> rules_;
    uint64_t rows_ = 0;
};

// Files of all sizes, of which some are gone again, so that rows are partly free.
void fill_world(StaleWorld& world, size_t large_bytes = 2 * kMiB + 100)
{
    world.mount();
    world.write("large", large_bytes);
    for (int file = 0; file < 40; ++file)
        world.write("small" + std::to_string(file), 1 + world.prng.below(30000));
    for (int file = 0; file < 40; file += 3) {
        const std::string name = "small" + std::to_string(file);
        REQUIRE(world.fs->names.unlink({kRootInode}, name).ok());
        world.files.erase(name);
    }
    REQUIRE(world.fs->step(true).ok());
    world.unmount();
    world.mount(degraded_options(), {kLost});
    world.write("without", 300 * kKiB);
}

Addresses listed(StaleWorld& world)
{
    Addresses addresses;
    for (const DamagedRun& run : world.fs->store.damage.runs())
        for (uint64_t block = 0; block < run.block_count; ++block)
            addresses.insert(run.first.value + block * kBlockBytes);
    return addresses;
}

Addresses lost_by(const ScrubStatus& status)
{
    Addresses addresses;
    for (const VolumeAddress address : status.lost_addresses)
        addresses.insert(address.value);
    CHECK(status.lost == addresses.size());
    return addresses;
}

std::vector<MemberCounters> counters_but_reads(StaleWorld& world)
{
    std::vector<MemberCounters> counters;
    for (const MemberInfo& member : world.fs->info().members) {
        counters.push_back(member.counters);
        counters.back()[static_cast<size_t>(MemberCounter::kReadErrors)] = 0;
    }
    return counters;
}

// The list names exactly the files that cannot be read.
void require_named(StaleWorld& world)
{
    std::set<std::string> named, broken;
    const auto found = find_damaged_files(world.fs->store, 1000);
    REQUIRE(found.ok());
    for (const DamagedFile& file : found->files)
        named.insert(file.paths.begin(), file.paths.end());
    for (const auto& [name, content] : world.files) {
        std::vector<std::byte> have(content.size());
        const Result<Attributes> at = world.fs->names.lookup({kRootInode}, name);
        REQUIRE(at.ok());
        if (!world.fs->files.read(at->inode, 0, have).ok())
            broken.insert("/" + name);
        else
            REQUIRE(same(have, content));
    }
    CHECK(named == broken);
    CHECK(world.read_back() == broken.size());
    CHECK_FALSE(broken.empty());
}

void rewrite_files(StaleWorld& world)
{
    const ManyFiles files = world.files;
    for (const auto& [name, content] : files)
        world.write(name, content.size());
}

// Everything is there, and nothing is to be done.
void require_whole(StaleWorld& world)
{
    CHECK(world.fs->store.damage.empty());
    CHECK_FALSE(scrub_all(world).damaged());
    const ScrubStatus quiet = scrub_all(world);
    CHECK(quiet.repaired == 0);
    CHECK(quiet.adopted == 0);
    CHECK_FALSE(quiet.damaged());
    CHECK(world.read_back() == 0);
    CHECK(world.stale_groups() == 0);
    CHECK(world.wrong_blocks(kLost) == 0);
    world.unmount();
    CHECK(world.check().clean());
    world.mount(degraded_options(), {0});
    CHECK(world.read_back() == 0);
}

}  // namespace

TEST_CASE("filling beyond redundancy: exactly what is lost is listed, and the rest of the member is current")
{
    for (const VolumeShape& shape : {kSmallChunks5, kPairsOfTwo}) {
        CAPTURE(static_cast<uint32_t>(shape.data_profile));
        StaleWorld world(shape);
        fill_world(world);
        BadRows bad(world, shape.data_profile == ProfileId::kRaid5 ? 2 : 0);
        REQUIRE(bad.data > 20);
        REQUIRE(bad.of_lost_member > 20);
        REQUIRE((bad.parity > 10) == (shape.data_profile == ProfileId::kRaid5));
        bad.spoil();
        replace(world, kLost);
        const ScrubStatus filled = catch_up(world);
        CHECK(filled.state == ScrubState::kFinished);
        CHECK(lost_by(filled) == bad.lost);
        CHECK(filled.unrepaired == 0);
        CHECK(world.stale_groups() == 0);
        CHECK(listed(world) == bad.lost);
        require_named(world);
        // It was no fault of the new device, and is none of it later.
        CHECK(world.wrong_blocks(kLost) == 0);
        const uint64_t charged = world.wrong_blocks(bad.survivor);
        CHECK(charged <= bad.wrong.size());
        for (int mount = 0; mount < 2; ++mount) {
            const ScrubStatus again = scrub_all(world);
            CHECK(lost_by(again) == bad.lost);
            CHECK(again.repaired == 0);
            // Nothing is found but what is lost, and nobody is charged any more, except for reads that fail.
            const std::vector<MemberCounters> known = counters_but_reads(world);
            const ScrubStatus quiet = scrub_all(world);
            CHECK(lost_by(quiet) == bad.lost);
            CHECK(quiet.repaired + quiet.unrepaired + quiet.adopted + quiet.unreadable_nodes == 0);
            CHECK(counters_but_reads(world) == known);
            require_named(world);
            CHECK(world.wrong_blocks(kLost) == 0);
            CHECK(world.wrong_blocks(bad.survivor) == charged);
            CHECK(world.stale_groups() == 0);
            world.unmount();
            world.mount();
            CHECK(listed(world) == bad.lost);
            CHECK(world.stale_groups() == 0);
            CHECK(world.fs->catch_up_step().err() == Err::kNotFound);
        }
        rewrite_files(world);
        require_whole(world);
    }
}

TEST_CASE("filling beyond redundancy: an error that passes before the end leaves nothing behind")
{
    StaleWorld world(kSmallChunks5);
    fill_world(world);
    BadRows bad(world);
    bad.spoil();
    replace(world, kLost);
    Scrub& filling = world.fs->committer.catch_up;
    REQUIRE(filling.start({.limit = 8 * kMiB}).ok());  // in pieces
    for (int step = 0; step < 1000 && filling.status().lost < 10; ++step)
        REQUIRE(filling.step());
    REQUIRE(filling.status().state == ScrubState::kRunning);
    bad.mend_unreadable();
    CHECK(lost_by(catch_up(world)) == bad.lost_to_wrong);
    CHECK(world.stale_groups() == 0);
    CHECK(listed(world) == bad.lost_to_wrong);
    const ScrubStatus again = scrub_all(world);
    CHECK(lost_by(again) == bad.lost_to_wrong);
    CHECK(again.repaired == 0);
    require_named(world);
    rewrite_files(world);
    require_whole(world);
}

TEST_CASE("filling beyond redundancy: what a pass lost for good the one that follows it does not forget")
{
    StaleWorld world(kSmallChunks5);
    fill_world(world, 52 * kMiB);
    BadRows bad(world, 2, BadRows::Mixed::kByGroup);
    REQUIRE(bad.lost_to_wrong.size() > 100);
    REQUIRE(bad.lost.size() > bad.lost_to_wrong.size() + 20);
    bad.spoil();
    replace(world, kLost);
    Scrub& filling = world.fs->committer.catch_up;
    REQUIRE(filling.start({.limit = 8 * kMiB}).ok());  // in pieces
    for (int step = 0; step < 1000 && filling.status().lost <= bad.lost_to_wrong.size(); ++step)
        REQUIRE(filling.step());
    REQUIRE(filling.status().state == ScrubState::kRunning);
    const uint64_t stale = world.stale_groups();
    for (int commit = 0; commit < 4; ++commit)
        REQUIRE(world.fs->step(true).ok());
    CHECK(world.stale_groups() < stale);  // the first one is handed over
    bad.mend_unreadable();
    CHECK(lost_by(catch_up(world)) == bad.lost_to_wrong);
    CHECK(world.stale_groups() == 0);
    CHECK(listed(world) == bad.lost_to_wrong);
    CHECK(world.fs->catch_up_step().err() == Err::kNotFound);
}

TEST_CASE("filling beyond redundancy: what can be read again later brings its row back")
{
    StaleWorld world(kSmallChunks5);
    fill_world(world);
    BadRows bad(world);
    bad.spoil();
    replace(world, kLost);
    CHECK(lost_by(catch_up(world)) == bad.lost);
    REQUIRE(bad.lost_to_wrong.size() < bad.lost.size());
    // Writers go on in the rows that are partly free, and power fails.
    world.unmount();
    MountOptions options = manual_options();
    options.join_above = 0;
    options.partial_writes.rmw_level = RmwLevel::kPrefer;
    world.mount(options);
    for (int file = 0; file < 40; ++file)
        world.write("later" + std::to_string(file), 5000);
    CHECK(world.fs->volume->array().partial_write_statistics().rmw_rows > 10);
    world.fs.reset();
    world.volume.power_cut(world.prng);
    world.mount(options);
    bad.mend_unreadable();
    let_a_second_pass();
    const ScrubStatus again = scrub_all(world);
    CHECK(lost_by(again) == bad.lost_to_wrong);
    CHECK(again.repaired > 0);
    CHECK(listed(world) == bad.lost_to_wrong);
    CHECK(world.wrong_blocks(kLost) == 0);
    require_named(world);
    rewrite_files(world);
    require_whole(world);
}

TEST_CASE("filling within redundancy: bad blocks of another member cost nothing")
{
    StaleWorld world(kSmallChunks6);
    fill_world(world);
    BadRows bad(world);
    REQUIRE(bad.data > 20);
    REQUIRE(bad.parity > 10);
    bad.spoil();
    replace(world, kLost);
    const ScrubStatus filled = catch_up(world);
    CHECK_FALSE(filled.damaged());
    CHECK(world.stale_groups() == 0);
    CHECK(world.wrong_blocks(kLost) == 0);
    CHECK(world.read_back() == 0);
    require_whole(world);
}

TEST_CASE("filling beyond redundancy: no power cut leaves a current column with losses that are not listed")
{
    StaleWorld world(kSmallChunks5);
    fill_world(world);
    BadRows bad(world);
    bad.spoil();
    replace(world, kLost);
    int listed_first = 0;
    const int cuts = cut_fillings(world, 1, [&](const ScrubStatus& filled) {
        CHECK(lost_by(filled) == bad.lost);
        if (world.stale_groups() == 0)
            CHECK(listed(world) == bad.lost);
        else
            listed_first += listed(world) == bad.lost ? 1 : 0;
    });
    CHECK(cuts > 10);
    CHECK(listed_first > 1);
    CHECK(lost_by(scrub_all(world)) == bad.lost);
    rewrite_files(world);
    require_whole(world);
}

TEST_CASE("filling within redundancy: a survivor that takes no repair does not keep the new member stale")
{
    StaleWorld world(kSmallChunks6);
    fill_world(world);
    BadRows bad(world);
    // Writes of these blocks come to nothing, and nobody is told.
    for (const uint64_t offset : bad.wrong)
        world.volume.cable(bad.survivor)
            .add_rule({.action = FaultAction::kLost,
                       .kinds = kFaultWrites,
                       .begin = offset,
                       .end = offset + kBlockBytes});
    bad.spoil();
    replace(world, kLost);
    const ScrubStatus filled = catch_up(world);
    CHECK(filled.unrepaired == bad.wrong.size());
    CHECK(filled.lost == 0);
    CHECK(world.stale_groups() == 0);
    CHECK(world.read_back() == 0);
}

TEST_CASE("filling beyond redundancy: what a member may have that is away keeps the column stale")
{
    StaleWorld world(kSmallChunks6);
    fill_world(world);
    BadRows bad(world);
    bad.spoil();
    replace(world, kLost);
    world.unmount();
    const uint32_t other = 4;
    world.mount(degraded_options(), {other});
    const Addresses lost = lost_by(catch_up(world));
    CHECK(std::includes(lost.begin(), lost.end(), bad.lost.begin(), bad.lost.end()));
    CHECK(world.info_of(kLost).stale_groups > 0);
    world.unmount();
    world.mount();
    CHECK_FALSE(catch_up(world).damaged());
    CHECK(world.stale_groups() == 0);
    let_a_second_pass();
    CHECK_FALSE(scrub_all(world).damaged());
    require_whole(world);
}

namespace {

// Groups of data, in the order in which the member's columns of them became current.
std::vector<ProfileId> fill_in_steps(StaleWorld& world, MemberId member)
{
    std::set<uint64_t> current;
    std::vector<ProfileId> order;
    REQUIRE(world.fs->committer.catch_up.start({.limit = kMiB}).ok());  // small pieces
    for (int step = 0; step < 2000 && world.stale_groups() > 0; ++step) {
        world.fs->committer.catch_up.step();
        REQUIRE(world.fs->step(true).ok());
        for (const GroupRecord& group : world.fs->volume->map().groups)
            for (const GroupColumn& column : group.columns)
                if (column.member == member && !column.stale() && (group.content & kGroupData) != 0 &&
                    current.insert(group.address.value).second)
                    order.push_back(group.profile);
    }
    CHECK(world.stale_groups() == 0);
    return order;
}

}  // namespace

TEST_CASE("filling: groups that can lose nothing more come before those that can")
{
    StaleWorld world(kSmallChunks6);
    world.mount();
    world.write("raid6", 6 * kMiB);
    // Groups that are made from now on.
    std::string why;
    Balance& balance = world.fs->committer.balance;
    REQUIRE(balance
                .start({.profiles = {ProfileId::kRaid5, ProfileId::kRaid1c3},
                        .content = kGroupData,
                        .convert = true,
                        .force = true},
                       why)
                .ok());
    REQUIRE(world.fs->step(true).ok());
    REQUIRE(balance.cancel(why).ok());
    REQUIRE(world.fs->step(true).ok());
    world.write("raid5", 40 * kMiB);
    world.unmount();
    world.mount(degraded_options(), {kLost});
    replace(world, kLost);
    const std::vector<ProfileId> order = fill_in_steps(world, {kLost + 1});
    const auto raid5 = std::count(order.begin(), order.end(), ProfileId::kRaid5);
    REQUIRE(raid5 > 0);
    REQUIRE(raid5 < static_cast<ptrdiff_t>(order.size()));
    CHECK(std::all_of(order.begin(), order.begin() + raid5,
                      [](ProfileId profile) { return profile == ProfileId::kRaid5; }));
    CHECK(world.read_back() == 0);
    CHECK_FALSE(scrub_all(world).damaged());
}

TEST_CASE("filling: who cancels the replacement of a lost member is told that the new one stays")
{
    StaleWorld world(kSmallChunks5);
    fill_world(world);
    replace(world, kLost);
    std::string why;
    CHECK(world.fs->committer.replace.cancel(why).err() == Err::kInvalid);
    CHECK(why == "no member is being replaced");
    REQUIRE(world.fs->committer.catch_up.start({}).ok());
    CHECK(world.fs->committer.replace.cancel(why).err() == Err::kInvalid);
    CHECK_MESSAGE(why.find("cowraid device offline") != std::string::npos, why);
    CHECK_FALSE(catch_up(world).damaged());
    CHECK(world.stale_groups() == 0);
}
