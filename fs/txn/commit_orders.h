// SPDX-License-Identifier: MIT
// Changes of the volume itself, by order of a user: made between two commits, durable before the answer.
#pragma once

#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/ref.h"
#include "base/status.h"

namespace cowraid {

struct Store;

class CommitOrder : public RefCounted<CommitOrder> {
public:
    // Before what is open is committed, or right after: then all that was written before it was given is in
    // the last commit, which began later.
    enum class When : uint8_t { kBefore, kAfter };

    explicit CommitOrder(When moment = When::kBefore) : when(moment) { }
    virtual ~CommitOrder() = default;
    // Commit thread, no commit under way. Changes what the next superblock and map say; refused, nothing.
    // `why`: one line for the user.
    virtual Status apply(std::string& why) = 0;
    // Whether there is a new superblock; else apply() only looks, and is answered at once.
    [[nodiscard]] virtual bool changes() const { return true; }
    // Commit thread: that superblock is durable.
    virtual void applied() { }

    const When when;
};

// One order at a time.
class CommitOrders {
public:
    explicit CommitOrders(Store& store) : store_(store) { }

    // Any thread without locks. Returns when the order is durable, or refused: what apply() says. kReadOnly,
    // kShutdown: the volume takes no changes.
    Status carry_out(Ref<CommitOrder> order, std::string& why);

    [[nodiscard]] bool waiting(CommitOrder::When when) const;
    // Commit thread, no commit under way. True: the next superblock says something new, and applied() is due
    // when it is durable, or failed() when it cannot be written.
    bool apply();
    void applied();
    void failed(Status status);

private:
    struct Answer {
        Status status;
        std::string why;
    };
    void answer(Answer answer);

    Store& store_;
    Mutex one_at_a_time_{LockRank::kScrub};
    mutable Mutex mutex_{LockRank::kLeaf};
    Ref<CommitOrder> order_ CW_GUARDED_BY(mutex_);
    std::optional<Answer> answer_ CW_GUARDED_BY(mutex_);
    CondVar answered_;
    Ref<CommitOrder> applying_;  // commit thread
};

}  // namespace cowraid
