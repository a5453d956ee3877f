// SPDX-License-Identifier: MIT
#include "base/buffer.h"

#include <cstdlib>
#include <cstring>

#include "base/large_memory.h"
#include "base/out_of_memory.h"
#include "base/poisoned_memory.h"
#include "base/sanitizer.h"
#include "base/units.h"

namespace cowraid {

namespace {

// The address sanitizer sees who uses freed memory only where that is poisoned.
bool is_poisoned(size_t bytes)
{
    return kAddressSanitizer && bytes >= kPoisonedBytesMin && bytes <= kPoisonedBytesMax;
}

bool is_large(size_t bytes)
{
    return !kAddressSanitizer && bytes >= kLargeBytesMin && bytes <= kLargeBytesMax;
}

// The largest come from the kernel and go back to it: in malloc smaller ones take pieces of what is free, and
// it grows by the whole size for the next. From huge pages, too: a device takes a mebibyte of them as one
// request, and of small pages only half of it. The sanitizer sees what malloc gives.
bool is_huge(size_t bytes)
{
    return !kAddressSanitizer && bytes >= kHugeBytesMin;
}

std::byte* allocate(size_t bytes)
{
    if (is_huge(bytes))
        return map_huge(bytes);
    return static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, round_up(bytes, kBlockBytes)));
}

}  // namespace

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(bytes)
{
    if (bytes == 0)
        return;
    if (is_large(bytes))
        data_ = large_allocate(bytes);
    else if (is_poisoned(bytes))
        data_ = poisoned_allocate(bytes);
    else
        data_ = allocate(bytes);
    if (data_ == nullptr)
        out_of_memory();
}

AlignedBuffer AlignedBuffer::zeroed(size_t bytes)
{
    AlignedBuffer buffer(bytes);
    if (bytes != 0)
        std::memset(buffer.data(), 0, bytes);
    return buffer;
}

AlignedBuffer::~AlignedBuffer()
{
    if (data_ != nullptr && is_large(size_))
        large_free(data_, size_);
    else if (data_ != nullptr && is_poisoned(size_))
        poisoned_free(data_, size_);
    else if (data_ != nullptr && is_huge(size_))
        unmap_huge(data_, size_);
    else
        std::free(data_);
}

}  // namespace cowraid
