// SPDX-License-Identifier: MIT
// File data: inodes in memory, what waits to be written, and the calls that read and change it.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/event.h"
#include "fs/files/attributes.h"
#include "fs/files/change_tracker.h"
#include "fs/files/frames.h"
#include "fs/files/inode.h"
#include "fs/txn/store.h"

namespace cowraid {

// A seek in steps: where it is, and in the end what was looked for.
class LongSeek : public LongChange {
public:
    explicit LongSeek(uint64_t offset) : offset_(offset) { }
    [[nodiscard]] uint64_t offset() const { return offset_; }

protected:
    uint64_t offset_;
};

// Every call is thread-safe unless it says otherwise.
struct Files {
    explicit Files(Store& trees);
    Files(const Files&) = delete;
    Files& operator=(const Files&) = delete;

    // The bytes read, short at the end of the file, in `memory`, which may be another buffer afterwards: it
    // is left to a member that does not answer, and one that is too small is replaced. A range that cannot be
    // had fails whole with kTooManyFaults or kIo.
    Result<std::span<const std::byte>> read(InodeNumber inode, uint64_t offset, size_t bytes,
                                            AlignedBuffer& memory);
    // The same into memory of the caller's, by a copy. Returns their number.
    Result<size_t> read(InodeNumber inode, uint64_t offset, std::span<std::byte> out);
    // The first offset from `offset` on, which is below INT64_MAX, that has data, or none; the end of the
    // file counts as a hole. In whole blocks; reserved ones have none. kNotFound: there is none before the
    // end.
    enum class Seek : uint8_t { kData, kHole };
    Result<uint64_t> seek(InodeNumber inode, uint64_t offset, Seek what);
    // The same in steps, each of which looks at a bounded number of extents.
    Result<std::unique_ptr<LongSeek>> begin_seek(InodeNumber inode, uint64_t offset, Seek what);
    // Copies `data`, reserves the worst case, returns. kNoSpace is final: nothing was taken. With
    // options.append the offset is the end of file.
    // kNotPermitted: the file is immutable, or append-only and the write is neither an append nor written
    // back from a mapping.
    struct WriteHow {
        bool append = false;
        bool appending = false;  // at an offset that whoever asks found to be the end
        bool written_back = false;  // by the kernel: stored by programs before a flag forbade it
    };
    Result<size_t> write(InodeNumber inode, uint64_t offset, std::span<const std::byte> data,
                         const WriteHow& how, const Caller& caller);
    // Whether who writes should be slowed down: the answer to a write goes through answer_when_room().
    [[nodiscard]] bool holds_writers() const { return store.ledger.holds_answers(); }
    // `completion` gets success, at once or when a flush has made room. No locks held.
    void answer_when_room(Completion* completion);
    // `mode`: 0 or FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE
    // with or without KEEP_SIZE; others kUnsupported. Rows are reserved for good: the first write into them
    // needs no others. It may get kNoSpace all the same, where no node is left for what it changes.
    Status allocate_range(InodeNumber inode, int mode, uint64_t offset, uint64_t length,
                          const Caller& caller = {});
    // The same in steps.
    Result<std::unique_ptr<LongChange>> begin_allocate_range(InodeNumber inode, int mode, uint64_t offset,
                                                             uint64_t length, const Caller& caller = {});
    // Changes the size of a regular file, to INT64_MAX at most. Zeroes the rest of the last block when it
    // grows or shrinks into a block. Clears set-id bits like write().
    std::unique_ptr<LongChange> begin_truncation(Ref<Inode> inode, uint64_t new_size, const Caller& caller);
    // The end of a truncation that was broken off, if one was; changes no times. finish_cut() is for who
    // makes the file so long, if it has to be first; kWouldWait under NoWait. No locks held.
    std::unique_ptr<LongChange> begin_end_of_cut(Ref<Inode> inode);
    Status finish_cut(const Ref<Inode>& inode, uint64_t size);

    Store& store;
    InodeTable inodes;
    InodeList dirty_inodes;  // with data of the open transaction
    ChangeTracker tracker;
    FrameWorkers frame_workers;  // commit thread
    // Of compressed extents of the last commit: blocks of files, and what they are stored in. Nothing is
    // known of them unless counted, which holds as long as the mount. Changed by the commit thread.
    std::atomic<uint64_t> compressed_file_blocks{0}, compressed_blocks{0};
    bool compression_counted = false;
    Event flush_done;  // some inode may have no flushing blocks any more
    std::atomic<int64_t> reserved_blocks{0};  // by fallocate
    // With data that a failed commit or flush left in memory: reads find it there. Commit thread.
    std::vector<Ref<Inode>> unwritten;
};

}  // namespace cowraid
