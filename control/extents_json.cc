// SPDX-License-Identifier: MIT
#include "control/extents_json.h"

#include "control/volume_json.h"

namespace cowraid {

Json encode_file_extents(const FileExtents& extents)
{
    Json out = json_with_schema("extents");
    json_put_integer(out.get(), "size_bytes", extents.size_bytes);
    Json list = json_make_array();
    for (const ListedExtent& extent : extents.extents) {
        Json object = json_make_object();
        json_put_integer(object.get(), "offset", extent.offset);
        json_put_integer(object.get(), "bytes", extent.bytes);
        json_put_integer(object.get(), "stored_bytes", extent.stored_bytes);
        json_put_flag(object.get(), "reserved", extent.reserved);
        json_put_flag(object.get(), "compressed", extent.compressed);
        json_put_flag(object.get(), "inline", extent.inline_frame);
        json_put_integer(object.get(), "logical_address", extent.logical.value);
        json_put_integer(object.get(), "address", extent.physical.value);
        Json places = json_make_array();
        for (const MemberPart& part : extent.places) {
            Json place = json_make_object();
            json_put_integer(place.get(), "member", part.member.value);
            json_put_integer(place.get(), "device_offset", part.offset.value);
            json_array_append_new(places.get(), place.release());
        }
        json_put(object.get(), "first_block", std::move(places));
        json_array_append_new(list.get(), object.release());
    }
    json_put(out.get(), "extents", std::move(list));
    if (extents.next_block != 0)
        json_put_integer(out.get(), "next_block", extents.next_block);
    return out;
}

Result<FileExtents> decode_file_extents(const json_t* object)
{
    if (json_get_text(object, "schema") != "cowraid.extents")
        return Err::kInvalid;
    FileExtents out;
    out.size_bytes = json_get_integer(object, "size_bytes");
    out.next_block = json_get_integer(object, "next_block");
    const json_t* const list = json_get(object, "extents");
    for (size_t i = 0; i < json_array_size(list); ++i) {
        const json_t* const line = json_array_get(list, i);
        ListedExtent extent{.offset = json_get_integer(line, "offset"),
                            .bytes = json_get_integer(line, "bytes"),
                            .stored_bytes = json_get_integer(line, "stored_bytes"),
                            .reserved = json_get_flag(line, "reserved"),
                            .compressed = json_get_flag(line, "compressed"),
                            .inline_frame = json_get_flag(line, "inline"),
                            .logical = {json_get_integer(line, "logical_address")},
                            .physical = {json_get_integer(line, "address")},
                            .places = {}};
        const json_t* const places = json_get(line, "first_block");
        for (size_t j = 0; j < json_array_size(places); ++j) {
            const json_t* const place = json_array_get(places, j);
            extent.places.push_back({{static_cast<uint32_t>(json_get_integer(place, "member"))},
                                     {json_get_integer(place, "device_offset")},
                                     kBlockBytes});
        }
        out.extents.push_back(std::move(extent));
    }
    return out;
}

}  // namespace cowraid
