// SPDX-License-Identifier: MIT
// Power fails while a scrub repairs rows and records them anew: what it wrote may be on the members, whole,
// torn or not at all, and the trees say what they said before. What could be read before the scrub, with
// whichever members are lost, can be read after it.
#include <doctest/doctest.h>

#include <algorithm>

#include "base/checksum.h"
#include "raid56/parity.h"
#include "tests/support/scrub_fixture.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint32_t kCutData = 3;
constexpr uint64_t kCutStripes = 24;

using Loss = std::vector<uint32_t>;

// A volume of rows that are wrong in all ways that a scrub settles: free blocks and parity that an unfinished
// write left, of which the trees do not know; parity that was recorded wrong; rot, and unreadable blocks, on
// as many members as there is parity.
class CrashVolume {
public:
    CrashVolume(ProfileId profile, uint64_t seed)
        : parity_(profile == ProfileId::kRaid6 ? 2 : 1),
          prng_(seed),
          volume({profile, kCutData, kBlockBytes}, seed, &power)
    {
        REQUIRE(volume.write(0, kCutStripes, 0).ok());
        REQUIRE(volume.commit_all().ok());
        for (uint64_t stripe = 0; stripe < kCutStripes; ++stripe)
            spoil_row(stripe);
        answers_ = volume.answers;
    }

    // By used block: whether it can be read while members are lost, as the trees and the members are, or if
    // the trees had all that was recorded.
    std::vector<bool> readable(const Loss& loss, bool all_recorded = false)
    {
        TestVolume found(volume, prng_.next(), loss);
        if (!all_recorded)
            found.answers = answers_;
        found.array->set_read_only(true);
        for (const Unreadable& block : unreadable_)
            if (held(block.place) == block.held)
                found.latent(block.place);
        std::vector<bool> all;
        for (const uint64_t block : used_) {
            ReadPiece piece = found.piece(block, 1);
            const bool ok = found.array->read(std::span(&piece, 1)).ok();
            CHECK((!ok || found.right(piece)));
            all.push_back(ok);
        }
        return all;
    }
    // False: the scrub ended before the power failed.
    bool scrub_until(uint64_t event, const PowerCutOptions& options)
    {
        const uint64_t end = power.events() + event;
        power.arm(event);
        scrub(volume, kCutStripes);
        const bool cut = power.events() >= end;
        power.turn_on();
        for (SimDevice* const device : volume.sims)
            device->power_cut(prng_, options);
        return cut;
    }
    // A commit of checksums after a scrub and a write in place of a free block of each row that has one: the
    // trees have what the write recorded, and not what the scrub did.
    void scrub_and_write(bool scrub_first, RmwLevel level)
    {
        volume.start_partial_writes({.rmw_level = level, .worker_count = 0});
        for (uint64_t stripe = 0; stripe < kCutStripes; ++stripe)
            for (uint32_t column = 0; column < kCutData + parity_; ++column)
                remember({stripe, column, 0});
        if (scrub_first)
            scrub(volume, kCutStripes);
        write_free();
        if (!scrub_first)
            scrub(volume, kCutStripes);
        REQUIRE(volume.commit_all().ok());
    }
    // Of a block of each row.
    void rot()
    {
        for (uint64_t stripe = 0; stripe < kCutStripes; ++stripe)
            put_random({stripe, static_cast<uint32_t>(prng_.below(kCutData + parity_)), 0});
    }
    [[nodiscard]] std::vector<Loss> losses() const
    {
        std::vector<Loss> all{{}};
        for (uint32_t first = 0; first < volume.member_count(); ++first) {
            all.push_back({first});
            for (uint32_t second = first + 1; parity_ == 2 && second < volume.member_count(); ++second)
                all.push_back({first, second});
        }
        return all;
    }
    // For messages: the row of a used block.
    [[nodiscard]] std::string describe_row(size_t used) const
    {
        return rows_[used_[used] / kCutData] + ", column " + std::to_string(used_[used] % kCutData);
    }

    uint64_t written = 0;

private:
    // What is told of a write in place, for the trees.
    class TreeSink final : public ChecksumSink {
    public:
        explicit TreeSink(CrashVolume& one) : one_(one) { }
        void record(VolumeAddress address, std::span<const Checksum> checksums) override
        {
            for (size_t i = 0; i < checksums.size(); ++i) {
                one_.answers_[address.value + i * kBlockBytes] = {true, checksums[i]};
                one_.volume.answers.erase(address.value + i * kBlockBytes);
            }
            one_.volume.record(address, checksums);
        }
        bool in_use(VolumeAddress address) override { return one_.volume.in_use(address); }

    private:
        CrashVolume& one_;
    };
    void remember(const BlockPlace& place)
    {
        const VolumeAddress address = TestVolume::kGroup + offset_of(volume.geometry, place);
        volume.expect(address, std::span(&answers_[address.value], 1));
    }
    void write_free()
    {
        TreeSink sink(*this);
        for (uint64_t stripe = 0; stripe < kCutStripes; ++stripe)
            for (uint32_t column = 0; column < kCutData; ++column) {
                const VolumeAddress address =
                    TestVolume::kGroup + offset_of(volume.geometry, {stripe, column, 0});
                if (volume.in_use(address))
                    continue;
                AlignedBuffer data = AlignedBuffer::zeroed(kBlockBytes);
                prng_.fill(data.data(), kBlockBytes);
                BlockWrite write{address, 1, data.data(), {}};
                const WriteOrigin origin{volume.superblock.generation.next(), volume.epoch(), &sink};
                written += volume.array->write_blocks({&write, 1}, origin).ok() ? 1 : 0;
                break;
            }
    }
    struct Unreadable {
        BlockPlace place;
        std::vector<std::byte> held;  // before it was written
    };
    [[nodiscard]] std::vector<std::byte> held(const BlockPlace& place) const
    {
        std::vector<std::byte> block(kBlockBytes);
        const TestVolume::Spot spot = volume.spot(place);
        volume.sims[spot.member]->peek(spot.offset, block);
        return block;
    }
    std::vector<std::byte> put_random(const BlockPlace& place)
    {
        std::vector<std::byte> block(kBlockBytes);
        prng_.fill(block.data(), block.size());
        put(place, block);
        return block;
    }
    void put(const BlockPlace& place, std::span<const std::byte> block)
    {
        const TestVolume::Spot spot = volume.spot(place);
        volume.sims[spot.member]->poke(spot.offset, block);
    }
    void spoil_row(uint64_t stripe)
    {
        std::string text = "row " + std::to_string(stripe) + ":";
        const auto note = [&](const char* what, uint32_t column) {
            text += std::string(" ") + what + std::to_string(column);
        };
        const auto kept = static_cast<uint32_t>(prng_.below(kCutData));
        bool unfinished = false;
        for (uint32_t column = 0; column < kCutData; ++column) {
            const uint64_t block = stripe * kCutData + column;
            if (column == kept || prng_.chance(1, 3)) {
                used_.push_back(block);
                continue;
            }
            volume.free_addresses.insert(TestVolume::kGroup.value + block * kBlockBytes);
            note("free", column);
            if (prng_.chance(1, 2))
                continue;
            note("unfinished", column);
            put_random({stripe, column, 0});
            unfinished = true;
        }
        if (unfinished)
            write_parity(stripe);
        if (prng_.chance(1, 2)) {
            const auto column = static_cast<uint32_t>(kCutData + prng_.below(parity_));
            const BlockPlace place{stripe, column, 0};
            const std::vector<std::byte> wrong = put_random(place);
            volume.answers[TestVolume::kGroup.value + offset_of(volume.geometry, place)] = {
                true, checksum_of(wrong.data(), kBlockBytes)};
            note("recorded-wrong", column);
        }
        for (uint64_t faults = prng_.below(parity_ + 1); faults > 0; --faults) {
            const BlockPlace place{stripe, static_cast<uint32_t>(prng_.below(kCutData + parity_)), 0};
            if (prng_.chance(1, 2)) {
                note("rot", place.column);
                put_random(place);
            } else {
                note("latent", place.column);
                volume.latent(place);
                unreadable_.push_back({place, held(place)});
            }
        }
        rows_.push_back(text);
    }
    void write_parity(uint64_t stripe)
    {
        std::vector<std::vector<std::byte>> blocks;
        std::vector<const std::byte*> data;
        for (uint32_t column = 0; column < kCutData; ++column)
            blocks.push_back(held({stripe, column, 0}));
        blocks.resize(kCutData + parity_, std::vector<std::byte>(kBlockBytes));
        std::vector<std::byte*> parity;
        for (uint32_t column = 0; column < kCutData + parity_; ++column)
            column < kCutData ? data.push_back(blocks[column].data())
                              : parity.push_back(blocks[column].data());
        parity_generate(data, parity, kBlockBytes);
        for (uint32_t p = 0; p < parity_; ++p)
            put({stripe, kCutData + p, 0}, blocks[kCutData + p]);
    }

    const uint32_t parity_;
    Prng prng_;
    std::vector<uint64_t> used_;  // data blocks by number
    std::vector<std::string> rows_;
    std::vector<Unreadable> unreadable_;
    std::map<uint64_t, BlockExpectation> answers_;  // of the trees

public:
    PowerSupply power;
    TestVolume volume;
};

// Returns how many blocks could be read before, for all losses together.
uint64_t check_readable(CrashVolume& one, const std::vector<Loss>& losses,
                        const std::vector<std::vector<bool>>& before)
{
    uint64_t before_count = 0;
    for (size_t index = 0; index < losses.size(); ++index) {
        const std::vector<bool> after = one.readable(losses[index]);
        for (size_t block = 0; block < after.size(); ++block) {
            before_count += before[index][block] ? 1 : 0;
            if (!before[index][block] || after[block])
                continue;
            std::string lost;
            for (const uint32_t member : losses[index])
                lost += " " + std::to_string(member);
            INFO("lost", lost, "; ", one.describe_row(block));
            CHECK(after[block]);
        }
    }
    return before_count;
}

}  // namespace

TEST_CASE("scrub: power fails at every write of it, and what could be read before can be read")
{
    const uint64_t seeds = 6;
    for (const ProfileId profile : {ProfileId::kRaid5, ProfileId::kRaid6})
        for (uint64_t seed = test_seed(); seed < test_seed() + seeds; ++seed) {
            uint64_t cuts = 0, before_count = 0;
            for (bool cut = true; cut; ++cuts) {
                CrashVolume one(profile, seed);
                std::vector<std::vector<bool>> before;
                const std::vector<Loss> losses = one.losses();
                for (const Loss& loss : losses)
                    before.push_back(one.readable(loss));
                cut = one.scrub_until(cuts + 1, {});
                INFO("profile ", static_cast<uint32_t>(profile), " seed ", seed, " cut ", cuts + 1);
                before_count += check_readable(one, losses, before);
            }
            CHECK(cuts > 10);
            CHECK(before_count > 0);
        }
}

TEST_CASE("scrub: a commit has what was written in place in rows, and not what a scrub adopted there: "
          "nothing is lost")
{
    for (const ProfileId profile : {ProfileId::kRaid5, ProfileId::kRaid6})
        for (const RmwLevel level : {RmwLevel::kNever, RmwLevel::kPrefer})
            for (const bool scrub_first : {false, true})
                for (uint64_t seed = test_seed(); seed < test_seed() + 10; ++seed) {
                    INFO("profile ", static_cast<uint32_t>(profile), " seed ", seed, " level ",
                         static_cast<uint32_t>(level), " scrub first ", scrub_first);
                    CrashVolume one(profile, seed);
                    const std::vector<Loss> losses = one.losses();
                    std::vector<std::vector<bool>> before;
                    for (const Loss& loss : losses)
                        before.push_back(one.readable(loss));
                    one.scrub_and_write(scrub_first, level);
                    CHECK(one.written > 0);
                    CHECK(check_readable(one, losses, before) > 0);
                    one.rot();
                    before.clear();
                    for (const Loss& loss : losses)
                        before.push_back(one.readable(loss, true));
                    CHECK(check_readable(one, losses, before) > 0);
                }
}
