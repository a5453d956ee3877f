// SPDX-License-Identifier: MIT
// The bit structures against plain arrays.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <set>

#include "alloc/bitmap.h"
#include "alloc/run_tree.h"
#include "alloc/summary_bitmap.h"
#include "base/sanitizer.h"
#include "tests/support/space_model.h"
#include "tests/support/test_seed.h"

using namespace cowraid;

TEST_CASE("bitmap agrees with an array of bools")
{
    Prng random(test_seed());
    for (const uint64_t size : {1u, 63u, 64u, 65u, 1000u}) {
        CAPTURE(size);
        Bitmap bitmap(size);
        std::vector<bool> plain(size);
        for (int step = 0; step < 400; ++step) {
            const uint64_t first = random.below(size);
            const uint64_t count = random.between(1, size - first);
            const auto begin = plain.begin() + static_cast<ptrdiff_t>(first);
            const auto ones =
                static_cast<uint64_t>(std::count(begin, begin + static_cast<ptrdiff_t>(count), true));
            CHECK(bitmap.count(first, count) == ones);
            CHECK(bitmap.all(first, count) == (ones == count));
            CHECK(bitmap.none(first, count) == (ones == 0));
            const auto next = std::find(begin, begin + static_cast<ptrdiff_t>(count), true);
            CHECK(bitmap.next_set(first, first + count) == static_cast<uint64_t>(next - plain.begin()));
            CHECK(bitmap.next_set(first + count, first) == first);
            std::vector<uint8_t> bytes((count + 7) / 8, 0xff);
            bitmap.store(first, count, bytes);
            for (uint64_t bit = 0; bit < bytes.size() * 8; ++bit) {
                const bool expected = bit < count && plain[first + bit];
                if (((bytes[bit / 8] >> (bit % 8) & 1) != 0) != expected)
                    FAIL_CHECK("stored bit ", bit);
            }
            if (random.chance(1, 4)) {
                random.fill(bytes.data(), bytes.size());
                bitmap.load(first, count, bytes);
                for (uint64_t bit = 0; bit < count; ++bit)
                    plain[first + bit] = (bytes[bit / 8] >> (bit % 8) & 1) != 0;
                continue;
            }
            const bool value = random.chance(1, 2);
            if (value)
                bitmap.set(first, count);
            else
                bitmap.clear(first, count);
            std::fill(begin, begin + static_cast<ptrdiff_t>(count), value);
        }
    }
}

// Sanitizers keep memory of their own for what is read.
TEST_CASE("a large bitmap takes memory only where it was written" * doctest::skip(kSanitized))
{
    rusage before{};
    REQUIRE(getrusage(RUSAGE_SELF, &before) == 0);
    const uint64_t size = uint64_t{1} << 33;  // 1 GiB of bits
    Bitmap bitmap(size);
    bitmap.set(size - 1, 1);
    CHECK(bitmap.none(size / 2, size / 4));
    CHECK(bitmap.count(size / 4 * 3, size / 4) == 1);
    const Bitmap moved = std::move(bitmap);
    CHECK(moved.test(size - 1));
    rusage after{};
    REQUIRE(getrusage(RUSAGE_SELF, &after) == 0);
    CHECK(after.ru_maxrss - before.ru_maxrss < 64 * 1024);  // KiB
}

TEST_CASE("summary bitmap finds the next member")
{
    Prng random(test_seed());
    for (const uint64_t size : {1u, 64u, 65u, 5000u, 300000u}) {
        CAPTURE(size);
        SummaryBitmap bitmap(size);
        std::set<uint64_t> plain;
        for (int step = 0; step < 3000; ++step) {
            const uint64_t number = random.below(size);
            if (random.chance(step < 1500 ? 2 : 1, 3)) {
                bitmap.insert(number);
                plain.insert(number);
            } else {
                const auto victim = plain.lower_bound(number);
                if (victim != plain.end()) {
                    bitmap.erase(*victim);
                    plain.erase(victim);
                }
            }
            const uint64_t from = random.below(size);
            const auto expected = plain.lower_bound(from);
            CHECK(bitmap.find(from) == (expected == plain.end() ? SummaryBitmap::kNone : *expected));
        }
    }
}

TEST_CASE("run tree finds the lowest run that is long enough")
{
    Prng random(test_seed());
    for (const uint64_t size : {1u, 7u, 256u, 257u, 4000u}) {
        CAPTURE(size);
        RunTree tree(size);
        std::vector<bool> plain(size, true);
        for (int step = 0; step < 600; ++step) {
            const uint64_t first = random.below(size);
            const uint64_t most = std::min<uint64_t>(size - first, random.chance(1, 8) ? size : 40);
            uint64_t count = 1;
            while (count < most && plain[first + count] == plain[first])
                ++count;
            if (plain[first])
                tree.set_used(first, count);
            else
                tree.set_free(first, count);
            for (uint64_t at = first; at < first + count; ++at)
                plain[at] = !plain[at];

            const uint64_t wanted = random.between(1, 20);
            uint64_t longest = 0;
            uint64_t lowest = size;
            for (uint64_t at = 0, run = 0; at < size; ++at) {
                run = plain[at] ? run + 1 : 0;
                longest = std::max(longest, run);
                if (run == wanted && lowest == size)
                    lowest = at + 1 - wanted;
            }
            CHECK(tree.longest() == longest);
            CHECK(tree.free_count() == static_cast<uint64_t>(std::count(plain.begin(), plain.end(), true)));
            if (wanted <= longest)
                CHECK(tree.find(wanted) == lowest);
            uint64_t run = 0;
            while (run < 300 && first + run < size && plain[first + run])
                ++run;
            CHECK(tree.run_at(first, 300) == run);
        }
    }
}
