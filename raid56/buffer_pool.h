// SPDX-License-Identifier: MIT
// Large buffers kept between calls: fresh ones cost a page fault per 4 KiB, which weighs as much as parity.
#pragma once

#include <cstddef>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"

namespace cowraid {

// Thread-safe. Must outlive the buffers it lends.
class BufferPool {
public:
    // Returns its buffer to the pool at the end of the scope.
    class Loan {
    public:
        Loan(BufferPool& pool, size_t bytes) : pool_(pool), buffer_(pool.take(bytes)) { }
        ~Loan() { pool_.give_back(std::move(buffer_)); }
        Loan(const Loan&) = delete;
        Loan& operator=(const Loan&) = delete;

        // At least as many bytes as asked for; content undefined.
        [[nodiscard]] std::byte* data() { return buffer_.data(); }
        // May be exchanged for another of the same size.
        [[nodiscard]] AlignedBuffer& buffer() { return buffer_; }

    private:
        BufferPool& pool_;
        AlignedBuffer buffer_;
    };

    // What the pool keeps when nothing runs; more is freed at once.
    void keep_at_most(size_t bytes);

private:
    AlignedBuffer take(size_t bytes);
    void give_back(AlignedBuffer buffer);

    Mutex mutex_{LockRank::kLeaf};
    size_t kept_max_ CW_GUARDED_BY(mutex_) = 32 * 1024 * 1024;
    std::vector<AlignedBuffer> free_ CW_GUARDED_BY(mutex_);
    size_t free_bytes_ CW_GUARDED_BY(mutex_) = 0;
};

}  // namespace cowraid
