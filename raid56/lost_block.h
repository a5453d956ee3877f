// SPDX-License-Identifier: MIT
// What the stages of healing pass on to each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "raid56/array_state.h"

namespace cowraid {

enum class FaultCause : uint8_t {
    kMissing,  // the member is not in service, or went away
    kLate,  // the member is slow
    kReadError,  // the device said so
    kWrong,  // read, but not what it must be
};

// Whether the member has something else than it must have, so that it is charged and the block rewritten.
inline bool is_bad(FaultCause cause)
{
    return cause == FaultCause::kReadError || cause == FaultCause::kWrong;
}

// How long a read waits. Of the columns that a block can be had from it does without those on members that
// are silent for longest, as many as it can miss.
enum class Patience : uint8_t {
    kDeadline,  // for the others until the deadline, if its memory can be given away
    kForTheRest,  // for the others as long as it takes
    kForAll,
};
// Whether it does without that copy of the block.
bool does_without(const ArrayState& state, Patience patience, const ArrayGroup& group,
                  const BlockPlace& place, uint32_t copy);

// A block a reader wants that its member did not deliver.
struct LostBlock {
    const ArrayGroup* group = nullptr;
    BlockPlace place;
    uint32_t copy = 0;  // the one that was read
    uint32_t piece = 0;  // index into the call's pieces
    std::byte* memory = nullptr;  // where the content goes
    Checksum wanted = 0;
    ChecksumSource source = ChecksumSource::kVerifier;
    FaultCause cause = FaultCause::kMissing;
    Checksum seen = 0;  // of the wrong content
    bool recovered = false;
    bool untried = false;  // something that may serve to recover it is on a member that is slow
};

// Counts a fault of the block on its member, by kind. False, and nothing is counted: the member is missing or
// slow, or wrong content is not its fault, because the map or the list of lost blocks knows of it.
bool count_fault(ArrayState& state, const ArrayGroup& group, const BlockPlace& place, uint32_t copy,
                 FaultCause cause);

// Blocks that this call already read and verified, by address, so that a sibling is not read twice.
class KnownBlocks {
public:
    void add(VolumeAddress address, uint64_t block_count, std::byte* memory);
    // After the last add(), before the first find().
    void sort();
    // Content of the block at `address`, or null.
    [[nodiscard]] std::byte* find(VolumeAddress address) const;

private:
    struct Run {
        VolumeAddress address;
        uint64_t bytes;
        std::byte* memory;
    };
    std::vector<Run> runs_;
};

// `times`: as for IoPlan::may_leave(). Mirrored groups: tries the other copies of every lost block until one
// matches, and repairs the bad ones.
void recover_from_copies(ArrayState& state, std::span<LostBlock> lost, Patience patience, uint32_t times = 1);

// Parity groups: solves every lost block from its row, verifies it, and repairs what was found bad in the
// rows. Reorders `lost`.
void recover_from_parity(ArrayState& state, const KnownBlocks& known, std::span<LostBlock> lost,
                         Patience patience, uint32_t times = 1);

}  // namespace cowraid
