// SPDX-License-Identifier: MIT
#include "sim/spindle_device.h"

#include <doctest/doctest.h>

#include <thread>

#include "base/clock.h"
#include "sim/fault_device.h"
#include "sim/sim_device.h"
#include "tests/support/device_files.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kSpindleBytes = 256 * kMiB;
constexpr uint64_t kMillisecond = 1000000;
constexpr double kScale = 0.1;

double milliseconds(uint64_t nanoseconds)
{
    return static_cast<double>(nanoseconds) / static_cast<double>(kMillisecond);
}

struct Drive {
    SimDevice* sim;
    std::unique_ptr<SpindleDevice> spindle;

    explicit Drive(SpindleOptions options = {}, uint64_t number = 0, double scale = kScale)
    {
        options.time_scale = scale;
        options.phase = number * 1234567;
        auto inner = std::make_unique<SimDevice>("sim" + std::to_string(number), kSpindleBytes);
        sim = inner.get();
        spindle = std::make_unique<SpindleDevice>(std::move(inner), options);
    }
};

// Random single blocks, as requests to be run together or one by one.
struct Requests {
    AlignedBuffer memory;
    std::vector<iovec> vectors;
    std::vector<IoRequest> requests;

    Requests(uint64_t seed, size_t count, IoKind kind) : memory(count * kBlockBytes), vectors(count)
    {
        Prng prng(seed);
        prng.fill(memory.data(), memory.size());
        for (size_t index = 0; index < count; ++index) {
            vectors[index] = {memory.data() + index * kBlockBytes, kBlockBytes};
            requests.push_back({.kind = kind,
                                .offset = {kBlockBytes * prng.below(kSpindleBytes / kBlockBytes)},
                                .vectors = {&vectors[index], 1}});
        }
    }
    void send_to(BlockDevice& device)
    {
        for (IoRequest& request : requests)
            request.device = &device;
    }
};

// What the requests take in the order they are in.
uint64_t time_in_order(const Requests& list, const SpindleModel& model)
{
    uint64_t now = model.constants().command;
    uint64_t track = 0;
    for (const IoRequest& request : list.requests) {
        const SpindleService service =
            model.serve(request.kind == IoKind::kWrite, request.offset.value, request.bytes(), track, now);
        now = service.end;
        track = service.last_track;
    }
    return now;
}

// Writes to four drives as one batch: how long that took, as a part of the time that the drives were busy.
double share_of_a_batch()
{
    constexpr double kSlower = 0.5;  // what else the machine does matters less
    std::vector<Drive> drives;
    for (uint64_t number = 0; number < 4; ++number)
        drives.emplace_back(SpindleOptions{}, number, kSlower);
    std::vector<Requests> lists;
    std::vector<IoRequest> batch;
    for (uint64_t number = 0; number < 4; ++number) {
        lists.emplace_back(test_seed() + number, 20, IoKind::kWrite);
        lists.back().send_to(*drives[number].spindle);
    }
    for (const Requests& list : lists)
        batch.insert(batch.end(), list.requests.begin(), list.requests.end());
    const uint64_t begin = monotonic_ns();
    run_io(batch);
    const double took = static_cast<double>(monotonic_ns() - begin) / kSlower;
    double busy = 0;
    for (const IoRequest& request : batch)
        CHECK(request.result.ok());
    for (const Drive& drive : drives) {
        CHECK(drive.spindle->statistics().writes.requests == 20);
        CHECK(drive.spindle->statistics().queue_max > 10);
        busy += static_cast<double>(drive.spindle->statistics().writes.busy);
    }
    return took / busy;
}

}  // namespace

TEST_CASE("seek times pass through the published numbers")
{
    SpindleConstants constants;
    constants.stroke_share = 1;
    const SpindleModel model(constants, 1000 * kGiB, 0);
    const uint64_t tracks = model.track_count();
    REQUIRE(tracks > 1000000);
    for (const bool write : {false, true}) {
        const SeekTimes& published = write ? constants.write : constants.read;
        CHECK(model.seek(write, 7, 7) == 0);
        CHECK(model.seek(write, 8, 7) == published.single_track);
        CHECK(milliseconds(model.seek(write, 0, tracks)) ==
              doctest::Approx(milliseconds(published.full_stroke)).epsilon(0.001));
        Prng prng(test_seed());
        uint64_t sum = 0;
        constexpr uint64_t kPairs = 100000;
        for (uint64_t pair = 0; pair < kPairs; ++pair)
            sum += model.seek(write, prng.below(tracks), prng.below(tracks));
        CHECK(milliseconds(sum / kPairs) == doctest::Approx(milliseconds(published.average)).epsilon(0.01));
        for (uint64_t far = 1; far < tracks; far *= 2)
            CHECK(model.seek(write, 0, far) <= model.seek(write, 0, 2 * far));
    }
}

TEST_CASE("a small member stands for its part of the stroke")
{
    SpindleConstants constants;
    constants.stroke_share = 1;
    const SpindleModel whole(constants, 1000 * kGiB, 0);
    constants.stroke_share = 0.25;
    const SpindleModel part(constants, kSpindleBytes, 0);
    CHECK(part.track_count() < 400);
    CHECK(milliseconds(part.seek(true, 0, part.track_count())) ==
          doctest::Approx(milliseconds(whole.seek(true, 0, whole.track_count() / 4))).epsilon(0.001));
    CHECK(part.seek(false, 5, 6) == constants.read.single_track);
}

TEST_CASE("rotation: a rewrite waits for the sector to come round, neighbours follow at once")
{
    const SpindleConstants constants;
    const SpindleModel model(constants, kSpindleBytes, 5 * kMillisecond);
    const uint64_t block_time = constants.turn / constants.track_blocks;
    const SpindleService read = model.serve(false, 40 * kBlockBytes, kBlockBytes, 0, 3 * kMillisecond);
    CHECK(read.end - read.transfer_start == block_time);
    const SpindleService again = model.serve(true, 40 * kBlockBytes, kBlockBytes, read.last_track, read.end);
    CHECK(milliseconds(again.transfer_start - read.end) ==
          doctest::Approx(milliseconds(constants.turn - block_time)).epsilon(0.001));
    // Rounding of an angle may make the neighbour begin a nanosecond early, which would cost a turn.
    const SpindleService next =
        model.serve(false, 41 * kBlockBytes, kBlockBytes, read.last_track, read.end - 10);
    CHECK(next.transfer_start - read.end < 100);
    // The last block of a track, then the first of the next: the skew, which hides the move of the heads.
    const uint64_t last = uint64_t{constants.track_blocks} - 1;
    const SpindleService edge = model.serve(true, last * kBlockBytes, kBlockBytes, 0, 0);
    const SpindleService over = model.serve(true, (last + 1) * kBlockBytes, kBlockBytes, 0, edge.end - 10);
    CHECK(over.last_track == 1);
    CHECK(over.transfer_start - edge.end <= constants.skew_blocks * block_time + 100);
    CHECK(over.transfer_start - edge.end >= constants.write.single_track);
    const SpindleService across = model.serve(true, last * kBlockBytes, 2 * kBlockBytes, 0, 0);
    CHECK(milliseconds(across.end) == doctest::Approx(milliseconds(over.end)).epsilon(0.001));
    // A whole track is a turn, and random blocks wait half of one.
    const SpindleService whole = model.serve(false, 0, last * kBlockBytes + kBlockBytes, 0, 0);
    CHECK(whole.end - whole.transfer_start == constants.turn);
    Prng prng(test_seed());
    uint64_t sum = 0;
    for (int round = 0; round < 10000; ++round) {
        const uint64_t start = prng.below(constants.turn);
        const uint64_t offset = kBlockBytes * prng.below(constants.track_blocks);
        sum += model.serve(false, offset, kBlockBytes, 0, start).transfer_start - start;
    }
    CHECK(milliseconds(sum / 10000) == doctest::Approx(milliseconds(constants.turn) / 2).epsilon(0.03));
}

TEST_CASE("a write is durable when it is done, and its time is accounted")
{
    Drive drive;
    Prng prng(test_seed());
    AlignedBuffer out = random_buffer(prng, 64 * kKiB);
    AlignedBuffer in(64 * kKiB);
    const uint64_t begin = monotonic_ns();
    REQUIRE(write(*drive.spindle, 100 * kMiB, out).ok());
    CHECK(drive.sim->unflushed_writes() == 0);
    REQUIRE(read(*drive.spindle, 100 * kMiB, in).ok());
    REQUIRE(flush(*drive.spindle).ok());
    const uint64_t took = monotonic_ns() - begin;
    CHECK(same(in.span(), out.span()));
    const SpindleStatistics statistics = drive.spindle->statistics();
    CHECK(statistics.writes.requests == 1);
    CHECK(statistics.writes.bytes == 64 * kKiB);
    CHECK(statistics.reads.requests == 1);
    CHECK(statistics.reads.bytes == 64 * kKiB);
    CHECK(statistics.flushes.requests == 1);
    CHECK(statistics.flushes.busy == 0);
    // The heads were on the track: 16 blocks pass, after at most a turn.
    CHECK(milliseconds(statistics.reads.busy) > 0.74);
    CHECK(milliseconds(statistics.reads.busy) < 9.1);
    const auto busy = static_cast<double>(statistics.reads.busy + statistics.writes.busy);
    CHECK(static_cast<double>(took) >= busy * kScale);
    drive.spindle->bypass();
    REQUIRE(write(*drive.spindle, 0, out).ok());
    drive.spindle->engage();
    CHECK(drive.spindle->statistics().writes.requests == 1);
    drive.spindle->forget_statistics();
    CHECK(drive.spindle->statistics().reads.bytes == 0);
}

TEST_CASE("a batch takes the drives side by side")
{
    // The best of some: on a machine that does other things a thread may wait longer than its drive.
    double best = 1;
    for (int run = 0; run < 5 && best >= 0.6; ++run)
        best = std::min(best, share_of_a_batch());
    CHECK(best < 0.6);
}

TEST_CASE("the nearest request first, unless one has waited too long")
{
    for (const bool ageing : {false, true}) {
        CAPTURE(ageing);
        SpindleOptions options;
        if (ageing)
            options.age_limit = 0;
        Drive drive(options);
        Requests list(test_seed(), 32, IoKind::kRead);
        list.send_to(*drive.spindle);
        const SpindleModel model(options.constants, kSpindleBytes, 0);
        run_io(list.requests);
        const SpindleStatistics statistics = drive.spindle->statistics();
        REQUIRE(statistics.reads.requests == 32);
        const double in_order = milliseconds(time_in_order(list, model));
        if (ageing) {
            // The platter's angle at the start is unknown.
            CHECK(milliseconds(statistics.reads.busy) > in_order * 0.9);
            CHECK(statistics.aged == 32);
        } else {
            CHECK(milliseconds(statistics.reads.busy) < in_order * 0.8);
            CHECK(statistics.aged <= 16);
        }
    }
}

TEST_CASE("a flush waits for what was there before it")
{
    Drive drive;
    Requests list(test_seed(), 10, IoKind::kWrite);
    list.send_to(*drive.spindle);
    IoCompletion writes;
    IoCompletion flushed;
    for (IoRequest& request : list.requests)
        REQUIRE(drive.spindle->start(request, writes));
    IoRequest request{.kind = IoKind::kFlush, .device = drive.spindle.get()};
    request.result = Err::kIo;
    REQUIRE(drive.spindle->start(request, flushed));
    flushed.wait(1);
    CHECK(drive.spindle->statistics().writes.requests == 10);
    CHECK(request.result.ok());
    writes.wait(10);
}

TEST_CASE("errors come through, and what lies beyond the end takes no time")
{
    auto fault = std::make_unique<FaultDevice>(std::make_unique<SimDevice>("sim", kSpindleBytes), 1);
    fault->add_rule({.action = FaultAction::kError, .kinds = kFaultReads});
    SpindleDevice spindle(std::move(fault), {.time_scale = kScale});
    AlignedBuffer block = AlignedBuffer::zeroed(kBlockBytes);
    CHECK(read(spindle, 0, block).err() == Err::kIo);
    CHECK(spindle.statistics().reads.requests == 1);
    CHECK(write(spindle, kSpindleBytes, block).err() == Err::kIo);
    CHECK(write(spindle, UINT64_MAX - kBlockBytes + 1, block).err() == Err::kIo);
    CHECK(spindle.statistics().writes.requests == 0);
    IoRequest discard{.kind = IoKind::kDiscard, .device = &spindle, .discard_bytes = kMiB};
    run_io({&discard, 1});
    CHECK(discard.result.ok());
}

TEST_CASE("several threads keep requests queued")
{
    Drive drive({}, 3);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t number = 0; number < 4; ++number) {
        threads.emplace_back([&, number] {
            Prng prng(test_seed() + number);
            for (int round = 0; round < 10; ++round) {
                AlignedBuffer out = random_buffer(prng, kBlockBytes * prng.between(1, 8));
                AlignedBuffer in(out.size());
                const uint64_t offset = number * 64 * kMiB + kBlockBytes * prng.below(8192);
                const bool ok = write(*drive.spindle, offset, out).ok() && flush(*drive.spindle).ok() &&
                                read(*drive.spindle, offset, in).ok() && same(in.span(), out.span());
                wrong += ok ? 0 : 1;
            }
        });
    }
    for (auto& thread : threads)
        thread.join();
    CHECK(wrong == 0);
    const SpindleStatistics statistics = drive.spindle->statistics();
    CHECK(statistics.reads.requests == 40);
    CHECK(statistics.writes.requests == 40);
    CHECK(statistics.flushes.requests == 40);
    CHECK(statistics.queue_max >= 2);
}
