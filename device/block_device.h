// SPDX-License-Identifier: MIT
// The one seam to storage. Everything above it reads and writes members through batches of IoRequest, so
// that power loss, rot and dead disks are classes behind the seam (sim/sim_device.h and its siblings).
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/units.h"
#include "device/in_flight.h"

namespace cowraid {

class BlockDevice;

enum class IoKind : uint8_t {
    kRead,
    kWrite,
    kFlush,  // makes durable what completed before the batch that holds it was started
    kDiscard,  // content becomes undefined; a hint that may do nothing
};

// One request to one device. The caller owns it and the memory behind `vectors` until run_io() returns.
struct IoRequest {
    IoKind kind = IoKind::kRead;
    BlockDevice* device = nullptr;
    // Byte offset on the device, a multiple of 4096. Unused by kFlush.
    DeviceOffset offset;
    // Scattered memory, each piece 4096-aligned and a multiple of 4096 long. Empty for kFlush and kDiscard.
    std::span<const iovec> vectors;
    // Of a kWrite: an ok result means that it is durable, as if flushed, but nothing else is (forced unit
    // access).
    bool durable = false;
    // Length for kDiscard; ignored otherwise.
    uint64_t discard_bytes = 0;
    // Set by run_io(): ok, kIo (device error, short transfer, beyond the end) or kMemberGone.
    Status result;
    // Those who carry it out: since when, and how many parts of it are not done.
    InFlight::Ticket ticket;
    uint32_t open_parts = 0;

    // Sum of the vectors.
    [[nodiscard]] uint64_t bytes() const;
    // Those who carry it out: a part is done. The ticket ends with the last.
    void end_part()
    {
        if (--open_parts == 0)
            ticket.end();
    }
};

// For a time of monotonic_ms(): never.
inline constexpr uint64_t kNoDeadline = UINT64_MAX;

// How a device that took requests by start() says that they are done; one serves a whole batch. Thread-safe.
class IoCompletion {
public:
    // The device's, from any thread: the request has its result, and its memory is no longer used. Request
    // and completion may be gone when this returns.
    void done(IoRequest& request);
    // The caller's: sleeps until done() was called `count` times in all. False: it was not until then, a time
    // of monotonic_ms().
    bool wait(uint32_t count, uint64_t until_ms = kNoDeadline);
    // Those of the batch for which done() was not called yet.
    [[nodiscard]] std::vector<bool> open(std::span<const IoRequest> batch);

private:
    Mutex mutex_{LockRank::kLeaf};
    CondVar condition_;
    uint32_t done_count_ CW_GUARDED_BY(mutex_) = 0;
};

// Where to look for what is not ours: anywhere, or where no member keeps anything but superblocks.
enum class ContentArea : uint8_t { kAll, kHead };

// Storage of one member. Implementations take requests from any thread at any time.
class BlockDevice {
public:
    virtual ~BlockDevice() = default;

    [[nodiscard]] virtual uint64_t size_bytes() const = 0;
    // What it has now. Where that is more than when it was opened, all of it can be used from now on; where
    // it is less, size_bytes() stays.
    virtual uint64_t look_at_size() { return size_bytes(); }
    // For messages: a path or a made-up name. Valid as long as the device.
    [[nodiscard]] virtual const char* name() const = 0;
    // What it holds that is not ours, such as "ext4"; empty when nothing known. Reads from it: kIo. kAccess:
    // the system lets nobody look.
    [[nodiscard]] virtual Result<std::string> foreign_content(ContentArea) const { return std::string(); }
    // Requests that lie apart cost it much more time than the same bytes in one, as far as anybody knows.
    [[nodiscard]] virtual bool rotational() const { return true; }
    // A kDiscard may do something, as far as anybody knows.
    [[nodiscard]] virtual bool discards() const { return true; }
    // Carries out one request in the calling thread and sets its result. Loops over short transfers.
    virtual void perform(IoRequest& request) = 0;
    // A descriptor opened O_DIRECT for which io_uring may do the work instead of perform(); -1 when
    // perform() must be called (simulated devices and the wrappers around others). Before the descriptor is
    // closed the implementation calls ring_forget_file() (device/ring.h).
    [[nodiscard]] virtual int ring_fd() const { return -1; }
    // Whether io_uring carries out durable writes, too; otherwise perform() does.
    [[nodiscard]] virtual bool durable_in_ring() const { return true; }
    // For devices that take their time without a ring: true takes the request, to be carried out beside
    // others, and exactly one `completion.done()` will follow once its result is set: before the device is
    // destroyed. False: nothing happened, use perform(). Asked by run_io() for what no ring does; does not
    // sleep until it is done.
    [[nodiscard]] virtual bool start(IoRequest& request, IoCompletion& completion)
    {
        (void)request;
        (void)completion;
        return false;
    }
    // Told of every request by run_io() before it is carried out, whichever way: for wrappers that count.
    virtual void note(const IoRequest& request) { (void)request; }

    // Requests that run_io() gave it, but discards, which may take as long as they like.
    [[nodiscard]] InFlight& in_flight() { return in_flight_; }

private:
    InFlight in_flight_;
};

// Runs every request of the batch, concurrently where the devices allow it, and returns when all have a
// result. Requests of one batch are not ordered against each other; batches of one thread are. Uses one
// io_uring per calling thread (created at first use), then start(), and falls back to perform() where neither
// is to be had.
// Thread-safe.
void run_io(std::span<IoRequest> batch);

// While it lives, at most so many requests of its thread are under way through a ring at a time: who else
// uses the members, and the processors that serve them, waits for a few requests of a batch, not for all.
// 1 <= depth. Not nested.
class IoDepthScope {
public:
    explicit IoDepthScope(uint32_t depth);
    ~IoDepthScope();
    IoDepthScope(const IoDepthScope&) = delete;
    IoDepthScope& operator=(const IoDepthScope&) = delete;
};

// Reads as a batch of one.
Status read_device(BlockDevice& device, DeviceOffset offset, std::span<std::byte> out);

// Writes as a batch of one, without flushing.
Status write_device(BlockDevice& device, DeviceOffset offset, std::span<std::byte> bytes);

// What run_io() did since the program started; for `cowraid status`, tests and benchmarks.
struct IoStatistics {
    uint64_t reads, read_bytes, writes, write_bytes, flushes, discards, batches, ring_enters;
};
IoStatistics io_statistics();

}  // namespace cowraid
