// SPDX-License-Identifier: MIT
#include "tests/fuzz/case_process.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"

namespace cowraid::test {

namespace {

// Of processor time: a busy machine is no endless loop. What waits for ever uses none, and ends by the clock.
constexpr unsigned kCaseSeconds = kSanitized ? 120 : 20;
constexpr unsigned kCaseClockSeconds = 15 * kCaseSeconds;
// Of addresses: bitmaps take memory only where they are written. What is used is examined.
constexpr rlim_t kCaseMemoryBytes = rlim_t{16} << 30;

// Output of the child goes to a file; what it decided comes through a pipe.
struct Child {
    pid_t pid = -1;
    FILE* output = nullptr;
    int verdict = -1;
};

void limit_child()
{
    alarm(kCaseClockSeconds);
    const rlimit processor{kCaseSeconds, kCaseSeconds + 1};
    setrlimit(RLIMIT_CPU, &processor);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (!kSanitized) {
        const rlimit memory{kCaseMemoryBytes, kCaseMemoryBytes};
        setrlimit(RLIMIT_AS, &memory);
    }
}

std::string tail_of(FILE* file)
{
    char text[4000];
    fseek(file, 0, SEEK_END);
    const long end = ftell(file);
    fseek(file, std::max(0L, end - static_cast<long>(sizeof text)), SEEK_SET);
    const size_t bytes = fread(text, 1, sizeof text, file);
    return {text, bytes};
}

std::string wait_for(const Child& child, Verdict& verdict)
{
    const bool answered = read(child.verdict, &verdict, sizeof verdict) == sizeof verdict;
    close(child.verdict);
    int status = 0;
    waitpid(child.pid, &status, 0);
    std::string problem = answered ? verdict.problem : "";
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGXCPU))
        problem = "does not end";
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !answered)
        problem = "died: " + tail_of(child.output);
    fclose(child.output);
    return problem;
}

Child start(CaseWork& work)
{
    int ends[2];
    Child child;
    child.output = tmpfile();
    if (child.output == nullptr || pipe(ends) != 0)
        abort();
    fflush(stdout);
    child.pid = fork();
    if (child.pid == 0) {
        dup2(fileno(child.output), STDERR_FILENO);
        close(ends[0]);
        limit_child();
        log_set_level(LogLevel::kError);
        const Verdict verdict = work.run();
        const bool sent = write(ends[1], &verdict, sizeof verdict) == sizeof verdict;
        _exit(sent ? 0 : 2);
    }
    if (child.pid < 0)
        abort();
    close(ends[1]);
    child.verdict = ends[0];
    return child;
}

}  // namespace

std::string run_apart(CaseWork& work, Verdict& verdict)
{
    return wait_for(start(work), verdict);
}

}  // namespace cowraid::test
