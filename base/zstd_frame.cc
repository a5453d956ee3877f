// SPDX-License-Identifier: MIT
#include "base/zstd_frame.h"

#include <zstd.h>

#include "base/out_of_memory.h"

namespace cowraid {

namespace {

struct FreeDecompression {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

void ZstdCompressor::Free::operator()(ZSTD_CCtx_s* context) const
{
    ZSTD_freeCCtx(context);
}

ZstdCompressor::ZstdCompressor() : context_(ZSTD_createCCtx())
{
    if (context_ == nullptr)
        out_of_memory();
}

size_t ZstdCompressor::compress(std::span<const std::byte> content, int level, std::span<std::byte> out)
{
    const size_t bytes = ZSTD_compressCCtx(context_.get(), out.data(), out.size(), content.data(),
                                           content.size(), level == 0 ? ZSTD_CLEVEL_DEFAULT : level);
    return ZSTD_isError(bytes) ? 0 : bytes;
}

Result<uint64_t> zstd_content_bytes(std::span<const std::byte> stored)
{
    const unsigned long long bytes = ZSTD_getFrameContentSize(stored.data(), stored.size());
    const bool known = bytes != ZSTD_CONTENTSIZE_ERROR && bytes != ZSTD_CONTENTSIZE_UNKNOWN;
    return known ? Result<uint64_t>(bytes) : Result<uint64_t>(Err::kCorrupt);
}

Result<size_t> decompress_zstd(std::span<const std::byte> stored, std::span<std::byte> out)
{
    thread_local const std::unique_ptr<ZSTD_DCtx, FreeDecompression> context(ZSTD_createDCtx());
    if (context == nullptr)
        out_of_memory();
    const size_t frame = ZSTD_findFrameCompressedSize(stored.data(), stored.size());
    if (ZSTD_isError(frame))
        return Err::kCorrupt;
    const size_t bytes = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), stored.data(), frame);
    return ZSTD_isError(bytes) ? Result<size_t>(Err::kCorrupt) : Result<size_t>(bytes);
}

}  // namespace cowraid
