// SPDX-License-Identifier: MIT
// The offline check against commits whose content is wrong, and against hostile ones.
#include <sys/stat.h>

#include <cstring>
#include <tuple>

#include "base/zstd_frame.h"
#include "format/acl_codec.h"
#include "format/feature_table.h"
#include "fs/commit/committer.h"
#include "fs/names/dirent.h"
#include "fs/names/xattr.h"
#include "tests/filesystem/check_content.h"

using namespace cowraid;
using namespace cowraid::test;

namespace {

InodeNumber find_inode(Filesystem& core, InodeNumber directory, std::string_view name)
{
    const Result<DirentSlot> slot =
        find_dirent(core.store.items, core.volume->identity().name_hash_seed, directory, name);
    REQUIRE(slot.ok());
    REQUIRE(slot->found);
    return slot->entry.inode;
}

InodeAttributes attributes_of(Filesystem& core, InodeNumber inode)
{
    ItemBytes payload;
    REQUIRE(core.store.items.get(inode_key(inode), payload).ok());
    const Result<InodeAttributes> attributes = decode_inode(payload);
    REQUIRE(attributes.ok());
    return *attributes;
}

void put(Filesystem& core, const Key& key, std::span<const std::byte> payload)
{
    const Ref<Transaction> open = core.store.timeline.open();
    open->items.put(key, payload);
    open->dirty = true;
}

// Changes something harmless, so that the commit has an item.
void touch(Filesystem& core)
{
    InodeAttributes attributes = attributes_of(core, kRoot);
    attributes.accessed.tv_sec += 1;
    put(core, inode_key(kRoot), encode_inode(attributes));
}

// Commits damage into a copy of the filled volume and checks it: something is found, and all of one kind.
CheckReport expect_kind(const char* what, const char* kind, void (*damage)(Filesystem&))
{
    CAPTURE(what);
    Image image = raid6_image();
    {
        const std::unique_ptr<Filesystem> core = image.open_core();
        damage(*core);
        REQUIRE(core->committer.commit().ok());
    }
    const CheckReport report = image.check();
    INFO(text_of(report));
    CHECK(!report.clean());
    for (const CheckFinding& finding : report.findings) {
        CHECK(finding.kind == kind);
        CHECK(!finding.repairable);
    }
    return report;
}

}  // namespace

TEST_CASE("wrong inodes")
{
    expect_kind("link count of a file", "inode", [](Filesystem& core) {
        const InodeNumber inode = find_inode(core, kRoot, "big");
        InodeAttributes attributes = attributes_of(core, inode);
        attributes.link_count = 2;
        put(core, inode_key(inode), encode_inode(attributes));
    });
    expect_kind("link count of a directory", "inode", [](Filesystem& core) {
        InodeAttributes attributes = attributes_of(core, kRoot);
        ++attributes.link_count;
        put(core, inode_key(kRoot), encode_inode(attributes));
    });
    expect_kind("size of a directory", "inode", [](Filesystem& core) {
        InodeAttributes attributes = attributes_of(core, kRoot);
        attributes.size_bytes += 2;
        put(core, inode_key(kRoot), encode_inode(attributes));
    });
    expect_kind("block count", "inode", [](Filesystem& core) {
        const InodeNumber inode = find_inode(core, kRoot, "big");
        InodeAttributes attributes = attributes_of(core, inode);
        --attributes.data_blocks;
        put(core, inode_key(inode), encode_inode(attributes));
    });
    expect_kind("no links and no orphan mark", "inode", [](Filesystem& core) {
        core.store.timeline.open()->items.erase(orphan_key({find_inode(core, kRoot, "big")}));
        InodeAttributes attributes = attributes_of(core, find_inode(core, kRoot, "big"));
        attributes.link_count = 0;
        put(core, inode_key(find_inode(core, kRoot, "big")), encode_inode(attributes));
    });
}

TEST_CASE("wrong items of inodes")
{
    expect_kind("orphan marks", "inode", [](Filesystem& core) {
        put(core, orphan_key(find_inode(core, kRoot, "big")), {});
        put(core, orphan_key({kMaxInode}), {});
    });
    expect_kind("target of a symbolic link", "inode", [](Filesystem& core) {
        put(core, symlink_key(find_inode(core, kRoot, "symlink")), std::as_bytes(std::span("abc", 3)));
    });
    expect_kind("not an inode", "inode", [](Filesystem& core) {
        put(core, inode_key(find_inode(core, kRoot, "fifo")), std::as_bytes(std::span("abc", 3)));
    });
    expect_kind("extended attribute in the wrong place", "inode", [](Filesystem& core) {
        put(core, xattr_key(find_inode(core, kRoot, "big"), kMinCursor),
            encode_xattr("user.x", std::as_bytes(std::span("abc", 3))).front());
    });
    expect_kind("an access control list that is none", "inode", [](Filesystem& core) {
        const InodeNumber inode = find_inode(core, kRoot, "big");
        const std::string_view name = kAccessAclName;
        const uint64_t cursor = name_bucket(core.volume->identity().name_hash_seed, name);
        put(core, xattr_key(inode, cursor), encode_xattr(name, std::as_bytes(std::span("abc", 3))).front());
        core.volume->keep_rights();
    });
    expect_kind("an access control list beside another mode", "inode", [](Filesystem& core) {
        const InodeNumber inode = find_inode(core, kRoot, "big");
        const Acl acl = {{AclTag::kOwner, 7}, {AclTag::kGroup, 0}, {AclTag::kMask, 7}, {AclTag::kOther, 0}};
        REQUIRE(core.names.set_xattr(inode, kAccessAclName, encode_acl(acl), 0).ok());
        InodeAttributes attributes = attributes_of(core, inode);
        attributes.mode &= ~uint32_t{S_IRWXG};
        put(core, inode_key(inode), encode_inode(attributes));
    });
    expect_kind("items of an unknown type", "tree", [](Filesystem& core) {
        put(core, {kRootInode, 99, 7}, std::as_bytes(std::span("abc", 3)));
    });
}

TEST_CASE("wrong names")
{
    expect_kind("entry of nothing", "directory", [](Filesystem& core) {
        const uint64_t cursor = name_bucket(core.volume->identity().name_hash_seed, "dangling");
        put(core, dirent_key(kRoot, cursor), encode_dirent({cursor, {kMaxInode}, 0, S_IFREG, "dangling"}));
        InodeAttributes attributes = attributes_of(core, kRoot);
        attributes.size_bytes += 2 * 8;
        put(core, inode_key(kRoot), encode_inode(attributes));
    });
    expect_kind("entry missing", "directory", [](Filesystem& core) {
        const uint64_t cursor = name_bucket(core.volume->identity().name_hash_seed, "fifo");
        core.store.timeline.open()->items.erase(dirent_key(kRoot, cursor));
        InodeAttributes attributes = attributes_of(core, kRoot);
        attributes.size_bytes -= 2 * 4;
        put(core, inode_key(kRoot), encode_inode(attributes));
    });
    expect_kind("entry of another type", "directory", [](Filesystem& core) {
        const Result<DirentSlot> slot =
            find_dirent(core.store.items, core.volume->identity().name_hash_seed, kRoot, "fifo");
        Dirent entry = slot->entry;
        entry.mode_type = S_IFSOCK;
        put(core, dirent_key(kRoot, entry.cursor), encode_dirent(entry));
    });
    expect_kind("entry where lookup does not find it", "directory", [](Filesystem& core) {
        const Result<DirentSlot> slot =
            find_dirent(core.store.items, core.volume->identity().name_hash_seed, kRoot, "fifo");
        Dirent entry = slot->entry;
        core.store.timeline.open()->items.erase(dirent_key(kRoot, entry.cursor));
        entry.cursor += 1024;
        put(core, dirent_key(kRoot, entry.cursor), encode_dirent(entry));
        put(core, link_key(entry.inode, entry.link_sequence), encode_link({kRoot, entry.cursor, entry.name}));
    });
}

TEST_CASE("directories that cannot be reached")
{
    expect_kind("two directories below each other", "directory", [](Filesystem& core) {
        // "directory" moves into a directory that is below it: both are cut off from the root.
        const InodeNumber outer = find_inode(core, kRoot, "directory");
        const Result<DirentSlot> slot =
            find_dirent(core.store.items, core.volume->identity().name_hash_seed, kRoot, "directory");
        const InodeNumber inner = find_inode(core, kRoot, "sparse");
        const Result<DirentSlot> inner_slot =
            find_dirent(core.store.items, core.volume->identity().name_hash_seed, kRoot, "sparse");
        for (const auto& [inode, entry, parent] :
             {std::tuple{outer, slot->entry, inner}, std::tuple{inner, inner_slot->entry, outer}}) {
            core.store.timeline.open()->items.erase(dirent_key(kRoot, entry.cursor));
            put(core, dirent_key(parent, entry.cursor), encode_dirent(entry));
            put(core, link_key(inode, entry.link_sequence), encode_link({parent, entry.cursor, entry.name}));
            InodeAttributes attributes = attributes_of(core, inode);
            attributes.parent = parent.value;
            attributes.link_count += 1;
            attributes.size_bytes += 2 * (inode == outer ? 6 : 9);
            put(core, inode_key(inode), encode_inode(attributes));
        }
        InodeAttributes attributes = attributes_of(core, kRoot);
        attributes.link_count -= 2;
        attributes.size_bytes -= 2 * (6 + 9);
        put(core, inode_key(kRoot), encode_inode(attributes));
    });
}

TEST_CASE("wrong extents")
{
    expect_kind("one block in two files", "extent", [](Filesystem& core) {
        std::vector<FileExtent> extents;
        const InodeNumber big = find_inode(core, kRoot, "big");
        REQUIRE(find_extents(core.store.items, core.store.items.view(), big, 0, 1, extents).ok());
        const InodeNumber fifo = find_inode(core, kRoot, "moved");
        FileExtent extent = extents.front();
        extent.file_block = 100;
        put(core, extent_key(fifo, 100), encode_extent(extent));
        InodeAttributes attributes = attributes_of(core, fifo);
        attributes.data_blocks += extent.block_count;
        attributes.size_bytes = kMiB * 10;
        put(core, inode_key(fifo), encode_inode(attributes));
    });
    expect_kind("extents of a file overlap", "extent", [](Filesystem& core) {
        std::vector<FileExtent> extents;
        const InodeNumber inode = find_inode(core, kRoot, "promised");
        REQUIRE(find_extents(core.store.items, core.store.items.view(), inode, 0, 1, extents).ok());
        REQUIRE(extents.front().kind == ExtentKind::kReserved);
        put(core, extent_key(inode, 1), encode_extent({1, 1, ExtentKind::kReserved, {}, {}}));
        InodeAttributes attributes = attributes_of(core, inode);
        attributes.data_blocks += 1;
        core.files.reserved_blocks += 1;
        put(core, inode_key(inode), encode_inode(attributes));
    });
    expect_kind(
        "an extent outside every group, and one in a group for metadata", "extent", [](Filesystem& core) {
            const InodeNumber inode = find_inode(core, kRoot, "moved");
            put(core, extent_key(inode, 100), encode_extent({100, 3, ExtentKind::kData, {kBlockBytes}, {1}}));
            const VolumeAddress node = core.volume->superblock().root.address;
            put(core, extent_key(inode, 200), encode_extent({200, 1, ExtentKind::kData, node, {1}}));
            InodeAttributes attributes = attributes_of(core, inode);
            attributes.data_blocks += 4;
            attributes.size_bytes = kMiB * 10;
            put(core, inode_key(inode), encode_inode(attributes));
        });
    // A few bytes stand for 128 MiB each: they are not followed for ever.
    const CheckReport report =
        expect_kind("files of more blocks than the members have", "extent", [](Filesystem& core) {
            const InodeNumber inode = find_inode(core, kRoot, "moved");
            InodeAttributes attributes = attributes_of(core, inode);
            for (uint64_t at = 100; at < 100 * kMaxExtentBlocks; at += kMaxExtentBlocks) {
                put(core, extent_key(inode, at),
                    encode_extent({at, kMaxExtentBlocks, ExtentKind::kData, {kBlockBytes}, {1}}));
                attributes.data_blocks += kMaxExtentBlocks;
                attributes.size_bytes = (at + kMaxExtentBlocks) * kBlockBytes;
            }
            put(core, inode_key(inode), encode_inode(attributes));
        });
    CHECK(report.findings.size() < 10);
    CHECK(report.findings.back().text.find("files have more blocks than the members") != std::string::npos);
    expect_kind("data behind the end", "extent", [](Filesystem& core) {
        const InodeNumber inode = find_inode(core, kRoot, "big");
        InodeAttributes attributes = attributes_of(core, inode);
        attributes.size_bytes = 5;
        put(core, inode_key(inode), encode_inode(attributes));
    });
}

namespace {

// A file with an inline frame, in all but what the superblock says.
void put_inline_frame(Filesystem& core)
{
    const std::vector<std::byte> content(21 * kBlockBytes, std::byte{7});
    FileExtent extent{.file_block = 20, .block_count = 1, .address = {}, .generation = {1}, .frame = {}};
    extent.offset_blocks = 20;
    extent.compression = Compression::kZstdInline;
    extent.inline_frame.resize(kInlineBytesMax);
    extent.inline_frame.resize(ZstdCompressor().compress(content, 3, extent.inline_frame));
    REQUIRE(!extent.inline_frame.empty());
    const InodeNumber inode = find_inode(core, kRoot, "moved");
    put(core, extent_key(inode, extent.file_block), encode_extent(extent));
    InodeAttributes attributes = attributes_of(core, inode);
    attributes.data_blocks += 1;
    attributes.size_bytes = kMiB * 10;
    put(core, inode_key(inode), encode_inode(attributes));
    core.store.timeline.open()->compressed_file_blocks += 1;
    core.store.timeline.open()->compressed_blocks += 1;
}

void put_flags(Filesystem& core)
{
    const InodeNumber inode = find_inode(core, kRoot, "fifo");
    InodeAttributes attributes = attributes_of(core, inode);
    attributes.flags = kInodeNoDump;
    put(core, inode_key(inode), encode_inode(attributes));
}

void put_root_attribute(Filesystem& core, std::string_view name, std::span<const std::byte> value)
{
    const uint64_t cursor = name_bucket(core.volume->identity().name_hash_seed, name);
    put(core, xattr_key(kRoot, cursor), encode_xattr(name, value).front());
}

void put_capability(Filesystem& core)
{
    put_root_attribute(core, kCapabilityName, std::as_bytes(std::span("abc", 3)));
}

void put_default_list(Filesystem& core)
{
    const Acl acl = {{AclTag::kOwner, 7}, {AclTag::kGroup, 0}, {AclTag::kOther, 0}};
    put_root_attribute(core, kDefaultAclName, encode_acl(acl));
}

void put_ordinary_attribute(Filesystem& core)
{
    put_root_attribute(core, "security.selinux", std::as_bytes(std::span("abc", 3)));
}

}  // namespace

TEST_CASE("a superblock without the features that files need")
{
    const auto expect_lacking = [](const std::string& features, void (*damage)(Filesystem&)) {
        const CheckReport report = expect_kind(features.c_str(), "superblock", damage);
        REQUIRE(report.findings.size() == 1);
        CHECK(report.findings[0].text == "the superblock lacks features that files need: " + features);
    };
    expect_lacking("zstd, inline_frames", put_inline_frame);
    expect_lacking("inode_flags", put_flags);
    expect_lacking("rights", put_capability);
    expect_lacking("rights", put_default_list);
    Image image = raid6_image();
    {
        const std::unique_ptr<Filesystem> core = image.open_core();
        put_ordinary_attribute(*core);
        REQUIRE(core->committer.commit().ok());
    }
    REQUIRE_CLEAN(image.check());
    {
        const std::unique_ptr<Filesystem> core = image.open_core();
        put_inline_frame(*core);
        put_flags(*core);
        put_capability(*core);
        core->volume->note_inline_frames();
        core->volume->need_features(feature_bit("inode_flags"));
        core->volume->keep_rights();
        REQUIRE(core->committer.commit().ok());
    }
    REQUIRE_CLEAN(image.check());
    // Features without such extents are those of files that are gone.
    image = raid6_image();
    {
        const std::unique_ptr<Filesystem> core = image.open_core();
        core->volume->note_inline_frames();
        touch(*core);
        REQUIRE(core->committer.commit().ok());
    }
    REQUIRE_CLEAN(image.check());
}

TEST_CASE("wrong space and checksums")
{
    expect_kind("blocks recorded as used by nothing", "space", [](Filesystem& core) {
        std::vector<RowRegion> regions;
        const Ref<Transaction> open = core.store.timeline.open();
        REQUIRE(core.store.allocator.allocate(Stream::kData, 1, 5, open->id, regions).ok());
        touch(core);
    });
    expect_kind("blocks in use recorded as free", "space", [](Filesystem& core) {
        std::vector<FileExtent> extents;
        const InodeNumber big = find_inode(core, kRoot, "big");
        REQUIRE(find_extents(core.store.items, core.store.items.view(), big, 0, 1, extents).ok());
        const Ref<Transaction> open = core.store.timeline.open();
        REQUIRE(core.store.allocator.free_blocks(extents.front().address, 1, open->id).ok());
        touch(core);
    });
    expect_kind("data without checksums", "checksum", [](Filesystem& core) {
        std::vector<RowRegion> regions;
        const Ref<Transaction> open = core.store.timeline.open();
        // Beyond what was ever written.
        REQUIRE(core.store.allocator.allocate(Stream::kData, 1, 2000, open->id, regions).ok());
        const InodeNumber inode = find_inode(core, kRoot, "moved");
        InodeAttributes attributes = attributes_of(core, inode);
        uint64_t file_block = 0;
        for (const RowRegion& region : regions)
            for (uint64_t i = 0; i < region.used_blocks; ++i, ++file_block)
                put(core, extent_key(inode, file_block),
                    encode_extent({file_block, 1, ExtentKind::kData, region.block_address(i), {1}}));
        attributes.data_blocks += file_block;
        attributes.size_bytes = file_block * kBlockBytes;
        put(core, inode_key(inode), encode_inode(attributes));
    });
}

TEST_CASE("wrong counters")
{
    expect_kind("counter of inodes", "inode", [](Filesystem& core) {
        core.names.inode_count += 5;
        core.store.timeline.open()->dirty = true;
    });
    expect_kind("next inode", "inode", [](Filesystem& core) {
        core.names.next_inode = kRootInode + 1;
        core.store.timeline.open()->dirty = true;
    });
    expect_kind("counter of promised blocks", "space", [](Filesystem& core) {
        core.files.reserved_blocks += 7;
        core.store.timeline.open()->dirty = true;
    });
    expect_kind("counter of compressed blocks of files", "space", [](Filesystem& core) {
        core.store.timeline.open()->compressed_file_blocks += 1;
        core.store.timeline.open()->dirty = true;
    });
    expect_kind("counter of blocks of frames", "space", [](Filesystem& core) {
        core.store.timeline.open()->compressed_blocks += 1;
        core.store.timeline.open()->dirty = true;
    });
}

TEST_CASE("hostile items end in findings")
{
    Prng prng(seed());
    CAPTURE(seed());
    Image sound = raid6_image();
    const std::vector<StoredItem> items = file_tree_items(sound);
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        Image image = raid6_image();
        {
            const std::unique_ptr<Filesystem> core = image.open_core();
            for (int change = 0; change < 5; ++change) {
                StoredItem item = items[prng.below(items.size())];
                const uint64_t extremes[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, prng.next(), prng.below(1000)};
                const uint64_t value = extremes[prng.below(6)];
                const uint64_t kind = prng.below(5);
                if (kind == 0)
                    item.key.offset = value;
                else if (kind == 1)
                    item.key.object = value;
                else if (kind == 2 || item.payload.size() < 8)
                    item.payload.resize(prng.below(300), std::byte{0xee});
                else
                    std::memcpy(item.payload.data() + prng.below(item.payload.size() / 8) * 8, &value, 8);
                put(*core, item.key, item.payload);
            }
            put(*core, {300 + prng.below(100), static_cast<uint8_t>(prng.below(60)), prng.next()},
                std::as_bytes(std::span("0123456789", 10)));
            REQUIRE(core->committer.commit().ok());
        }
        CHECK(!image.check().clean());
    }
}

TEST_CASE("hostile nodes are survived")
{
    Prng prng(seed());
    CAPTURE(seed());
    for (const uint64_t tree : {kRootTree, kChecksumTree, kFreeSpaceTree, kFirstFileTree})
        for (int round = 0; round < 40; ++round) {
            CAPTURE(tree);
            CAPTURE(round);
            Image image = raid6_image();
            image.edit_root_node(
                tree,
                [](void* context, std::span<std::byte> node) {
                    auto& random = *static_cast<Prng*>(context);
                    const size_t used = 64 + random.below(node.size() - 72);
                    const uint64_t extremes[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, random.next()};
                    const uint64_t value = extremes[random.below(5)];
                    std::memcpy(node.data() + (random.chance(1, 2) ? used : 8 + random.below(200)), &value,
                                8);
                },
                &prng);
            image.check();
        }
}
