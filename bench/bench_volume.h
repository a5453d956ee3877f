// SPDX-License-Identifier: MIT
// One block group over a benchmark's members, with what a filesystem would know of it: the checksums.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_members.h"
#include "journal/intent_log.h"

namespace cowraid {

class BenchVolume final : public BlockVerifier, public ChecksumSink {
public:
    static constexpr VolumeAddress kGroup{uint64_t{1} << 40};
    static constexpr uint64_t kGeneration = 2;  // of all writes

    // Makes the members and the array. `why` on failure.
    static Result<std::unique_ptr<BenchVolume>> make(const BenchOptions& options, std::string& why);
    ~BenchVolume() override;

    // Writes every row once, with random content, and makes it durable.
    Status fill(uint64_t seed);
    // Makes room in the write-intent log, as a filesystem's commit would: all members are flushed. `seen` is
    // commits() from before the write that found none: who comes after somebody else's commit has room.
    // Thread-safe.
    Status commit(uint64_t seen);
    [[nodiscard]] uint64_t commits() const { return commits_.load(std::memory_order_relaxed); }
    // Looks at every column of every stripe, then reads everything back. The number of blocks that are not
    // what they should be.
    Result<uint64_t> count_bad_blocks();

    void expect(VolumeAddress address, std::span<BlockExpectation> out) override;
    void unrecoverable(VolumeAddress) override { }
    void record(VolumeAddress address, std::span<const Checksum> checksums) override;
    bool in_use(VolumeAddress) override { return true; }

    // Of a data or parity block. Thread-safe.
    [[nodiscard]] Checksum checksum_at(VolumeAddress address) const;
    [[nodiscard]] uint64_t data_bytes() const { return geometry_.data_blocks() * kBlockBytes; }
    [[nodiscard]] const Geometry& geometry() const { return geometry_; }
    [[nodiscard]] WriteOrigin origin();
    [[nodiscard]] Array& array() { return *array_; }
    [[nodiscard]] BenchMembers& members() { return *members_; }

private:
    BenchVolume() = default;
    [[nodiscard]] Result<GroupRecord> plan_group(const BenchOptions& options, std::string& why) const;
    Status fill_stripes(uint64_t first, uint64_t count, std::span<const std::byte* const> blocks);
    Result<uint64_t> read_everything();

    std::unique_ptr<BenchMembers> members_;
    Geometry geometry_;
    // By block number of the group's whole span; all known once it is filled.
    std::vector<std::atomic<Checksum>> checksums_;
    std::atomic<bool> filled_{false};
    std::unique_ptr<IntentLog> log_;
    Mutex commit_mutex_{LockRank::kCommitQueue};
    std::atomic<uint64_t> commits_{0};
    std::unique_ptr<Array> array_;  // last: it uses all of the above
};

}  // namespace cowraid
