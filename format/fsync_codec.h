// SPDX-License-Identifier: MIT
// Batches of the fsync log between disk and memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/uuid.h"
#include "format/fsync_log.h"

namespace cowraid {

// Content of one block, and of the longest batch: one record of any length fits.
inline constexpr uint32_t kFsyncRoomBytes = kBlockBytes - sizeof(DiskFsyncBlock);
inline constexpr uint32_t kMaxFsyncContentBytes = kMaxFsyncRecordBytes + sizeof(DiskFsyncRecord);

// What every block says of its batch. docs/FORMAT.md explains the fields.
struct FsyncHeader {
    Uuid volume_uuid;
    uint64_t epoch = 0;
    Generation generation;
    uint64_t generation_first = 0;
    Generation generation_before;
    uint64_t sequence = 0;
    uint32_t record_count = 0;
    uint32_t content_bytes = 0;
    Checksum content_checksum = 0;
    uint64_t acknowledged = 0;

    [[nodiscard]] uint32_t block_count() const;
    [[nodiscard]] uint64_t end_sequence() const { return sequence + record_count; }
    friend bool operator==(const FsyncHeader&, const FsyncHeader&) = default;
};

struct FsyncBlock {
    FsyncHeader header;
    uint32_t block_index = 0;
};

// A decoded batch. `records` point into `bytes`; it may be moved, not copied.
struct FsyncContent {
    std::vector<std::byte> bytes;
    std::vector<std::span<const std::byte>> records;

    FsyncContent() = default;
    FsyncContent(FsyncContent&&) = default;
    FsyncContent& operator=(FsyncContent&&) = default;
};

// Bytes of content that a record of `record_bytes` takes.
constexpr uint32_t fsync_record_room(size_t record_bytes)
{
    return static_cast<uint32_t>(sizeof(DiskFsyncRecord) + record_bytes);
}

// Fills `out`, block_count() blocks, and the header's content_checksum. The records must be what the header
// counts, in number and bytes.
void encode_fsync_batch(FsyncHeader& header, std::span<const std::span<const std::byte>> records,
                        std::span<std::byte> out);

// One block on its own. kNotFound: no block of this volume's fsync log. kCorrupt: rotten, torn or hostile.
Result<FsyncBlock> decode_fsync_block(std::span<const std::byte> bytes, const Uuid& volume_uuid);

// All blocks of the batch that `header` describes. kCorrupt: they are not that batch, or its content is not
// made of records.
Result<FsyncContent> decode_fsync_batch(std::span<const std::byte> bytes, const FsyncHeader& header);

}  // namespace cowraid
