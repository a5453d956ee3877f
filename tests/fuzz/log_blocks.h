// SPDX-License-Identifier: MIT
// Live entries of both logs as they lie on the members, for the fuzzer that changes them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "format/superblock_codec.h"
#include "sim/sim_device.h"

namespace cowraid::test {

using Bytes = std::vector<std::byte>;
using Members = std::vector<std::unique_ptr<SimDevice>>;

// A descriptor block of the write-intent log, or a batch of the fsync log: its header, then the content of
// all its blocks.
struct RawLog {
    struct Place {
        size_t member = 0;  // index
        uint64_t offset = 0;
    };
    enum class Kind : uint8_t { kIntent, kFsync };
    Kind kind = Kind::kIntent;
    std::vector<Place> copies;
    Bytes image;
};

// A structure inside the image.
struct LogPart {
    const char* structure;
    size_t offset;
    size_t tail_bytes;  // that belong to the structure and follow it
};

// What is live under the superblock: of its log epoch, and of no commit that is durable.
std::vector<RawLog> read_logs(const Members& members, const Superblock& superblock);
// As far as the image says so itself.
std::vector<LogPart> parts_of(const RawLog& log);
// Writes all copies with checksums that fit. A checksum named by `kept` stays as it is in the image.
void store_log(const Members& members, const RawLog& log, std::string_view kept);

}  // namespace cowraid::test
