// SPDX-License-Identifier: MIT
// libmount's table of what the kernel does not know, /run/mount/utab. umount(8) takes a FUSE mount for a
// plain "fuse" one and calls no helper, unless the table names one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cowraid {

// Lets umount(8) call umount.fuse.cowraid for this directory. Without it (no permission, no table) an unmount
// returns before the last commit; nothing else is lost.
void add_umount_helper(const std::string& source, const std::string& directory);
void remove_umount_helper(const std::string& directory);

// The table without the entries of `directory` and without ours for directories that are not in `mounted`
// (left by killed daemons), and with a new one for `source` unless that is empty.
std::string change_user_table(std::string_view table, const std::string& source, const std::string& directory,
                              const std::vector<std::string>& mounted);

}  // namespace cowraid
