// SPDX-License-Identifier: MIT
// Members whose logs hold the blocks of an input.
#pragma once

#include <memory>

#include "device/member_set.h"
#include "sim/borrowed_device.h"
#include "sim/sim_device.h"
#include "tests/fuzz_targets/fuzz_input.h"
#include "tests/fuzz_targets/targets.h"

namespace cowraid {

// The next block of the input: where it stands, what to fit, and its bytes, zeros behind them.
struct FuzzBlock {
    explicit FuzzBlock(FuzzInput& input) : content(kBlockBytes)
    {
        const uint8_t place = input.take_u8();
        member = place / log_input::kLogBlocks % log_input::kMembers;
        block = place % log_input::kLogBlocks;
        fit = input.take_u8();
        const std::span<const std::byte> bytes = input.take(std::min<size_t>(input.take_u16(), kBlockBytes));
        std::copy(bytes.begin(), bytes.end(), content.begin());
    }

    uint32_t member = 0;  // by index
    uint32_t block = 0;
    uint8_t fit = 0;
    std::vector<std::byte> content;
};

class LogMembers {
public:
    LogMembers() : superblock(log_input::superblock_with_logs())
    {
        for (const MemberRecord& record : superblock.members) {
            disks.push_back(std::make_unique<SimDevice>("member", 256 * kKiB));
            members.add(record.id, std::make_unique<test::BorrowedDevice>(*disks.back()), {});
        }
    }
    void put(const FuzzBlock& block)
    {
        disks[block.member]->poke(log_input::kLogOffset + uint64_t{block.block} * kBlockBytes, block.content);
    }

    Superblock superblock;
    std::vector<std::unique_ptr<SimDevice>> disks;
    MemberSet members;
};

}  // namespace cowraid
