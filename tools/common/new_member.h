// SPDX-License-Identifier: MIT
// Devices that are about to become members.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "device/block_device.h"

namespace cowraid {

struct NewMember {
    std::string path;
    UniqueFd fd;
    uint64_t size_bytes = 0;
    std::string signature;  // what is on it; empty when nothing known is
    // An image file that not only its owner may read (write).
    bool others_read = false, others_write = false;
};

// kInvalid with `why` when two are the same device.
Status check_named_once(const std::vector<std::string>& paths, std::string& why);

// Opens it exclusively and refuses what is in use, too small or too large for a member or, unless `force`,
// not empty. Changes nothing. `why` names the device and the next step.
Result<NewMember> open_new_member(const std::string& path, bool force, std::string& why);

// Of image files that not only their owners may read or write; empty: there are none.
std::string warning_of_readers(std::span<const NewMember> devices);

// Tells all of it that it may be forgotten; what does not take that stays as it is. A signal ends the program
// in between.
void discard_all(BlockDevice& device);
void discard_all(const NewMember& device);

// So that nothing takes it for what it was.
Status wipe_old_signatures(const NewMember& device, std::string& why);

}  // namespace cowraid
