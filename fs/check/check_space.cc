// SPDX-License-Identifier: MIT
// The free-space tree against what is referenced: every window bit for bit, every summary.
#include <algorithm>

#include "alloc/row_mask.h"
#include "format/tree_codec.h"
#include "fs/check/check_passes.h"
#include "fs/txn/block_state.h"

namespace cowraid {

namespace {

// The first walk: nodes only.
class SpaceNodes final : public TreeVisitor {
public:
    explicit SpaceNodes(CheckContext& context) : watch_(context, kGroupSystem) { }

    void node(const Node& node) override { watch_.node(node); }
    void problem(const std::string& text) override { watch_.problem(text); }
    void item(const Key&, std::span<const std::byte>) override { }
    [[nodiscard]] bool whole() const { return watch_.whole(); }

private:
    NodeWatch watch_;
};

// The second walk: groups by rising address, windows by rising stripe. Groups and windows without an item
// hold nothing.
class SpaceItems final : public TreeVisitor {
public:
    explicit SpaceItems(CheckContext& context)
        : context_(context), groups_(context.census.groups()), summaries_(groups_.size())
    {
    }

    void node(const Node&) override { }
    void problem(const std::string&) override { }  // reported by the first walk
    void item(const Key& key, std::span<const std::byte> payload) override;
    void finish();

private:
    void summary_item(const Key& key, std::span<const std::byte> payload);
    void window_item(const Key& key, std::span<const std::byte> payload);
    void go_to(size_t group, uint64_t stripe);
    void expect_free(uint64_t first_stripe, uint64_t end_stripe);
    void compare(const BlockCensus::Group& group, const SpaceWindow& window);
    void check_summary(size_t index);
    [[nodiscard]] size_t find(uint64_t group_address) const;

    CheckContext& context_;
    const std::vector<BlockCensus::Group>& groups_;
    std::vector<std::optional<GroupUsage>> summaries_;  // of groups_
    size_t group_ = 0;  // the windows below this place were seen
    uint64_t stripe_ = 0;
};

size_t SpaceItems::find(uint64_t group_address) const
{
    const auto at = std::lower_bound(
        groups_.begin(), groups_.end(), group_address,
        [](const BlockCensus::Group& group, uint64_t wanted) { return group.address().value < wanted; });
    return at != groups_.end() && at->address().value == group_address
               ? static_cast<size_t>(at - groups_.begin())
               : groups_.size();
}

void SpaceItems::item(const Key& key, std::span<const std::byte> payload)
{
    if (key.object == 0 && key.type == static_cast<uint8_t>(ItemType::kGroupSummary))
        summary_item(key, payload);
    else if (key.type == static_cast<uint8_t>(ItemType::kSpaceWindow))
        window_item(key, payload);
    else
        context_.findings.add("tree", {}, "free-space tree: an item of unknown kind (%llu %u %llu)",
                              as_ull(key.object), unsigned{key.type}, as_ull(key.offset));
}

void SpaceItems::summary_item(const Key& key, std::span<const std::byte> payload)
{
    const size_t index = find(key.offset);
    const Result<GroupUsage> usage = decode_group_usage({key.offset}, payload);
    if (index == groups_.size() || !usage.ok()) {
        context_.findings.add("space", {key.offset}, "a summary of an unknown block group, or of wrong size");
        return;
    }
    summaries_[index] = *usage;
}

// Blocks of the current group that no window speaks of.
void SpaceItems::expect_free(uint64_t first_stripe, uint64_t end_stripe)
{
    const BlockCensus::Group& group = groups_[group_];
    const uint64_t stripe_blocks = group.geometry().stripe_data_blocks();
    const uint64_t count =
        group.used.count(first_stripe * stripe_blocks, (end_stripe - first_stripe) * stripe_blocks);
    if (count > 0 && context_.space_tree_whole)
        context_.findings.add("space", group.address(),
                              "%llu blocks of stripes %llu to %llu are in use, but recorded as free",
                              as_ull(count), as_ull(first_stripe), as_ull(end_stripe - 1));
}

void SpaceItems::go_to(size_t group, uint64_t stripe)
{
    for (; group_ < group; ++group_, stripe_ = 0)
        expect_free(stripe_, groups_[group_].geometry().stripe_count());
    if (group_ < groups_.size() && stripe > stripe_)
        expect_free(stripe_, stripe);
    stripe_ = std::max(stripe_, stripe);
}

void SpaceItems::compare(const BlockCensus::Group& group, const SpaceWindow& window)
{
    const uint64_t first = window.first_stripe * group.geometry().stripe_data_blocks();
    std::vector<uint8_t> referenced((size_t{window.block_count} + 7) / 8);
    group.used.store(first, window.block_count, referenced);
    uint32_t lost = 0;
    uint32_t leaked = 0;
    uint32_t first_wrong = window.block_count;
    for (uint32_t block = 0; block < window.block_count; ++block) {
        const bool recorded =
            window.bitmap.empty() ? window.used_count != 0 : (window.bitmap[block / 8] >> block % 8 & 1) != 0;
        const bool used = (referenced[block / 8] >> block % 8 & 1) != 0;
        if (recorded == used || (recorded && !context_.trees_whole))
            continue;
        lost += used;
        leaked += recorded;
        first_wrong = std::min(first_wrong, block);
    }
    const VolumeAddress address = group.address() + (first + first_wrong) * kBlockBytes;
    if (lost > 0)
        context_.findings.add("space", address, "%u blocks of one window are in use, but recorded as free",
                              lost);
    if (leaked > 0)
        context_.findings.add("space", address, "%u blocks of one window are recorded as used by nothing",
                              leaked);
}

void SpaceItems::window_item(const Key& key, std::span<const std::byte> payload)
{
    const size_t index = find(key.object);
    if (index == groups_.size()) {
        context_.findings.add("space", {key.object}, "a window of an unknown block group");
        return;
    }
    const BlockCensus::Group& group = groups_[index];
    const Geometry& geometry = group.geometry();
    const uint64_t step = window_stripes(geometry);
    const uint64_t stripe = key.offset;
    const Result<SpaceWindow> window = decode_space_window(group.address(), stripe, payload);
    const bool placed = stripe % step == 0 && stripe < geometry.stripe_count() &&
                        (index > group_ || (index == group_ && stripe >= stripe_));
    const uint64_t end = placed ? std::min(stripe + step, geometry.stripe_count()) : 0;
    if (placed)
        go_to(index, stripe);
    if (!placed || !window.ok() || window->block_count != (end - stripe) * geometry.stripe_data_blocks() ||
        window->last_write > context_.generation()) {
        context_.findings.add("space", group.address(), "the window of stripe %llu is not one",
                              as_ull(stripe));
        stripe_ = std::max(stripe_, end);
        return;
    }
    compare(group, *window);
    stripe_ = end;
}

void SpaceItems::check_summary(size_t index)
{
    const BlockCensus::Group& group = groups_[index];
    const Geometry& geometry = group.geometry();
    const GroupUsage empty{group.address(), 0, geometry.row_count(), geometry.stripe_count()};
    GroupUsage usage = empty;
    usage.used_blocks = group.used.count(0, geometry.data_blocks());
    for (uint64_t stripe = group.next_used_stripe(0); stripe < geometry.stripe_count();
         stripe = group.next_used_stripe(stripe + 1)) {
        usage.free_rows -= geometry.rows() - stripe_state(group.used, geometry, stripe).free_rows;
        --usage.free_stripes;
    }
    const GroupUsage recorded = summaries_[index].value_or(empty);
    if (recorded.used_blocks != usage.used_blocks || recorded.free_rows != usage.free_rows ||
        recorded.free_stripes != usage.free_stripes)
        context_.findings.add("space", group.address(),
                              "summary: %llu blocks used, %llu rows and %llu stripes free; counted: %llu, "
                              "%llu and %llu",
                              as_ull(recorded.used_blocks), as_ull(recorded.free_rows),
                              as_ull(recorded.free_stripes), as_ull(usage.used_blocks),
                              as_ull(usage.free_rows), as_ull(usage.free_stripes));
}

void SpaceItems::finish()
{
    go_to(groups_.size(), 0);
    if (!context_.trees_whole)
        return;
    for (size_t index = 0; index < groups_.size(); ++index)
        check_summary(index);
}

}  // namespace

void check_space_nodes(CheckContext& context, const TreeRoot& tree)
{
    SpaceNodes check(context);
    check_tree(context.cache, tree, check).ignore();  // problems went to the visitor
    context.space_tree_whole = check.whole();
}

void check_space_windows(CheckContext& context, const TreeRoot& tree)
{
    SpaceItems check(context);
    check_tree(context.cache, tree, check).ignore();  // problems were reported by the first walk
    check.finish();
}

}  // namespace cowraid
