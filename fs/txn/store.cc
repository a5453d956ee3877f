// SPDX-License-Identifier: MIT
#include "fs/txn/store.h"

#include <algorithm>

namespace cowraid {

namespace {

// Of a block group over all members.
uint32_t data_columns_of(const Volume& volume)
{
    const auto members = static_cast<uint32_t>(voter_count(volume.superblock()));
    const Profile& profile = volume.data_profile();
    return std::max<uint32_t>(1, members > profile.parity ? members - profile.parity : 1);
}

}  // namespace

Store::Store(const MountOptions& mount_options, Volume& opened_volume, Ref<Transaction> open,
             Ref<const Committed> committed)
    : options(mount_options),
      live(mount_options),
      volume(opened_volume),
      timeline(std::move(open), std::move(committed)),
      node_reader(volume.array(), &damage),
      cache(node_reader, volume.identity().uuid, mount_options.node_cache_bytes),
      items(cache, timeline),
      space_source(cache, timeline),
      allocator(space_source),
      checksums(cache, timeline, &damage),
      remap(cache, volume.array(), timeline.view().committed->remap_tree.root.address.valid()),
      ledger(mount_options.dirty_bytes_max),
      join_policy(kLoopCost, data_columns_of(volume), volume.data_profile().parity,
                  volume.identity().chunk_bytes, mount_options.join_above),
      budget(mount_options.background_share)
{
    ledger.set_transactions(timeline.view());
    volume.array().set_verifier(&checksums);
}

Store::~Store()
{
    volume.array().set_verifier(nullptr);
}

}  // namespace cowraid
