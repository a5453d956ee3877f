// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <unistd.h>

#include <thread>

#include "base/buffer.h"
#include "base/clock.h"
#include "device/member_set.h"
#include "sim/holding_device.h"
#include "sim/sim_device.h"

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

TEST_CASE("many callers report one failure, and the device of the member stays usable")
{
    MemberSet set;
    set.add({1}, std::make_unique<SimDevice>("one", kMiB), {});
    set.add({2}, nullptr, {});
    BlockDevice* device = set.device({1});
    const MemberId one{1};
    std::atomic<int> carried{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
        threads.emplace_back([&] {
            for (int round = 0; round < 1000; ++round)
                set.count({1}, MemberCounter::kWriteErrors);
            carried += set.fail({&one, 1}) ? 1 : 0;
        });
    }
    for (auto& thread : threads)
        thread.join();
    CHECK(carried == 4);
    CHECK(set.failed({1}));
    CHECK(set.device({1}) == nullptr);
    CHECK(device->size_bytes() == kMiB);
    CHECK(set.counters({1})[static_cast<size_t>(MemberCounter::kWriteErrors)] == 4000);
    const MemberId strangers[] = {{2}, {3}};
    CHECK(set.fail(strangers));  // one is absent, the other unknown
    CHECK_FALSE(set.failed({2}));
    for (size_t index = 0; index < kMemberCounterCount; ++index)
        CHECK(std::string(member_counter_name(static_cast<MemberCounter>(index))) != "unknown");
}

TEST_CASE("members that failed together leave service together or not at all")
{
    class Policy final : public FailurePolicy {
    public:
        [[nodiscard]] bool can_do_without(std::span<const MemberId> leaving) const override
        {
            asked.assign(leaving.begin(), leaving.end());
            return leaving.size() < 2;
        }
        mutable std::vector<MemberId> asked;
    };
    MemberSet set;
    for (uint32_t id = 1; id <= 4; ++id)
        set.add({id}, std::make_unique<SimDevice>("disk", kMiB), {});
    Policy policy;
    set.set_failure_policy(&policy);
    set.set_quorums({{set.ids(), 3}});
    const MemberId both[] = {{1}, {2}};
    const MemberId third[] = {{3}, {3}};
    CHECK_FALSE(set.fail_if_spared(both));
    CHECK_FALSE(set.stopped());
    CHECK(set.fail({}));
    CHECK(set.fail(third));
    CHECK(policy.asked == std::vector<MemberId>{{3}});  // named twice, it leaves once
    CHECK(set.failed({3}));
    policy.asked.clear();
    const MemberId first[] = {{1}, {3}};
    CHECK_FALSE(set.fail(first));  // three are needed
    CHECK(policy.asked == std::vector<MemberId>{{1}});  // for the reason alone
    CHECK(std::string(set.stop_reason()) == "too few members are left for safe writing");
    CHECK(set.stopped_it({1}));
    CHECK_FALSE(set.stopped_it({3}));
    CHECK(set.device({1}) != nullptr);
    CHECK_FALSE(set.failed({1}));
    CHECK(set.stopped());
    set.set_quorums({{set.ids(), 0}});
    CHECK_FALSE(set.fail(first));  // once stopped, for good
    CHECK_FALSE(set.fail({}));
    CHECK_FALSE(set.fail_if_spared(first));
    set.set_failure_policy(nullptr);
}

namespace {

class AsManyAs final : public FailurePolicy {
public:
    explicit AsManyAs(size_t count) : count_(count) { }
    bool can_do_without(std::span<const MemberId> leaving) const override { return leaving.size() <= count_; }
    bool whole() const override { return whole_; }
    void set_whole(bool whole) { whole_ = whole; }

private:
    size_t count_;
    bool whole_ = true;
};

}  // namespace

TEST_CASE("repairs that do not hold take a member out of service, mended blocks do not")
{
    MemberSet set;
    for (const uint32_t id : {1, 2, 3})
        set.add({id}, std::make_unique<SimDevice>("device", kMiB), {});
    const AsManyAs one(1);
    set.set_failure_policy(&one);
    const uint64_t begin = monotonic_ms();
    using Repair = MemberSet::Repair;
    for (uint64_t block = 0; block < 5000; ++block) {
        set.count({1}, MemberCounter::kCorruption);
        set.count({1}, MemberCounter::kReadErrors);
        set.note_repair({1}, {block * kBlockBytes}, Repair::kHolds);
    }
    // A burst is one error, or a few where the clock ticks, or as many as it has seconds.
    set.set_error_budget(static_cast<uint32_t>(4 + (monotonic_ms() - begin) / 1000));
    CHECK_FALSE(set.fail_over_budget());
    CHECK_FALSE(set.doubtful({1}));
    // Of errors in more seconds than the budget has, repaired for good, it is only told.
    set.set_error_budget(1);
    for (const uint64_t end = monotonic_ms() + 60'000; !set.doubtful({1}) && monotonic_ms() < end;
         usleep(20'000)) {
        set.count({1}, MemberCounter::kReadErrors);
        set.note_repair({1}, {monotonic_ms() * kBlockBytes}, Repair::kHolds);
    }
    CHECK(set.doubtful({1}));
    CHECK_FALSE(set.fail_over_budget());
    CHECK(set.device({1}) != nullptr);
    set.set_error_budget(4);
    // A block that goes bad again after it was repaired.
    set.note_repair({1}, {4999 * kBlockBytes}, Repair::kHolds);
    set.note_repair({1}, {4999 * kBlockBytes}, Repair::kHolds);
    CHECK(set.doubtful({1}));
    CHECK(set.fail_over_budget());
    CHECK(set.away_ms({1}) < 60'000);
    CHECK(set.device({1}) == nullptr);
    CHECK(set.failed({1}));
    CHECK(set.failure_reason({1}) == MemberSet::kRepairsDoNotHold);
    CHECK_FALSE(set.doubtful({1}));
    CHECK_FALSE(set.fail_over_budget());
    // Back in service it begins anew.
    set.put_in_service({1}, nullptr);
    CHECK(std::string(set.failure_reason({1})).empty());
    CHECK_FALSE(set.doubtful({1}));
    set.note_repair({2}, {0}, Repair::kDoesNotHold);
    CHECK(set.fail_over_budget());
    CHECK(set.device({2}) == nullptr);
}

TEST_CASE("a member with too many errors stays where the others cannot do without it, and with a budget of 0")
{
    MemberSet set;
    for (const uint32_t id : {1, 2})
        set.add({id}, std::make_unique<SimDevice>("device", kMiB), {});
    const AsManyAs none(0);
    set.set_failure_policy(&none);
    set.note_repair({1}, {0}, MemberSet::Repair::kDoesNotHold);
    CHECK_FALSE(set.fail_over_budget());
    CHECK_FALSE(set.doubtful({1}));
    set.set_error_budget(4);
    CHECK_FALSE(set.fail_over_budget());
    CHECK(set.device({1}) != nullptr);
    CHECK(set.doubtful({1}));
    CHECK_FALSE(set.stopped());
    // As soon as they can, and nothing is missing, it goes.
    AsManyAs one(1);
    one.set_whole(false);
    set.set_failure_policy(&one);
    CHECK_FALSE(set.fail_over_budget());
    one.set_whole(true);
    CHECK(set.fail_over_budget());
    CHECK(set.device({1}) == nullptr);
}

TEST_CASE("requests that take too long are counted, spend the error budget, and show while they wait")
{
    MemberSet set;
    auto made = std::make_unique<HoldingDevice>(std::make_unique<SimDevice>("device", kMiB));
    HoldingDevice& device = *made;
    set.add({1}, std::move(made), {});
    set.set_error_budget(4);
    set.set_read_deadline_ms(100);
    set.set_slow_io_ms(50);
    AlignedBuffer block(kBlockBytes);
    REQUIRE(read_device(device, {0}, block.span()).ok());
    CHECK(set.slow_ms({1}) == 0);
    const iovec vector{block.data(), block.size()};
    IoRequest requests[2];
    for (IoRequest& request : requests)
        request = {.device = &device, .vectors = {&vector, 1}};
    device.hold();
    std::thread reader([&] { run_io(requests); });
    usleep(400'000);
    CHECK(set.slow(device));
    CHECK(set.slow_ms({1}) >= 300);
    CHECK(set.slow_ios({1}) == 0);
    CHECK_FALSE(set.doubtful({1}));
    device.release(HoldingDevice::Release::kServe);
    reader.join();
    CHECK_FALSE(set.slow(device));
    CHECK(set.slow_ms({1}) == 0);
    CHECK(set.slow_ios({1}) == 2);
    // Eight times the limit is as bad as five errors, however many wait at a time.
    set.spend_slow_ios();
    CHECK(set.doubtful({1}));
    set.set_error_budget(5);
    CHECK_FALSE(set.doubtful({1}));
    CHECK(set.counters({1}) == MemberCounters{});
    set.reset_counters({1});
    CHECK(set.slow_ios({1}) == 0);
}

TEST_CASE("members that are late together are not charged, nor is one for what was before it came back")
{
    MemberSet set;
    std::vector<HoldingDevice*> devices;
    for (uint32_t id = 1; id <= 2; ++id) {
        auto made = std::make_unique<HoldingDevice>(std::make_unique<SimDevice>("device", kMiB));
        devices.push_back(made.get());
        set.add({id}, std::move(made), {});
    }
    set.set_error_budget(1);
    set.set_slow_io_ms(50);
    AlignedBuffer memory(kBlockBytes);
    const iovec vector{memory.data(), memory.size()};
    const auto wait_for = [&](std::span<HoldingDevice* const> late) {
        std::vector<IoRequest> requests;  // more than one, which would not be held
        for (HoldingDevice* const device : late) {
            device->hold();
            requests.insert(requests.end(), 2, {.device = device, .vectors = {&vector, 1}});
        }
        std::thread reader([&] { run_io(requests); });
        usleep(250'000);
        for (HoldingDevice* const device : late)
            device->release(HoldingDevice::Release::kServe);
        reader.join();
    };
    wait_for(devices);
    set.spend_slow_ios();
    CHECK_FALSE(set.doubtful({1}));
    CHECK_FALSE(set.doubtful({2}));
    wait_for({&devices[0], 1});
    REQUIRE(set.fail_if_spared(std::vector<MemberId>{{1}}));
    set.put_in_service({1}, nullptr);
    set.spend_slow_ios();
    CHECK_FALSE(set.doubtful({1}));
    wait_for({&devices[0], 1});
    set.spend_slow_ios();
    CHECK(set.doubtful({1}));
    CHECK_FALSE(set.doubtful({2}));
}

TEST_CASE("a successor that is out of service takes nobody's place")
{
    MemberSet set;
    for (const uint32_t id : {1, 2, 3})
        set.add({id}, std::make_unique<SimDevice>("device" + std::to_string(id), kMiB), {});
    const MemberId target{3};
    CHECK(set.fail({&target, 1}));
    CHECK_FALSE(set.take_over({1}, target));
    CHECK(set.path({1}) == "device1");
    CHECK(set.failed(target));
    set.put_in_service(target, nullptr);
    CHECK(set.take_over({1}, target));
    CHECK(set.path({1}) == "device3");
    CHECK(set.ids() == std::vector<MemberId>{{1}, {2}});
}

TEST_CASE("member set: a successor stands in for its member, and any two sets that may write share a device")
{
    uint32_t more = 0;
    for (uint32_t voters = 1; voters <= 7; ++voters) {
        MemberSet::Quorum quorum{{}, voters / 2 + 1};
        for (uint32_t id = 1; id <= voters; ++id)
            quorum.members.push_back({id});
        const auto stays_in = [](uint32_t set) {
            return [=](MemberId id) {
                return (set >> (id.value - 1) & 1) != 0;
            };
        };
        std::vector<uint32_t> writable;
        for (uint32_t set = 0; set < uint32_t{1} << (voters + 1); ++set) {
            const bool alone = quorum.holds(stays_in(set));
            MemberSet::Quorum with = quorum;
            with.replaced = {1};
            with.successor = {voters + 1};
            CHECK((with.holds(stays_in(set)) || !alone));
            if (!with.holds(stays_in(set)))
                continue;
            more += alone ? 0 : 1;
            writable.push_back(set);
        }
        for (const uint32_t one : writable)
            for (const uint32_t other : writable)
                CHECK((one & other) != 0);
    }
    CHECK(more == 1 + 3 + 10);  // of 2, 4 and 6 voters
}
