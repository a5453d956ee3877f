// SPDX-License-Identifier: MIT
#include "tools/mount/signal_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/assert.h"
#include "base/log_count.h"

namespace cowraid {

namespace {

constexpr int kTickMilliseconds = 10'000;

sigset_t watched_signals()
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR2);
    return set;
}

}  // namespace

void block_watched_signals()
{
    const sigset_t set = watched_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void end_by_watched_signals()
{
    const sigset_t set = watched_signals();
    struct sigaction action = {};
    action.sa_handler = [](int) {
        _exit(0);
    };
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR2})
        sigaction(number, &action, nullptr);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

SignalWatch::SignalWatch()
{
    const sigset_t set = watched_signals();
    signals_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC));
    stop_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    CW_ASSERT(signals_.valid() && stop_event_.valid());
}

Status SignalWatch::start(Handler handler, void* context)
{
    return thread_.start([this, handler, context] { run(handler, context); });
}

SignalWatch::~SignalWatch()
{
    eventfd_write(stop_event_.get(), 1);
    thread_.join();
}

void SignalWatch::run(Handler handler, void* context)
{
    bool handled = false;
    for (;;) {
        pollfd entries[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                            {.fd = stop_event_.get(), .events = POLLIN, .revents = 0}};
        const int events = poll(entries, std::size(entries), kTickMilliseconds);
        if ((events < 0 && errno != EINTR) || entries[1].revents != 0)
            return;
        if (events == 0)
            log_counts(LogCounts::kDue);
        signalfd_siginfo info;
        if (entries[0].revents == 0 || read(signals_.get(), &info, sizeof info) != sizeof info)
            continue;
        // The terminal is not ours to follow once we serve in the background; nobody means an end by SIGUSR2.
        if (handled || info.ssi_signo == SIGHUP || info.ssi_signo == SIGUSR2)
            continue;
        handled = true;
        handler(context, static_cast<int>(info.ssi_signo));
    }
}

}  // namespace cowraid
