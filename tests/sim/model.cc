// SPDX-License-Identifier: MIT
#include "tests/sim/model.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "format/items.h"

namespace cowraid::test {

FileContent::Block& FileContent::block_for_change(uint64_t index)
{
    Ref<Block>& block = blocks_[index];
    if (!block) {
        block = make_ref<Block>();
        std::memset(block->bytes, 0, kBlockBytes);
    } else if (block->reference_count() > 1) {
        Ref<Block> copy = make_ref<Block>();
        std::memcpy(copy->bytes, block->bytes, kBlockBytes);
        block = std::move(copy);
    }
    return *block;
}

void FileContent::write(uint64_t offset, std::span<const std::byte> bytes)
{
    if (offset + bytes.size() > size_bytes_)
        resize(offset + bytes.size());
    for (size_t done = 0; done < bytes.size();) {
        const uint64_t at = offset + done;
        const size_t part = std::min<size_t>(bytes.size() - done, kBlockBytes - at % kBlockBytes);
        std::memcpy(block_for_change(at / kBlockBytes).bytes + at % kBlockBytes, bytes.data() + done, part);
        done += part;
    }
}

void FileContent::resize(uint64_t size_bytes)
{
    const uint64_t old_size = size_bytes_;
    size_bytes_ = size_bytes;
    blocks_.resize(divide_up(size_bytes, kBlockBytes));
    if (size_bytes < old_size && size_bytes % kBlockBytes != 0 && blocks_.back())
        std::memset(block_for_change(blocks_.size() - 1).bytes + size_bytes % kBlockBytes, 0,
                    kBlockBytes - size_bytes % kBlockBytes);
}

void FileContent::clear(uint64_t offset, uint64_t length)
{
    const uint64_t end = std::min(size_bytes_, offset + length);
    for (uint64_t at = offset; at < end;) {
        const uint64_t part = std::min<uint64_t>(end - at, kBlockBytes - at % kBlockBytes);
        if (blocks_[at / kBlockBytes])
            std::memset(block_for_change(at / kBlockBytes).bytes + at % kBlockBytes, 0, part);
        at += part;
    }
}

void FileContent::read(uint64_t offset, std::span<std::byte> out) const
{
    for (size_t done = 0; done < out.size();) {
        const uint64_t at = offset + done;
        const size_t part = std::min<size_t>(out.size() - done, kBlockBytes - at % kBlockBytes);
        const uint64_t index = at / kBlockBytes;
        if (index < blocks_.size() && blocks_[index])
            std::memcpy(out.data() + done, blocks_[index]->bytes + at % kBlockBytes, part);
        else
            std::memset(out.data() + done, 0, part);
        done += part;
    }
}

bool FileContent::holds(uint64_t offset, std::span<const std::byte> bytes) const
{
    std::byte expected[kBlockBytes];
    for (size_t done = 0; done < bytes.size();) {
        const size_t part = std::min<size_t>(bytes.size() - done, kBlockBytes);
        read(offset + done, {expected, part});
        if (std::memcmp(expected, bytes.data() + done, part) != 0)
            return false;
        done += part;
    }
    return true;
}

uint64_t ModelInode::size_bytes() const
{
    if (is_symlink())
        return target.size();
    if (!is_directory())
        return content.size_bytes();
    uint64_t size = 0;
    for (const auto& [name, inode] : children)
        size += 2 * name.size();
    return size;
}

Model::Model()
{
    Ref<Shared> root = make_ref<Shared>();
    root->inode.mode = S_IFDIR | 0755;
    root->inode.links = 2;
    root->inode.parent = {kRootInode};
    inodes_.emplace(kRootInode, std::move(root));
}

const ModelInode* Model::find(InodeNumber number) const
{
    const auto at = inodes_.find(number.value);
    return at == inodes_.end() ? nullptr : &at->second->inode;
}

const ModelInode& Model::at(InodeNumber number) const
{
    const ModelInode* inode = find(number);
    CW_ASSERT(inode != nullptr);
    return *inode;
}

ModelInode& Model::change(InodeNumber number)
{
    const auto at = inodes_.find(number.value);
    CW_ASSERT(at != inodes_.end());
    if (at->second->reference_count() > 1) {
        Ref<Shared> copy = make_ref<Shared>();
        copy->inode = at->second->inode;
        at->second = std::move(copy);
    }
    return at->second->inode;
}

InodeNumber Model::child(InodeNumber directory, const std::string& name) const
{
    const ModelInode& inode = at(directory);
    const auto found = inode.children.find(name);
    return found == inode.children.end() ? InodeNumber{0} : found->second;
}

Err Model::may_make(InodeNumber directory, const std::string& name) const
{
    if (name.size() > 255)
        return Err::kNameTooLong;
    if (at(directory).links == 0)
        return Err::kNotFound;
    return child(directory, name).value != 0 ? Err::kExists : Err::kOk;
}

void Model::make(InodeNumber directory, const std::string& name, InodeNumber number, ModelInode inode)
{
    ModelInode& parent = change(directory);
    parent.children[name] = number;
    if ((parent.mode & S_ISGID) != 0) {
        inode.gid = parent.gid;
        inode.mode |= inode.is_directory() ? S_ISGID : 0;
    }
    if (inode.is_directory()) {
        inode.links = 2;
        inode.parent = directory;
        ++parent.links;
    }
    Ref<Shared> shared = make_ref<Shared>();
    shared->inode = std::move(inode);
    inodes_[number.value] = std::move(shared);
}

Err Model::may_link(InodeNumber inode, InodeNumber directory, const std::string& name) const
{
    if (name.size() > 255)
        return Err::kNameTooLong;
    if (at(directory).links == 0)
        return Err::kNotFound;
    if (at(inode).is_directory())
        return Err::kNotPermitted;
    if (child(directory, name).value != 0)
        return Err::kExists;
    return at(inode).links == 0 ? Err::kNotFound : Err::kOk;
}

void Model::link(InodeNumber inode, InodeNumber directory, const std::string& name)
{
    ++change(inode).links;
    change(directory).children[name] = inode;
}

void Model::drop_name(InodeNumber directory, InodeNumber inode)
{
    const bool is_directory = at(inode).is_directory();
    if (is_directory)
        --change(directory).links;
    change(inode).links -= is_directory ? 2 : 1;
}

Err Model::may_remove(InodeNumber directory, const std::string& name, Removal how) const
{
    const InodeNumber found = child(directory, name);
    if (found.value == 0)
        return Err::kNotFound;
    const bool wanted = how == Removal::kRmdir;
    if (at(found).is_directory() != wanted)
        return wanted ? Err::kNotDirectory : Err::kIsDirectory;
    return at(found).children.empty() ? Err::kOk : Err::kNotEmpty;
}

void Model::remove(InodeNumber directory, const std::string& name)
{
    const InodeNumber found = child(directory, name);
    change(directory).children.erase(name);
    drop_name(directory, found);
}

bool Model::is_within(InodeNumber directory, InodeNumber ancestor) const
{
    while (directory != ancestor && directory.value != kRootInode)
        directory = at(directory).parent;
    return directory == ancestor;
}

Err Model::may_rename(const Rename& rename) const
{
    if (rename.name.size() > 255 || rename.new_name.size() > 255)
        return Err::kNameTooLong;
    if (at(rename.from).links == 0 || at(rename.to).links == 0)
        return Err::kNotFound;
    const InodeNumber source = child(rename.from, rename.name);
    const InodeNumber target = child(rename.to, rename.new_name);
    const bool exchange = rename.flags == RENAME_EXCHANGE;
    if (source.value == 0 || (exchange && target.value == 0))
        return Err::kNotFound;
    if (rename.flags == RENAME_NOREPLACE && target.value != 0)
        return Err::kExists;
    if (source == target)
        return Err::kOk;
    if (!exchange && target.value != 0) {
        if (at(source).is_directory() != at(target).is_directory())
            return at(source).is_directory() ? Err::kNotDirectory : Err::kIsDirectory;
        if (!at(target).children.empty())
            return Err::kNotEmpty;
    }
    if (at(source).is_directory() && is_within(rename.to, source))
        return Err::kInvalid;
    if (exchange && at(target).is_directory() && is_within(rename.from, target))
        return Err::kInvalid;
    return Err::kOk;
}

void Model::settle(InodeNumber inode, InodeNumber from, InodeNumber to)
{
    if (!at(inode).is_directory())
        return;
    --change(from).links;
    ++change(to).links;
    change(inode).parent = to;
}

void Model::rename(const Rename& rename)
{
    const InodeNumber source = child(rename.from, rename.name);
    const InodeNumber target = child(rename.to, rename.new_name);
    if (source == target)
        return;
    change(rename.from).children.erase(rename.name);
    change(rename.to).children[rename.new_name] = source;
    settle(source, rename.from, rename.to);
    if (rename.flags == RENAME_EXCHANGE) {
        change(rename.from).children[rename.name] = target;
        settle(target, rename.to, rename.from);
    } else if (target.value != 0) {
        drop_name(rename.to, target);
    }
}

void Model::drop_unnamed()
{
    std::erase_if(inodes_, [](const auto& entry) { return entry.second->inode.links == 0; });
}

}  // namespace cowraid::test
