// SPDX-License-Identifier: MIT
#include "tools/common/udev_properties.h"

#include <blkid/blkid.h>

#include "format/superblock.h"

namespace cowraid {

namespace {

// Of a label in which every byte is written as \xNN.
constexpr size_t kEncodedBytes = 4 * kLabelBytes + 1;

}  // namespace

std::vector<std::pair<std::string, std::string>> udev_properties(const Superblock& superblock)
{
    std::vector<std::pair<std::string, std::string>> properties = {
        {"ID_FS_TYPE", "cowraid"},
        {"ID_FS_USAGE", "filesystem"},
        {"ID_FS_VERSION", std::to_string(kFormatVersion)},
    };
    const auto add = [&](const std::string& name, const std::string& value) {
        char text[kEncodedBytes];
        if (!value.empty() && blkid_safe_string(value.c_str(), text, sizeof text) == 0)
            properties.emplace_back(name, text);
        if (!value.empty() && blkid_encode_string(value.c_str(), text, sizeof text) == 0)
            properties.emplace_back(name + "_ENC", text);
    };
    add("ID_FS_UUID", uuid_text(superblock.volume_uuid));
    for (const MemberRecord* const line :
         {superblock.member(superblock.member_id), superblock.spare(superblock.member_id)})
        if (line != nullptr)
            add("ID_FS_UUID_SUB", uuid_text(line->uuid));
    add("ID_FS_LABEL", superblock.label);
    return properties;
}

}  // namespace cowraid
