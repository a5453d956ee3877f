// SPDX-License-Identifier: MIT
// Shards by address, CLOCK within a shard, one budget for all: eviction takes the shards in turn, so that
// together they approximate one clock.
#include "btree/node_cache.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace cowraid {

namespace {

constexpr uint32_t kShardCount = 64;
// How many entries one insertion looks at for something to evict. While most nodes are pinned the cache
// stays over its budget instead of being searched again and again.
constexpr uint64_t kInsertStepLimit = 128;

// A miss being read. Readers of the same node wait for its outcome instead of reading it again.
struct Load : RefCounted<Load> {
    Load(const BlockRef& wanted_ref, uint64_t wanted_tree, int wanted_level)
        : wanted(wanted_ref), tree_id(wanted_tree), level(wanted_level)
    {
    }

    const BlockRef wanted;
    const uint64_t tree_id;
    const int level;
    // The rest is guarded by the shard's mutex.
    bool done = false;
    bool cacheable = true;  // false once the address was dropped or rewritten meanwhile
    Err err = Err::kOk;
    Ref<const Node> node;
};

struct Entry {
    Ref<const Node> node;
    bool recently_used;
};

// What one cached node costs: its content, the object and its share of table and clock.
constexpr uint64_t kEntryBytes = kNodeBytes + sizeof(Node) + sizeof(Entry) + 64;

bool matches(const Node& node, uint64_t tree_id, int level)
{
    return node.tree_id() == tree_id && (level < 0 || node.level() == static_cast<uint32_t>(level));
}

}  // namespace

struct NodeCache::Shard {
    // Also held while node_count_ follows a change of this shard, so that the count never drops below zero.
    mutable Mutex mutex{LockRank::kNodeCache};
    CondVar load_done;
    std::unordered_map<uint64_t, uint32_t> index CW_GUARDED_BY(mutex);  // address -> place in entries
    std::vector<Entry> entries CW_GUARDED_BY(mutex);
    uint32_t hand CW_GUARDED_BY(mutex) = 0;
    std::vector<Ref<Load>> loads CW_GUARDED_BY(mutex);
    uint64_t hits CW_GUARDED_BY(mutex) = 0;
    uint64_t misses CW_GUARDED_BY(mutex) = 0;

    // The entry of an address; null when absent.
    Entry* find(VolumeAddress address) CW_REQUIRES(mutex)
    {
        const auto found = index.find(address.value);
        return found == index.end() ? nullptr : &entries[found->second];
    }

    // Adds or replaces. Returns how many entries were added.
    uint32_t put(Ref<const Node> node) CW_REQUIRES(mutex)
    {
        const uint64_t address = node->block_ref().address.value;
        const auto [place, added] = index.try_emplace(address, static_cast<uint32_t>(entries.size()));
        if (added)
            entries.push_back({std::move(node), false});
        else
            entries[place->second] = {std::move(node), true};
        return added ? 1 : 0;
    }

    // Returns the node, so that its memory is freed without the mutex.
    Ref<const Node> remove(uint32_t place) CW_REQUIRES(mutex)
    {
        Ref<const Node> node = std::move(entries[place].node);
        index.erase(node->block_ref().address.value);
        if (place + 1 != entries.size()) {
            entries[place] = std::move(entries.back());
            index[entries[place].node->block_ref().address.value] = place;
        }
        entries.pop_back();
        return node;
    }

    // Looks at the entry under the hand: gives it up when nobody holds it or used it since the last round.
    Ref<const Node> evict_step() CW_REQUIRES(mutex)
    {
        if (entries.empty())
            return {};
        if (hand >= entries.size())
            hand = 0;
        Entry& entry = entries[hand];
        // A count of one is the cache's own, and new holders need the mutex: it cannot rise meanwhile.
        if (std::exchange(entry.recently_used, false) || entry.node->reference_count() > 1) {
            ++hand;
            return {};
        }
        return remove(hand);
    }

    Load* find_load(const BlockRef& ref, uint64_t tree_id, int level) CW_REQUIRES(mutex)
    {
        for (const Ref<Load>& load : loads) {
            if (load->wanted == ref && load->tree_id == tree_id && load->level == level && load->cacheable)
                return load.get();
        }
        return nullptr;
    }

    // Publishes the outcome of a miss. Returns how many entries were added.
    uint32_t finish(Load& load, const Result<Ref<const Node>>& read) CW_REQUIRES(mutex)
    {
        uint32_t added = 0;
        load.done = true;
        load.err = read.err();
        if (read.ok()) {
            load.node = *read;
            const Entry* entry = find(load.wanted.address);
            const bool newest =
                entry == nullptr || entry->node->block_ref().generation <= load.wanted.generation;
            if (load.cacheable && newest)
                added = put(load.node);
        }
        std::erase_if(loads, [&load](const Ref<Load>& other) { return other.get() == &load; });
        load_done.notify_all();
        return added;
    }

    void forget_loads(VolumeAddress address) CW_REQUIRES(mutex)
    {
        for (const Ref<Load>& load : loads) {
            if (load->wanted.address == address)
                load->cacheable = false;
        }
    }
};

NodeCache::NodeCache(NodeReader& reader, const Uuid& volume_uuid, uint64_t budget_bytes)
    : reader_(reader),
      volume_uuid_(volume_uuid),
      budget_bytes_(budget_bytes),
      shards_(std::make_unique<Shard[]>(kShardCount))
{
}

NodeCache::~NodeCache() = default;

NodeCache::Shard& NodeCache::shard_of(VolumeAddress address) const
{
    // Fibonacci hashing: neighbours spread over all shards.
    static_assert(kShardCount == 64, "the shift leaves six bits");
    return shards_[(address.value / kBlockBytes * 0x9E3779B97F4A7C15) >> 58];
}

Result<Ref<const Node>> NodeCache::get(const BlockRef& ref, uint64_t tree_id, int level)
{
    Shard& shard = shard_of(ref.address);
    Ref<Load> load;
    {
        MutexLock lock(shard.mutex);
        Entry* entry = shard.find(ref.address);
        if (entry != nullptr && entry->node->block_ref() == ref) {
            ++shard.hits;
            entry->recently_used = true;
            if (!matches(*entry->node, tree_id, level))
                return Err::kCorrupt;
            return entry->node;
        }
        load = Ref<Load>(shard.find_load(ref, tree_id, level));
        if (load) {
            ++shard.hits;
            while (!load->done)
                shard.load_done.wait(shard.mutex);
            if (load->err != Err::kOk)
                return load->err;
            return load->node;
        }
        ++shard.misses;
        load = make_ref<Load>(ref, tree_id, level);
        shard.loads.push_back(load);
    }
    Result<Ref<const Node>> read = read_and_parse(ref, tree_id, level);
    {
        MutexLock lock(shard.mutex);
        node_count_.fetch_add(shard.finish(*load, read), std::memory_order_relaxed);
    }
    shrink_to_budget(kInsertStepLimit);
    return read;
}

Result<Ref<const Node>> NodeCache::read_and_parse(const BlockRef& ref, uint64_t tree_id, int level)
{
    if (!ref.address.valid())
        return Err::kCorrupt;
    AlignedBuffer content(kNodeBytes);
    CW_TRY(reader_.read_node(ref, tree_id, content));
    return Node::parse(std::move(content), ref, volume_uuid_, tree_id, level);
}

void NodeCache::insert(Ref<const Node> node)
{
    const VolumeAddress address = node->block_ref().address;
    Shard& shard = shard_of(address);
    {
        MutexLock lock(shard.mutex);
        shard.forget_loads(address);
        node_count_.fetch_add(shard.put(std::move(node)), std::memory_order_relaxed);
    }
    shrink_to_budget(kInsertStepLimit);
}

void NodeCache::drop(VolumeAddress address)
{
    Ref<const Node> dropped;
    Shard& shard = shard_of(address);
    MutexLock lock(shard.mutex);
    shard.forget_loads(address);
    const auto found = shard.index.find(address.value);
    if (found == shard.index.end())
        return;
    dropped = shard.remove(found->second);
    node_count_.fetch_sub(1, std::memory_order_relaxed);
}

void NodeCache::set_budget(uint64_t bytes)
{
    budget_bytes_.store(bytes, std::memory_order_relaxed);
    // Shards are not equally full: each may be asked as often as the fullest needs for two rounds.
    uint64_t fullest = 0;
    for (uint32_t i = 0; i < kShardCount; ++i) {
        MutexLock lock(shards_[i].mutex);
        fullest = std::max<uint64_t>(fullest, shards_[i].entries.size());
    }
    shrink_to_budget((2 * fullest + 1) * kShardCount);
}

// Asks the shards in turn to give up a node; gives up itself after `step_limit` questions in a row in vain.
void NodeCache::shrink_to_budget(uint64_t step_limit)
{
    uint64_t in_vain = 0;
    while (in_vain < step_limit && node_count_.load(std::memory_order_relaxed) * kEntryBytes >
                                       budget_bytes_.load(std::memory_order_relaxed)) {
        Shard& shard = shards_[next_shard_.fetch_add(1, std::memory_order_relaxed) % kShardCount];
        Ref<const Node> evicted;
        MutexLock lock(shard.mutex);
        evicted = shard.evict_step();
        if (evicted)
            node_count_.fetch_sub(1, std::memory_order_relaxed);
        in_vain = evicted ? 0 : in_vain + 1;
    }
}

void NodeCache::clear()
{
    for (uint32_t i = 0; i < kShardCount; ++i) {
        Shard& shard = shards_[i];
        std::vector<Ref<const Node>> dropped;
        MutexLock lock(shard.mutex);
        for (uint32_t place = 0; place < shard.entries.size();) {
            if (shard.entries[place].node->reference_count() > 1) {
                ++place;
                continue;
            }
            dropped.push_back(shard.remove(place));
            node_count_.fetch_sub(1, std::memory_order_relaxed);
        }
    }
}

NodeCache::Statistics NodeCache::statistics() const
{
    Statistics sum{};
    for (uint32_t i = 0; i < kShardCount; ++i) {
        const Shard& shard = shards_[i];
        MutexLock lock(shard.mutex);
        sum.hits += shard.hits;
        sum.misses += shard.misses;
        sum.bytes += shard.entries.size() * kEntryBytes;
    }
    return sum;
}

}  // namespace cowraid
