// SPDX-License-Identifier: MIT
#include "fs/txn/commit_queue.h"

#include <doctest/doctest.h>

#include <optional>

using namespace cowraid;

namespace {

struct Answer : Completion {
    std::optional<Status> status;

    void done(Status answered) override
    {
        CHECK(!status);
        status = answered;
    }
};

}  // namespace

TEST_CASE("commit queue: waiters are answered by the commit of their transaction, or of a later one")
{
    CommitQueue queue;
    Answer first, second, late;
    queue.wait_async({1}, &first);
    queue.wait_async({2}, &second);
    CHECK(queue.sleep(0).commit);
    queue.finished({1});
    CHECK((first.status && first.status->ok()));
    CHECK(!second.status);
    queue.finished({3});
    CHECK((second.status && second.status->ok()));
    queue.wait_async({3}, &late);
    CHECK((late.status && late.status->ok()));
}

TEST_CASE("commit queue: nobody waits for a commit that nobody makes")
{
    CommitQueue queue;
    Answer before, committed, during, after, failed;
    queue.wait_async({2}, &before);
    queue.finished({1});
    queue.suspend(Err::kReadOnly);
    CHECK((before.status && before.status->err() == Err::kReadOnly));
    queue.wait_async({2}, &during);
    CHECK((during.status && during.status->err() == Err::kReadOnly));
    queue.wait_async({1}, &committed);
    CHECK((committed.status && committed.status->ok()));
    queue.resume();
    queue.wait_async({2}, &after);
    CHECK(!after.status);
    queue.failed(Err::kIo);
    CHECK((after.status && after.status->err() == Err::kIo));
    queue.wait_async({3}, &failed);
    CHECK((failed.status && failed.status->err() == Err::kIo));
}

TEST_CASE("commit queue: a stop that no thread took is none of who commits next")
{
    CommitQueue queue;
    queue.request_stop();
    queue.resume();
    CHECK_FALSE(queue.sleep(0).stop);
    queue.request_stop();
    CHECK(queue.sleep(0).stop);
}
