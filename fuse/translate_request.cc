// SPDX-License-Identifier: MIT
#include "fuse/translate_request.h"

#include <linux/fuse.h>

#include <cstring>

namespace cowraid {

namespace {

// Older <linux/fuse.h> have no name for it.
constexpr uint32_t kSyncfs = 50;

}  // namespace

TranslatedRequest translate_request(std::span<std::byte> buffer, size_t bytes)
{
    fuse_in_header header;
    if (bytes < sizeof header)
        return {.bytes = bytes};
    memcpy(&header, buffer.data(), sizeof header);
    if (header.opcode == FUSE_DESTROY)
        return {.fate = RequestFate::kEnd, .bytes = bytes};
    const fuse_fsync_in everything{};
    if (header.opcode != kSyncfs || buffer.size() < sizeof header + sizeof everything)
        return {.bytes = bytes};
    header.opcode = FUSE_FSYNCDIR;
    header.nodeid = FUSE_ROOT_ID;
    header.len = sizeof header + sizeof everything;
    memcpy(buffer.data(), &header, sizeof header);
    memcpy(buffer.data() + sizeof header, &everything, sizeof everything);
    return {.bytes = header.len};
}

bool wants_answer(uint32_t opcode)
{
    return opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET && opcode != FUSE_INTERRUPT;
}

}  // namespace cowraid
