// SPDX-License-Identifier: MIT
// Power cuts in the middle of writes in place, with members lost before, between and after: what was
// committed is there, and every row fits its parity.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/support/array_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kCrashStripes = 5;

// The leaves with the checksums cannot be read. Nothing is recorded meanwhile.
class NoChecksums final : public BlockVerifier {
public:
    explicit NoChecksums(TestVolume& volume) : volume_(volume) { volume_.array->set_verifier(this); }
    ~NoChecksums() override { volume_.array->set_verifier(&volume_); }
    void expect(VolumeAddress, std::span<BlockExpectation> out) override
    {
        asked = true;
        for (BlockExpectation& one : out)
            one = {.unavailable = true};
    }
    void unrecoverable(VolumeAddress address) override { volume_.unrecoverable(address); }

    bool asked = false;

private:
    TestVolume& volume_;
};

// A volume whose blocks are committed or free, and a machine that loses power while free ones are written.
class CrashTest {
public:
    CrashTest(const Shape& shape, uint64_t seed) : prng_(seed), volume_(shape, seed, &power_)
    {
        volume_.start_partial_writes(
            {.stripe_cache_size = 17, .rmw_level = static_cast<RmwLevel>(prng_.below(3)), .worker_count = 0});
        CW_ASSERT(volume_.write(0, kCrashStripes, 20).ok());
        CW_ASSERT(volume_.commit_all().ok());
        for (uint64_t block = 0; block < kCrashStripes * volume_.geometry.stripe_data_blocks(); ++block)
            (prng_.chance(1, 2) ? free_ : kept_).push_back(block);
    }

    // Members away while the writes run, which then stop after some number of writes and flushes.
    void write_until_power_fails(std::span<const uint32_t> away)
    {
        for (const uint32_t member : away)
            volume_.remove(member);
        power_.arm(prng_.between(1, 60));
        while (power_.on() && !free_.empty()) {
            // Few rows, so that several writes meet in one before it is committed.
            const size_t at = prng_.below(std::min<size_t>(free_.size(), 12));
            const uint64_t block = free_[at];
            if (volume_.overwrite(block, 1).ok())
                written_.insert(block);
            if (prng_.chance(1, 8) && volume_.commit_all().ok()) {
                kept_.insert(kept_.end(), written_.begin(), written_.end());
                for (const uint64_t done : written_)
                    std::erase(free_, done);
                written_.clear();
            }
        }
        power_.turn_off();
        for (SimDevice* sim : volume_.sims)
            sim->power_cut(prng_, {.keep_percent = 45, .tear_percent = 10, .unit_bytes = 4096});
    }

    // `before` and `after`: members lost before and after recovery.
    void check(std::span<const uint32_t> before, std::span<const uint32_t> after, bool read_only)
    {
        TestVolume found(volume_, prng_.next(), before);
        found.array->set_read_only(read_only);
        RecoveryCounts counts;
        REQUIRE(found.recover(counts).ok());
        ++recoveries;
        rows_changed += counts.changed;
        CHECK(kept_is_there(found));
        if (!read_only) {
            CHECK(rows_fit(found));
            RecoveryCounts again;
            REQUIRE(found.recover(again).ok());
            CHECK(again.changed == 0);
        }
        for (const uint32_t member : after)
            found.remove(member);
        CHECK(kept_is_there(found));
    }

    // As check(), where checksums that are asked for cannot be had the first time. Whether any was.
    bool check_without_checksums()
    {
        TestVolume found(volume_, prng_.next(), {});
        bool asked = false;
        {
            NoChecksums none(found);
            found.forget_requests();
            RecoveryCounts counts;
            const Status status = found.recover(counts);
            asked = none.asked;
            CHECK(status.err() == (asked ? Err::kTooManyFaults : Err::kOk));
        }
        RecoveryCounts counts;
        REQUIRE(found.recover(counts).ok());
        CHECK(kept_is_there(found));
        CHECK(rows_fit(found));
        return asked;
    }

    [[nodiscard]] uint32_t member_count() const { return volume_.member_count(); }
    Prng& prng() { return prng_; }

    static inline uint64_t recoveries = 0;
    static inline uint64_t rows_changed = 0;

private:
    bool kept_is_there(TestVolume& found)
    {
        bool good = true;
        for (const uint64_t block : kept_)
            good = found.read_back(block, 1) && good;
        return good;
    }

    // Where all parity of a row is gone, its log entries are, too: nobody can say what a free block in it
    // holds.
    static bool no_parity_left(const TestVolume& found, uint64_t stripe)
    {
        bool any = false;
        for (uint32_t column = found.geometry.data_columns; column < found.geometry.columns(); ++column)
            any = any || !found.set.failed(TestVolume::member_id(found.spot({stripe, column, 0}).member));
        return !any;
    }

    bool rows_fit(TestVolume& found)
    {
        std::vector<BadBlock> bad;
        if (!found.array->check_stripes(TestVolume::kGroup, 0, kCrashStripes, bad).ok())
            return false;
        return std::all_of(bad.begin(), bad.end(), [&](const BadBlock& block) {
            const uint64_t offset = block.address - TestVolume::kGroup;
            const bool free = std::find(kept_.begin(), kept_.end(), offset / kBlockBytes) == kept_.end();
            return block.kind == BadBlock::Kind::kMissing ||
                   (block.kind == BadBlock::Kind::kData && free &&
                    no_parity_left(found, place_of(found.geometry, offset).stripe));
        });
    }

    Prng prng_;
    PowerSupply power_;
    TestVolume volume_;
    std::vector<uint64_t> kept_, free_;
    std::set<uint64_t> written_;  // since the last commit
};

// At most `most` members, in three lots.
struct Losses {
    std::vector<uint32_t> away, before, after;
};

Losses draw_losses(CrashTest& test, uint32_t most)
{
    std::vector<uint32_t> members;
    for (uint32_t member = 0; member < test.member_count(); ++member)
        members.push_back(member);
    Losses losses;
    for (uint32_t i = 0; i < most; ++i) {
        const size_t at = test.prng().below(members.size());
        const uint32_t member = members[at];
        members.erase(members.begin() + static_cast<ptrdiff_t>(at));
        switch (test.prng().below(4)) {
        case 0:
            losses.away.push_back(member);
            losses.before.push_back(member);
            break;
        case 1:
            losses.before.push_back(member);
            break;
        case 2:
            losses.after.push_back(member);
            break;
        default:
            break;
        }
    }
    return losses;
}

}  // namespace

TEST_CASE("a power cut during writes in place loses nothing committed, whatever members go before or after")
{
    const uint64_t seed = test_seed();
    for (const Shape& shape : parity_shapes(7, {8192})) {
        if (shape.data_columns < 2)
            continue;
        const uint32_t tolerance = shape.profile == ProfileId::kRaid6 ? 2 : 1;
        for (uint64_t round = 0; round < 40; ++round) {
            INFO(describe(shape), " seed ", seed, " round ", round);
            CrashTest test(shape, seed * 1000 + round);
            const Losses losses = draw_losses(test, tolerance);
            test.write_until_power_fails(losses.away);
            test.check(losses.before, losses.after, false);
            test.check(losses.before, losses.after, true);
        }
    }
    // Or nothing was tested.
    CHECK(CrashTest::recoveries > 500);
    CHECK(CrashTest::rows_changed > 300);
}

TEST_CASE("recovery ends before it changes a row of which a checksum in use cannot be had")
{
    int asked = 0;
    for (uint64_t round = 0; round < 20; ++round) {
        CrashTest test({ProfileId::kRaid6, 3, 8192}, test_seed() * 1000 + round);
        test.write_until_power_fails({});
        asked += test.check_without_checksums() ? 1 : 0;
    }
    CHECK(asked > 10);
}

TEST_CASE("recovery of a full log reads the logs once, and the rows they name")
{
    TestVolume volume({ProfileId::kRaid6, 6, 65536}, test_seed());
    volume.start_partial_writes({.stripe_cache_size = 1024, .worker_count = 0});
    constexpr uint64_t kRows = 2400;
    REQUIRE(volume.write(0, kRows / 16, 0).ok());
    REQUIRE(volume.commit_all().ok());
    // One block of each row, until the log has no room.
    uint64_t rows = 0;
    const uint32_t room = volume.log->usage().room_blocks;
    for (; rows < kRows && volume.log->usage().used_blocks + 8 < room; ++rows) {
        const uint64_t block = offset_of(volume.geometry, {rows / 16, 2, static_cast<uint32_t>(rows % 16)});
        REQUIRE(volume.overwrite(block / kBlockBytes, 1).ok());
    }
    REQUIRE(volume.array->partial_write_statistics().flushes == 0);
    for (SimDevice* sim : volume.sims)
        sim->power_cut(volume.prng, {.keep_percent = 50, .tear_percent = 0, .unit_bytes = 4096});
    TestVolume found(volume, 1, {});
    RecoveryCounts counts;
    REQUIRE(found.recover(counts).ok());
    CHECK(counts.rows == rows);
    CHECK(rows > 1000);
    uint64_t bytes = 0;
    for (const CountingDevice* device : found.counts)
        for (const CountingDevice::Entry& entry : device->entries(IoKind::kRead))
            bytes += entry.bytes;
    const uint64_t logs = found.member_count() * TestVolume::kLogBytes;
    CHECK(bytes <= logs + rows * (found.geometry.columns() + 2) * kBlockBytes);
    CHECK(found.requests(IoKind::kRead) < 8 * rows);
    CHECK(found.read_back(0, static_cast<uint32_t>(rows / 16 * found.geometry.stripe_data_blocks())) ==
          false);  // blocks that were being written are as the crash left them
    std::vector<BadBlock> bad;
    REQUIRE(found.array->check_stripes(TestVolume::kGroup, 0, kRows / 16, bad).ok());
    CHECK(bad.empty());
}

namespace {

void cut_power(TestVolume& volume, uint64_t seed, uint32_t keep_percent)
{
    Prng prng(seed);
    for (SimDevice* sim : volume.sims)
        sim->power_cut(prng, {.keep_percent = keep_percent, .tear_percent = 0, .unit_bytes = 4096});
}

uint64_t block_in_row(const TestVolume& volume, uint32_t column)
{
    return offset_of(volume.geometry, {0, column, 0}) / kBlockBytes;
}

}  // namespace

TEST_CASE("raid6: parity returned old, a crash in a write in place, and another member lost")
{
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        CAPTURE(seed);
        TestVolume volume({ProfileId::kRaid6, 6, 65536}, seed);
        volume.start_partial_writes({.worker_count = 0});
        REQUIRE(volume.write(0, 1, 0).ok());
        REQUIRE(volume.commit_all().ok());
        volume.remove(volume.spot({0, 6, 0}).member);
        for (const uint32_t column : {1u, 2u}) {
            REQUIRE(volume.overwrite(block_in_row(volume, column), 1).ok());
            REQUIRE(volume.commit_all().ok());
        }
        TestVolume back(volume, seed, {});
        back.start_partial_writes({.worker_count = 0});
        REQUIRE(back.overwrite(block_in_row(back, 3), 1).ok());
        cut_power(back, seed, 50);
        const uint32_t gone[] = {back.spot({0, 0, 0}).member};
        TestVolume found(back, seed, gone);
        RecoveryCounts counts;
        REQUIRE(found.recover(counts).ok());
        CHECK(found.read_back(block_in_row(found, 0), 1));
    }
}

// Beyond tolerance, as with ro,rescue: two members returned with old content, a third is lost.
TEST_CASE("old content that is a code word is not taken for what a commit refers to")
{
    for (const uint32_t keep_percent : {0u, 50u})
        for (const bool read_only : {true, false}) {
            TestVolume volume({ProfileId::kRaid6, 4, 65536}, 3);
            volume.start_partial_writes({.worker_count = 0});
            REQUIRE(volume.write(0, 1, 0).ok());
            REQUIRE(volume.commit_all().ok());
            const BlockPlace place{0, 0, 0};
            volume.remove(volume.spot(place).member);
            volume.remove(volume.spot({0, 4, 0}).member);
            REQUIRE(volume.overwrite(block_in_row(volume, 0), 1).ok());
            REQUIRE(volume.commit_all().ok());
            const Checksum committed = volume.checksum_at(place);
            TestVolume back(volume, 5, {});
            back.start_partial_writes({.worker_count = 0});
            REQUIRE(back.overwrite(block_in_row(back, 3), 1).ok());
            cut_power(back, 7, keep_percent);
            const uint32_t gone[] = {back.spot({0, 5, 0}).member};
            TestVolume found(back, 9, gone);
            found.array->set_read_only(read_only);
            RecoveryCounts counts;
            REQUIRE(found.recover(counts).ok());
            CHECK(found.checksum_at(place) == committed);
            CHECK(found.read_back(block_in_row(found, 0), 1));
        }
}

// A crafted log names one row as often as it has room for.
TEST_CASE("of one row no more entries are read than there can be, and those of its parity's members only")
{
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        TestVolume volume({ProfileId::kRaid6, 4, 65536}, seed);
        volume.start_partial_writes({.worker_count = 0});
        REQUIRE(volume.write(0, 1, 0).ok());
        REQUIRE(volume.commit_all().ok());
        const AlignedBuffer partial(kBlockBytes);
        const std::vector<Checksum> checksums(4, 77);
        const auto append = [&](std::initializer_list<uint32_t> columns) {
            std::vector<RowIntent::Copy> copies;
            for (const uint32_t column : columns)
                copies.push_back(
                    {TestVolume::member_id(volume.spot({0, column, 0}).member), column % 4, partial.data()});
            RowIntent intent{.row = TestVolume::kGroup,
                             .mapping_version = volume.group_record.mapping_version,
                             .checksums = checksums,
                             .copies = copies};
            REQUIRE(
                volume.log->append({&intent, 1}, volume.superblock.generation.next(), volume.epoch()).ok());
            volume.log->written(intent.sequence);
        };
        for (int i = 0; i < 200; ++i)
            append({4, 5});
        REQUIRE(volume.overwrite(block_in_row(volume, 3), 1).ok());
        for (int i = 0; i < 200; ++i)
            append({0, 1});
        cut_power(volume, seed, 50);
        TestVolume found(volume, seed, {});
        RecoveryCounts counts;
        REQUIRE(found.recover(counts).ok());
        CHECK(counts.rows == 1);
        CHECK(counts.untouched == 0);
        for (uint32_t column = 0; column < 6; ++column) {
            const TestVolume::Spot spot = found.spot({0, column, 0});
            const MemberRecord& record = found.superblock.members[spot.member];
            size_t partials = 0;
            for (const CountingDevice::Entry& read : found.counts[spot.member]->entries(IoKind::kRead))
                partials += read.bytes == kBlockBytes && read.offset >= record.intent_log_offset &&
                            read.offset < record.intent_log_offset + record.intent_log_bytes;
            CHECK(partials == (column < 4 ? 0 : 4 + 6));
        }
        for (uint32_t column = 0; column < 3; ++column)
            CHECK(found.read_back(block_in_row(found, column), 1));
        std::vector<BadBlock> bad;
        REQUIRE(found.array->check_stripes(TestVolume::kGroup, 0, 1, bad).ok());
        CHECK(bad.empty());
    }
}
