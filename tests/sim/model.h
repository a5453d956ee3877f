// SPDX-License-Identifier: MIT
// What a volume must hold, in plain memory: the whole tree with content. Copies are cheap, so that a state
// can be kept for later: inodes and blocks are shared until one side changes them.
#pragma once

#include <sys/stat.h>

#include <ctime>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/ref.h"
#include "base/status.h"
#include "base/units.h"

namespace cowraid::test {

// Bytes of a file. Absent blocks are zeros.
class FileContent {
public:
    [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
    void write(uint64_t offset, std::span<const std::byte> bytes);
    void resize(uint64_t size_bytes);
    // Zeros over a range; the size stays.
    void clear(uint64_t offset, uint64_t length);
    // Copies [offset, offset + out.size()), zeros behind the end.
    void read(uint64_t offset, std::span<std::byte> out) const;
    // Whether the bytes at `offset` are these.
    [[nodiscard]] bool holds(uint64_t offset, std::span<const std::byte> bytes) const;

private:
    struct Block : RefCounted<Block> {
        std::byte bytes[kBlockBytes];
    };
    Block& block_for_change(uint64_t index);

    uint64_t size_bytes_ = 0;
    std::vector<Ref<Block>> blocks_;
};

struct ModelInode {
    uint32_t mode = 0;  // with type
    uint32_t uid = 0;
    uint32_t gid = 0;
    uint32_t links = 1;
    uint64_t rdev = 0;
    InodeNumber parent;  // of a directory
    timespec modified{};  // of a regular file
    FileContent content;
    std::string target;  // of a symbolic link
    std::map<std::string, InodeNumber> children;  // of a directory
    std::map<std::string, std::string> xattrs;

    [[nodiscard]] bool is_directory() const { return S_ISDIR(mode); }
    [[nodiscard]] bool is_file() const { return S_ISREG(mode); }
    [[nodiscard]] bool is_symlink() const { return S_ISLNK(mode); }
    [[nodiscard]] uint64_t size_bytes() const;
};

class Model {
private:
    struct Shared : RefCounted<Shared> {
        ModelInode inode;
    };

public:
    // An empty root directory.
    Model();

    // By rising number, inodes without a name included.
    [[nodiscard]] const std::map<uint64_t, Ref<Shared>>& inodes() const { return inodes_; }
    [[nodiscard]] const ModelInode* find(InodeNumber number) const;
    [[nodiscard]] const ModelInode& at(InodeNumber number) const;
    // For changing it; earlier copies of the model keep what they have.
    ModelInode& change(InodeNumber number);
    // 0: no such name.
    [[nodiscard]] InodeNumber child(InodeNumber directory, const std::string& name) const;

    // What POSIX answers; and the change, which must be allowed.
    [[nodiscard]] Err may_make(InodeNumber directory, const std::string& name) const;
    void make(InodeNumber directory, const std::string& name, InodeNumber number, ModelInode inode);
    [[nodiscard]] Err may_link(InodeNumber inode, InodeNumber directory, const std::string& name) const;
    void link(InodeNumber inode, InodeNumber directory, const std::string& name);
    enum class Removal : uint8_t { kUnlink, kRmdir };
    [[nodiscard]] Err may_remove(InodeNumber directory, const std::string& name, Removal how) const;
    void remove(InodeNumber directory, const std::string& name);
    struct Rename {
        InodeNumber from;
        std::string name;
        InodeNumber to;
        std::string new_name;
        uint32_t flags = 0;
    };
    [[nodiscard]] Err may_rename(const Rename& rename) const;
    void rename(const Rename& rename);

    // An inode without a name whose last user went.
    void drop(InodeNumber number) { inodes_.erase(number.value); }
    // After a restart nobody uses an inode without a name.
    void drop_unnamed();

private:
    [[nodiscard]] bool is_within(InodeNumber directory, InodeNumber ancestor) const;
    void drop_name(InodeNumber directory, InodeNumber inode);
    void settle(InodeNumber inode, InodeNumber from, InodeNumber to);

    std::map<uint64_t, Ref<Shared>> inodes_;
};

}  // namespace cowraid::test
