// SPDX-License-Identifier: MIT
#include "fuse/translate_request.h"

#include <linux/fuse.h>

#include <cstring>

namespace cowraid {

namespace {

// Older <linux/fuse.h> have no names for them.
constexpr uint32_t kSyncfs = 50;
constexpr uint32_t kTmpfile = 51;
constexpr uint32_t kStatx = 52;

thread_local bool is_statx = false;

// What begins with `header` becomes a request of another kind, of `body_bytes` bytes behind the header.
size_t become(std::span<std::byte> buffer, fuse_in_header header, uint32_t opcode, size_t body_bytes)
{
    header.opcode = opcode;
    header.len = static_cast<uint32_t>(sizeof header + body_bytes);
    memcpy(buffer.data(), &header, sizeof header);
    return header.len;
}

}  // namespace

TranslatedRequest translate_request(std::span<std::byte> buffer, size_t bytes)
{
    fuse_in_header header;
    is_statx = false;
    if (bytes < sizeof header)
        return {.bytes = bytes};
    memcpy(&header, buffer.data(), sizeof header);
    if (header.opcode == FUSE_DESTROY)
        return {.fate = RequestFate::kEnd, .bytes = bytes};
    const fuse_fsync_in everything{};
    if (header.opcode == kSyncfs && buffer.size() >= sizeof header + sizeof everything) {
        header.nodeid = FUSE_ROOT_ID;
        memcpy(buffer.data() + sizeof header, &everything, sizeof everything);
        return {.bytes = become(buffer, header, FUSE_FSYNCDIR, sizeof everything)};
    }
    if (header.opcode == kTmpfile)
        return {.bytes = become(buffer, header, FUSE_CREATE, bytes - sizeof header)};
    is_statx = header.opcode == kStatx && bytes >= sizeof header + sizeof(fuse_getattr_in);
    if (is_statx)
        return {.bytes = become(buffer, header, FUSE_GETATTR, sizeof(fuse_getattr_in))};
    return {.bytes = bytes};
}

bool request_is_statx()
{
    return is_statx;
}

bool wants_answer(uint32_t opcode)
{
    return opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET && opcode != FUSE_INTERRUPT;
}

}  // namespace cowraid
