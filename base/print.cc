// SPDX-License-Identifier: MIT
#include "base/print.h"

#include "base/assert.h"

namespace cowraid {

namespace {

// Length of the UTF-8 character that `text` begins with, 0 when it is malformed. Sets `code`.
size_t decode_utf8(std::string_view text, uint32_t& code)
{
    static constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t length = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (length < 2 || length > text.size() || first > 0xf4) {
        code = first;
        return length < 2 ? length : 0;
    }
    code = first & (0x7fu >> length);
    for (size_t i = 1; i < length; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if ((byte & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (byte & 0x3f);
    }
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    return code < kSmallest[length] || code > 0x10ffff || surrogate ? 0 : length;
}

// Control characters but the tabulator, and those that reorder or break the line they are in.
bool drives_terminal(uint32_t code)
{
    return (code < 0x20 && code != '\t') || (code >= 0x7f && code < 0xa0) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0x61c ||
           code == 0x200e || code == 0x200f;
}

}  // namespace

std::string printable(std::string_view text)
{
    std::string out;
    while (!text.empty()) {
        uint32_t code = 0;
        const size_t length = decode_utf8(text, code);
        const size_t used = length == 0 ? 1 : length;
        if (length != 0 && !drives_terminal(code)) {
            out += text.substr(0, used);
        } else {
            for (const char byte : text.substr(0, used))
                out += text_format("\\x%02x", static_cast<unsigned char>(byte));
        }
        text.remove_prefix(used);
    }
    return out;
}

std::string text_format_list(const char* format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, again);
    va_end(again);
    CW_ASSERT(length >= 0);
    std::string text(static_cast<size_t>(length) + 1, '\0');
    std::vsnprintf(text.data(), text.size(), format, arguments);
    text.pop_back();
    return text;
}

std::string text_format(const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    std::string text = text_format_list(format, arguments);
    va_end(arguments);
    return text;
}

void print_line(FILE* out, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const std::string line = printable(text_format_list(format, arguments)) + "\n";
    va_end(arguments);
    fputs(line.c_str(), out);
}

std::string line_text(const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    std::string line = printable(text_format_list(format, arguments)) + "\n";
    va_end(arguments);
    return line;
}

void print_empty_line(FILE* out)
{
    fputs("\n", out);
}

void print_over(FILE* out, const std::string& text)
{
    constexpr int kWidth = 78;
    fprintf(out, "\r%-*s%s", kWidth, printable(text).c_str(), text.empty() ? "\r" : "");
    fflush(out);
}

}  // namespace cowraid
