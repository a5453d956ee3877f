// SPDX-License-Identifier: MIT
// Input: which structure, two numbers of its key, then the payload of the item.
#include <tuple>

#include "alloc/recorded_space.h"
#include "format/acl_codec.h"
#include "format/damage_codec.h"
#include "format/to_text.h"
#include "format/tree_codec.h"
#include "format/window_codec.h"
#include "fs/files/extents.h"
#include "fs/files/inode.h"
#include "fs/names/dirent.h"
#include "fs/txn/block_state.h"
#include "tests/fuzz_targets/fuzz_input.h"
#include "tests/fuzz_targets/targets.h"

using namespace cowraid;

namespace {

using item_input::Structure;
using Bytes = std::span<const std::byte>;

void check_inode(Bytes payload)
{
    const Result<InodeAttributes> inode = decode_inode(payload);
    if (!inode.ok())
        return;
    const ItemBytes encoded = encode_inode(*inode);
    const Result<InodeAttributes> again = decode_inode(encoded);
    CW_ASSERT(again.ok() && encode_inode(*again) == encoded);
    CW_ASSERT(inode->size_bytes <= INT64_MAX && inode->accessed.tv_nsec < 1'000'000'000);
}

void check_extent(uint64_t file_block, Bytes payload)
{
    const Result<FileExtent> extent = decode_extent(file_block, payload);
    if (!extent.ok())
        return;
    CW_ASSERT(extent->file_block < extent->end() && extent->end() <= kMaxFileBlocks);
    const uint64_t bytes = uint64_t{extent->block_count} * kBlockBytes;
    CW_ASSERT(extent->block_count <= kMaxExtentBlocks && extent->address.value <= kMaxVolumeAddress - bytes);
    const ItemBytes encoded = encode_extent(*extent);
    const Result<FileExtent> again = decode_extent(file_block, encoded);
    CW_ASSERT(again.ok() && encode_extent(*again) == encoded);
}

void check_dirent(uint64_t cursor, Bytes payload)
{
    const Result<Dirent> entry = decode_dirent(cursor, payload);
    if (!entry.ok())
        return;
    CW_ASSERT(check_name(entry->name).ok() && entry->cursor == cursor);
    const ItemBytes encoded = encode_dirent(*entry);
    CW_ASSERT(std::equal(encoded.begin(), encoded.end(), payload.begin(), payload.end()));
}

void check_link(Bytes payload)
{
    const Result<InodeLink> link = decode_link(payload);
    if (!link.ok())
        return;
    CW_ASSERT(check_name(link->name).ok());
    const ItemBytes encoded = encode_link(*link);
    CW_ASSERT(std::equal(encoded.begin(), encoded.end(), payload.begin(), payload.end()));
}

void check_acl(Bytes payload)
{
    const Result<Acl> acl = decode_acl(payload);
    if (!acl.ok())
        return;
    CW_ASSERT(acl->size() >= 3 && payload.size() <= kAclBytesMax);
    const ItemBytes encoded = encode_acl(*acl);
    const Result<Acl> again = decode_acl(encoded);
    CW_ASSERT(again.ok() && encode_acl(*again) == encoded);
}

void check_xattr(uint64_t cursor, Bytes payload)
{
    const Result<XattrPart> part = decode_xattr(cursor, payload);
    if (!part.ok() || part->more || part->number != 0)
        return;
    const std::vector<ItemBytes> encoded = encode_xattr(part->name, part->value);
    CW_ASSERT(payload.size() > kMaxItemBytes || encoded.size() == 1);
    CW_ASSERT(encoded.size() > 1 ||
              std::equal(encoded[0].begin(), encoded[0].end(), payload.begin(), payload.end()));
}

void check_checksums(Bytes payload)
{
    BlockWindow window;
    if (!decode_checksum_window(payload, window))
        return;
    const std::vector<std::byte> encoded = encode_checksum_window(window);
    CW_ASSERT(std::equal(encoded.begin(), encoded.end(), payload.begin(), payload.end()));
}

// Runs that stand one behind the other may be one run when encoded again.
void check_remap(Bytes payload)
{
    BlockWindow window;
    if (!decode_remap_window(payload, window))
        return;
    BlockWindow again;
    CW_ASSERT(decode_remap_window(encode_remap_window(window), again));
    CW_ASSERT(again.mask == window.mask && again.values == window.values);
}

void check_space(VolumeAddress group_address, uint64_t first_stripe, Bytes payload)
{
    const Result<SpaceWindow> window = decode_space_window(group_address, first_stripe, payload);
    if (!window.ok())
        return;
    CW_ASSERT(window->used_count <= window->block_count);
    const std::vector<std::byte> encoded = encode_space_window(*window, {1});
    CW_ASSERT(std::equal(encoded.begin(), encoded.end(), payload.begin(), payload.end()));
    const Geometry geometry{.data_columns = 3, .parity = 1, .column_bytes = 16 * kMiB};
    RecordedSpace space(group_address, geometry);
    if (space.load(*window).ok())
        CW_ASSERT(space.usage().used_blocks == window->used_count);
}

BlockRef fields_of(const BlockRef& root)
{
    return root;
}

auto fields_of(const DamageRecord& damage)
{
    return std::tuple(damage.found_seconds, damage.block_count);
}

auto fields_of(const VolumeCounters& counters)
{
    return std::tuple(counters.next_inode, counters.inode_count, counters.reserved_blocks,
                      counters.compressed_file_blocks, counters.compressed_blocks,
                      counters.compression_counted);
}

auto fields_of(const GroupUsage& usage)
{
    return std::tuple(usage.group_address, usage.used_blocks, usage.free_rows, usage.free_stripes);
}

// What was decoded encodes to what decodes to the same.
template <typename Decode, typename Encode>
void check_coded(Bytes payload, const Decode& decode, const Encode& encode)
{
    const auto decoded = decode(payload);
    if (!decoded.ok())
        return;
    const auto again = decode(encode(*decoded));
    CW_ASSERT(again.ok() && fields_of(*again) == fields_of(*decoded));
}

void check_damage(Bytes payload)
{
    const Result<DamageRecord> damage = decode_damage(payload);
    if (damage.ok())
        CW_ASSERT(damage->block_count > 0 && damage->block_count <= kMaxVolumeAddress / kBlockBytes);
    check_coded(payload, decode_damage, encode_damage);
}

void check_group_usage(VolumeAddress group, Bytes payload)
{
    const auto decode = [group](Bytes bytes) {
        return decode_group_usage(group, bytes);
    };
    check_coded(payload, decode, encode_group_usage);
}

template <typename... Disk> void print_fitting(Bytes payload)
{
    const auto print = [payload](auto disk) {
        if (payload.size() >= sizeof disk)
            CW_ASSERT(!to_text(load_front<decltype(disk)>(payload)).empty());
    };
    (print(Disk{}), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    FuzzInput input(data, size);
    const auto structure = static_cast<Structure>(input.take_u8() % static_cast<uint8_t>(Structure::kCount));
    const uint64_t object = input.take_u64();
    const uint64_t offset = input.take_u64();
    const std::vector<std::byte> payload = copy_of(input.rest());
    switch (structure) {
    case Structure::kInode:
        check_inode(payload);
        break;
    case Structure::kExtent:
        check_extent(offset, payload);
        break;
    case Structure::kDirent:
        check_dirent(offset, payload);
        break;
    case Structure::kLink:
        check_link(payload);
        break;
    case Structure::kXattr:
        check_xattr(offset, payload);
        break;
    case Structure::kChecksums:
        check_checksums(payload);
        break;
    case Structure::kRemap:
        check_remap(payload);
        break;
    case Structure::kAcl:
        check_acl(payload);
        break;
    case Structure::kSpace:
        check_space({object}, offset, payload);
        break;
    case Structure::kDamage:
        check_damage(payload);
        break;
    case Structure::kTreeRoot:
        check_coded(payload, decode_tree_root, encode_tree_root);
        break;
    case Structure::kVolume:
        check_coded(payload, decode_volume_counters, encode_volume_counters);
        break;
    case Structure::kGroupSummary:
        check_group_usage({offset}, payload);
        break;
    default:
        print_fitting<DiskNodeHeader, DiskLeafItem, DiskChildItem, DiskTreeRoot, DiskVolume, DiskInode,
                      DiskLink, DiskDirent, DiskXattr, DiskExtent, DiskDamage, DiskChecksumWindow,
                      DiskGroupSummary, DiskSpaceWindow, DiskRemapWindow>(payload);
    }
    return 0;
}
