// SPDX-License-Identifier: MIT
#include "fs/txn/commit_driver.h"

#include "fs/txn/store.h"

namespace cowraid {

Status force_commit(Store& store)
{
    const Ref<Transaction> open = store.timeline.open();
    open->dirty = true;
    if (store.options.manual_commit)
        return store.driver->commit();
    return store.commits.wait(open->id);
}

void ask_for_flush(Store& store)
{
    if (store.options.manual_commit)
        store.driver->flush().ignore();  // an error has stopped the filesystem; the writer sees that
    else
        store.commits.request_flush();
}

TransactionId between_commits(const Store& store)
{
    const TransactionId last = store.timeline.commit_view().committed->transaction;
    return {last.value, last.part + 2};  // the one between is unread_frees()
}

}  // namespace cowraid
