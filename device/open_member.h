// SPDX-License-Identifier: MIT
// Opening block devices and image files as members.
#pragma once

#include <sys/types.h>

#include <compare>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "device/file_device.h"

namespace cowraid {

struct OpenOptions {
    bool read_only = false;
    // Nobody else may have the member open exclusively, mounted, or as an image; kept until the descriptor
    // and all its copies are closed. Switched off only by commands that look and do not touch.
    bool exclusive = true;
    // With `exclusive`, for a block device that the kernel holds for the superblock of a mount: only other
    // programs of ours are kept out, by a lock on a node that all have in common (shared_node_of()). Where
    // that is out of reach, kBusy.
    bool under_mount = false;
    // How long to wait for who has the member before it is called in use: a process that was killed gives its
    // devices back a moment after it is gone, because the kernel takes its rings apart in the background.
    uint32_t patience_milliseconds = 2000;
    // Set for a file that nobody named: it must be no link, and belong to this user.
    std::optional<uid_t> owner;
};

// What a path leads to, links followed: block devices by number, files by inode. Two names of one thing are
// equal.
struct MemberIdentity {
    bool is_block_device = false;
    dev_t device = 0;
    ino_t inode = 0;
    friend auto operator<=>(const MemberIdentity&, const MemberIdentity&) = default;
};
// kNotFound when nothing is there.
Result<MemberIdentity> identify_member(const std::string& path);

// The end of a message about what this user may not open or ask.
const char* next_step_when_denied();

// A descriptor for a member, ready for FileDevice or to be sent to another process. kBusy: in use;
// kInvalid: neither block device nor regular file, of a sector size we cannot serve, or not what `owner`
// says; kReadOnly: write- protected; kFileTooBig: to be written, an image file above the process's limit of
// file sizes; kNotFound, kAccess, kNotPermitted, kIo as the system says. On failure `why` is one line for the
// user that names the path and the next step.
Result<UniqueFd> open_member_fd(const std::string& path, const OpenOptions& options, std::string& why);

// Of a descriptor that is open as a member: kReadOnly when it takes no writes, because the device is write-
// protected now or was when it was opened.
Status check_writable(int fd, const std::string& name, std::string& why);

// The same as a device, named by its path.
Result<std::unique_ptr<FileDevice>> open_member(const std::string& path, const OpenOptions& options,
                                                std::string& why);

// A device over a descriptor that another process opened with open_member_fd() and sent. Its mode is checked
// (kInvalid), because the sender may be anybody.
Result<std::unique_ptr<FileDevice>> make_device_from_fd(UniqueFd fd, std::string name,
                                                        const OpenOptions& options, std::string& why);

}  // namespace cowraid
