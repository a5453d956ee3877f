// SPDX-License-Identifier: MIT
#include "fs/txn/transaction.h"

#include "base/assert.h"

namespace cowraid {

const char* tree_name(TreeIndex tree)
{
    constexpr const char* kNames[kTreeCount] = {"root", "checksum", "free-space", "remap", "file"};
    return kNames[static_cast<size_t>(tree)];
}

const TreeRoot& Committed::tree(TreeIndex index) const
{
    const TreeRoot* const trees[kTreeCount] = {&root_tree, &checksum_tree, &free_space_tree, &remap_tree,
                                               &file_tree};
    return *trees[static_cast<size_t>(index)];
}

Timeline::Timeline(Ref<Transaction> open, Ref<const Committed> committed)
    : open_(std::move(open)), open_now_(open_.get())
{
    committed_.push_back(std::move(committed));
}

View Timeline::view() const
{
    MutexLock lock(mutex_);
    return {open_, committing_, committed_.back()};
}

View Timeline::commit_view() const
{
    MutexLock lock(mutex_);
    return {open_, committing_, between_ ? between_ : committed_.back()};
}

Ref<Transaction> Timeline::open() const
{
    MutexLock lock(mutex_);
    return open_;
}

Ref<Transaction> Timeline::close_open()
{
    MutexLock lock(mutex_);
    CW_ASSERT(!committing_);
    committing_ = open_;
    open_ = make_ref<Transaction>(TransactionId{committing_->id.value + 1});
    open_now_ = open_.get();
    memory_ = Memory::kLittle;
    return committing_;
}

void Timeline::publish(Ref<const Committed> committed)
{
    MutexLock lock(mutex_);
    CW_ASSERT(committing_ && committing_->id == committed->transaction);
    committing_.reset();
    between_.reset();
    waiting_.push_back({committed->transaction, committed->generation});
    committed_.push_back(std::move(committed));
}

void Timeline::keep_between(Ref<const Committed> committed)
{
    MutexLock lock(mutex_);
    CW_ASSERT((between_ ? between_ : committed_.back())->transaction < committed->transaction);
    CW_ASSERT(committed->transaction < (committing_ ? committing_ : open_)->id);
    waiting_.push_back({committed->transaction, committed->generation});
    between_ = std::move(committed);
}

void Timeline::forget_unread()
{
    while (committed_.size() > 1 && committed_.front()->reference_count() == 1)
        committed_.erase(committed_.begin());
}

bool Timeline::reads_older()
{
    MutexLock lock(mutex_);
    forget_unread();
    return committed_.size() > 1;
}

std::vector<Timeline::Released> Timeline::take_released()
{
    MutexLock lock(mutex_);
    forget_unread();
    // A reader that holds commit c may use addresses freed by any later transaction.
    const TransactionId oldest = committed_.front()->transaction;
    std::vector<Released> released;
    while (!waiting_.empty() && waiting_.front().transaction <= oldest) {
        released.push_back(waiting_.front());
        waiting_.erase(waiting_.begin());
    }
    return released;
}

}  // namespace cowraid
