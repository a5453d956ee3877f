// SPDX-License-Identifier: MIT
// What happened in simulated runs, by kind, and how often each kind must at least happen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cowraid::test {

// Event, text, the least number per thousand seeds (0: may stay away). Far below what is usual, so that only
// a kind that stopped happening falls short.
#define COWRAID_SIM_EVENTS(X)                                                                                \
    X(kCreate, "create", 20000)                                                                              \
    X(kMakeDirectory, "mkdir", 8000)                                                                         \
    X(kMakeSpecial, "mknod", 3000)                                                                           \
    X(kSymlink, "symlink", 5000)                                                                             \
    X(kLink, "link", 4000)                                                                                   \
    X(kUnlink, "unlink", 10000)                                                                              \
    X(kRmdir, "rmdir", 1000)                                                                                 \
    X(kRename, "rename", 8000)                                                                               \
    X(kReplace, "rename over another", 1000)                                                                 \
    X(kWhiteout, "rename that leaves a whiteout", 1000)                                                      \
    X(kExchange, "rename exchange", 1000)                                                                    \
    X(kWrite, "write", 100000)                                                                               \
    X(kAppend, "append", 10000)                                                                              \
    X(kTruncate, "truncate", 20000)                                                                          \
    X(kAllocate, "fallocate", 5000)                                                                          \
    X(kPunch, "punch hole", 3000)                                                                            \
    X(kZeroRange, "zero range", 2000)                                                                        \
    X(kRead, "read", 50000)                                                                                  \
    X(kReadDirectory, "readdir", 5000)                                                                       \
    X(kLookup, "lookup", 10000)                                                                              \
    X(kSetAttributes, "setattr", 10000)                                                                      \
    X(kSetXattr, "setxattr", 10000)                                                                          \
    X(kRemoveXattr, "removexattr", 1000)                                                                     \
    X(kForget, "forget", 5000)                                                                               \
    X(kUseUnlinked, "use of an unlinked file", 500)                                                          \
    X(kRefused, "refused as expected", 10000)                                                                \
    X(kFlush, "flush", 10000)                                                                                \
    X(kCommit, "commit asked for", 20000)                                                                    \
    X(kFsyncRecord, "fsync by a record of the log", 10000)                                                   \
    X(kFsyncCommit, "fsync by a commit", 3000)                                                               \
    X(kReplayed, "records replayed after a crash", 1000)                                                     \
    X(kWouldWait, "operation that may not wait: nothing done, then done again", 20)                          \
    X(kImplicitCommit, "commit inside an operation", 20)                                                     \
    X(kNoSpace, "ENOSPC", 500)                                                                               \
    X(kFullDelete, "deletion on a full volume", 200)                                                         \
    X(kReservedWrite, "write into reserved space on a full volume", 50)                                      \
    X(kMount, "mount", 4000)                                                                                 \
    X(kDegradedMount, "degraded mount, writable", 100)                                                       \
    X(kReadOnlyDegradedMount, "degraded mount, read-only", 100)                                              \
    X(kUnmount, "unmount", 1000)                                                                             \
    X(kKill, "kill", 300)                                                                                    \
    X(kPowerCut, "power cut", 3000)                                                                          \
    X(kCutInCommit, "power cut inside a commit", 500)                                                        \
    X(kCutInOperation, "power cut inside another call", 20)                                                  \
    X(kCutInMount, "power cut inside a mount", 20)                                                           \
    X(kNewerState, "cut commit turned out durable", 20)                                                      \
    X(kRotBits, "fault: flipped bits", 50)                                                                   \
    X(kRotBlocks, "fault: noise over blocks", 50)                                                            \
    X(kRotWide, "fault: noise over a tenth", 50)                                                             \
    X(kRotRing, "fault: a superblock ring", 50)                                                              \
    X(kRotBothRings, "fault: both superblock rings", 5)                                                      \
    X(kRotMap, "fault: block-group maps", 50)                                                                \
    X(kLatent, "fault: latent read errors", 50)                                                              \
    X(kReadError, "fault: transient read errors", 50)                                                        \
    X(kLostWrite, "fault: lost writes", 50)                                                                  \
    X(kLostFlush, "fault: lost flushes", 50)                                                                 \
    X(kMisdirected, "fault: misdirected writes", 50)                                                         \
    X(kFlippedRead, "fault: bits flipped by reads", 50)                                                      \
    X(kFlippedWrite, "fault: bits flipped by writes", 50)                                                    \
    X(kStaleRead, "fault: stale reads", 50)                                                                  \
    X(kTornWrite, "fault: torn writes, acknowledged", 50)                                                    \
    X(kGoneLive, "fault: member gone while mounted", 20)                                                     \
    X(kWriteError, "fault: write error", 20)                                                                 \
    X(kFlushError, "fault: flush error", 20)                                                                 \
    X(kTooManyFlushErrors, "fault: flush error, too many members", 20)                                       \
    X(kTooManySuperblockErrors, "fault: superblock write error, too many members", 20)                       \
    X(kTooManyLogErrors, "fault: log write error, too many members", 20)                                     \
    X(kTooManyWriteErrors, "fault: write error, too many members", 20)                                       \
    X(kStopped, "stopped by too many failures, then mounted as ever", 100)                                   \
    X(kSpared, "more failures than tolerated, in different groups", 10)                                      \
    X(kAbsent, "fault: member absent at mount", 100)                                                         \
    X(kRotBesideScrub, "fault: rot beside a scrub", 500)                                                     \
    X(kFaultHit, "requests hit by a fault", 5000)                                                            \
    X(kCompressed, "blocks of files compressed", 5000)                                                       \
    X(kCleanStep, "step of the cleaner", 10000)                                                              \
    X(kBalanceStep, "steps of a balance", 5000)                                                              \
    X(kBalanceBegun, "balance begun", 500)                                                                   \
    X(kBalanceRaises, "balance into what tolerates more", 50)                                                \
    X(kBalanceLowers, "balance into what tolerates less", 30)                                                \
    X(kBalanced, "balance ended", 100)                                                                       \
    X(kBalancePaused, "balance paused", 50)                                                                  \
    X(kBalanceCancelled, "balance cancelled", 20)                                                            \
    X(kScrubPaused, "scrub paused", 50)                                                                      \
    X(kScrubCancelled, "scrub cancelled", 50)                                                                \
    X(kScrubTrial, "scrub beside rot; the last pass found nothing", 100)                                     \
    X(kScrubStep, "piece of a scrub", 10000)                                                                 \
    X(kCatchUpStep, "piece of what a member missed", 1000)                                                   \
    X(kCaughtUp, "all that members missed", 100)                                                             \
    X(kScrubbed, "scrub of the whole volume", 500)                                                           \
    X(kMemberAdded, "member added", 200)                                                                     \
    X(kRemovalBegun, "removal of a member begun", 100)                                                       \
    X(kMemberRemoved, "member removed", 20)                                                                  \
    X(kMemberReplaced, "member replaced", 50)                                                                \
    X(kCopyBegun, "copying of a member begun", 50)                                                           \
    X(kCopyStep, "step of copying a member", 500)                                                            \
    X(kCopied, "member copied, and replaced", 20)                                                            \
    X(kCopyCancelled, "copying of a member cancelled", 5)                                                    \
    X(kCopyFailed, "copying of a member failed", 0)                                                          \
    X(kSpareAdded, "spare added", 50)                                                                        \
    X(kSpareUsed, "spare took a place", 5)                                                                   \
    X(kGrown, "member made larger", 20)                                                                      \
    X(kShrinkBegun, "shrinking of a member begun", 50)                                                       \
    X(kShrunk, "member made smaller, or given up", 20)                                                       \
    X(kMemberOffline, "member taken offline", 50)                                                            \
    X(kMemberOnline, "member brought online", 50)                                                            \
    X(kOrderCut, "power cut inside an order about members", 5)                                               \
    X(kMovedBlocks, "blocks moved", 10000)                                                                   \
    X(kEmptiedGroups, "block groups emptied", 200)                                                           \
    X(kJoinedBlocks, "blocks written into rows that hold others", 5000)                                      \
    X(kRecoveredRows, "rows recovered after a crash", 100)                                                   \
    X(kReconstructed, "blocks reconstructed", 5000)                                                          \
    X(kRepaired, "blocks repaired", 1000)                                                                    \
    X(kCompare, "whole tree compared", 6000)                                                                 \
    X(kCheck, "offline check", 1000)                                                                         \
    X(kCleanCheck, "offline check, clean", 500)                                                              \
    X(kHealed, "all faults healed, checked", 20)

enum class Event : size_t {
#define COWRAID_SIM_EVENT_NAME(name, text, minimum) name,
    COWRAID_SIM_EVENTS(COWRAID_SIM_EVENT_NAME)
#undef COWRAID_SIM_EVENT_NAME
        kCount,
};

class EventCounts {
public:
    void add(Event event, uint64_t amount = 1) { counts_[static_cast<size_t>(event)] += amount; }
    [[nodiscard]] uint64_t of(Event event) const { return counts_[static_cast<size_t>(event)]; }
    void add_all(const EventCounts& other);
    // One line per kind. Returns the number of kinds below their minimum for `seed_count` seeds, each marked
    // in its line; kinds with a minimum below one for so few seeds may stay away.
    [[nodiscard]] size_t print(uint64_t seed_count) const;

private:
    std::array<uint64_t, static_cast<size_t>(Event::kCount)> counts_{};
};

}  // namespace cowraid::test
