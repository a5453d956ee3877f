// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <map>
#include <thread>

#include "sim/replay.h"
#include "sim/sim_device.h"
#include "tests/support/device_files.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kReplayBytes = 256 * kKiB;

// The oracle: a plain list of what happened, replayed naively from the start for each question.
struct Event {
    bool is_write;
    size_t device;
    uint64_t offset;
    std::vector<std::byte> content;
    bool durable = false;
};

struct Workload {
    Recorder recorder;
    std::vector<std::unique_ptr<RecordingDevice>> devices;
    std::vector<Event> events;  // on one thread: event n is issued at time 2n, complete at 2n + 1

    explicit Workload(size_t count)
    {
        for (size_t number = 0; number < count; ++number)
            devices.push_back(std::make_unique<RecordingDevice>(
                recorder, std::make_unique<SimDevice>("sim" + std::to_string(number), kReplayBytes)));
    }
    void write_random(Prng& prng)
    {
        const size_t device = prng.below(devices.size());
        const uint64_t bytes = kBlockBytes * prng.between(1, 4);
        const uint64_t offset = kBlockBytes * prng.below((kReplayBytes - bytes) / kBlockBytes + 1);
        AlignedBuffer content = prng.chance(1, 8) ? AlignedBuffer::zeroed(bytes) : random_buffer(prng, bytes);
        const bool durable = prng.chance(1, 6);
        REQUIRE(transfer(*devices[device], IoKind::kWrite, offset, content.span(), durable).ok());
        events.push_back({true, device, offset, {content.data(), content.data() + bytes}, durable});
    }
    void flush_one(size_t device)
    {
        REQUIRE(flush(*devices[device]).ok());
        events.push_back({false, device, 0, {}});
    }
};

// Events issued before the instant that some completed later flush of their device covers, or that were
// durable when they were complete.
bool oracle_durable(const std::vector<Event>& events, size_t index, uint64_t instant)
{
    if (events[index].durable && 2 * index + 1 < instant)
        return true;
    for (size_t later = index + 1; later < events.size() && 2 * later + 1 < instant; ++later) {
        if (!events[later].is_write && events[later].device == events[index].device)
            return true;
    }
    return false;
}

std::vector<std::byte> oracle_image(const Workload& work, size_t device, uint64_t instant,
                                    const std::map<size_t, bool>& keep)
{
    std::vector<std::byte> image(kReplayBytes);
    for (size_t index = 0; index < work.events.size() && 2 * index < instant; ++index) {
        const Event& event = work.events[index];
        if (!event.is_write || event.device != device)
            continue;
        if (oracle_durable(work.events, index, instant) || keep.at(index))
            std::memcpy(image.data() + event.offset, event.content.data(), event.content.size());
    }
    return image;
}

// Writes in the recorder's order to positions in the list of events.
std::vector<size_t> write_positions(const Workload& work)
{
    std::vector<size_t> positions;
    for (size_t index = 0; index < work.events.size(); ++index) {
        if (work.events[index].is_write)
            positions.push_back(index);
    }
    return positions;
}

struct Totals {
    uint64_t compared = 0, optional = 0, durable_changes = 0;
};

void compare_with_oracle(const Workload& work, Prng& prng, Totals& totals)
{
    const auto positions = write_positions(work);
    ReplayCursor cursor(work.recorder);
    for (const uint64_t instant : work.recorder.instants()) {
        cursor.advance(instant);
        for (uint32_t device = 0; device < work.devices.size(); ++device) {
            std::map<size_t, bool> keep;
            for (size_t index = 0; index < work.events.size(); ++index)
                keep[index] = false;
            std::vector<ChosenWrite> chosen;
            for (const uint32_t write : cursor.optional_writes(device)) {
                REQUIRE_FALSE(oracle_durable(work.events, positions[write], instant));
                if (prng.chance(1, 2)) {
                    chosen.push_back({.write = write});
                    keep[positions[write]] = true;
                }
            }
            totals.optional += cursor.optional_writes(device).size();
            const auto made = cursor.device(device, chosen);
            std::vector<std::byte> found(kReplayBytes);
            made->peek(0, found);
            REQUIRE(found == oracle_image(work, device, instant, keep));
            ++totals.compared;
        }
    }
}

}  // namespace

TEST_CASE("every crash state is the one a naive replay finds")
{
    const uint64_t seed = test_seed();
    CAPTURE(seed);
    Totals totals;
    for (uint64_t round = 0; round < 12; ++round) {
        Prng prng(seed + round);
        Workload work(3);
        for (int step = 0; step < 60; ++step) {
            if (prng.chance(1, 5))
                work.flush_one(prng.below(3));
            else
                work.write_random(prng);
        }
        compare_with_oracle(work, prng, totals);
    }
    CHECK(totals.compared > 1000);
    CHECK(totals.optional > 1000);
}

TEST_CASE("at the end with everything kept, a state equals the devices, and so do their hashes")
{
    Prng prng(test_seed());
    Workload work(2);
    for (int step = 0; step < 50; ++step)
        work.write_random(prng);
    ReplayCursor cursor(work.recorder);
    cursor.advance(work.recorder.end());
    for (uint32_t number = 0; number < 2; ++number) {
        std::vector<ChosenWrite> all;
        for (const uint32_t write : cursor.optional_writes(number))
            all.push_back({.write = write});
        const auto made = cursor.device(number, all);
        std::vector<std::byte> found(kReplayBytes);
        made->peek(0, found);
        std::vector<std::byte> real(kReplayBytes);
        static_cast<SimDevice&>(work.devices[number]->inner()).peek(0, real);
        CHECK(found == real);
        // The same content by another way: as the start of a second recording.
        Recorder second;
        const uint32_t again = second.add_device("again", kReplayBytes);
        second.set_start(again, work.devices[number]->inner());
        CHECK(second.start(again).hash() == made->content_hash());
        BlockPool pool;
        CHECK(made->image(pool).hash() == made->content_hash());
        Recorder third;
        third.set_start(third.add_device("third", kReplayBytes), made->image(pool), pool);
        CHECK(third.start(0).hash() == made->content_hash());
        // One more bit, another hash.
        const std::byte flipped[] = {found[777] ^ std::byte{4}};
        made->poke(777, flipped);
        CHECK(third.start(0).hash() != made->content_hash());
    }
}

TEST_CASE("torn choices keep whole units of the old or the new content and repeat by seed")
{
    Prng prng(test_seed());
    Recorder recorder;
    RecordingDevice device(recorder, std::make_unique<SimDevice>("sim", kReplayBytes));
    AlignedBuffer old = random_buffer(prng, 4 * kBlockBytes);
    REQUIRE(write(device, 0, old).ok());
    REQUIRE(flush(device).ok());
    AlignedBuffer fresh = random_buffer(prng, 4 * kBlockBytes);
    REQUIRE(write(device, 0, fresh).ok());
    ReplayCursor cursor(recorder);
    cursor.advance(recorder.end());
    REQUIRE(cursor.optional_writes(0) == std::vector<uint32_t>{1});
    std::map<uint64_t, int> states;
    for (const uint32_t unit_bytes : {512u, 4096u}) {
        for (uint64_t seed = 0; seed < 20; ++seed) {
            const ChosenWrite choice{.write = 1, .unit_bytes = unit_bytes, .seed = seed};
            const auto made = cursor.device(0, {&choice, 1});
            ++states[made->content_hash()];
            CHECK(cursor.device(0, {&choice, 1})->content_hash() == made->content_hash());
            AlignedBuffer found(4 * kBlockBytes);
            made->peek(0, found.span());
            for (uint64_t at = 0; at < found.size(); at += unit_bytes) {
                const auto unit = found.span().subspan(at, unit_bytes);
                CHECK((same(unit, old.span().subspan(at, unit_bytes)) ||
                       same(unit, fresh.span().subspan(at, unit_bytes))));
            }
        }
    }
    CHECK(states.size() > 20);
}

TEST_CASE("marks, instants and failed requests")
{
    Recorder recorder;
    PowerSupply power;
    RecordingDevice device(recorder, std::make_unique<SimDevice>("sim", kReplayBytes, &power));
    AlignedBuffer block(kBlockBytes);
    std::memset(block.data(), 1, block.size());
    recorder.mark(1, "begin");  // time 0
    REQUIRE(write(device, 0, block).ok());  // 1, 2
    REQUIRE(flush(device).ok());  // 3, 4
    recorder.mark(2, "acknowledged");  // 5
    power.turn_off();
    CHECK(write(device, 0, block).err() == Err::kMemberGone);  // 6, 7
    CHECK(flush(device).err() == Err::kMemberGone);  // 8, 9
    CHECK(write(device, kReplayBytes, block).err() == Err::kIo);  // refused: not recorded
    CHECK(recorder.end() == 10);
    const std::vector<uint64_t> expected{0, 2, 5, 7};
    CHECK(recorder.instants() == expected);
    REQUIRE(recorder.writes().size() == 2);
    CHECK(recorder.writes()[0].durable == 4);
    CHECK(recorder.writes()[1].completed == kNever);
    CHECK(recorder.writes()[1].durable == kNever);
    CHECK_FALSE(overlap_in_time(recorder.writes()[0], recorder.writes()[1]));
    ReplayCursor cursor(recorder);
    cursor.advance(5);
    CHECK(cursor.marks().size() == 1);
    CHECK(cursor.optional_writes(0).empty());
    cursor.advance(6);
    REQUIRE(cursor.marks().size() == 2);
    CHECK(cursor.marks()[1].value == 2);
    CHECK(cursor.marks()[1].text == "acknowledged");
    cursor.advance(10);
    CHECK(cursor.optional_writes(0) == std::vector<uint32_t>{1});
}

TEST_CASE("repeated content is stored once, and devices of one state are independent")
{
    Recorder recorder;
    RecordingDevice device(recorder, std::make_unique<SimDevice>("sim", kReplayBytes));
    AlignedBuffer block(kBlockBytes);
    std::memset(block.data(), 9, block.size());
    for (uint64_t number = 0; number < 64; ++number)
        REQUIRE(write(device, number * kBlockBytes, block).ok());
    CHECK(recorder.pool().block_count() == 2);  // zeros and this one
    IoRequest discard{
        .kind = IoKind::kDiscard, .device = &device, .offset = {0}, .discard_bytes = kReplayBytes};
    run_io({&discard, 1});
    REQUIRE(discard.result.ok());
    CHECK(recorder.writes().size() == 65);
    ReplayCursor cursor(recorder);
    cursor.advance(recorder.end());
    const ChosenWrite choice{.write = 0};
    const auto one = cursor.device(0, {&choice, 1});
    const auto two = cursor.device(0, {&choice, 1});
    AlignedBuffer in(kBlockBytes);
    REQUIRE(write(*one, kBlockBytes, block).ok());
    REQUIRE(read(*one, kBlockBytes, in).ok());
    CHECK(same(in.span(), block.span()));
    REQUIRE(read(*two, kBlockBytes, in).ok());
    CHECK(same(in.span(), AlignedBuffer::zeroed(kBlockBytes).span()));
    CHECK(read(*two, kReplayBytes, in).err() == Err::kIo);
}

TEST_CASE("a discard leaves the old content, zeros or something else, until and after it is durable")
{
    Recorder recorder;
    RecordingDevice device(recorder, std::make_unique<SimDevice>("sim", kReplayBytes));
    AlignedBuffer block(kBlockBytes);
    std::memset(block.data(), 9, block.size());
    for (uint64_t number = 0; number < 8; ++number)
        REQUIRE(write(device, number * kBlockBytes, block).ok());
    REQUIRE(flush(device).ok());
    IoRequest discard{
        .kind = IoKind::kDiscard, .device = &device, .offset = {0}, .discard_bytes = 8 * kBlockBytes};
    run_io({&discard, 1});
    REQUIRE(discard.result.ok());
    const auto expect = [](ReplayDevice& replayed, std::byte even, std::byte odd) {
        AlignedBuffer in(kBlockBytes);
        for (uint64_t number = 0; number < 8; ++number) {
            REQUIRE(read(replayed, number * kBlockBytes, in).ok());
            const std::byte wanted = number % 2 == 0 ? even : odd;
            CHECK(std::all_of(in.span().begin(), in.span().end(), [=](std::byte b) { return b == wanted; }));
        }
    };
    ReplayCursor cursor(recorder);
    cursor.advance(recorder.end());
    expect(*cursor.device(0, {}), std::byte{9}, std::byte{9});
    const ChosenWrite choice{.write = 8};
    expect(*cursor.device(0, {&choice, 1}), std::byte{0}, kDiscardedByte);
    REQUIRE(flush(device).ok());
    cursor.advance(recorder.end());
    CHECK(cursor.optional_writes(0).empty());
    expect(*cursor.device(0, {}), std::byte{0}, kDiscardedByte);
}

TEST_CASE("recording from several threads keeps times consistent")
{
    Recorder recorder;
    RecordingDevice device(recorder, std::make_unique<SimDevice>("sim", kReplayBytes));
    std::vector<std::thread> threads;
    for (uint64_t number = 0; number < 4; ++number) {
        threads.emplace_back([&, number] {
            Prng prng(number);
            for (int round = 0; round < 100; ++round) {
                AlignedBuffer block = random_buffer(prng, kBlockBytes);
                CHECK(write(device, (number * 16 + prng.below(16)) * kBlockBytes, block).ok());
                if (round % 10 == 0)
                    CHECK(flush(device).ok());
            }
        });
    }
    for (auto& thread : threads)
        thread.join();
    CHECK(recorder.writes().size() == 400);
    CHECK(recorder.end() == 880);
    uint64_t durable = 0;
    for (const RecordedWrite& write : recorder.writes()) {
        REQUIRE(write.completed > write.issued);
        if (write.durable == kNever)
            continue;
        ++durable;
        bool covered = false;
        for (const RecordedFlush& flush : recorder.flushes()) {
            covered = covered || (flush.issued > write.completed && flush.completed == write.durable);
            CHECK_FALSE((flush.issued > write.completed && flush.completed < write.durable));
        }
        CHECK(covered);
    }
    CHECK(durable > 100);
    CHECK(durable < 400);
}
