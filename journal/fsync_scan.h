// SPDX-License-Identifier: MIT
// What the fsync logs of all members hold after a crash, and how much of it counts.
#pragma once

#include <span>
#include <vector>

#include "device/member_set.h"
#include "format/fsync_codec.h"
#include "format/superblock_codec.h"
#include "journal/member_ring.h"

namespace cowraid {

class FsyncScan {
public:
    // A live batch, and where members have it whole.
    struct Batch {
        struct Copy {
            MemberId member;
            DeviceOffset offset;
        };
        FsyncHeader header;
        std::vector<Copy> copies;
    };

    // Reads the log of every member that the superblock calls present and that is in service. What cannot be
    // read is as if it were not there; it is counted. `committed`: the newest durable commit.
    FsyncScan(MemberSet& members, const Superblock& superblock, Generation committed);

    // What is to be replayed, in order: everything that was acknowledged, then perhaps some that was not.
    [[nodiscard]] std::span<const Batch> batches() const { return {batches_.data(), prefix_}; }
    // Live batches that are not to be replayed, because something before them is lost or contradicts itself.
    [[nodiscard]] std::span<const Batch> left_out() const { return std::span(batches_).subspan(prefix_); }
    // Whether some of what is lost before them was acknowledged: more copies are away or damaged than the
    // members that the profiles can do without had.
    [[nodiscard]] bool lost_acknowledged() const;
    // The records of a batch, from the first copy that is still right. kIo: none is. Then nothing may be
    // written: a new scan tells whether it was one that counts.
    Result<FsyncContent> read(const Batch& batch);

    // Above every sequence found, dead ones included: for FsyncLog.
    [[nodiscard]] uint64_t next_sequence() const { return next_sequence_; }
    // The commit that follows the replay must have at least this generation: then all that the scan found,
    // and all that it may have missed, is dead. Nothing may be appended before that commit is durable.
    [[nodiscard]] Generation commit_at_least() const { return commit_at_least_; }

private:
    // A batch of which some blocks were seen, one directly behind the other.
    struct Partial {
        FsyncHeader header;
        DeviceOffset offset;
        uint32_t seen = 0;
    };
    [[nodiscard]] bool live(const FsyncHeader& header) const;
    void take_block(const RingReader::Block& read, Partial& partial);
    void merge_copies();
    size_t choose_prefix();

    MemberSet& members_;
    const Superblock& superblock_;
    const Generation committed_;
    std::vector<Batch> batches_;  // by rising sequence
    size_t prefix_ = 0;  // how many of them are to be replayed
    uint64_t prefix_end_ = 0;  // sequence behind the last of them; 0: not even the first one is known
    bool all_read_ = true;
    uint64_t next_sequence_ = 1;
    Generation commit_at_least_;
};

}  // namespace cowraid
