// SPDX-License-Identifier: MIT
// VolumeInfo as JSON and back: what the control socket carries and `--json` prints. Integers are integers,
// sizes are bytes, words of enumerations are lower case and stable.
#pragma once

#include <string>

#include "control/json.h"
#include "fs/filesystem.h"

namespace cowraid {

inline constexpr uint64_t kJsonVersion = 1;

// What is known of a volume: its numbers, and where it is mounted.
struct VolumeReport {
    VolumeInfo info;
    bool mounted = false;
    // Space inside the groups is known only to who opened the trees.
    bool has_usage = false;
    std::string mount_point;
    std::string mount_options;  // that it goes by, as -o takes them
    std::string mount_text;  // "mounted at /mnt", or where else it is served; for messages, not in the JSON
    std::string problem;  // why has_usage is false, for a volume that cannot be opened
};

// {"schema": "cowraid.NAME", "version": N}: the head of everything --json prints.
Json json_with_schema(const char* name);

Json encode_report(const VolumeReport& report);
// kInvalid when it is not such an object. Unknown words become the zero value.
Result<VolumeReport> decode_report(const json_t* object);

// "data", "metadata", "system", "data+metadata".
std::string content_name(uint32_t content);
// An array of such words, and back; unknown ones are left out.
Json encode_content(uint32_t content);
uint32_t decode_content(const json_t* array);
// The profile that a member of `object` names; single for an unknown one.
ProfileId decode_profile(const json_t* object, const char* key);
// As typed: "raid6"; "unknown" for a number that is none.
const char* profile_name(ProfileId id);
const char* profile_title(ProfileId id);

// Names of the error counters in `device stats`: the five of btrfs, then ours.
const char* counter_name(size_t index);

}  // namespace cowraid
