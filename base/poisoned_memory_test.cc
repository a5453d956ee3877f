// SPDX-License-Identifier: MIT
#include "base/poisoned_memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "base/buffer.h"
#include "base/sanitizer.h"
#include "base/units.h"

using namespace cowraid;

TEST_CASE("poisoned memory: what was freed is not given again before much else was freed")
{
    for (const size_t bytes : {kPoisonedBytesMin, 256 * kKiB, 700 * kKiB, kPoisonedBytesMax}) {
        CAPTURE(bytes);
        std::vector<std::byte*> order;
        std::set<std::byte*> known;
        size_t fresh = 0;
        while (order.size() < 300 && fresh == order.size()) {
            std::byte* const memory = poisoned_allocate(bytes);
            CHECK(reinterpret_cast<uintptr_t>(memory) % kBlockBytes == 0);
            std::memset(memory, 1, bytes);
            fresh += known.insert(memory).second ? 1 : 0;
            order.push_back(memory);
            poisoned_free(memory, bytes);
        }
        // The first one comes first.
        CHECK(order.back() == order.front());
        CHECK(fresh * bytes >= kPoisonedKeptBytes / 2);
        CHECK((fresh - 1) * bytes <= kPoisonedKeptBytes);
    }
}

#if CW_ADDRESS_SANITIZER
extern "C" int __asan_address_is_poisoned(const volatile void* address);

TEST_CASE("poisoned memory: buffers have poison around them, and are poison once they are freed")
{
    for (const size_t bytes : {kPoisonedBytesMin, 200 * kKiB + 5, kPoisonedBytesMax}) {
        CAPTURE(bytes);
        for (int round = 0; round < 100; ++round) {
            AlignedBuffer buffer(bytes);
            const std::byte* const memory = buffer.data();
            CHECK(__asan_address_is_poisoned(memory - 1));
            CHECK(!__asan_address_is_poisoned(memory));
            CHECK(!__asan_address_is_poisoned(memory + bytes - 1));
            CHECK(__asan_address_is_poisoned(memory + bytes));
        }
        const std::byte* freed;
        {
            const AlignedBuffer buffer(bytes);
            freed = buffer.data();
        }
        CHECK(__asan_address_is_poisoned(freed));
        CHECK(__asan_address_is_poisoned(freed + bytes - 1));
    }
}
#endif
