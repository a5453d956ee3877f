// SPDX-License-Identifier: MIT
// Whole zstd frames. A context belongs to one thread at a time and keeps its memory between calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace cowraid {

inline constexpr int kZstdLevelMin = -15;
inline constexpr int kZstdLevelMax = 15;

class ZstdCompressor {
public:
    ZstdCompressor();
    // Bytes of the frame in `out`, or 0 when it does not fit there. `level`: kZstdLevelMin..kZstdLevelMax;
    // 0 is zstd's own choice.
    size_t compress(std::span<const std::byte> content, int level, std::span<std::byte> out);

private:
    struct Free {
        void operator()(ZSTD_CCtx_s* context) const;
    };
    std::unique_ptr<ZSTD_CCtx_s, Free> context_;
};

// Bytes that the frame at the beginning of `stored` says it holds. kCorrupt: it is none, or does not say.
Result<uint64_t> zstd_content_bytes(std::span<const std::byte> stored);

// Decompresses the frame at the beginning of `stored`; what is behind it is left alone. Returns how many
// bytes it gave, at most out.size(). kCorrupt: it is no whole frame, or holds more than that. Thread-safe.
Result<size_t> decompress_zstd(std::span<const std::byte> stored, std::span<std::byte> out);

}  // namespace cowraid
