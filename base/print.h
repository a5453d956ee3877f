// SPDX-License-Identifier: MIT
// Text for people. Every line that a program prints or logs goes through printable(), in print_line(),
// line_text() and log_message(), so that a name or a label from elsewhere cannot forge a line or drive a
// terminal.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>
#include <string_view>

namespace cowraid {

// UTF-8 and tabulators as they are; other control characters, what reorders a line, and malformed bytes as
// \xNN. What is printable stays as it is.
std::string printable(std::string_view text);

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text_format(const char* format, ...);
[[gnu::format(printf, 1, 0)]] std::string text_format_list(const char* format, va_list arguments);

// One line: adds the newline, and makes all before it printable.
[[gnu::format(printf, 2, 3)]] void print_line(FILE* out, const char* format, ...);
// What it prints.
[[gnu::format(printf, 1, 2)]] std::string line_text(const char* format, ...);
void print_empty_line(FILE* out);
// Over what the last call printed: to a terminal, without a newline. An empty one makes place for a line.
void print_over(FILE* out, const std::string& text);

}  // namespace cowraid
