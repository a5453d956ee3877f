// SPDX-License-Identifier: MIT
#include "tests/crash/subsets.h"

#include <algorithm>

namespace cowraid::test {

namespace {

struct Optional {
    uint32_t device;
    uint32_t write;
};

class Planner {
public:
    Planner(const ReplayCursor& cursor, size_t device_count, Prng& prng)
        : device_count_(device_count), prng_(prng)
    {
        for (uint32_t device = 0; device < device_count; ++device)
            for (const uint32_t write : cursor.optional_writes(device))
                all_.push_back({device, write});
    }

    [[nodiscard]] size_t size() const { return all_.size(); }

    // Adds the choice of the writes for which `kept(index)` holds.
    template <typename Kept> void add(Kept kept, uint32_t torn_percent = 0)
    {
        CrashChoice choice(device_count_);
        for (size_t i = 0; i < all_.size(); ++i) {
            if (!kept(i))
                continue;
            ChosenWrite chosen{all_[i].write, 0, 0};
            if (prng_.below(100) < torn_percent) {
                chosen.unit_bytes = prng_.chance(1, 2) ? 512 : 4096;
                chosen.seed = prng_.next();
            }
            choice[all_[i].device].push_back(chosen);
        }
        choices_.push_back(std::move(choice));
    }

    void add_all_subsets()
    {
        for (uint64_t mask = 0; mask < uint64_t{1} << all_.size(); ++mask)
            add([&](size_t i) { return (mask >> i & 1) != 0; });
    }

    void add_bounded(uint32_t random_count)
    {
        constexpr size_t kSinglesMax = 64;
        constexpr size_t kPairsOf = 10;
        add([](size_t) { return false; });
        add([](size_t) { return true; });
        const size_t step = std::max<size_t>(1, all_.size() / kSinglesMax);
        for (size_t one = 0; one < all_.size(); one += step) {
            add([&](size_t i) { return i != one; });
            add([&](size_t i) { return i == one; });
        }
        for (size_t a = 0; a < std::min(kPairsOf, all_.size()); ++a)
            for (size_t b = a + 1; b < std::min(kPairsOf, all_.size()); ++b)
                add([&](size_t i) { return i != a && i != b; });
        const size_t devices = std::min<size_t>(device_count_, 8);
        for (uint64_t mask = 1; mask + 1 < uint64_t{1} << devices; ++mask)
            add([&](size_t i) { return (mask >> (all_[i].device % devices) & 1) != 0; });
        add([](size_t) { return true; }, 100);
        for (uint32_t n = 0; n < random_count; ++n) {
            const uint64_t percent = 5 + prng_.below(91);
            add([&](size_t) { return prng_.below(100) < percent; }, n % 2 == 0 ? 0 : 30);
        }
    }

    std::vector<CrashChoice> take() { return std::move(choices_); }

private:
    size_t device_count_;
    Prng& prng_;
    std::vector<Optional> all_;
    std::vector<CrashChoice> choices_;
};

}  // namespace

SubsetPlan plan_subsets(const ReplayCursor& cursor, size_t device_count, uint32_t exhaustive_max,
                        uint32_t random_count, Prng& prng)
{
    Planner planner(cursor, device_count, prng);
    SubsetPlan plan;
    plan.exhaustive = planner.size() <= exhaustive_max;
    if (plan.exhaustive)
        planner.add_all_subsets();
    else
        planner.add_bounded(random_count);
    plan.choices = planner.take();
    return plan;
}

}  // namespace cowraid::test
