// SPDX-License-Identifier: MIT
#include "bench/bench_options.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "format/profile.h"

namespace cowraid {

namespace {

constexpr const char* kPatternNames[] = {"seqwrite", "randwrite", "seqread", "randread"};
constexpr uint64_t kMaxBlockBytes = 1 * kMiB;
constexpr uint32_t kMaxWriters = 256;
constexpr uint32_t kMaxDepth = 4096;

template <typename Number> bool set_number(Number& field, std::string_view text, uint64_t low, uint64_t high)
{
    const auto value = parse_number(text);
    if (!value.ok() || *value < low || *value > high)
        return false;
    field = static_cast<Number>(*value);
    return true;
}

template <typename Number> bool set_size(Number& field, std::string_view text, uint64_t low, uint64_t high)
{
    const auto value = parse_size(text);
    if (!value.ok() || *value < low || *value > high || *value % kBlockBytes != 0)
        return false;
    field = static_cast<Number>(*value);
    return true;
}

// Above 0, at most `high`.
bool set_real(double& field, std::string_view text, double high)
{
    const std::string copy(text);
    char* end = nullptr;
    const double value = std::strtod(copy.c_str(), &end);
    if (copy.empty() || *end != '\0' || !(value > 0) || value > high)
        return false;
    field = value;
    return true;
}

bool set_profile(BenchOptions& options, std::string_view text)
{
    const Profile* const profile = find_profile(text);
    if (profile == nullptr || profile->parity == 0)
        return false;
    options.profile = profile->id;
    return true;
}

bool set_pattern(BenchOptions& options, std::string_view text)
{
    const auto* const found = std::find(std::begin(kPatternNames), std::end(kPatternNames), text);
    if (found == std::end(kPatternNames))
        return false;
    options.pattern = static_cast<BenchPattern>(found - std::begin(kPatternNames));
    return true;
}

bool set_plug(BenchOptions& options, std::string_view text)
{
    options.partial.plug = text == "on";
    return text == "on" || text == "off";
}

bool set_chunk(BenchOptions& options, std::string_view text)
{
    return set_size(options.chunk_bytes, text, kMinChunkBytes, kMaxChunkBytes) &&
           is_power_of_two(options.chunk_bytes);
}

bool set_io_size(BenchOptions& options, std::string_view text)
{
    return set_size(options.partial.stripe_io_bytes, text, kBlockBytes, kMaxChunkBytes) &&
           is_power_of_two(options.partial.stripe_io_bytes);
}

bool set_rmw_level(BenchOptions& options, std::string_view text)
{
    uint8_t level = 0;
    if (!set_number(level, text, 0, 2))
        return false;
    options.partial.rmw_level = static_cast<RmwLevel>(level);
    return true;
}

// OPTION=A,B
bool set_compare(BenchOptions& options, std::string_view text)
{
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos)
        return false;
    options.compare_name = text.substr(0, equals);
    options.compare_values.clear();
    for (const std::string_view value : split(text.substr(equals + 1), ','))
        options.compare_values.emplace_back(value);
    const BenchOption* const option = find_bench_option(options.compare_name);
    return options.compare_values.size() == 2 && option != nullptr && option->argument != nullptr &&
           options.compare_name != "compare" && options.compare_name != "rounds";
}

constexpr BenchOption kOptions[] = {
    {"profile", "PROFILE", "raid5 or raid6 (default)", "raid5 or raid6", set_profile},
    {"chunk", "SIZE", "bytes on one member before the next (default 64K)", "a power of two, 4K to 1M",
     set_chunk},
    {"members", "N", "members simulated in memory (default 8)", "a number from 2 to 250",
     [](BenchOptions& o, std::string_view v) {
         return set_number(o.member_count, v, 2, 250);
     }},
    {"size", "SIZE", "bytes of each (default 256M)", "a multiple of 4K, 64M to 1T",
     [](BenchOptions& o, std::string_view v) {
         return set_size(o.member_bytes, v, kMinMemberBytes, kTiB);
     }},
    {"spindle", nullptr, "simulated members take the time of a disk drive", nullptr,
     [](BenchOptions& o, std::string_view) {
         return o.spindle = true;
     }},
    {"time-scale", "FACTOR", "real seconds per second of such a drive (default 1); 0.1: ten times as fast",
     "a number above 0, at most 1",
     [](BenchOptions& o, std::string_view v) {
         return set_real(o.time_scale, v, 1);
     }},
    {"stroke", "PART", "part of the drive that the members stand for (default 0.4)",
     "a number above 0, at most 1",
     [](BenchOptions& o, std::string_view v) {
         return set_real(o.stroke_share, v, 1);
     }},
    {"pattern", "PATTERN", "seqwrite, randwrite (default), seqread, randread",
     "seqwrite, randwrite, seqread or randread", set_pattern},
    {"block-size", "SIZE", "bytes of one operation (default 4K)", "a multiple of 4K, 4K to 1M",
     [](BenchOptions& o, std::string_view v) {
         return set_size(o.block_bytes, v, kBlockBytes, kMaxBlockBytes);
     }},
    {"writers", "N", "threads (default 1)", "a number from 1 to 256",
     [](BenchOptions& o, std::string_view v) {
         return set_number(o.writers, v, 1, kMaxWriters);
     }},
    {"iodepth", "N", "operations a thread hands over before it waits for them (default 1)",
     "a number from 1 to 4096",
     [](BenchOptions& o, std::string_view v) {
         return set_number(o.depth, v, 1, kMaxDepth);
     }},
    {"runtime", "SECONDS", "of the members' time (default 10)", "a number above 0",
     [](BenchOptions& o, std::string_view v) {
         return set_real(o.seconds, v, 1e6);
     }},
    {"ops", "N", "operations of all threads, instead of or besides a time", "a number above 0",
     [](BenchOptions& o, std::string_view v) {
         return set_number(o.operations, v, 1, std::numeric_limits<uint64_t>::max());
     }},
    {"rmw-level", "N", "0: always read the rest of a row, 1 (default): what is less, 2: old data and parity",
     "0, 1 or 2", set_rmw_level},
    {"plug", "on|off", "collect and merge writes (default on)", "on or off", set_plug},
    {"stripe-cache", "N", "stripes in the cache (default 1024)", "a number from 17 to 32768",
     [](BenchOptions& o, std::string_view v) {
         return set_number(o.partial.stripe_cache_size, v, 17, 32768);
     }},
    {"stripe-cache-bytes", "SIZE", "and their rows' bytes (default 256M)", "a multiple of 4K, up to 1T",
     [](BenchOptions& o, std::string_view v) {
         return set_size(o.partial.stripe_cache_bytes, v, kBlockBytes, kTiB);
     }},
    {"stripe-io-size", "SIZE", "what reads for a write are rounded to (default 4K)",
     "a power of two, 4K to 1M", set_io_size},
    {"workers", "N", "threads of the array (default 2)", "a number from 0 to 64",
     [](BenchOptions& o, std::string_view v) {
         return set_number(o.partial.worker_count, v, 0, 64);
     }},
    {"seed", "N", "of addresses and content (default 1)", "a number",
     [](BenchOptions& o, std::string_view v) {
         return set_number(o.seed, v, 0, std::numeric_limits<uint64_t>::max());
     }},
    {"no-verify", nullptr, "do not read everything back at the end", nullptr,
     [](BenchOptions& o, std::string_view) {
         o.verify = false;
         return true;
     }},
    {"force", nullptr, "destroy what is on the members named", nullptr,
     [](BenchOptions& o, std::string_view) {
         return o.force = true;
     }},
    {"compare", "OPTION=A,B", "run with either value in turn and print the ratio",
     "the name of an option with a value, and two values, such as plug=on,off", set_compare},
    {"rounds", "N", "of a comparison (default 3)", "a number from 1 to 1000",
     [](BenchOptions& o, std::string_view v) {
         return set_number(o.rounds, v, 1, 1000);
     }},
};

}  // namespace

const char* pattern_name(BenchPattern pattern)
{
    return kPatternNames[static_cast<size_t>(pattern)];
}

std::span<const BenchOption> bench_options()
{
    return kOptions;
}

const BenchOption* find_bench_option(std::string_view name)
{
    const auto* const found = std::find_if(std::begin(kOptions), std::end(kOptions),
                                           [=](const BenchOption& option) { return name == option.name; });
    return found == std::end(kOptions) ? nullptr : found;
}

Status set_bench_option(BenchOptions& options, std::string_view name, std::string_view value,
                        std::string& why)
{
    const BenchOption* const option = find_bench_option(name);
    CW_ASSERT(option != nullptr);
    if (option->set(options, value))
        return {};
    why = "--" + std::string(name) + ": '" + std::string(value) + "' will not do; give " + option->allowed;
    return Err::kInvalid;
}

Status check_bench_options(const BenchOptions& options, std::string& why)
{
    const bool real = !options.common.operands.empty();
    const size_t members = real ? options.common.operands.size() : options.member_count;
    const Profile* const profile = find_profile(options.profile);
    if (members < profile->min_members)
        why = std::string(profile->name) + " needs at least " + std::to_string(profile->min_members) +
              " members";
    else if (members > kMaxMembers)
        why = "a volume has at most " + std::to_string(kMaxMembers) + " members";
    else if (real && !options.force)
        why = "everything on " + join_words(options.common.operands) + " would be lost; if so, say --force";
    else if (real && options.spindle)
        why = "--spindle is for simulated members; name no devices";
    else if (!options.spindle && options.time_scale != 1)
        why = "--time-scale needs --spindle: real time cannot be scaled";
    else
        return {};
    return Err::kInvalid;
}

}  // namespace cowraid
