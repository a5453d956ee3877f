// SPDX-License-Identifier: MIT
// Members with a small fsync log each, for the tests of this folder.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "journal/fsync_log.h"
#include "journal/fsync_scan.h"
#include "sim/borrowed_device.h"
#include "sim/fault_device.h"
#include "sim/sim_device.h"

namespace cowraid::test {

inline constexpr uint64_t kEpoch = 91;
inline constexpr Generation kCommitted{5}, kOpen{6};

using FsyncBytes = std::vector<std::byte>;

inline void sleep_microseconds(void* /*context*/, uint64_t microseconds)
{
    usleep(static_cast<useconds_t>(microseconds));
}

// Members with a log each, committed up to generation 5.
struct FsyncFixture {
    Superblock superblock;
    PowerSupply power;
    std::vector<std::unique_ptr<SimDevice>> disks;
    std::vector<FaultDevice*> faults;
    std::unique_ptr<MemberSet> members;
    Prng prng{12};

    explicit FsyncFixture(uint32_t member_count = 4, uint32_t log_blocks = 400)
    {
        log_set_level(LogLevel::kNone);
        superblock.volume_uuid = uuid_random();
        superblock.generation = kCommitted;
        superblock.epochs = {{kEpoch, {1}}};
        superblock.log_epoch = kEpoch;
        for (uint32_t id = 1; id <= member_count; ++id) {
            MemberRecord record;
            record.id = {id};
            record.fsync_log_offset = (id + 2) * kMiB;
            record.fsync_log_bytes = uint64_t{log_blocks} * kBlockBytes;
            superblock.members.push_back(record);
            disks.push_back(std::make_unique<SimDevice>("m" + std::to_string(id), 64 * kMiB, &power));
        }
        attach();
    }
    ~FsyncFixture() { log_set_level(LogLevel::kInfo); }
    // As after a crash or a new mount.
    void attach(const std::vector<uint32_t>& without = {})
    {
        members = std::make_unique<MemberSet>();
        faults.clear();
        for (uint32_t id = 1; id <= disks.size(); ++id) {
            auto device = std::make_unique<FaultDevice>(std::make_unique<BorrowedDevice>(*disks[id - 1]), id,
                                                        SlowHook{sleep_microseconds, nullptr});
            const bool absent = std::count(without.begin(), without.end(), id) > 0;
            faults.push_back(absent ? nullptr : device.get());
            members->add({id}, absent ? nullptr : std::unique_ptr<BlockDevice>(std::move(device)), {});
        }
    }
    void crash(const std::vector<uint32_t>& without = {})
    {
        power.turn_off();
        for (auto& disk : disks)
            disk->power_cut(prng, {});
        power.turn_on();
        attach(without);
    }
    // Writes and flushes take as long as on a fair disk.
    void slow_down()
    {
        for (FaultDevice* fault : faults) {
            fault->add_rule({.action = FaultAction::kSlow, .kinds = kFaultWrites, .delay_microseconds = 100});
            fault->add_rule(
                {.action = FaultAction::kSlow, .kinds = kFaultFlushes, .delay_microseconds = 400});
        }
    }
    FsyncBytes record(size_t bytes)
    {
        FsyncBytes one(bytes);
        prng.fill(one.data(), one.size());
        return one;
    }
    FsyncLog log(uint32_t tolerance = 1, uint64_t first_sequence = 1)
    {
        return {*members, superblock, tolerance, first_sequence, kCommitted};
    }
    FsyncScan scan() { return {*members, superblock, kCommitted}; }
    [[nodiscard]] uint64_t errors(uint32_t id, MemberCounter counter) const
    {
        return members->counters({id})[static_cast<size_t>(counter)];
    }
};

inline std::vector<FsyncBytes> all_records(FsyncScan& scan)
{
    std::vector<FsyncBytes> records;
    uint64_t next = 0;
    for (const FsyncScan::Batch& batch : scan.batches()) {
        CHECK((next == 0 || batch.header.sequence == next));
        next = batch.header.end_sequence();
        const Result<FsyncContent> content = scan.read(batch);
        REQUIRE(content.ok());
        for (const auto& record : content->records)
            records.emplace_back(record.begin(), record.end());
    }
    return records;
}

inline std::vector<FsyncBytes> append_some(FsyncFixture& fixture, FsyncLog& log, size_t count,
                                           Generation generation = kOpen)
{
    std::vector<FsyncBytes> records;
    for (size_t index = 0; index < count; ++index) {
        records.push_back(fixture.record(fixture.prng.below(index % 7 == 0 ? 9000 : 500)));
        REQUIRE(log.append(records.back(), generation, kEpoch).ok());
    }
    return records;
}

}  // namespace cowraid::test
