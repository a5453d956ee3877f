// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>

#include "base/checksum.h"
#include "format/node.h"
#include "raid56/array.h"

namespace cowraid {

// A node is what its pointer's checksum says. Its own copy of that is not part of the sum, and must be right,
// too: else a copy of the node that rotted just there would be taken, and then be no node.
class NodeContent final : public ContentCheck {
public:
    explicit NodeContent(Checksum checksum) : checksum_(checksum) { }
    [[nodiscard]] bool matches(std::span<const std::byte> content) const override
    {
        le64 own;
        std::memcpy(&own, content.data() + offsetof(DiskNodeHeader, checksum), sizeof own);
        return own == checksum_ &&
               checksum_of(content.subspan(sizeof(DiskNodeHeader::checksum))) == checksum_;
    }

private:
    Checksum checksum_;
};

}  // namespace cowraid
