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
            .groups_total = 8,
            .moved_bytes = 50 * kMiB,
            .run_ms = 5000};
}

constexpr Uuid kTextVolume = {
    {0x76, 0xfa, 0xc7, 0x21, 0x22, 0x94, 0x4f, 0x89, 0xa1, 0xaf, 0x62, 0x0c, 0xde, 0x7a, 0x19, 0x80}};

ScrubStatus half_scrubbed()
{
    ScrubStatus status{.state = ScrubState::kRunning,
                       .started = kTextStarted,
                       .run_ms = 5000,
                       .bytes_done = 500 * kMiB,
                       .bytes_total = 1000 * kMiB,
                       .data_blocks = 60000,
                       .parity_blocks = 30000,
                       .nodes = 40,
                       .heads = 6};
    status.options.limit = 100 * kMiB;
    return status;
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

TEST_CASE("of a balance that waits for room nobody knows when it ends")
{
    use_utc();
    BalanceStatus status = remounted_balance();
    status.waits_for_room = true;
    CHECK(balance_summary(status) ==
          "running, converts data to raid6 and metadata to raid1c3, 75% done, time "
          "left not known; waits for room: remove files, or add devices");
    const std::string text = balance_text(status, SizeStyle::kIec);
    CHECK(text.find("Rate:              not known\n") != std::string::npos);
    CHECK(text.find("Time left:         not known\n") != std::string::npos);
    CHECK(text.find("Result:            waits for room: remove files, or add devices\n") !=
          std::string::npos);
    CHECK(balance_progress(status).awaits == "waits for room: remove files, or add devices");
    status.degraded = true;
    constexpr const char* kAway = "waits: a member is out of service; it goes on when that is back";
    CHECK(balance_progress(status).awaits == kAway);
    CHECK(balance_text(status, SizeStyle::kIec).find(kAway) != std::string::npos);
    status.state = BalanceStatus::State::kPaused;
    CHECK(balance_progress(status).awaits.empty());
    constexpr const char* kPaused = "cowraid balance resume lets it go on";
    CHECK(balance_summary(status).find(kPaused) != std::string::npos);
    CHECK(balance_text(status, SizeStyle::kIec).find(kPaused) != std::string::npos);
    // One that rests because others are out of service.
    status.member = {2};
    status.has_device = true;
    constexpr const char* kRests = "bring back or replace what is out of service, or add a device, then "
                                   "cowraid balance resume lets it go "
                                   "on; cowraid balance cancel ends it";
    CHECK(balance_summary(status).find(kRests) != std::string::npos);
    status.has_device = false;
    CHECK(balance_summary(status).find(kRests) == std::string::npos);
    status.read_only = true;
    CHECK(balance_summary(status).find("it goes on when the volume is mounted for writing") !=
          std::string::npos);
}

TEST_CASE("what is said of a scrub begins as btrfs scrub status")
{
    use_utc();
    ScrubStatus status = half_scrubbed();
    CHECK(scrub_text(status, kTextVolume, kTextStarted + 5, SizeStyle::kIec) ==
          "UUID:             76fac721-2294-4f89-a1af-620cde7a1980\n"
          "Scrub started:    Mon Apr 10 12:34:56 2023\n"
          "Status:           running\n"
          "Duration:         0:00:05\n"
          "Time left:        0:00:05\n"
          "ETA:              Mon Apr 10 12:35:06 2023\n"
          "Total to scrub:   1000.00MiB\n"
          "Bytes scrubbed:   500.00MiB  (50.00%)\n"
          "Rate:             100.00MiB/s (limit 100.00MiB/s)\n"
          "Error summary:    no errors found\n"
          "Data verified:    234.38MiB\n"
          "Parity verified:  117.19MiB\n"
          "Tree nodes:       40\n"
          "Superblocks:      6, with block-group maps\n"
          "Result:           no errors found so far\n");
    status.state = ScrubState::kCancelled;
    status.options = {.mode = ScrubMode::kLook, .plan = ScrubOptions::Plan::kNew};
    status.repaired = 2;
    status.lost = 71;
    status.unreadable_nodes = 1;
    status.unrepaired = 3;
    CHECK(scrub_text(status, kTextVolume, kTextStarted + 5, SizeStyle::kIec) ==
          "UUID:             76fac721-2294-4f89-a1af-620cde7a1980\n"
          "Scrub started:    Mon Apr 10 12:34:56 2023\n"
          "Status:           aborted\n"
          "Mode:             looks only, plan new\n"
          "Duration:         0:00:05\n"
          "Total to scrub:   1000.00MiB\n"
          "Bytes scrubbed:   500.00MiB  (50.00%)\n"
          "Rate:             100.00MiB/s\n"
          "Error summary:    blocks=76 nodes=1\n"
          "  Corrected:      2\n"
          "  Uncorrectable:  72\n"
          "  Unverified:     0\n"
          "  Not corrected:  3\n"
          "Data verified:    234.38MiB\n"
          "Parity verified:  117.19MiB\n"
          "Tree nodes:       40\n"
          "Superblocks:      6, with block-group maps\n"
          "Result:           71 blocks of data and 1 tree node are lost, 3 blocks can be repaired, 2 blocks "
          "repaired so far; cowraid status -v names the files\n");
    CHECK(scrub_text({}, kTextVolume, 0, SizeStyle::kIec) ==
          "UUID:             76fac721-2294-4f89-a1af-620cde7a1980\n"
          "no scrub was made of this volume\n");
}

TEST_CASE("what is said of a replacement begins as btrfs replace status")
{
    use_utc();
    CHECK(replace_text({}) == "Never started\nno member was replaced since the volume was mounted\n");
    ReplaceStatus status{.state = ReplaceStatus::State::kRunning,
                         .source = {2},
                         .started = kTextStarted,
                         .groups_copied = 1,
                         .groups_total = 2,
                         .copy = half_scrubbed()};
    status.copy.repaired = 4;
    CHECK(
        replace_text(status) ==
        "50.0% done, 0 write errs, 0 uncorr. read errs\n"
        "replacing member 2: running, 50% done, 100.00MiB/s (limit 100.00MiB/s), 0:00:05 left, 1 of 2 block "
        "groups; 500.00MiB copied, 4 blocks had from other members, 0 of its blocks lost\n");
    // Mounts before had copied six of eight.
    ReplaceStatus remounted = status;
    remounted.groups_copied = 6;
    remounted.groups_total = 8;
    CHECK(replace_progress(remounted).percent == 75);
    CHECK(replace_text(remounted).starts_with("75.0% done, 0 write errs, 0 uncorr. read errs\n"
                                              "replacing member 2: running, 75% done, "));
    status.state = ReplaceStatus::State::kCancelled;
    status.ended = kTextStarted + 60;
    status.copy.lost = 3;
    status.source_lost = 2;
    CHECK(replace_text(status) ==
          "Started on 10.Apr 12:34:56, canceled on 10.Apr 12:35:56 at 50.0%, 0 write errs, 2 uncorr. read "
          "errs\n"
          "replacing member 2: cancelled; 500.00MiB copied, 4 blocks had from other members, 2 of its blocks "
          "lost, 3 of data in its rows; cowraid status -v names the files\n");
    status.copy.listed_now = 0;
    CHECK_FALSE(status.still_lossy());
    CHECK(replace_text(status).ends_with(
        "2 of its blocks lost, 3 of data in its rows; what was lost is deleted, "
        "written anew or good again since\n"));
    status.copy.listed_now = 7;
    CHECK(status.still_lossy());
    status.state = ReplaceStatus::State::kFinished;
    CHECK(replace_text(status).starts_with("Started on 10.Apr 12:34:56, finished on 10.Apr 12:35:56, 0 write "
                                           "errs, 2 uncorr. read errs\n"));
    status.copy.lost = status.source_lost = 0;
    status.copy.unreadable_nodes = 1;
    CHECK(replace_text(status).ends_with(
        " 0 of its blocks lost; 1 tree node cannot be read: what is below is copied "
        "unverified; cowraid status -v names the files\n"));
    CHECK(filling_text({}) == "Never started\nno member was filled since the volume was mounted\n");
    ScrubStatus filling = half_scrubbed();
    CHECK(filling_text(filling) == "50.0% done, 0 write errs, 0 uncorr. read errs\n"
                                   "filling members: running, 50% done, 100.00MiB/s (limit 100.00MiB/s), "
                                   "0:00:05 left, no errors found so far\n");
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
    CHECK(balance_text({}, SizeStyle::kIec).empty());
    CHECK(balance_head(status, "/mnt") == "Balance on '/mnt' is running\n"
                                          "3 out of about 8 chunks balanced (8 considered),  62% left\n");
    // Of chunks as the figures beside it.
    BalanceStatus few = status;
    few.groups_left = 11;
    few.groups_total = 15;
    few.bytes_left = few.bytes_total;
    CHECK(balance_head(few, "/mnt")
              .ends_with("4 out of about 15 chunks balanced (15 considered),  73% left\n"));
    CHECK(balance_end(status).empty());
    status.state = BalanceStatus::State::kFinished;
    status.groups_left = 0;
    CHECK(balance_head(status, "/mnt") == "No balance found on '/mnt'\n");
    CHECK(balance_cancelled(status) ==
          "balance cancelled: what was moved stays where it is, the rest keeps its profile, new block groups "
          "are made as the balance said\n");
    CHECK(balance_cancelled({}) == "balance cancelled: what was moved stays where it is\n");
    CHECK(balance_cancelled({.member = {2}, .shrink_bytes = kMiB}) ==
          "making it smaller is cancelled: what was moved stays where it is, and member 2 keeps its size\n");
    CHECK(balance_end(status) == "Done, had to relocate 8 out of 8 chunks\n");
    status.started = 0;
    CHECK(balance_end(status).empty());
}

TEST_CASE("a balance that ended before it had emptied all says what is left, and why")
{
    BalanceStatus status = remounted_balance();
    status.state = BalanceStatus::State::kFinished;
    status.groups_left = status.groups_stuck = 1;
    CHECK(balance_summary(status) ==
          "finished, converts data to raid6 and metadata to raid1c3, 75% done; 1 block group cannot be "
          "emptied: something in them cannot be read; run cowraid scrub, then cowraid status -v names the "
          "files: restore or delete them, then repeat it");
    status.degraded = true;
    CHECK(balance_summary(status).find(
              "something in them cannot be read; bring back what is out of service, run "
              "cowraid scrub, then cowraid status -v names the files: restore") != std::string::npos);
    status.damaged_blocks = 48;
    CHECK(balance_summary(status).find("bring back what is out of service, run cowraid scrub") !=
          std::string::npos);
    status.degraded = false;
    CHECK(balance_text(status, SizeStyle::kIec) ==
          "Status:            finished\n"
          "What:              converts data to raid6 and metadata to raid1c3\n"
          "Since:             before the volume was mounted\n"
          "Done:              75%, 750.00MiB of 1000.00MiB\n"
          "Block groups left: 1\n"
          "Result:            1 block group cannot be emptied: something in them cannot be read; cowraid "
          "status -v names the files: restore or delete them, then repeat it\n");
    status.bytes_left = 4096;
    CHECK(balance_text(status, SizeStyle::kIec)
              .find("Done:              99%, all but 4.00KiB of 1000.00MiB\n") != std::string::npos);
    status.bytes_left = 0;
    CHECK(balance_progress(status).percent == 99);
    status.groups_left = status.groups_stuck = 0;
    CHECK(balance_progress(status).percent == 100);
}

TEST_CASE("what a scrub found on one member is said as btrfs scrub status -d does")
{
    ScrubStatus status = half_scrubbed();
    MemberInfo member{.id = {2}};
    member.path = "/dev/sdb";
    CHECK(scrub_member_text(status, member, "online", SizeStyle::kIec) ==
          "\nScrub device /dev/sdb (id 2), online\n"
          "Bytes scrubbed:   0.00B\n"
          "Error summary:    no errors found\n");
    status.members[{2}].numbers = {25600, 0, 3, 5, 1, 9, 0};
    CHECK(scrub_member_text(status, member, "online", SizeStyle::kIec) ==
          "\nScrub device /dev/sdb (id 2), online\n"
          "Bytes scrubbed:   100.00MiB\n"
          "Error summary:    read=3 csum=5 super=1\n"
          "  Corrected:      9\n"
          "  Uncorrectable:  0\n"
          "  Unverified:     0\n");
    status.members[{2}].numbers = {25600, 7, 3, 5, 1, 4, 3};
    member.path.clear();
    CHECK(scrub_member_text(status, member, "missing", SizeStyle::kIec) ==
          "\nScrub device - (id 2), missing\n"
          "Bytes scrubbed:   100.00MiB\n"
          "Error summary:    read=3 csum=5 super=1\n"
          "  Corrected:      4\n"
          "  Uncorrectable:  3\n"
          "  Unverified:     7\n"
          "  Not corrected:  2\n");
}

}  // namespace cowraid
