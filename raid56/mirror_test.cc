// SPDX-License-Identifier: MIT
// Mirrored groups, and pieces that only their ContentCheck can judge.
#include <doctest/doctest.h>

#include "base/checksum.h"
#include "raid56/content_search.h"
#include "tests/support/array_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr ProfileId kMirrors[] = {ProfileId::kRaid1, ProfileId::kRaid1c3, ProfileId::kRaid1c4,
                                  ProfileId::kRaid10};

Shape mirror(ProfileId id, uint32_t chunk_bytes)
{
    return {id, id == ProfileId::kRaid10 ? 2u : 1u, chunk_bytes};
}

// A node of four blocks beginning at block `first`.
struct Node {
    Node(TestVolume& volume, uint64_t first)
        : check(content_of(volume, first)),
          memory(4 * kBlockBytes),
          piece{.address = TestVolume::kGroup + first * kBlockBytes,
                .block_count = 4,
                .memory = memory.data(),
                .check = &check}
    {
    }
    static std::vector<std::byte> content_of(const TestVolume& volume, uint64_t first)
    {
        std::vector<std::byte> all;
        for (uint64_t i = 0; i < 4; ++i) {
            const std::vector<std::byte>& block =
                *volume.content_at(place_of(volume.geometry, (first + i) * kBlockBytes));
            all.insert(all.end(), block.begin(), block.end());
        }
        return all;
    }
    Status read(TestVolume& volume) { return volume.array->read(std::span(&piece, 1)); }

    ExactContent check;
    AlignedBuffer memory;
    ReadPiece piece;
};

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

TEST_CASE("a node is healed from copies, also when every member has a bad block of it")
{
    for (const ProfileId id : kMirrors) {
        for (const uint32_t chunk : {4096u, 8192u, 65536u}) {
            for (uint64_t first : {0u, 3u, 14u}) {
                TestVolume volume(mirror(id, chunk), first + 1);
                INFO(describe(volume.shape), " block ", first);
                REQUIRE(volume.write(0, 40, 0).ok());
                Node node(volume, first);
                CHECK(node.read(volume).ok());
                CHECK(node.check.matches(node.memory.span()));
                CHECK(volume.all_counters() == 0);
                // Of block i the copy on the i-th of the members that take turns: none is whole any more.
                const uint32_t copies = volume.geometry.copies;
                for (uint64_t i = 0; i < 4; ++i) {
                    const BlockPlace place = place_of(volume.geometry, (first + i) * kBlockBytes);
                    volume.rot(place, static_cast<uint32_t>((i + copies - place.stripe % copies) % copies));
                }
                // Nodes are healed without asking the verifier, which might be reading this very node.
                volume.knows_nothing = true;
                CHECK(node.read(volume).ok());
                CHECK(node.check.matches(node.memory.span()));
                CHECK(volume.disk_is_right());
                CHECK(volume.all_counters() == 8);
                CHECK(node.read(volume).ok());
                CHECK(volume.all_counters() == 8);
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
    CHECK(node.check.matches(node.memory.span()));
    CHECK(volume.all_counters() == 0);
    const uint32_t last = volume.spot({1, 0, 2}, 2).member;
    volume.rot({1, 0, 2}, 2);
    CHECK(node.read(volume).err() == Err::kTooManyFaults);
    CHECK(node.piece.bad_blocks == 4);
    CHECK(volume.counter(last, MemberCounter::kCorruption) == 1);
    CHECK(volume.given_up == std::vector{node.piece.address});
}

TEST_CASE("a node with an unreadable block in one copy and rot in another")
{
    TestVolume volume(mirror(ProfileId::kRaid1, 65536));
    REQUIRE(volume.write(0, 1, 0).ok());
    Node node(volume, 8);
    volume.latent({0, 0, 9}, 0);
    volume.rot({0, 0, 11}, 1);
    CHECK(node.read(volume).ok());
    CHECK(volume.disk_is_right());
    CHECK(volume.counter(volume.spot({0, 0, 9}, 0).member, MemberCounter::kReadErrors) == 1);
    CHECK(volume.counter(volume.spot({0, 0, 9}, 1).member, MemberCounter::kCorruption) == 1);
    CHECK(volume.all_counters() == 4);
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
    CHECK(node.check.matches(node.memory.span()));
    CHECK(volume.requests(IoKind::kWrite) == 0);
}

TEST_CASE("content checks on a parity group: known blocks by checksum, unknown ones by combination")
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
            CHECK(node.check.matches(node.memory.span()));
            // Repaired where somebody vouches for the blocks.
            CHECK(volume.disk_is_right() == (knowledge != 1));
            volume.remove(volume.spot(place_of(volume.geometry, 6 * kBlockBytes)).member);
            if (knowledge != 1)
                CHECK(node.read(volume).ok());
            CHECK(node.check.matches(node.memory.span()));
        }
    }
}

TEST_CASE("a content check on a parity group beyond tolerance is an error")
{
    TestVolume volume({ProfileId::kRaid5, 3, 16384});
    REQUIRE(volume.write(0, 2, 0).ok());
    Node node(volume, 0);
    volume.rot({0, 0, 1});
    volume.rot({0, 1, 1});
    CHECK(node.read(volume).err() == Err::kTooManyFaults);
    volume.knows_nothing = true;
    CHECK(node.read(volume).err() == Err::kTooManyFaults);
    CHECK(volume.array->statistics().blocks_repaired == 0);
}

TEST_CASE("the search gives up after a bounded number of combinations")
{
    class Never final : public ContentCheck {
    public:
        [[nodiscard]] bool matches(std::span<const std::byte>) const override
        {
            ++calls;
            return false;
        }
        mutable uint32_t calls = 0;
    };
    constexpr uint32_t kBlocks = 20;
    const Never never;
    AlignedBuffer memory = AlignedBuffer::zeroed(kBlocks * kBlockBytes);
    AlignedBuffer candidates = AlignedBuffer::zeroed(2 * kBlockBytes);
    candidates.data()[5] = std::byte{1};
    const ReadPiece piece{.block_count = kBlocks, .memory = memory.data(), .check = &never};
    ContentSearch search(piece);
    for (uint32_t block = 0; block < kBlocks; ++block) {
        search.offer(block, candidates.data());
        search.offer(block, candidates.data() + kBlockBytes);
        search.offer(block, candidates.data());  // a repetition
    }
    CHECK_FALSE(search.run());
    CHECK(never.calls == ContentSearch::kMaxTrials);
}

TEST_CASE("check_copies names each bad copy and changes nothing")
{
    TestVolume volume(mirror(ProfileId::kRaid1c3, 8192));
    REQUIRE(volume.write(0, 4, 0).ok());
    Node node(volume, 1);
    std::vector<BadBlock> found;
    CHECK(volume.array->check_copies(node.piece.address, 4, node.check, found).ok());
    CHECK(found.empty());
    volume.rot(place_of(volume.geometry, 2 * kBlockBytes), 1);
    volume.latent(place_of(volume.geometry, 4 * kBlockBytes), 2);
    volume.forget_requests();
    CHECK(volume.array->check_copies(node.piece.address, 4, node.check, found).ok());
    CHECK(volume.requests(IoKind::kWrite) == 0);
    CHECK(volume.all_counters() == 0);
    REQUIRE(found.size() == 2);
    CHECK(found[0].kind == BadBlock::Kind::kData);
    CHECK(found[0].address == TestVolume::kGroup + 2 * kBlockBytes);
    CHECK(found[0].member.value - 1 == volume.spot(place_of(volume.geometry, 2 * kBlockBytes), 1).member);
    CHECK(found[1].kind == BadBlock::Kind::kReadError);
    CHECK(found[1].member.value - 1 == volume.spot(place_of(volume.geometry, 4 * kBlockBytes), 2).member);
    found.clear();
    const ExactContent other(std::vector<std::byte>(4 * kBlockBytes));
    CHECK(volume.array->check_copies(node.piece.address, 4, other, found).ok());
    CHECK(found.size() == 12);
    CHECK(volume.array->check_copies({4096}, 4, other, found).err() == Err::kInvalid);
    volume.remove(0);
    found.clear();
    CHECK(volume.array
              ->check_copies(TestVolume::kGroup + 5 * kBlockBytes, 1,
                             ExactContent(*volume.content_at(place_of(volume.geometry, 5 * kBlockBytes))),
                             found)
              .ok());
    REQUIRE(found.size() == 1);
    CHECK(found[0].kind == BadBlock::Kind::kMissing);
}
