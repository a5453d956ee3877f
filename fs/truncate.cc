// SPDX-License-Identifier: MIT
// Changing a file's size. Invariant: bytes of the last block behind the end are zero, in memory and stored,
// so that growing needs no I/O.
#include <algorithm>
#include <cstring>

#include "fs/extents.h"
#include "fs/file_blocks.h"
#include "fs/flush.h"
#include "fs/namespace.h"
#include "fs/operation.h"

namespace cowraid {

namespace {

// Extents one operation may remove.
constexpr uint32_t kPieceExtents = 256;

// The stored content of the block the new end falls into, and a place for what stays of it.
class LastBlock {
public:
    explicit LastBlock(FilesystemCore& core) : core_(core) { }
    ~LastBlock()
    {
        if (promised_)
            core_.space.return_data(1);
    }
    LastBlock(const LastBlock&) = delete;
    LastBlock& operator=(const LastBlock&) = delete;

    // Shrinking may not fail for want of space: when commits bring none the promise comes out of the slack.
    // The old block returns with the next commit. No locks held.
    Status promise()
    {
        if (promised_)
            return {};
        const Status status = promise_data(core_, 1);
        if (!status.ok() && status.err() != Err::kNoSpace)
            return status;
        if (!status.ok())
            core_.space.force_data(1);
        promised_ = true;
        return {};
    }
    // The promise is the caller's.
    void take_promise()
    {
        CW_ASSERT(promised_);
        promised_ = false;
    }

    AlignedBuffer content{kBlockBytes};
    // Of the inode's extents when `content` was read; never that of extents that stand still when it was not.
    static constexpr uint64_t kUnknown = UINT64_MAX;
    uint64_t version = kUnknown;

private:
    FilesystemCore& core_;
    bool promised_ = false;
};

// First block to cut in this piece: `floor`, or the start of the kPieceExtents-th extent from the end.
Result<uint64_t> piece_start(FilesystemCore& core, const View& view, InodeNumber inode, uint64_t floor)
{
    Key bound = extent_key(inode, kMaxFileBlocks - 1);
    uint64_t start = kMaxFileBlocks;
    for (uint32_t count = 0; count < kPieceExtents; ++count) {
        Key found;
        ItemBytes payload;
        const Status status = core.store.last_at_or_before(view, bound, extent_key(inode, 0), found, payload);
        if (status.err() == Err::kNotFound)
            return floor;
        CW_TRY(status);
        start = found.offset / kBlockBytes;
        if (start <= floor)
            return floor;
        bound = extent_key(inode, start - 1);
    }
    return start;
}

// Zeroes the block behind the new end. Requires inode.mutex; false when its content is not at hand.
Result<bool> zero_tail(FilesystemCore& core, const Ref<Inode>& inode, uint64_t new_size,
                       LastBlock& last) CW_NO_THREAD_SAFETY_ANALYSIS
{
    const uint64_t block = new_size / kBlockBytes;
    const size_t keep = new_size % kBlockBytes;
    if (keep == 0)
        return true;
    if (std::byte* memory = inode->dirty.find(block); memory != nullptr) {
        std::memset(memory + keep, 0, kBlockBytes - keep);
        core.changes.note_blocks(*inode, block, 1);
        return true;
    }
    std::vector<FileExtent> extents;
    CW_TRY(find_extents(core.store, core.store.view(), inode->number, block, 1, extents));
    if (extents.empty() || extents.front().kind != ExtentKind::kData)
        return true;
    if (last.version != inode->extent_version)
        return false;
    DirtyExtent extent{make_ref<SharedBuffer>(size_t{kBlockBytes}), 0, 1};
    std::memcpy(extent.block(0), last.content.data(), keep);
    std::memset(extent.block(0) + keep, 0, kBlockBytes - keep);
    last.take_promise();
    insert_dirty(core, inode, block, std::move(extent), 1);
    return true;
}

Status cut_extents(FilesystemCore& core, Operation& operation, Inode& inode,
                   uint64_t first_block) CW_NO_THREAD_SAFETY_ANALYSIS
{
    Unmapped removed;
    {
        ExtentEditor editor(core, operation.transaction(), core.store.view(), inode);
        CW_TRY(editor.unmap(first_block, kMaxFileBlocks - first_block, removed));
    }
    return_reserved(core, removed.reserved_blocks);
    inode.attributes.data_blocks -= removed.data_blocks + removed.reserved_blocks;
    return {};
}

enum class Progress : uint8_t { kMore, kDone };

// One operation's worth of shrinking, or the whole of growing.
Result<Progress> resize_piece(FilesystemCore& core, const Ref<Inode>& inode, uint64_t new_size,
                              LastBlock& last, const Caller& caller)
{
    Operation operation(core);
    CW_TRY(operation.begin(Operation::Kind::kShrink, kPieceExtents + 2, 1));
    MutexLock lock(inode->mutex);
    if (inode->removed)
        return Err::kStale;
    InodeAttributes& attributes = inode->attributes;
    uint64_t size = new_size;
    if (new_size < attributes.size_bytes) {
        if (!inode->flushing.empty())
            return Progress::kMore;
        const uint64_t floor = divide_up(new_size, kBlockBytes);
        CW_ASSIGN(const uint64_t start, piece_start(core, core.store.view(), inode->number, floor));
        if (start == floor) {
            CW_ASSIGN(const bool zeroed, zero_tail(core, inode, new_size, last));
            if (!zeroed)
                return Progress::kMore;
        } else {
            size = std::min(attributes.size_bytes, start * kBlockBytes);
        }
        erase_dirty(core, *inode, start, kMaxFileBlocks - start);
        CW_TRY(cut_extents(core, operation, *inode, start));
    }
    attributes.size_bytes = size;
    attributes.modified = attributes.changed = current_time();
    if (caller.uid != 0)
        attributes.mode = mode_without_set_id(attributes.mode);
    operation.store(*inode);
    return size == new_size ? Progress::kDone : Progress::kMore;
}

}  // namespace

Status truncate_file(FilesystemCore& core, const Ref<Inode>& inode, uint64_t new_size, const Caller& caller)
{
    if (new_size > INT64_MAX)
        return Err::kFileTooBig;
    LastBlock last(core);
    while (true) {
        bool shrinks;
        {
            MutexLock lock(inode->mutex);
            if (!inode->attributes.is_regular())
                return inode->attributes.is_directory() ? Err::kIsDirectory : Err::kInvalid;
            shrinks = new_size < inode->attributes.size_bytes;
        }
        // One that grows while this is on its way is looked at again.
        last.version = LastBlock::kUnknown;
        if (shrinks) {
            wait_for_flush(core, *inode);
            MutexLock lock(inode->mutex);
            last.version = inode->extent_version;
        }
        if (shrinks && new_size % kBlockBytes != 0) {
            CW_TRY(read_file_blocks(core, *inode, new_size / kBlockBytes, 1, last.content.data()));
            CW_TRY(last.promise());
        }
        CW_ASSIGN(const Progress progress, resize_piece(core, inode, new_size, last, caller));
        if (progress == Progress::kDone)
            return {};
    }
}

}  // namespace cowraid
