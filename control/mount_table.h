// SPDX-License-Identifier: MIT
// What the kernel has mounted, from /proc/self/mountinfo.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace cowraid {

inline constexpr const char* kMountType = "fuse.cowraid";
inline constexpr const char* kBlockMountType = "fuseblk.cowraid";  // see tools/mount/block_mount.h

struct MountEntry {
    std::string device;  // "major:minor"
    std::string directory;  // unescaped
    std::string type;
    std::string source;  // unescaped
    std::string flags;  // of the mount point: "rw,nosuid"
    bool read_only = false;  // the filesystem; a bind remount makes only the mount point so
    bool synchronous = false;  // the filesystem: "sync"
    std::string owner;  // user id of who mounted a FUSE filesystem; empty for others
    std::string group;  // its group id

    [[nodiscard]] bool is_cowraid() const { return type == kMountType || type == kBlockMountType; }
    [[nodiscard]] bool is_of_this_user() const;
};

// In the order they were mounted: the last entry of a directory is the one on top. Asks no mount anything.
std::vector<MountEntry> parse_mount_table(FILE* file);
// kIo when the table cannot be read.
Result<std::vector<MountEntry>> read_mount_table();

// The topmost mount at exactly this directory; null when nothing is mounted there.
const MountEntry* mount_at(const std::vector<MountEntry>& table, const std::string& directory);
// For a cowraid mount whose daemon this user found no way to: who may ask it, "PATH is in a volume that ...".
std::string why_not_answered(const std::string& path, const MountEntry& entry);
bool device_is_mounted(const std::vector<MountEntry>& table, const std::string& device);

// What the kernel appends to the device number in the names of such mounts' backing-device entries in sysfs.
inline constexpr const char* kBlockMountSuffix = "-fuseblk";

// Whether a superblock of this kind stands on the block device `path`, be it mounted or only kept by open
// files.
bool has_block_mount(const std::string& path);

// Where a mount of `device` is in the tree of another mount namespace, and a process that lives there.
struct ForeignMount {
    std::string directory;
    int pid = 0;
};
std::optional<ForeignMount> find_foreign_mount(const std::string& device);

// Processes that have a file open on the mount `device`, or their working directory or root on it; those that
// may be looked at. Asks the mount nothing.
std::vector<int> processes_using(const std::string& device);

// Whether a FUSE mount at or above `path` has lost its daemon.
bool is_dead_mount(const std::string& path);
// The same of a mount whose daemon may stand still: false when it does not say so within two seconds. Asks as
// the effective user and group: a mount that is not open to all answers others without its daemon.
bool says_it_is_dead(const std::string& path);

// `path` as the mount table spells it: absolute, without links and dots. Works on a dead FUSE mount too.
std::string mount_point_path(const std::string& path);

}  // namespace cowraid
