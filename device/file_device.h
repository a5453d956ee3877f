// SPDX-License-Identifier: MIT
// A member that is a block device or an image file.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "device/block_device.h"

namespace cowraid {

class FileDevice final : public BlockDevice {
public:
    // Takes over `fd`: a block device or regular file opened O_DIRECT (or, where the filesystem has no
    // direct I/O, O_DSYNC, so that write errors show at the write). The size is taken now, rounded down to
    // whole blocks, and requests beyond it are refused even when the file grows. kInvalid for anything that
    // is neither a file nor a block device, kIo when the size cannot be had.
    static Result<std::unique_ptr<FileDevice>> adopt(UniqueFd fd, std::string name);
    ~FileDevice() override;

    [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_.load(std::memory_order_relaxed); }
    uint64_t look_at_size() override;
    [[nodiscard]] const char* name() const override { return name_.c_str(); }
    [[nodiscard]] Result<std::string> foreign_content(ContentArea area) const override;
    void perform(IoRequest& request) override;
    [[nodiscard]] int ring_fd() const override { return fd_.get(); }
    [[nodiscard]] bool durable_in_ring() const override { return !on_fuse_; }
    [[nodiscard]] bool rotational() const override { return rotational_; }
    // False for a block device whose queue takes no discards, and after one was refused for good.
    [[nodiscard]] bool discards() const override { return discards_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool is_block_device() const { return is_block_device_; }

private:
    FileDevice() = default;
    void transfer(IoRequest& request);
    void flush(IoRequest& request);
    void discard(IoRequest& request);

    UniqueFd fd_;
    UniqueFd buffered_;  // opened at once: a confined process may not do it later
    std::string name_;
    std::atomic<uint64_t> size_bytes_{0};  // never less than it was
    std::atomic<bool> discards_{true};
    bool is_block_device_ = false;
    bool rotational_ = true;
    bool on_fuse_ = false;  // where not every write with O_DSYNC is followed by an FUSE_FSYNC
};

}  // namespace cowraid
