// SPDX-License-Identifier: MIT
// Items of the file tree through all layers: open transaction, committing transaction, committed tree.
#pragma once

#include "base/status.h"
#include "btree/node_cache.h"
#include "btree/tree.h"
#include "fs/txn/transaction.h"

namespace cowraid {

class ItemStore {
public:
    ItemStore(NodeCache& cache, Timeline& timeline) : cache_(cache), timeline_(timeline) { }

    [[nodiscard]] View view() const { return timeline_.view(); }
    // kNotFound when there is no such item. May read nodes from members.
    Status get(const View& view, const Key& key, ItemBytes& out) const;
    Status get(const Key& key, ItemBytes& out) const { return get(view(), key, out); }
    // The item with the greatest key <= `bound` and >= `floor` (same object as bound); kNotFound.
    Status last_at_or_before(const View& view, const Key& bound, const Key& floor, Key& found,
                             ItemBytes& out) const;
    [[nodiscard]] NodeCache& cache() const { return cache_; }

private:
    NodeCache& cache_;
    Timeline& timeline_;
};

// Walks the items of one object in key order through all layers, as of the view it was made with.
class ItemScan {
public:
    // Items with first <= key <= last; both keys have the same object.
    ItemScan(const ItemStore& store, View view, const Key& first, const Key& last);

    // Stands on the next item; kNotFound at the end. The first call stands on the first item.
    Status next();
    [[nodiscard]] const Key& key() const { return key_; }
    [[nodiscard]] const ItemBytes& value() const { return value_; }

private:
    Status step_tree(const Key& from);

    View view_;
    TreeCursor cursor_;
    bool cursor_started_ = false;
    Key from_;
    Key last_;
    bool exhausted_ = false;
    Key key_;
    ItemBytes value_;
};

}  // namespace cowraid
