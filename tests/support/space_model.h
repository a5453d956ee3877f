// SPDX-License-Identifier: MIT
// For tests: the free-space tree as a map, and the allocator's rules said again block by block.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "alloc/allocator.h"
#include "base/random.h"

namespace cowraid {

GroupRecord test_group(VolumeAddress address, ProfileId profile, uint32_t data_columns, uint32_t chunk_bytes,
                       uint64_t stripe_count, uint32_t content);
GroupUsage all_free(const GroupRecord& group);

// What commits recorded.
class TestDisk : public SpaceSource {
public:
    using Key = std::pair<uint64_t, uint64_t>;  // group address, first stripe

    Status load_windows(VolumeAddress group_address, std::vector<SpaceWindow>& out) override;
    // Records what collect() returned for the commit `generation`. False when a window or summary was
    // returned that is as it was.
    bool record(const std::vector<SpaceWindow>& changed, const std::vector<GroupUsage>& summaries,
                Generation generation);
    // Whether the window that holds the block says it is used.
    [[nodiscard]] bool is_used(const GroupRecord& group, uint64_t block) const;
    [[nodiscard]] GroupUsage usage(const GroupRecord& group) const;

    std::map<Key, SpaceWindow> windows;
    std::map<uint64_t, GroupUsage> usages;
    uint64_t loads = 0;
    Status fails;  // what load_windows() answers
};

// Every block by itself.
struct ModelBlock {
    enum class State : uint8_t { kFree, kLive, kFreed };
    State state = State::kFree;
    TransactionId allocated;
    TransactionId freed;

    // Whether a commit of `transaction` refers to it.
    [[nodiscard]] bool recorded(TransactionId transaction) const;
};

struct ModelGroup {
    GroupRecord record;
    Geometry geometry;
    Allocator::GroupState state = Allocator::GroupState::kOpen;
    std::vector<ModelBlock> blocks;
    std::vector<Generation> last_write;  // of each window, as committed

    [[nodiscard]] bool row_free(uint64_t stripe, uint32_t row) const;
    // Free blocks in rows that hold others.
    [[nodiscard]] uint64_t partial_row_blocks() const;
    // Units of `unit_blocks` that could be placed by the rules of allocate().
    [[nodiscard]] uint64_t room(uint32_t unit_blocks) const;
    [[nodiscard]] GroupUsage recorded_usage(TransactionId transaction) const;
};

struct Model {
    std::vector<ModelGroup> groups;

    [[nodiscard]] ModelGroup* at(VolumeAddress address);
    // Units a stream could still get.
    [[nodiscard]] uint64_t room(uint32_t content, uint32_t unit_blocks) const;
    // Checks regions against the rules and takes them. Null, or what is wrong.
    const char* take(const std::vector<RowRegion>& regions, uint32_t content, uint32_t unit_blocks,
                     uint64_t unit_count, TransactionId transaction);
    // The same for allocate_in_partial_rows().
    const char* take_of_partial_rows(const std::vector<BlockRun>& runs, TransactionId transaction);
    void free_blocks(ModelGroup& group, uint64_t first, uint64_t count, TransactionId transaction);
    // `transaction` and earlier ones are released.
    void release(TransactionId transaction);
    // After a crash: what `transaction` recorded is used, nothing else.
    void crash(TransactionId transaction);
    [[nodiscard]] SpaceNumbers numbers(uint32_t content) const;
};

}  // namespace cowraid
