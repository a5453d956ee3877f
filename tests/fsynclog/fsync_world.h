// SPDX-License-Identifier: MIT
// The parts of the model of the fsync log: what outlives a crash, and what happens between two.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "journal/fsync_ring.h"
#include "journal/fsync_scan.h"
#include "sim/fault_device.h"
#include "sim/sim_device.h"
#include "tests/fsynclog/fsync_model.h"

namespace cowraid::test {

using FsyncMask = uint32_t;  // of members, by index

// A record that was given to the log and is not known to be in a commit.
struct LoggedRecord {
    uint64_t sequence;
    Generation generation;
    std::vector<std::byte> bytes;
    bool acknowledged = false;
};

struct PendingBatch {
    enum class Step : uint8_t { kWrite, kSettle, kFinished } step = Step::kWrite;
    std::unique_ptr<RecordWrite> write;
};

class FsyncLife;

// What outlives a crash.
class FsyncWorld {
public:
    explicit FsyncWorld(const FsyncRun& run);
    FsyncReport go();

private:
    friend class FsyncLife;
    [[nodiscard]] bool is(FsyncMutant mutant) const { return run_.mutant == mutant; }
    [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(disks_.size()); }
    [[nodiscard]] bool in(FsyncMask mask, uint32_t index) const { return (mask >> index & 1) != 0; }
    FsyncMask part_of(FsyncMask mask);
    std::unique_ptr<MemberSet> attach(FsyncMask absent, FsyncMask unreadable);
    void stamp_epoch(FsyncMask absent);
    void rot(uint32_t index);
    void bless_damaged_blocks();
    void recover(FsyncMask faulty);
    void check(MemberSet& members, uint64_t& next_sequence, Generation& commit_at_least);
    void compare(std::span<const FsyncScan::Batch> batches, FsyncScan& scan);
    void lost(const char* what, uint64_t sequence);

    const FsyncRun& run_;
    Prng prng_;
    PowerSupply power_;
    std::vector<std::unique_ptr<SimDevice>> disks_;
    std::vector<FaultDevice*> faults_;  // of the members attached last; null where absent
    Superblock superblock_;
    uint32_t tolerance_;
    Generation committed_{5};
    uint64_t next_sequence_ = 1;
    std::vector<LoggedRecord> logged_;
    FsyncReport report_;
};

// From one mount to the power cut.
class FsyncLife {
public:
    FsyncLife(FsyncWorld& world, FsyncMask faulty, FsyncMask absent);
    void go();

private:
    void add_faults(FsyncMask faulty, FsyncMask absent);
    void start_write();
    void advance(size_t index);
    void finish(size_t index);
    void acknowledge(size_t index, Status result);
    void step_commit();

    FsyncWorld& world_;
    Prng& prng_;
    std::unique_ptr<MemberSet> members_;
    FsyncRing ring_;
    std::vector<PendingBatch> pending_;
    Generation open_;
    std::optional<Generation> closing_;
    bool durable_ = false;  // the closing generation's commit
};

}  // namespace cowraid::test
