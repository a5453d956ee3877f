// SPDX-License-Identifier: MIT
// For tests: a member whose head holds something else, or cannot be read in full.
#pragma once

#include <memory>
#include <string>

#include "device/block_device.h"

namespace cowraid::test {

class ProbedDevice final : public BlockDevice {
public:
    // foreign_content() answers `err`, or "ext4" when it is kOk.
    ProbedDevice(std::unique_ptr<BlockDevice> device, Err err) : device_(std::move(device)), err_(err) { }
    [[nodiscard]] uint64_t size_bytes() const override { return device_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return device_->name(); }
    [[nodiscard]] Result<std::string> foreign_content(ContentArea) const override
    {
        return err_ == Err::kOk ? Result<std::string>("ext4") : Result<std::string>(err_);
    }
    void perform(IoRequest& request) override
    {
        request.device = device_.get();
        device_->perform(request);
        request.device = this;
    }

private:
    std::unique_ptr<BlockDevice> device_;
    Err err_;
};

}  // namespace cowraid::test
