// SPDX-License-Identifier: MIT
#include "tools/common/program_start.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
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

// As far as anybody may.
void raise_limit(int resource)
{
    rlimit limit;
    if (getrlimit(resource, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
}

void raise_file_size_limit()
{
    const rlimit unlimited{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &unlimited) != 0)
        raise_limit(RLIMIT_FSIZE);
}

// A parent that waits for no child, or lets signals wait, hands that on: children could not be waited for,
// and threads not be woken.
void reset_signals()
{
    signal(SIGCHLD, SIG_DFL);
    sigset_t own;
    sigemptyset(&own);
    for (const int number : {SIGCHLD, SIGUSR1})
        sigaddset(&own, number);
    sigprocmask(SIG_UNBLOCK, &own, nullptr);
}

// Else it is as large as the limit for the first thread's, and counts as memory (base/out_of_memory.h).
void set_stack_size()
{
    constexpr size_t kStackBytes = 8 << 20;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
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
    raise_limit(RLIMIT_NOFILE);
    reset_signals();
    set_stack_size();
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
