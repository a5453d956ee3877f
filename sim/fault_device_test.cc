// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "sim/fault_device.h"
#include "sim/sim_device.h"
#include "tests/support/device_files.h"
#include "tests/support/test_seed.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

constexpr uint64_t kFaultBytes = 256 * kKiB;

// A faulty device over a simulated one that holds random content, all flushed.
struct Rig {
    Prng prng;
    SimDevice* sim;
    FaultDevice device;
    AlignedBuffer content;

    explicit Rig(uint64_t seed = test_seed(), SlowHook slow = {})
        : prng(seed),
          sim(new SimDevice("sim", kFaultBytes)),
          device(std::unique_ptr<BlockDevice>(sim), seed, slow),
          content(random_buffer(prng, kFaultBytes))
    {
        REQUIRE(write(device, 0, content).ok());
        REQUIRE(flush(device).ok());
    }
    [[nodiscard]] AlignedBuffer on_disk() const
    {
        AlignedBuffer all(kFaultBytes);
        sim->peek(0, all.span());
        return all;
    }
    [[nodiscard]] bool untouched() const { return same(on_disk().span(), content.span()); }
};

size_t different_bits(std::span<const std::byte> a, std::span<const std::byte> b)
{
    size_t count = 0;
    for (size_t index = 0; index < a.size(); ++index)
        count += static_cast<size_t>(__builtin_popcount(static_cast<unsigned>(a[index] ^ b[index])));
    return count;
}

}  // namespace

TEST_CASE("errors by kind, range, count and chance")
{
    Rig rig;
    AlignedBuffer block = random_buffer(rig.prng, kBlockBytes);
    const size_t reads =
        rig.device.add_rule({.kinds = kFaultReads, .begin = 8192, .end = 8193, .skip = 1, .limit = 2});
    CHECK(read(rig.device, 4096, block).ok());  // beside the range
    CHECK(read(rig.device, 8192, block).ok());  // skipped
    CHECK(read(rig.device, 8192, block).err() == Err::kIo);
    CHECK(write(rig.device, 8192, block).ok());  // other kind
    CHECK(read(rig.device, 8192, block).err() == Err::kIo);
    CHECK(read(rig.device, 8192, block).ok());  // used up
    CHECK(rig.device.hits(reads) == 2);
    rig.device.remove_rule(reads);

    const size_t flushes = rig.device.add_rule({.kinds = kFaultFlushes, .limit = 1});
    CHECK(flush(rig.device).err() == Err::kIo);
    CHECK(rig.sim->unflushed_writes() == 1);
    CHECK(flush(rig.device).ok());
    CHECK(rig.sim->unflushed_writes() == 0);
    CHECK(rig.device.hits(flushes) == 1);

    const AlignedBuffer before = rig.on_disk();
    const size_t some = rig.device.add_rule({.kinds = kFaultWrites, .permille = 300, .error = Err::kNoSpace});
    int failed = 0;
    for (int round = 0; round < 500; ++round)
        failed += write(rig.device, 0, block).err() == Err::kNoSpace ? 1 : 0;
    CHECK(failed > 90);
    CHECK(failed < 210);
    CHECK(rig.device.hits(some) == static_cast<uint64_t>(failed));
    CHECK(rig.device.hits(FaultAction::kError) == static_cast<uint64_t>(failed) + 3);
    CHECK(same(rig.on_disk().span().subspan(8192), before.span().subspan(8192)));
}

TEST_CASE("gone fails everything until it comes back")
{
    Rig rig;
    AlignedBuffer block = random_buffer(rig.prng, kBlockBytes);
    const size_t rule = rig.device.add_rule({.action = FaultAction::kGone, .kinds = kFaultWrites, .skip = 1});
    CHECK(read(rig.device, 0, block).ok());
    CHECK(write(rig.device, 0, block).ok());
    CHECK(read(rig.device, 0, block).ok());
    CHECK(write(rig.device, 4096, block).err() == Err::kMemberGone);
    CHECK(read(rig.device, 0, block).err() == Err::kMemberGone);
    CHECK(flush(rig.device).err() == Err::kMemberGone);
    CHECK(rig.untouched());
    CHECK(rig.device.hits(rule) == 1);
    rig.device.remove_rule(rule);
    CHECK(read(rig.device, 0, block).ok());
}

TEST_CASE("torn writes store some units, never all, and say what the rule says")
{
    for (const uint32_t unit_bytes : {512u, 4096u}) {
        Rig rig;
        const size_t acked = rig.device.add_rule(
            {.action = FaultAction::kTorn, .limit = 20, .error = Err::kOk, .unit_bytes = unit_bytes});
        const size_t failing =
            rig.device.add_rule({.action = FaultAction::kTorn, .error = Err::kIo, .unit_bytes = unit_bytes});
        size_t fresh_units = 0;
        for (int round = 0; round < 40; ++round) {
            const AlignedBuffer before = rig.on_disk();
            AlignedBuffer out = random_buffer(rig.prng, 4 * kBlockBytes);
            CHECK(write(rig.device, 8192, out).ok() == (round < 20));
            const AlignedBuffer after = rig.on_disk();
            CHECK_FALSE(same(after.span().subspan(8192, out.size()), out.span()));
            CHECK(same(after.span().first(8192), before.span().first(8192)));
            for (size_t at = 0; at < out.size(); at += unit_bytes) {
                const auto unit = after.span().subspan(8192 + at, unit_bytes);
                const bool fresh = same(unit, out.span().subspan(at, unit_bytes));
                CHECK((fresh || same(unit, before.span().subspan(8192 + at, unit_bytes))));
                fresh_units += fresh ? 1 : 0;
            }
        }
        CHECK(fresh_units > 10);
        CHECK(rig.device.hits(acked) == 20);
        CHECK(rig.device.hits(failing) == 20);
    }
}

TEST_CASE("lost writes and lost flushes are acknowledged")
{
    Rig rig;
    AlignedBuffer block = random_buffer(rig.prng, kBlockBytes);
    const size_t lost =
        rig.device.add_rule({.action = FaultAction::kLost, .kinds = kFaultWrites, .limit = 1});
    CHECK(write(rig.device, 0, block).ok());
    CHECK(rig.untouched());
    CHECK(rig.device.hits(lost) == 1);
    CHECK(write(rig.device, 0, block).ok());
    CHECK_FALSE(rig.untouched());
    const size_t lying = rig.device.add_rule({.action = FaultAction::kLost, .kinds = kFaultFlushes});
    CHECK(flush(rig.device).ok());
    CHECK(rig.sim->unflushed_writes() == 1);
    CHECK(rig.device.hits(lying) == 1);
    rig.sim->drop_cache();
    CHECK(rig.untouched());
    // A durable write is a flush, too.
    CHECK(write_durable(rig.device, 0, block).ok());
    rig.sim->drop_cache();
    CHECK(rig.untouched());
    rig.device.remove_rule(lying);
    const size_t failing = rig.device.add_rule({.kinds = kFaultFlushes});
    CHECK(write_durable(rig.device, 0, block).err() == Err::kIo);
    CHECK(rig.device.hits(failing) == 1);
    rig.device.remove_rule(failing);
    CHECK(write_durable(rig.device, 0, block).ok());
    rig.sim->drop_cache();
    CHECK_FALSE(rig.untouched());
}

TEST_CASE("misdirected requests go to another place or another device")
{
    Rig rig;
    SimDevice other("other", kFaultBytes);
    AlignedBuffer block = random_buffer(rig.prng, kBlockBytes);
    const size_t here = rig.device.add_rule(
        {.action = FaultAction::kMisdirected, .kinds = kFaultWrites, .limit = 1, .target_offset = 65536});
    CHECK(write(rig.device, 0, block).ok());
    AlignedBuffer after = rig.on_disk();
    CHECK(same(after.span().first(65536), rig.content.span().first(65536)));
    CHECK(same(after.span().subspan(65536, kBlockBytes), block.span()));
    const size_t elsewhere = rig.device.add_rule({.action = FaultAction::kMisdirected,
                                                  .kinds = kFaultWrites,
                                                  .limit = 1,
                                                  .target = &other,
                                                  .target_offset = 4096});
    CHECK(write(rig.device, 0, block).ok());
    CHECK(same(rig.on_disk().span(), after.span()));
    AlignedBuffer found(kBlockBytes);
    other.peek(4096, found.span());
    CHECK(same(found.span(), block.span()));
    const size_t reading = rig.device.add_rule(
        {.action = FaultAction::kMisdirected, .kinds = kFaultReads, .limit = 1, .target_offset = 65536});
    CHECK(read(rig.device, 0, found).ok());
    CHECK(same(found.span(), block.span()));
    CHECK(read(rig.device, 0, found).ok());
    CHECK(same(found.span(), rig.content.span().first(kBlockBytes)));
    for (const size_t rule : {here, elsewhere, reading})
        CHECK(rig.device.hits(rule) == 1);
}

TEST_CASE("bit flips on the way: the answer differs, the device does not; a write is stored wrong")
{
    Rig rig;
    const size_t reading = rig.device.add_rule({.action = FaultAction::kBitFlip,
                                                .kinds = kFaultReads,
                                                .begin = 20480,
                                                .end = 24576,
                                                .flip_bits = 3});
    AlignedBuffer in(4 * kBlockBytes);
    for (int round = 0; round < 20; ++round) {
        CHECK(read(rig.device, 16384, in).ok());
        CHECK(different_bits(in.span(), rig.content.span().subspan(16384, in.size())) == 3);
        CHECK(same(in.span().first(kBlockBytes), rig.content.span().subspan(16384, kBlockBytes)));
    }
    CHECK(rig.untouched());
    CHECK(rig.device.hits(reading) == 20);
    rig.device.remove_all_rules();
    const size_t writing = rig.device.add_rule({.action = FaultAction::kBitFlip, .kinds = kFaultWrites});
    AlignedBuffer out = random_buffer(rig.prng, kBlockBytes);
    AlignedBuffer copy(kBlockBytes);
    std::memcpy(copy.data(), out.data(), out.size());
    CHECK(write(rig.device, 0, out).ok());
    CHECK(same(out.span(), copy.span()));
    CHECK(different_bits(rig.on_disk().span().first(kBlockBytes), out.span()) == 1);
    CHECK(rig.device.hits(writing) == 1);
}

TEST_CASE("rot stays on the device")
{
    Rig rig;
    const size_t rule = rig.device.add_rule({.action = FaultAction::kRot, .limit = 2, .flip_bits = 2});
    AlignedBuffer in(kBlockBytes);
    CHECK(read(rig.device, 4096, in).ok());
    CHECK(different_bits(in.span(), rig.content.span().subspan(4096, kBlockBytes)) == 2);
    CHECK(different_bits(rig.on_disk().span(), rig.content.span()) == 2);
    AlignedBuffer out = random_buffer(rig.prng, kBlockBytes);
    CHECK(write(rig.device, 8192, out).ok());
    CHECK(different_bits(rig.on_disk().span().subspan(8192, kBlockBytes), out.span()) == 2);
    AlignedBuffer again(kBlockBytes);
    CHECK(read(rig.device, 4096, again).ok());
    CHECK(same(again.span(), in.span()));
    CHECK(rig.device.hits(rule) == 2);
}

TEST_CASE("stale reads serve what was there when the rule was added")
{
    Rig rig;
    const size_t rule = rig.device.add_rule(
        {.action = FaultAction::kStale, .begin = 4096, .end = 12288, .skip = 1, .limit = 2});
    AlignedBuffer one = random_buffer(rig.prng, 4 * kBlockBytes);
    AlignedBuffer two = random_buffer(rig.prng, 4 * kBlockBytes);
    AlignedBuffer in(4 * kBlockBytes);
    CHECK(write(rig.device, 0, one).ok());
    CHECK(write(rig.device, 0, two).ok());
    CHECK(read(rig.device, 0, in).ok());  // skipped
    CHECK(same(in.span(), two.span()));
    CHECK(read(rig.device, 0, in).ok());
    CHECK(same(in.span().subspan(4096, 8192), rig.content.span().subspan(4096, 8192)));
    CHECK(same(in.span().first(4096), two.span().first(4096)));
    CHECK(same(in.span().subspan(12288), two.span().subspan(12288)));
    AlignedBuffer middle(kBlockBytes);
    CHECK(read(rig.device, 8192, middle).ok());
    CHECK(same(middle.span(), rig.content.span().subspan(8192, kBlockBytes)));
    CHECK(read(rig.device, 0, in).ok());  // used up
    CHECK(same(in.span(), two.span()));
    CHECK(rig.device.hits(rule) == 2);
}

TEST_CASE("latent sector errors last until each block is written again")
{
    Rig rig;
    const size_t rule = rig.device.add_rule({.action = FaultAction::kLatent, .begin = 8192, .end = 16384});
    AlignedBuffer block = random_buffer(rig.prng, kBlockBytes);
    AlignedBuffer two(2 * kBlockBytes);
    CHECK(read(rig.device, 8192, two).err() == Err::kIo);
    CHECK(read(rig.device, 0, two).ok());
    CHECK(write(rig.device, 8192, block).ok());
    CHECK(read(rig.device, 8192, two).err() == Err::kIo);
    AlignedBuffer in(kBlockBytes);
    CHECK(read(rig.device, 8192, in).ok());
    CHECK(same(in.span(), block.span()));
    CHECK(write(rig.device, 12288, block).ok());
    CHECK(read(rig.device, 8192, two).ok());
    CHECK(rig.device.hits(rule) == 2);
    // A rewrite that fails heals nothing.
    rig.device.add_rule({.action = FaultAction::kLatent, .begin = 0, .end = 4096});
    rig.device.add_rule({.action = FaultAction::kError, .kinds = kFaultWrites, .limit = 1});
    CHECK(write(rig.device, 0, block).err() == Err::kIo);
    CHECK(read(rig.device, 0, in).err() == Err::kIo);
    CHECK(write(rig.device, 0, block).ok());
    CHECK(read(rig.device, 0, in).ok());
}

TEST_CASE("slow requests call the hook and then do what they should")
{
    uint64_t waited = 0;
    const auto wait = [](void* context, uint64_t microseconds) {
        *static_cast<uint64_t*>(context) += microseconds;
    };
    Rig rig(test_seed(), {wait, &waited});
    const size_t slow =
        rig.device.add_rule({.action = FaultAction::kSlow, .limit = 3, .delay_microseconds = 500});
    rig.device.add_rule({.action = FaultAction::kError, .kinds = kFaultReads, .skip = 1});
    AlignedBuffer in(kBlockBytes);
    CHECK(read(rig.device, 0, in).ok());
    CHECK(read(rig.device, 0, in).err() == Err::kIo);
    CHECK(flush(rig.device).ok());
    CHECK(flush(rig.device).ok());
    CHECK(waited == 1500);
    CHECK(rig.device.hits(slow) == 3);
}

TEST_CASE("the same seed repeats the same faults")
{
    std::vector<AlignedBuffer> images;
    for (int run = 0; run < 2; ++run) {
        Rig rig(42);
        rig.device.add_rule({.action = FaultAction::kTorn, .permille = 300, .error = Err::kOk});
        rig.device.add_rule({.action = FaultAction::kRot, .permille = 300});
        rig.device.add_rule({.action = FaultAction::kLost, .permille = 300});
        for (int round = 0; round < 100; ++round) {
            AlignedBuffer out = random_buffer(rig.prng, kBlockBytes);
            CHECK(write(rig.device, kBlockBytes * rig.prng.below(64), out).ok());
        }
        CHECK(rig.device.hits(FaultAction::kTorn) > 10);
        CHECK(rig.device.hits(FaultAction::kRot) > 5);
        CHECK(rig.device.hits(FaultAction::kLost) > 5);
        images.push_back(rig.on_disk());
    }
    CHECK(same(images[0].span(), images[1].span()));
}
