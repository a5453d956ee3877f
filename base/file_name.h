// SPDX-License-Identifier: MIT
// File names in text: any bytes, so that different names are different texts, and back.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace cowraid {

// Backslashes are doubled, as printable() writes \xNN for what is no UTF-8.
inline std::string escape_file_name(std::string_view name)
{
    std::string escaped;
    for (const char byte : name)
        escaped += byte == '\\' ? "\\\\" : std::string(1, byte);
    return escaped;
}

// Of what went through printable() after that, too.
inline std::string unescape_file_name(const std::string& text)
{
    std::string name;
    for (size_t at = 0; at < text.size(); ++at) {
        unsigned byte = 0;
        if (text[at] != '\\' || at + 1 == text.size()) {
            name += text[at];
        } else if (text[at + 1] == 'x' && sscanf(text.c_str() + at + 2, "%2x", &byte) == 1) {
            name += static_cast<char>(byte);
            at += 3;
        } else {
            name += text[++at];
        }
    }
    return name;
}

}  // namespace cowraid
