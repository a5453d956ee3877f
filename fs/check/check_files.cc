// SPDX-License-Identifier: MIT
// The file tree in one walk: items are gathered inode by inode, since an inode's items stand together.
#include <sys/stat.h>

#include <algorithm>

#include "format/damage_codec.h"
#include "format/feature_table.h"
#include "format/items.h"
#include "fs/check/check_inode.h"
#include "fs/check/check_names.h"
#include "fs/names/inode_use.h"
#include "fs/names/xattr.h"

namespace cowraid {

namespace {

class FileTreeCheck final : public TreeVisitor {
public:
    explicit FileTreeCheck(CheckContext& context)
        : context_(context), watch_(context, kGroupMetadata), seed_(context.volume.identity().name_hash_seed)
    {
    }

    void node(const Node& node) override { watch_.node(node); }
    void problem(const std::string& text) override;
    void item(const Key& key, std::span<const std::byte> payload) override;
    // After the walk.
    void finish(const TreeRoot& tree, const std::optional<VolumeCounters>& counters);

private:
    void begin_inode(const Key& key);
    void end_inode();
    void volume_item(const Key& key, std::span<const std::byte> payload);
    void inode_item(const Key& key, std::span<const std::byte> payload);
    void link_item(const Key& key, std::span<const std::byte> payload);
    void entry_item(const Key& key, std::span<const std::byte> payload);
    void access_list(const XattrPart& part);
    void xattr_item(const Key& key, std::span<const std::byte> payload);
    void target_item(const Key& key, std::span<const std::byte> payload);
    void take_orphan_mark();
    void orphans_without_inode(uint64_t below);
    void check_counters(const VolumeCounters& counters);
    void lacking_features(FeatureClass feature_class, uint64_t lacking);

    CheckContext& context_;
    NodeWatch watch_;
    const uint64_t seed_;
    GatheredInode inode_;  // the one whose items are passing by; number 0: none
    bool after_gap_ = false;
    std::vector<uint64_t> orphans_;  // marks, rising; they come before all inodes
    size_t next_orphan_ = 0;
    BucketCheck entry_bucket_, xattr_bucket_;
    NameLedger names_;
    DirectoryGraph directories_;
    uint64_t highest_inode_ = 0;
    uint64_t reserved_blocks_ = 0, compressed_file_blocks_ = 0, compressed_blocks_ = 0;
    bool root_seen_ = false;
};

void FileTreeCheck::problem(const std::string& text)
{
    watch_.problem(text);
    inode_.torn = true;
    after_gap_ = true;
}

void FileTreeCheck::begin_inode(const Key& key)
{
    inode_ = {};
    inode_.number = key.object;
    // The inode item comes first: with it, nothing of this inode lies before.
    inode_.torn = after_gap_ && key.type != static_cast<uint8_t>(ItemType::kInode);
    after_gap_ = false;
}

void FileTreeCheck::end_inode()
{
    if (inode_.number == 0)
        return;
    take_orphan_mark();
    if (xattr_bucket_.take_incomplete() && watch_.whole())
        context_.findings.add("inode", {}, "inode %llu: an extended attribute lacks a part",
                              as_ull(inode_.number));
    examine_inode(context_, inode_);
    reserved_blocks_ += inode_.extents.reserved;
    compressed_file_blocks_ += inode_.extents.compressed_file_blocks;
    compressed_blocks_ += inode_.extents.compressed_blocks;
    root_seen_ = root_seen_ || (inode_.number == kRootInode && inode_.has_item);
    if (inode_.readable && inode_.attributes.is_directory() && inode_.name_count > 0 &&
        inode_.number != kRootInode)
        directories_.add(inode_.number, inode_.parent);
    inode_ = {};
}

void FileTreeCheck::orphans_without_inode(uint64_t below)
{
    for (; next_orphan_ < orphans_.size() && orphans_[next_orphan_] < below; ++next_orphan_)
        if (watch_.whole())
            context_.findings.add("inode", {}, "an orphan mark for inode %llu, which is not there",
                                  as_ull(orphans_[next_orphan_]));
}

void FileTreeCheck::take_orphan_mark()
{
    orphans_without_inode(inode_.number);
    if (next_orphan_ < orphans_.size() && orphans_[next_orphan_] == inode_.number) {
        inode_.orphan = true;
        ++next_orphan_;
    } else {
        // The mark may be in a node that cannot be read.
        inode_.orphan = !watch_.whole() &&
                        (inode_.attributes.link_count == 0 || (inode_.attributes.flags & kInodeCut) != 0);
    }
}

void FileTreeCheck::volume_item(const Key& key, std::span<const std::byte> payload)
{
    if (key.type == static_cast<uint8_t>(ItemType::kDamaged) && decode_damage(payload).ok())
        return;
    if (key.type != static_cast<uint8_t>(ItemType::kOrphan) || !payload.empty() || key.offset > kMaxInode ||
        (!orphans_.empty() && orphans_.back() >= key.offset)) {
        context_.findings.add("tree", {}, "file tree: an item of unknown kind (0 %u %llu)",
                              unsigned{key.type}, as_ull(key.offset));
        return;
    }
    orphans_.push_back(key.offset);
}

void FileTreeCheck::inode_item(const Key& key, std::span<const std::byte> payload)
{
    ++context_.report().inodes;
    highest_inode_ = std::max(highest_inode_, key.object);
    inode_.has_item = true;
    Result<InodeAttributes> attributes = decode_inode(payload);
    if (!attributes.ok() || key.offset != 0) {
        context_.findings.add("inode", {}, "inode %llu is not one", as_ull(key.object));
        return;
    }
    inode_.readable = true;
    inode_.attributes = *attributes;
    if (attributes->flags != 0)
        context_.used_features |= feature_bit("inode_flags");
    if ((attributes->flags & kInodeCut) != 0)
        context_.used_features |= feature_bit("cut_files");
    context_.report().directories += attributes->is_directory();
    context_.report().files += attributes->is_regular();
}

void FileTreeCheck::link_item(const Key& key, std::span<const std::byte> payload)
{
    ++inode_.name_count;
    inode_.sequence_end = std::max(inode_.sequence_end, std::max(key.offset, key.offset + 1));
    const Result<InodeLink> link = decode_link(payload);
    if (!link.ok()) {
        context_.findings.add("inode", {}, "inode %llu: its link %llu is not one", as_ull(key.object),
                              as_ull(key.offset));
        return;
    }
    inode_.parent = link->parent.value;
    names_.add_link(key.object, key.offset, *link, inode_.attributes.mode & S_IFMT);
}

void FileTreeCheck::entry_item(const Key& key, std::span<const std::byte> payload)
{
    ++inode_.entry_count;
    const Result<Dirent> entry = decode_dirent(key.offset, payload);
    if (!entry.ok()) {
        context_.findings.add("directory", {}, "directory %llu: its entry at %llu is not one",
                              as_ull(key.object), as_ull(key.offset));
        return;
    }
    inode_.subdirectory_count += S_ISDIR(entry->mode_type);
    inode_.entry_weight += name_weight(entry->name);
    if (!entry_bucket_.accept(key.object, seed_, entry->cursor, entry->name))
        context_.findings.add("directory", {},
                              "directory %llu: a name twice, or where lookup misses it, at %llu",
                              as_ull(key.object), as_ull(key.offset));
    names_.add_entry(key.object, *entry);
}

void FileTreeCheck::access_list(const XattrPart& part)
{
    const Result<Acl> acl = decode_acl(part.value);
    if (!acl.ok())
        context_.findings.add("inode", {}, "inode %llu: an access control list is damaged",
                              as_ull(inode_.number));
    else if (part.name == kAccessAclName && inode_.readable &&
             acl_permissions(*acl) != (inode_.attributes.mode & kPermissionBits))
        context_.findings.add("inode", {},
                              "inode %llu: the access control list says something else than the mode",
                              as_ull(inode_.number));
}

void FileTreeCheck::xattr_item(const Key& key, std::span<const std::byte> payload)
{
    const Result<XattrPart> part = decode_xattr(key.offset, payload);
    if (part.ok() && xattr_kind(part->name) != kOrdinaryXattr)
        context_.used_readonly_features |= feature_bit("rights");
    if (part.ok() && (part->name == kAccessAclName || part->name == kDefaultAclName))
        access_list(*part);
    if (!part.ok() || !xattr_bucket_.accept_part(key.object, seed_, *part))
        context_.findings.add("inode", {},
                              "inode %llu: an extended attribute is damaged or misplaced at %llu",
                              as_ull(key.object), as_ull(key.offset));
}

void FileTreeCheck::target_item(const Key& key, std::span<const std::byte> payload)
{
    ++inode_.target_count;
    inode_.target_bytes = payload.size();
    const bool zero_inside = std::find(payload.begin(), payload.end(), std::byte{0}) != payload.end();
    if (key.offset != 0 || payload.empty() || payload.size() > kMaxSymlinkBytes || zero_inside)
        context_.findings.add("inode", {}, "inode %llu: the target of a symbolic link is damaged",
                              as_ull(key.object));
}

void FileTreeCheck::item(const Key& key, std::span<const std::byte> payload)
{
    if (key.object == 0)
        return volume_item(key, payload);
    if (key.object != inode_.number) {
        end_inode();
        begin_inode(key);
    }
    switch (static_cast<ItemType>(key.type)) {
    case ItemType::kInode:
        return inode_item(key, payload);
    case ItemType::kLink:
        return link_item(key, payload);
    case ItemType::kDirent:
        return entry_item(key, payload);
    case ItemType::kXattr:
        return xattr_item(key, payload);
    case ItemType::kSymlink:
        return target_item(key, payload);
    case ItemType::kExtent:
        return check_extent(context_, key.object, key, payload, inode_.extents);
    default:
        context_.findings.add("tree", {}, "file tree: an item of unknown type %u of inode %llu",
                              unsigned{key.type}, as_ull(key.object));
    }
}

void FileTreeCheck::check_counters(const VolumeCounters& counters)
{
    if (counters.next_inode > kMaxInode)
        context_.findings.add("inode", {}, "the next inode would be %llu, which no inode can be",
                              as_ull(counters.next_inode));
    if (counters.next_inode <= highest_inode_)
        context_.findings.add("inode", {}, "the next inode would be %llu, but %llu is in use",
                              as_ull(counters.next_inode), as_ull(highest_inode_));
    if (counters.inode_count != context_.report().inodes)
        context_.findings.add("inode", {}, "the volume counts %llu inodes, it has %llu",
                              as_ull(counters.inode_count), as_ull(context_.report().inodes));
    if (counters.reserved_blocks != reserved_blocks_)
        context_.findings.add("space", {},
                              "the volume counts %llu blocks as reserved for files, they are %llu",
                              as_ull(counters.reserved_blocks), as_ull(reserved_blocks_));
    if (counters.compression_counted && (counters.compressed_file_blocks != compressed_file_blocks_ ||
                                         counters.compressed_blocks != compressed_blocks_))
        context_.findings.add(
            "space", {}, "the volume counts %llu compressed blocks of files in %llu, they are %llu in %llu",
            as_ull(counters.compressed_file_blocks), as_ull(counters.compressed_blocks),
            as_ull(compressed_file_blocks_), as_ull(compressed_blocks_));
    const uint64_t most = context_.raw_blocks;
    if (counters.reserved_blocks > most)
        context_.findings.add("space", {}, "%llu blocks are reserved for files, the members have %llu",
                              as_ull(counters.reserved_blocks), as_ull(most));
}

void FileTreeCheck::lacking_features(FeatureClass feature_class, uint64_t lacking)
{
    if (lacking != 0)
        context_.findings.add("superblock", {}, "the superblock lacks features that files need: %s",
                              feature_names(feature_class, lacking).c_str());
}

void FileTreeCheck::finish(const TreeRoot& tree, const std::optional<VolumeCounters>& counters)
{
    end_inode();
    orphans_without_inode(UINT64_MAX);
    context_.file_tree_whole = watch_.whole();
    const Superblock& superblock = context_.volume.superblock();
    lacking_features(FeatureClass::kRefuse, context_.used_features & ~superblock.incompat_features);
    lacking_features(FeatureClass::kReadOnly,
                     context_.used_readonly_features & ~superblock.readonly_features);
    if (!names_.balanced() || !watch_.whole())
        find_name_damage(context_, tree);
    if (!watch_.whole())
        return;
    if (!root_seen_)
        context_.findings.add("directory", {}, "the root directory is not there");
    directories_.check(context_);
    if (counters)
        check_counters(*counters);
}

}  // namespace

void check_file_tree(CheckContext& context, const CheckedRoots& roots)
{
    if (!roots.file_tree)
        return;
    FileTreeCheck check(context);
    check_tree(context.cache, *roots.file_tree, check).ignore();  // problems went to the visitor
    check.finish(*roots.file_tree, roots.counters);
}

}  // namespace cowraid
