// SPDX-License-Identifier: MIT
#include "tools/common/udev_properties.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

namespace cowraid {

namespace {

Superblock member_two(const std::string& label)
{
    Superblock superblock;
    superblock.volume_uuid = *uuid_parse("11111111-2222-3333-4444-555555555555");
    superblock.label = label;
    superblock.member_id = MemberId{2};
    superblock.members.push_back(
        {.id = MemberId{1}, .uuid = *uuid_parse("aaaaaaaa-0000-0000-0000-000000000001")});
    superblock.members.push_back(
        {.id = MemberId{2}, .uuid = *uuid_parse("aaaaaaaa-0000-0000-0000-000000000002")});
    return superblock;
}

std::string value_of(const std::string& label, std::string_view name)
{
    for (const auto& [key, value] : udev_properties(member_two(label)))
        if (key == name)
            return value;
    return "(none)";
}

}  // namespace

TEST_CASE("udev: members have the volume's uuid, and their own beside it")
{
    CHECK(value_of("tank", "ID_FS_TYPE") == "cowraid");
    CHECK(value_of("tank", "ID_FS_USAGE") == "filesystem");
    CHECK(value_of("tank", "ID_FS_UUID") == "11111111-2222-3333-4444-555555555555");
    CHECK(value_of("tank", "ID_FS_UUID_ENC") == "11111111-2222-3333-4444-555555555555");
    CHECK(value_of("tank", "ID_FS_UUID_SUB") == "aaaaaaaa-0000-0000-0000-000000000002");
    CHECK(value_of("tank", "ID_FS_LABEL") == "tank");
    CHECK(value_of("tank", "ID_FS_LABEL_ENC") == "tank");
    CHECK(value_of("", "ID_FS_LABEL") == "(none)");
    CHECK(value_of("", "ID_FS_LABEL_ENC") == "(none)");
}

TEST_CASE("udev: labels are encoded as udev does it")
{
    CHECK(value_of("my pool", "ID_FS_LABEL") == "my_pool");
    CHECK(value_of("my pool", "ID_FS_LABEL_ENC") == "my\\x20pool");
    CHECK(value_of("b\xc3\xbc"
                   "cher",
                   "ID_FS_LABEL_ENC") == "b\xc3\xbc"
                                         "cher");
    CHECK(value_of("../../etc", "ID_FS_LABEL_ENC") == "..\\x2f..\\x2fetc");
    // On disk a label may hold any byte but zero.
    CHECK(value_of("a\nID_FS_TYPE=ext4", "ID_FS_LABEL_ENC") == "a\\x0aID_FS_TYPE=ext4");
    CHECK(value_of(std::string(255, '\x01'), "ID_FS_LABEL_ENC").size() == 4 * 255);
    for (int byte = 1; byte < 256; ++byte) {
        const std::string label(3, static_cast<char>(byte));
        for (const auto& [name, value] : udev_properties(member_two(label))) {
            CHECK(value.find_first_of("\n\r") == std::string::npos);
            if (name.ends_with("_ENC"))
                CHECK(std::none_of(value.begin(), value.end(), [](unsigned char letter) {
                    return letter <= 0x20 || letter == 0x7f || std::strchr("\"'/$;&|", letter) != nullptr;
                }));
        }
    }
}

}  // namespace cowraid
