// SPDX-License-Identifier: MIT
// The members a benchmark runs on: simulated or real, every request counted.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_options.h"
#include "device/member_set.h"
#include "format/superblock_codec.h"
#include "sim/spindle_device.h"

namespace cowraid {

// Requests to members. Writes into the write-intent log are counted apart.
struct MemberCounts {
    uint64_t reads = 0, read_bytes = 0, writes = 0, write_bytes = 0, log_writes = 0, log_bytes = 0;
    uint64_t flushes = 0;
};
MemberCounts sum_of(const MemberCounts& a, const MemberCounts& b);
MemberCounts difference(const MemberCounts& now, const MemberCounts& before);

// Counts what reaches a member. Thread-safe.
class CountingMember final : public BlockDevice {
public:
    // Writes inside [log_offset, log_offset + log_bytes) are the log's.
    CountingMember(std::unique_ptr<BlockDevice> inner, uint64_t log_offset, uint64_t log_bytes);
    [[nodiscard]] uint64_t size_bytes() const override { return inner_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return inner_->name(); }
    void perform(IoRequest& request) override { inner_->perform(request); }
    [[nodiscard]] int ring_fd() const override { return inner_->ring_fd(); }
    [[nodiscard]] bool durable_in_ring() const override { return inner_->durable_in_ring(); }
    [[nodiscard]] bool start(IoRequest& request, IoCompletion& completion) override
    {
        return inner_->start(request, completion);
    }
    void note(const IoRequest& request) override;
    [[nodiscard]] MemberCounts counts() const;

private:
    const std::unique_ptr<BlockDevice> inner_;
    const uint64_t log_offset_;
    const uint64_t log_bytes_;
    std::atomic<uint64_t> reads_{0}, read_bytes_{0}, writes_{0}, write_bytes_{0};
    std::atomic<uint64_t> log_writes_{0}, log_write_bytes_{0}, flushes_{0};
};

struct BenchMembers {
    BenchMembers() = default;
    BenchMembers(const BenchMembers&) = delete;
    BenchMembers& operator=(const BenchMembers&) = delete;

    Superblock superblock;  // with their layouts
    MemberSet set;
    std::vector<CountingMember*> counting;  // the set's
    std::vector<SpindleDevice*> spindles;  // empty unless asked for

    [[nodiscard]] MemberCounts counts() const;
    // Flushes all. The first failure.
    [[nodiscard]] Status flush();
};

// Opens or makes the members. Real ones lose their signatures. `why` on failure.
Result<std::unique_ptr<BenchMembers>> make_bench_members(const BenchOptions& options, std::string& why);

}  // namespace cowraid
