// SPDX-License-Identifier: MIT
// Members that were away, or are new, are filled by a scrub: by large requests, and with what is newest.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <utility>

#include "base/checksum.h"
#include "tests/support/array_fixture.h"
#include "tests/support/scrub_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint32_t kFilled = 1;  // the member that comes back with nothing

// The member has been away, has other content in every block, and is in service again. How many blocks.
uint64_t come_back_empty(TestVolume& volume, uint64_t stripes)
{
    uint64_t blocks = 0;
    volume.remove(kFilled);
    for (uint64_t stripe = 0; stripe < stripes; ++stripe)
        for (uint32_t column = 0; column < volume.geometry.columns(); ++column)
            for (uint32_t row = 0; row < volume.geometry.rows(); ++row) {
                const BlockPlace place{stripe, column / volume.geometry.copies, row};
                const uint32_t copy = column % volume.geometry.copies;
                if (volume.spot(place, copy).member != kFilled)
                    continue;
                volume.rot(place, copy);
                ++blocks;
            }
    volume.set.put_in_service(TestVolume::member_id(kFilled), nullptr);
    return blocks;
}

// Its columns are in the map as those of a new member: nothing but what was written since is there.
void begin_with_nothing(TestVolume& volume)
{
    volume.group_record.created_generation = volume.superblock.generation;
    for (GroupColumn& column : volume.group_record.columns)
        if (column.member == TestVolume::member_id(kFilled))
            column.stale_since = volume.superblock.generation;
    REQUIRE(volume.array->update_groups({&volume.group_record, 1}, volume.superblock).ok());
}

// Says what the volume expects, but for what a case has else to say.
class VerifierOfCase : public BlockVerifier {
public:
    explicit VerifierOfCase(TestVolume& volume) : volume_(volume) { volume_.array->set_verifier(this); }
    ~VerifierOfCase() override { volume_.array->set_verifier(&volume_); }
    void unrecoverable(VolumeAddress address) override { volume_.unrecoverable(address); }

protected:
    TestVolume& volume_;
};

// Knows what the volume knows. Once, when it is asked for one address, it writes the first stripe before.
class WritingVerifier final : public VerifierOfCase {
public:
    WritingVerifier(TestVolume& volume, VolumeAddress address) : VerifierOfCase(volume), address_(address) { }
    void expect(VolumeAddress address, std::span<BlockExpectation> out) override
    {
        if (address == address_ && !std::exchange(written, true))
            CHECK(volume_.write(0, 1, 0).ok());
        volume_.expect(address, out);
    }

    bool written = false;

private:
    const VolumeAddress address_;
};

// What is recorded of the parity of one stripe cannot be had.
class LostParityVerifier final : public VerifierOfCase {
public:
    LostParityVerifier(TestVolume& volume, uint64_t stripe) : VerifierOfCase(volume), stripe_(stripe) { }
    void expect(VolumeAddress address, std::span<BlockExpectation> out) override
    {
        volume_.expect(address, out);
        for (size_t i = 0; i < out.size(); ++i) {
            const BlockPlace at = place_of(volume_.geometry, address + i * kBlockBytes - TestVolume::kGroup);
            if (at.stripe == stripe_ && at.column >= volume_.geometry.data_columns)
                out[i] = {.unavailable = true};
        }
    }

private:
    const uint64_t stripe_;
};

}  // namespace

TEST_CASE("scrub: a member that is filled is written by large requests, what else is wrong is repaired, too")
{
    constexpr uint64_t kStripes = 16;
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 3, 65536}, Shape{ProfileId::kRaid6, 4, 16384}}) {
        CAPTURE(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, kStripes, 0).ok());
        const uint64_t blocks = come_back_empty(volume, kStripes);
        const bool two = volume.geometry.parity == 2;
        BlockPlace other{3, 0, 2};
        while (volume.spot(other).member == kFilled)
            ++other.column;
        if (two)
            volume.rot(other);
        volume.forget_requests();
        const ScrubReport report = scrub(volume, kStripes);
        CHECK(report.repaired == blocks + (two ? 1 : 0));
        CHECK(report.unrepaired == 0);
        CHECK(report.lost.empty());
        CHECK(volume.disk_is_right());
        CHECK(volume.all_counters() == (two ? 2 : 0));  // found, and repaired
        // One request for all of them; the row with another bad block on its own.
        CHECK(volume.counts[kFilled]->entries(IoKind::kWrite).size() <= (two ? 4 : 2));
        check_quiet(volume, kStripes);
    }
}

TEST_CASE("scrub: of a member that has nothing yet nothing is read")
{
    constexpr uint64_t kStripes = 16;
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 3, 65536}, Shape{ProfileId::kRaid6, 4, 16384}}) {
        CAPTURE(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, kStripes, 0).ok());
        const uint64_t blocks = come_back_empty(volume, kStripes);
        begin_with_nothing(volume);
        volume.forget_requests();
        const ScrubReport report = scrub(volume, kStripes);
        CHECK(report.repaired == blocks);
        CHECK(report.unfilled == 0);
        CHECK(report.unsettled == 0);
        CHECK(report.lost.empty());
        CHECK(volume.counts[kFilled]->entries(IoKind::kRead).empty());
        CHECK(volume.counts[kFilled]->entries(IoKind::kWrite).size() <= 2);
        CHECK(volume.disk_is_right());
        CHECK(volume.all_counters() == 0);
    }
}

TEST_CASE("scrub: what a new member has got already helps a row that has lost another block")
{
    constexpr uint64_t kStripes = 4;
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, kStripes, 0).ok());
    begin_with_nothing(volume);  // and all was written since
    BlockPlace other{2, 0, 1};
    while (volume.spot(other).member == kFilled)
        ++other.column;
    volume.rot(other);
    const ScrubReport report = scrub(volume, kStripes);
    CHECK(report.lost.empty());
    CHECK(report.unrepaired == 0);
    CHECK(volume.disk_is_right());
    CHECK(volume.counter(volume.spot(other).member, MemberCounter::kCorruption) == 1);
}

TEST_CASE(
    "scrub: rows of which nobody can say what parity must be are recorded by nobody, and left for later")
{
    constexpr uint64_t kStripes = 4;
    for (const bool blank : {false, true})
        for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
            CAPTURE(blank);
            CAPTURE(stripe);
            TestVolume volume({ProfileId::kRaid5, 3, 16384});
            REQUIRE(volume.write(0, kStripes, 0).ok());
            come_back_empty(volume, kStripes);
            if (blank)
                begin_with_nothing(volume);
            {
                LostParityVerifier verifier(volume, stripe);
                const ScrubReport report = scrub(volume, kStripes);
                CHECK(report.unsettled == volume.geometry.rows());
                CHECK(report.adopted == 0);
                CHECK(report.lost.empty());
            }
            const ScrubReport after = scrub(volume, kStripes);
            CHECK(after.unsettled == 0);
            CHECK(after.adopted == 0);
            CHECK(volume.disk_is_right());
        }
}

TEST_CASE("scrub: what a member lacks that does not answer, and stays in service, counts as not filled")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid6, 4, 16384}, Shape{ProfileId::kRaid1, 1, 16384}}) {
        CAPTURE(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 1, 0).ok());
        come_back_empty(volume, 1);
        std::vector<uint32_t> away;
        if (volume.geometry.parity > 0)
            away.push_back(0);
        for (const uint32_t member : away)
            volume.remove(member);
        volume.set.set_quorums({{{TestVolume::member_id(kFilled)}, 1}});
        const size_t rule =
            volume.faults[kFilled]->add_rule({.kinds = kFaultReads, .skip = 1, .error = Err::kMemberGone});
        const ScrubReport gone = scrub(volume, 1);
        CHECK(volume.faults[kFilled]->hits(rule) > 0);
        CHECK(gone.unsettled + gone.unfilled > 0);
        CHECK(gone.lost.empty());
        CHECK_FALSE(volume.disk_is_right(away));
        volume.faults[kFilled]->remove_rule(rule);
        const ScrubReport back = scrub(volume, 1);
        CHECK(back.unsettled + back.unfilled == 0);
        CHECK(volume.disk_is_right(away));
    }
}

TEST_CASE("scrub: who reads what a member lacks that is filled leaves it to the scrub")
{
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, 1, 0).ok());
    const uint64_t blocks = come_back_empty(volume, 1);
    volume.array->set_filling(true);
    volume.forget_requests();
    CHECK(volume.read_back(0, volume.geometry.stripe_data_blocks()));
    CHECK(volume.counts[kFilled]->entries(IoKind::kWrite).empty());
    CHECK(scrub(volume, 1).repaired == blocks);
}

TEST_CASE("who reads what a member lacks that nobody fills heals it, and charges nobody")
{
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, 1, 0).ok());
    come_back_empty(volume, 1);
    volume.forget_requests();
    CHECK(volume.read_back(0, volume.geometry.stripe_data_blocks()));
    CHECK_FALSE(volume.counts[kFilled]->entries(IoKind::kWrite).empty());
    CHECK(volume.all_counters() == 0);
    volume.forget_requests();
    CHECK(volume.read_back(0, volume.geometry.stripe_data_blocks()));
    CHECK(volume.counts[kFilled]->entries(IoKind::kWrite).empty());
    CHECK(volume.requests(IoKind::kRead) == volume.geometry.data_columns);
}

// Only stripe by stripe is what cannot be read charged, and read back.
TEST_CASE("scrub: what a member that is filled cannot read is charged to it")
{
    constexpr uint64_t kStripes = 8;
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, kStripes, 0).ok());
    const uint64_t blocks = come_back_empty(volume, kStripes);
    BlockPlace place{5, 0, 2};
    while (volume.spot(place).member != kFilled)
        ++place.column;
    volume.latent(place);
    const ScrubReport report = scrub(volume, kStripes);
    CHECK(report.repaired == blocks);
    CHECK(report.unrepaired == 0);
    CHECK(volume.counter(kFilled, MemberCounter::kReadErrors) == 1);
    CHECK(volume.disk_is_right());
    check_quiet(volume, kStripes);
}

TEST_CASE("scrub: rows of which parity does not follow are not filled with what it says")
{
    constexpr uint64_t kStripes = 5;  // each column once on each member
    uint32_t tried = 0;
    for (const uint32_t column : {3U, 4U})
        for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
            TestVolume volume({ProfileId::kRaid6, 3, 16384});
            REQUIRE(volume.write(0, kStripes, 0).ok());
            come_back_empty(volume, kStripes);
            const BlockPlace parity{stripe, column, 1};
            const TestVolume::Spot spot = volume.spot(parity);
            if (spot.member == kFilled)
                continue;
            CAPTURE(column);
            CAPTURE(stripe);
            // It is recorded as something else than the data says, and is that.
            const std::vector<std::byte> wrong(kBlockBytes, std::byte{7});
            volume.sims[spot.member]->poke(spot.offset, wrong);
            const Checksum checksum = checksum_of(wrong.data(), kBlockBytes);
            const Checksum right = volume.checksum_at(parity);
            volume.record(TestVolume::kGroup + offset_of(volume.geometry, parity), std::span(&checksum, 1));
            const ScrubReport report = scrub(volume, kStripes);
            CHECK(report.adopted == 1);
            CHECK(volume.checksum_at(parity) == right);
            CHECK(volume.disk_is_right());
            check_quiet(volume, kStripes);
            ++tried;
        }
    CHECK(tried == 8);
}

TEST_CASE("scrub: what is written between reading and locking is not overwritten with what was read")
{
    constexpr uint64_t kStripes = 6;
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 3, 16384}, Shape{ProfileId::kRaid6, 4, 16384}}) {
        CAPTURE(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, kStripes, 0).ok());
        const uint64_t blocks = come_back_empty(volume, kStripes);
        // When the second stripe is asked for, all is read and the first is compared with what it was.
        WritingVerifier verifier(volume, TestVolume::kGroup + offset_of(volume.geometry, {1, 0, 0}));
        const ScrubReport report = scrub(volume, kStripes);
        CHECK(verifier.written);
        CHECK(report.repaired == blocks - volume.geometry.rows());  // the write filled the first stripe
        CHECK(volume.disk_is_right());
        CHECK(volume.all_counters() == 0);
        check_quiet(volume, kStripes);
    }
}

TEST_CASE("scrub: beside writers a member is filled with what is newest")
{
    constexpr uint64_t kStripes = 12;
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 3, 16384}, Shape{ProfileId::kRaid6, 4, 16384}}) {
        CAPTURE(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, kStripes, 0).ok());
        come_back_empty(volume, kStripes);
        volume.start_partial_writes();
        std::atomic<bool> ended = false;
        std::thread scrubber([&] {
            do {
                CHECK(scrub(volume, kStripes).lost.empty());
            } while (!ended);
        });
        overwrite_often(volume, kStripes, 300, 11);
        ended = true;
        scrubber.join();
        CHECK(volume.disk_is_right());
        CHECK(volume.all_counters() == 0);
        check_quiet(volume, kStripes);
    }
}
