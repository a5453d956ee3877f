// SPDX-License-Identifier: MIT
// Printers of tree nodes and items, straight from their on-disk form: a dump tool must show what decoding
// would refuse.
#include <cinttypes>

#include "base/print.h"
#include "format/to_text.h"

namespace cowraid {

std::string to_text(const DiskNodeHeader& header)
{
    return text_format("tree %" PRIu64 " level %u items %u address %" PRIu64 " generation %" PRIu64,
                       header.tree_id.get(), header.level.get(), header.item_count.get(),
                       header.address.get(), header.generation.get());
}

static std::string key_text(uint64_t object, uint8_t type, uint64_t offset)
{
    return text_format("(%" PRIu64 " %u %" PRIu64 ")", object, type, offset);
}

std::string to_text(const DiskLeafItem& item)
{
    return key_text(item.object, item.type, item.offset) +
           text_format(" %u bytes at %u", item.data_bytes.get(), item.data_offset.get());
}

std::string to_text(const DiskChildItem& item)
{
    return key_text(item.object, item.type, item.offset) + " child " + to_text(decode(item.child));
}

std::string to_text(const DiskTreeRoot& item)
{
    return "root " + to_text(decode(item.root));
}

std::string to_text(const DiskVolume& item)
{
    return text_format("next inode %" PRIu64 " inodes %" PRIu64 " reserved blocks %" PRIu64
                       " compressed blocks %" PRIu64 " in %" PRIu64 "%s",
                       item.next_inode.get(), item.inode_count.get(), item.reserved_blocks.get(),
                       item.compressed_file_blocks.get(), item.compressed_blocks.get(),
                       item.compression_counted == 1 ? "" : " (not counted)");
}

std::string to_text(const DiskTime& time)
{
    return text_format("%" PRId64 ".%09u", static_cast<int64_t>(time.seconds.get()), time.nanoseconds.get());
}

std::string to_text(const DiskInode& item)
{
    return text_format("mode %o uid %u gid %u links %u size %" PRIu64 " blocks %" PRIu64 " rdev %" PRIu64
                       " flags %" PRIx64 " parent %" PRIu64 " generation %" PRIu64,
                       item.mode.get(), item.uid.get(), item.gid.get(), item.link_count.get(),
                       item.size_bytes.get(), item.data_blocks.get(), item.rdev.get(), item.flags.get(),
                       item.parent.get(), item.generation.get()) +
           " accessed " + to_text(item.accessed) + " modified " + to_text(item.modified) + " changed " +
           to_text(item.changed) + " created " + to_text(item.created);
}

std::string to_text(const DiskLink& item)
{
    return text_format("parent %" PRIu64 " cursor %" PRIx64 " name bytes %u", item.parent.get(),
                       item.cursor.get(), item.name_bytes.get());
}

std::string to_text(const DiskDirent& item)
{
    return text_format("inode %" PRIu64 " link %" PRIu64 " mode type %o name bytes %u", item.inode.get(),
                       item.link_sequence.get(), item.mode_type.get(), item.name_bytes.get());
}

std::string to_text(const DiskXattr& item)
{
    return text_format("name bytes %u part %u%s value bytes %u", item.name_bytes, item.part & kXattrPartMask,
                       (item.part & kXattrMore) != 0 ? " more" : "", item.value_bytes.get());
}

std::string to_text(const DiskExtent& item)
{
    return text_format("kind %u address %" PRIu64 " generation %" PRIu64
                       " blocks %u stored %u compression %u more runs %u from %u",
                       item.kind, item.address.get(), item.generation.get(), item.block_count.get(),
                       item.disk_blocks.get(), item.compression, item.more_runs.get(),
                       item.offset_blocks.get());
}

std::string to_text(const DiskDamage& item)
{
    return text_format("found %" PRIu64 " blocks %" PRIu64, item.found_seconds.get(), item.block_count.get());
}

std::string to_text(const DiskChecksumWindow& item)
{
    return text_format("mask %016" PRIx64, item.mask.get());
}

std::string to_text(const DiskGroupSummary& item)
{
    return text_format("used blocks %" PRIu64 " free rows %" PRIu64 " free stripes %" PRIu64,
                       item.used_blocks.get(), item.free_rows.get(), item.free_stripes.get());
}

std::string to_text(const DiskSpaceWindow& item)
{
    return text_format("last write %" PRIu64 " blocks %u used %u", item.last_write.get(),
                       item.block_count.get(), item.used_count.get());
}

std::string to_text(const DiskRemapWindow& item)
{
    return text_format("mask %016" PRIx64 " starts %016" PRIx64, item.mask.get(), item.starts.get());
}

}  // namespace cowraid
