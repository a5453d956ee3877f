// SPDX-License-Identifier: MIT
#include "bench/bench_memory.h"

#include <sys/mman.h>

#include <cstring>

namespace cowraid {

MemoryDevice::MemoryDevice(std::string name, uint64_t size_bytes, std::byte* memory)
    : name_(std::move(name)), size_bytes_(size_bytes), memory_(memory)
{
}

std::unique_ptr<MemoryDevice> MemoryDevice::make(std::string name, uint64_t size_bytes)
{
    void* const memory =
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    // Fewer faults; without huge pages it works as well.
    madvise(memory, size_bytes, MADV_HUGEPAGE);
    return std::unique_ptr<MemoryDevice>(
        new MemoryDevice(std::move(name), size_bytes, static_cast<std::byte*>(memory)));
}

MemoryDevice::~MemoryDevice()
{
    munmap(memory_, size_bytes_);
}

void MemoryDevice::perform(IoRequest& request)
{
    request.result = Err::kOk;
    const uint64_t bytes = request.kind == IoKind::kDiscard ? request.discard_bytes : request.bytes();
    if (request.kind != IoKind::kFlush &&
        (bytes > size_bytes_ || request.offset.value > size_bytes_ - bytes)) {
        request.result = Err::kIo;
        return;
    }
    std::byte* at = memory_ + request.offset.value;
    for (const iovec& vector : request.vectors) {
        if (request.kind == IoKind::kWrite)
            std::memcpy(at, vector.iov_base, vector.iov_len);
        else if (request.kind == IoKind::kRead)
            std::memcpy(vector.iov_base, at, vector.iov_len);
        at += vector.iov_len;
    }
}

}  // namespace cowraid
