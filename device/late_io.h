// SPDX-License-Identifier: MIT
// Reads that were given up because a member does not answer. The kernel, or a simulated device, may write to
// their memory at any time until they are done, so all that they use is left to them and kept that long.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "device/block_device.h"

namespace cowraid {

class Ring;

// A batch of which some requests are late.
class LateIo {
public:
    // run_io_for()'s: `completion` of the `started` requests that devices took, and the ring of this
    // thread, which gets another one, unless it is idle.
    static std::unique_ptr<LateIo> give_up(std::span<const IoRequest> batch,
                                           std::unique_ptr<IoCompletion> completion, uint32_t started);
    ~LateIo();
    LateIo(const LateIo&) = delete;
    LateIo& operator=(const LateIo&) = delete;

    // Whether the request of that number is not done, as was seen when it was given up: its result may be
    // written at any time. The others have theirs.
    [[nodiscard]] bool is_late(size_t number) const { return late_[number]; }

    // The batch, its vectors, and the memory they lie in: to be moved here, for they must not move.
    std::vector<IoRequest> requests;
    std::vector<iovec> vectors;
    std::vector<AlignedBuffer> memory;

    // Whether nothing of it is under way any more. By one thread at a time.
    [[nodiscard]] bool finished();
    // A late request is on the device.
    [[nodiscard]] bool uses(const BlockDevice& device) const;

private:
    LateIo() = default;

    std::vector<bool> late_;
    std::unique_ptr<Ring> ring_;
    std::unique_ptr<IoCompletion> completion_;
    uint32_t started_ = 0;
};

// As run_io(), for reads, but waits for a device that is silent so many milliseconds at most, if not too much
// was left behind already. Null: all have a result. Else those that LateIo::is_late() are not done; batch,
// vectors and memory must be moved to it, and it to leave_behind(), before any of them is touched again. Only
// what a ring does or a device took by start() can be given up.
[[nodiscard]] std::unique_ptr<LateIo> run_io_for(std::span<IoRequest> batch, uint64_t wait_ms);

// Keeps it until its last request is done. Thread-safe.
void leave_behind(std::unique_ptr<LateIo> late);

// Rings and memory that wait for devices are bounded: from then on reads wait as well. Thread-safe.
inline constexpr size_t kLateMax = 256;
inline constexpr uint64_t kLateBytesMax = 256 * kMiB;
[[nodiscard]] bool may_leave_more_behind();

// Frees what is done, and tells the devices. Cheap where nothing was left behind. Thread-safe.
void reap_late_io();

// Before a device is closed: until nothing that was left behind is on it. Thread-safe.
void wait_for_late_io(const BlockDevice& device);

}  // namespace cowraid
