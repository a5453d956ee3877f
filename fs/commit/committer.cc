// SPDX-License-Identifier: MIT
#include "fs/commit/committer.h"

#include "base/log.h"
#include "fs/names/removal.h"

namespace cowraid {

Committer::Committer(Names& volume_names)
    : store(volume_names.store),
      files(volume_names.files),
      names(volume_names),
      empty_groups(store),
      discards(store),
      cleaner(store, empty_groups, CleanPolicy(store.join_policy, store.volume.identity().chunk_bytes)),
      orders(store),
      balance(store, empty_groups, orders, cleaner),
      scrub(store, orders, ScrubScope::kAll),
      catch_up(store, orders, ScrubScope::kStale),
      replace(*this),
      background(*this)
{
    store.driver = this;
}

Committer::~Committer()
{
    background.stop();
}

Status Committer::finish_removals()
{
    return cowraid::finish_removals(names);
}

std::string Committer::step_to_write() const
{
    if (!held_up_by_log || store.volume.members().stopped())
        return store.volume.step_after_stop();
    return std::string("unmount it and mount it with ") +
           (store.volume.degraded() ? "the members that are missing; if they are lost, with " : "") +
           "-o drop_fsync_log, which gives up what fsync acknowledged since the last commit (copy that "
           "before)";
}

void Committer::stop(const char* reason, Status status)
{
    if (store.volume.members().stopped())
        reason = store.volume.members().stop_reason();
    if (!store.service.stop(reason))
        return;
    CW_LOG_ERROR("stopped for writing: %s; %s", reason, step_to_write().c_str());
    store.ledger.stop();
    if (fsync_log)
        fsync_log->stop();
    files.flush_done.announce();
    store.commits.failed(status);
}

}  // namespace cowraid
