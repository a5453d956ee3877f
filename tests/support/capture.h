// SPDX-License-Identifier: MIT
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace cowraid {

// What is printed on standard error while it lives, from the file that stands in for standard error.
class Captured {
public:
    Captured() : file_(tmpfile()), before_(dup(STDERR_FILENO))
    {
        fflush(stderr);
        dup2(fileno(file_), STDERR_FILENO);
    }
    ~Captured()
    {
        fflush(stderr);
        dup2(before_, STDERR_FILENO);
        close(before_);
        fclose(file_);
    }
    std::string text()
    {
        fflush(stderr);
        std::string out(1 << 20, '\0');
        out.resize(static_cast<size_t>(pread(fileno(file_), out.data(), out.size(), 0)));
        return out;
    }

private:
    FILE* file_;
    int before_;
};

}  // namespace cowraid
