// SPDX-License-Identifier: MIT
// Records every write and flush of all members of a volume, for crash replay (sim/replay.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "device/block_device.h"
#include "device/block_pool.h"

namespace cowraid {

inline constexpr uint64_t kNever = UINT64_MAX;

// What a crash leaves of a discard that was carried out: blocks with even numbers are zeros, the others are
// full of this. What was not carried out is as before.
inline constexpr std::byte kDiscardedByte{0xd5};

// One write (or discard, recorded as a write of such blocks). Times are numbers of one sequence over all
// devices: a write is issued and completed, a flush is issued and completed, a mark is set. Two writes whose
// times overlap were on their way together.
struct RecordedWrite {
    uint32_t device;
    uint64_t first_block;  // block number on the device
    std::vector<uint32_t> content;  // index in the pool, per block
    uint64_t issued;
    uint64_t completed = kNever;  // kNever: it failed, so anything may have been stored
    // When the first flush completed that was issued after this write had completed, or the write itself when
    // it was to be durable; kNever: not at all.
    uint64_t durable = kNever;
};

struct RecordedFlush {
    uint32_t device;
    uint64_t issued;
    uint64_t completed = kNever;  // kNever: it failed and made nothing durable
};

// Set by the test driver: "operation k returned", "fsync of f acknowledged".
struct RecordedMark {
    uint64_t time;
    uint64_t value;
    std::string text;
};

// Shared by the recording devices of one volume. Recording is thread-safe; the readers below belong to the
// time after it.
class Recorder {
public:
    Recorder();
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    // Introduces a device of zeros and returns its number, from 0.
    uint32_t add_device(std::string name, uint64_t size_bytes);
    // Takes what `source` holds now as the content of device `number` before the recording. Reads the whole
    // device.
    void set_start(uint32_t number, BlockDevice& source);
    // The same from another recorder's image (a replayed state whose recovery is recorded in turn).
    void set_start(uint32_t number, const BlockImage& image, const BlockPool& pool);
    void mark(uint64_t value, std::string_view text);

    // Called by RecordingDevice around each request.
    size_t begin_write(uint32_t number, const IoRequest& request);
    void end_write(size_t index, Status result, bool durable = false);
    size_t begin_flush(uint32_t number);
    void end_flush(size_t index, Status result);

    // Times run from 0 to end() - 1.
    [[nodiscard]] uint64_t end() const;
    // Every time at which the set of possible crash states changes, rising: 0, then just after each write
    // was issued and just after each flush, and each durable write, completed.
    [[nodiscard]] std::vector<uint64_t> instants() const;
    [[nodiscard]] size_t device_count() const { return devices_.size(); }
    [[nodiscard]] const std::string& device_name(uint32_t number) const { return devices_[number].name; }
    [[nodiscard]] uint64_t device_bytes(uint32_t number) const { return devices_[number].size_bytes; }
    [[nodiscard]] const BlockImage& start(uint32_t number) const { return devices_[number].start; }
    [[nodiscard]] const std::vector<RecordedWrite>& writes() const CW_NO_THREAD_SAFETY_ANALYSIS
    {
        return writes_;
    }
    [[nodiscard]] const std::vector<RecordedFlush>& flushes() const CW_NO_THREAD_SAFETY_ANALYSIS
    {
        return flushes_;
    }
    [[nodiscard]] const std::vector<RecordedMark>& marks() const CW_NO_THREAD_SAFETY_ANALYSIS
    {
        return marks_;
    }
    [[nodiscard]] const BlockPool& pool() const CW_NO_THREAD_SAFETY_ANALYSIS { return pool_; }

private:
    struct Device {
        std::string name;
        uint64_t size_bytes;
        BlockImage start;
        std::vector<size_t> volatile_writes;  // indexes of writes no flush covers yet
    };

    void record_content(RecordedWrite& write, const IoRequest& request) CW_REQUIRES(mutex_);

    mutable Mutex mutex_{LockRank::kDevice};
    std::vector<Device> devices_;
    uint64_t clock_ CW_GUARDED_BY(mutex_) = 0;
    std::vector<RecordedWrite> writes_ CW_GUARDED_BY(mutex_);  // by rising `issued`
    std::vector<RecordedFlush> flushes_ CW_GUARDED_BY(mutex_);
    std::vector<RecordedMark> marks_ CW_GUARDED_BY(mutex_);
    BlockPool pool_ CW_GUARDED_BY(mutex_);
};

// Passes everything on to `inner` and tells the recorder, which must outlive it.
class RecordingDevice final : public BlockDevice {
public:
    RecordingDevice(Recorder& recorder, std::unique_ptr<BlockDevice> inner);

    [[nodiscard]] uint64_t size_bytes() const override { return inner_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return inner_->name(); }
    void perform(IoRequest& request) override;
    [[nodiscard]] uint32_t number() const { return number_; }
    [[nodiscard]] BlockDevice& inner() { return *inner_; }

private:
    Recorder& recorder_;
    std::unique_ptr<BlockDevice> inner_;
    uint32_t number_;
};

}  // namespace cowraid
