// SPDX-License-Identifier: MIT
// Writing file data into memory: reserve the room, copy, reply. Members see it at the next flush.
#include <algorithm>
#include <cstring>
#include <utility>

#include "fs/files/extents.h"
#include "fs/files/file_blocks.h"
#include "fs/files/files.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/operation.h"

namespace cowraid {

namespace {

// One write while it is being prepared. The block range is fixed by the offset, which for an append is only
// known under the inode's mutex.
struct PendingWrite {
    uint64_t offset = 0;
    std::span<const std::byte> data;
    bool append = false;
    // All of it may lie in blocks that are dirty already, so that it is copied there: no buffer, no rows.
    bool in_place = false;
    uint64_t reserved = 0;  // rows for as many blocks
    bool over_fallocated = false;  // they are those that fallocate reserved, counted twice until a flush
    Ref<SharedBuffer> buffer;  // whole blocks, user data in place, edges still to fill
    // Content of the first and last block as stored, where the write leaves some of it; empty until
    // read_edges(), then valid while the inode's extent_version is `edge_version` and the block is not in
    // memory.
    AlignedBuffer edges;
    bool has_edge[2]{};
    uint64_t edge_version = 0;

    [[nodiscard]] uint64_t end() const { return offset + data.size(); }
    [[nodiscard]] uint64_t first_block() const { return offset / kBlockBytes; }
    [[nodiscard]] uint64_t block_count() const { return divide_up(end(), kBlockBytes) - first_block(); }
    [[nodiscard]] bool head_partial() const { return offset % kBlockBytes != 0; }
    [[nodiscard]] bool tail_partial() const { return end() % kBlockBytes != 0; }
    // Whether a file of that size has content in the block that the write does not replace.
    [[nodiscard]] bool leaves_content(uint64_t block, uint64_t size_bytes) const
    {
        const uint64_t start = block * kBlockBytes;
        return start < size_bytes && (offset > start || end() < std::min(size_bytes, start + kBlockBytes));
    }
};

void fill_buffer(PendingWrite& write)
{
    write.buffer = make_ref<SharedBuffer>(write.block_count() * kBlockBytes);
    std::memcpy(write.buffer->buffer.data() + write.offset % kBlockBytes, write.data.data(),
                write.data.size());
    write.edges = {};
}

// Whether all rows of the range are reserved already, by fallocate, and no flush is taking them. Requires
// inode.mutex.
bool reserved_by_fallocate(Store& store, Inode& inode, const PendingWrite& write)
{
    inode.mutex.assert_held();
    const uint64_t end = write.first_block() + write.block_count();
    const auto flushing = inode.flushing.first_ending_after(write.first_block());
    if (flushing != inode.flushing.extents().end() && flushing->first < end)
        return false;
    std::vector<FileExtent> extents;
    if (!find_extents(store.items, store.items.view(), inode.number, write.first_block(), write.block_count(),
                      extents)
             .ok())
        return false;
    uint64_t block = write.first_block();
    for (const FileExtent& extent : extents)
        if (extent.kind == ExtentKind::kReserved && extent.file_block <= block)
            block = std::max(block, extent.end());
    return block >= end;
}

// Reserves rows, which a range that fallocate reserved has. No locks held.
Status reserve_rows(Store& store, Inode& inode, PendingWrite& write)
{
    const uint64_t blocks = write.block_count();
    {
        MutexLock lock(inode.mutex);
        write.over_fallocated = reserved_by_fallocate(store, inode, write);
    }
    if (!write.over_fallocated)
        CW_TRY(reserve_data(store, blocks));
    else
        store.ledger.reserve_data_anyway(blocks);
    write.reserved = blocks;
    return {};
}

Status begin_operation(Operation& operation, Store& store, Inode& inode, PendingWrite& write)
{
    if (!write.in_place && write.reserved == 0) {
        const Status at_once = operation.begin_write(write.block_count());
        if (at_once.ok())
            write.reserved = write.block_count();
        if (at_once.err() != Err::kBusy)
            return at_once;
        CW_TRY(reserve_rows(store, inode, write));
    }
    return operation.begin(Operation::Kind::kGrow, 1, write.reserved);
}

// Copies the part of an edge block that the write does not cover. False when its stored content is needed
// and not at hand. Requires inode.mutex.
bool fill_edge(Inode& inode, PendingWrite& write, uint64_t block)
{
    inode.mutex.assert_held();
    std::byte* target = write.buffer->buffer.data() + (block - write.first_block()) * kBlockBytes;
    const uint64_t block_start = block * kBlockBytes;
    const size_t from = write.offset > block_start ? write.offset - block_start : 0;
    const size_t to = std::min<uint64_t>(kBlockBytes, write.end() - block_start);
    const std::byte* base = inode.dirty.find(block);
    if (base == nullptr)
        base = inode.flushing.find(block);
    if (base == nullptr && write.leaves_content(block, inode.attributes.size_bytes)) {
        const size_t edge = block == write.first_block() ? 0 : 1;
        if (write.edges.size() == 0 || !write.has_edge[edge] || write.edge_version != inode.extent_version)
            return false;
        base = write.edges.data() + edge * kBlockBytes;
    }
    if (base == nullptr) {
        std::memset(target, 0, from);
        std::memset(target + to, 0, kBlockBytes - to);
    } else {
        std::memcpy(target, base, from);
        std::memcpy(target + to, base + to, kBlockBytes - to);
    }
    return true;
}

bool fill_edges(Inode& inode, PendingWrite& write)
{
    const uint64_t last = write.first_block() + write.block_count() - 1;
    if (write.head_partial() && !fill_edge(inode, write, write.first_block()))
        return false;
    if (write.tail_partial() && (last != write.first_block() || !write.head_partial()))
        return fill_edge(inode, write, last);
    return true;
}

// Reads the stored content of the edge blocks. No locks held.
Status read_edges(Store& store, Inode& inode, PendingWrite& write)
{
    const uint64_t blocks[] = {write.first_block(), write.first_block() + write.block_count() - 1};
    {
        MutexLock lock(inode.mutex);
        write.edge_version = inode.extent_version;
        for (size_t edge = 0; edge < std::size(blocks); ++edge)
            write.has_edge[edge] = write.leaves_content(blocks[edge], inode.attributes.size_bytes);
    }
    write.has_edge[1] = write.has_edge[1] && blocks[1] != blocks[0];
    AlignedBuffer edges(2 * kBlockBytes);
    for (size_t edge = 0; edge < std::size(blocks); ++edge)
        if (write.has_edge[edge])
            CW_TRY(read_file_blocks(store, inode, blocks[edge], 1, edges.data() + edge * kBlockBytes));
    write.edges = std::move(edges);
    return {};
}

// Whether the write goes into blocks that are dirty already. Requires inode.mutex.
bool all_dirty(Inode& inode, const PendingWrite& write)
{
    inode.mutex.assert_held();
    constexpr uint64_t kInPlaceBlocks = 2;
    if (write.block_count() > kInPlaceBlocks)
        return false;
    for (uint64_t i = 0; i < write.block_count(); ++i)
        if (inode.dirty.find(write.first_block() + i) == nullptr)
            return false;
    return true;
}

// Requires inode.mutex and the gate, and all_dirty().
void write_in_place(Files& files, Inode& inode, const PendingWrite& write)
{
    inode.mutex.assert_held();
    size_t done = 0;
    while (done < write.data.size()) {
        const uint64_t at = write.offset + done;
        const size_t part = std::min<size_t>(write.data.size() - done, kBlockBytes - at % kBlockBytes);
        std::memcpy(inode.dirty.find(at / kBlockBytes) + at % kBlockBytes, write.data.data() + done, part);
        done += part;
    }
    files.tracker.note_blocks(inode, write.first_block(), write.block_count());
}

void note_written(Operation& operation, Inode& inode, const PendingWrite& write, const Caller& caller)
{
    inode.mutex.assert_held();
    InodeAttributes& attributes = inode.attributes;
    attributes.size_bytes = std::max(attributes.size_bytes, write.end());
    attributes.modified = attributes.changed = current_time();
    clear_set_id(attributes, caller);
    store_inode(operation, inode);
}

enum class Outcome : uint8_t { kDone, kPrepareAgain, kEdgesNeeded, kCutFirst };

// The locked part: puts the prepared blocks into the inode, or says what is missing.
Result<Outcome> apply_write(Files& files, const Ref<Inode>& inode, PendingWrite& write, const Caller& caller)
{
    Operation operation(files.store);
    CW_TRY(begin_operation(operation, files.store, *inode, write));
    MutexLock lock(inode->mutex);
    if (inode->removed)
        return Err::kStale;
    if (write.append && write.offset != inode->attributes.size_bytes) {
        write.offset = inode->attributes.size_bytes;
        return Outcome::kPrepareAgain;
    }
    const bool is_cut = (inode->attributes.flags & kInodeCut) != 0;
    if (is_cut && write.end() > inode->attributes.size_bytes)
        return Outcome::kCutFirst;
    LedgerChange change;
    if (all_dirty(*inode, write)) {
        write_in_place(files, *inode, write);
        change.released_data = write.reserved;
    } else if (write.in_place) {
        return Outcome::kPrepareAgain;
    } else {
        // A flush since then may have taken the rows.
        if (write.over_fallocated && !reserved_by_fallocate(files.store, *inode, write))
            return Outcome::kPrepareAgain;
        if (!fill_edges(*inode, write))
            return Outcome::kEdgesNeeded;
        DirtyExtent extent{write.buffer, 0, static_cast<uint32_t>(write.block_count())};
        change = insert_dirty(files, inode, write.first_block(), std::move(extent), write.reserved);
    }
    write.reserved = 0;
    note_written(operation, *inode, write, caller);
    operation.settle(change);
    return Outcome::kDone;
}

Status perform_write(Files& files, const Ref<Inode>& inode, PendingWrite& write, const Caller& caller)
{
    while (true) {
        if (write.end() > INT64_MAX)
            return Err::kFileTooBig;
        if (!write.in_place)
            fill_buffer(write);
        Result<Outcome> outcome = apply_write(files, inode, write, caller);
        while (outcome.ok() && *outcome == Outcome::kEdgesNeeded) {
            const Status edges = read_edges(files.store, *inode, write);
            outcome = edges.ok() ? apply_write(files, inode, write, caller) : Result<Outcome>(edges.err());
        }
        if (outcome.ok() && *outcome == Outcome::kDone)
            return {};
        files.store.ledger.release_data(std::exchange(write.reserved, 0));
        write.over_fallocated = false;
        CW_TRY(outcome.status());
        if (*outcome == Outcome::kCutFirst)
            CW_TRY(files.finish_cut(inode, write.end()));
        write.in_place = false;
    }
}

}  // namespace

Result<size_t> Files::write(InodeNumber number, uint64_t offset, std::span<const std::byte> data,
                            const WriteHow& how, const Caller& caller)
{
    if (store.service.read_only())
        return Err::kReadOnly;
    CW_ASSIGN(const Ref<Inode> inode, inodes.get(number));
    PendingWrite write;
    write.offset = offset;
    write.data = data;
    write.append = how.append;
    {
        MutexLock lock(inode->mutex);
        if (!inode->attributes.is_regular())
            return inode->attributes.is_directory() ? Err::kIsDirectory : Err::kInvalid;
        const bool appends = how.append || how.appending;
        if (inode->attributes.fixed() && !how.written_back && (inode->attributes.immutable() || !appends))
            return Err::kNotPermitted;
        if (how.append)
            write.offset = inode->attributes.size_bytes;
        write.in_place = !data.empty() && all_dirty(*inode, write);
    }
    if (data.empty())
        return size_t{0};
    if (offset > INT64_MAX - data.size())
        return Err::kFileTooBig;
    CW_TRY(wait_for_dirty_room(store));
    CW_TRY(perform_write(*this, inode, write, caller));
    return data.size();
}

// The flush is asked for when the completion waits already: who answers it is sure to come.
void Files::answer_when_room(Completion* completion)
{
    store.ledger.answer_when_room(completion);
    ask_for_flush(store);
}

}  // namespace cowraid
