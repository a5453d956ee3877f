// SPDX-License-Identifier: MIT
// Ownership for jansson's values.
#pragma once

#include <jansson.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cowraid {

struct JsonRelease {
    void operator()(json_t* value) const { json_decref(value); }
};
using Json = std::unique_ptr<json_t, JsonRelease>;

// An object, for values to be put into.
Json json_make_object();
Json json_make_array();

// Each puts one member into `object`. Text that is not UTF-8 is kept readable by \x escapes: paths and
// labels are bytes.
void json_put(json_t* object, const char* key, Json value);
void json_put_text(json_t* object, const char* key, std::string_view text);
void json_append_text(json_t* array, std::string_view text);
void json_put_integer(json_t* object, const char* key, uint64_t value);
void json_put_flag(json_t* object, const char* key, bool value);

// Members of `object` by name; the empty or zero value when absent or of another type.
std::string json_get_text(const json_t* object, const char* key);
std::string json_text(const json_t* value);  // empty unless it is text
uint64_t json_get_integer(const json_t* object, const char* key);
bool json_get_flag(const json_t* object, const char* key);
// Null when absent.
const json_t* json_get(const json_t* object, const char* key);

// kInvalid unless `text` is one JSON object (nested at most as deep as jansson allows).
Result<Json> json_parse_object(std::string_view text);
// kIndented is for people: ASCII only, so that nothing in it drives a terminal.
enum class JsonStyle : uint8_t { kOneLine, kIndented };
std::string json_print(const json_t* value, JsonStyle style = JsonStyle::kOneLine);

}  // namespace cowraid
