// SPDX-License-Identifier: MIT
// fallocate: reserving rows, punching holes, zeroing ranges.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "fs/files/extents.h"
#include "fs/files/file_blocks.h"
#include "fs/files/files.h"
#include "fs/files/flush.h"
#include "fs/txn/operation.h"

namespace cowraid {

namespace {

// What one operation changes at most: so long a range, with as many extents or holes in it.
constexpr uint64_t kPieceBlocks = kFreedBlocksMax;
constexpr uint32_t kPieceItems = 256;
// Extents that reach beyond the piece, and the inode.
constexpr uint32_t kMoreItems = 3;

struct Range {
    uint64_t first_block;
    uint64_t end_block;
};

// Holes of the stored mapping inside the range, at most kPieceItems of them.
Result<std::vector<Range>> find_holes(Store& store, const View& view, InodeNumber inode, Range range)
{
    std::vector<FileExtent> extents;
    CW_TRY(find_extents(store.items, view, inode, range.first_block, range.end_block - range.first_block,
                        extents));
    std::vector<Range> holes;
    uint64_t block = range.first_block;
    for (const FileExtent& extent : extents) {
        if (extent.file_block > block)
            holes.push_back({block, extent.file_block});
        block = std::max(block, extent.end());
    }
    if (block < range.end_block)
        holes.push_back({block, range.end_block});
    return holes;
}

uint64_t total_blocks(const std::vector<Range>& ranges)
{
    uint64_t total = 0;
    for (const Range& range : ranges)
        total += range.end_block - range.first_block;
    return total;
}

// The holes of a piece, which ends earlier where there are too many. Requires inode.mutex.
Result<std::vector<Range>> holes_of_piece(Store& store, const View& view, InodeNumber inode, Range& piece)
{
    CW_ASSIGN(std::vector<Range> holes, find_holes(store, view, inode, piece));
    if (holes.size() > kPieceItems) {
        holes.resize(kPieceItems);
        piece.end_block = holes.back().end_block;
    }
    return holes;
}

// Blocks in holes of a piece, which ends earlier where there are too many. No locks held.
Result<uint64_t> count_holes(Store& store, Inode& inode, Range& piece)
{
    MutexLock lock(inode.mutex);
    CW_ASSIGN(const std::vector<Range> holes, holes_of_piece(store, store.items.view(), inode.number, piece));
    return total_blocks(holes);
}

// Maps holes as reserved. What an error leaves is whole. Requires inode.mutex.
Status reserve_holes(Files& files, Operation& operation, const View& view, Inode& inode,
                     const std::vector<Range>& holes, DataReservation& reservation)
{
    inode.mutex.assert_held();
    ExtentEditor editor(files, operation.transaction(), view, inode);
    Status status;
    for (const Range& hole : holes) {
        const uint64_t blocks = hole.end_block - hole.first_block;
        status = editor.map({hole.first_block, static_cast<uint32_t>(blocks), ExtentKind::kReserved, {}, {}});
        if (!status.ok())
            break;
        reservation.take_over(blocks);
        files.reserved_blocks.fetch_add(static_cast<int64_t>(blocks));
        inode.attributes.data_blocks += blocks;
    }
    store_inode(operation, inode);
    return status;
}

// Reserves the holes of one piece, or of its beginning: where it ended. kBusy: again.
Result<uint64_t> reserve_piece(Files& files, Inode& inode, Range piece)
{
    CW_TRY(wait_for_flush(files, inode));
    CW_ASSIGN(const uint64_t wanted, count_holes(files.store, inode, piece));
    if (wanted == 0)
        return piece.end_block;
    DataReservation reservation(files.store);
    if (const Status status = reservation.get(wanted); !status.ok()) {
        // Its commits may have stored dirty data where holes were.
        CW_ASSIGN(const uint64_t left, count_holes(files.store, inode, piece));
        return status.err() == Err::kNoSpace && left < wanted ? Status(Err::kBusy) : status;
    }
    Operation operation(files.store);
    CW_TRY(operation.begin(Operation::Kind::kGrow, kPieceItems + kMoreItems));
    MutexLock lock(inode.mutex);
    if (!inode.flushing.empty())
        return Err::kBusy;
    const View view = files.store.items.view();
    CW_ASSIGN(const std::vector<Range> holes, holes_of_piece(files.store, view, inode.number, piece));
    if (total_blocks(holes) > reservation.blocks())
        return Err::kBusy;
    CW_TRY(reserve_holes(files, operation, view, inode, holes, reservation));
    return piece.end_block;
}

// First block from `block` on that is stored, reserved or in memory; kMaxFileBlocks when there is none.
Result<uint64_t> next_used_block(Store& store, Inode& inode, uint64_t block)
{
    MutexLock lock(inode.mutex);
    uint64_t next = kMaxFileBlocks;
    for (const DirtyMap* map : {&inode.dirty, &inode.flushing})
        if (const auto at = map->first_ending_after(block); at != map->extents().end())
            next = std::min(next, at->first);
    FileExtent extent;
    const Status stored = first_extent(store.items, store.items.view(), inode.number, block, extent);
    if (stored.ok())
        next = std::min(next, extent.file_block);
    else if (stored.err() != Err::kNotFound)
        return stored.err();
    return std::max(next, block);
}

// Whether the range lies inside one extent, so that two are left of it: an item more. `extents`: the first of
// those that overlap with it, at least.
bool splits_extent(const std::vector<FileExtent>& extents, const Range& range)
{
    return !extents.empty() && extents.front().file_block < range.first_block &&
           extents.front().end() > range.end_block;
}

// Takes the blocks of one piece away, or of its beginning: where it ended, which is behind the piece when a
// long hole follows. kBusy: again.
Result<uint64_t> clear_piece(Files& files, Inode& inode, Range piece)
{
    CW_ASSIGN(const uint64_t used, next_used_block(files.store, inode, piece.first_block));
    if (used >= piece.end_block)
        return used;
    piece.first_block = used;
    CW_TRY(wait_for_flush(files, inode));
    std::vector<FileExtent> extents;
    const auto find = [&](size_t most) {
        inode.mutex.assert_held();
        return find_extents(files.store.items, files.store.items.view(), inode.number, piece.first_block,
                            piece.end_block - piece.first_block, extents, most);
    };
    {
        MutexLock lock(inode.mutex);
        CW_TRY(find(1));
    }
    const bool splits = splits_extent(extents, piece);
    Operation operation(files.store);
    CW_TRY(operation.begin(splits ? Operation::Kind::kGrow : Operation::Kind::kShrink,
                           kPieceItems + kFrameBlocksMax + kMoreItems, 0, kPieceBlocks));
    MutexLock lock(inode.mutex);
    if (!inode.flushing.empty())
        return Err::kBusy;
    CW_TRY(find(SIZE_MAX));
    if (splits_extent(extents, piece) != splits)
        return Err::kBusy;
    size_t runs = 0;
    for (const FileExtent& extent : extents) {
        if (runs >= kPieceItems && extent.file_block > piece.first_block) {
            piece.end_block = extent.file_block;
            break;
        }
        runs += std::max<size_t>(1, extent.frame.size());
    }
    CW_TRY(clear_blocks(files, operation, inode, piece.first_block, piece.end_block - piece.first_block));
    store_inode(operation, inode);
    return piece.end_block;
}

using PieceFunction = Result<uint64_t> (*)(Files&, Inode&, Range);

Status set_size_at_least(Files& files, const Ref<Inode>& inode, uint64_t size)
{
    while (true) {
        CW_TRY(files.finish_cut(inode, size));
        Operation operation(files.store);
        CW_TRY(operation.begin(Operation::Kind::kGrow, 1));
        MutexLock lock(inode->mutex);
        InodeAttributes& attributes = inode->attributes;
        if (attributes.size_bytes >= size)
            return {};
        if ((attributes.flags & kInodeCut) != 0)
            continue;
        attributes.size_bytes = size;
        attributes.modified = attributes.changed = current_time();
        store_inode(operation, *inode);
        return {};
    }
}

// Writes zeros over the parts of edge blocks, inside the file only.
Status zero_bytes(Files& files, Inode& inode, uint64_t from, uint64_t to)
{
    static const std::byte zeros[kBlockBytes] = {};
    {
        MutexLock lock(inode.mutex);
        to = std::min(to, inode.attributes.size_bytes);
    }
    if (from >= to)
        return {};
    CW_ASSIGN(const uint64_t used, next_used_block(files.store, inode, from / kBlockBytes));
    if (used * kBlockBytes >= to)
        return {};  // a hole
    const Result<size_t> written = files.write(inode.number, from, {zeros, to - from}, {}, Caller{});
    return written.status();
}

// Before the range changes, so that nobody runs changed content with the owner's rights.
Status note_change(Store& store, Inode& inode, int action, const Caller& caller)
{
    if (action == 0 && caller.cleared_mode_bits == 0)
        return {};
    Operation operation(store);
    CW_TRY(operation.begin(Operation::Kind::kShrink, 1));
    MutexLock lock(inode.mutex);
    if (inode.removed)
        return Err::kStale;
    clear_set_id(inode.attributes, caller);
    inode.attributes.changed = current_time();
    if (action != 0)
        inode.attributes.modified = inode.attributes.changed;
    store_inode(operation, inode);
    return {};
}

class RangeChange final : public LongChange {
public:
    RangeChange(Files& files, Ref<Inode> inode, int mode, uint64_t from, uint64_t end, const Caller& caller)
        : files_(files), inode_(std::move(inode)), mode_(mode), from_(from), end_(end), caller_(caller)
    {
    }
    Result<Progress> step() override;

private:
    [[nodiscard]] int action() const { return mode_ & ~FALLOC_FL_KEEP_SIZE; }
    Status begin();

    Files& files_;
    const Ref<Inode> inode_;
    const int mode_;
    const uint64_t from_, end_;  // bytes
    const Caller caller_;
    bool begun_ = false;
    // Whole blocks still to be cleared, then blocks to be reserved.
    Range to_clear_{}, to_reserve_{};
};

// Edge blocks are zeroed by writing, whole blocks by unmapping them.
Status RangeChange::begin()
{
    if (action() != FALLOC_FL_PUNCH_HOLE)
        CW_TRY(files_.finish_cut(inode_, end_));  // it would take what is reserved behind the end
    CW_TRY(note_change(files_.store, *inode_, action(), caller_));
    if (action() != FALLOC_FL_PUNCH_HOLE)
        to_reserve_ = {from_ / kBlockBytes, divide_up(end_, kBlockBytes)};
    if (action() == 0)
        return {};
    const Range whole{divide_up(from_, kBlockBytes), end_ / kBlockBytes};
    if (whole.first_block > whole.end_block)
        return zero_bytes(files_, *inode_, from_, end_);
    to_clear_ = whole;
    CW_TRY(zero_bytes(files_, *inode_, from_, whole.first_block * kBlockBytes));
    return zero_bytes(files_, *inode_, whole.end_block * kBlockBytes, end_);
}

// One operation's worth.
Status step_piece(Files& files, Inode& inode, Range& range, PieceFunction function)
{
    const uint64_t end = std::min(range.end_block, range.first_block + kPieceBlocks);
    const Result<uint64_t> done = function(files, inode, {range.first_block, end});
    if (done.ok())
        range.first_block = *done;
    return done.ok() || done.err() == Err::kBusy ? Status() : done.status();
}

Result<Progress> RangeChange::step()
{
    if (!begun_)
        CW_TRY(begin());
    begun_ = true;
    if (to_clear_.first_block < to_clear_.end_block)
        CW_TRY(step_piece(files_, *inode_, to_clear_, clear_piece));
    else if (to_reserve_.first_block < to_reserve_.end_block)
        CW_TRY(step_piece(files_, *inode_, to_reserve_, reserve_piece));
    if (to_clear_.first_block < to_clear_.end_block || to_reserve_.first_block < to_reserve_.end_block)
        return Progress::kMore;
    if ((mode_ & FALLOC_FL_KEEP_SIZE) == 0)
        CW_TRY(set_size_at_least(files_, inode_, end_));
    return Progress::kDone;
}

}  // namespace

Status Files::allocate_range(InodeNumber inode, int mode, uint64_t offset, uint64_t length,
                             const Caller& caller)
{
    CW_ASSIGN(const std::unique_ptr<LongChange> change,
              begin_allocate_range(inode, mode, offset, length, caller));
    return finish_change(*change);
}

Result<std::unique_ptr<LongChange>> Files::begin_allocate_range(InodeNumber number, int mode, uint64_t offset,
                                                                uint64_t length, const Caller& caller)
{
    if (store.service.read_only())
        return Err::kReadOnly;
    if (length == 0 || offset > INT64_MAX || length > INT64_MAX - offset)
        return length == 0 ? Err::kInvalid : Err::kFileTooBig;
    const int action = mode & ~FALLOC_FL_KEEP_SIZE;
    if ((action != 0 && action != FALLOC_FL_PUNCH_HOLE && action != FALLOC_FL_ZERO_RANGE) ||
        (action == FALLOC_FL_PUNCH_HOLE && (mode & FALLOC_FL_KEEP_SIZE) == 0))
        return Err::kUnsupported;
    CW_ASSIGN(Ref<Inode> inode, inodes.get(number));
    {
        MutexLock lock(inode->mutex);
        if (!inode->attributes.is_regular())
            return inode->attributes.is_directory() ? Err::kIsDirectory : Err::kInvalid;
        if (inode->attributes.immutable() || (inode->attributes.fixed() && action != 0))
            return Err::kNotPermitted;
    }
    return std::unique_ptr<LongChange>(
        std::make_unique<RangeChange>(*this, std::move(inode), mode, offset, offset + length, caller));
}

}  // namespace cowraid
