// SPDX-License-Identifier: MIT
// The members of one volume: which are present, and what went wrong on each.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/units.h"
#include "device/block_device.h"
#include "format/superblock.h"

namespace cowraid {

// Error kinds counted per member (order and meaning are on disk: format/superblock.h kCounterCount).
enum class MemberCounter : uint8_t {
    kWriteErrors,
    kReadErrors,
    kFlushErrors,
    kCorruption,  // a data or metadata block failed its checksum
    kGeneration,  // a valid block of another address or generation (lost or misdirected write)
    kParity,  // a parity block failed its checksum
    kSuperblock,  // a superblock or block-group map copy was bad
    kRepaired,  // blocks rewritten with reconstructed content
};
static_assert(static_cast<size_t>(MemberCounter::kRepaired) + 1 == kMemberCounterCount);

const char* member_counter_name(MemberCounter counter);

using MemberCounters = std::array<uint64_t, kMemberCounterCount>;

class MemberSet {
public:
    MemberSet();
    ~MemberSet();
    MemberSet(const MemberSet&) = delete;
    MemberSet& operator=(const MemberSet&) = delete;

    // Called while a volume is assembled, before other threads use the set. `device` may be null: the
    // member is known but absent. Ids must be distinct and not 0.
    void add(MemberId id, std::unique_ptr<BlockDevice> device, const MemberCounters& counters);

    // The device, or null when the member is absent, failed or unknown. The pointer stays valid as long as
    // the set (a failed member's device is kept until then). Lock-free; thread-safe.
    [[nodiscard]] BlockDevice* device(MemberId id) const;
    // Takes the member out of service after an error that redundancy must carry. Idempotent. Returns true
    // for the call that changed the state: its caller must see to it that the next superblock records it
    // before anything that skipped the member is acknowledged.
    bool mark_failed(MemberId id);
    [[nodiscard]] bool failed(MemberId id) const;
    [[nodiscard]] std::vector<MemberId> ids() const;

    void count(MemberId id, MemberCounter counter, uint64_t amount = 1);
    [[nodiscard]] MemberCounters counters(MemberId id) const;
    void reset_counters(MemberId id);

private:
    struct Member;
    [[nodiscard]] Member* find(MemberId id) const;

    std::vector<std::unique_ptr<Member>> members_;  // by rising id; constant after assembly
};

}  // namespace cowraid
