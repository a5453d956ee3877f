// SPDX-License-Identifier: MIT
// What a mounted volume tells about itself.
#include <algorithm>

#include "fs/filesystem.h"
#include "fs/maintain/damaged_files.h"
#include "fs/txn/group_planning.h"

namespace cowraid {

namespace {

// Where the member is, its state, and why it is not in service.
void tell_presence(Filesystem& filesystem, const MemberRecord& record, MemberInfo& info)
{
    const MemberSet& members = filesystem.volume->members();
    info.path = members.path(record.id);
    info.state = record.state;
    info.doubtful = members.doubtful(record.id);
    info.slow_ms = members.slow_ms(record.id);
    info.slow_ios = members.slow_ios(record.id);
    if (members.failed(record.id)) {
        info.state = MemberState::kFailed;
        info.reason = record.state == MemberState::kFailed
                          ? "failed since commit " + std::to_string(record.missing_since.value)
                          : "failed";
        if (const std::string why = members.failure_reason(record.id); !why.empty())
            info.reason += ": " + why;
    } else if (members.stopped_it(record.id)) {
        info.reason = "failed, and the volume stopped";
    } else if (members.device(record.id) == nullptr) {
        // Of the mount, if it has not been there since.
        const MemberReason reason =
            members.arrivals(record.id) == 0 ? filesystem.volume->reason_of(record.id) : MemberReason();
        info.reason = reason.text;
        info.unusable = reason.unusable;
        if (info.reason.empty() && record.state == MemberState::kMissing)
            info.reason = "out of service since commit " + std::to_string(record.missing_since.value);
        if (record.state == MemberState::kPresent)
            info.state = MemberState::kMissing;
    } else if (record.state != MemberState::kPresent) {
        info.reason = filesystem.volume->reason_of(record.id).text;
    }
}

std::vector<MemberInfo> member_infos(Filesystem& filesystem)
{
    std::vector<MemberInfo> infos;
    const ReplaceRecord replace = filesystem.volume->replacing();
    for (const MemberRecord& record : filesystem.volume->member_table()) {
        MemberInfo info;
        info.id = record.id;
        info.replaced = replace.active() && record.id == replace.source;
        info.successor = replace.active() && record.id == replace.target;
        info.size_bytes = record.size_bytes;
        info.counters = filesystem.volume->members().counters(record.id);
        tell_presence(filesystem, record, info);
        for (const Ref<const ArrayGroup>& group : filesystem.volume->array().groups())
            for (const GroupColumn& column : group->record.columns)
                if (column.member == record.id) {
                    info.used_bytes += group->record.column_bytes;
                    info.stale_groups += column.stale() ? 1 : 0;
                    info.stale_bytes += column.stale() ? group->record.column_bytes : 0;
                }
        infos.push_back(std::move(info));
    }
    return infos;
}

// What the block groups can still do without.
uint64_t may_fail(Filesystem& filesystem, bool& beyond_tolerance)
{
    Volume& volume = *filesystem.volume;
    uint64_t left = UINT64_MAX;
    for (const Ref<const ArrayGroup>& group : volume.array().groups()) {
        const auto lacks = [&](const GroupColumn& column) {
            return column.stale() || volume.members().device(column.member) == nullptr;
        };
        const auto lost = static_cast<uint64_t>(
            std::count_if(group->record.columns.begin(), group->record.columns.end(), lacks));
        const uint64_t tolerance = find_profile(group->record.profile)->tolerance;
        left = std::min(left, tolerance - std::min(tolerance, lost));
        beyond_tolerance = beyond_tolerance || lost > tolerance;
    }
    return left == UINT64_MAX ? 0 : left;
}

// What to do to write again; empty where nothing but the mount's options says that it is only read.
std::string read_only_step(Filesystem& filesystem, const VolumeInfo& info)
{
    const std::string& step = filesystem.volume->read_only_reason().step;
    if (!step.empty())
        return step;
    if (filesystem.store.options.rescue)
        return "unmount it, and mount it for writing without rescue";
    return info.read_only_reason.empty() ? "" : filesystem.committer.step_to_write();
}

SpaceInfo& space_of(std::vector<SpaceInfo>& infos, uint32_t content, ProfileId profile)
{
    for (SpaceInfo& info : infos)
        if (info.content == content && info.profile == profile)
            return info;
    return infos.emplace_back(SpaceInfo{.profile = profile, .content = content});
}

// By content and profile; what new groups are made as in any case, first.
std::vector<SpaceInfo> space_infos(Filesystem& filesystem)
{
    const VolumeProfiles profiles = filesystem.volume->profiles();
    const Profile& metadata = *find_profile(profiles.metadata);
    std::vector<SpaceInfo> infos{{.profile = profiles.data, .content = kGroupData}};
    if (metadata.parity == 0) {
        space_of(infos, kGroupMetadata | kGroupSystem, metadata.id);
    } else {
        space_of(infos, kGroupMetadata, metadata.id);
        space_of(infos, kGroupSystem, Volume::system_profile_of(metadata).id);
    }
    for (const GroupNumbers& numbers : filesystem.store.allocator.group_numbers(kAllContent)) {
        const Ref<const ArrayGroup> group = filesystem.volume->array().group_at(numbers.address);
        if (!group)
            continue;
        SpaceInfo& info = space_of(infos, group->record.content, group->record.profile);
        info.total_bytes += numbers.total_blocks * kBlockBytes;
        info.used_bytes += numbers.live_blocks * kBlockBytes;
        info.raw_bytes += group->record.column_bytes * group->record.columns.size();
    }
    return infos;
}

}  // namespace

VolumeStatistics Filesystem::statistics()
{
    const SpaceNumbers data = store.allocator.numbers(kGroupData);
    const uint64_t potential = volume->potential_blocks(kGroupData);
    VolumeStatistics statistics{};
    statistics.block_bytes = kBlockBytes;
    const uint64_t dropped = volume->dropped_blocks();
    const uint64_t narrowing_all = narrowing_blocks(store, Emptied::kAll);
    statistics.total_blocks = data.total_blocks + potential + dropped;
    statistics.total_blocks -= std::min(statistics.total_blocks, narrowing_all);
    const std::optional<uint64_t> with_nodes = potential_with_nodes(store);
    // Blocks on their way to be free: who wants them makes the commits that it takes.
    const uint64_t coming = data.returning_blocks + committer.empty_groups.leaving_blocks() + dropped;
    // Beyond what data_available() leaves out.
    const uint64_t known = narrowing_blocks(store, Emptied::kOffered);
    const uint64_t less = narrowing_all - std::min(narrowing_all, known) + potential -
                          std::min(potential, with_nodes.value_or(0));
    const uint64_t available = store.ledger.data_available() + coming;
    statistics.available_blocks = with_nodes ? available - std::min(available, less) : 0;
    const uint64_t unused = statistics.total_blocks - std::min(statistics.total_blocks, data.used_blocks);
    statistics.free_blocks = std::max(unused, statistics.available_blocks);
    statistics.inode_count = names.inode_count;
    return statistics;
}

VolumeInfo Filesystem::info()
{
    VolumeInfo info;
    info.uuid = volume->identity().uuid;
    info.label = volume->identity().label;
    info.generation = volume->generation();
    info.chunk_bytes = volume->identity().chunk_bytes;
    info.data_profile = volume->profiles().data;
    info.metadata_profile = volume->profiles().metadata;
    info.read_only = !store.service.writing();
    info.read_only_reason = store.service.reason();
    info.degraded = volume->degraded();
    info.degraded_reason = volume->degraded_reason();
    info.members = member_infos(*this);
    info.read_only_step = read_only_step(*this, info);
    for (const MemberRecord& spare : volume->spare_table())
        info.spares.push_back({.id = spare.id,
                               .path = volume->spares().path(spare.id),
                               .size_bytes = spare.size_bytes,
                               .useless = volume->spares().useless(spare.id)});
    info.may_fail = may_fail(*this, info.beyond_tolerance);
    info.may_fail_writing = std::min<uint64_t>(info.may_fail, volume->spare_voters());
    info.spaces = space_infos(*this);
    for (const MemberInfo& member : info.members)
        if (!member.successor)
            info.unallocated_raw_bytes += member.size_bytes - std::min(member.size_bytes, member.used_bytes);
    info.available_bytes = statistics().available_blocks * kBlockBytes;
    info.reserve_bytes = store.ledger.metadata_room().reserve_blocks * kBlockBytes;
    info.compression_counted = committer.files.compression_counted;
    info.compressed_file_bytes = committer.files.compressed_file_blocks * kBlockBytes;
    info.compressed_bytes = committer.files.compressed_blocks * kBlockBytes;
    const ArrayStatistics array = volume->array().statistics();
    info.full_stripes = array.full_stripes;
    info.full_rows = array.full_rows;
    info.pad_blocks = array.pad_blocks;
    info.data_bytes_written = array.data_bytes_written;
    info.member_bytes_written = array.member_bytes_written;
    info.blocks_reconstructed = array.blocks_reconstructed;
    info.blocks_repaired = array.blocks_repaired;
    info.blocks_unrecoverable = array.blocks_unrecoverable;
    const DamagedBlocks damaged = damaged_blocks(store);
    info.damaged_blocks = damaged.all;
    info.damaged_node_blocks = damaged.of_nodes;
    const PartialWriteStatistics partial = volume->array().partial_write_statistics();
    info.joined_blocks = store.allocator.statistics().joined_blocks;
    info.rmw_rows = partial.rmw_rows;
    info.rcw_rows = partial.rcw_rows;
    info.stripe_cache_hits = partial.cache_hits;
    info.stripe_cache_misses = partial.cache_misses;
    info.intent_log_bytes = partial.log_bytes;
    info.recovered_rows = committer.recovered_rows;
    info.checksum_commits = committer.checksum_commits;
    info.commits = committer.commit_count;
    info.fsync_records = committer.syncs.counts().records;
    info.fsync_record_bytes = committer.syncs.counts().record_bytes;
    info.fsync_commits = committer.syncs.counts().commits;
    info.replayed_records = committer.replayed_records;
    info.emptied_groups = committer.empty_groups.emptied_groups();
    info.moved_blocks = committer.cleaner.counts().moved_blocks;
    info.unmovable_blocks = committer.cleaner.counts().unmovable_blocks;
    info.dirty_bytes = store.ledger.dirty_blocks() * kBlockBytes;
    const IoStatistics io = io_statistics();
    info.device_reads = io.reads;
    info.device_read_bytes = io.read_bytes;
    info.device_writes = io.writes;
    info.device_write_bytes = io.write_bytes;
    info.device_flushes = io.flushes;
    info.discarded_bytes = committer.discards.discarded_bytes();
    const NodeCache::Statistics nodes = store.cache.statistics();
    info.node_cache_hits = nodes.hits;
    info.node_cache_misses = nodes.misses;
    info.node_cache_bytes = nodes.bytes;
    return info;
}

}  // namespace cowraid
