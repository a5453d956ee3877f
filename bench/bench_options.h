// SPDX-License-Identifier: MIT
// What `cowraid bench raid56` is asked to do.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/group_map.h"
#include "raid56/array.h"
#include "tools/cowraid/command.h"

namespace cowraid {

enum class BenchPattern : uint8_t { kSeqWrite, kRandWrite, kSeqRead, kRandRead };

const char* pattern_name(BenchPattern pattern);
constexpr bool pattern_writes(BenchPattern pattern)
{
    return pattern == BenchPattern::kSeqWrite || pattern == BenchPattern::kRandWrite;
}
constexpr bool pattern_random(BenchPattern pattern)
{
    return pattern == BenchPattern::kRandWrite || pattern == BenchPattern::kRandRead;
}

struct BenchOptions {
    CommandOptions common;  // operands: real members
    uint32_t member_count = 8;  // simulated ones
    uint64_t member_bytes = 256 * kMiB;
    bool spindle = false;
    double time_scale = 1;
    double stroke_share = 0.4;
    bool force = false;

    ProfileId profile = ProfileId::kRaid6;
    uint32_t chunk_bytes = kDefaultChunkBytes;
    PartialWriteOptions partial;

    BenchPattern pattern = BenchPattern::kRandWrite;
    uint32_t block_bytes = kBlockBytes;  // of one operation
    uint32_t writers = 1;  // threads, of readers too
    uint32_t depth = 1;  // operations a thread hands over before it waits for them all
    double seconds = 0;  // of the members' time; both 0: ten seconds
    uint64_t operations = 0;  // of all threads
    uint64_t seed = 1;
    bool verify = true;

    std::string compare_name;  // an option; empty: one run
    std::vector<std::string> compare_values;
    uint32_t rounds = 3;  // of a comparison
};

// One option as the command line, --compare and the help know it.
struct BenchOption {
    const char* name;
    const char* argument;  // null: it takes none
    const char* help;
    const char* allowed;  // what an argument may be, for messages
    // False: not such a value.
    bool (*set)(BenchOptions& options, std::string_view value);
};

std::span<const BenchOption> bench_options();
// Sets one option by its name. kInvalid with one line in `why`.
Status set_bench_option(BenchOptions& options, std::string_view name, std::string_view value,
                        std::string& why);
// Null when there is none of that name.
const BenchOption* find_bench_option(std::string_view name);
// What no single option can tell. kInvalid with one line in `why`.
Status check_bench_options(const BenchOptions& options, std::string& why);

}  // namespace cowraid
