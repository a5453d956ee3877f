// SPDX-License-Identifier: MIT
// Collects pieces of I/O on many members and carries them out as few large vectored requests, one batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "device/block_device.h"
#include "device/late_io.h"
#include "device/member_set.h"

namespace cowraid {

// Contiguous on a member and in memory.
struct IoPart {
    MemberId member;
    BlockDevice* device = nullptr;
    DeviceOffset offset;
    std::byte* memory = nullptr;  // only read from by a write plan
    uint64_t bytes = 0;
    uint32_t owner = 0;  // the caller's: whose bytes these are
    Status result;  // after run()
};

// Usage: add() everything, run() once, look at parts(). Not thread-safe.
class IoPlan {
public:
    // `members` counts every failed write request, and read errors that were gone when the blocks were read
    // again one by one. Other read errors are the caller's to count: it knows which blocks matter.
    IoPlan(IoKind kind, MemberSet& members) : kind_(kind), members_(members) { }

    void reserve(size_t parts) { parts_.reserve(parts); }
    // Joins the part to the one added before where it continues it.
    void add(const IoPart& part);
    // One request per run of parts that adjoin on a member. A read also bridges small gaps. When a read of
    // many blocks fails, its blocks are read one by one, so that afterwards exactly the parts (then single
    // blocks) that cannot be read have a failed result. A member that is gone, of which a read knows, leaves
    // service if the volume can do without it: it is not asked again. What is written to a member that is
    // being replaced is written to its successor, too, which is out of service where that fails.
    void run();
    // Bridges would read blocks that are read for their content, too, before or after: no bridges then.
    void forbid_bridges() { may_bridge_ = false; }
    // Of a read: parts, which lie in `memory`, are not waited for where a member is silent for `times` times
    // MemberSet::read_deadline_ms(); where they are read one by one that begins anew. Those that are late
    // then have the result kWouldWait, and `memory` is another buffer, in which the parts lie where they lay
    // in the old one; all but the late ones holds what it held there.
    void may_leave(AlignedBuffer& memory, uint32_t times = 1) { lease_ = &memory, lease_times_ = times; }
    // In no particular order.
    [[nodiscard]] std::span<IoPart> parts() { return parts_; }

    // A request costs about as much as this many bytes (5 microseconds, decision 0003, beside 10 for 64 KiB
    // more), so that reading and throwing away a gap of that size is no dearer than a second request.
    static constexpr uint64_t kBridgeBytes = 32 * kKiB;

private:
    struct Run {
        size_t first_part;
        size_t part_count;
        size_t first_vector;
        size_t vector_count;
        bool bridged;
    };
    struct FailedRun {
        size_t first_block;
        size_t block_count;
        bool bridged;
    };

    void sort_parts();
    [[nodiscard]] uint64_t bridge_to(const IoPart& last, const IoPart& next) const;
    void build_runs();
    void add_vector(std::byte* memory, uint64_t bytes);
    void make_requests();
    void submit();
    void leave(std::unique_ptr<LateIo> late);
    void move_to_fresh_memory(LateIo& late);
    void add_mirrors();
    void leave_out_mirrors();
    void count_failed_writes();
    void leave_out_gone();
    void read_one_by_one();
    void count_if_gone(std::span<const IoPart> blocks, bool bridged);

    IoKind kind_;
    MemberSet& members_;
    bool may_bridge_ = true;
    bool one_by_one_ = false;
    std::vector<IoPart> parts_;
    size_t first_ = 0;  // of the parts that are read now
    std::vector<Run> runs_;
    std::vector<iovec> vectors_;
    std::vector<IoRequest> requests_;  // of runs_, in their order, then of mirrors_
    std::vector<size_t> mirrors_;  // of which request each is the second one
    AlignedBuffer* lease_ = nullptr;
    uint32_t lease_times_ = 1;
    AlignedBuffer scratch_;  // receives what lies in bridged gaps; never looked at
};

}  // namespace cowraid
