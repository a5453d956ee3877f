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

// Output of the child goes to a file; what it decided comes through a pipe, a verdict for each case.
struct Child {
    pid_t pid = -1;
    FILE* output = nullptr;
    int verdicts = -1;
};

void limit_case()
{
    alarm(kCaseClockSeconds);
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1;
    const rlimit processor{seconds + kCaseSeconds, RLIM_INFINITY};
    setrlimit(RLIMIT_CPU, &processor);
}

void limit_child()
{
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

// Of the cases that ended; when not all did, of the one after them, too.
std::vector<CaseOutcome> wait_for(const Child& child, size_t count)
{
    std::vector<CaseOutcome> outcomes;
    CaseOutcome outcome;
    while (read(child.verdicts, &outcome.verdict, sizeof outcome.verdict) == sizeof outcome.verdict) {
        outcome.problem = outcome.verdict.problem;
        outcomes.push_back(outcome);
    }
    close(child.verdicts);
    int status = 0;
    waitpid(child.pid, &status, 0);
    std::string death;
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGXCPU))
        death = "does not end";
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || outcomes.size() < count)
        death = "died: " + tail_of(child.output);
    fclose(child.output);
    if (!death.empty() && outcomes.size() < count)
        outcomes.push_back({{}, death});
    else if (!death.empty())
        outcomes.back().problem = death;
    return outcomes;
}

bool run_cases(CaseWork& work, size_t begin, size_t end, int verdicts)
{
    for (size_t index = begin; index < end; ++index) {
        limit_case();
        const Verdict verdict = work.run(index);
        if (write(verdicts, &verdict, sizeof verdict) != sizeof verdict)
            return false;
    }
    return true;
}

std::vector<CaseOutcome> run_together(CaseWork& work, size_t begin, size_t end)
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
        _exit(run_cases(work, begin, end, ends[1]) ? 0 : 2);
    }
    if (child.pid < 0)
        abort();
    close(ends[1]);
    child.verdicts = ends[0];
    return wait_for(child, end - begin);
}

}  // namespace

std::vector<CaseOutcome> run_apart(CaseWork& work, size_t count)
{
    std::vector<CaseOutcome> outcomes = run_together(work, 0, count);
    const size_t tried = outcomes.size();
    outcomes.resize(count);
    for (size_t index = 0; index < count && count > 1; ++index) {
        if (index < tried && outcomes[index].problem.empty())
            continue;
        const std::string in_company = outcomes[index].problem;
        outcomes[index] = run_together(work, index, index + 1).front();
        if (outcomes[index].problem.empty() && !in_company.empty())
            outcomes[index].problem = "after other cases in one process: " + in_company;
    }
    return outcomes;
}

}  // namespace cowraid::test
