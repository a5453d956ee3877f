// SPDX-License-Identifier: MIT
// A wrapper whose device stops to answer, and answers later.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "device/block_device.h"

namespace cowraid {

// Thread-safe.
class HoldingDevice final : public BlockDevice {
public:
    explicit HoldingDevice(std::unique_ptr<BlockDevice> inner) : inner_(std::move(inner)) { }
    ~HoldingDevice() override { release(Release::kServe); }
    [[nodiscard]] uint64_t size_bytes() const override { return inner_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return inner_->name(); }
    void perform(IoRequest& request) override { inner_->perform(request); }
    [[nodiscard]] bool start(IoRequest& request, IoCompletion& completion) override;

    // From now on all reads at `from` or behind it wait, but the first `after`.
    void hold(uint64_t after = 0, DeviceOffset from = {});
    // Those that wait are carried out, and later ones again. kPoison: success, with other bytes than are
    // there.
    enum class Release { kServe, kPoison };
    void release(Release how);
    [[nodiscard]] size_t held() const;

private:
    struct Held {
        IoRequest* request;
        IoCompletion* completion;
    };
    const std::unique_ptr<BlockDevice> inner_;
    mutable Mutex mutex_{LockRank::kDevice};
    bool holds_ CW_GUARDED_BY(mutex_) = false;
    uint64_t after_ CW_GUARDED_BY(mutex_) = 0;
    DeviceOffset from_ CW_GUARDED_BY(mutex_);
    std::vector<Held> held_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
