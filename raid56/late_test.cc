// SPDX-License-Identifier: MIT
// Members that do not answer: reads do without them where they can, wait where they cannot, and what arrives
// late touches nothing.
#include <doctest/doctest.h>

#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "format/profile.h"
#include "raid56/array_mutant.h"
#include "tests/support/array_fixture.h"
#include "tests/support/scrub_fixture.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kLateDeadlineMs = 60;

// Mirrors take turns by the mebibyte.
uint32_t stripes_of(const Shape& shape)
{
    return find_profile(shape.profile)->parity > 0 ? 12 : 6 * kMiB / shape.chunk_bytes;
}

// A volume with content, one thread's reads of it, and their memory.
struct LateVolume {
    explicit LateVolume(const Shape& shape) : volume(shape)
    {
        volume.set.set_read_deadline_ms(kLateDeadlineMs);
        REQUIRE(volume.write(0, stripes_of(shape), 0).ok());
        volume.forget_requests();
    }
    // Of all blocks, in pieces of 1 to 40. Beside each one lies memory that is no piece's.
    Status read()
    {
        pieces.clear();
        const auto blocks =
            static_cast<uint32_t>(stripes_of(volume.shape) * volume.geometry.stripe_data_blocks());
        memory = AlignedBuffer::zeroed(uint64_t{2} * blocks * kBlockBytes);
        std::byte* at = memory.data();
        for (uint32_t block = 0; block < blocks;) {
            const auto count = static_cast<uint32_t>(volume.prng.between(1, std::min(40U, blocks - block)));
            pieces.push_back(volume.piece(block, count));
            pieces.back().memory = at;
            at += uint64_t{count} * kBlockBytes;
            *reinterpret_cast<uint64_t*>(at) = block + 1;
            at += kBlockBytes;
            block += count;
        }
        return volume.array->read(pieces, &memory);
    }
    [[nodiscard]] bool right() const
    {
        uint64_t block = 0;
        for (const ReadPiece& piece : pieces) {
            const std::byte* behind = piece.memory + uint64_t{piece.block_count} * kBlockBytes;
            if (!piece.result.ok() || !volume.right(piece) ||
                *reinterpret_cast<const uint64_t*>(behind) != block + 1)
                return false;
            block += piece.block_count;
        }
        return true;
    }

    TestVolume volume;
    std::vector<ReadPiece> pieces;
    AlignedBuffer memory;
};

const std::initializer_list<Shape> kLateShapes = {
    {ProfileId::kRaid5, 2, 65536}, {ProfileId::kRaid5, 4, 8192},    {ProfileId::kRaid6, 3, 16384},
    {ProfileId::kRaid1, 1, 65536}, {ProfileId::kRaid1c3, 1, 16384}, {ProfileId::kRaid10, 2, 16384},
};

}  // namespace

TEST_CASE("a member that stops to answer: reads go on with right bytes, and nobody is charged")
{
    size_t cases = 0;
    for (const Shape& shape : kLateShapes) {
        INFO(describe(shape));
        for (uint32_t member = 0; member < LateVolume(shape).volume.member_count(); ++member) {
            LateVolume late(shape);
            TestVolume& volume = late.volume;
            HoldingDevice& device = *volume.holds[member];
            device.hold();
            const uint64_t begin = monotonic_ms();
            CHECK(late.read().ok());
            CHECK(late.right());
            CHECK(monotonic_ms() - begin >= kLateDeadlineMs);
            CHECK(device.held() > 0);
            CHECK(volume.set.slow(device));
            CHECK(volume.set.slow_ms(TestVolume::member_id(member)) > 0);
            // Now it is known to be slow, and not asked.
            const size_t held = device.held();
            for (int i = 0; i < 3; ++i) {
                CHECK(late.read().ok());
                CHECK(late.right());
            }
            CHECK(device.held() == held);
            CHECK(volume.counts[member]->entries(IoKind::kRead).empty());
            CHECK(volume.all_counters() == 0);
            CHECK(volume.requests(IoKind::kWrite) == 0);
            device.release(HoldingDevice::Release::kPoison);
            CHECK(late.right());
            CHECK_FALSE(volume.set.slow(device));
            CHECK(volume.set.slow_ms(TestVolume::member_id(member)) == 0);
            CHECK(late.read().ok());
            CHECK(late.right());
            CHECK_FALSE(volume.counts[member]->entries(IoKind::kRead).empty());
            CHECK(volume.all_counters() == 0);
            CHECK(volume.disk_is_right());
            ++cases;
        }
    }
    CHECK(cases == 3 + 5 + 5 + 2 + 3 + 4);
}

namespace {

// Reads until the answer of the first read is poison, and says whether what was read stayed right.
bool stays_right_under_poison(const Shape& shape)
{
    LateVolume late(shape);
    late.volume.holds[0]->hold();
    const bool right = late.read().ok() && late.right();
    late.volume.holds[0]->release(HoldingDevice::Release::kPoison);
    return right && late.right();
}

}  // namespace

TEST_CASE("what arrives late touches nothing that a reader has")
{
    for (const Shape& shape : kLateShapes) {
        INFO(describe(shape));
        CHECK(stays_right_under_poison(shape));
    }
#ifdef COWRAID_MUTANTS
    chosen_array_mutant = ArrayMutant::kLateMemoryReused;
    for (const Shape& shape : kLateShapes) {
        INFO(describe(shape));
        CHECK_FALSE(stays_right_under_poison(shape));
    }
    chosen_array_mutant = ArrayMutant::kNone;
#endif
}

TEST_CASE("two members of raid6 that stop to answer one after the other")
{
    LateVolume late({ProfileId::kRaid6, 3, 16384});
    late.volume.holds[1]->hold();
    CHECK(late.read().ok());
    CHECK(late.right());
    late.volume.holds[3]->hold();
    CHECK(late.read().ok());
    CHECK(late.right());
    CHECK(late.read().ok());
    CHECK(late.right());
    for (const uint32_t member : {1, 3})
        late.volume.holds[member]->release(HoldingDevice::Release::kPoison);
    CHECK(late.right());
    CHECK(late.volume.all_counters() == 0);
    CHECK(late.volume.disk_is_right());
}

TEST_CASE("of two slow members the one that answers again is enough")
{
    LateVolume late({ProfileId::kRaid5, 3, 16384});
    TestVolume& volume = late.volume;
    volume.holds[1]->hold();
    CHECK(late.read().ok());
    CHECK(late.right());
    volume.holds[2]->hold();
    std::atomic<bool> done{false};
    std::thread reader([&] {
        CHECK(late.read().ok());
        done = true;
    });
    usleep(8 * kLateDeadlineMs * 1000);
    CHECK_FALSE(done);
    volume.holds[2]->release(HoldingDevice::Release::kServe);
    reader.join();
    CHECK(late.right());
    CHECK(volume.all_counters() == 0);
    volume.holds[1]->release(HoldingDevice::Release::kPoison);
    CHECK(late.right());
    CHECK(volume.disk_is_right());
}

TEST_CASE("where nothing else suffices a read waits, as long as it takes")
{
    struct Case {
        Shape shape;
        int missing;  // a member, or none
    };
    for (const Case& one :
         {Case{{ProfileId::kRaid5, 2, 16384}, 0}, Case{{ProfileId::kRaid0, 3, 16384}, -1},
          Case{{ProfileId::kSingle, 1, 16384}, -1}, Case{{ProfileId::kRaid1, 1, 16384}, 0}}) {
        INFO(describe(one.shape));
        LateVolume late(one.shape);
        if (one.missing >= 0)
            late.volume.remove(static_cast<uint32_t>(one.missing));
        HoldingDevice& device = *late.volume.holds.back();
        device.hold();
        std::atomic<bool> done{false};
        std::thread reader([&] {
            CHECK(late.read().ok());
            done = true;
        });
        usleep(8 * kLateDeadlineMs * 1000);
        CHECK_FALSE(done);
        CHECK(device.held() > 0);
        device.release(HoldingDevice::Release::kServe);
        reader.join();
        CHECK(late.right());
        CHECK(late.volume.all_counters() == 0);
    }
}

// One block of a row is bad, and another one on a member that does not answer.
struct BadBesideLate {
    explicit BadBesideLate(const Shape& shape) : late(shape)
    {
        late.volume.rot(bad);
        device.hold();
    }
    void check_repaired()
    {
        CHECK(late.right());
        CHECK(late.volume.counter(guilty, MemberCounter::kRepaired) == 1);
        CHECK(late.volume.all_counters(guilty) == 0);
        CHECK(late.volume.disk_is_right());
    }

    const BlockPlace bad{3, 0, 1};
    LateVolume late;
    const uint32_t guilty = late.volume.spot(bad).member;
    HoldingDevice& device = *late.volume.holds[late.volume.spot({3, 1, 1}).member];
};

TEST_CASE("a bad block beside a member that is slow is waited for, charged once and repaired")
{
    BadBesideLate one({ProfileId::kRaid5, 2, 16384});
    LateVolume& late = one.late;
    std::atomic<bool> done{false};
    std::thread reader([&] {
        CHECK(late.read().ok());
        done = true;
    });
    usleep(8 * kLateDeadlineMs * 1000);
    CHECK_FALSE(done);
    CHECK(late.volume.all_counters() == 0);
    one.device.release(HoldingDevice::Release::kServe);
    reader.join();
    CHECK(late.volume.counter(one.guilty, MemberCounter::kCorruption) == 1);
    one.check_repaired();
}

TEST_CASE("a bad block and a slow member in a row of raid6: the one is repaired without the other")
{
    BadBesideLate one({ProfileId::kRaid6, 3, 16384});
    CHECK(one.late.read().ok());
    CHECK(one.late.right());
    one.device.release(HoldingDevice::Release::kPoison);
    one.check_repaired();
}

TEST_CASE("without a deadline, and without memory to give away, reads wait")
{
    for (const bool deadline : {false, true}) {
        LateVolume late({ProfileId::kRaid5, 2, 16384});
        TestVolume& volume = late.volume;
        volume.set.set_read_deadline_ms(deadline ? kLateDeadlineMs : 0);
        const auto blocks =
            static_cast<uint32_t>(stripes_of(volume.shape) * volume.geometry.stripe_data_blocks());
        ReadPiece first = volume.piece(0, blocks);
        ReadPiece second = volume.piece(0, blocks);
        AlignedBuffer memory(uint64_t{blocks} * kBlockBytes);
        if (!deadline)
            first.memory = memory.data();
        volume.holds[0]->hold();
        std::atomic<bool> done{false};
        std::thread reader([&] {
            CHECK(volume.array->read({&first, 1}, deadline ? nullptr : &memory).ok());
            done = true;
        });
        usleep(4 * kLateDeadlineMs * 1000);
        CHECK_FALSE(done);
        // Readers that come later do without it all the same.
        if (deadline) {
            CHECK(volume.array->read({&second, 1}).ok());
            CHECK(volume.right(second));
        }
        volume.holds[0]->release(HoldingDevice::Release::kServe);
        reader.join();
        CHECK(volume.right(first));
        CHECK(volume.all_counters() == 0);
    }
}

namespace {

// A read of the first chunk.
class ChunkReader {
public:
    explicit ChunkReader(LateVolume& late)
        : volume_(late.volume), memory_(volume_.shape.chunk_bytes), piece_(volume_.piece(0, rows()))
    {
        piece_.memory = memory_.data();
    }
    // Whether it ends while `device` does not answer. It ends anyway: what that answers then is wrong.
    bool ends(HoldingDevice& device)
    {
        std::atomic<bool> done{false};
        std::thread reader([&] {
            CHECK(volume_.array->read({&piece_, 1}, &memory_).ok());
            done = true;
        });
        for (int i = 0; i < 1000 && !done; ++i)
            usleep(kLateDeadlineMs * 200);
        const bool ended = done;
        device.release(HoldingDevice::Release::kPoison);
        reader.join();
        CHECK(volume_.right(piece_));
        return ended;
    }
    bool reads_again() { return volume_.array->read({&piece_, 1}, &memory_).ok() && volume_.right(piece_); }

private:
    [[nodiscard]] uint32_t rows() const { return volume_.shape.chunk_bytes / kBlockBytes; }
    TestVolume& volume_;
    AlignedBuffer memory_;
    ReadPiece piece_;
};

const std::initializer_list<Shape> kChunkShapes = {{ProfileId::kRaid5, 2, 16384},
                                                   {ProfileId::kRaid1, 1, 16384}};

}  // namespace

TEST_CASE("a member fails a read of many blocks, and stops to answer: its blocks are not waited for")
{
    for (const Shape& shape : kChunkShapes) {
        INFO(describe(shape));
        LateVolume late(shape);
        TestVolume& volume = late.volume;
        volume.latent({0, 0, 1});
        const uint32_t member = volume.spot({0, 0, 1}).member;
        volume.holds[member]->hold(1);
        ChunkReader reader(late);
        CHECK(reader.ends(*volume.holds[member]));
        CHECK(volume.all_counters() == 0);
        CHECK(reader.reads_again());
        CHECK(volume.counter(member, MemberCounter::kReadErrors) == 1);
        CHECK(volume.counter(member, MemberCounter::kRepaired) == 1);
        CHECK(volume.disk_is_right());
    }
}

TEST_CASE("a member gives wrong blocks, and stops to answer: the reader does not wait for their repair")
{
    for (const Shape& shape : kChunkShapes) {
        INFO(describe(shape));
        LateVolume late(shape);
        TestVolume& volume = late.volume;
        for (const uint32_t row : {1, 3})
            volume.rot({0, 0, row});
        const uint32_t member = volume.spot({0, 0, 1}).member;
        volume.holds[member]->hold(1);
        ChunkReader reader(late);
        CHECK(reader.ends(*volume.holds[member]));
        CHECK(volume.all_counters() == 0);
        CHECK(volume.requests(IoKind::kWrite) == 0);
        CHECK(reader.reads_again());
        CHECK(volume.counter(member, MemberCounter::kCorruption) == 2);
        CHECK(volume.counter(member, MemberCounter::kRepaired) == 2);
        CHECK(volume.disk_is_right());
    }
}

namespace {

// The first member is being replaced.
struct LateCopy {
    explicit LateCopy(const Shape& shape) : late(shape)
    {
        auto sim = std::make_unique<SimDevice>("target", 128 * kMiB);
        platters = sim.get();
        auto hold = std::make_unique<HoldingDevice>(std::move(sim));
        target = hold.get();
        late.volume.set.add(kTarget, std::move(hold), {});
        late.volume.set.set_mirror(kOfSource, kTarget);
    }
    ScrubReport copy()
    {
        class Sink final : public ScrubSink {
        public:
            explicit Sink(TestVolume& volume) : volume_(volume) { }
            void record(VolumeAddress, std::span<const Checksum>) override { }
            bool in_use(VolumeAddress at) override { return volume_.in_use(at); }
            bool may_be_used(VolumeAddress) override { return false; }
            bool may_record() override { return false; }
            void begin_stripe(VolumeAddress) override { }
            void end_stripe() override { }
            bool await(MemberId member) override { return volume_.set.await(member); }

        private:
            TestVolume& volume_;
        } sink(late.volume);
        std::vector<StripeRows> rows;
        for (uint64_t stripe = 0; stripe < stripes_of(late.volume.shape); ++stripe)
            rows.push_back({stripe, 0, late.volume.geometry.rows()});
        ScrubReport report;
        CHECK(
            late.volume.array->copy_rows(TestVolume::kGroup, rows, {kOfSource, kTarget}, sink, report).ok());
        return report;
    }
    // Whether the target has the first mebibyte of each run.
    [[nodiscard]] bool target_is_right() const
    {
        std::vector<std::byte> all;
        for (const SlotRun& run : late.volume.group_record.columns[0].runs) {
            std::vector<std::byte> begin(kMiB);
            platters->peek(late.volume.superblock.members[0].slots_offset +
                               run.first_slot * TestVolume::kSlotBytes,
                           begin);
            all.insert(all.end(), begin.begin(), begin.end());
        }
        return all == late.volume.image(0);
    }

    static constexpr MemberId kOfSource{1}, kTarget{100};
    LateVolume late;
    SimDevice* platters;
    HoldingDevice* target;
};

}  // namespace

TEST_CASE("a member that is copied stops to answer: readers do without it, and writers write")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 2, 16384}, Shape{ProfileId::kRaid6, 3, 16384}})
        for (const auto how : {HoldingDevice::Release::kServe, HoldingDevice::Release::kPoison}) {
            INFO(describe(shape));
            LateCopy one(shape);
            LateVolume& late = one.late;
            HoldingDevice& device = *late.volume.holds[0];
            device.hold();
            ScrubReport report;
            std::thread copier([&] { report = one.copy(); });
            while (device.held() == 0)
                usleep(1000);
            std::atomic<bool> done{false};
            std::thread user([&] {
                CHECK(late.read().ok());
                CHECK(late.right());
                CHECK(late.volume.write(2, 3).ok());
                done = true;
            });
            for (int i = 0; i < 1000 && !done; ++i)
                usleep(kLateDeadlineMs * 200);
            CHECK(done);
            device.release(how);
            copier.join();
            user.join();
            CHECK(report.unsettled == 0);
            CHECK(report.repaired == 0);
            CHECK(report.lost.empty());
            CHECK(late.volume.all_counters() == 0);
            CHECK(late.volume.disk_is_right());
            CHECK(one.target_is_right());
        }
}

TEST_CASE("a successor that does not answer gets nothing that it can be spared, and holds up no reader")
{
    LateCopy one({ProfileId::kRaid5, 2, 16384});
    TestVolume& volume = one.late.volume;
    AlignedBuffer memory(kMiB);
    one.target->hold();
    std::thread held([&] { CHECK(read_device(*one.target, {0}, memory.span()).ok()); });
    while (!volume.set.slow(*one.target))
        usleep(1000);
    BlockPlace bad{0, 0, 1};
    for (; volume.spot(bad).member != 0; ++bad.stripe)
        continue;
    volume.rot(bad);
    std::atomic<bool> done{false};
    std::thread copier([&] {
        CHECK(one.copy().unsettled == 0);
        done = true;
    });
    CHECK(one.late.read().ok());
    CHECK(one.late.right());
    CHECK(volume.requests(IoKind::kWrite) == 0);
    CHECK(volume.all_counters() == 0);
    CHECK_FALSE(done);
    one.target->release(HoldingDevice::Release::kServe);
    held.join();
    copier.join();
    CHECK(one.late.read().ok());
    CHECK(volume.counter(0, MemberCounter::kRepaired) == 1);
    CHECK(volume.disk_is_right());
    CHECK(one.target_is_right());
}

namespace {

// Work in the background, in a thread of its own, that meets a member which does not answer.
struct LateWork {
    explicit LateWork(TestVolume& of) : volume(of) { }
    // `after`: so many reads are answered.
    template <typename Work> void begin(HoldingDevice& device, uint64_t after, Work work)
    {
        device.hold(after);
        thread = std::thread([this, work] {
            report = work();
            done = true;
        });
        while (!volume.set.slow(device))
            usleep(1000);
    }
    bool ends()
    {
        for (int i = 0; i < 1000 && !done; ++i)
            usleep(kLateDeadlineMs * 200);
        return done;
    }

    TestVolume& volume;
    std::thread thread;
    std::atomic<bool> done{false};
    ScrubReport report;
};

}  // namespace

TEST_CASE("asked to stop, a copy does not wait for a member, and the next one does what it left out")
{
    for (const Shape& shape : {Shape{ProfileId::kRaid5, 2, 16384}, Shape{ProfileId::kRaid1, 1, 16384}}) {
        INFO(describe(shape));
        LateCopy one(shape);
        TestVolume& volume = one.late.volume;
        LateWork copier(volume);
        copier.begin(*volume.holds[0], 0, [&] { return one.copy(); });
        usleep(4 * kLateDeadlineMs * 1000);
        CHECK_FALSE(copier.done);
        volume.set.stop_waiting(true);
        CHECK(copier.ends());
        volume.holds[0]->release(HoldingDevice::Release::kPoison);
        copier.thread.join();
        CHECK(copier.report.given_up);
        CHECK_FALSE(one.target_is_right());
        volume.set.stop_waiting(false);
        const ScrubReport again = one.copy();
        CHECK_FALSE(again.given_up);
        CHECK(again.repaired + again.unsettled + again.lost.size() == 0);
        CHECK(one.target_is_right());
        CHECK(volume.all_counters() == 0);
    }
}

TEST_CASE("a scrub whose read of a stripe is late locks nothing, and goes on when the member answers")
{
    for (const bool stopped : {true, false}) {
        LateVolume late({ProfileId::kRaid5, 2, 16384});
        TestVolume& volume = late.volume;
        // All rows are looked at again, with the stripe locked: the second read of the member is held.
        for (uint64_t stripe = 0; stripe < stripes_of(volume.shape); ++stripe)
            for (uint32_t column = 0; column < volume.member_count(); ++column)
                if (volume.spot({stripe, column, 1}).member == 0)
                    volume.rot({stripe, column, 1});
        HoldingDevice& device = *volume.holds[0];
        LateWork scrubber(volume);
        TestSink sink(volume);
        scrubber.begin(device, 1, [&] { return scrub(volume, sink, stripes_of(volume.shape)); });
        CHECK(late.read().ok());
        CHECK(late.right());
        CHECK(volume.write(2, 3).ok());
        CHECK_FALSE(scrubber.done);
        volume.set.stop_waiting(stopped);
        if (stopped)
            CHECK(scrubber.ends());
        device.release(HoldingDevice::Release::kPoison);
        scrubber.thread.join();
        CHECK(scrubber.report.given_up == stopped);
        volume.set.stop_waiting(false);
        scrub(volume, sink, stripes_of(volume.shape));
        CHECK(volume.disk_is_right());
        check_quiet(volume, stripes_of(volume.shape));
    }
}
