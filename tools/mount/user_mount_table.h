// SPDX-License-Identifier: MIT
// libmount's table of what the kernel does not know, /run/mount/utab. umount(8) takes a FUSE mount for a
// plain "fuse" one and calls no helper, unless the table names one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cowraid {

// Lets umount(8) call umount.fuse.cowraid for this directory, where the kernel's mount table says `source`,
// and findmnt(8) show `options` (joined by commas, or empty) that the kernel does not know. Without it (no
// permission, no table) umount(8) does not say when the last commit fails, and returns before it where no
// block device stands for the mount; nothing else is lost.
void add_user_mount(const std::string& source, const std::string& directory, const std::string& options);
void remove_user_mount(const std::string& directory);

// The table without the entries of the entry's directory and without ours for directories that are not in
// `mounted` (left by killed daemons), and with `entry` unless its source is empty; then the entry of a
// directory in `here`, which has been mounted again meanwhile, stays. Mount namespaces share the table, so
// `mounted` has what any daemon serves, `here` what the kernel has in this one. Unless `all_known` entries of
// other directories stay: a daemon may serve them that does not answer.
struct UserMount {
    std::string source;
    std::string directory;
    std::string options;
};
std::string change_user_table(std::string_view table, const UserMount& entry,
                              const std::vector<std::string>& mounted, const std::vector<std::string>& here,
                              bool all_known = true);

}  // namespace cowraid
