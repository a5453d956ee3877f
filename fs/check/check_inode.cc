// SPDX-License-Identifier: MIT
#include "fs/check/check_inode.h"

#include <sys/stat.h>

#include "format/items.h"

namespace cowraid {

namespace {

void examine_directory(CheckContext& context, const GatheredInode& inode)
{
    Findings& findings = context.findings;
    const InodeAttributes& attributes = inode.attributes;
    const unsigned long long number = inode.number;
    const bool root = inode.number == kRootInode;
    const bool removed = attributes.link_count == 0;
    if (root && (removed || attributes.parent != kRootInode))
        findings.add("directory", {}, "the root directory is removed, or below another one");
    if (inode.name_count != (root || removed ? 0 : 1))
        findings.add("directory", {}, "directory %llu has %llu names", number, as_ull(inode.name_count));
    if (!root && inode.name_count == 1 && attributes.parent != inode.parent)
        findings.add("directory", {}, "directory %llu stands in directory %llu, but says %llu", number,
                     as_ull(inode.parent), as_ull(attributes.parent));
    if (removed && inode.entry_count != 0)
        findings.add("directory", {}, "removed directory %llu has %llu entries", number,
                     as_ull(inode.entry_count));
    if (!removed && attributes.link_count != 2 + inode.subdirectory_count)
        findings.add("inode", {}, "directory %llu says %u links, but has %llu subdirectories", number,
                     attributes.link_count, as_ull(inode.subdirectory_count));
    if (attributes.size_bytes != inode.entry_weight)
        findings.add("inode", {}, "directory %llu says %llu bytes, its names add up to %llu", number,
                     as_ull(attributes.size_bytes), as_ull(inode.entry_weight));
}

void examine_other(CheckContext& context, const GatheredInode& inode)
{
    if (inode.attributes.link_count != inode.name_count)
        context.findings.add("inode", {}, "inode %llu says %u links, but has %llu names",
                             as_ull(inode.number), inode.attributes.link_count, as_ull(inode.name_count));
    if (!inode.attributes.is_regular() && !S_ISLNK(inode.attributes.mode) && inode.attributes.size_bytes != 0)
        context.findings.add("inode", {}, "inode %llu says %llu bytes, but its type has none",
                             as_ull(inode.number), as_ull(inode.attributes.size_bytes));
    if (inode.entry_count != 0)
        context.findings.add("directory", {}, "inode %llu is no directory, but has %llu entries",
                             as_ull(inode.number), as_ull(inode.entry_count));
}

void examine_target(CheckContext& context, const GatheredInode& inode)
{
    // Removal takes the items of an unlinked inode away piece by piece.
    const bool may_lack_it = inode.attributes.link_count == 0 && inode.target_count == 0;
    const bool right =
        S_ISLNK(inode.attributes.mode)
            ? may_lack_it || (inode.target_count == 1 && inode.target_bytes == inode.attributes.size_bytes)
            : inode.target_count == 0;
    if (!right)
        context.findings.add("inode", {}, "inode %llu: a target of %llu bytes does not fit its type or size",
                             as_ull(inode.number), as_ull(inode.target_bytes));
}

void examine_data(CheckContext& context, const GatheredInode& inode)
{
    const InodeAttributes& attributes = inode.attributes;
    const ExtentSums& extents = inode.extents;
    if (!attributes.is_regular() && extents.item_count != 0)
        context.findings.add("extent", {}, "inode %llu is no regular file, but has %llu extents",
                             as_ull(inode.number), as_ull(extents.item_count));
    if (attributes.data_blocks != extents.stored + extents.reserved)
        context.findings.add("inode", {},
                             "inode %llu says %llu blocks, but has %llu stored and %llu reserved",
                             as_ull(inode.number), as_ull(attributes.data_blocks), as_ull(extents.stored),
                             as_ull(extents.reserved));
    const bool is_cut = (attributes.flags & kInodeCut) != 0;
    if (attributes.is_regular() && !is_cut &&
        extents.stored_end > divide_up(attributes.size_bytes, kBlockBytes))
        context.findings.add("extent", {}, "inode %llu: data is stored up to file block %llu, behind its end",
                             as_ull(inode.number), as_ull(extents.stored_end));
}

void examine_orphan(CheckContext& context, const GatheredInode& inode)
{
    const bool is_cut = (inode.attributes.flags & kInodeCut) != 0;
    if (inode.orphan == (inode.attributes.link_count == 0 || is_cut))
        return;
    context.findings.add("inode", {},
                         inode.orphan ? "inode %llu has links, but is marked as an orphan"
                         : is_cut     ? "inode %llu is being cut, but is not marked as an orphan"
                                      : "inode %llu has no links, but is not marked as an orphan",
                         as_ull(inode.number));
}

}  // namespace

void examine_inode(CheckContext& context, const GatheredInode& inode)
{
    if (inode.torn)
        return;
    if (inode.number < kRootInode || inode.number > kMaxInode)
        context.findings.add("inode", {}, "inode %llu: no inode can have this number", as_ull(inode.number));
    if (!inode.has_item)
        context.findings.add("inode", {}, "inode %llu has items, but is not there itself",
                             as_ull(inode.number));
    if (!inode.readable)
        return;
    if (inode.sequence_end > inode.attributes.next_link_sequence)
        context.findings.add("inode", {}, "inode %llu: its next name could take the place of one it has",
                             as_ull(inode.number));
    if (inode.attributes.is_directory())
        examine_directory(context, inode);
    else
        examine_other(context, inode);
    examine_target(context, inode);
    examine_data(context, inode);
    examine_orphan(context, inode);
}

}  // namespace cowraid
