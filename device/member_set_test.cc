// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <thread>

#include "device/member_set.h"
#include "device/sim_device.h"

using namespace cowraid;

TEST_CASE("members are found by id, whatever the order they came in")
{
    MemberSet set;
    set.add({7}, std::make_unique<SimDevice>("seven", kMiB), {});
    set.add({2}, std::make_unique<SimDevice>("two", kMiB), {1, 2, 3, 4, 5, 6, 7, 8});
    set.add({5}, nullptr, {});
    const std::vector<MemberId> expected{{2}, {5}, {7}};
    CHECK(set.ids() == expected);
    CHECK(std::string(set.device({2})->name()) == "two");
    CHECK(std::string(set.device({7})->name()) == "seven");
    CHECK(set.device({5}) == nullptr);
    CHECK(set.device({3}) == nullptr);
    CHECK_FALSE(set.failed({5}));
    CHECK(set.counters({2}) == MemberCounters{1, 2, 3, 4, 5, 6, 7, 8});
    set.count({2}, MemberCounter::kParity, 10);
    set.count({2}, MemberCounter::kRepaired);
    CHECK(set.counters({2}) == MemberCounters{1, 2, 3, 4, 5, 16, 7, 9});
    set.reset_counters({2});
    CHECK(set.counters({2}) == MemberCounters{});
    set.count({99}, MemberCounter::kParity);
    CHECK(set.counters({99}) == MemberCounters{});
}

TEST_CASE("only one of many callers takes a member out of service, and its device stays usable")
{
    MemberSet set;
    set.add({1}, std::make_unique<SimDevice>("one", kMiB), {});
    set.add({2}, nullptr, {});
    BlockDevice* device = set.device({1});
    std::atomic<int> first{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
        threads.emplace_back([&] {
            for (int round = 0; round < 1000; ++round)
                set.count({1}, MemberCounter::kWriteErrors);
            first += set.mark_failed({1}) ? 1 : 0;
        });
    }
    for (auto& thread : threads)
        thread.join();
    CHECK(first == 1);
    CHECK(set.failed({1}));
    CHECK(set.device({1}) == nullptr);
    CHECK(device->size_bytes() == kMiB);
    CHECK(set.counters({1})[static_cast<size_t>(MemberCounter::kWriteErrors)] == 4000);
    CHECK_FALSE(set.mark_failed({2}));
    CHECK_FALSE(set.mark_failed({3}));
    for (size_t index = 0; index < kMemberCounterCount; ++index)
        CHECK(std::string(member_counter_name(static_cast<MemberCounter>(index))) != "unknown");
}
