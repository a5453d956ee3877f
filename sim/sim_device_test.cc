// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <map>

#include "sim/sim_device.h"
#include "tests/support/device_files.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kSimBytes = 512 * kKiB;

AlignedBuffer everything(const SimDevice& device)
{
    AlignedBuffer all(device.size_bytes());
    device.peek(0, all.span());
    return all;
}

struct Done {
    uint64_t offset;
    AlignedBuffer content;
};

// Per 512-byte unit, the contents that a power cut may leave: the flushed one and every later write's.
void check_legal(const AlignedBuffer& found, const AlignedBuffer& flushed, std::span<const Done> later,
                 uint32_t unit_bytes)
{
    for (uint64_t at = 0; at < found.size(); at += unit_bytes) {
        const auto unit = found.span().subspan(at, unit_bytes);
        bool legal = same(unit, flushed.span().subspan(at, unit_bytes));
        for (const Done& write : later) {
            if (at >= write.offset && at < write.offset + write.content.size())
                legal = legal || same(unit, write.content.span().subspan(at - write.offset, unit_bytes));
        }
        REQUIRE(legal);
    }
}

std::vector<Done> random_writes(Prng& prng, SimDevice& device, int count)
{
    std::vector<Done> done;
    for (int number = 0; number < count; ++number) {
        const uint64_t bytes = kBlockBytes * prng.between(1, 9);
        const uint64_t offset = kBlockBytes * prng.below((kSimBytes - bytes) / kBlockBytes + 1);
        done.push_back({offset, random_buffer(prng, bytes)});
        REQUIRE(write(device, offset, done.back().content).ok());
    }
    return done;
}

void overlay(AlignedBuffer& image, std::span<const Done> writes)
{
    for (const Done& write : writes)
        std::memcpy(image.data() + write.offset, write.content.data(), write.content.size());
}

}  // namespace

TEST_CASE("a power cut leaves of each unit the flushed content or a later write's")
{
    const uint64_t seed = test_seed();
    CAPTURE(seed);
    Prng prng(seed);
    for (int round = 0; round < 40; ++round) {
        const uint32_t unit_bytes = round % 2 == 0 ? 512 : 4096;
        SimDevice device("sim", kSimBytes);
        AlignedBuffer flushed = AlignedBuffer::zeroed(kSimBytes);
        overlay(flushed, random_writes(prng, device, 20));
        REQUIRE(flush(device).ok());
        REQUIRE(same(everything(device).span(), flushed.span()));
        const std::vector<Done> later = random_writes(prng, device, 12);
        CHECK(device.unflushed_writes() == 12);
        device.power_cut(prng, {.unit_bytes = unit_bytes});
        CHECK(device.unflushed_writes() == 0);
        const AlignedBuffer found = everything(device);
        check_legal(found, flushed, later, unit_bytes);
        // What the cut left is on the platters: a second one changes nothing.
        device.power_cut(prng, {});
        CHECK(same(everything(device).span(), found.span()));
    }
}

TEST_CASE("power cut extremes: all kept, all dropped, order of overlapping writes")
{
    Prng prng(test_seed());
    SimDevice device("sim", kSimBytes);
    AlignedBuffer flushed = AlignedBuffer::zeroed(kSimBytes);
    overlay(flushed, random_writes(prng, device, 5));
    REQUIRE(flush(device).ok());
    AlignedBuffer newest = AlignedBuffer::zeroed(kSimBytes);
    overlay(newest, {});
    std::memcpy(newest.data(), flushed.data(), kSimBytes);
    overlay(newest, random_writes(prng, device, 200));
    const auto keep = device.clone("copy");
    CHECK(same(everything(*keep).span(), newest.span()));
    device.power_cut(prng, {.keep_percent = 100, .tear_percent = 0});
    CHECK(same(everything(device).span(), newest.span()));
    random_writes(prng, device, 50);
    device.power_cut(prng, {.keep_percent = 0, .tear_percent = 0});
    CHECK(same(everything(device).span(), newest.span()));
    random_writes(prng, device, 50);
    device.drop_cache();
    CHECK(same(everything(device).span(), newest.span()));
    CHECK(same(everything(*keep).span(), newest.span()));
}

TEST_CASE("the same seed loses the same writes, and all outcomes happen")
{
    std::map<std::string, int> outcomes;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        std::unique_ptr<AlignedBuffer> first;
        for (int run = 0; run < 2; ++run) {
            Prng content(7);
            SimDevice device("sim", kSimBytes);
            AlignedBuffer block = random_buffer(content, 8 * kBlockBytes);
            REQUIRE(write(device, 0, block).ok());
            Prng prng(seed);
            device.power_cut(prng, {});
            AlignedBuffer found(8 * kBlockBytes);
            device.peek(0, found.span());
            const AlignedBuffer zeros = AlignedBuffer::zeroed(8 * kBlockBytes);
            const bool kept = same(found.span(), block.span());
            const bool dropped = same(found.span(), zeros.span());
            ++outcomes[kept ? "kept" : dropped ? "dropped" : "torn"];
            if (run == 0)
                first = std::make_unique<AlignedBuffer>(std::move(found));
            else
                CHECK(same(first->span(), found.span()));
        }
    }
    CHECK(outcomes["kept"] >= 10);
    CHECK(outcomes["dropped"] >= 10);
    CHECK(outcomes["torn"] >= 5);
}

TEST_CASE("a durable write survives, in its place among those that may not")
{
    SimDevice device("sim", kSimBytes);
    Prng prng(1);
    AlignedBuffer before = random_buffer(prng, 2 * kBlockBytes);
    AlignedBuffer durable = random_buffer(prng, kBlockBytes);
    AlignedBuffer after = random_buffer(prng, kBlockBytes);
    for (const uint32_t keep_percent : {0, 100}) {
        REQUIRE(write(device, 0, before).ok());
        REQUIRE(write_durable(device, 0, durable).ok());
        REQUIRE(write_durable(device, 2 * kBlockBytes, durable).ok());
        REQUIRE(write(device, 2 * kBlockBytes, after).ok());
        CHECK(device.unflushed_writes() == 2);
        device.power_cut(prng, {.keep_percent = keep_percent, .tear_percent = 0});
        AlignedBuffer in(3 * kBlockBytes);
        REQUIRE(read(device, 0, in).ok());
        CHECK(same(in.span().first(kBlockBytes), durable.span()));
        const bool kept =
            same(in.span().subspan(kBlockBytes, kBlockBytes), before.span().subspan(kBlockBytes));
        CHECK(kept == (keep_percent == 100));
        CHECK(same(in.span().subspan(2 * kBlockBytes), kept ? after.span() : durable.span()));
    }
    // Rot below it stays, and a reset of the controller takes nothing away.
    REQUIRE(write_durable(device, 0, durable).ok());
    const std::byte rotten[] = {durable.data()[10] ^ std::byte{1}};
    device.poke(10, rotten);
    device.drop_cache();
    AlignedBuffer in(kBlockBytes);
    REQUIRE(read(device, 0, in).ok());
    CHECK(in.data()[10] == rotten[0]);
    CHECK(in.data()[11] == durable.data()[11]);
}

TEST_CASE("a huge device costs what is written to it")
{
    SimDevice device("huge", 16 * kTiB);
    Prng prng(1);
    AlignedBuffer block = random_buffer(prng, kBlockBytes);
    for (int number = 0; number < 100; ++number)
        REQUIRE(write(device, kBlockBytes * prng.below(16 * kTiB / kBlockBytes), block).ok());
    REQUIRE(write(device, 16 * kTiB - kBlockBytes, block).ok());
    REQUIRE(flush(device).ok());
    CHECK(device.resident_bytes() < 4 * kMiB);
    AlignedBuffer in(kBlockBytes);
    REQUIRE(read(device, 16 * kTiB - kBlockBytes, in).ok());
    CHECK(same(in.span(), block.span()));
    CHECK(write(device, 16 * kTiB, block).err() == Err::kIo);
    IoRequest discard{.kind = IoKind::kDiscard, .device = &device, .offset = {0}, .discard_bytes = 16 * kTiB};
    run_io({&discard, 1});
    CHECK(discard.result.ok());
    REQUIRE(read(device, 16 * kTiB - kBlockBytes, in).ok());
    CHECK(same(in.span(), AlignedBuffer::zeroed(kBlockBytes).span()));
}

TEST_CASE("rot reaches what the device reads now and what survives a power cut")
{
    SimDevice device("sim", kSimBytes);
    Prng prng(1);
    AlignedBuffer block = random_buffer(prng, kBlockBytes);
    REQUIRE(write(device, 0, block).ok());
    REQUIRE(flush(device).ok());
    REQUIRE(write(device, kBlockBytes, block).ok());
    const std::byte rotten[] = {block.data()[10] ^ std::byte{1}};
    device.poke(10, rotten);
    AlignedBuffer in(kBlockBytes);
    REQUIRE(read(device, 0, in).ok());
    CHECK(in.data()[10] == rotten[0]);
    device.drop_cache();
    REQUIRE(read(device, 0, in).ok());
    CHECK(in.data()[10] == rotten[0]);
    CHECK(in.data()[11] == block.data()[11]);
    REQUIRE(read(device, kBlockBytes, in).ok());
    CHECK(same(in.span(), AlignedBuffer::zeroed(kBlockBytes).span()));
}

TEST_CASE("power fails at the chosen event on all devices at once")
{
    PowerSupply power;
    SimDevice one("one", kSimBytes, &power);
    SimDevice two("two", kSimBytes, &power);
    Prng prng(1);
    AlignedBuffer block = random_buffer(prng, kBlockBytes);
    REQUIRE(write(one, 0, block).ok());
    REQUIRE(flush(one).ok());
    CHECK(power.events() == 2);
    power.arm(3);
    CHECK(write(one, kBlockBytes, block).ok());
    CHECK(write(two, 0, block).ok());
    CHECK(write(two, kBlockBytes, block).err() == Err::kMemberGone);  // stored or not: nobody was told
    CHECK_FALSE(power.on());
    CHECK(write(one, 2 * kBlockBytes, block).err() == Err::kMemberGone);
    CHECK(flush(two).err() == Err::kMemberGone);
    AlignedBuffer in(kBlockBytes);
    CHECK(read(one, 0, in).err() == Err::kMemberGone);
    CHECK(one.unflushed_writes() == 1);
    CHECK(two.unflushed_writes() == 2);
    power.turn_on();
    one.power_cut(prng, {.keep_percent = 0, .tear_percent = 0});
    two.power_cut(prng, {.keep_percent = 100, .tear_percent = 0});
    REQUIRE(read(one, 0, in).ok());
    CHECK(same(in.span(), block.span()));
    REQUIRE(read(one, kBlockBytes, in).ok());
    CHECK_FALSE(same(in.span(), block.span()));
    REQUIRE(read(two, kBlockBytes, in).ok());
    CHECK(same(in.span(), block.span()));
}
