// SPDX-License-Identifier: MIT
// A member in memory that does nothing but copy, for measuring what the array itself costs.
#pragma once

#include <memory>
#include <string>

#include "device/block_device.h"

namespace cowraid {

// Reads as zeros at first; memory is used by what is written. Everything is durable at once. Requests are not
// ordered against each other: who reads what another thread writes gets a mix, as from a disk.
class MemoryDevice final : public BlockDevice {
public:
    // Null when the address space cannot be had.
    static std::unique_ptr<MemoryDevice> make(std::string name, uint64_t size_bytes);
    ~MemoryDevice() override;

    [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }
    [[nodiscard]] const char* name() const override { return name_.c_str(); }
    void perform(IoRequest& request) override;

private:
    MemoryDevice(std::string name, uint64_t size_bytes, std::byte* memory);

    const std::string name_;
    const uint64_t size_bytes_;
    std::byte* const memory_;
};

}  // namespace cowraid
