// SPDX-License-Identifier: MIT
#include "fs/txn/dirty_account.h"

#include <doctest/doctest.h>

#include <vector>

using namespace cowraid;

namespace {

constexpr uint64_t kMiBBlocks = kMiB / kBlockBytes;

// Appends its number to a list when it is answered.
class Writer final : public Completion {
public:
    void wait(DirtyAccount& account, int number, std::vector<int>& answered)
    {
        number_ = number;
        answered_ = &answered;
        account.answer_when_room(this);
    }
    void done(Status status) override
    {
        CHECK(status.ok());
        answered_->push_back(number_);
    }

private:
    int number_ = 0;
    std::vector<int>* answered_ = nullptr;
};

}  // namespace

TEST_CASE("dirty account: answers are held from half of a small bound, from 64 MiB below a large one")
{
    DirtyAccount small(32 * kMiB);
    small.add_blocks(16 * kMiBBlocks - 1, 1);
    CHECK_FALSE(small.holds_answers());
    small.add_blocks(1, 0);
    CHECK(small.holds_answers());
    CHECK_FALSE(small.full());

    DirtyAccount large(256 * kMiB);
    large.add_blocks(192 * kMiBBlocks - 1, 1);
    CHECK_FALSE(large.holds_answers());
    large.add_blocks(1, 0);
    CHECK(large.holds_answers());
    CHECK_FALSE(large.full());
    large.add_blocks(64 * kMiBBlocks, 0);
    CHECK(large.full());
}

TEST_CASE("dirty account: room answers the oldest, as many as one write each finds place")
{
    DirtyAccount account(32 * kMiB);
    std::vector<int> answered;
    std::vector<Writer> writers(6);
    writers[0].wait(account, 0, answered);
    CHECK(answered == std::vector<int>{0});

    account.add_blocks(16 * kMiBBlocks, 1);
    for (int i = 1; i < 6; ++i)
        writers[static_cast<size_t>(i)].wait(account, i, answered);
    CHECK(account.answer_waiting());
    CHECK(answered.size() == 1);

    account.remove_blocks(1, 0);
    CHECK(account.answer_waiting());
    CHECK(answered == std::vector<int>{0, 1});
    account.remove_blocks(2 * kMiBBlocks, 0);
    CHECK(account.answer_waiting());
    CHECK(answered == std::vector<int>{0, 1, 2, 3, 4});
    CHECK_FALSE(account.answer_waiting());
    CHECK(answered == std::vector<int>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("dirty account: whoever waits is answered when nothing will be flushed any more")
{
    DirtyAccount account(32 * kMiB);
    std::vector<int> answered;
    std::vector<Writer> writers(3);
    account.add_blocks(32 * kMiBBlocks, 1);
    writers[0].wait(account, 0, answered);
    writers[1].wait(account, 1, answered);
    CHECK(answered.empty());
    account.stop();
    CHECK(answered == std::vector<int>{0, 1});
    CHECK_FALSE(account.holds_answers());
    writers[2].wait(account, 2, answered);
    CHECK(answered == std::vector<int>{0, 1, 2});
    CHECK_FALSE(account.wait_for_room());
}
