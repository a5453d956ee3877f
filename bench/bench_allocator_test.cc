// SPDX-License-Identifier: MIT
// Costs, on request: alloc_test --no-skip -tc="measure*" -s
#include <doctest/doctest.h>

#include "base/clock.h"
#include "tests/support/space_model.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

namespace {

double now_ms()
{
    return static_cast<double>(monotonic_ns()) / 1e6;
}

double collect_ms(Allocator& allocator, TransactionId transaction, uint64_t& windows_out)
{
    const double start = now_ms();
    std::vector<SpaceWindow> windows;
    std::vector<GroupUsage> usages;
    REQUIRE(allocator.collect(transaction, windows, usages).ok());
    windows_out = windows.size();
    return now_ms() - start;
}

// Frees five rows of every third stripe of the full group, then fills it again.
void measure_fragments(Allocator& allocator)
{
    for (uint64_t stripe = 0; stripe < 300000; stripe += 3) {
        for (uint64_t column = 0; column < 14; ++column) {
            const VolumeAddress address = {kMiB + ((stripe * 14 + column) * 16 + stripe % 11) * kBlockBytes};
            for (uint64_t row = 0; row < 5; ++row)
                allocator.free_blocks(address + row * kBlockBytes, 1, {3}).ignore();
        }
    }
    uint64_t windows = 0;
    collect_ms(allocator, {3}, windows);
    double start = now_ms();
    allocator.release({3}, {3});
    MESSAGE("release of 7 million blocks: ", now_ms() - start, " ms");
    uint64_t calls = 0;
    uint64_t count = 0;
    start = now_ms();
    std::vector<RowRegion> regions;
    for (; allocator.allocate(Stream::kData, 1, 100, {4}, regions).ok(); regions.clear()) {
        ++calls;
        count += regions.size();
    }
    MESSAGE(calls, " calls of 100 blocks until the fragmented group was full: ", now_ms() - start, " ms, ",
            count, " regions");
}

}  // namespace

TEST_CASE("measure: streaming, random frees, fragments" * doctest::skip())
{
    // 256 GiB of data: 14 columns of 18 GiB.
    TestDisk disk;
    Allocator allocator(disk);
    const GroupRecord group = test_group({kMiB}, ProfileId::kRaid6, 14, 64 * kKiB, 300000, kGroupData);
    allocator.add_group(group, all_free(group), Allocator::GroupState::kOpen);
    const uint64_t blocks = geometry_of(group).data_blocks();
    std::vector<RowRegion> regions;
    double start = now_ms();
    REQUIRE(allocator.allocate(Stream::kData, 1, 1, {1}, regions).ok());
    MESSAGE("first use of an empty group of ", blocks, " blocks: ", now_ms() - start, " ms");

    uint64_t windows = 0;
    for (const uint64_t flush_blocks : {1u, 16u, 2048u}) {
        start = now_ms();
        for (uint64_t done = 0; done < kGiB / kBlockBytes; done += flush_blocks) {
            regions.clear();
            REQUIRE(allocator.allocate(Stream::kData, 1, flush_blocks, {1}, regions).ok());
        }
        const double spent = now_ms() - start;
        const double collected = collect_ms(allocator, {1}, windows);
        MESSAGE("1 GiB in calls of ", flush_blocks, " blocks: ", spent, " ms, collect ", collected, " ms, ",
                windows, " windows");
    }

    regions.clear();
    start = now_ms();
    REQUIRE(allocator.allocate(Stream::kData, 1, allocator.numbers(kGroupData).free_row_blocks, {1}, regions)
                .ok());
    MESSAGE("the rest at once: ", now_ms() - start, " ms, ", regions.size(), " regions, collect ",
            collect_ms(allocator, {1}, windows), " ms, ", windows, " windows");
    allocator.release({1}, {1});

    Prng random(test_seed());
    start = now_ms();
    uint64_t freed = 0;
    for (uint64_t count = 0; count < 100000; ++count)
        freed += allocator.free_blocks({kMiB + random.below(blocks) * kBlockBytes}, 1, {2}).ok() ? 1 : 0;
    const double spent = now_ms() - start;
    const double collected = collect_ms(allocator, {2}, windows);
    start = now_ms();
    allocator.release({2}, {2});
    MESSAGE(freed, " random single blocks freed: ", spent, " ms, collect ", collected, " ms, ", windows,
            " windows, release ", now_ms() - start, " ms");

    measure_fragments(allocator);
    allocator.evict_idle(0);
    MESSAGE("memory: ", allocator.evict_idle(~uint64_t{0}) * 8 / blocks, " bits per block");
}
