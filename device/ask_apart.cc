// SPDX-License-Identifier: MIT
#include "device/ask_apart.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "device/ring.h"

namespace cowraid {

namespace {

// Of the process that answers: where the answer goes.
constexpr int kAnswerFd = 3;

// A process that was given up.
struct GivenUp {
    std::string name;
    pid_t process;
};

std::vector<GivenUp>& given_up()
{
    static std::vector<GivenUp> list;
    return list;
}

bool still_waits_for(const std::string& name)
{
    std::erase_if(given_up(), [](const GivenUp& one) { return waitpid(one.process, nullptr, WNOHANG) != 0; });
    return std::any_of(given_up().begin(), given_up().end(),
                       [&](const GivenUp& one) { return one.name == name; });
}

// What it has of others must not last as long as it waits: pipes to who reads what they print, locks.
void keep_only(int fd)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (null < 0 || dup2(null, standard) < 0)
            _exit(EXIT_FAILURE);
    if (fd != kAnswerFd && dup2(fd, kAnswerFd) < 0)
        _exit(EXIT_FAILURE);
    close_range(kAnswerFd + 1, ~0U, 0);
}

}  // namespace

AskApart::Role AskApart::begin(const std::string& name)
{
    asked_.push_back({.name = name, .process = -1, .pipe = {}, .answer = {}});
    Asked& asked = asked_.back();
    if (still_waits_for(name))
        return Role::kAsks;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return Role::kAlone;
    UniqueFd mine(ends[0]), others(ends[1]);
    const pid_t parent = getpid();
    asked.process = fork();
    if (asked.process < 0)
        return Role::kAlone;
    if (asked.process > 0) {
        asked.pipe = std::move(mine);
        return Role::kAsks;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    // Lets go of an inherited ring while its number is not another file's.
    setenv("COWRAID_NO_URING", "1", 1);
    (void)Ring::of_this_thread();
    mine = UniqueFd();
    keep_only(others.release());
    return Role::kAnswers;
}

void AskApart::end_with(const std::vector<std::byte>& answer)
{
    for (size_t done = 0; done < answer.size();) {
        const ssize_t bytes = write(kAnswerFd, answer.data() + done, answer.size() - done);
        if (bytes < 0 && errno != EINTR)
            break;
        done += bytes > 0 ? static_cast<size_t>(bytes) : 0;
    }
    _exit(EXIT_SUCCESS);
}

void AskApart::read_more(Asked& asked)
{
    if (!asked.answer)
        asked.answer.emplace();
    std::byte buffer[4096];
    const ssize_t bytes = read(asked.pipe.get(), buffer, sizeof buffer);
    if (bytes > 0)
        asked.answer->insert(asked.answer->end(), buffer, buffer + bytes);
    if (bytes > 0 || (bytes < 0 && errno == EINTR))
        return;
    asked.pipe = UniqueFd();
    waitpid(asked.process, nullptr, 0);  // it has begun to end
}

std::vector<AskApart::Answer> AskApart::wait(uint64_t wait_ms)
{
    const uint64_t until = monotonic_ms() + wait_ms;
    while (true) {
        std::vector<pollfd> pipes;  // of all: poll() ignores what is -1
        for (const Asked& asked : asked_)
            pipes.push_back({.fd = asked.pipe.get(), .events = POLLIN, .revents = 0});
        if (std::all_of(pipes.begin(), pipes.end(), [](const pollfd& pipe) { return pipe.fd < 0; }))
            break;
        // What is there already counts, also when this process was stopped meanwhile.
        const uint64_t now = monotonic_ms();
        const int ready = poll(pipes.data(), pipes.size(), now < until ? static_cast<int>(until - now) : 0);
        if (ready == 0 && now >= until)
            break;
        if (ready <= 0)
            continue;
        for (size_t index = 0; index < pipes.size(); ++index)
            if (pipes[index].revents != 0)
                read_more(asked_[index]);
    }
    std::vector<Answer> answers;
    for (Asked& asked : std::exchange(asked_, {})) {
        if (asked.pipe.valid()) {
            asked.answer.reset();
            given_up().push_back({std::move(asked.name), asked.process});
        }
        answers.push_back(std::move(asked.answer));
    }
    return answers;
}

}  // namespace cowraid
