// SPDX-License-Identifier: MIT
// Who is next of what many users ask for.
#pragma once

#include <sys/types.h>

#include <deque>
#include <unordered_map>
#include <utility>

namespace cowraid {

// Users take turns; what one user asks for keeps its order. So nobody waits for all that somebody else has
// asked for. The WRITEs of pages carry no user: they are root's. Not thread-safe.
template <typename Item> class Turns {
public:
    [[nodiscard]] bool empty() const { return users_.empty(); }
    void push(uid_t user, Item item)
    {
        std::deque<Item>& own = items_[user];
        if (own.empty())
            users_.push_back(user);
        own.push_back(std::move(item));
    }
    // Requires !empty().
    Item take()
    {
        const uid_t user = users_.front();
        users_.pop_front();
        const auto own = items_.find(user);
        Item item = std::move(own->second.front());
        own->second.pop_front();
        if (own->second.empty())
            items_.erase(own);
        else
            users_.push_back(user);
        return item;
    }

private:
    std::unordered_map<uid_t, std::deque<Item>> items_;  // none is empty
    std::deque<uid_t> users_;  // who has some, in the order of their turns
};

}  // namespace cowraid
