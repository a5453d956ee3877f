// SPDX-License-Identifier: MIT
#include <sys/stat.h>

#include <algorithm>

#include "format/items.h"
#include "fs/names/inode_use.h"
#include "fs/names/names.h"

namespace cowraid {

Result<std::string> Names::read_symlink(InodeNumber inode)
{
    CW_ASSIGN(const InodeUse link, use_inode(*this, inode));
    {
        MutexLock lock(link->mutex);
        if (!S_ISLNK(link->attributes.mode))
            return Err::kInvalid;
    }
    ItemBytes target;
    const Status status = store.items.get(symlink_key(inode), target);
    // The target goes together with its inode, which is still here.
    if (status.err() == Err::kNotFound)
        return Err::kCorrupt;
    CW_TRY(status);
    if (target.empty() || target.size() > kMaxSymlinkBytes ||
        std::find(target.begin(), target.end(), std::byte{0}) != target.end())
        return Err::kCorrupt;
    return std::string(reinterpret_cast<const char*>(target.data()), target.size());
}

}  // namespace cowraid
