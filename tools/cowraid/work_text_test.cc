// SPDX-License-Identifier: MIT
#include "tools/cowraid/work_text.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>

namespace cowraid {

namespace {

constexpr uint64_t kTextStarted = 1681130096;  // 2023-04-10 12:34:56 UTC

// Texts have local times.
void use_utc()
{
    REQUIRE(setenv("TZ", "UTC", 1) == 0);
    tzset();
}

// 750 of 1000 MiB are done; 50 MiB of that by this mount, in five seconds.
BalanceStatus remounted_balance()
{
    return {.state = BalanceStatus::State::kRunning,
            .profiles = {ProfileId::kRaid6, ProfileId::kRaid1c3},
            .content = kAllContent,
            .convert = true,
            .bytes_total = 1000 * kMiB,
            .bytes_left = 250 * kMiB,
            .groups_left = 5,
            .moved_bytes = 50 * kMiB,
            .run_ms = 5000};
}

}  // namespace

TEST_CASE("the pace of a balance is what this mount moved while it ran")
{
    BalanceStatus status = remounted_balance();
    const WorkProgress progress = balance_progress(status);
    CHECK(progress.percent == 75);
    CHECK(progress.rate == 10 * kMiB);
    CHECK(progress.left_ms == 25000);
    CHECK(balance_summary(status) ==
          "running, converts data to raid6 and metadata to raid1c3, 75% done, 10.00MiB/s, 0:00:25 left");
    status.moved_bytes = 0;
    CHECK(balance_summary(status) ==
          "running, converts data to raid6 and metadata to raid1c3, 75% done, 0.00B/s, time left not known");
}

TEST_CASE("what is said of a balance")
{
    use_utc();
    BalanceStatus status = remounted_balance();
    CHECK(balance_text(status, SizeStyle::kIec) ==
          "Status:            running\n"
          "What:              converts data to raid6 and metadata to raid1c3\n"
          "Since:             before the volume was mounted\n"
          "Done:              75%, 750.00MiB of 1000.00MiB\n"
          "Rate:              10.00MiB/s\n"
          "Time left:         0:00:25\n"
          "Block groups left: 5\n");
    status.started = kTextStarted;
    CHECK(balance_text(status, SizeStyle::kIec).find("Since:             2023-04-10 12:34:56\n") !=
          std::string::npos);
    CHECK(balance_text({}, SizeStyle::kIec) == "no balance is under way\n");
}

}  // namespace cowraid
