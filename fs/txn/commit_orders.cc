// SPDX-License-Identifier: MIT
#include "fs/txn/commit_orders.h"

#include <utility>

#include "fs/txn/store.h"

namespace cowraid {

// A commit that had begun already does not carry it out.
Status CommitOrders::carry_out(Ref<CommitOrder> order, std::string& why)
{
    MutexLock one_at_a_time(one_at_a_time_);
    {
        MutexLock lock(mutex_);
        order_ = std::move(order);
        answer_.reset();
    }
    while (true) {
        Status status = store_.service.check_writable();
        if (status.ok())
            status = force_commit(store_);
        MutexLock lock(mutex_);
        if (answer_) {
            why = answer_->why;
            return answer_->status;
        }
        if (status.ok())
            continue;
        if (order_) {
            order_.reset();
            return status;
        }
        // A commit has taken it: the last one before the volume is read-only, or one that failed.
        while (!answer_)
            answered_.wait(mutex_);
        why = answer_->why;
        return answer_->status;
    }
}

void CommitOrders::answer(Answer answer)
{
    MutexLock lock(mutex_);
    answer_ = std::move(answer);
    answered_.notify_all();
}

bool CommitOrders::waiting(CommitOrder::When when) const
{
    MutexLock lock(mutex_);
    return order_ && order_->when == when;
}

bool CommitOrders::apply()
{
    {
        MutexLock lock(mutex_);
        applying_ = std::exchange(order_, {});
    }
    if (!applying_)
        return false;
    Answer refusal;
    refusal.status = applying_->apply(refusal.why);
    if (refusal.status.ok() && applying_->changes())
        return true;
    applying_.reset();
    answer(std::move(refusal));
    return false;
}

void CommitOrders::applied()
{
    applying_->applied();
    applying_.reset();
    answer({});
}

void CommitOrders::failed(Status status)
{
    applying_.reset();
    answer({status, {}});
}

}  // namespace cowraid
