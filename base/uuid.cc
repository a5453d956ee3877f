// SPDX-License-Identifier: MIT
#include "base/uuid.h"

#include "base/random.h"

namespace cowraid {

namespace {

constexpr bool dash_before(size_t byte_index)
{
    return byte_index == 4 || byte_index == 6 || byte_index == 8 || byte_index == 10;
}

int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

}  // namespace

Uuid uuid_random()
{
    Uuid uuid;
    random_bytes(uuid.bytes.data(), uuid.bytes.size());
    uuid.bytes[6] = static_cast<uint8_t>((uuid.bytes[6] & 0x0f) | 0x40);
    uuid.bytes[8] = static_cast<uint8_t>((uuid.bytes[8] & 0x3f) | 0x80);
    return uuid;
}

std::string uuid_text(const Uuid& uuid)
{
    static const char digits[] = "0123456789abcdef";
    std::string text;
    text.reserve(36);
    for (size_t i = 0; i < uuid.bytes.size(); ++i) {
        if (dash_before(i))
            text.push_back('-');
        text.push_back(digits[uuid.bytes[i] >> 4]);
        text.push_back(digits[uuid.bytes[i] & 0x0f]);
    }
    return text;
}

Result<Uuid> uuid_parse(std::string_view text)
{
    if (text.size() != 36)
        return Err::kInvalid;
    Uuid uuid;
    size_t at = 0;
    for (size_t i = 0; i < uuid.bytes.size(); ++i) {
        if (dash_before(i) && text[at++] != '-')
            return Err::kInvalid;
        const int high = hex_value(text[at++]);
        const int low = hex_value(text[at++]);
        if (high < 0 || low < 0)
            return Err::kInvalid;
        uuid.bytes[i] = static_cast<uint8_t>(high << 4 | low);
    }
    return uuid;
}

}  // namespace cowraid
