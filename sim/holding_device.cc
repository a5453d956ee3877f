// SPDX-License-Identifier: MIT
#include "sim/holding_device.h"

#include <cstring>
#include <utility>

namespace cowraid {

bool HoldingDevice::start(IoRequest& request, IoCompletion& completion)
{
    MutexLock lock(mutex_);
    if (!holds_ || request.kind != IoKind::kRead || request.offset < from_)
        return false;
    if (after_ > 0) {
        --after_;
        return false;
    }
    held_.push_back({&request, &completion});
    return true;
}

void HoldingDevice::hold(uint64_t after, DeviceOffset from)
{
    MutexLock lock(mutex_);
    holds_ = true;
    after_ = after;
    from_ = from;
}

void HoldingDevice::release(Release how)
{
    std::vector<Held> held;
    {
        MutexLock lock(mutex_);
        holds_ = false;
        held = std::exchange(held_, {});
    }
    for (const Held& one : held) {
        if (how == Release::kServe)
            inner_->perform(*one.request);
        else
            for (const iovec& vector : one.request->vectors)
                std::memset(vector.iov_base, 0xA5, vector.iov_len);
        one.completion->done(*one.request);
    }
}

size_t HoldingDevice::held() const
{
    MutexLock lock(mutex_);
    return held_.size();
}

}  // namespace cowraid
