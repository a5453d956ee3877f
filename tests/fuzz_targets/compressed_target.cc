// SPDX-License-Identifier: MIT
// Input: which part of what a frame holds, and whether the frame is in blocks or in an item; then the frame.
#include <algorithm>
#include <cstring>

#include "base/zstd_frame.h"
#include "fs/files/frame_read.h"
#include "tests/fuzz_targets/fuzz_input.h"
#include "tests/fuzz_targets/targets.h"

using namespace cowraid;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    FuzzInput input(data, size);
    FileExtent part{.file_block = 64, .compression = Compression::kZstd};
    const uint8_t first = input.take_u8();
    const bool in_item = (first & 0x80) != 0;
    part.offset_blocks = first % kFrameBlocksMax;
    part.block_count = 1 + input.take_u8() % (kFrameBlocksMax - part.offset_blocks);
    part.file_block += part.offset_blocks;
    const auto given = input.rest();
    std::vector<std::byte> stored(in_item ? given.size() : round_up(given.size() + 1, kBlockBytes));
    std::copy(given.begin(), given.end(), stored.begin());
    std::vector<std::byte> memory(size_t{part.block_count} * kBlockBytes);
    if (!decompress_part(part, stored, memory.data()).ok())
        return 0;
    // The same blocks come out when all that the frame holds is wanted.
    const Result<uint64_t> content_bytes = zstd_content_bytes(stored);
    CW_ASSERT(content_bytes.ok() && *content_bytes <= uint64_t{kFrameBlocksMax} * kBlockBytes);
    std::vector<std::byte> whole(*content_bytes);
    const Result<size_t> bytes = decompress_zstd(stored, whole);
    CW_ASSERT(bytes.ok() && *bytes == whole.size());
    CW_ASSERT(std::memcmp(memory.data(), whole.data() + size_t{part.offset_blocks} * kBlockBytes,
                          memory.size()) == 0);
    return 0;
}
