// SPDX-License-Identifier: MIT
// A scrub of whole volumes on simulated members.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <ctime>

#include "tests/filesystem/scrub_steps.h"
#include "tests/support/bytes.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kChunkBytes = 16 * kKiB, kStripeBytes = 3 * kChunkBytes;

std::vector<std::vector<std::byte>> images(SimVolume& volume)
{
    std::vector<std::vector<std::byte>> all;
    for (uint32_t member = 0; member < volume.member_count(); ++member) {
        all.emplace_back(volume.shape().member_bytes);
        volume.member(member).peek(0, all.back());
    }
    return all;
}

}  // namespace

TEST_CASE("scrub: what some members hold becomes garbage, one pass repairs it, the next one is quiet")
{
    struct Case {
        ProfileId data, metadata;
        uint32_t members, spoilt;
    };
    for (const Case& one :
         {Case{ProfileId::kRaid5, ProfileId::kRaid1, 4, 1},
          Case{ProfileId::kRaid6, ProfileId::kRaid1c3, 5, 2},
          Case{ProfileId::kRaid6, ProfileId::kRaid6, 5, 2}, Case{ProfileId::kRaid1, ProfileId::kRaid1, 3, 1},
          Case{ProfileId::kRaid0, ProfileId::kRaid0, 3, 0},
          Case{ProfileId::kRaid10, ProfileId::kRaid10, 5, 1},
          Case{ProfileId::kRaid1c4, ProfileId::kRaid1c4, 5, 3}}) {
        CAPTURE(static_cast<int>(one.data));
        CAPTURE(static_cast<int>(one.metadata));
        SimVolume volume({one.members, 96 * kMiB, one.data, one.metadata, kChunkBytes});
        make_and_mount(volume);
        Filesystem& fs = volume.fs();
        Prng prng(seed());
        const std::vector<std::byte> content = random_content(prng, 700 * kKiB);
        const InodeNumber file = make_file(fs, "file", content);
        for (int index = 0; index < 60; ++index)
            make_file(fs, ("small" + std::to_string(index)).c_str(), random_content(prng, 3000));
        REQUIRE(fs.step(true).ok());
        const ScrubStatus clean = scrub(fs);
        require_quiet(clean);
        CHECK(clean.data_blocks * kBlockBytes >= content.size());
        CHECK(clean.nodes > 0);
        const uint64_t begin = slots_offset(fs);
        for (uint32_t member = 0; member < one.spoilt; ++member)
            for (uint64_t offset = begin; offset < volume.shape().member_bytes; offset += kBlockBytes) {
                std::vector<std::byte> block(kBlockBytes);
                volume.member(member).peek(offset, block);
                if (block != std::vector<std::byte>(kBlockBytes))
                    rot(volume, prng, member, offset);
            }
        const ScrubStatus repaired = scrub(fs);
        CHECK((repaired.repaired > 50) == (one.spoilt > 0));
        CHECK_FALSE(repaired.damaged());
        require_quiet(scrub(fs));
        std::vector<std::byte> read(content.size());
        CHECK(read_file(fs, file, read).ok());
        CHECK(same(read, content));
        REQUIRE(volume.unmount().ok());
        CheckReport report;
        std::string why;
        REQUIRE_MESSAGE(volume.check(report, why).ok(), why);
        CHECK(report.clean());
    }
}

// What a flush has put on the members belongs to no commit yet.
TEST_CASE("scrub: data of the open transaction that is beyond redundancy stays unreadable, and never changes")
{
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, kChunkBytes});
    std::string why;
    REQUIRE_MESSAGE(volume.make(why).ok(), why);
    MountOptions options = manual_options();
    options.join_above = 0;
    mount(volume, options);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    // Rows of which one block of three is free.
    constexpr uint64_t kStripes = 40;
    std::vector<std::byte> rows = random_content(prng, kStripes * kStripeBytes);
    const InodeNumber holder = make_file(fs, "rows", rows);
    REQUIRE(fs.step(true).ok());
    for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
        REQUIRE(fs.files
                    .allocate_range(holder, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, stripe * kStripeBytes,
                                    kChunkBytes)
                    .ok());
        std::fill_n(rows.begin() + static_cast<ptrdiff_t>(stripe * kStripeBytes), kChunkBytes, std::byte{0});
    }
    REQUIRE(fs.step(true).ok());
    REQUIRE(fs.step(true).ok());
    const auto before = images(volume);
    const std::vector<std::byte> content = random_content(prng, 30 * kChunkBytes);
    const InodeNumber file = make_file(fs, "open", {});
    // Each flush has less than a stripe.
    for (uint64_t offset = 0; offset < content.size(); offset += kChunkBytes) {
        REQUIRE(fs.files.write(file, offset, std::span(content).subspan(offset, kChunkBytes), {}, {}).ok());
        REQUIRE(fs.step(false).ok());
    }
    REQUIRE(fs.info().joined_blocks == content.size() / kBlockBytes);
    // All that the flush wrote: of each row the new block, and parity.
    const auto after = images(volume);
    uint64_t spoilt = 0;
    for (uint32_t member = 0; member < volume.member_count(); ++member)
        for (uint64_t offset = slots_offset(fs); offset < volume.shape().member_bytes; offset += kBlockBytes)
            if (!same(std::span(after[member]).subspan(offset, kBlockBytes),
                      std::span(before[member]).subspan(offset, kBlockBytes))) {
                rot(volume, prng, member, offset);
                ++spoilt;
            }
    REQUIRE(spoilt >= 2 * content.size() / kBlockBytes);
    const ScrubStatus status = scrub(fs);
    CHECK(status.adopted == 0);
    CHECK(status.lost == 0);
    for (int commits = 0; commits < 2; ++commits) {
        std::vector<std::byte> read(content.size());
        CHECK_FALSE(read_file(fs, file, read).ok());
        // What was there before has all it needs.
        std::vector<std::byte> others(rows.size());
        CHECK(read_file(fs, holder, others).ok());
        CHECK(others == rows);
        REQUIRE(fs.step(true).ok());
    }
    // Now it is of a commit.
    CHECK(scrub(fs).lost >= content.size() / kBlockBytes);
}

TEST_CASE("scrub plan: plans choose block groups by when they were verified, and by damage")
{
    SimVolume volume({4, 512 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1c3, 64 * kKiB});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    for (int index = 0; index < 40; ++index)
        make_file(fs, ("file" + std::to_string(index)).c_str(), random_content(prng, 8 * kMiB));
    REQUIRE(fs.step(true).ok());
    const auto run = [&](const ScrubOptions& options) {
        REQUIRE(fs.committer.scrub.start(options).ok());
        while (fs.committer.scrub.status().state == ScrubState::kRunning)
            fs.committer.scrub.step();
        REQUIRE(fs.step(true).ok());
        return fs.committer.scrub.status();
    };
    using Plan = ScrubOptions::Plan;
    const auto unverified = [&] {
        const std::vector<uint64_t> times = verified_times(fs);
        return std::count(times.begin(), times.end(), uint64_t{0});
    };
    const auto groups = unverified();
    REQUIRE(groups > 6);
    const ScrubStatus part = run({.plan = Plan::kPercent, .percent = 20});
    CHECK(part.data_blocks > 0);
    const auto left = unverified();
    CHECK(left < groups);
    CHECK(left > groups / 2);
    // The rest, and nothing twice.
    const ScrubStatus rest = run({.plan = Plan::kNew});
    CHECK(unverified() == 0);
    const ScrubStatus whole = run({});
    CHECK(part.parity_blocks + rest.parity_blocks == whole.parity_blocks);
    CHECK(run({.plan = Plan::kNew}).parity_blocks == 0);
    CHECK(run({.plan = Plan::kBad}).parity_blocks == 0);
    CHECK(run({.older_than = 3600}).parity_blocks == 0);
    // The clock was wrong once.
    const VerifiedGroup future{fs.volume->map().groups.back().address,
                               static_cast<uint64_t>(std::time(nullptr)) + 100000};
    fs.volume->note_scrub(fs.volume->superblock().scrub, std::span(&future, 1));
    REQUIRE(fs.step(true).ok());
    CHECK(verified_times(fs).back() == future.seconds);
    run({.older_than = 3600});
    CHECK(verified_times(fs).back() < future.seconds);
    fs.store.damage.note(fs.volume->map().groups.back().address, 1, 1, DamageList::kByReader);
    CHECK(run({.plan = Plan::kBad}).parity_blocks < whole.parity_blocks / 2);
    CHECK(fs.store.damage.empty());
}

namespace {

struct MemberBlock {
    uint32_t member;
    uint64_t offset;
};

// The row of the first block that is in use of every group under parity: one block on each member.
std::vector<std::vector<MemberBlock>> rows_of_groups(Filesystem& fs)
{
    std::vector<std::vector<MemberBlock>> rows;
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups()) {
        const Geometry& geometry = group->geometry;
        std::vector<BlockRun> blocks;
        if (geometry.parity == 0 || !fs.store.allocator.live_blocks(group->record.address, 1, blocks).ok() ||
            blocks.empty())
            continue;
        const BlockPlace block = place_of(geometry, blocks.front().address - group->record.address);
        rows.emplace_back();
        for (BlockPlace place{block.stripe, 0, block.row}; place.column < geometry.columns();
             ++place.column) {
            const uint32_t column = group_column(geometry, place.stripe, place.column, 0);
            rows.back().push_back({group->record.columns[column].member.value - 1,
                                   group->locate(column, column_offset(geometry, place)).offset.value});
        }
    }
    return rows;
}

// Of a row without one on `left_out`.
MemberBlock block_of(const std::vector<MemberBlock>& row, uint32_t left_out)
{
    return row[row[0].member == left_out ? 1 : 0];
}

// Passes of a fifth each, with a mount for each. As many as a round takes, and one: groups are read whole.
ScrubStatus go_round(SimVolume& volume, const std::vector<uint32_t>& absent = {})
{
    ScrubStatus sum;
    for (int pass = 0; pass < 6; ++pass) {
        Filesystem& fs = volume.fs();
        REQUIRE(fs.committer.scrub.start({.plan = ScrubOptions::Plan::kPercent, .percent = 20}).ok());
        const ScrubStatus status = scrub(fs);
        sum.repaired += status.repaired;
        sum.lost += status.lost;
        CHECK(status.bytes_done == status.bytes_total);
        sum.parity_blocks = std::max(sum.parity_blocks, status.parity_blocks);
        REQUIRE(volume.unmount().ok());
        mount(volume, absent.empty() ? manual_options() : degraded_options(), absent);
    }
    return sum;
}

// More than six groups of data.
void make_groups(SimVolume& volume, Prng& prng)
{
    make_and_mount(volume);
    for (int index = 0; index < 40; ++index)
        make_file(volume.fs(), ("file" + std::to_string(index)).c_str(), random_content(prng, 8 * kMiB));
    REQUIRE(volume.fs().step(true).ok());
    scrub(volume.fs());
    REQUIRE(volume.fs().step(true).ok());
}

}  // namespace

TEST_CASE("scrub: rows that it may not mend any more as the volume becomes read-only are mended later")
{
    SimVolume volume({4, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1c3, kChunkBytes});
    make_and_mount(volume);
    Filesystem& fs = volume.fs();
    Prng prng(seed());
    make_file(fs, "file", random_content(prng, kBlockBytes));
    REQUIRE(fs.step(true).ok());
    const std::vector<std::vector<MemberBlock>> rows = rows_of_groups(fs);
    REQUIRE(rows.size() == 1);
    // A free block and parity: what they should be has to be recorded.
    for (const size_t column : {2, 3})
        rot(volume, prng, rows[0][column].member, rows[0][column].offset);
    Scrub& scrubber = fs.committer.scrub;
    for (const ScrubMode mode : {ScrubMode::kRepair, ScrubMode::kLook}) {
        CAPTURE(static_cast<int>(mode));
        REQUIRE(scrubber.start({.mode = mode}).ok());
        // A remount begins so while threads take steps.
        fs.store.service.become(ServiceState::Kind::kReading);
        for (int step = 0; step < 1000 && scrubber.status().state != ScrubState::kFinished; ++step)
            scrubber.step();
        // Who only looks has no need to write. Superblocks are looked at between commits.
        CHECK((scrubber.status().parity_blocks > 0) == (mode == ScrubMode::kLook));
        CHECK(scrubber.status().heads == 0);
        CHECK(scrubber.status().state == ScrubState::kPaused);
        fs.store.service.become(ServiceState::Kind::kWriting);
        for (int step = 0; step < 1000 && scrubber.status().state != ScrubState::kFinished; ++step)
            scrubber.step();
        const ScrubStatus status = scrubber.status();
        CHECK(status.state == ScrubState::kFinished);
        CHECK((status.adopted > 0) == (mode == ScrubMode::kRepair));
        CHECK(status.heads > 0);
        CHECK_FALSE(status.damaged());
    }
    REQUIRE(fs.step(true).ok());
    require_quiet(scrub(fs));
    REQUIRE(volume.unmount().ok());
    CheckReport report;
    std::string why;
    REQUIRE(volume.check(report, why).ok());
    CHECK(report.clean());
}

TEST_CASE("scrub plan: passes by percent go round all groups while one of them stays damaged")
{
    SimVolume volume({4, 512 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1c3, 64 * kKiB});
    Prng prng(seed());
    make_groups(volume, prng);
    const std::vector<std::vector<MemberBlock>> rows = rows_of_groups(volume.fs());
    REQUIRE(rows.size() > 6);
    for (size_t index = 0; index < rows.size(); ++index)
        for (size_t block = 0; block < (index == 0 ? 2 : 1); ++block)
            rot(volume, prng, rows[index][block].member, rows[index][block].offset);
    const uint64_t verified = verified_times(volume.fs()).back();
    const ScrubStatus found = go_round(volume);
    CHECK(found.repaired == rows.size() - 1);
    CHECK(found.lost >= 1);
    // What was not found as it must be is not called verified.
    for (const GroupRecord& group : volume.fs().volume->map().groups)
        if (group.address == volume.fs().store.damage.runs().front().first)
            CHECK(group.verified_seconds <= verified);
    const ScrubStatus whole = scrub(volume.fs());
    CHECK(whole.repaired == 0);
    CHECK(found.parity_blocks < whole.parity_blocks / 2);
}

TEST_CASE("scrub plan: passes by percent go round all groups without a member")
{
    SimVolume volume({5, 512 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 64 * kKiB});
    Prng prng(seed());
    make_groups(volume, prng);
    const std::vector<std::vector<MemberBlock>> rows = rows_of_groups(volume.fs());
    REQUIRE(rows.size() > 6);
    REQUIRE(volume.unmount().ok());
    mount(volume, degraded_options(), {4});
    for (const std::vector<MemberBlock>& row : rows) {
        const MemberBlock block = block_of(row, 4);
        rot(volume, prng, block.member, block.offset);
    }
    const ScrubStatus found = go_round(volume, {4});
    CHECK(found.repaired == rows.size());
    CHECK(found.lost == 0);
}

TEST_CASE("scrub plan: a pass by percent that is cancelled is gone on with by the next one")
{
    SimVolume volume({4, 512 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1c3, 64 * kKiB});
    Prng prng(seed());
    make_groups(volume, prng);
    const std::vector<std::vector<MemberBlock>> rows = rows_of_groups(volume.fs());
    for (const std::vector<MemberBlock>& row : rows)
        rot(volume, prng, row[0].member, row[0].offset);
    ScrubStatus status;
    uint64_t repaired = 0;
    for (size_t pass = 0; pass < rows.size() && status.state != ScrubState::kFinished; ++pass) {
        REQUIRE(
            volume.fs().committer.scrub.start({.plan = ScrubOptions::Plan::kPercent, .percent = 90}).ok());
        status = {};
        while (status.repaired < 2 && status.state != ScrubState::kFinished)
            status = volume.fs().scrub_step();
        volume.fs().committer.scrub.cancel().ignore();
        repaired += status.repaired;
    }
    CHECK(repaired + 1 >= rows.size());
}
