// SPDX-License-Identifier: MIT
// The two transactions in memory, the last commit on disk, and the layered view that readers get of them.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "alloc/allocator.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "btree/tree.h"
#include "fs/txn/block_table.h"
#include "fs/txn/item_table.h"

namespace cowraid {

// Of one commit: root, checksums, free space, remap, files.
inline constexpr uint32_t kTreeCount = 5;
enum class TreeIndex : uint8_t { kRoot, kChecksums, kFreeSpace, kRemap, kFiles };
// "root", "checksum", "free-space", "remap", "file".
const char* tree_name(TreeIndex tree);

// Everything that changed since the previous transaction was closed. An operation belongs to exactly one.
struct Transaction : RefCounted<Transaction> {
    explicit Transaction(TransactionId number) : id(number) { }

    const TransactionId id;
    ItemTable items;
    BlockTable checksums;
    // Physical addresses by logical ones, and the reverse; 0: an entry that is gone (fs/txn/remap.h).
    BlockTable moved_to, moved_from;
    // Blocks of which the checksum tree forgets what it has, unless `checksums` has something: stripes that
    // are about to be discarded. The numbers mean nothing. Commit thread.
    BlockTable dropped;
    // Of block groups about to leave the map: items of the checksum and free-space trees to be erased, in key
    // order. Commit thread.
    std::vector<Key> left_checksums, left_windows;
    // How many of them the space budget counts; by anybody.
    std::atomic<uint64_t> left_count{0};
    // Nodes of the file tree that its commit moves (fs/commit/node_moves.h). Set before it is closed.
    std::atomic<uint64_t> moved_nodes{0};
    // Keys below nodes that its commit moves out of groups that are being emptied
    // (fs/maintain/node_search.h), by Committed::tree(); rising, each once. Commit thread. And how many those
    // are, by anybody.
    std::array<std::vector<Key>, kTreeCount> moved_keys;
    std::atomic<uint64_t> emptied_file_nodes{0}, emptied_system_nodes{0};
    // Stripes of which a scrub recorded something anew: windows of the free-space tree.
    std::atomic<uint64_t> rewritten_stripes{0};
    // Pieces of frames that were freed, beyond one for each item that went.
    std::atomic<uint64_t> freed_frame_runs{0};
    // By how much it changes what the volume counts of compressed extents; modulo 2^64.
    std::atomic<uint64_t> compressed_file_blocks{0}, compressed_blocks{0};
    // Something in it needs a commit: items, data, or freed space.
    std::atomic<bool> dirty{false};
    // Records of the fsync log can still tell all that happened in it since the last one. Set while the gate
    // is held exclusively, cleared for good by what no record can carry.
    std::atomic<bool> loggable{false};
};

// The trees of one durable commit. Held by readers as a pin: addresses freed by later transactions are
// reused only when no older Committed is held.
struct Committed : RefCounted<Committed> {
    Generation generation;
    TransactionId transaction;
    TreeRoot root_tree{kRootTree, {}};
    TreeRoot file_tree{kFirstFileTree, {}};
    TreeRoot checksum_tree{kChecksumTree, {}};
    TreeRoot free_space_tree{kFreeSpaceTree, {}};
    TreeRoot remap_tree{kRemapTree, {}};

    [[nodiscard]] const TreeRoot& tree(TreeIndex index) const;
};

// A consistent stack of layers, newest first. Cheap to copy; holding one pins `committed`.
struct View {
    Ref<Transaction> open;
    Ref<Transaction> committing;  // null when no commit is under way
    Ref<const Committed> committed;
};

// Frees of the commit of checksums `id` that nobody reads: nodes of the one before it. They are reused when
// it is durable, Allocator::release_only().
constexpr TransactionId unread_frees(TransactionId id)
{
    return {id.value, id.part - 1};
}

// Owner of the current view. Thread-safe.
class Timeline {
public:
    Timeline(Ref<Transaction> open, Ref<const Committed> committed);

    [[nodiscard]] View view() const;
    // What the next commit starts from: as view(), but with the trees of the last commit of checksums.
    [[nodiscard]] View commit_view() const;
    [[nodiscard]] Ref<Transaction> open() const;
    // The same for a holder of the operation gate, as long as that is held: without a lock.
    [[nodiscard]] Transaction& open_in_gate() const { return *open_now_.load(std::memory_order_acquire); }
    // What the open transaction takes of memory (Operation::end). kLittle again with the next one. Without a
    // lock; setting it is for a holder of the operation gate.
    enum class Memory : uint8_t { kLittle, kMuch, kTooMuch };
    [[nodiscard]] Memory memory() const { return memory_.load(std::memory_order_relaxed); }
    // Returns what it was.
    Memory set_memory(Memory memory) { return memory_.exchange(memory); }
    // Closes the open transaction: it becomes `committing`, a new one opens. Requires the operation gate
    // held exclusively and no commit under way.
    Ref<Transaction> close_open();
    // The commit of `committing` is durable: its trees replace the previous ones.
    void publish(Ref<const Committed> committed);
    // A commit of checksums is durable, of neither of the two transactions. Readers do not see its trees:
    // they have what it recorded from the transactions' own tables.
    void keep_between(Ref<const Committed> committed);
    // Transactions whose frees may be reused: committed, and nobody reads anything older. Each is returned
    // once, with its generation, oldest first.
    struct Released {
        TransactionId transaction;
        Generation generation;
    };
    std::vector<Released> take_released();
    // Somebody still reads a commit before the last one: what was freed since stays, whatever is committed.
    [[nodiscard]] bool reads_older();

private:
    void forget_unread() CW_REQUIRES(mutex_);

    mutable Mutex mutex_{LockRank::kSnapshot};
    Ref<Transaction> open_ CW_GUARDED_BY(mutex_);
    std::atomic<Transaction*> open_now_;  // the same
    std::atomic<Memory> memory_{Memory::kLittle};
    Ref<Transaction> committing_ CW_GUARDED_BY(mutex_);
    // Oldest first; the last is current. Older ones stay until their readers are gone.
    std::vector<Ref<const Committed>> committed_ CW_GUARDED_BY(mutex_);
    Ref<const Committed> between_ CW_GUARDED_BY(mutex_);  // the last commit of checksums since; may be null
    std::vector<Released> waiting_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
