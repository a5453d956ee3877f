// SPDX-License-Identifier: MIT
#include "tools/common/program_start.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/out_of_memory.h"
#include "base/print.h"
#include "base/unique_fd.h"

namespace cowraid {

namespace {

// open() takes the lowest number that is free.
void open_standard_descriptors()
{
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            _exit(EXIT_FAILURE);
    }
}

void raise_file_size_limit()
{
    rlimit limit{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) == 0 || getrlimit(RLIMIT_FSIZE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

// After argp's texts, too, which end the program.
void flush_output(int code, void* failed_code)
{
    const bool failed_before = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !failed_before)
        return;
    const std::string reason = errno == 0 ? "" : std::string(": ") + strerror(errno);
    print_line(stderr, "%s: the output cannot be written%s", program_invocation_short_name, reason.c_str());
    if (code == EXIT_SUCCESS)
        _exit(static_cast<int>(reinterpret_cast<intptr_t>(failed_code)));
}

}  // namespace

void start_program(int failed_code)
{
    on_exit(flush_output, reinterpret_cast<void*>(intptr_t{failed_code}));
    end_when_out_of_memory(failed_code);
    open_standard_descriptors();
    raise_file_size_limit();
}

void redirect_to_null(std::initializer_list<int> descriptors)
{
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int fd : descriptors) {
        if (null.valid())
            dup2(null.get(), fd);
    }
}

}  // namespace cowraid
