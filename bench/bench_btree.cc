// SPDX-License-Identifier: MIT
// Throughput of batches, lookups and scans against nodes in memory, in processor time of its one thread.
// Not installed. The updates repeat: the first round also pays for memory the process never touched before.
#include <algorithm>
#include <cstdio>
#include <ctime>

#include "tests/support/node_memory.h"

using namespace cowraid;

namespace {

double cpu_seconds()
{
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void report(const char* what, uint64_t count, double seconds)
{
    std::fprintf(stderr, "%-44s %9.0f k/s  %8.3f s\n", what, static_cast<double>(count) / seconds / 1000,
                 seconds);
}

struct Bench {
    // One batch of sorted random keys; returns the seconds of apply() alone.
    double update(std::vector<uint64_t> numbers, const char* what)
    {
        std::ranges::sort(numbers);
        numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
        std::vector<TreeUpdate> updates;
        updates.reserve(numbers.size());
        random.fill(value.data(), value.size());
        for (const uint64_t number : numbers)
            updates.push_back({{number, 1, 0}, TreeUpdate::Kind::kPut, value});
        CowTree tree(cache, root);
        const double start = cpu_seconds();
        CW_ASSERT(tree.apply(updates, nullptr).ok());
        const double applied = cpu_seconds();
        const size_t nodes = tree.unassigned_count();
        generation = generation.next();
        root = commit(tree, cache, store, random, generation);
        const double committed = cpu_seconds();
        if (what != nullptr) {
            report(what, updates.size(), applied - start);
            std::fprintf(stderr, "    %zu new nodes, assigned, sealed, stored: %.3f s\n", nodes,
                         committed - applied);
        }
        return applied - start;
    }

    Prng random{1};
    TestStore store;
    NodeCache cache{store, test_uuid(), 4 * kGiB};
    TreeRoot root{kFirstFileTree, {}};
    Generation generation{0};
    std::vector<std::byte> value = std::vector<std::byte>(100);
};

constexpr uint64_t kItems = 1000000;
constexpr uint64_t kBatch = 100000;

void run_random_updates(Bench& bench)
{
    std::vector<uint64_t> numbers(kBatch);
    for (uint64_t& number : numbers)
        number = bench.random.below(kItems) * 4;
    bench.update(numbers, "apply, replace 100k of 1M at random");
    for (uint64_t& number : numbers)
        number = bench.random.below(kItems * 4);
    bench.update(numbers, "apply, insert 100k into 1M at random");
    const uint64_t first = bench.random.below(kItems * 3);
    for (uint64_t i = 0; i < kBatch; ++i)
        numbers[i] = first + i;
    bench.update(numbers, "apply, 100k neighbouring keys");
    numbers.resize(1000);
    for (uint64_t& number : numbers)
        number = bench.random.below(kItems * 4);
    bench.update(numbers, "apply, 1k at random");
}

void run_updates(Bench& bench)
{
    double load = 0;
    for (uint64_t done = 0; done < kItems; done += kBatch) {
        std::vector<uint64_t> numbers;
        for (uint64_t i = 0; i < kBatch; ++i)
            numbers.push_back((done + i) * 4);
        load += bench.update(numbers, nullptr);
    }
    report("apply, append, batches of 100k", kItems, load);
    for (int round = 1; round <= 4; ++round) {
        std::fprintf(stderr, "round %d\n", round);
        run_random_updates(bench);
    }
}

void run_reads(Bench& bench)
{
    std::vector<std::byte> out;
    uint64_t found = 0;
    double start = cpu_seconds();
    for (uint64_t i = 0; i < kItems; ++i) {
        const Key key{bench.random.below(kItems) * 4, 1, 0};
        found += tree_lookup(bench.cache, bench.root, key, out).ok() ? 1 : 0;
    }
    report("lookup at random", kItems, cpu_seconds() - start);
    CW_ASSERT(found == kItems);
    start = cpu_seconds();
    TreeCursor cursor(bench.cache, bench.root);
    uint64_t items = 0;
    CW_ASSERT(cursor.seek(kMinKey).ok());
    while (cursor.valid()) {
        items += cursor.payload().size() == 100 ? 1 : 0;
        CW_ASSERT(cursor.next().ok());
    }
    report("scan", items, cpu_seconds() - start);
}

}  // namespace

int main()
{
    Bench bench;
    run_updates(bench);
    run_reads(bench);
    return 0;
}
