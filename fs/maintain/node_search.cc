// SPDX-License-Identifier: MIT
#include "fs/maintain/node_search.h"

#include <algorithm>

#include "btree/key_range.h"

namespace cowraid {

namespace {

constexpr uint64_t kNodesRead = 4096;

// Of one tree.
class NodeSearch {
public:
    NodeSearch(Store& store, const std::set<VolumeAddress>& groups, uint64_t count, std::vector<Key>& keys)
        : store_(store), groups_(groups), left_(count), keys_(keys)
    {
    }
    // From `from` on. True: to the end; else `next` is where to go on.
    Result<bool> run(const TreeRoot& tree, const Key& from, Key& next);
    [[nodiscard]] uint64_t left() const { return left_; }

private:
    Result<bool> descend(const BlockRef& ref, const Key& key, int level, const KeyRange& range,
                         bool resuming);
    Result<bool> look_below(const Node& node, const KeyRange& range, bool resuming);

    Store& store_;
    const std::set<VolumeAddress>& groups_;
    uint64_t left_, reads_left_ = kNodesRead;
    std::vector<Key>& keys_;
    uint64_t tree_id_ = 0;
    Key from_{}, next_{};
};

// `key` is below the node, `resuming`: the node itself was looked at before, and children before the
// position. False: enough. A node that is found is read, too: the commit that moves it must be able to.
Result<bool> NodeSearch::descend(const BlockRef& ref, const Key& key, int level, const KeyRange& range,
                                 bool resuming)
{
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(ref.address);
    const bool found = !resuming && group && groups_.count(group->record.address) != 0;
    if (level == 0 && !found)
        return true;
    CW_ASSIGN(const Ref<const Node> node, read_inside(store_.cache, ref, tree_id_, level, range));
    reads_left_ -= reads_left_ > 0 ? 1 : 0;
    if (found) {
        left_ -= left_ > 0 ? 1 : 0;
        keys_.push_back(key);
    }
    return node->is_leaf() ? Result<bool>(true) : look_below(*node, range, resuming);
}

Result<bool> NodeSearch::look_below(const Node& node, const KeyRange& range, bool resuming)
{
    const uint32_t first = resuming ? node.child_for(from_) : 0;
    for (uint32_t index = first; index < node.item_count(); ++index) {
        const bool inside = resuming && index == first && node.key(index) < from_;
        if ((left_ == 0 || reads_left_ == 0) && !inside) {
            next_ = node.key(index);
            return false;
        }
        // Where to go on if it cannot be read.
        next_ = index + 1 < node.item_count() ? node.key(index + 1) : next_;
        CW_ASSIGN(const bool ended,
                  descend(node.child(index), node.key(index), static_cast<int>(node.level()) - 1,
                          child_range(node, index, range), inside));
        if (!ended)
            return false;
    }
    return true;
}

Result<bool> NodeSearch::run(const TreeRoot& tree, const Key& from, Key& next)
{
    if (!tree.root.address.valid())
        return true;
    tree_id_ = tree.tree_id;
    from_ = from;
    next_ = kMaxKey;
    Result<bool> ended = descend(tree.root, Key{}, -1, {}, from != Key{});
    next = next_;
    return ended;
}

}  // namespace

Status find_nodes(Store& store, const View& view, const std::set<VolumeAddress>& groups, uint64_t count,
                  NodePosition& position, std::array<std::vector<Key>, kTreeCount>& keys)
{
    while (position.tree < kTreeCount && count > 0) {
        if (position.tree == static_cast<uint32_t>(TreeIndex::kRoot)) {
            ++position.tree;
            continue;
        }
        std::vector<Key>& found = keys[position.tree];
        NodeSearch search(store, groups, count, found);
        const TreeRoot& tree = view.committed->tree(static_cast<TreeIndex>(position.tree));
        const Result<bool> ended = search.run(tree, position.key, position.key);
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        count = search.left();
        const bool whole = ended.ok() ? *ended : position.key == kMaxKey;
        if (whole)
            position = {position.tree + 1, {}};
        CW_TRY(ended.status());
        if (!whole)
            break;
    }
    return {};
}

}  // namespace cowraid
