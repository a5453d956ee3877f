// SPDX-License-Identifier: MIT
#include "fs/check/check_extents.h"

#include "format/feature_table.h"
#include "fs/files/extents.h"
#include "fs/files/frame_read.h"

namespace cowraid {

namespace {

void claim(CheckContext& context, uint64_t number, const FileExtent& extent, const RemappedRun& run)
{
    const BlockCensus::Claimed claimed = context.census.claim(run.physical, run.block_count, kGroupData);
    if (claimed.claim == BlockCensus::Claim::kTwice)
        context.findings.add("extent", claimed.first_twice, "inode %llu: the extent at file block %llu %s",
                             as_ull(number), as_ull(extent.file_block), claim_text(claimed.claim));
    else if (claimed.claim != BlockCensus::Claim::kTaken)
        context.findings.add("extent", run.physical,
                             "inode %llu: the extent of %u blocks at file block %llu %s", as_ull(number),
                             extent.block_count, as_ull(extent.file_block), claim_text(claimed.claim));
}

void check_stored(CheckContext& context, uint64_t number, const FileExtent& extent)
{
    const uint64_t before = context.report().data_blocks;
    const uint64_t most = context.raw_blocks;
    context.report().data_blocks += extent.stored_blocks();
    if (context.report().data_blocks > most) {
        // To follow a crafted tree any further would take long, and say nothing more.
        context.trees_whole = false;
        if (before <= most)
            context.findings.add("extent", extent.address,
                                 "inode %llu: files have more blocks than the members, %llu", as_ull(number),
                                 as_ull(most));
        return;
    }
    if (extent.generation > context.generation())
        context.findings.add("extent", extent.address,
                             "inode %llu: an extent of commit %llu, the last is %llu", as_ull(number),
                             as_ull(extent.generation.value), as_ull(context.generation().value));
    std::vector<RemappedRun> runs;
    for (const StoredRun& stored : extent.stored_runs())
        if (!context.remap->resolve(context.view, stored.address, stored.block_count, runs).ok()) {
            context.trees_whole = false;  // of what it refers to
            return;
        }
    for (const RemappedRun& run : runs) {
        context.resolved_blocks += run.moved() ? run.block_count : 0;
        claim(context, number, extent, run);
    }
}

void check_inline(CheckContext& context, uint64_t number, const FileExtent& extent)
{
    std::vector<std::byte> content(size_t{extent.block_count} * kBlockBytes);
    if (!decompress_part(extent, extent.inline_frame, content.data()).ok())
        context.findings.add("extent", {},
                             "inode %llu: the extent at file block %llu has no frame that holds it",
                             as_ull(number), as_ull(extent.file_block));
}

}  // namespace

void check_extent(CheckContext& context, uint64_t number, const Key& key, std::span<const std::byte> payload,
                  ExtentSums& sums)
{
    ++sums.item_count;
    ++context.report().extents;
    const uint64_t file_block = key.offset / kBlockBytes;
    const Result<FileExtent> extent = decode_extent(file_block, payload);
    if (!extent.ok() || key.offset % kBlockBytes != 0 || file_block >= kMaxFileBlocks ||
        extent->block_count > kMaxFileBlocks - file_block) {
        context.findings.add("extent", {}, "inode %llu: the extent at offset %llu is not one", as_ull(number),
                             as_ull(key.offset));
        return;
    }
    if (file_block < sums.end)
        context.findings.add("extent", extent->address,
                             "inode %llu: the extent at file block %llu overlaps the one before it",
                             as_ull(number), as_ull(file_block));
    sums.end = std::max(sums.end, extent->end());
    if (extent->kind == ExtentKind::kReserved) {
        sums.reserved += extent->block_count;
        return;
    }
    sums.stored_end = std::max(sums.stored_end, extent->end());
    if (extent->is_inline()) {
        context.used_features |= feature_bit("inline_frames");
        check_inline(context, number, *extent);
    }
    if (extent->compressed()) {
        context.used_features |= feature_bit("zstd");
        sums.compressed_file_blocks += extent->block_count;
        if (!sums.frames.add(*extent))
            return;  // its blocks were seen with another part of it
        sums.compressed_blocks += extent->counted_blocks();
    }
    sums.stored += extent->counted_blocks();
    check_stored(context, number, *extent);
}

}  // namespace cowraid
