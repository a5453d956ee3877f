// SPDX-License-Identifier: MIT
// Mirrored groups, and tree nodes: pieces whose reader vouches for them.
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "tests/support/array_fixture.h"
#include "tests/support/scrub_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr ProfileId kMirrors[] = {ProfileId::kRaid1, ProfileId::kRaid1c3, ProfileId::kRaid1c4,
                                  ProfileId::kRaid10};

Shape mirror(ProfileId id, uint32_t chunk_bytes)
{
    return {id, id == ProfileId::kRaid10 ? 2u : 1u, chunk_bytes};
}

// Reads four blocks from block `first` on as a tree node: its pointer has their checksums.
struct Node {
    Node(TestVolume& volume, uint64_t first) : piece(volume.piece(first, kNodeBlocks))
    {
        piece.source = ChecksumSource::kPointer;
    }
    // Ok only with the right content.
    Status read(TestVolume& volume)
    {
        const Status status = volume.array->read(std::span(&piece, 1));
        CHECK((!status.ok() || volume.right(piece)));
        return status;
    }
    [[nodiscard]] std::vector<BadBlock> bad_copies(TestVolume& volume) const
    {
        std::vector<BadBlock> found;
        CHECK(volume.array->check_copies(piece.address, {piece.checksums, kNodeBlocks}, found).ok());
        return found;
    }

    ReadPiece piece;
};

uint64_t repaired_blocks(const TestVolume& volume)
{
    uint64_t sum = 0;
    for (uint32_t member = 0; member < volume.member_count(); ++member)
        sum += volume.counter(member, MemberCounter::kRepaired);
    return sum;
}

}  // namespace

TEST_CASE("a bad copy is read around, rewritten and counted, whichever it is")
{
    for (const ProfileId id : kMirrors) {
        for (const uint32_t chunk : {4096u, 65536u}) {
            const uint32_t copies = TestVolume(mirror(id, chunk)).geometry.copies;
            for (uint32_t bad = 0; bad < copies; ++bad) {
                for (const bool latent : {false, true}) {
                    TestVolume volume(mirror(id, chunk), bad + 1);
                    INFO(describe(volume.shape), " copy ", bad);
                    REQUIRE(volume.write(0, 6, 0).ok());
                    const BlockPlace place{3, volume.geometry.data_columns - 1, volume.geometry.rows() - 1};
                    latent ? volume.latent(place, bad) : volume.rot(place, bad);
                    const uint32_t blocks = 6 * volume.geometry.stripe_data_blocks();
                    CHECK(volume.read_back(0, blocks));
                    const uint32_t member = volume.spot(place, bad).member;
                    const uint64_t met = volume.counter(member, MemberCounter::kRepaired);
                    CHECK(volume.counter(member, latent ? MemberCounter::kReadErrors
                                                        : MemberCounter::kCorruption) == met);
                    CHECK(volume.all_counters() == 2 * met);
                    CHECK(volume.disk_is_right() == (latent || met == 1));
                    CHECK(volume.read_back(0, blocks));
                    CHECK(volume.all_counters() == 2 * met);
                }
            }
        }
    }
}

TEST_CASE("every choice of bad copies but one is survived block by block; all bad is an error")
{
    for (const ProfileId id : kMirrors) {
        const uint32_t copies = TestVolume(mirror(id, 16384)).geometry.copies;
        for (uint32_t bad = 1; bad < 1u << copies; ++bad) {
            TestVolume volume(mirror(id, 16384), bad);
            INFO(describe(volume.shape), " copies ", bad);
            REQUIRE(volume.write(0, 2, 0).ok());
            const BlockPlace place{1, 0, 2};
            for (uint32_t copy = 0; copy < copies; ++copy)
                if ((bad >> copy & 1) != 0)
                    volume.rot(place, copy);
            ReadPiece pieces[] = {volume.piece(0, volume.geometry.stripe_data_blocks()),
                                  volume.piece(volume.geometry.stripe_data_blocks(), 4)};
            const Status status = volume.array->read(pieces);
            if (bad + 1 < 1u << copies) {
                CHECK(status.ok());
                CHECK(volume.right(pieces[1]));
                CHECK(volume.all_counters() % 2 == 0);
            } else {
                CHECK(status.err() == Err::kTooManyFaults);
                CHECK(pieces[1].bad_blocks == 1);
                CHECK(volume.array->statistics().blocks_repaired == 0);
                CHECK(volume.given_up.size() == 1);
            }
            CHECK(pieces[0].result.ok());
            CHECK(volume.right(pieces[0]));
        }
    }
}

TEST_CASE("a node of which every copy is damaged in another block is read and healed")
{
    for (const ProfileId id : kMirrors) {
        for (const uint32_t chunk : {4096u, 8192u, 65536u}) {
            for (uint64_t first : {0u, 3u, 14u}) {
                for (const bool all_but_one : {false, true}) {
                    TestVolume volume(mirror(id, chunk), first + 1);
                    INFO(describe(volume.shape), " block ", first, " all but one ", all_but_one);
                    REQUIRE(volume.write(0, 40, 0).ok());
                    Node node(volume, first);
                    CHECK(node.read(volume).ok());
                    CHECK(volume.all_counters() == 0);
                    // Of block i the copy on the i-th of the members that take turns is bad, or all others
                    // are: none is whole any more.
                    const uint32_t copies = volume.geometry.copies;
                    uint64_t rotten = 0;
                    for (uint64_t i = 0; i < kNodeBlocks; ++i) {
                        const BlockPlace place = place_of(volume.geometry, (first + i) * kBlockBytes);
                        const auto chosen =
                            static_cast<uint32_t>((i + copies - place.stripe % copies) % copies);
                        for (uint32_t copy = 0; copy < copies; ++copy)
                            if ((copy == chosen) != all_but_one) {
                                volume.rot(place, copy);
                                ++rotten;
                            }
                    }
                    // Nodes are healed without asking the verifier, which might be reading this very node.
                    volume.knows_nothing = true;
                    CHECK(node.read(volume).ok());
                    const uint64_t met = repaired_blocks(volume);
                    CHECK(met > 0);
                    CHECK(volume.all_counters() == 2 * met);
                    // Copies that the reader had no need of stay as they are, and are known.
                    CHECK(node.bad_copies(volume).size() == rotten - met);
                    CHECK(node.read(volume).ok());
                    CHECK(volume.all_counters() == 2 * met);
                    CHECK(volume.disk_is_right() == (rotten == met));
                }
            }
        }
    }
}

TEST_CASE("a node heals while the verifier must not be asked")
{
    // expect() of a real filesystem reads nodes: asking it to repair a node would recurse without end.
    class Forbidding final : public BlockVerifier {
    public:
        void expect(VolumeAddress, std::span<BlockExpectation>) override { asked = true; }
        void unrecoverable(VolumeAddress) override { }
        bool asked = false;
    };
    TestVolume volume(mirror(ProfileId::kRaid1c3, 65536));
    REQUIRE(volume.write(0, 1, 0).ok());
    Forbidding forbidding;
    volume.array->set_verifier(&forbidding);
    for (uint32_t copy = 0; copy < 2; ++copy)
        volume.rot({0, 0, 1}, copy);
    Node node(volume, 0);
    CHECK(node.read(volume).ok());
    CHECK_FALSE(forbidding.asked);
    CHECK(volume.disk_is_right());
    // Of other content it is.
    volume.rot({0, 0, 1}, 0);
    CHECK(volume.read_back(0, kNodeBlocks));
    CHECK(forbidding.asked);
}

namespace {

// Reads a node whenever it is asked, as a filesystem does. Who asks may hold the node's stripe: a read that
// waits for it ends after the answer.
class NodeVerifier final : public BlockVerifier {
public:
    explicit NodeVerifier(TestVolume& volume) : volume_(volume), node_(volume, 0) { }
    ~NodeVerifier() override
    {
        for (std::thread& reader : readers_)
            reader.join();
    }
    void expect(VolumeAddress address, std::span<BlockExpectation> out) override
    {
        ++questions;
        if (done_ == readers_.size())
            readers_.emplace_back([this] {
                CHECK(node_.read(volume_).ok());
                ++done_;
            });
        for (int i = 0; i < 5000 && done_ < readers_.size(); ++i)
            usleep(1000);
        CHECK(done_ == readers_.size());
        volume_.expect(address, out);
    }
    void unrecoverable(VolumeAddress) override { CHECK(false); }

    uint64_t questions = 0;

private:
    TestVolume& volume_;
    Node node_;
    std::atomic<size_t> done_{0};
    std::vector<std::thread> readers_;
};

}  // namespace

TEST_CASE("a node with a bad copy is read by who holds its stripe and asks for checksums, and heals later")
{
    constexpr MemberId kTarget{100};
    for (const ProfileId id : kMirrors) {
        TestVolume volume(mirror(id, 65536));
        CAPTURE(describe(volume.shape));
        REQUIRE(volume.write(0, 2, 0).ok());
        auto sim = std::make_unique<SimDevice>("target", 128 * kMiB);
        const SimDevice& target = *sim;
        volume.set.add(kTarget, std::move(sim), {});
        const MemberCopy copy{TestVolume::member_id(0), kTarget};
        volume.set.set_mirror(copy.source, copy.target);
        // Whichever copy of the node is read first lacks a block, and so does the source.
        const auto spoil = [&] {
            for (uint32_t number = 0; number < volume.geometry.copies; ++number)
                volume.rot({0, 0, number}, number);
        };
        NodeVerifier verifier(volume);
        volume.array->set_verifier(&verifier);
        std::vector<StripeRows> rows{{0, 0, volume.geometry.rows()}};
        TestSink sink(volume);
        ScrubReport report;
        spoil();
        REQUIRE(volume.array->copy_rows(TestVolume::kGroup, rows, copy, sink, report).ok());
        CHECK(verifier.questions > 1);  // of the copied blocks, and of the one that was bad
        CHECK(report.repaired == 1);
        CHECK(report.lost.empty());
        for (uint32_t row = 0; row < volume.geometry.rows(); ++row) {
            std::vector<std::byte> have(kBlockBytes);
            target.peek(volume.spot({0, 0, row}).offset, have);
            CHECK((have == *volume.content_at({0, 0, row})));
        }
        spoil();
        std::vector<BadBlock> bad;
        REQUIRE(volume.array->check_stripes(TestVolume::kGroup, 0, 1, bad).ok());
        CHECK(bad.size() == volume.geometry.copies);
        // Nobody holds the stripe: the node heals.
        Node node(volume, 0);
        CHECK(node.read(volume).ok());
        CHECK(node.bad_copies(volume).size() == volume.geometry.copies - 1);
        CHECK(scrub(volume, 1).repaired == volume.geometry.copies - 1);
        CHECK(volume.disk_is_right());
        volume.array->set_verifier(&volume);
    }
}

TEST_CASE("a node whose member is gone, and one that no copy holds any more")
{
    TestVolume volume(mirror(ProfileId::kRaid1c3, 16384));
    REQUIRE(volume.write(0, 8, 0).ok());
    Node node(volume, 4);
    volume.remove(volume.spot({1, 0, 0}, 0).member);
    CHECK(node.read(volume).ok());
    volume.remove(volume.spot({1, 0, 0}, 1).member);
    CHECK(node.read(volume).ok());
    CHECK(volume.all_counters() == 0);
    const uint32_t last = volume.spot({1, 0, 2}, 2).member;
    volume.rot({1, 0, 2}, 2);
    CHECK(node.read(volume).err() == Err::kTooManyFaults);
    CHECK(node.piece.bad_blocks == 1);
    CHECK(volume.counter(last, MemberCounter::kCorruption) == 1);
    CHECK(volume.given_up == std::vector{node.piece.address + 2 * kBlockBytes});
}

TEST_CASE("a node with an unreadable block and a rotten one in one copy, and rot in another")
{
    TestVolume volume(mirror(ProfileId::kRaid1, 65536));
    REQUIRE(volume.write(0, 1, 0).ok());
    Node node(volume, 8);
    volume.latent({0, 0, 9}, 0);
    volume.rot({0, 0, 11}, 0);
    volume.rot({0, 0, 10}, 1);
    CHECK(node.read(volume).ok());
    CHECK(volume.counter(volume.spot({0, 0, 9}, 0).member, MemberCounter::kReadErrors) == 1);
    CHECK(volume.counter(volume.spot({0, 0, 9}, 0).member, MemberCounter::kCorruption) == 1);
    CHECK(volume.all_counters() == 4);
    const std::vector<BadBlock> left = node.bad_copies(volume);
    REQUIRE(left.size() == 1);
    CHECK(left[0].address == TestVolume::kGroup + 10 * kBlockBytes);
    // Once its member is the only one, the block that was not met is beyond help.
    volume.remove(volume.spot({0, 0, 9}, 0).member);
    CHECK(node.read(volume).err() == Err::kTooManyFaults);
    CHECK(node.piece.bad_blocks == 1);
}

TEST_CASE("a read-only array delivers healed nodes and writes nothing")
{
    TestVolume volume(mirror(ProfileId::kRaid1, 65536));
    REQUIRE(volume.write(0, 1, 0).ok());
    volume.array->set_read_only(true);
    volume.forget_requests();
    Node node(volume, 0);
    volume.rot({0, 0, 0}, 0);
    volume.rot({0, 0, 3}, 1);
    CHECK(node.read(volume).ok());
    CHECK(volume.requests(IoKind::kWrite) == 0);
}

TEST_CASE("a node under parity is solved and rewritten, whether or not the verifier knows its blocks")
{
    for (const Shape& shape : parity_shapes(6, {4096, 16384})) {
        for (const int knowledge : {0, 1, 2}) {
            INFO(describe(shape), " knowledge ", knowledge);
            TestVolume volume(shape);
            REQUIRE(volume.write(0, 16, 0).ok());
            Node node(volume, 5);
            CHECK(node.read(volume).ok());
            volume.rot(place_of(volume.geometry, 5 * kBlockBytes));
            if (shape.profile == ProfileId::kRaid6 && shape.data_columns > 1)
                volume.rot(place_of(volume.geometry, 7 * kBlockBytes));
            volume.knows_nothing = knowledge > 0;
            if (knowledge == 2)
                volume.array->set_verifier(nullptr);
            CHECK(node.read(volume).ok());
            CHECK(volume.disk_is_right());
            CHECK(volume.all_counters() == 2 * repaired_blocks(volume));
            volume.remove(volume.spot(place_of(volume.geometry, 6 * kBlockBytes)).member);
            CHECK(node.read(volume).ok());
        }
    }
}

TEST_CASE("a node under parity with a bad block in each of its rows, on every member in turn")
{
    for (const Shape& shape : parity_shapes(6, {4096, 16384})) {
        INFO(describe(shape));
        TestVolume volume(shape);
        REQUIRE(volume.write(0, 16, 0).ok());
        Node node(volume, 4);
        // Of each of its blocks' rows another column, the node's own among them.
        std::set<std::pair<uint64_t, uint32_t>> rows;
        for (uint64_t i = 0; i < kNodeBlocks; ++i) {
            const BlockPlace own = place_of(volume.geometry, (4 + i) * kBlockBytes);
            if (rows.emplace(own.stripe, own.row).second)
                volume.rot({own.stripe, static_cast<uint32_t>((own.column + i) % volume.geometry.columns()),
                            own.row});
        }
        CHECK(node.read(volume).ok());
        CHECK(node.read(volume).ok());
        CHECK(volume.array->statistics().blocks_unrecoverable == 0);
        CHECK(volume.all_counters() == 2 * repaired_blocks(volume));
    }
}

TEST_CASE("a node on a parity group beyond tolerance is an error")
{
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, 2, 0).ok());
    Node node(volume, 0);
    volume.rot({0, 0, 1});
    volume.rot({0, 1, 1});
    CHECK(node.read(volume).err() == Err::kTooManyFaults);
    CHECK(node.piece.bad_blocks == 1);
    volume.knows_nothing = true;
    CHECK(node.read(volume).err() == Err::kTooManyFaults);
    CHECK(volume.array->statistics().blocks_repaired == 0);
}

TEST_CASE("check_copies names each bad copy and changes nothing")
{
    TestVolume volume(mirror(ProfileId::kRaid1c3, 8192));
    REQUIRE(volume.write(0, 4, 0).ok());
    const Node node(volume, 1);
    CHECK(node.bad_copies(volume).empty());
    volume.rot(place_of(volume.geometry, 2 * kBlockBytes), 1);
    volume.latent(place_of(volume.geometry, 4 * kBlockBytes), 2);
    volume.forget_requests();
    std::vector<BadBlock> found = node.bad_copies(volume);
    CHECK(volume.requests(IoKind::kWrite) == 0);
    CHECK(volume.all_counters() == 0);
    REQUIRE(found.size() == 2);
    CHECK(found[0].kind == BadBlock::Kind::kData);
    CHECK(found[0].address == TestVolume::kGroup + 2 * kBlockBytes);
    CHECK(found[0].member.value - 1 == volume.spot(place_of(volume.geometry, 2 * kBlockBytes), 1).member);
    CHECK(found[1].kind == BadBlock::Kind::kReadError);
    CHECK(found[1].member.value - 1 == volume.spot(place_of(volume.geometry, 4 * kBlockBytes), 2).member);
    found.clear();
    const NodeChecksums other{};
    CHECK(volume.array->check_copies(node.piece.address, other, found).ok());
    CHECK(found.size() == 12);
    CHECK(volume.array->check_copies({4096}, other, found).err() == Err::kInvalid);
    CHECK(volume.array->check_copies(node.piece.address, {}, found).err() == Err::kInvalid);
    volume.remove(0);
    found.clear();
    const Checksum fifth = volume.checksum_at(place_of(volume.geometry, 5 * kBlockBytes));
    CHECK(volume.array->check_copies(TestVolume::kGroup + 5 * kBlockBytes, {&fifth, 1}, found).ok());
    REQUIRE(found.size() == 1);
    CHECK(found[0].kind == BadBlock::Kind::kMissing);
}
