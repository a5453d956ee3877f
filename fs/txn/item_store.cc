// SPDX-License-Identifier: MIT
#include "fs/txn/item_store.h"

#include <algorithm>

namespace cowraid {

Status ItemStore::get(const View& view, const Key& key, ItemBytes& out) const
{
    for (const Transaction* layer : {view.open.get(), view.committing.get()}) {
        if (layer == nullptr)
            continue;
        switch (layer->items.get(key, out)) {
        case ItemState::kPresent:
            return {};
        case ItemState::kErased:
            return Err::kNotFound;
        case ItemState::kAbsent:
            break;
        }
    }
    return tree_lookup(cache_, view.committed->file_tree, key, out);
}

Status ItemStore::last_at_or_before(const View& view, const Key& bound, const Key& floor, Key& found,
                                    ItemBytes& out) const
{
    Key limit = bound;
    while (true) {
        // The greatest key of any layer; the newest layer that has it decides what it means.
        bool any = false;
        ItemState state = ItemState::kAbsent;
        for (const Transaction* layer : {view.open.get(), view.committing.get()}) {
            Key key;
            ItemBytes value;
            const ItemState here =
                layer == nullptr ? ItemState::kAbsent : layer->items.last_at_or_before(limit, key, value);
            if (here == ItemState::kAbsent || key < floor || (any && key <= found))
                continue;
            any = true;
            found = key;
            state = here;
            out = std::move(value);
        }
        TreeCursor cursor(cache_, view.committed->file_tree);
        CW_TRY(cursor.seek_before(limit));
        if (cursor.valid() && cursor.key() >= floor && (!any || cursor.key() > found)) {
            any = true;
            found = cursor.key();
            state = ItemState::kPresent;
            out.assign(cursor.payload().begin(), cursor.payload().end());
        }
        if (!any)
            return Err::kNotFound;
        if (state == ItemState::kPresent)
            return {};
        if (found == floor || found.offset == 0)
            return Err::kNotFound;
        limit = {found.object, found.type, found.offset - 1};
    }
}

ItemScan::ItemScan(const ItemStore& store, View view, const Key& first, const Key& last)
    : view_(std::move(view)), cursor_(store.cache(), view_.committed->file_tree), from_(first), last_(last)
{
}

Status ItemScan::step_tree(const Key& from)
{
    if (!cursor_started_) {
        cursor_started_ = true;
        return cursor_.seek(from);
    }
    while (cursor_.valid() && cursor_.key() < from)
        CW_TRY(cursor_.next());
    return {};
}

Status ItemScan::next()
{
    while (!exhausted_) {
        bool any = false;
        ItemState state = ItemState::kAbsent;
        for (const Transaction* layer : {view_.open.get(), view_.committing.get()}) {
            Key key;
            ItemBytes value;
            const ItemState here =
                layer == nullptr ? ItemState::kAbsent : layer->items.first_at_or_after(from_, key, value);
            if (here == ItemState::kAbsent || (any && key >= key_))
                continue;
            any = true;
            key_ = key;
            state = here;
            value_ = std::move(value);
        }
        CW_TRY(step_tree(from_));
        if (cursor_.valid() && (!any || cursor_.key() < key_)) {
            any = true;
            key_ = cursor_.key();
            state = ItemState::kPresent;
            value_.assign(cursor_.payload().begin(), cursor_.payload().end());
        }
        if (!any || key_ > last_) {
            exhausted_ = true;
            break;
        }
        from_ = next_key(key_);
        exhausted_ = from_ == key_;
        if (state == ItemState::kPresent)
            return {};
    }
    return Err::kNotFound;
}

}  // namespace cowraid
