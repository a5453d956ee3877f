// SPDX-License-Identifier: MIT
#include "sim/virtual_time.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

using namespace cowraid;

namespace {

constexpr uint64_t kMs = 1'000'000;

// What simulated threads did, in their order.
struct Diary {
    const uint64_t began_ns = monotonic_ns();
    std::string text;

    void note(char who) { text += who + std::to_string((monotonic_ns() - began_ns) / kMs) + " "; }
};

template <typename Action> pthread_t begin_thread(Action& action)
{
    pthread_t thread;
    REQUIRE(pthread_create(
                &thread, nullptr,
                [](void* argument) -> void* {
                    (*static_cast<Action*>(argument))();
                    return nullptr;
                },
                &action) == 0);
    return thread;
}

}  // namespace

TEST_CASE("simulated threads sleep as long as they say, and that takes no time")
{
    timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    const VirtualTime time;
    Diary diary;
    auto slow = [&] {
        for (int turn = 0; turn < 3; ++turn) {
            usleep(100'000);
            diary.note('s');
        }
    };
    auto quick = [&] {
        for (int turn = 0; turn < 3; ++turn) {
            usleep(70'000);
            diary.note('q');
        }
        const timespec hour{3600, 0};
        nanosleep(&hour, nullptr);
    };
    const pthread_t threads[] = {begin_thread(slow), begin_thread(quick)};
    diary.note('m');
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    CHECK(diary.text == "m0 q70 s100 q140 s200 q210 s300 ");
    CHECK((monotonic_ns() - diary.began_ns) / kMs == 3'600'210);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    CHECK(after.tv_sec - before.tv_sec < 10);
}

TEST_CASE("simulated threads wait for locks and conditions in their order, and for no longer than they say")
{
    const VirtualTime time;
    Diary diary;
    Mutex mutex{LockRank::kLeaf};
    CondVar changed;
    bool open = false;
    auto holder = [&] {
        MutexLock lock(mutex);
        usleep(50'000);
        diary.note('h');
    };
    auto waiter = [&] {
        MutexLock lock(mutex);
        diary.note('w');
        while (!open)
            changed.wait(mutex);
        diary.note('W');
    };
    auto impatient = [&] {
        MutexLock lock(mutex);
        diary.note('i');
        CHECK_FALSE(changed.wait_for(mutex, 20));
        diary.note('I');
    };
    const pthread_t threads[] = {begin_thread(holder), begin_thread(waiter), begin_thread(impatient)};
    usleep(100'000);
    {
        MutexLock lock(mutex);
        open = true;
        changed.notify_all();
    }
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    CHECK(diary.text == "h50 w50 i50 I70 W100 ");
}

TEST_CASE("simulated threads share a lock, and who wants it alone goes before those that come later")
{
    const VirtualTime time;
    Diary diary;
    RwLock lock{LockRank::kLeaf};
    const auto read = [&](useconds_t from, char who) {
        usleep(from);
        ReadLock shared(lock);
        diary.note(who);
        usleep(10'000);
    };
    auto first = [&] {
        read(0, 'a');
    };
    auto second = [&] {
        read(5'000, 'b');
    };
    auto third = [&] {
        read(12'000, 'c');
    };
    auto writer = [&] {
        usleep(7'000);
        WriteLock alone(lock);
        diary.note('w');
        usleep(10'000);
    };
    const pthread_t threads[] = {begin_thread(first), begin_thread(second), begin_thread(third),
                                 begin_thread(writer)};
    for (const pthread_t thread : threads)
        pthread_join(thread, nullptr);
    CHECK(diary.text == "a0 b5 w15 c25 ");
}
