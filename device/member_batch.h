// SPDX-License-Identifier: MIT
// Requests of one step to several members, and what becomes of the members that fail.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/block_device.h"
#include "device/member_set.h"

namespace cowraid {

class MemberBatch {
public:
    // `counter` counts requests that fail.
    MemberBatch(MemberSet& members, MemberCounter counter) : members_(members), counter_(counter) { }

    // `request.device` is filled in. False, with nothing added: the member is not in service. What
    // `request.vectors` points to must stay until run() returns.
    bool add(MemberId id, IoRequest request);
    // A write of `bytes`, which must stay likewise.
    bool add_write(MemberId id, DeviceOffset offset, std::span<const std::byte> bytes);

    // Failed requests are counted and logged as `what`; all members that failed something go to
    // MemberSet::fail() together. kTooManyFaults when that is false.
    Status run(const char* what);
    // After run(): the request, in the order of add().
    [[nodiscard]] bool ok(size_t index) const { return requests_[index].result.ok(); }

private:
    MemberSet& members_;
    const MemberCounter counter_;
    std::deque<iovec> vectors_;  // of add_write(); addresses stay
    std::vector<MemberId> ids_;
    std::vector<IoRequest> requests_;
};

}  // namespace cowraid
