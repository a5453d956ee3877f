// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "raid56/lost_block.h"

namespace cowraid {

// One bad block on a member in service, and what belongs there.
struct RepairItem {
    const ArrayGroup* group = nullptr;
    BlockPlace place;
    uint32_t copy = 0;
    const std::byte* content = nullptr;  // 4096 bytes, unchanged until repair_blocks() returns
    Checksum checksum = 0;  // of `content`
    FaultCause cause = FaultCause::kWrong;
    Checksum seen = 0;  // of what the block held when it was found wrong
    // Whose word it takes to write.
    enum class Authority : uint8_t {
        kVerifier,  // the verifier expects this checksum now
        kVerifierOrReader,  // it does, or has no opinion: the reader brought the checksum
        kReader,  // it is not asked: it may itself be reading these very blocks
    } authority = Authority::kVerifier;
    bool charged = true;  // false: it is not the member's fault
    // Set by repair_blocks(): the block holds the content now; a fault was counted on its member, which
    // `cause` is then.
    bool right = false, counted = false;
};

// For a block that a reader lost. Mirrored nodes are what the verifier reads to answer, so it is not asked
// about them; nodes under parity it knows, unless its own tree is damaged.
RepairItem::Authority authority_for(const LostBlock& lost);

// Whether the caller holds the locks of the stripes.
enum class Stripes : uint8_t {
    kUnlocked,
    kIfFree,  // it does not, nor may it wait: what it reads may be for an answer to who holds a stripe
    kLocked,  // under parity: nobody writes between the verifier's answer and the repair
};

// Counts each fault on its member and rewrites the block, under the stripe lock: only where the authority
// still wants this content and the block still holds what was seen, so that neither a newer write is
// overwritten nor a fault counted by two readers. Reads every block again afterwards. On a read-only array
// the faults are counted and nothing is written. Asks the verifier before it locks a stripe: nodes that lead
// to the answer may lie in mirrored stripes. Blocks of stripes that must not be waited for are left to the
// next one who meets them, and unless it waits for all those that a slow member is needed for. Returns how
// many blocks hold their content now.
size_t repair_blocks(ArrayState& state, std::vector<RepairItem>& items, Stripes stripes,
                     Patience patience = Patience::kForAll);

}  // namespace cowraid
