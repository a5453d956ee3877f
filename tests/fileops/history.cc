// SPDX-License-Identifier: MIT
#include "tests/fileops/history.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cowraid::test {

void History::begin(uint64_t number, const char* operation)
{
    Entry& entry = entries_[count_++ % entries_.size()];
    entry.number = number;
    entry.operation = operation;
    entry.text[0] = '\0';
}

void History::note(const char* format, ...)
{
    std::array<char, 160>& text = entries_[(count_ - 1) % entries_.size()].text;
    const size_t used = strlen(text.data());
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text.data() + used, text.size() - used, format, arguments);
    va_end(arguments);
}

void History::end()
{
    printf("\nThe last operations:\n");
    for (uint64_t i = count_ - std::min<uint64_t>(count_, entries_.size()); i < count_; ++i) {
        const Entry& entry = entries_[i % entries_.size()];
        printf("%8lu %s%s\n", entry.number, entry.operation, entry.text.data());
    }
    printf("Again: %s\n", command_.c_str());
    fflush(stdout);
    _Exit(1);
}

void History::mismatch(const char* format, ...)
{
    printf("MISMATCH: ");
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    end();
}

void History::refused(const char* call, long result)
{
    const int error = errno;
    mismatch("%s returned %ld (%s)", call, result, result < 0 ? strerror(error) : "less than asked for");
}

}  // namespace cowraid::test
