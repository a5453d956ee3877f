// SPDX-License-Identifier: MIT
// Crash states out of a recording: for an instant, what every member certainly holds, which writes may or
// may not have reached it, and devices with one choice of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/block_device.h"
#include "device/block_pool.h"
#include "sim/recording_device.h"

namespace cowraid {

// A write that reached its member although no flush covered it.
struct ChosenWrite {
    uint32_t write;  // index in Recorder::writes()
    uint32_t unit_bytes = 0;  // 0: whole; 512 or 4096: torn, each unit survives with probability 1/2 ...
    uint64_t seed = 0;  // ... as this seed says
};

// A device with the content of one crash state. Own writes stay its own, and are durable at once. Not
// thread-safe beyond what recovery on one thread needs.
class ReplayDevice final : public BlockDevice {
public:
    // `base` and `pool` must outlive it and not change meanwhile.
    ReplayDevice(std::string name, uint64_t size_bytes, const BlockImage& base, const BlockPool& pool);

    [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }
    [[nodiscard]] const char* name() const override { return name_.c_str(); }
    void perform(IoRequest& request) override;

    // Equal for devices of equal content, however they came by it.
    [[nodiscard]] uint64_t content_hash() const;
    // In bounds, any alignment.
    void peek(uint64_t offset, std::span<std::byte> out) const;
    void poke(uint64_t offset, std::span<const std::byte> bytes);
    // The content as an image of `pool`, to record what recovery does to it.
    [[nodiscard]] BlockImage image(BlockPool& pool) const;

private:
    // A block to write into, with what the base holds unless all of it will be replaced.
    std::byte* own_block(uint64_t number, size_t replaced_bytes);

    const std::string name_;
    const uint64_t size_bytes_;
    const BlockImage& base_;
    const BlockPool& pool_;
    std::unordered_map<uint64_t, std::unique_ptr<std::byte[]>> own_;  // blocks that differ from base_
};

// Walks a recording forward. Readers of one Recorder may have a cursor each.
class ReplayCursor {
public:
    explicit ReplayCursor(const Recorder& recorder);

    // Moves to an instant not before the current one. Devices handed out earlier become invalid.
    void advance(uint64_t instant);
    [[nodiscard]] uint64_t instant() const { return instant_; }

    // Writes to `device`, by rising time of issue, that were issued before the instant and are not covered
    // by a flush. A power loss keeps any subset, each whole or torn.
    [[nodiscard]] const std::vector<uint32_t>& optional_writes(uint32_t device) const
    {
        return optional_[device];
    }
    // What a device holds for certain, without durable writes on top of some that are optional.
    [[nodiscard]] const BlockImage& durable(uint32_t device) const { return durable_[device]; }
    // Marks set before the instant.
    [[nodiscard]] std::span<const RecordedMark> marks() const;

    // Device `device` after a power loss at the instant, with the chosen writes applied in the order given.
    // That order must be the order of issue, except between writes that were on their way together.
    [[nodiscard]] std::unique_ptr<ReplayDevice> device(uint32_t device,
                                                       std::span<const ChosenWrite> chosen) const;

private:
    void make_durable(uint32_t device);
    void apply(ReplayDevice& made, const ChosenWrite& choice) const;

    const Recorder& recorder_;
    uint64_t instant_ = 0;
    size_t next_write_ = 0;  // first write not issued yet
    size_t mark_count_ = 0;
    std::vector<BlockImage> durable_;
    std::vector<std::vector<uint32_t>> optional_;
    // Durable writes that overlap earlier optional ones, and so are not in durable_ yet.
    std::vector<std::vector<uint32_t>> forced_;
};

// Were both on their way at some moment, so that either may be applied first?
bool overlap_in_time(const RecordedWrite& a, const RecordedWrite& b);

}  // namespace cowraid
