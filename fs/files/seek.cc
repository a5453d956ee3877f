// SPDX-License-Identifier: MIT
// SEEK_DATA and SEEK_HOLE: what is in memory counts as well as what is stored.
#include <algorithm>

#include "fs/files/extents.h"
#include "fs/files/files.h"

namespace cowraid {

namespace {

// As for readers: a flush may change the mapping meanwhile.
constexpr int kUnlockedSeeks = 4;

// Blocks that hold data.
struct DataRun {
    uint64_t first = kMaxFileBlocks, end = kMaxFileBlocks;
};

// Of the two the one that is nearer to `block`, or goes on longer behind it.
DataRun nearer(const DataRun& one, const DataRun& other, uint64_t block)
{
    const uint64_t first = std::max(one.first, block), other_first = std::max(other.first, block);
    if (first != other_first)
        return first < other_first ? one : other;
    return one.end >= other.end ? one : other;
}

DataRun run_in_memory(const DirtyMap& map, uint64_t block)
{
    const auto at = map.first_ending_after(block);
    return at == map.extents().end() ? DataRun{} : DataRun{at->first, at->first + at->second.block_count};
}

// Reserved blocks hold nothing.
Result<DataRun> stored_run(const Store& store, const View& view, InodeNumber inode, uint64_t block)
{
    FileExtent extent;
    while (block < kMaxFileBlocks) {
        const Status found = first_extent(store.items, view, inode, block, extent);
        if (found.err() == Err::kNotFound)
            return DataRun{};
        CW_TRY(found);
        if (extent.kind == ExtentKind::kData)
            return DataRun{extent.file_block, extent.end()};
        block = extent.end();
    }
    return DataRun{};
}

// The first that ends behind `block`; where others adjoin it may end before they do.
Result<DataRun> first_data(Store& store, Inode& inode, uint64_t block)
{
    for (int attempt = 0;; ++attempt) {
        DataRun memory;
        uint64_t version;
        View view;
        {
            MutexLock lock(inode.mutex);
            version = inode.extent_version;
            memory = nearer(run_in_memory(inode.dirty, block), run_in_memory(inode.flushing, block), block);
            if (memory.first <= block)
                return memory;
            view = store.items.view();
            if (attempt == kUnlockedSeeks) {
                CW_ASSIGN(const DataRun stored, stored_run(store, view, inode.number, block));
                return nearer(memory, stored, block);
            }
        }
        CW_ASSIGN(const DataRun stored, stored_run(store, view, inode.number, block));
        if (inode.extent_version == version)
            return nearer(memory, stored, block);
    }
}

}  // namespace

Result<uint64_t> Files::seek(InodeNumber number, uint64_t offset, Seek what)
{
    CW_ASSIGN(const Ref<Inode> inode, inodes.get(number));
    uint64_t size;
    {
        MutexLock lock(inode->mutex);
        size = inode->attributes.size_bytes;
    }
    if (offset >= size)
        return Err::kNotFound;
    uint64_t block = offset / kBlockBytes;
    while (block < divide_up(size, kBlockBytes)) {
        CW_ASSIGN(const DataRun run, first_data(store, *inode, block));
        if (what == Seek::kData && run.first >= divide_up(size, kBlockBytes))
            return Err::kNotFound;
        if (what == Seek::kData)
            return std::max(offset, run.first * kBlockBytes);
        if (run.first > block)
            break;
        block = run.end;
    }
    return std::min(size, std::max(offset, block * kBlockBytes));
}

}  // namespace cowraid
