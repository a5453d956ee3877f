// SPDX-License-Identifier: MIT
// What mount.cowraid is asked to do, from its own command line or from mount(8).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fs/volume/mount_options.h"
#include "tools/common/volume_spec.h"

namespace cowraid {

struct MountRequest {
    VolumeSpec volume;
    std::string source;  // as the mount table shall show it: fstab's spelling
    std::string directory;  // absolute
    MountOptions options;
    unsigned long kernel_flags = 0;  // MS_* for mount(2), read-only included
    // Options that the kernel takes as text, such as context=; values with their quotes.
    std::vector<std::pair<std::string, std::string>> kernel_options;
    bool allow_other = false;  // for users who are not root; root always allows
    bool remount = false;
    bool fake = false;  // check everything, mount nothing
    // missing_dev_timeout=; tools/mount/member_wait.h says what holds without it.
    std::optional<uint32_t> missing_seconds;
    bool nofail = false;  // a volume that is not there is no failure
    // Shares of the memory that an option named; the others follow mem=.
    bool dirty_given = false, cache_given = false, stripe_cache_given = false;
    bool sloppy = false;  // unknown options are ignored
    bool verbose = false;
    bool foreground = false;  // the program that was started serves, for debugging
    std::vector<std::string> option_lists;  // every -o, unparsed
    std::vector<std::string> device_options;  // device=
    std::vector<std::string> warnings;  // options that were ignored
};

// The options that users should know, with their values and what they do, in the order to show them.
struct MountOptionHelp {
    std::string option;
    std::string text;
};
std::vector<MountOptionHelp> mount_options_help();

// Adds a comma-separated list of -o to the request; double quotes protect commas. kInvalid with one line in
// `why` for what is unknown (unless sloppy), malformed or out of range.
Status parse_mount_options(std::string_view list, MountRequest& request, std::string& why);

// mem= when it is not given, and what follows from that. Before any list.
void set_default_memory(MountRequest& request);

// Checks that need the whole command line. kInvalid with `why`.
Status check_mount_request(const MountRequest& request, std::string& why);

}  // namespace cowraid
