// SPDX-License-Identifier: MIT
#include "tools/cowraid/check_verdict.h"

#include <doctest/doctest.h>

namespace cowraid {

namespace {

std::string verdict(const std::vector<CheckFinding>& findings, bool mounted = false)
{
    CheckReport report;
    report.findings = findings;
    return check_verdict(report, {{1, "/dev/sda"}, {2, "/dev/sdb"}}, mounted);
}

}  // namespace

TEST_CASE("a check ends in a sentence")
{
    CHECK(verdict({}) == "clean");
    CHECK(verdict({{.kind = "checksum", .member = 2, .block_count = 50, .repairable = true},
                   {.kind = "pad", .member = 2, .block_count = 4, .repairable = true}}) ==
          "member 2 (/dev/sdb) is damaged in 54 blocks; nothing is lost; mount it and run cowraid scrub");
    CHECK(verdict({{.kind = "superblock", .member = 1, .repairable = true},
                   {.kind = "parity", .member = 2, .block_count = 1, .repairable = true}}) ==
          "member 1 (/dev/sda) has 1 bad copy of the superblock or map; member 2 (/dev/sdb) is damaged in 1 "
          "block; nothing is lost; mount it and run cowraid scrub");
    CHECK(verdict({{.kind = "member", .member = 3, .repairable = true}}) ==
          "member 3 is missing or behind; nothing is lost; mount it with -o degraded, or bring the member "
          "back");
    CHECK(verdict({{.kind = "checksum", .member = 1, .block_count = 2},
                   {.kind = "file", .text = "/a: lost"},
                   {.kind = "file", .text = "/b: lost"}}) ==
          "member 1 (/dev/sda) is damaged in 2 blocks; 2 files lost data and are named above; mount the "
          "volume, restore them from elsewhere, and run cowraid scrub");
    const CheckFinding third{.kind = "member", .member = 3, .repairable = true};
    CHECK(verdict({third, {.kind = "file", .text = "/a: lost"}}) ==
          "member 3 is missing or behind; 1 file lost data and is named above; bring the member back, mount "
          "the "
          "volume, run cowraid scrub, and check again: what is lost then is to be restored from elsewhere");
    CHECK(verdict({{.kind = "member", .member = 2, .repairable = true}, third, {.kind = "inode"}}, true) ==
          "member 2 (/dev/sdb) is missing or behind; member 3 is missing or behind; 1 finding cannot be "
          "repaired; bring the members back and check again; if that does not help, copy what is there");
    CHECK(verdict({{.kind = "mount"}, {.kind = "file", .text = "/a: lost"}}) ==
          "the volume cannot be mounted as it is; its finding above names what to do");
    CHECK(verdict({{.kind = "parity", .member = 2, .block_count = 1, .repairable = true}}, true) ==
          "member 2 (/dev/sdb) is damaged in 1 block; nothing is lost; run cowraid scrub");
    CHECK(verdict({{.kind = "inode"}, {.kind = "space"}}, true) ==
          "2 findings cannot be repaired; copy what is there");
}

}  // namespace cowraid
