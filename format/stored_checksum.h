// SPDX-License-Identifier: MIT
// Checksums of structures on disk that begin with their checksum.
#pragma once

#include <cstddef>
#include <span>

#include "base/checksum.h"

namespace cowraid {

// Of everything after the checksum.
inline Checksum checksum_of_rest(std::span<const std::byte> structure)
{
    return checksum_of(structure.subspan(sizeof(Checksum)));
}

}  // namespace cowraid
