// SPDX-License-Identifier: MIT
#include "tools/cowraid/status_text.h"

#include <doctest/doctest.h>

namespace cowraid {

namespace {

VolumeStatus shown_volume()
{
    VolumeStatus status;
    VolumeInfo& info = status.report.info;
    status.report.mount_point = "/mnt";
    status.report.mount_options = "rw,relatime";
    info.label = "tank";
    info.data_profile = ProfileId::kRaid5;
    info.metadata_profile = ProfileId::kRaid1;
    info.may_fail = info.may_fail_writing = 1;
    info.members = {{.id = {1}, .path = "/dev/a"}, {.id = {2}, .path = "/dev/b"}};
    return status;
}

std::string last_lines(const VolumeStatus& status)
{
    const std::string text = status_text(status, SizeStyle::kIec);
    return text.substr(std::min(text.find("errors:"), text.size()));
}

}  // namespace

TEST_CASE("what is said of a volume that is well")
{
    CHECK(status_text(shown_volume(), SizeStyle::kIec) ==
          "Volume:            'tank'  00000000-0000-0000-0000-000000000000\n"
          "Mounted:           /mnt\n"
          "Options:           rw,relatime\n"
          "State:             ONLINE\n"
          "Profiles:          raid5 for data, raid1 for metadata\n"
          "May still fail:    any 1 member\n"
          "Scrub:             none yet\n"
          "\n"
          "    ID  DEVICE  STATE        READ  WRITE  CKSUM\n"
          "     1  /dev/a  online          0      0      0\n"
          "     2  /dev/b  online          0      0      0\n"
          "\n"
          "errors: No known data errors\n"
          "\n");
}

TEST_CASE("of profiles that a balance is to give it is said how much lies in others still")
{
    VolumeStatus status = shown_volume();
    status.report.info.data_profile = ProfileId::kRaid6;
    status.report.info.spaces = {{ProfileId::kRaid5, kGroupData, kGiB, 120 * kMiB, kGiB},
                                 {ProfileId::kRaid6, kGroupData, kGiB, 8 * kMiB, kGiB},
                                 {ProfileId::kRaid1, kGroupMetadata | kGroupSystem, kGiB, kMiB, kGiB}};
    const auto profiles = [&] {
        const std::string text = status_text(status, SizeStyle::kIec);
        const size_t begin = text.find("Profiles:");
        return text.substr(begin, text.find('\n', begin) - begin);
    };
    CHECK(profiles() == "Profiles:          raid6 for data (120.00MiB still raid5), raid1 for metadata");
    status.report.info.metadata_profile = ProfileId::kRaid5;
    status.report.info.spaces[0].used_bytes = 0;
    CHECK(profiles() == "Profiles:          raid6 for data, raid5 for metadata (1.00MiB still raid1)");
    // Their trees are mirrored where those of files are under parity.
    status.report.info.spaces[2].content = kGroupSystem;
    CHECK(profiles() == "Profiles:          raid6 for data, raid5 for metadata");
}

TEST_CASE("the last line says how much is damaged, and where to look")
{
    VolumeStatus status = shown_volume();
    status.report.info.damaged_blocks = 1;
    CHECK(last_lines(status) == "errors: 1 data error, cowraid status -v names the files\n\n");
    status.scrub.unreadable_nodes = 2;
    CHECK(last_lines(status) ==
          "errors: 2 tree nodes cannot be read, cowraid check says what is lost; 1 data "
          "error, cowraid status -v names the files\n\n");
    status.report.info.damaged_blocks = 0;
    CHECK(last_lines(status) == "errors: 2 tree nodes cannot be read, cowraid check says what is lost\n\n");
    status.scrub.unreadable_nodes = 0;
    status.report.info.damaged_blocks = 3;
    status.damage.emplace();
    status.damage->files = {{.paths = {"/a", "/b"}, .blocks = 3, .range = {4096, 16383}}};
    status.damage->file_count = 2;
    CHECK(last_lines(status) == "errors: Permanent errors have been detected in the following files:\n\n"
                                "  '/a': 3 blocks, bytes 4096 to 16383\n"
                                "  '/b': 3 blocks, bytes 4096 to 16383\n"
                                "  and 1 more\n\n");
}

TEST_CASE("tree nodes on the list of damage are told of, once, whoever found them")
{
    VolumeStatus status = shown_volume();
    status.report.info.damaged_blocks = 3 * kNodeBlocks + 5;
    status.report.info.damaged_node_blocks = 3 * kNodeBlocks;
    CHECK(lost_nodes(status) == 3);
    CHECK(lost_blocks(status) == 8);
    CHECK(last_lines(status) ==
          "errors: 3 tree nodes cannot be read, cowraid check says what is lost; 5 data "
          "errors, cowraid status -v names the files\n\n");
    // A scrub found the same ones.
    status.scrub.unreadable_nodes = 3;
    CHECK(lost_blocks(status) == 8);
    CHECK(health_of(status).what == "3 tree nodes cannot be had from any redundancy");
    status.damage.emplace();
    status.damage->nodes = {{TreeIndex::kFiles, {300}, {412}},
                            {TreeIndex::kFiles, {500}, {kToTheEnd}},
                            {TreeIndex::kChecksums, {0}, {kToTheEnd}}};
    status.damage->node_count = 4;
    CHECK(last_lines(status) ==
          "errors: 3 tree nodes cannot be read, cowraid check says what is lost; Permanent errors have been "
          "detected in the following files:\n\n"
          "  a node of the file tree: what it had of inode 300 to 412\n"
          "  a node of the file tree: what it had of inode 500 and all above\n"
          "  a node of the checksum tree\n"
          "  and 1 nodes more\n\n");
}

}  // namespace cowraid
