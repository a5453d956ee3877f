// SPDX-License-Identifier: MIT
// Set-id bits that a change of a file's data or owner takes away, as Linux decides it for its own
// filesystems.
//
// The kernel says in WRITE and SETATTR whether the caller lacks CAP_FSETID (HANDLE_KILLPRIV_V2), which
// libfuse 3.14 does not pass on. It does not say so in FALLOCATE, and never which groups the caller is in:
// the caller waits for the answer, so its line in /proc holds still.
#pragma once

#include <fuse3/fuse_lowlevel.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fuse/frontend.h"

namespace cowraid {

// Remembers for the calling thread, which is the one that serves it, what a request says about set-id bits.
void note_set_id_request(std::span<const std::byte> request);
// What the last one said.
bool request_clears_set_id();

// The rights of a task that matter here.
struct CallerRights {
    bool has_fsetid = false;
    std::vector<uint32_t> groups;  // filesystem group and supplementary ones
};
// From the text of /proc/PID/status.
CallerRights parse_caller_rights(std::string_view status);

// Which bits of `mode` go, given that some must. Set-gid without group execute marks mandatory locking; it
// stays for members of the group and for who has CAP_FSETID.
uint32_t set_id_bits_cleared(uint32_t mode, uint32_t gid, const CallerRights& rights);

// The caller of a request that changes the data or the owner of `inode`, with what it takes away. `why`: the
// request says itself whether bits go, or they go unless the caller has CAP_FSETID. Reading the rights of a
// caller that does not wait for the answer may wait for the answer itself: a process that ends waits for its
// asynchronous requests in whoever looked at it last. Such a request says that the caller has not CAP_FSETID;
// of its groups only the one that came with it counts, and the file's where who opened the file was in it.
enum class SetIdRule : uint8_t { kAsRequested, kAsRequestedAsync, kAsRequestedAsyncInGroup, kUnlessCapable };
Caller changing_caller(fuse_req_t request, InodeNumber inode, SetIdRule rule);
// Whether set-gid of the file marks mandatory locking, and stays when who opens it now writes to it.
bool keeps_set_gid(fuse_req_t request, InodeNumber inode);
// The caller of a request that gives `inode` an access list: who has not CAP_FSETID and is not in the group
// of a set-gid file takes the bit away.
Caller acl_caller(fuse_req_t request, InodeNumber inode);

}  // namespace cowraid
