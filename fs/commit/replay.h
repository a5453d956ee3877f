// SPDX-License-Identifier: MIT
// The fsync log after a crash: what fsync acknowledged since the last commit comes back as changes of the
// open transaction and as dirty data. docs/FORMAT.md, section 11.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "format/fsync_record.h"
#include "fs/commit/committer.h"
#include "fs/files/extents.h"
#include "journal/fsync_scan.h"

namespace cowraid {

// Reads the log, which the superblock says is in use, and applies it. Nothing is written: the open
// transaction needs a commit, and nothing may be appended before that is durable. Only where the core has
// nothing but what a mount has put there; no other thread. On failure `why` says what is wrong. kCorrupt:
// something acknowledged is lost, or the log contradicts the last commit.
Status replay_fsync_log(Committer& committer, std::string& why);
// What helps a mount where the log cannot be applied or committed, to follow what is wrong. `reading`: what
// can be read, and how. `keeps_some`: what comes before the loss is kept. Empty with drop_fsync_log, which is
// what helps.
std::string help_without_log(const Committer& committer, const char* reading, bool keeps_some = false);

// What records say, one on top of the other.
class ReplayedState {
public:
    explicit ReplayedState(Committer& committer);

    void add(const FsyncRecord& record);
    // Compares it with the last commit. kCorrupt when it cannot be what came after that.
    Status validate();
    // Hands it to the core. Requires validate().
    Status apply();

private:
    struct FreedRun {
        VolumeAddress address;
        uint64_t block_count;
    };
    Status validate_extent(const Key& key);
    Status settle_old_extent(const Key& key);
    Status settle_old_frame(const Key& key, const FileExtent& old, const std::vector<FileExtent>& extents);
    Status validate_data(InodeNumber inode, const DirtyMap& dirty);
    Status add_dirty(InodeNumber number, const DirtyMap& dirty);
    void apply_counters();

    Committer& committer_;
    View view_;  // the last commit with what the records change
    View before_;  // the last commit
    std::set<Key> extent_keys_;  // of extents that records put or erased
    std::map<uint64_t, DirtyMap> dirty_;  // by inode
    VolumeCounters counters_;
    bool counters_fell_ = false;  // from one record to the next
    std::vector<FreedRun> freed_;  // what the last commit has and the records do not
    FramesSeen freed_frames_;  // in it, of the inode at hand
    uint64_t frames_inode_ = 0;
    uint64_t gone_file_blocks_ = 0, gone_blocks_ = 0;  // of compressed extents
};

}  // namespace cowraid
