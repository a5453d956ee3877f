// SPDX-License-Identifier: MIT
// Wrong protocols, each with one rule of partial rows broken. The enumerators of this folder must lose
// something to every one of them: one that cannot tell them from the right protocol proves nothing.
#pragma once

#include <cstdint>

namespace cowraid::test {

enum class RowMutant : uint8_t {
    kNone,
    // What is written, and when (row_world.cc).
    kNoLog,
    kLogOnP,  // RAID6 keeps no entry on Q's member
    kLogNotFlushed,  // in-place writes do not wait for the entry
    kNotCumulative,  // an entry marks only the blocks of its own write
    kPartialOfAll,  // the logged parity is that of the whole row
    kOldParity,  // in-place writes leave parity as it was
    kAckUnflushed,  // acknowledged before all members were flushed
    kRetireUnflushed,  // the floor rises and marks begin anew without a flush of all members
    kFloorBeforeCommit,  // a full log makes room with a flush alone, before the rows' checksums are recorded
    kFlushStraddles,  // a flush that acknowledges runs between an append and its in-place writes
    // What recovery makes of it (row_recover.cc).
    kBitmapOnly,  // entries only tell which rows to make parity for
    kMdSkip,  // a row with a modified block on a missing member is left alone
    kOldestFirst,  // of several entries of a row the oldest counts
    kUnmodifiedUnchecked,  // unmodified blocks are taken from the members as they are
    kSumsOfModifiedOnly,  // ... and their solutions are not verified
    kModifiedFromDisk,  // modified blocks are taken from the members as they are
    kModifiedUnchecked,  // modified blocks of missing members are taken as parity has them
    kErasureWithoutParity,  // the erasure list leaves out a partial parity that is not there
    kUncoveredSequence,  // a log block's checksum does not cover the sequences
    kParityNotRebuilt,
    kWrongMember,  // what recovery rewrites goes to the neighbour
    kStaleMember,  // a member that missed the writes is believed
    kOldEntriesToo,  // a whole row is not left alone when its newest entry has rotted
    kWholeUnchecked,  // a row that is a code word is left alone, whatever its promised blocks hold
    kClearUnordered,  // the log is cleared while what recovery wrote is still in caches
    kEraseByZeros,  // cleared descriptors do not say that the others are dead, too
    // What the log does with its space and what its scan believes (log_world.cc).
    kReusedEarly,  // retired entries are overwritten before the floor is durable
    kFloorIgnored,
    kGenerationIgnored,
    kFullRowUnlogged,  // a row that has an entry of this generation is written whole without one
    kCount,
};

const char* mutant_name(RowMutant mutant);

}  // namespace cowraid::test
