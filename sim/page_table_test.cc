// SPDX-License-Identifier: MIT
#include "sim/page_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.h"

using namespace cowraid;

TEST_CASE("page table: agrees with a map, null pages and copies too")
{
    Prng prng(23);
    PageTable table;
    std::map<uint64_t, SimPageRef> expected;
    uint64_t found = 0, copies = 0;
    for (int step = 0; step < 20000; ++step) {
        const uint64_t number = prng.chance(1, 2) ? prng.below(40) : prng.below(4) << 40 | prng.below(40);
        const SimPageRef page = prng.chance(1, 4) ? SimPageRef() : make_ref<SimPage>();
        switch (prng.below(5)) {
        case 0:
            table.add(number, page);
            expected.try_emplace(number, page);
            break;
        case 1:
            table.slot(number) = page;
            expected[number] = page;
            break;
        case 2:
            table.erase(number);
            expected.erase(number);
            break;
        case 3: {
            const auto at = expected.find(number);
            const SimPageRef* const seen = table.find(number);
            REQUIRE((seen != nullptr) == (at != expected.end()));
            REQUIRE(table.contains(number) == (at != expected.end()));
            if (seen == nullptr)
                break;
            REQUIRE(*seen == at->second);
            ++found;
            break;
        }
        case 4:
            if (prng.chance(1, 100)) {
                table.clear();
                expected.clear();
            } else if (prng.chance(1, 20)) {
                const PageTable copy = table;
                table = copy;
                ++copies;
            }
            break;
        }
        REQUIRE(table.size() == expected.size());
    }
    CHECK(found > 500);
    CHECK(copies > 20);
    std::map<uint64_t, SimPageRef> all;
    table.for_each([&](uint64_t number, const SimPageRef& page) { CHECK(all.emplace(number, page).second); });
    CHECK(all == expected);
}

TEST_CASE("simulated pages: zeros when asked for, and never given twice")
{
    std::vector<SimPageRef> pages;
    for (int index = 0; index < 1000; ++index) {
        pages.push_back(make_ref<SimPage>());
        CHECK(reinterpret_cast<uintptr_t>(pages.back()->bytes) % 64 == 0);
        for (const std::byte byte : pages.back()->bytes)
            REQUIRE(byte == std::byte{0});
        std::fill_n(pages.back()->bytes, SimPage::kBytes, static_cast<std::byte>(index));
        if (index % 3 == 0)
            pages.erase(pages.begin() + index / 2 % static_cast<int>(pages.size()));
    }
    const auto intact = [](const SimPageRef& page) {
        return std::all_of(page->bytes, page->bytes + SimPage::kBytes,
                           [&](std::byte byte) { return byte == page->bytes[0]; });
    };
    CHECK(pages.size() > 600);
    CHECK(std::all_of(pages.begin(), pages.end(), intact));
}
