// SPDX-License-Identifier: MIT
#include "fs/core.h"

#include <algorithm>

#include "base/log.h"

namespace cowraid {

namespace {

// Of a block group over all members.
uint32_t data_columns_of(const Volume& volume)
{
    const auto members = static_cast<uint32_t>(volume.superblock().members.size());
    const Profile& profile = volume.data_profile();
    return std::max<uint32_t>(1, members > profile.parity ? members - profile.parity : 1);
}

}  // namespace

FilesystemCore::FilesystemCore(const MountOptions& mount_options, std::unique_ptr<Volume> opened_volume,
                               Ref<Transaction> open, Ref<const Committed> committed)
    : options(mount_options),
      volume(std::move(opened_volume)),
      timeline(std::move(open), std::move(committed)),
      node_reader(volume->array()),
      cache(node_reader, volume->superblock().volume_uuid, mount_options.node_cache_bytes),
      store(cache, timeline),
      space_source(cache, timeline),
      allocator(space_source),
      checksums(cache, timeline),
      remap(cache, volume->array(), timeline.view().committed->remap_tree.root.address.valid()),
      inodes(store, changes.counter()),
      dirty(mount_options.dirty_bytes_max),
      join_policy(kLoopCost, data_columns_of(*volume), volume->data_profile().parity,
                  volume->superblock().chunk_bytes, mount_options.join_above),
      cleaner(*this, CleanPolicy(join_policy, volume->superblock().chunk_bytes)),
      empty_groups(*this),
      background(*this)
{
    volume->array().set_verifier(&checksums);
}

FilesystemCore::~FilesystemCore()
{
    background.stop();
    volume->array().set_verifier(nullptr);
}

void FilesystemCore::stop(const char* reason, Status status)
{
    if (volume->members().stopped())
        reason = volume->members().stop_reason();
    const char* none = "";
    if (!stop_reason.compare_exchange_strong(none, reason))
        return;
    stopped = true;
    CW_LOG_ERROR("stopped for writing: %s; unmount, look at the members, mount again", reason);
    dirty.stop();
    if (fsync_log)
        fsync_log->stop();
    flush_done.announce();
    commits.failed(status);
}

}  // namespace cowraid
