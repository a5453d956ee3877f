// SPDX-License-Identifier: MIT
#include "base/buffer.h"

#include <cstdlib>
#include <cstring>

#include "base/assert.h"
#include "base/units.h"

namespace cowraid {

AlignedBuffer::AlignedBuffer(size_t bytes) : size_(bytes)
{
    if (bytes == 0)
        return;
    data_ = static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, round_up(bytes, kBlockBytes)));
    CW_ASSERT(data_ != nullptr);
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
    std::free(data_);
}

}  // namespace cowraid
