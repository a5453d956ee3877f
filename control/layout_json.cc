// SPDX-License-Identifier: MIT
#include "control/layout_json.h"

#include "control/volume_json.h"

namespace cowraid {

namespace {

Json encode_column(const GroupColumn& column)
{
    Json out = json_make_object();
    json_put_integer(out.get(), "member", column.member.value);
    json_put_integer(out.get(), "stale_since", column.stale_since.value);
    Json runs = json_make_array();
    for (const SlotRun& run : column.runs) {
        Json object = json_make_object();
        json_put_integer(object.get(), "first_slot", run.first_slot);
        json_put_integer(object.get(), "slot_count", run.slot_count);
        json_array_append_new(runs.get(), object.release());
    }
    json_put(out.get(), "slots", std::move(runs));
    return out;
}

Json encode_group(const LayoutGroup& group)
{
    Json out = json_make_object();
    json_put_integer(out.get(), "address", group.address.value);
    json_put(out.get(), "content", encode_content(group.content));
    json_put_text(out.get(), "profile", profile_name(group.profile));
    json_put_integer(out.get(), "data_columns", group.data_columns);
    json_put_integer(out.get(), "column_bytes", group.column_bytes);
    json_put_integer(out.get(), "total_bytes", group.total_bytes);
    json_put_integer(out.get(), "used_bytes", group.used_bytes);
    json_put_integer(out.get(), "verified", group.verified);
    Json columns = json_make_array();
    for (const GroupColumn& column : group.columns)
        json_array_append_new(columns.get(), encode_column(column).release());
    json_put(out.get(), "columns", std::move(columns));
    if (group.part_bytes == 0)
        return out;
    json_put_integer(out.get(), "part_bytes", group.part_bytes);
    Json parts = json_make_array();
    for (const uint64_t used : group.used_by_part)
        json_array_append_new(parts.get(), json_integer(static_cast<json_int_t>(used)));
    json_put(out.get(), "used_bytes_by_part", std::move(parts));
    return out;
}

GroupColumn decode_column(const json_t* object)
{
    GroupColumn column;
    column.member.value = static_cast<uint32_t>(json_get_integer(object, "member"));
    column.stale_since.value = json_get_integer(object, "stale_since");
    const json_t* const runs = json_get(object, "slots");
    for (size_t i = 0; i < json_array_size(runs); ++i) {
        const json_t* const run = json_array_get(runs, i);
        column.runs.push_back({static_cast<uint32_t>(json_get_integer(run, "first_slot")),
                               static_cast<uint32_t>(json_get_integer(run, "slot_count"))});
    }
    return column;
}

LayoutGroup decode_group(const json_t* object)
{
    LayoutGroup group;
    group.address.value = json_get_integer(object, "address");
    group.content = decode_content(json_get(object, "content"));
    group.profile = decode_profile(object, "profile");
    group.data_columns = static_cast<uint32_t>(json_get_integer(object, "data_columns"));
    group.column_bytes = json_get_integer(object, "column_bytes");
    group.total_bytes = json_get_integer(object, "total_bytes");
    group.used_bytes = json_get_integer(object, "used_bytes");
    group.verified = json_get_integer(object, "verified");
    const json_t* const columns = json_get(object, "columns");
    for (size_t i = 0; i < json_array_size(columns); ++i)
        group.columns.push_back(decode_column(json_array_get(columns, i)));
    group.part_bytes = json_get_integer(object, "part_bytes");
    const json_t* const parts = json_get(object, "used_bytes_by_part");
    for (size_t i = 0; i < json_array_size(parts); ++i)
        group.used_by_part.push_back(static_cast<uint64_t>(json_integer_value(json_array_get(parts, i))));
    return group;
}

}  // namespace

Json encode_layout(const VolumeLayout& layout)
{
    Json out = json_with_schema("layout");
    json_put_text(out.get(), "uuid", uuid_text(layout.uuid));
    json_put_text(out.get(), "label", layout.label);
    Json members = json_make_array();
    for (const LayoutMember& member : layout.members) {
        Json object = json_make_object();
        json_put_integer(object.get(), "id", member.id.value);
        json_put_text(object.get(), "path", member.path);
        json_put_integer(object.get(), "slot_bytes", member.slot_bytes);
        json_put_integer(object.get(), "slot_count", member.slot_count);
        json_put_integer(object.get(), "slots_offset", member.slots_offset);
        json_array_append_new(members.get(), object.release());
    }
    json_put(out.get(), "members", std::move(members));
    Json groups = json_make_array();
    for (const LayoutGroup& group : layout.groups)
        json_array_append_new(groups.get(), encode_group(group).release());
    json_put(out.get(), "groups", std::move(groups));
    if (layout.next.value != 0)
        json_put_integer(out.get(), "next", layout.next.value);
    return out;
}

Result<VolumeLayout> decode_layout(const json_t* object)
{
    if (json_get_text(object, "schema") != "cowraid.layout")
        return Err::kInvalid;
    VolumeLayout layout;
    CW_ASSIGN(layout.uuid, uuid_parse(json_get_text(object, "uuid")));
    layout.label = json_get_text(object, "label");
    layout.next.value = json_get_integer(object, "next");
    const json_t* const members = json_get(object, "members");
    for (size_t i = 0; i < json_array_size(members); ++i) {
        const json_t* const member = json_array_get(members, i);
        layout.members.push_back({{static_cast<uint32_t>(json_get_integer(member, "id"))},
                                  json_get_text(member, "path"),
                                  json_get_integer(member, "slot_bytes"),
                                  json_get_integer(member, "slot_count"),
                                  json_get_integer(member, "slots_offset")});
    }
    const json_t* const groups = json_get(object, "groups");
    for (size_t i = 0; i < json_array_size(groups); ++i)
        layout.groups.push_back(decode_group(json_array_get(groups, i)));
    return layout;
}

}  // namespace cowraid
