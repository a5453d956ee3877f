// SPDX-License-Identifier: MIT
#include "tests/filesystem/check_image.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/assert.h"
#include "btree/node_image.h"
#include "fs/commit/mount.h"

namespace cowraid::test {

namespace {

void expect_ok(Status status, const std::string& why)
{
    if (status.ok())
        return;
    fprintf(stderr, "%s: %s\n", err_text(status.err()), why.c_str());
    CW_ASSERT(status.ok());
}

std::vector<std::byte> read_node(Volume& volume, const BlockRef& ref, uint64_t tree_id)
{
    ArrayNodeReader reader(volume.array());
    AlignedBuffer buffer(kNodeBytes);
    expect_ok(reader.read_node(ref, tree_id, buffer), "node");
    return {buffer.data(), buffer.data() + buffer.size()};
}

// The payload of a tree's root item inside the root tree's only leaf.
DiskTreeRoot* find_root_item(std::span<std::byte> leaf, uint64_t tree_id)
{
    CW_ASSERT(node_header(leaf.data()).level == 0);
    for (uint32_t i = 0; i < node_header(leaf.data()).item_count; ++i) {
        const DiskLeafItem& item = leaf_items(leaf.data())[i];
        if (key_of(item) == Key{tree_id, static_cast<uint8_t>(ItemType::kTreeRoot), 0})
            return reinterpret_cast<DiskTreeRoot*>(leaf.data() + item.data_offset.get());
    }
    return nullptr;
}

}  // namespace

Image Image::copy_of(SimVolume& volume)
{
    Image image;
    for (uint32_t i = 0; i < volume.member_count(); ++i)
        image.members_.push_back(volume.member(i).clone("copy" + std::to_string(i + 1)));
    return image;
}

Image Image::clone() const
{
    Image image;
    for (const std::unique_ptr<SimDevice>& member : members_)
        image.members_.push_back(member->clone(member->name()));
    return image;
}

std::vector<std::unique_ptr<BlockDevice>> Image::borrow(const std::vector<uint32_t>& absent)
{
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (uint32_t i = 0; i < members_.size(); ++i)
        if (std::find(absent.begin(), absent.end(), i) == absent.end())
            devices.push_back(std::make_unique<BorrowedDevice>(*members_[i]));
    return devices;
}

Status Image::try_check(CheckReport& report, std::string& why, const std::vector<uint32_t>& absent)
{
    CW_ASSIGN(Assembly assembly, assemble(borrow(absent), why));
    return check_volume(std::move(assembly), {}, report, why);
}

CheckReport Image::check(const CheckOptions& options, const std::vector<uint32_t>& absent)
{
    std::string why;
    CheckReport report;
    Result<Assembly> assembly = assemble(borrow(absent), why);
    expect_ok(assembly.status(), why);
    expect_ok(check_volume(assembly.take(), options, report, why), why);
    return report;
}

CheckReport Image::check_devices(std::vector<std::unique_ptr<BlockDevice>> devices)
{
    std::string why;
    CheckReport report;
    Result<Assembly> assembly = assemble(std::move(devices), why);
    expect_ok(assembly.status(), why);
    expect_ok(check_volume(assembly.take(), {}, report, why), why);
    return report;
}

std::unique_ptr<Volume> Image::open_volume()
{
    std::string why;
    Result<Assembly> assembly = assemble(borrow(), why);
    expect_ok(assembly.status(), why);
    MountOptions options;
    options.read_only = true;
    Result<std::unique_ptr<Volume>> volume = Volume::open(assembly.take(), options, why);
    expect_ok(volume.status(), why);
    return volume.take();
}

std::unique_ptr<Filesystem> Image::open_core(const std::vector<uint32_t>& absent)
{
    std::string why;
    Result<Assembly> assembly = assemble(borrow(absent), why);
    expect_ok(assembly.status(), why);
    MountOptions options = manual_options();
    options.degraded = !absent.empty();
    Result<std::unique_ptr<Volume>> volume = Volume::open(assembly.take(), options, why);
    expect_ok(volume.status(), why);
    const Result<RootContent> root = read_root(**volume, why);
    expect_ok(root.status(), why);
    std::unique_ptr<Filesystem> core = std::make_unique<Filesystem>(options, volume.take(), *root);
    expect_ok(core->committer.start_writing(why), why);
    return core;
}

StoredAt Image::locate(Volume& volume, VolumeAddress address, uint32_t copy)
{
    const Ref<const ArrayGroup> group = volume.array().group_at(address);
    CW_ASSERT(group);
    const BlockPlace place = place_of(group->geometry, address - group->record.address);
    const uint32_t column = group_column(group->geometry, place.stripe, place.column, copy);
    const MemberId id = group->record.columns[column].member;
    return {id.value - 1, id, group->locate(column, column_offset(group->geometry, place)).offset.value};
}

StoredAt Image::rot(VolumeAddress address, uint32_t copy)
{
    const StoredAt at = locate(*open_volume(), address, copy);
    std::byte bytes[16];
    member(at.member).peek(at.offset + 1000, bytes);
    for (std::byte& byte : bytes)
        byte ^= std::byte{0x5a};
    member(at.member).poke(at.offset + 1000, bytes);
    return at;
}

VolumeAddress Image::parity_of(VolumeAddress data, uint32_t parity)
{
    const std::unique_ptr<Volume> volume = open_volume();
    const Ref<const ArrayGroup> group = volume->array().group_at(data);
    BlockPlace place = place_of(group->geometry, data - group->record.address);
    place.column = group->geometry.data_columns + parity;
    return group->record.address + offset_of(group->geometry, place);
}

void Image::write_node(Volume& volume, const BlockRef& ref, std::span<const std::byte> content)
{
    const Ref<const ArrayGroup> group = volume.array().group_at(ref.address);
    CW_ASSERT(group->geometry.parity == 0);
    for (uint32_t copy = 0; copy < group->geometry.copies; ++copy)
        for (uint32_t block = 0; block < kNodeBlocks; ++block) {
            const StoredAt at = locate(volume, ref.address + uint64_t{block} * kBlockBytes, copy);
            member(at.member).poke(at.offset, content.subspan(size_t{block} * kBlockBytes, kBlockBytes));
        }
}

void Image::write_superblocks(Volume& volume, const BlockRef& root)
{
    Superblock superblock = volume.superblock();
    superblock.root = root;
    for (const MemberRecord& record : volume.superblock().members) {
        superblock.member_id = record.id;
        const std::vector<std::byte> bytes = encode_superblock(superblock);
        const uint64_t slot = superblock.generation.value % kSuperblockSlotCount * kSuperblockSlotBytes;
        for (const uint64_t ring : kSuperblockRingOffset)
            member(record.id.value - 1).poke(ring + slot, bytes);
    }
}

void Image::edit_root_node(uint64_t tree_id, Change change, void* context)
{
    const std::unique_ptr<Volume> volume = open_volume();
    BlockRef root = volume->superblock().root;
    std::vector<std::byte> leaf = read_node(*volume, root, kRootTree);
    if (tree_id == kRootTree) {
        change(context, leaf);
    } else {
        DiskTreeRoot* item = find_root_item(leaf, tree_id);
        CW_ASSERT(item != nullptr);
        BlockRef ref = decode(item->root);
        std::vector<std::byte> node = read_node(*volume, ref, tree_id);
        change(context, node);
        ref.checksums = checksums_of_node(node);
        item->root = encode(ref);
        write_node(*volume, ref, node);
    }
    root.checksums = checksums_of_node(leaf);
    write_node(*volume, root, leaf);
    write_superblocks(*volume, root);
}

std::vector<StoredItem> file_tree_items(Image& image)
{
    const std::unique_ptr<Volume> volume = image.open_volume();
    std::string why;
    const Result<RootContent> root = read_root(*volume, why);
    expect_ok(root.status(), why);
    ArrayNodeReader reader(volume->array());
    NodeCache cache(reader, volume->identity().uuid, 4 * kMiB);
    TreeCursor cursor(cache, root->committed->file_tree);
    expect_ok(cursor.seek(kMinKey), "seek");
    std::vector<StoredItem> items;
    while (cursor.valid()) {
        items.push_back({cursor.key(), {cursor.payload().begin(), cursor.payload().end()}});
        expect_ok(cursor.next(), "next");
    }
    return items;
}

}  // namespace cowraid::test
