// SPDX-License-Identifier: MIT
// Blocks that could not be had from any redundancy, by where they are. Items of the file tree keep the list
// over mounts (format/items.h, DiskDamage). A block leaves it when a scrub finds it good, or when it is
// freed; under parity, where what else its row holds lacks redundancy until the row is mended, after that
// (Scrub::mend_freed()).
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "alloc/allocator.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/units.h"
#include "format/damage_codec.h"
#include "raid56/array.h"

namespace cowraid {

struct Store;

struct DamagedRun {
    VolumeAddress first;
    uint64_t block_count = 0;
    uint64_t found_seconds = 0;  // since 1970
    // In memory alone: the scrub that found it lost, and the last one that had begun when it was listed; 0:
    // none.
    uint64_t found_by = 0, listed_in = 0;

    [[nodiscard]] VolumeAddress end() const { return first + block_count * kBlockBytes; }
};

// A part of one that is freed by the transaction. None: an earlier mount listed it, and nobody may use it.
struct FreedDamage {
    DamagedRun run;
    TransactionId freed;
};

// Thread-safe.
class DamageList {
public:
    // More are not listed; the log says so.
    static constexpr size_t kRunsMax = 65536;

    // What the items of the last commit say. An item that cannot be decoded is left out.
    Status load(Store& store);
    // A number for a scrub that begins or goes on, above all before.
    uint64_t begin_pass();
    // `found_seconds`: of a scrub, when it began; `found_by` is its number. kByReader: what is listed stays
    // as it is.
    static constexpr uint64_t kByReader = 0;
    // `group`: where that of all these blocks begins.
    void note(VolumeAddress first, uint64_t block_count, uint64_t found_seconds, uint64_t found_by,
              VolumeAddress group = {});
    // Good again, or freed and nobody's concern.
    void forget(VolumeAddress first, uint64_t block_count);
    // What is listed of them is freed by transaction `id`, or was by an earlier one, and stays listed until
    // its row is mended.
    void await_mend(VolumeAddress first, uint64_t block_count, TransactionId id);
    // There are such blocks.
    [[nodiscard]] bool awaits_mend() const { return awaiting_count_.load() > 0; }
    // Those that transactions up to `id` freed and that are due at that time, by rising address; they are the
    // caller's.
    [[nodiscard]] std::vector<FreedDamage> take_freed(TransactionId id, uint64_t now_ms);
    // Its row could not be mended: it is due again at that time.
    void give_back(const FreedDamage& freed, uint64_t due_ms);

    [[nodiscard]] bool empty() const { return block_count_.load() == 0; }
    [[nodiscard]] uint64_t block_count() const { return block_count_.load(); }
    [[nodiscard]] bool touches(VolumeAddress first, VolumeAddress end) const;
    // By rising address.
    [[nodiscard]] std::vector<DamagedRun> runs() const;

    // The items do not say all of it yet.
    [[nodiscard]] bool changed() const;
    // Whether there may be damage that it, or what is stored of it, does not name.
    [[nodiscard]] bool full() const;
    // What could not be stored is tried again with the next commit: its leaf may be readable by then.
    void retry();
    // Commit thread, before a transaction is closed: what changed becomes items of it, as many as there is
    // room for.
    void store_changes(Store& store);

private:
    using Item = std::pair<VolumeAddress, std::optional<DamageRecord>>;  // none: it goes
    bool store_some(Store& store);
    void leave_unstored(Store& store, std::vector<Item>& items);

    struct Awaiting {
        FreedDamage damage;
        uint64_t due_ms = 0;
    };

    using Runs = std::map<VolumeAddress, DamagedRun>;
    // The first run that ends behind `address`.
    [[nodiscard]] Runs::const_iterator first_behind(VolumeAddress address) const CW_REQUIRES(mutex_);
    VolumeAddress add_loaded(Store& store, DamagedRun run, VolumeAddress key);
    void set(const DamagedRun& run) CW_REQUIRES(mutex_);
    void remove(VolumeAddress first, VolumeAddress end) CW_REQUIRES(mutex_);
    void await(const Awaiting& awaiting) CW_REQUIRES(mutex_);

    mutable Mutex mutex_{LockRank::kLeaf};
    Runs runs_ CW_GUARDED_BY(mutex_);
    uint64_t passes_ CW_GUARDED_BY(mutex_) = 0;  // that have begun
    std::set<VolumeAddress> changed_ CW_GUARDED_BY(mutex_);  // runs that begin there came, changed or went
    bool full_ CW_GUARDED_BY(mutex_) = false;  // the log was told
    std::atomic<uint64_t> block_count_{0};  // changed under the mutex
    std::set<VolumeAddress> unstored_ CW_GUARDED_BY(mutex_);  // of changed_: in no commit before retry()
    bool told_unstored_ CW_GUARDED_BY(mutex_) = false;  // the log was told
    std::vector<Awaiting> awaiting_ CW_GUARDED_BY(mutex_);
    std::atomic<size_t> awaiting_count_{0};  // changed under the mutex
};

// Transaction `id` frees the blocks, or frees have let go of them before: await_mend() under parity, else
// forget().
void note_freed(Store& store, VolumeAddress first, uint64_t block_count, TransactionId id);

// As DamageList::note(), but what nobody refers to any more counts as freed: a free ends the life of
// blocks before it says so here. Reads nothing.
void note_damage(Store& store, VolumeAddress first, uint64_t block_count, uint64_t found_seconds,
                 uint64_t found_by);

// Whether the block of a piece that was read has its checksum. One that could not be had was cleared.
[[nodiscard]] bool holds_expected(const ReadPiece& piece, uint32_t block);
// Lists the blocks of it that could not be had from any redundancy, as a reader.
void note_lost(Store& store, const ReadPiece& piece);

}  // namespace cowraid
