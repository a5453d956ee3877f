// SPDX-License-Identifier: MIT
#include "sim/virtual_time.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/random.h"

// What the linker makes of the calls of the C library (ld(1), --wrap).
extern "C" {
int __real_pthread_mutex_lock(pthread_mutex_t*);
int __real_pthread_mutex_unlock(pthread_mutex_t*);
int __real_pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*);
int __real_pthread_cond_timedwait(pthread_cond_t*, pthread_mutex_t*, const timespec*);
int __real_pthread_cond_signal(pthread_cond_t*);
int __real_pthread_cond_broadcast(pthread_cond_t*);
int __real_pthread_rwlock_rdlock(pthread_rwlock_t*);
int __real_pthread_rwlock_wrlock(pthread_rwlock_t*);
int __real_pthread_rwlock_unlock(pthread_rwlock_t*);
int __real_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int __real_pthread_join(pthread_t, void**);
int __real_clock_gettime(clockid_t, timespec*);
time_t __real_time(time_t*);
int __real_clock_nanosleep(clockid_t, int, const timespec*, timespec*);
int __real_nanosleep(const timespec*, timespec*);
int __real_usleep(useconds_t);
ssize_t __real_getrandom(void*, size_t, unsigned);
}

namespace cowraid {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kNeverNs = UINT64_MAX;
// No sleep takes no time, or who looks again and again would stop the clock.
constexpr uint64_t kLeastSleepNs = 1000;

struct VirtualThread {
    void* (*main)(void*) = nullptr;
    void* argument = nullptr;
    pthread_t thread{};
    pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
    bool runs = false, ended = false;
    // While it waits: for a lock, a condition, a thread or nothing but the clock.
    const void* awaited = nullptr;
    bool to_write = false;  // the lock, alone
    uint64_t until_ns = kNeverNs;
    bool in_time = false;
};

// Changed by the thread that runs. The mutex is for handing over.
struct VirtualWorld {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    std::vector<std::unique_ptr<VirtualThread>> threads;
    std::deque<VirtualThread*> ready;
    std::vector<VirtualThread*> waiting;  // in the order in which they began to
    Prng random{1};
    cpu_set_t processors;

    bool wait(const void* awaited, uint64_t until_ns, bool to_write = false);
    void wake(const void* awaited, size_t count);
    void wake_by_clock();
    void pass_on(VirtualThread& from);
};

// Goes on from one world to the next: nobody sees it go back.
uint64_t virtual_now_ns = 1000 * kSecondNs;
VirtualWorld* virtual_world = nullptr;
// Null: not a simulated thread.
thread_local VirtualThread* virtual_self = nullptr;

// False: the time ran out.
bool VirtualWorld::wait(const void* awaited, uint64_t until_ns, bool to_write)
{
    virtual_self->awaited = awaited;
    virtual_self->until_ns = until_ns;
    virtual_self->to_write = to_write;
    virtual_self->in_time = true;
    waiting.push_back(virtual_self);
    pass_on(*virtual_self);
    return virtual_self->in_time;
}

void VirtualWorld::wake(const void* awaited, size_t count)
{
    for (auto at = waiting.begin(); at != waiting.end() && count > 0;) {
        if ((*at)->awaited != awaited) {
            ++at;
            continue;
        }
        ready.push_back(*at);
        at = waiting.erase(at);
        --count;
    }
}

void VirtualWorld::wake_by_clock()
{
    uint64_t first = kNeverNs;
    for (const VirtualThread* thread : waiting)
        first = std::min(first, thread->until_ns);
    CW_ASSERT(first != kNeverNs);  // else all wait for each other
    virtual_now_ns = std::max(virtual_now_ns, first);
    for (auto at = waiting.begin(); at != waiting.end();) {
        if ((*at)->until_ns > virtual_now_ns) {
            ++at;
            continue;
        }
        (*at)->in_time = false;
        ready.push_back(*at);
        at = waiting.erase(at);
    }
}

// Returns when it is the turn of `from` again; at once if that has ended.
void VirtualWorld::pass_on(VirtualThread& from)
{
    if (ready.empty())
        wake_by_clock();
    VirtualThread* const next = ready.front();
    ready.pop_front();
    if (next == &from)
        return;
    __real_pthread_mutex_lock(&mutex);
    from.runs = false;
    next->runs = true;
    __real_pthread_cond_signal(&next->turn);
    while (!from.runs && !from.ended)
        __real_pthread_cond_wait(&from.turn, &mutex);
    __real_pthread_mutex_unlock(&mutex);
}

void* virtual_main(void* argument)
{
    VirtualWorld& own = *virtual_world;
    virtual_self = static_cast<VirtualThread*>(argument);
    __real_pthread_mutex_lock(&own.mutex);
    while (!virtual_self->runs)
        __real_pthread_cond_wait(&virtual_self->turn, &own.mutex);
    __real_pthread_mutex_unlock(&own.mutex);
    void* const result = virtual_self->main(virtual_self->argument);
    virtual_self->ended = true;
    own.wake(virtual_self, SIZE_MAX);
    own.pass_on(*std::exchange(virtual_self, nullptr));
    return result;
}

// Of a lock that is held through `try_it`.
template <typename TryIt> int take_virtual(const void* lock, bool to_write, TryIt try_it)
{
    int result = try_it();
    while (result == EBUSY) {
        virtual_world->wait(lock, kNeverNs, to_write);
        result = try_it();
    }
    return result;
}

int wait_for_virtual(pthread_cond_t* condition, pthread_mutex_t* mutex, uint64_t until_ns)
{
    __real_pthread_mutex_unlock(mutex);
    virtual_world->wake(mutex, 1);
    const bool in_time = virtual_world->wait(condition, until_ns);
    take_virtual(mutex, true, [=] { return pthread_mutex_trylock(mutex); });
    return in_time ? 0 : ETIMEDOUT;
}

uint64_t virtual_ns(const timespec& time)
{
    return static_cast<uint64_t>(time.tv_sec) * kSecondNs + static_cast<uint64_t>(time.tv_nsec);
}

void virtual_sleep_until(uint64_t until_ns)
{
    virtual_world->wait(nullptr, std::max(until_ns, virtual_now_ns + kLeastSleepNs));
}

}  // namespace

// On one processor: handing over to another one takes longer.
VirtualTime::VirtualTime()
{
    CW_ASSERT(virtual_world == nullptr);
    virtual_world = new VirtualWorld;
    virtual_world->threads.push_back(std::make_unique<VirtualThread>());
    virtual_self = virtual_world->threads.back().get();
    virtual_self->runs = true;
    sched_getaffinity(0, sizeof virtual_world->processors, &virtual_world->processors);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(std::max(0, sched_getcpu())), &one);
    sched_setaffinity(0, sizeof one, &one);
}

VirtualTime::~VirtualTime()
{
    CW_ASSERT(virtual_world->threads.size() == 1 && virtual_world->waiting.empty() &&
              virtual_world->ready.empty());
    sched_setaffinity(0, sizeof virtual_world->processors, &virtual_world->processors);
    virtual_self = nullptr;
    delete virtual_world;
    virtual_world = nullptr;
}

extern "C" {

int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex)
{
    if (virtual_self == nullptr)
        return __real_pthread_mutex_lock(mutex);
    return take_virtual(mutex, true, [=] { return pthread_mutex_trylock(mutex); });
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t* mutex)
{
    const int result = __real_pthread_mutex_unlock(mutex);
    if (virtual_self != nullptr)
        virtual_world->wake(mutex, 1);
    return result;
}

int __wrap_pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
{
    return virtual_self == nullptr ? __real_pthread_cond_wait(condition, mutex)
                                   : wait_for_virtual(condition, mutex, kNeverNs);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until)
{
    return virtual_self == nullptr ? __real_pthread_cond_timedwait(condition, mutex, until)
                                   : wait_for_virtual(condition, mutex, virtual_ns(*until));
}

int __wrap_pthread_cond_signal(pthread_cond_t* condition)
{
    if (virtual_self == nullptr)
        return __real_pthread_cond_signal(condition);
    virtual_world->wake(condition, 1);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t* condition)
{
    if (virtual_self == nullptr)
        return __real_pthread_cond_broadcast(condition);
    virtual_world->wake(condition, SIZE_MAX);
    return 0;
}

int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t* lock)
{
    if (virtual_self == nullptr)
        return __real_pthread_rwlock_wrlock(lock);
    return take_virtual(lock, true, [=] { return pthread_rwlock_trywrlock(lock); });
}

// Who waits to write goes first.
int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t* lock)
{
    if (virtual_self == nullptr)
        return __real_pthread_rwlock_rdlock(lock);
    return take_virtual(lock, false, [=] {
        const bool behind = std::any_of(
            virtual_world->waiting.begin(), virtual_world->waiting.end(),
            [=](const VirtualThread* other) { return other->awaited == lock && other->to_write; });
        return behind ? EBUSY : pthread_rwlock_tryrdlock(lock);
    });
}

int __wrap_pthread_rwlock_unlock(pthread_rwlock_t* lock)
{
    const int result = __real_pthread_rwlock_unlock(lock);
    if (virtual_self != nullptr)
        virtual_world->wake(lock, SIZE_MAX);
    return result;
}

int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*main)(void*),
                          void* argument)
{
    if (virtual_self == nullptr)
        return __real_pthread_create(thread, attributes, main, argument);
    auto made = std::make_unique<VirtualThread>();
    made->main = main;
    made->argument = argument;
    const int result = __real_pthread_create(&made->thread, attributes, virtual_main, made.get());
    if (result != 0)
        return result;
    *thread = made->thread;
    virtual_world->ready.push_back(made.get());
    virtual_world->threads.push_back(std::move(made));
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void** value)
{
    if (virtual_self == nullptr)
        return __real_pthread_join(thread, value);
    const auto at =
        std::find_if(virtual_world->threads.begin(), virtual_world->threads.end(), [=](const auto& one) {
            return one->main != nullptr && pthread_equal(one->thread, thread);
        });
    CW_ASSERT(at != virtual_world->threads.end());
    VirtualThread* const other = at->get();
    while (!other->ended)
        virtual_world->wait(other, kNeverNs);
    const int result = __real_pthread_join(thread, value);
    std::erase_if(virtual_world->threads, [=](const auto& one) { return one.get() == other; });
    return result;
}

int __wrap_clock_gettime(clockid_t clock, timespec* now)
{
    if (virtual_self == nullptr || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID)
        return __real_clock_gettime(clock, now);
    *now = {static_cast<time_t>(virtual_now_ns / kSecondNs), static_cast<long>(virtual_now_ns % kSecondNs)};
    return 0;
}

time_t __wrap_time(time_t* out)
{
    if (virtual_self == nullptr)
        return __real_time(out);
    const auto now = static_cast<time_t>(virtual_now_ns / kSecondNs);
    if (out != nullptr)
        *out = now;
    return now;
}

int __wrap_clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left)
{
    if (virtual_self == nullptr)
        return __real_clock_nanosleep(clock, flags, time, left);
    virtual_sleep_until(virtual_ns(*time) + (flags == TIMER_ABSTIME ? 0 : virtual_now_ns));
    return 0;
}

int __wrap_nanosleep(const timespec* time, timespec* left)
{
    if (virtual_self == nullptr)
        return __real_nanosleep(time, left);
    virtual_sleep_until(virtual_now_ns + virtual_ns(*time));
    return 0;
}

int __wrap_usleep(useconds_t microseconds)
{
    if (virtual_self == nullptr)
        return __real_usleep(microseconds);
    virtual_sleep_until(virtual_now_ns + uint64_t{microseconds} * 1000);
    return 0;
}

ssize_t __wrap_getrandom(void* out, size_t bytes, unsigned flags)
{
    if (virtual_self == nullptr)
        return __real_getrandom(out, bytes, flags);
    virtual_world->random.fill(static_cast<std::byte*>(out), bytes);
    return static_cast<ssize_t>(bytes);
}
}

}  // namespace cowraid
