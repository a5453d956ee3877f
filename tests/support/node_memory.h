// SPDX-License-Identifier: MIT
// For tests and the bench: nodes in memory by address, and whole commits against them.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "btree/cow_tree.h"
#include "btree/tree.h"

namespace cowraid {

inline Uuid test_uuid()
{
    Uuid uuid;
    for (size_t i = 0; i < uuid.bytes.size(); ++i)
        uuid.bytes[i] = static_cast<uint8_t>(i + 1);
    return uuid;
}

class TestStore : public NodeReader {
public:
    Status read_node(const BlockRef& ref, uint64_t, AlignedBuffer& out) override
    {
        MutexLock lock(mutex_);
        ++reads_;
        if (fail_after_ > 0 && --fail_after_ == 0)
            return Err::kIo;
        const auto found = nodes_.find(ref.address.value);
        if (found == nodes_.end())
            return Err::kIo;
        std::copy(found->second.begin(), found->second.end(), out.data());
        return {};
    }

    void write(const Node& node)
    {
        write(node.block_ref().address, {node.content().begin(), node.content().end()});
    }
    void write(VolumeAddress address, std::vector<std::byte> content)
    {
        MutexLock lock(mutex_);
        nodes_[address.value] = std::move(content);
    }
    void erase(VolumeAddress address)
    {
        MutexLock lock(mutex_);
        nodes_.erase(address.value);
        free_.push_back(address);
    }
    // An address that holds nothing: one that was freed, or a new one.
    VolumeAddress allocate(Prng& random)
    {
        MutexLock lock(mutex_);
        if (!free_.empty() && random.chance(1, 2)) {
            std::swap(free_[random.below(free_.size())], free_.back());
            const VolumeAddress address = free_.back();
            free_.pop_back();
            return address;
        }
        next_ = next_ + kNodeBytes;
        return next_;
    }
    void give_back(VolumeAddress address)
    {
        MutexLock lock(mutex_);
        free_.push_back(address);
    }

    // The n-th read from now fails, once. 0: none.
    void fail_read(uint64_t n)
    {
        MutexLock lock(mutex_);
        fail_after_ = n;
    }
    uint64_t reads()
    {
        MutexLock lock(mutex_);
        return reads_;
    }
    // For single-threaded use.
    std::map<uint64_t, std::vector<std::byte>>& nodes() CW_NO_THREAD_SAFETY_ANALYSIS { return nodes_; }

private:
    Mutex mutex_{LockRank::kLeaf};
    std::map<uint64_t, std::vector<std::byte>> nodes_ CW_GUARDED_BY(mutex_);
    std::vector<VolumeAddress> free_ CW_GUARDED_BY(mutex_);
    VolumeAddress next_ CW_GUARDED_BY(mutex_){1 * kMiB};
    uint64_t reads_ CW_GUARDED_BY(mutex_) = 0;
    uint64_t fail_after_ CW_GUARDED_BY(mutex_) = 0;
};

// Gives every new node an address; returns the addresses.
inline std::vector<VolumeAddress> assign_all(CowTree& tree, TestStore& store, Prng& random)
{
    std::vector<VolumeAddress> addresses(tree.unassigned_count());
    for (VolumeAddress& address : addresses)
        address = store.allocate(random);
    tree.assign(addresses);
    return addresses;
}

// Ends a commit: seals, writes and caches the new nodes, erases the freed ones. Returns the new root.
inline TreeRoot commit(CowTree& tree, NodeCache& cache, TestStore& store, Prng& random, Generation generation)
{
    assign_all(tree, store, random);
    std::vector<Ref<const Node>> nodes;
    const TreeRoot root = tree.seal(generation, test_uuid(), nodes).take();
    for (const Ref<const Node>& node : nodes) {
        store.write(*node);
        cache.insert(node);
    }
    for (const BlockRef& ref : tree.take_freed()) {
        cache.drop(ref.address);
        store.erase(ref.address);
    }
    for (const VolumeAddress address : tree.take_released())
        store.give_back(address);
    return root;
}

}  // namespace cowraid
