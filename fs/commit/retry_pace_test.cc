// SPDX-License-Identifier: MIT
#include "fs/commit/retry_pace.h"

#include <doctest/doctest.h>

using namespace cowraid;

namespace {

constexpr uint64_t kFirstMs = 60'000;

struct Work {
    RetryPace pace{kFirstMs, 0};
    bool waits = true;
    Status result = Err::kOk;
    int tries = 0;

    void step(uint64_t now_ms)
    {
        pace.step(
            now_ms, [&] { return waits; },
            [&] {
                ++tries;
                return waits ? result : Status(Err::kNotFound);
            });
    }
    // When it is tried next, by looks every second.
    uint64_t next(uint64_t now_ms)
    {
        for (const int before = tries; tries == before; now_ms += 1000)
            step(now_ms + 1000);
        return now_ms;
    }
};

}  // namespace

TEST_CASE("retry pace: pauses grow up to a day while it fails")
{
    Work work;
    uint64_t now = 0;
    for (const uint64_t minutes : {1, 4, 16, 64, 256, 1024, 1440, 1440}) {
        const uint64_t next = work.next(now);
        CHECK(next - now == minutes * 60'000);
        now = next;
    }
}

TEST_CASE("retry pace: what cannot begin waits no longer for it")
{
    Work work;
    uint64_t now = work.next(0);
    work.result = Err::kBusy;
    for (int tries = 0; tries < 3; ++tries) {
        const uint64_t next = work.next(now);
        CHECK(next - now == 4 * kFirstMs);
        now = next;
    }
}

TEST_CASE("retry pace: it begins with the first pause once all was done, whoever did it")
{
    Work work;
    uint64_t now = 0;
    for (int tries = 0; tries < 6; ++tries)
        now = work.next(now);
    work.waits = false;
    now += 1000;
    work.step(now);
    work.waits = true;
    const uint64_t next = work.next(now);
    CHECK(next - now <= kFirstMs);
}
