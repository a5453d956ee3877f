// SPDX-License-Identifier: MIT
#include "tools/cowraid/layout_text.h"

#include <doctest/doctest.h>

#include "control/layout_json.h"

namespace cowraid {

namespace {

// Three members, of which the third is larger and in larger slots; raid5 over all, raid1 over two.
VolumeLayout drawn_layout()
{
    VolumeLayout layout;
    layout.label = "sample";
    layout.members = {
        {{1}, "/dev/a", kMiB, 8, 4096}, {{2}, "/dev/b", kMiB, 8, 8192}, {{3}, "", 2 * kMiB, 8, 4096}};
    layout.groups = {
        {.address = {1 << 20},
         .content = kGroupMetadata | kGroupSystem,
         .profile = ProfileId::kRaid1,
         .data_columns = 1,
         .column_bytes = 2 * kMiB,
         .total_bytes = 2 * kMiB,
         .used_bytes = kMiB,
         .columns = {{{1}, {{0, 2}}, {}}, {{2}, {{0, 1}, {7, 1}}, {}}}},
        {.address = {8 << 20},
         .content = kGroupData,
         .profile = ProfileId::kRaid5,
         .data_columns = 2,
         .column_bytes = 4 * kMiB,
         .total_bytes = 8 * kMiB,
         .used_bytes = 8 * kMiB,
         .columns = {{{1}, {{3, 4}}, {}}, {{2}, {{2, 4}}, {}}, {{3}, {{6, 2}}, Generation{5}}},
         .part_bytes = kMiB,
         .used_by_part = {2 * kMiB, 2 * kMiB, 0, 4096},
         .verified = 77},
    };
    return layout;
}

}  // namespace

TEST_CASE("slots of a member are drawn as the groups they belong to")
{
    const std::vector<std::string> lines = draw_layout(drawn_layout(), SizeStyle::kIec, 16);
    REQUIRE(lines.size() == 13);
    CHECK(lines[0] == "Member 1 (/dev/a): 8.00MiB in slots of 1.00MiB from offset 4096 on");
    CHECK(lines[1] == "  AA.BBBB.");
    CHECK(lines[3] == "  A.BBBB.A");
    CHECK(lines[4] == "Member 3 (missing): 16.00MiB in slots of 2.00MiB from offset 4096 on");
    CHECK(lines[5] == "  ............BBBB");
    CHECK(lines[7].starts_with("Each character is 1.00MiB"));
    CHECK(lines[10] ==
          "A      metadata+system  raid1        2  2.00MiB  1.00MiB   50.0%  1048576         1,2");
    CHECK(lines[11] ==
          "B      data             raid5        3  8.00MiB  8.00MiB  100.0%  8388608      1,2,3!");
    CHECK(lines[12].starts_with("! behind a member"));
}

TEST_CASE("a narrow line has several slots in a character, the group with most of them")
{
    const std::vector<std::string> lines = draw_layout(drawn_layout(), SizeStyle::kIec, 4);
    REQUIRE(lines.size() > 5);
    CHECK(lines[1] == "  AB");
    CHECK(lines[3] == "  BB");
    CHECK(lines[5] == "  ...B");
    CHECK(lines[7].starts_with("Each character is 4.00MiB"));
}

TEST_CASE("the list and the table have what each member holds of each profile")
{
    VolumeInfo info;
    info.members.resize(3);
    const VolumeLayout layout = drawn_layout();
    for (size_t i = 0; i < info.members.size(); ++i) {
        info.members[i].id = layout.members[i].id;
        info.members[i].path = layout.members[i].path;
        info.members[i].size_bytes = layout.members[i].bytes();
        info.members[i].used_bytes = i == 2 ? 4 * kMiB : 6 * kMiB;
        info.unallocated_raw_bytes += info.members[i].size_bytes - info.members[i].used_bytes;
    }
    info.spaces = {{ProfileId::kRaid5, kGroupData, 8 * kMiB, 8 * kMiB, 12 * kMiB},
                   {ProfileId::kRaid1, kGroupMetadata | kGroupSystem, 2 * kMiB, kMiB, 4 * kMiB}};
    const std::vector<std::string> listed = draw_usage_list(info, layout, SizeStyle::kIec);
    const std::vector<std::string> expected = {"Data,RAID5: Size:8.00MiB, Used:8.00MiB (100.00%)",
                                               "   /dev/a\t   4.00MiB",
                                               "   /dev/b\t   4.00MiB",
                                               "   missing\t   4.00MiB",
                                               "",
                                               "Metadata+System,RAID1: Size:2.00MiB, Used:1.00MiB (50.00%)",
                                               "   /dev/a\t   2.00MiB",
                                               "   /dev/b\t   2.00MiB",
                                               "",
                                               "Unallocated:",
                                               "   /dev/a\t   2.00MiB",
                                               "   /dev/b\t   2.00MiB",
                                               "   missing\t  12.00MiB"};
    CHECK(listed == expected);
    const std::vector<std::string> lines = draw_usage_table(info, layout, SizeStyle::kIec);
    REQUIRE(lines.size() == 6);
    CHECK(lines[0] == "Id  Path     Data,RAID5  Metadata+System,RAID1  Unallocated      Size");
    CHECK(lines[1] == "1   /dev/a      4.00MiB                2.00MiB      2.00MiB   8.00MiB");
    CHECK(lines[3] == "3   missing     4.00MiB                      -     12.00MiB  16.00MiB");
    CHECK(lines[4] == "    Total       8.00MiB                2.00MiB     16.00MiB  32.00MiB");
    CHECK(lines[5] == "    Used        8.00MiB                1.00MiB");
}

TEST_CASE("a layout survives its way through JSON")
{
    const VolumeLayout before = drawn_layout();
    const auto after = decode_layout(encode_layout(before).get());
    REQUIRE(after.ok());
    CHECK(after->label == "sample");
    CHECK(after->next.value == 0);
    CHECK(after->members.size() == 3);
    CHECK(after->members[2].slot_bytes == 2 * kMiB);
    CHECK(after->members[1].slots_offset == 8192);
    REQUIRE(after->groups.size() == 2);
    for (size_t i = 0; i < 2; ++i) {
        CHECK(after->groups[i].columns == before.groups[i].columns);
        CHECK(after->groups[i].content == before.groups[i].content);
        CHECK(after->groups[i].profile == before.groups[i].profile);
        CHECK(after->groups[i].used_bytes == before.groups[i].used_bytes);
        CHECK(after->groups[i].used_by_part == before.groups[i].used_by_part);
        CHECK(after->groups[i].verified == before.groups[i].verified);
    }
    CHECK(decode_layout(json_make_object().get()).err() == Err::kInvalid);
}

}  // namespace cowraid
