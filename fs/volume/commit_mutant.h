// SPDX-License-Identifier: MIT
// Deliberately wrong commit protocols, for the crash tests only. Crash replay must catch every one of them:
// a harness that cannot tell them from the right one proves nothing. Those that can be had by tampering with
// the requests of one device live in tests/crash/mutant_device.h; the others need a hook in the code. Only
// builds with -Dmutants=true have any; elsewhere every hook is a constant, and the compiler leaves it out.
#pragma once

#include <atomic>
#include <cstdint>

namespace cowraid {

enum class CommitMutant : uint32_t {
    kNone = 0,
    // Hooks in fs/.
    kMapAfterSuperblock,  // a changed block-group map is written behind the superblock that names it
    kMapInPlace,  // a changed map overwrites the one that the last superblock names
    kReuseBeforeDurable,  // space freed by a commit is handed out before the commit is durable
    kStaleFreeSpace,  // allocation state is not recorded
    kStaleChecksums,  // checksums of new blocks are not recorded
    kFsyncUnlogged,  // fsync is acknowledged before its record is written
    kRecordWithoutData,  // a record has items but no file data
    kTreeCommitsStand,  // commits do not count, so that their records stay live
    kLogNotLive,  // nothing says that the fsync log is in use
    kReplaySkipped,  // a mount ignores the fsync log
    kEmptyingUnmarked,  // blocks move out of a group of which the map does not say so
    kMovedFromMissing,  // nothing says what files call a moved block
    kMovedChain,  // a block that moves again gets an entry of its own
    kFreeUnresolved,  // frees go by name, wherever the block is
    kLeftoversStay,  // a group leaves the map while trees still speak of it
    kFloorBeforeCommit,  // a full write-intent log forgets rows whose checksums no commit has
    kDroppedPinned,  // a group leaves the map although readers of older commits may look into it
    kStaleUnrecorded,  // the map does not say what members miss
    kCaughtUpUnread,  // members are called current although nothing was written to them
    kCaughtUpNoNodes,  // of what they missed nodes are left out
    kFirstMissedLeftOut,  // of what they missed windows last written by the first of those commits are left
                          // out
    kBetweenUnnoted,  // commits on the way of a flush do not say which windows they wrote
    kRecoveryUnnoted,  // recovery does not say which windows it wrote
    kStaleNotWhole,  // after a crash a stale column is not stale as a whole where log entries may be lacking
    kOlderCopyTrusted,  // a member that comes back has all from before it went, whatever its superblocks say
    kSpareLast,  // a spare gets its first superblock as a member with the others
    kSpareTorn,  // the first superblock of a spare as a member may lie over that as a spare
    kNewMemberLast,  // a new member gets its first superblock after the others
    kWrittenToOneOnly,  // what is written to a member that is being replaced is not written to its successor
    kAbsentTargetTrusted,  // what was copied to the successor counts although it was away
    kTakenOverEarly,  // the successor takes over before all is copied
    kShrunkPartUsed,  // new groups take slots that a member is about to lose
    kSuccessorLast,  // the successor gets its first superblock as the member after the others
    kCopiedNoNodes,  // of what is copied nodes are left out
    kRecoveredCopyTrusted,  // what was copied counts although recovery wrote to the source alone
    kShrunkFirst,  // superblocks say that a member has fewer slots before what lies beyond has moved
    kShrunkSlotsStay,  // new groups take slots that a member has lost
    kScrubAhead,  // the position of a scrub says that all rows were looked at
    // Tampering with requests.
    kSuperblockBeforeFlush,  // superblocks are issued while nodes and data are still in caches
    kNoFinalFlush,  // acknowledges while superblocks are still in caches
    kSkipMemberFlush,  // the first member is never flushed
    kSkipMemberData,  // the first member gets no data, and nothing records that
    kOneSuperblock,  // only the first member gets superblocks
    kFixedRingSlot,  // every superblock overwrites the one before it
    // A fault, which harms nothing: commits find no room for their trees.
    kNoRoom,
    kCount,
};

#ifdef COWRAID_MUTANTS
// Of this process: tests/support/mutant_scope.h sets it.
inline std::atomic<CommitMutant> chosen_mutant{CommitMutant::kNone};

inline bool is_mutant(CommitMutant mutant)
{
    return chosen_mutant.load(std::memory_order_relaxed) == mutant;
}
#else
constexpr bool is_mutant(CommitMutant)
{
    return false;
}
#endif

}  // namespace cowraid
