// SPDX-License-Identifier: MIT
// Valid structures of random content, for tests of this folder and those above.
#pragma once

#include "base/random.h"
#include "format/group_map_codec.h"
#include "format/superblock_codec.h"

namespace cowraid {

// A superblock that decode_superblock() accepts, with `member_count` members (0: a random number).
Superblock sample_superblock(Prng& prng, size_t member_count = 0);

// Up to `group_limit` groups that decode_group_map() accepts together with `superblock`, whose
// next_group_address is raised to their end.
GroupMap sample_group_map(Prng& prng, Superblock& superblock, size_t group_limit);

}  // namespace cowraid
