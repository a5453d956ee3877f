// SPDX-License-Identifier: MIT
#include "control/volume_json.h"

#include <iterator>

#include "format/profile.h"
#include "format/to_text.h"

namespace cowraid {

namespace {

constexpr const char* kSchemaPrefix = "cowraid.";
constexpr const char* kCounterNames[] = {"write_io_errs",   "read_io_errs",    "flush_io_errs",
                                         "corruption_errs", "generation_errs", "parity_errs",
                                         "superblock_errs", "repaired_blocks"};
static_assert(std::size(kCounterNames) == kMemberCounterCount);

constexpr uint32_t kContents[] = {kGroupData, kGroupMetadata, kGroupSystem};
constexpr MemberState kStates[] = {MemberState::kPresent, MemberState::kMissing, MemberState::kFailed};

// The plain numbers of a VolumeInfo, once for both directions.
struct NumberField {
    const char* key;
    uint64_t VolumeInfo::*field;
};
constexpr NumberField kNumbers[] = {
    {"unallocated_raw_bytes", &VolumeInfo::unallocated_raw_bytes},
    {"available_bytes", &VolumeInfo::available_bytes},
    {"reserve_bytes", &VolumeInfo::reserve_bytes},
    {"may_fail", &VolumeInfo::may_fail},
    {"may_fail_writing", &VolumeInfo::may_fail_writing},
};
// Left out where they are not known.
constexpr NumberField kCompression[] = {
    {"compressed_file_bytes", &VolumeInfo::compressed_file_bytes},
    {"compressed_bytes", &VolumeInfo::compressed_bytes},
};
constexpr NumberField kStatistics[] = {
    {"full_stripes", &VolumeInfo::full_stripes},
    {"full_rows", &VolumeInfo::full_rows},
    {"pad_blocks", &VolumeInfo::pad_blocks},
    {"data_bytes_written", &VolumeInfo::data_bytes_written},
    {"member_bytes_written", &VolumeInfo::member_bytes_written},
    {"joined_blocks", &VolumeInfo::joined_blocks},
    {"discarded_bytes", &VolumeInfo::discarded_bytes},
    {"emptied_groups", &VolumeInfo::emptied_groups},
    {"moved_blocks", &VolumeInfo::moved_blocks},
    {"unmovable_blocks", &VolumeInfo::unmovable_blocks},
    {"rmw_rows", &VolumeInfo::rmw_rows},
    {"rcw_rows", &VolumeInfo::rcw_rows},
    {"stripe_cache_hits", &VolumeInfo::stripe_cache_hits},
    {"stripe_cache_misses", &VolumeInfo::stripe_cache_misses},
    {"intent_log_bytes", &VolumeInfo::intent_log_bytes},
    {"recovered_rows", &VolumeInfo::recovered_rows},
    {"checksum_commits", &VolumeInfo::checksum_commits},
    {"commits", &VolumeInfo::commits},
    {"fsync_records", &VolumeInfo::fsync_records},
    {"fsync_record_bytes", &VolumeInfo::fsync_record_bytes},
    {"fsync_commits", &VolumeInfo::fsync_commits},
    {"replayed_records", &VolumeInfo::replayed_records},
    {"dirty_bytes", &VolumeInfo::dirty_bytes},
    {"blocks_reconstructed", &VolumeInfo::blocks_reconstructed},
    {"blocks_repaired", &VolumeInfo::blocks_repaired},
    {"blocks_unrecoverable", &VolumeInfo::blocks_unrecoverable},
    {"damaged_blocks", &VolumeInfo::damaged_blocks},
    {"damaged_node_blocks", &VolumeInfo::damaged_node_blocks},
    {"device_reads", &VolumeInfo::device_reads},
    {"device_read_bytes", &VolumeInfo::device_read_bytes},
    {"device_writes", &VolumeInfo::device_writes},
    {"device_write_bytes", &VolumeInfo::device_write_bytes},
    {"device_flushes", &VolumeInfo::device_flushes},
    {"node_cache_hits", &VolumeInfo::node_cache_hits},
    {"node_cache_misses", &VolumeInfo::node_cache_misses},
    {"node_cache_bytes", &VolumeInfo::node_cache_bytes},
};

void put_numbers(json_t* object, std::span<const NumberField> fields, const VolumeInfo& info)
{
    for (const NumberField& field : fields)
        json_put_integer(object, field.key, info.*field.field);
}

void get_numbers(const json_t* object, std::span<const NumberField> fields, VolumeInfo& info)
{
    for (const NumberField& field : fields)
        info.*field.field = json_get_integer(object, field.key);
}

Json encode_member(const MemberInfo& member)
{
    Json object = json_make_object();
    json_put_integer(object.get(), "id", member.id.value);
    if (member.path.empty())
        json_put(object.get(), "path", Json(json_null()));
    else
        json_put_text(object.get(), "path", member.path);
    json_put_text(object.get(), "state", member_state_name(member.state));
    json_put_text(object.get(), "reason", member.reason);
    json_put_flag(object.get(), "doubtful", member.doubtful);
    json_put_integer(object.get(), "slow_ms", member.slow_ms);
    json_put_integer(object.get(), "slow_ios", member.slow_ios);
    json_put_flag(object.get(), "unusable", member.unusable);
    json_put_integer(object.get(), "size_bytes", member.size_bytes);
    json_put_integer(object.get(), "used_bytes", member.used_bytes);
    json_put_integer(object.get(), "stale_groups", member.stale_groups);
    json_put_flag(object.get(), "replaced", member.replaced);
    json_put_flag(object.get(), "successor", member.successor);
    json_put_integer(object.get(), "stale_bytes", member.stale_bytes);
    Json errors = json_make_object();
    for (size_t i = 0; i < member.counters.size(); ++i)
        json_put_integer(errors.get(), counter_name(i), member.counters[i]);
    json_put(object.get(), "errors", std::move(errors));
    return object;
}

MemberInfo decode_member(const json_t* object)
{
    MemberInfo member;
    member.id.value = static_cast<uint32_t>(json_get_integer(object, "id"));
    member.path = json_get_text(object, "path");
    member.reason = json_get_text(object, "reason");
    member.doubtful = json_get_flag(object, "doubtful");
    member.slow_ms = json_get_integer(object, "slow_ms");
    member.slow_ios = json_get_integer(object, "slow_ios");
    member.unusable = json_get_flag(object, "unusable");
    member.size_bytes = json_get_integer(object, "size_bytes");
    member.used_bytes = json_get_integer(object, "used_bytes");
    member.stale_groups = json_get_integer(object, "stale_groups");
    member.replaced = json_get_flag(object, "replaced");
    member.successor = json_get_flag(object, "successor");
    member.stale_bytes = json_get_integer(object, "stale_bytes");
    const std::string state = json_get_text(object, "state");
    for (const MemberState candidate : kStates) {
        if (state == member_state_name(candidate))
            member.state = candidate;
    }
    const json_t* const errors = json_get(object, "errors");
    for (size_t i = 0; i < member.counters.size(); ++i)
        member.counters[i] = json_get_integer(errors, counter_name(i));
    return member;
}

Json encode_spare(const SpareInfo& spare)
{
    Json object = json_make_object();
    json_put_integer(object.get(), "id", spare.id.value);
    if (spare.path.empty())
        json_put(object.get(), "path", Json(json_null()));
    else
        json_put_text(object.get(), "path", spare.path);
    json_put_integer(object.get(), "size_bytes", spare.size_bytes);
    json_put_flag(object.get(), "useless", spare.useless);
    return object;
}

Json encode_space(const SpaceInfo& space)
{
    Json object = json_make_object();
    json_put_text(object.get(), "profile", profile_name(space.profile));
    json_put(object.get(), "content", encode_content(space.content));
    json_put_integer(object.get(), "total_bytes", space.total_bytes);
    json_put_integer(object.get(), "used_bytes", space.used_bytes);
    json_put_integer(object.get(), "raw_bytes", space.raw_bytes);
    return object;
}

SpaceInfo decode_space(const json_t* object)
{
    SpaceInfo space{};
    space.profile = decode_profile(object, "profile");
    space.content = decode_content(json_get(object, "content"));
    space.total_bytes = json_get_integer(object, "total_bytes");
    space.used_bytes = json_get_integer(object, "used_bytes");
    space.raw_bytes = json_get_integer(object, "raw_bytes");
    return space;
}

void encode_identity(const VolumeReport& report, json_t* object)
{
    const VolumeInfo& info = report.info;
    json_put_text(object, "uuid", uuid_text(info.uuid));
    json_put_text(object, "label", info.label);
    json_put_integer(object, "generation", info.generation.value);
    json_put_integer(object, "chunk_bytes", info.chunk_bytes);
    json_put_text(object, "data_profile", profile_name(info.data_profile));
    json_put_text(object, "metadata_profile", profile_name(info.metadata_profile));
    json_put_flag(object, "mounted", report.mounted);
    if (report.mounted) {
        json_put_text(object, "mount_point", report.mount_point);
        json_put_text(object, "mount_options", report.mount_options);
    }
    json_put_flag(object, "read_only", info.read_only);
    json_put_flag(object, "degraded", info.degraded);
    json_put_text(object, "read_only_reason", info.read_only_reason);
    json_put_text(object, "read_only_step", info.read_only_step);
    json_put_flag(object, "beyond_tolerance", info.beyond_tolerance);
    json_put_text(object, "degraded_reason", info.degraded_reason);
    json_put_flag(object, "has_usage", report.has_usage);
    if (!report.problem.empty())
        json_put_text(object, "problem", report.problem);
}

}  // namespace

std::string content_name(uint32_t content)
{
    std::string out;
    const auto add = [&](uint32_t bit, const char* word) {
        if ((content & bit) == 0)
            return;
        if (!out.empty())
            out += '+';
        out += word;
    };
    add(kGroupData, "data");
    add(kGroupMetadata, "metadata");
    add(kGroupSystem, "system");
    return out;
}

Json encode_content(uint32_t content)
{
    Json out = json_make_array();
    for (const uint32_t bit : kContents)
        if ((content & bit) != 0)
            json_append_text(out.get(), content_name(bit));
    return out;
}

uint32_t decode_content(const json_t* array)
{
    uint32_t content = 0;
    for (size_t i = 0; i < json_array_size(array); ++i) {
        const std::string word = json_text(json_array_get(array, i));
        for (const uint32_t bit : kContents)
            content |= content_name(bit) == word ? bit : 0;
    }
    return content;
}

ProfileId decode_profile(const json_t* object, const char* key)
{
    const Profile* const profile = find_profile(json_get_text(object, key));
    return profile == nullptr ? ProfileId::kSingle : profile->id;
}

const char* profile_name(ProfileId id)
{
    const Profile* const profile = find_profile(id);
    return profile == nullptr ? "unknown" : profile->name;
}

const char* profile_title(ProfileId id)
{
    const Profile* const profile = find_profile(id);
    return profile == nullptr ? "unknown" : profile->title;
}

const char* counter_name(size_t index)
{
    CW_ASSERT(index < std::size(kCounterNames));
    return kCounterNames[index];
}

Json json_with_schema(const char* name)
{
    Json object = json_make_object();
    json_put_text(object.get(), "schema", std::string(kSchemaPrefix) + name);
    json_put_integer(object.get(), "version", kJsonVersion);
    return object;
}

Json encode_report(const VolumeReport& report)
{
    Json object = json_with_schema("volume");
    encode_identity(report, object.get());
    put_numbers(object.get(), kNumbers, report.info);
    if (report.info.compression_counted)
        put_numbers(object.get(), kCompression, report.info);
    Json members = json_make_array();
    for (const MemberInfo& member : report.info.members)
        json_array_append_new(members.get(), encode_member(member).release());
    json_put(object.get(), "members", std::move(members));
    Json spares = json_make_array();
    for (const SpareInfo& spare : report.info.spares)
        json_array_append_new(spares.get(), encode_spare(spare).release());
    json_put(object.get(), "spares", std::move(spares));
    Json spaces = json_make_array();
    for (const SpaceInfo& space : report.info.spaces)
        json_array_append_new(spaces.get(), encode_space(space).release());
    json_put(object.get(), "spaces", std::move(spaces));
    Json statistics = json_make_object();
    put_numbers(statistics.get(), kStatistics, report.info);
    json_put(object.get(), "statistics", std::move(statistics));
    return object;
}

Result<VolumeReport> decode_report(const json_t* object)
{
    if (json_get_text(object, "schema") != std::string(kSchemaPrefix) + "volume")
        return Err::kInvalid;
    VolumeReport report;
    VolumeInfo& info = report.info;
    CW_ASSIGN(info.uuid, uuid_parse(json_get_text(object, "uuid")));
    info.label = json_get_text(object, "label");
    info.generation.value = json_get_integer(object, "generation");
    info.chunk_bytes = static_cast<uint32_t>(json_get_integer(object, "chunk_bytes"));
    info.data_profile = decode_profile(object, "data_profile");
    info.metadata_profile = decode_profile(object, "metadata_profile");
    report.mounted = json_get_flag(object, "mounted");
    report.mount_point = json_get_text(object, "mount_point");
    report.mount_options = json_get_text(object, "mount_options");
    info.read_only = json_get_flag(object, "read_only");
    info.degraded = json_get_flag(object, "degraded");
    info.read_only_reason = json_get_text(object, "read_only_reason");
    info.read_only_step = json_get_text(object, "read_only_step");
    info.beyond_tolerance = json_get_flag(object, "beyond_tolerance");
    info.degraded_reason = json_get_text(object, "degraded_reason");
    report.has_usage = json_get_flag(object, "has_usage");
    report.problem = json_get_text(object, "problem");
    get_numbers(object, kNumbers, info);
    info.compression_counted = json_get(object, kCompression[0].key) != nullptr;
    get_numbers(object, kCompression, info);
    get_numbers(json_get(object, "statistics"), kStatistics, info);
    const json_t* const members = json_get(object, "members");
    for (size_t i = 0; i < json_array_size(members); ++i)
        info.members.push_back(decode_member(json_array_get(members, i)));
    const json_t* const spares = json_get(object, "spares");
    for (size_t i = 0; i < json_array_size(spares); ++i) {
        const json_t* const spare = json_array_get(spares, i);
        info.spares.push_back({.id = {static_cast<uint32_t>(json_get_integer(spare, "id"))},
                               .path = json_get_text(spare, "path"),
                               .size_bytes = json_get_integer(spare, "size_bytes"),
                               .useless = json_get_flag(spare, "useless")});
    }
    const json_t* const spaces = json_get(object, "spaces");
    for (size_t i = 0; i < json_array_size(spaces); ++i)
        info.spaces.push_back(decode_space(json_array_get(spaces, i)));
    return report;
}

}  // namespace cowraid
