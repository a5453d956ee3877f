// SPDX-License-Identifier: MIT
// Changing a file's size. Invariant: bytes of the last block behind the end are zero, in memory and stored,
// so that growing needs no I/O.
//
// A file that becomes much smaller has its new size with the first piece, so that a crash leaves the old size
// or the new one. Until the last piece it is marked (kInodeCut): what is stored behind its end is no content.
// Who makes it longer ends that first, and the next mount does.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "format/feature_table.h"
#include "format/items.h"
#include "format/name_codec.h"
#include "fs/files/extents.h"
#include "fs/files/file_blocks.h"
#include "fs/files/files.h"
#include "fs/files/flush.h"
#include "fs/txn/no_wait.h"
#include "fs/txn/operation.h"

namespace cowraid {

namespace {

// Runs of stored blocks one operation may remove, but for those of the last extent.
constexpr uint32_t kPieceRuns = 256;

// The stored content of the block the new end falls into, and a place for what stays of it.
struct LastBlock {
    explicit LastBlock(Store& store) : reservation(store) { }

    bool wanted = false;  // it is stored, and was not at hand
    // Its place is free once it is written anew: not that of a frame of which a part stays.
    bool returns = false;
    AlignedBuffer content{kBlockBytes};
    // Of the inode's extents when `content` was read; never that of extents that stand still when it was not.
    static constexpr uint64_t kUnknown = UINT64_MAX;
    uint64_t version = kUnknown;
    DataReservation reservation;
};

// Where a truncation is: behind `end` the file has nothing, as long as it is as that left it. What was erased
// there is not looked at again by every piece.
struct CutEnd {
    uint64_t end = kMaxFileBlocks;
    uint64_t size_bytes = 0;
    uint64_t version = LastBlock::kUnknown;  // of the inode's extents

    // Requires inode.mutex.
    [[nodiscard]] uint64_t of(const Inode& inode) const
    {
        inode.mutex.assert_held();
        const bool as_left = version == inode.extent_version && size_bytes == inode.attributes.size_bytes;
        return as_left ? end : kMaxFileBlocks;
    }
};

// First block to cut in this piece: `floor`, or the start of the extent that makes it large enough. Nothing
// is from `end` on.
Result<uint64_t> piece_start(Store& store, const View& view, InodeNumber inode, uint64_t floor, uint64_t end)
{
    uint64_t start = end;
    uint64_t freed = 0;
    for (size_t runs = 0;;) {
        Key found;
        ItemBytes payload;
        const Status status = store.items.last_at_or_before(view, extent_key(inode, start - 1),
                                                            extent_key(inode, 0), found, payload);
        if (status.err() == Err::kNotFound)
            return floor;
        CW_TRY(status);
        CW_ASSIGN(const FileExtent extent, decode_extent(found.offset / kBlockBytes, payload));
        if (extent.end() > start)
            return Err::kCorrupt;
        if (extent.end() <= floor)
            return floor;
        if (runs >= kPieceRuns || freed >= kFreedBlocksMax)
            return start;
        start = extent.file_block;
        if (start <= floor)
            return floor;
        freed += extent.block_count;
        runs += std::max<size_t>(1, extent.frame.size());
    }
}

// Where the block is that the new end falls into.
enum class Tail : uint8_t { kNowhere, kDirty, kStored, kInFrame };

// Requires inode.mutex, and that nothing is being flushed.
Result<Tail> find_tail(Store& store, Inode& inode, uint64_t new_size)
{
    inode.mutex.assert_held();
    const uint64_t block = new_size / kBlockBytes;
    if (new_size % kBlockBytes == 0)
        return Tail::kNowhere;
    if (inode.dirty.find(block) != nullptr)
        return Tail::kDirty;
    std::vector<FileExtent> extents;
    CW_TRY(find_extents(store.items, store.items.view(), inode.number, block, 1, extents));
    if (extents.empty() || extents.front().kind != ExtentKind::kData)
        return Tail::kNowhere;
    const FileExtent& extent = extents.front();
    return extent.compressed() && (extent.is_inline() || extent.frame_start() < block) ? Tail::kInFrame
                                                                                       : Tail::kStored;
}

// Zeroes the block behind the new end. Requires inode.mutex; of a stored block, that its content is at hand.
void zero_tail(Files& files, const Ref<Inode>& inode, uint64_t new_size, Tail tail, LastBlock& last)
{
    inode->mutex.assert_held();
    const uint64_t block = new_size / kBlockBytes;
    const size_t keep = new_size % kBlockBytes;
    if (tail == Tail::kDirty) {
        std::memset(inode->dirty.find(block) + keep, 0, kBlockBytes - keep);
        files.tracker.note_blocks(*inode, block, 1);
    } else if (tail != Tail::kNowhere) {
        DirtyExtent extent{make_ref<SharedBuffer>(size_t{kBlockBytes}), 0, 1};
        std::memcpy(extent.block(0), last.content.data(), keep);
        std::memset(extent.block(0) + keep, 0, kBlockBytes - keep);
        last.reservation.take_over(1);
        files.store.ledger.apply(insert_dirty(files, inode, block, std::move(extent), 1));
    }
}

// A file that keeps its size gives back what was reserved behind its end.
bool cuts(const InodeAttributes& attributes, uint64_t new_size)
{
    return new_size < attributes.size_bytes || (attributes.flags & kInodeCut) != 0 ||
           (new_size == attributes.size_bytes && attributes.data_blocks > 0);
}

// Whether there is more to cut. An inode without names has its orphan mark for another reason, too. Requires
// inode.mutex; the caller stores the inode.
void mark_cut(Store& store, Operation& operation, Inode& inode, bool more)
{
    inode.mutex.assert_held();
    InodeAttributes& attributes = inode.attributes;
    if (((attributes.flags & kInodeCut) != 0) == more)
        return;
    attributes.flags ^= kInodeCut;
    // A record of the fsync log would come before the superblock that says so.
    if (more && !store.volume.need_features(feature_bit("inode_flags") | feature_bit("cut_files")))
        operation.transaction().loggable = false;
    if (attributes.link_count == 0)
        return;
    if (more)
        operation.put(orphan_key(inode.number), {});
    else
        operation.erase(orphan_key(inode.number));
}

// One operation's worth of cutting, or the whole of growing. Without a size it ends what was begun.
Result<Progress> resize_piece(Files& files, const Ref<Inode>& inode, std::optional<uint64_t> wanted_size,
                              LastBlock& last, CutEnd& cut, const Caller& caller)
{
    Operation operation(files.store);
    CW_TRY(operation.begin(Operation::Kind::kShrink, kPieceRuns + kFrameBlocksMax + 3, 1,
                           kFreedBlocksMax + 2 * kMaxExtentBlocks));
    MutexLock lock(inode->mutex);
    if (inode->removed)
        return Err::kStale;
    InodeAttributes& attributes = inode->attributes;
    const bool is_marked = (attributes.flags & kInodeCut) != 0;
    if (!wanted_size && !is_marked)
        return Progress::kDone;
    const uint64_t target = wanted_size.value_or(attributes.size_bytes);
    const uint64_t new_size = is_marked ? std::min(target, attributes.size_bytes) : target;
    bool done = true;
    if (cuts(attributes, new_size)) {
        if (!inode->flushing.empty())
            return Progress::kMore;
        // All that may fail comes before the first change.
        const uint64_t floor = divide_up(new_size, kBlockBytes);
        Tail tail = Tail::kNowhere;
        if (new_size < attributes.size_bytes) {
            CW_ASSIGN(tail, find_tail(files.store, *inode, new_size));
        }
        last.wanted = tail == Tail::kStored || tail == Tail::kInFrame;
        last.returns = tail == Tail::kStored;
        if (last.wanted && last.version != inode->extent_version)
            return Progress::kMore;
        const uint64_t end = cut.of(*inode);
        CW_ASSIGN(const uint64_t start,
                  piece_start(files.store, files.store.items.view(), inode->number, floor, end));
        CW_TRY(clear_blocks(files, operation, *inode, start, end - start));
        done = start == floor;
        drop_dirty(files, *inode, floor, kMaxFileBlocks - floor);  // no record says more than the size
        zero_tail(files, inode, new_size, tail, last);
        cut = {start, new_size, inode->extent_version};
        mark_cut(files.store, operation, *inode, !done);
        done = done && new_size == target;
    }
    attributes.size_bytes = new_size;
    if (wanted_size) {
        attributes.modified = attributes.changed = current_time();
        clear_set_id(attributes, caller);
    }
    store_inode(operation, *inode);
    return done ? Progress::kDone : Progress::kMore;
}

// Shrinking may not fail for want of space where the old block returns with the next commit. No locks held.
Status read_last_block(Store& store, Inode& inode, uint64_t block, LastBlock& last)
{
    {
        MutexLock lock(inode.mutex);
        last.version = inode.extent_version;
    }
    CW_TRY(read_file_blocks(store, inode, block, 1, last.content.data()));
    if (last.reservation.blocks() > 0)
        return {};
    return last.returns ? last.reservation.get_anyway(1) : last.reservation.get(1);
}

class Truncation final : public LongChange {
public:
    // Without a size: the end of one that was broken off.
    Truncation(Files& files, Ref<Inode> inode, std::optional<uint64_t> new_size, const Caller& caller)
        : files_(files), inode_(std::move(inode)), new_size_(new_size), caller_(caller), last_(files.store)
    {
    }
    Result<Progress> step() override
    {
        bool is_cut;
        {
            MutexLock lock(inode_->mutex);
            is_cut = !new_size_ || cuts(inode_->attributes, *new_size_);
        }
        // One that grows while this is on its way is looked at again.
        last_.version = LastBlock::kUnknown;
        if (is_cut)
            CW_TRY(wait_for_flush(files_, *inode_));
        if (is_cut && last_.wanted && new_size_)
            CW_TRY(read_last_block(files_.store, *inode_, *new_size_ / kBlockBytes, last_));
        return resize_piece(files_, inode_, new_size_, last_, cut_, caller_);
    }

private:
    Files& files_;
    const Ref<Inode> inode_;
    const std::optional<uint64_t> new_size_;
    const Caller caller_;
    LastBlock last_;
    CutEnd cut_;
};

}  // namespace

std::unique_ptr<LongChange> Files::begin_end_of_cut(Ref<Inode> inode)
{
    return std::make_unique<Truncation>(*this, std::move(inode), std::nullopt, Caller{});
}

Status Files::finish_cut(const Ref<Inode>& inode, uint64_t size)
{
    {
        MutexLock lock(inode->mutex);
        if ((inode->attributes.flags & kInodeCut) == 0 || size <= inode->attributes.size_bytes)
            return {};
    }
    if (NoWait::active())
        return Err::kWouldWait;
    return finish_change(*begin_end_of_cut(inode));
}

std::unique_ptr<LongChange> Files::begin_truncation(Ref<Inode> inode, uint64_t new_size, const Caller& caller)
{
    return std::make_unique<Truncation>(*this, std::move(inode), new_size, caller);
}

}  // namespace cowraid
