// SPDX-License-Identifier: MIT
#include "control/json.h"

#include <cstdlib>

#include "base/print.h"

namespace cowraid {

namespace {

// Malformed UTF-8 becomes readable.
Json make_text(std::string_view text)
{
    Json value(json_stringn(text.data(), text.size()));
    if (value == nullptr) {
        const std::string readable = printable(text);
        value.reset(json_stringn(readable.data(), readable.size()));
    }
    CW_ASSERT(value != nullptr);
    return value;
}

}  // namespace

Json json_make_object()
{
    Json object(json_object());
    CW_ASSERT(object != nullptr);
    return object;
}

Json json_make_array()
{
    Json array(json_array());
    CW_ASSERT(array != nullptr);
    return array;
}

void json_put(json_t* object, const char* key, Json value)
{
    CW_ASSERT(json_object_set_new(object, key, value.release()) == 0);
}

void json_put_text(json_t* object, const char* key, std::string_view text)
{
    json_put(object, key, make_text(text));
}

void json_append_text(json_t* array, std::string_view text)
{
    CW_ASSERT(json_array_append_new(array, make_text(text).release()) == 0);
}

void json_put_integer(json_t* object, const char* key, uint64_t value)
{
    // JSON readers take integers as signed 64 bit.
    const uint64_t limited = value > INT64_MAX ? uint64_t{INT64_MAX} : value;
    json_put(object, key, Json(json_integer(static_cast<json_int_t>(limited))));
}

void json_put_flag(json_t* object, const char* key, bool value)
{
    json_put(object, key, Json(json_boolean(value)));
}

std::string json_get_text(const json_t* object, const char* key)
{
    return json_text(json_object_get(object, key));
}

std::string json_text(const json_t* value)
{
    return json_is_string(value) ? std::string(json_string_value(value), json_string_length(value))
                                 : std::string();
}

uint64_t json_get_integer(const json_t* object, const char* key)
{
    const json_int_t value = json_integer_value(json_object_get(object, key));
    return value < 0 ? 0 : static_cast<uint64_t>(value);
}

bool json_get_flag(const json_t* object, const char* key)
{
    return json_is_true(json_object_get(object, key));
}

const json_t* json_get(const json_t* object, const char* key)
{
    return json_object_get(object, key);
}

Result<Json> json_parse_object(std::string_view text)
{
    json_error_t error;
    Json value(json_loadb(text.data(), text.size(), JSON_REJECT_DUPLICATES, &error));
    if (value == nullptr || !json_is_object(value.get()))
        return Err::kInvalid;
    return value;
}

std::string json_print(const json_t* value, JsonStyle style)
{
    const size_t flags =
        JSON_PRESERVE_ORDER | (style == JsonStyle::kIndented ? JSON_INDENT(2) | JSON_ENSURE_ASCII : 0);
    char* const text = json_dumps(value, flags);
    CW_ASSERT(text != nullptr);
    std::string out(text);
    free(text);
    return out;
}

}  // namespace cowraid
