// SPDX-License-Identifier: MIT
// A scrub of whole volumes on simulated members.
#include <fcntl.h>
#include <linux/falloc.h>

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
