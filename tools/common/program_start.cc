// SPDX-License-Identifier: MIT
#include "tools/common/program_start.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "base/out_of_memory.h"
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

}  // namespace

void start_program(int failed_code)
{
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
