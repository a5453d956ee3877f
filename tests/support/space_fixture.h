// SPDX-License-Identifier: MIT
// For tests of the allocator: one over a disk that is a map, with shorthands.
#pragma once

#include <doctest/doctest.h>

#include "tests/support/space_model.h"

namespace cowraid::test {

inline constexpr VolumeAddress kFirst = {16 * kMiB};
inline constexpr TransactionId kOne = {1};
inline constexpr TransactionId kTwo = {2};
inline constexpr TransactionId kThree = {3};
inline constexpr uint32_t kAnything = kAllContent;

struct SpaceFixture {
    TestDisk disk;
    Allocator allocator{disk};

    GroupRecord add(VolumeAddress address, ProfileId profile, uint32_t data_columns, uint64_t chunk_bytes,
                    uint64_t stripes, uint32_t content = kAnything)
    {
        const GroupRecord group =
            test_group(address, profile, data_columns, static_cast<uint32_t>(chunk_bytes), stripes, content);
        allocator.add_group(group, disk.usage(group), Allocator::GroupState::kOpen);
        return group;
    }
    std::vector<RowRegion> take(uint64_t units, TransactionId transaction = kOne,
                                Stream stream = Stream::kData, uint32_t unit_blocks = 1)
    {
        std::vector<RowRegion> regions;
        REQUIRE(allocator.allocate(stream, unit_blocks, units, transaction, regions).ok());
        return regions;
    }
    bool refused(uint64_t units, uint32_t unit_blocks = 1)
    {
        std::vector<RowRegion> regions;
        return allocator.allocate(Stream::kData, unit_blocks, units, kOne, regions) == Err::kNoSpace;
    }
    void commit(TransactionId transaction, Generation generation)
    {
        collect(transaction, generation);
        allocator.release(transaction, generation);
    }
    std::vector<SpaceWindow> collect(TransactionId transaction, Generation generation)
    {
        std::vector<SpaceWindow> windows;
        std::vector<GroupUsage> usages;
        REQUIRE(allocator.collect(transaction, windows, usages).ok());
        disk.record(windows, usages, generation);
        return windows;
    }
};

}  // namespace cowraid::test
