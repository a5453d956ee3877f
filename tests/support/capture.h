// SPDX-License-Identifier: MIT
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace cowraid {

// What is printed on a standard stream while it lives, from the file that stands in for it.
class Captured {
public:
    explicit Captured(FILE* stream = stderr) : stream_(stream), file_(tmpfile()), before_(dup(fileno(stream)))
    {
        fflush(stream_);
        dup2(fileno(file_), fileno(stream_));
    }
    ~Captured()
    {
        fflush(stream_);
        dup2(before_, fileno(stream_));
        close(before_);
        fclose(file_);
    }
    std::string text()
    {
        fflush(stream_);
        std::string out(1 << 20, '\0');
        out.resize(static_cast<size_t>(pread(fileno(file_), out.data(), out.size(), 0)));
        return out;
    }

private:
    FILE* const stream_;
    FILE* file_;
    int before_;
};

}  // namespace cowraid
