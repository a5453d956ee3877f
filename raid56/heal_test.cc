// SPDX-License-Identifier: MIT
// Self-healing: what is wrong or unreadable is solved, verified, rewritten, and counted on the right member.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/checksum.h"
#include "tests/support/array_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

uint32_t block_number(const Geometry& geometry, const BlockPlace& place)
{
    return static_cast<uint32_t>(offset_of(geometry, place) / kBlockBytes);
}

// How a test spoils a block.
enum class Spoil { kRot, kLatent, kGoneMember };

void spoil(TestVolume& volume, Spoil how, const BlockPlace& place)
{
    if (how == Spoil::kRot)
        volume.rot(place);
    else if (how == Spoil::kLatent)
        volume.latent(place);
    else
        volume.remove(volume.spot(place).member);
}

// What a member's counters must be after one block of it was spoilt and met by a read.
void check_counters(const TestVolume& volume, const BlockPlace& place, Spoil how, bool met)
{
    const uint32_t member = volume.spot(place).member;
    const bool parity = place.column >= volume.geometry.data_columns;
    const bool counted = met && how != Spoil::kGoneMember;
    CHECK(volume.counter(member, MemberCounter::kReadErrors) == (counted && how == Spoil::kLatent));
    CHECK(volume.counter(member, MemberCounter::kCorruption) == (counted && how == Spoil::kRot && !parity));
    CHECK(volume.counter(member, MemberCounter::kParity) == (counted && how == Spoil::kRot && parity));
    CHECK(volume.counter(member, MemberCounter::kRepaired) == counted);
}

}  // namespace

TEST_CASE("one bad data block of any column: right bytes, repaired, counted once, the second read is quiet")
{
    for (const Shape& shape : parity_shapes(8, {4096, 65536})) {
        for (uint32_t column = 0; column < shape.data_columns; ++column) {
            for (const Spoil how : {Spoil::kRot, Spoil::kLatent}) {
                INFO(describe(shape), " column ", column);
                TestVolume volume(shape, column + 1);
                REQUIRE(volume.write(0, 3).ok());
                const BlockPlace place{1, column, volume.geometry.rows() - 1};
                spoil(volume, how, place);
                const uint32_t blocks = 3 * volume.geometry.stripe_data_blocks();
                CHECK(volume.read_back(0, blocks));
                check_counters(volume, place, how, true);
                CHECK(volume.all_counters(volume.spot(place).member) == 0);
                CHECK(volume.disk_is_right());
                volume.forget_requests();
                CHECK(volume.read_back(0, blocks));
                CHECK(volume.all_counters() == 2);
                CHECK(volume.requests(IoKind::kWrite) == 0);
                CHECK(volume.array->statistics().blocks_repaired == 1);
            }
        }
    }
}

// B7 and E1 of reliability: every pair of columns, parity included, in every mixture of faults.
TEST_CASE("every pair of faults in a raid6 row is solved, and only the guilty are counted")
{
    uint32_t cases = 0;
    for (const Shape& shape : parity_shapes(8, {16384})) {
        if (shape.profile != ProfileId::kRaid6)
            continue;
        const uint32_t n = shape.data_columns + 2;
        for (uint32_t first = 0; first < n; ++first) {
            for (uint32_t second = 0; second < n; ++second) {
                if (first == second || (first >= shape.data_columns && second >= shape.data_columns))
                    continue;
                for (int mixture = 0; mixture < 6; ++mixture) {
                    const auto one = static_cast<Spoil>(mixture % 2);
                    const auto two = static_cast<Spoil>(mixture / 2);
                    INFO(describe(shape), " columns ", first, " ", second, " mixture ", mixture);
                    TestVolume volume(shape, first * 8 + second + 1);
                    REQUIRE(volume.write(4, 1).ok());
                    const BlockPlace a{4, first, 2};
                    const BlockPlace b{4, second, 2};
                    spoil(volume, one, a);
                    spoil(volume, two, b);
                    const uint32_t stripe_blocks = volume.geometry.stripe_data_blocks();
                    REQUIRE(volume.read_back(4 * stripe_blocks, stripe_blocks));
                    const uint32_t member_a = volume.spot(a).member;
                    const uint32_t member_b = volume.spot(b).member;
                    // Faulty parity that no data block needed stays unseen: met or not, never miscounted.
                    const uint64_t expected = volume.all_counters() / 2;
                    CHECK(volume.counter(member_a, MemberCounter::kRepaired) +
                              volume.counter(member_b, MemberCounter::kRepaired) ==
                          expected);
                    check_counters(volume, a, one,
                                   first < shape.data_columns ||
                                       volume.counter(member_a, MemberCounter::kRepaired) > 0);
                    check_counters(volume, b, two,
                                   second < shape.data_columns ||
                                       volume.counter(member_b, MemberCounter::kRepaired) > 0);
                    const uint64_t counted = volume.all_counters();
                    REQUIRE(volume.read_back(4 * stripe_blocks, stripe_blocks));
                    CHECK(volume.all_counters() == counted);
                    ++cases;
                }
            }
        }
    }
    CHECK(cases > 500);
}

TEST_CASE("a bad parity block that recovery meets is repaired, too, and so are pads and free blocks")
{
    for (const uint32_t parity : {0u, 1u}) {
        TestVolume volume({ProfileId::kRaid6, 4, 16384});
        REQUIRE(volume.write(0, 1, 60).ok());
        // Data 0 is lost with its member; the first parity is bad, so that the other must serve.
        const BlockPlace lost{0, 0, 1};
        const BlockPlace bad{0, 4 + parity, 1};
        volume.rot(bad);
        volume.rot(lost);
        CHECK(volume.read_back(0, 16));
        if (parity == 0) {
            CHECK(volume.disk_is_right());
            CHECK(volume.counter(volume.spot(bad).member, MemberCounter::kParity) == 1);
            CHECK(volume.counter(volume.spot(bad).member, MemberCounter::kRepaired) == 1);
        } else {
            CHECK(volume.disk_is_right({volume.spot(bad).member}));
        }
    }
    // A block nobody reads (free, or a pad) is rotten beside one that is wanted.
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    REQUIRE(volume.write(0, 1, 50).ok());
    const BlockPlace free_block{0, 3, 2};
    const BlockPlace wanted{0, 1, 2};
    volume.rot(free_block);
    volume.rot(wanted);
    CHECK(volume.read_back(block_number(volume.geometry, wanted), 1));
    CHECK(volume.disk_is_right());
    CHECK(volume.counter(volume.spot(free_block).member, MemberCounter::kCorruption) == 1);
    CHECK(volume.counter(volume.spot(free_block).member, MemberCounter::kRepaired) == 1);
    CHECK(volume.all_counters() == 4);
}

TEST_CASE("a whole member of garbage is healed by reading, twice is quiet")
{
    for (const Shape& shape : parity_shapes(6, {16384})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        constexpr uint32_t kStripes = 6;
        REQUIRE(volume.write(0, kStripes).ok());
        uint32_t data_blocks = 0;
        for (uint64_t stripe = 0; stripe < kStripes; ++stripe) {
            for (uint32_t column = 0; column < shape.data_columns + volume.geometry.parity; ++column) {
                if (volume.spot({stripe, column, 0}).member != 1)
                    continue;
                for (uint32_t row = 0; row < volume.geometry.rows(); ++row)
                    volume.rot({stripe, column, row});
                data_blocks += column < shape.data_columns ? volume.geometry.rows() : 0;
            }
        }
        const uint32_t blocks = kStripes * volume.geometry.stripe_data_blocks();
        CHECK(volume.read_back(0, blocks));
        CHECK(volume.counter(1, MemberCounter::kCorruption) == data_blocks);
        CHECK(volume.counter(1, MemberCounter::kRepaired) == data_blocks);
        CHECK(volume.all_counters(1) == 0);
        CHECK(volume.read_back(0, blocks));
        CHECK(volume.all_counters() == 2 * data_blocks);
        // Nothing of it is needed any more when another member goes; parity on it is still bad.
        volume.remove(0);
        std::vector<BadBlock> found;
        REQUIRE(volume.array->check_stripes(TestVolume::kGroup, 0, kStripes, found).ok());
        for (const BadBlock& bad : found)
            CHECK((bad.kind == BadBlock::Kind::kParity ? bad.member == TestVolume::member_id(1)
                                                       : bad.kind == BadBlock::Kind::kMissing));
    }
}

TEST_CASE("beyond m exactly the faulty blocks fail, others come, and nothing on any member changes")
{
    for (const Shape& shape : parity_shapes(6, {16384})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        const uint32_t m = volume.geometry.parity;
        REQUIRE(volume.write(0, 2, 0).ok());
        // One more fault than parity in row 3 of stripe 1, data first.
        std::vector<BlockPlace> bad;
        for (uint32_t column = 0; column <= m; ++column)
            bad.push_back({1, column, 3});
        for (const BlockPlace& place : bad)
            volume.rot(place);
        std::vector<std::vector<std::byte>> before;
        for (uint32_t member = 0; member < volume.member_count(); ++member)
            before.push_back(volume.image(member));
        volume.forget_requests();
        uint32_t lost = 0;
        for (uint32_t block = 0; block < 2 * volume.geometry.stripe_data_blocks(); ++block) {
            ReadPiece piece = volume.piece(block, 1);
            const BlockPlace place = place_of(volume.geometry, block * uint64_t{kBlockBytes});
            const bool gone = std::find(bad.begin(), bad.end(), place) != bad.end();
            const Status status = volume.array->read(std::span(&piece, 1));
            CHECK(status == (gone ? Status(Err::kTooManyFaults) : Status()));
            CHECK((gone || volume.right(piece)));
            lost += gone;
            volume.forget_pieces();
        }
        CHECK(lost == std::min(m + 1, shape.data_columns));
        ReadPiece all = volume.piece(0, 2 * volume.geometry.stripe_data_blocks());
        CHECK(volume.array->read(std::span(&all, 1)).err() == Err::kTooManyFaults);
        CHECK(all.bad_blocks == lost);
        for (uint32_t member = 0; member < volume.member_count(); ++member)
            CHECK(volume.image(member) == before[member]);
        CHECK(volume.requests(IoKind::kWrite) == 0);
        CHECK(volume.array->statistics().blocks_repaired == 0);
    }
}

TEST_CASE("a sector that stays bad takes its member out of service, without an endless loop")
{
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    REQUIRE(volume.write(0, 2).ok());
    const BlockPlace place{0, 1, 0};
    const TestVolume::Spot spot = volume.spot(place);
    volume.faults[spot.member]->add_rule({.action = FaultAction::kError,
                                          .kinds = kFaultReads | kFaultWrites,
                                          .begin = spot.offset,
                                          .end = spot.offset + kBlockBytes});
    CHECK(volume.read_back(0, 32));
    CHECK(volume.counter(spot.member, MemberCounter::kReadErrors) == 1);
    CHECK(volume.counter(spot.member, MemberCounter::kWriteErrors) == 1);
    CHECK(volume.counter(spot.member, MemberCounter::kRepaired) == 0);
    CHECK(volume.set.failed(TestVolume::member_id(spot.member)));
    CHECK(volume.read_back(0, 32));
    CHECK(volume.all_counters() == 2);
}

namespace {

// A block group that has nothing but this member; its address.
VolumeAddress add_single_group(TestVolume& volume, uint32_t member)
{
    GroupRecord single = volume.group_record;
    single.address = TestVolume::kGroup + volume.group_record.span_bytes();
    single.profile = ProfileId::kSingle;
    single.data_columns = 1;
    single.column_bytes = TestVolume::kSlotBytes;
    single.columns = {{.member = TestVolume::member_id(member), .runs = {{5, 1}}}};
    REQUIRE(volume.array->add_group(single, volume.superblock).ok());
    return single.address;
}

}  // namespace

TEST_CASE("a member whose loss would cost another group its data stays in service")
{
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    REQUIRE(volume.write(0, 2).ok());
    const TestVolume::Spot spot = volume.spot({0, 1, 0});
    const VolumeAddress single = add_single_group(volume, spot.member);
    volume.faults[spot.member]->add_rule({.action = FaultAction::kError, .kinds = kFaultWrites});
    volume.rot({0, 1, 0});
    CHECK(volume.read_back(0, 32));
    CHECK(volume.counter(spot.member, MemberCounter::kWriteErrors) == 1);
    CHECK_FALSE(volume.set.failed(TestVolume::member_id(spot.member)));
    CHECK_FALSE(volume.set.stopped());  // nothing rests on a repair
    // Without that group it would go.
    volume.array->remove_groups(std::span(&single, 1));
    volume.rot({0, 1, 0});
    CHECK(volume.read_back(0, 32));
    CHECK(volume.set.failed(TestVolume::member_id(spot.member)));
}

TEST_CASE("a write that its group carries is refused when another group cannot do without the member")
{
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    REQUIRE(volume.write(0, 2).ok());
    const TestVolume::Spot spot = volume.spot({0, 1, 0});
    add_single_group(volume, spot.member);
    volume.faults[spot.member]->add_rule({.action = FaultAction::kError, .kinds = kFaultWrites, .limit = 1});
    CHECK(volume.write(2, 1).err() == Err::kTooManyFaults);
    CHECK_FALSE(volume.set.failed(TestVolume::member_id(spot.member)));
    CHECK(volume.set.stopped());
    CHECK(volume.read_back(0, 32));
}

TEST_CASE("a repair that the device loses is not counted as one")
{
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, 1).ok());
    const BlockPlace place{0, 2, 1};
    volume.rot(place);
    volume.faults[volume.spot(place).member]->add_rule({.action = FaultAction::kLost, .kinds = kFaultWrites});
    CHECK(volume.read_back(0, 12));
    CHECK(volume.counter(volume.spot(place).member, MemberCounter::kRepaired) == 0);
    CHECK(volume.counter(volume.spot(place).member, MemberCounter::kCorruption) == 1);
    CHECK(volume.array->statistics().blocks_repaired == 0);
}

TEST_CASE("a read-only array heals in memory only")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid6, 4, 16384}, Shape{ProfileId::kRaid1c3, 1, 16384}}) {
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 1).ok());
        const BlockPlace place{0, 0, 1};
        volume.rot(place);
        volume.array->set_read_only(true);
        volume.forget_requests();
        CHECK(volume.read_back(0, 4));
        CHECK(volume.requests(IoKind::kWrite) == 0);
        CHECK(volume.counter(volume.spot(place).member, MemberCounter::kCorruption) == 1);
        CHECK(volume.all_counters() == 1);
    }
}

TEST_CASE("a repair is not written when the verifier no longer wants that content")
{
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, 1).ok());
    const BlockPlace place{0, 1, 1};
    volume.rot(place);
    const std::vector<std::byte> before = volume.image(volume.spot(place).member);
    ReadPiece piece = volume.piece(0, 12);
    const uint64_t address = TestVolume::kGroup.value + offset_of(volume.geometry, place);
    volume.answers[address] = {true, 12345};  // freed and written anew meanwhile
    volume.forget_requests();
    CHECK(volume.array->read(std::span(&piece, 1)).ok());
    CHECK(volume.right(piece));
    volume.answers[address] = {};  // discarded
    CHECK(volume.array->read(std::span(&piece, 1)).ok());
    CHECK(volume.requests(IoKind::kWrite) == 0);
    CHECK(volume.image(volume.spot(place).member) == before);
    CHECK(volume.all_counters() == 1);  // the second, whose absence of an answer proves nothing
}

TEST_CASE("a repair is not written over what somebody else wrote meanwhile")
{
    // The device answers one read with flipped bits and is fine: by the time of the repair the block holds
    // something else than what was seen, here even the right content.
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    REQUIRE(volume.write(0, 1).ok());
    const uint32_t member = volume.spot({0, 0, 0}).member;
    volume.faults[member]->add_rule({.action = FaultAction::kBitFlip, .kinds = kFaultReads, .limit = 1});
    volume.forget_requests();
    CHECK(volume.read_back(0, 16));
    CHECK(volume.requests(IoKind::kWrite) == 0);
    CHECK(volume.disk_is_right());
}

TEST_CASE("nobody writes a row between the verifier's answer and the repair that rests on it")
{
    // Whoever asks about the row meets a writer who wants to replace it.
    class Racing final : public BlockVerifier {
    public:
        explicit Racing(TestVolume& volume) : volume_(volume), write_(volume.prepare(0, 1, 0, 4, 0))
        {
            write_.sink = &volume;
        }
        void expect(VolumeAddress address, std::span<BlockExpectation> out) override
        {
            volume_.expect(address, out);
            ++questions;
            if (!writer_.joinable())
                writer_ = std::thread([this] {
                    ok = volume_.array->write_rows({&write_, 1}).ok();
                    written = true;
                });
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            overtaken = overtaken || written;
        }
        void unrecoverable(VolumeAddress) override { }
        void finish()
        {
            writer_.join();
            volume_.commit(write_);
        }
        bool overtaken = false;
        uint32_t questions = 0;
        std::atomic<bool> written = false, ok = false;

    private:
        TestVolume& volume_;
        RowWrite write_;
        std::thread writer_;
    };
    for (const bool latent : {false, true}) {
        TestVolume volume({ProfileId::kRaid5, 3, 16384});
        REQUIRE(volume.write(0, 1).ok());
        const BlockPlace place{0, 1, 1};
        latent ? volume.latent(place) : volume.rot(place);
        ReadPiece piece = volume.piece(0, 12);
        Racing racing(volume);
        volume.array->set_verifier(&racing);
        CHECK(volume.array->read(std::span(&piece, 1)).ok());
        CHECK(volume.right(piece));  // as it was before the writer
        CHECK(racing.questions >= 2);  // about the rest of the row, and before the repair
        CHECK_FALSE(racing.overtaken);
        racing.finish();
        CHECK(racing.ok);
        CHECK(volume.array->statistics().blocks_repaired == 1);
        volume.array->set_verifier(&volume);
        CHECK(volume.disk_is_right());
        CHECK(volume.read_back(0, 12));
    }
}

TEST_CASE("a block that changed between the read and its repair is left alone")
{
    // The reader sees old garbage; by the time of the repair the block holds other bytes, as after a write.
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    REQUIRE(volume.write(0, 1).ok());
    const BlockPlace place{0, 2, 3};
    const TestVolume::Spot spot = volume.spot(place);
    volume.rot(place);
    volume.faults[spot.member]->add_rule({.action = FaultAction::kStale,
                                          .kinds = kFaultReads,
                                          .begin = spot.offset,
                                          .end = spot.offset + kBlockBytes,
                                          .limit = 1});
    const std::vector<std::byte> newer(kBlockBytes, std::byte{0x42});
    AlignedBuffer memory(kBlockBytes);
    std::copy(newer.begin(), newer.end(), memory.data());
    const iovec vector{memory.data(), kBlockBytes};
    IoRequest write{.kind = IoKind::kWrite, .offset = {spot.offset}, .vectors = std::span(&vector, 1)};
    volume.faults[spot.member]->perform(write);
    volume.forget_requests();
    CHECK(volume.read_back(0, 16));
    CHECK(volume.requests(IoKind::kWrite) == 0);
    CHECK(volume.all_counters() == 0);
    std::vector<std::byte> now(kBlockBytes);
    volume.sims[spot.member]->peek(spot.offset, now);
    CHECK(now == newer);
}

TEST_CASE("without a verifier siblings are tried in every combination, and only the wanted is rewritten")
{
    for (const bool null_verifier : {true, false}) {
        for (const Shape& shape : parity_shapes(7, {16384})) {
            if (shape.profile != ProfileId::kRaid6)
                continue;
            for (uint32_t sibling = 1; sibling < shape.data_columns + 2; ++sibling) {
                INFO(describe(shape), " sibling ", sibling);
                TestVolume volume(shape, sibling);
                REQUIRE(volume.write(0, 1).ok());
                volume.rot({0, 0, 2});
                volume.rot({0, sibling, 2});
                volume.knows_nothing = true;
                if (null_verifier)
                    volume.array->set_verifier(nullptr);
                REQUIRE(volume.read_back(2, 1));
                const uint32_t member = volume.spot({0, 0, 2}).member;
                CHECK(volume.counter(member, MemberCounter::kCorruption) == 1);
                // A verifier that does not know the block may mean that it was freed: not written then.
                CHECK(volume.counter(member, MemberCounter::kRepaired) == null_verifier);
                CHECK(volume.all_counters(member) == 0);
            }
        }
    }
}

TEST_CASE("wrong parity with the checksum it was written with does not fool recovery")
{
    // P was computed wrong but its checksum agrees: data is still solved through Q.
    TestVolume volume({ProfileId::kRaid6, 4, 16384});
    REQUIRE(volume.write(0, 1, 0).ok());
    const BlockPlace p{0, 4, 1};
    const TestVolume::Spot spot = volume.spot(p);
    std::vector<std::byte> zeros(kBlockBytes);
    volume.sims[spot.member]->poke(spot.offset, zeros);
    volume.answers[TestVolume::kGroup.value + offset_of(volume.geometry, p)] = {true, zero_block_checksum()};
    volume.rot({0, 2, 1});
    CHECK(volume.read_back(2 * 4 + 1, 1));
    CHECK(volume.counter(volume.spot({0, 2, 1}).member, MemberCounter::kRepaired) == 1);
    CHECK(volume.counter(spot.member, MemberCounter::kParity) == 0);
}

TEST_CASE("random rot within tolerance in every row, random pieces: always right, in the end all clean")
{
    const uint64_t seed = test_seed();
    INFO("seed ", seed);
    for (int round = 0; round < 40; ++round) {
        Prng prng(seed + static_cast<uint64_t>(round));
        const std::vector<Shape> all = parity_shapes(8, {4096, 16384, 65536});
        const Shape shape = all[prng.below(all.size())];
        INFO("round ", round, " ", describe(shape));
        TestVolume volume(shape, seed + static_cast<uint64_t>(round));
        constexpr uint32_t kStripes = 4;
        REQUIRE(volume.write(0, kStripes, 20).ok());
        const uint32_t columns = shape.data_columns + volume.geometry.parity;
        for (uint64_t stripe = 0; stripe < kStripes; ++stripe)
            for (uint32_t row = 0; row < volume.geometry.rows(); ++row)
                for (uint32_t fault = 0; fault < volume.geometry.parity; ++fault)
                    spoil(volume, prng.chance(1, 8) ? Spoil::kLatent : Spoil::kRot,
                          {stripe, static_cast<uint32_t>(prng.below(columns)), row});
        const uint32_t blocks = kStripes * volume.geometry.stripe_data_blocks();
        for (int i = 0; i < 10; ++i) {
            std::vector<ReadPiece> pieces;
            for (int part = 0; part < 5; ++part) {
                const uint64_t first = prng.below(blocks);
                pieces.push_back(volume.piece(first, static_cast<uint32_t>(prng.between(1, blocks - first))));
            }
            REQUIRE(volume.array->read(pieces).ok());
            for (const ReadPiece& piece : pieces)
                REQUIRE(volume.right(piece));
            volume.forget_pieces();
        }
        REQUIRE(volume.read_back(0, blocks));
        const uint64_t counted = volume.all_counters();
        REQUIRE(volume.read_back(0, blocks));
        CHECK(volume.all_counters() == counted);
        std::vector<BadBlock> found;
        REQUIRE(volume.array->check_stripes(TestVolume::kGroup, 0, kStripes, found).ok());
        for (const BadBlock& bad : found)
            CHECK(offset_of(volume.geometry, place_of(volume.geometry, bad.address - TestVolume::kGroup)) >=
                  volume.geometry.data_blocks() * kBlockBytes);
    }
}
