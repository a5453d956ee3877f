// SPDX-License-Identifier: MIT
#include "tools/cowraid/heat_map.h"

#include <doctest/doctest.h>

namespace cowraid {

namespace {

constexpr uint64_t kNow = 100 * 86400;

// Two members of 500 cells; a mirror on the first 200 slots, of which the second half is full.
VolumeLayout mapped_layout()
{
    VolumeLayout layout;
    layout.label = "a<b>&c";
    layout.members = {{{1}, "/dev/a", kMiB, 500}, {{2}, "", kMiB, 500}};
    LayoutGroup group{.address = {1 << 20},
                      .content = kGroupData,
                      .profile = ProfileId::kRaid1,
                      .data_columns = 1,
                      .column_bytes = 200 * kMiB,
                      .total_bytes = 200 * kMiB,
                      .used_bytes = 100 * kMiB,
                      .columns = {{{1}, {{0, 200}}, {}}, {{2}, {{300, 200}}, {}}},
                      .part_bytes = 100 * kMiB,
                      .used_by_part = {0, 100 * kMiB}};
    layout.groups.push_back(group);
    return layout;
}

bool has_rectangle(const std::string& svg, size_t x, size_t y, size_t width, const char* colour)
{
    const std::string begin = "<rect x='" + std::to_string(x) + "' y='" + std::to_string(y) + "' width='" +
                              std::to_string(width) + "' height='";
    const size_t place = svg.find(begin);
    return place != std::string::npos &&
           svg.substr(place, svg.find('\n', place) - place).ends_with(std::string("fill='") + colour + "'/>");
}

}  // namespace

TEST_CASE("stripes are drawn where they lie, darker where they are full")
{
    const std::string svg = draw_heat_map(mapped_layout(), kNow);
    CHECK(svg.starts_with("<svg "));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(svg.find("a&lt;b&gt;&amp;c") != std::string::npos);
    CHECK(has_rectangle(svg, 210, 50, 200, "#eef4fa"));
    CHECK(has_rectangle(svg, 410, 50, 200, "#04264f"));
    CHECK(has_rectangle(svg, 610, 50, 600, "#ffffff"));
    CHECK(has_rectangle(svg, 210, 72, 400, "#0072b2"));  // data
    // The second member has it at its end.
    CHECK(has_rectangle(svg, 210, 96, 600, "#ffffff"));
    CHECK(has_rectangle(svg, 810, 96, 200, "#eef4fa"));
    CHECK(has_rectangle(svg, 1010, 96, 200, "#04264f"));
    CHECK(svg.find(">missing<") != std::string::npos);
    CHECK(svg.find("verified") == std::string::npos);
}

TEST_CASE("what is not known by stripe is drawn as full as its group")
{
    VolumeLayout layout = mapped_layout();
    layout.groups[0].used_by_part.clear();
    layout.groups[0].used_bytes = 200 * kMiB;
    CHECK(has_rectangle(draw_heat_map(layout, kNow), 210, 50, 400, "#04264f"));
}

TEST_CASE("how long ago groups were verified is drawn once it is known of one")
{
    VolumeLayout layout = mapped_layout();
    layout.groups[0].verified = kNow - 86400;
    CHECK(has_rectangle(draw_heat_map(layout, kNow), 210, 78, 400, "#009e73"));
    layout.groups[0].verified = kNow - uint64_t{40} * 86400;
    const std::string old = draw_heat_map(layout, kNow);
    CHECK(has_rectangle(old, 210, 78, 400, "#d55e00"));
    CHECK(old.find("verified within 7 days") != std::string::npos);
    CHECK(old.find(">never<") != std::string::npos);
}

}  // namespace cowraid
