// SPDX-License-Identifier: MIT
// The seams that let lower layers ask the trees: nodes through the array, checksums by address, free-space
// windows of a group.
#pragma once

#include <atomic>

#include "alloc/allocator.h"
#include "btree/node_cache.h"
#include "fs/txn/damage_list.h"
#include "fs/txn/transaction.h"
#include "raid56/array.h"

namespace cowraid {

class ArrayNodeReader : public NodeReader {
public:
    // `damage` learns of nodes that are lost; null: nobody does.
    explicit ArrayNodeReader(Array& array, DamageList* damage = nullptr) : array_(array), damage_(damage) { }
    Status read_node(const BlockRef& ref, uint64_t tree_id, AlignedBuffer& out) override;

private:
    Array& array_;
    DamageList* const damage_;
};

// Checksums of blocks by volume address, through all layers.
class ChecksumLookup : public BlockVerifier {
public:
    // `damage`: null: nothing is known to be lost.
    ChecksumLookup(NodeCache& cache, Timeline& timeline, const DamageList* damage = nullptr)
        : cache_(cache), timeline_(timeline), damage_(damage)
    {
    }

    // As of `view`. An error means that the checksum tree could not be read.
    Status lookup(const View& view, VolumeAddress address, std::span<BlockExpectation> out);

    void expect(VolumeAddress address, std::span<BlockExpectation> out) override;
    void unrecoverable(VolumeAddress address) override;
    bool known_lost(VolumeAddress address) override;

private:
    NodeCache& cache_;
    Timeline& timeline_;
    const DamageList* const damage_;
};

// What is written in place belongs to a transaction like everything else.
class TransactionChecksumSink : public ChecksumSink {
public:
    // `allocator` knows what is in use; null: nobody asks. `between` learns the same.
    explicit TransactionChecksumSink(Transaction& transaction, Allocator* allocator = nullptr,
                                     Transaction* between = nullptr)
        : transaction_(transaction), allocator_(allocator), between_(between)
    {
    }
    void record(VolumeAddress address, std::span<const Checksum> checksums) override
    {
        transaction_.checksums.put(address, checksums);
        if (between_ != nullptr)
            between_->checksums.put(address, checksums);
    }
    bool in_use(VolumeAddress address) override
    {
        const Result<bool> used = allocator_ != nullptr ? allocator_->is_used(address) : Result<bool>(true);
        return !used.ok() || *used;
    }

private:
    Transaction& transaction_;
    Allocator* allocator_;
    Transaction* between_;
};

class TreeSpaceSource : public SpaceSource {
public:
    TreeSpaceSource(NodeCache& cache, Timeline& timeline) : cache_(cache), timeline_(timeline) { }
    Status load_windows(VolumeAddress group_address, std::vector<SpaceWindow>& out) override;

private:
    NodeCache& cache_;
    Timeline& timeline_;
};

}  // namespace cowraid
