// SPDX-License-Identifier: MIT
#include "control/json.h"

#include <doctest/doctest.h>

namespace cowraid {

TEST_CASE("json: what is put comes back")
{
    Json object = json_make_object();
    json_put_text(object.get(), "text", "value");
    json_put_integer(object.get(), "number", 42);
    json_put_flag(object.get(), "flag", true);
    const auto parsed = json_parse_object(json_print(object.get()));
    REQUIRE(parsed.ok());
    CHECK(json_get_text(parsed->get(), "text") == "value");
    CHECK(json_get_integer(parsed->get(), "number") == 42);
    CHECK(json_get_flag(parsed->get(), "flag"));
    CHECK(json_print(object.get()) == R"({"text": "value", "number": 42, "flag": true})");
}

TEST_CASE("json: absent and wrong types read as nothing")
{
    const auto parsed = json_parse_object(R"({"text": 1, "number": "x", "flag": 1, "negative": -5})");
    REQUIRE(parsed.ok());
    CHECK(json_get_text(parsed->get(), "text").empty());
    CHECK(json_get_integer(parsed->get(), "number") == 0);
    CHECK_FALSE(json_get_flag(parsed->get(), "flag"));
    CHECK(json_get_integer(parsed->get(), "negative") == 0);
    CHECK(json_get(parsed->get(), "absent") == nullptr);
    CHECK(json_get_text(nullptr, "text").empty());
}

TEST_CASE("json: text that is not UTF-8 stays readable")
{
    Json object = json_make_object();
    json_put_text(object.get(), "path", "/dev/\xff\x01x");
    CHECK(json_get_text(object.get(), "path") == "/dev/\\xff\\x01x");
    // Valid UTF-8 is left alone.
    json_put_text(object.get(), "label", "gr\xc3\xbcn");
    CHECK(json_get_text(object.get(), "label") == "gr\xc3\xbcn");
}

TEST_CASE("json: integers beyond 63 bits are held at the largest")
{
    Json object = json_make_object();
    json_put_integer(object.get(), "number", UINT64_MAX);
    CHECK(json_get_integer(object.get(), "number") == INT64_MAX);
}

TEST_CASE("json: only one object parses")
{
    CHECK(json_parse_object("{}").ok());
    for (const char* text : {"", "[]", "1", "{", "{}x", "{\"a\":1,\"a\":2}", "\xff"})
        CHECK_MESSAGE(json_parse_object(text).err() == Err::kInvalid, text);
    std::string deep = "{\"a\":";
    for (int i = 0; i < 100000; ++i)
        deep += "[";
    CHECK(json_parse_object(deep).err() == Err::kInvalid);
}

}  // namespace cowraid
