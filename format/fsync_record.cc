// SPDX-License-Identifier: MIT
#include "format/fsync_record.h"

#include <cstring>

#include "format/extent_codec.h"
#include "format/inode_codec.h"
#include "format/items.h"
#include "format/node.h"

namespace cowraid {

namespace {

// Takes structures and bytes off the front.
class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) : left_(bytes) { }
    template <typename Disk> bool take(Disk& out)
    {
        if (left_.size() < sizeof out)
            return false;
        std::memcpy(&out, left_.data(), sizeof out);
        left_ = left_.subspan(sizeof out);
        return true;
    }
    bool take(uint64_t bytes, std::span<const std::byte>& out)
    {
        if (left_.size() < bytes)
            return false;
        out = left_.first(bytes);
        left_ = left_.subspan(bytes);
        return true;
    }
    [[nodiscard]] bool empty() const { return left_.empty(); }

private:
    std::span<const std::byte> left_;
};

bool inode_valid(uint64_t number, const VolumeCounters& counters)
{
    return number >= kRootInode && number < counters.next_inode;
}

bool key_valid(const Key& key, const VolumeCounters& counters)
{
    switch (static_cast<ItemType>(key.type)) {
    case ItemType::kInode:
    case ItemType::kSymlink:
        return inode_valid(key.object, counters) && key.offset == 0;
    case ItemType::kLink:
    case ItemType::kDirent:
    case ItemType::kXattr:
        return inode_valid(key.object, counters);
    case ItemType::kExtent:
        return inode_valid(key.object, counters) && key.offset % kBlockBytes == 0 && key.offset <= INT64_MAX;
    case ItemType::kOrphan:
        return key.object == 0 && inode_valid(key.offset, counters);
    default:
        return false;
    }
}

bool payload_valid(const Key& key, std::span<const std::byte> payload)
{
    switch (static_cast<ItemType>(key.type)) {
    case ItemType::kInode:
        return decode_inode(payload).ok();
    case ItemType::kExtent:
        return decode_extent(key.offset / kBlockBytes, payload).ok();
    case ItemType::kOrphan:
        return payload.empty();
    default:
        return payload.size() <= kMaxItemBytes;
    }
}

bool take_item(const DiskFsyncEntry& entry, Reader& reader, FsyncRecord& record)
{
    FsyncRecord::Item item;
    item.key = {entry.object, entry.type, entry.offset};
    item.erased = entry.kind == static_cast<uint8_t>(FsyncEntryKind::kErased);
    if (!key_valid(item.key, record.counters))
        return false;
    if (item.erased ? entry.count != 0
                    : !reader.take(entry.count, item.payload) || !payload_valid(item.key, item.payload))
        return false;
    record.items.push_back(item);
    return true;
}

bool take_blocks(const DiskFsyncEntry& entry, Reader& reader, FsyncRecord& record)
{
    LoggedBlocks blocks{{entry.object}, entry.offset, entry.count, nullptr};
    if (entry.type != 0 || !inode_valid(entry.object, record.counters) || blocks.block_count == 0 ||
        blocks.first_block >= kMaxFileBlocks || blocks.block_count > kMaxFileBlocks - blocks.first_block)
        return false;
    if (entry.kind == static_cast<uint8_t>(FsyncEntryKind::kBlocks)) {
        std::span<const std::byte> content;
        if (blocks.block_count > kMaxFsyncRecordBytes / kBlockBytes ||
            !reader.take(blocks.block_count * kBlockBytes, content))
            return false;
        blocks.content = content.data();
    }
    record.blocks.push_back(blocks);
    return true;
}

bool take_entry(Reader& reader, FsyncRecord& record)
{
    DiskFsyncEntry entry;
    if (!reader.take(entry))
        return false;
    switch (static_cast<FsyncEntryKind>(entry.kind)) {
    case FsyncEntryKind::kPut:
    case FsyncEntryKind::kErased:
        return take_item(entry, reader, record);
    case FsyncEntryKind::kBlocks:
    case FsyncEntryKind::kDropped:
        return take_blocks(entry, reader, record);
    }
    return false;
}

}  // namespace

FsyncRecordEncoder::FsyncRecordEncoder() : bytes_(sizeof(DiskFsyncState)) { }

bool FsyncRecordEncoder::add(const DiskFsyncEntry& entry, const std::byte* payload, uint64_t payload_bytes)
{
    if (payload_bytes > kMaxFsyncRecordBytes || sizeof entry + payload_bytes > room())
        return false;
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof entry + payload_bytes);
    std::memcpy(bytes_.data() + at, &entry, sizeof entry);
    if (payload_bytes > 0)
        std::memcpy(bytes_.data() + at + sizeof entry, payload, payload_bytes);
    ++entry_count_;
    return true;
}

bool FsyncRecordEncoder::add_item(const ItemChange& change)
{
    DiskFsyncEntry entry{};
    entry.object = change.key.object;
    entry.offset = change.key.offset;
    entry.count = change.value.size();
    entry.kind = static_cast<uint8_t>(change.erased ? FsyncEntryKind::kErased : FsyncEntryKind::kPut);
    entry.type = change.key.type;
    return add(entry, change.value.data(), change.value.size());
}

bool FsyncRecordEncoder::add_blocks(const LoggedBlocks& blocks)
{
    const bool dropped = blocks.content == nullptr;
    DiskFsyncEntry entry{};
    entry.object = blocks.inode.value;
    entry.offset = blocks.first_block;
    entry.count = blocks.block_count;
    entry.kind = static_cast<uint8_t>(dropped ? FsyncEntryKind::kDropped : FsyncEntryKind::kBlocks);
    return add(entry, blocks.content, dropped ? 0 : blocks.block_count * kBlockBytes);
}

std::vector<std::byte> FsyncRecordEncoder::finish(const VolumeCounters& counters)
{
    DiskFsyncState state{};
    state.next_inode = counters.next_inode;
    state.inode_count = counters.inode_count;
    state.reserved_blocks = counters.reserved_blocks;
    state.entry_count = entry_count_;
    std::memcpy(bytes_.data(), &state, sizeof state);
    return std::move(bytes_);
}

Result<FsyncRecord> decode_fsync_record(std::span<const std::byte> bytes)
{
    Reader reader(bytes);
    DiskFsyncState state;
    if (!reader.take(state) || state.next_inode <= kRootInode || state.next_inode > kMaxInode ||
        state.inode_count > state.next_inode - kRootInode || state.reserved_blocks > kMaxFileBlocks)
        return Err::kCorrupt;
    FsyncRecord record;
    record.counters = {.next_inode = state.next_inode,
                       .inode_count = state.inode_count,
                       .reserved_blocks = state.reserved_blocks};
    for (uint32_t entry = 0; entry < state.entry_count; ++entry)
        if (!take_entry(reader, record))
            return Err::kCorrupt;
    if (!reader.empty())
        return Err::kCorrupt;
    return record;
}

}  // namespace cowraid
