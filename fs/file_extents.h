// SPDX-License-Identifier: MIT
// Where the data of a file lies: extents, volume addresses, places on members.
#pragma once

#include <vector>

#include "fs/filesystem.h"

namespace cowraid {

// A piece of a file whose blocks have neighbouring addresses.
struct ListedExtent {
    uint64_t offset = 0, bytes = 0;  // in the file
    uint64_t stored_bytes = 0;  // of a compressed one those of its frame, which others may be parts of, too
    bool reserved = false;  // by fallocate: no addresses
    bool compressed = false;
    bool inline_frame = false;  // kept in a node: no addresses
    VolumeAddress logical;  // of its first block, as the extent has it; of a compressed one of its frame's
    VolumeAddress physical;  // where that is; another one once it was moved
    std::vector<MemberPart> places;  // of the first block, each copy
};

struct FileExtents {
    uint64_t size_bytes = 0;
    std::vector<ListedExtent> extents;  // by rising offset
    uint64_t next_block = 0;  // where the next answer begins; 0: there is no more
};

// From a block of the file on, at most `most` of them. Where blocks were moved one extent of the file may
// make many. Data in memory is not among them. kStale, kIsDirectory, kInvalid: it is no regular file; kIo:
// trees cannot be read. Thread-safe.
Result<FileExtents> list_file_extents(Filesystem& filesystem, InodeNumber inode, uint64_t from_block,
                                      size_t most);

}  // namespace cowraid
