// SPDX-License-Identifier: MIT
// For tests and simulations that keep their devices while mounts come and go.
#pragma once

#include "device/block_device.h"

namespace cowraid::test {

// Passes everything on to a device that outlives it, so that a mount may own it.
class BorrowedDevice final : public BlockDevice {
public:
    explicit BorrowedDevice(BlockDevice& device) : device_(device) { }
    [[nodiscard]] uint64_t size_bytes() const override { return device_.size_bytes(); }
    [[nodiscard]] const char* name() const override { return device_.name(); }
    void perform(IoRequest& request) override
    {
        request.device = &device_;
        device_.perform(request);
        request.device = this;
    }
    [[nodiscard]] bool start(IoRequest& request, IoCompletion& completion) override
    {
        return device_.start(request, completion);
    }

private:
    BlockDevice& device_;
};

}  // namespace cowraid::test
