// SPDX-License-Identifier: MIT
#include "tools/cowraid/heat_map.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/print.h"
#include "base/text.h"
#include "control/volume_json.h"
#include "tools/cowraid/layout_text.h"

namespace cowraid {

namespace {

// Pixels.
constexpr size_t kLeft = 210, kTop = 50, kCells = 500, kCellWidth = 2, kRight = 30;
constexpr size_t kHeat = 22, kLane = 6, kRow = 46, kLegend = 74, kSwatch = 24;

constexpr const char* kUnallocated = "#ffffff";
constexpr const char* kUnknown = "#bbbbbb";
// From empty to full; told apart without colours, too.
constexpr const char* kHeatColours[] = {"#eef4fa", "#d3e4f3", "#b0d0e8", "#86b8dc", "#5c9fce",
                                        "#3a85bf", "#226aab", "#124f90", "#083a73", "#04264f"};

struct Named {
    const char* colour;
    const char* name;
};
constexpr Named kContents[] = {{"#0072b2", "data"}, {"#e69f00", "metadata"}, {"#cc79a7", "system"}};
struct Age {
    uint64_t days_max;
    const char* colour;
};
constexpr Age kAges[] = {{7, "#009e73"}, {30, "#f0e442"}, {90, "#d55e00"}, {UINT64_MAX, "#7f0000"}};
constexpr Named kAgeLegend[] = {{"#009e73", "verified within 7 days"},
                                {"#f0e442", "within 30 days"},
                                {"#d55e00", "within 90 days"},
                                {"#7f0000", "longer ago"},
                                {kUnknown, "never"}};
constexpr uint64_t kDaySeconds = 86400;

const char* heat_colour(uint64_t used, uint64_t total)
{
    constexpr uint64_t kSteps = std::size(kHeatColours);
    return total == 0 ? kUnknown : kHeatColours[std::min(used * kSteps / total, kSteps - 1)];
}

const char* content_colour(const LayoutGroup& group)
{
    const bool data = (group.content & kGroupData) != 0, metadata = (group.content & kGroupMetadata) != 0;
    return kContents[data ? 0 : metadata ? 1 : 2].colour;
}

const char* age_colour(const LayoutGroup& group, uint64_t now)
{
    if (group.verified == 0)
        return kUnknown;
    const uint64_t days = (now - std::min(now, group.verified)) / kDaySeconds;
    const auto age =
        std::find_if(std::begin(kAges), std::end(kAges), [=](const Age& one) { return days < one.days_max; });
    return age->colour;
}

// What of a member is in one cell of its row.
struct Cell {
    uint64_t used = 0, total = 0;  // of user addresses
    uint64_t most = 0;  // bytes of the group that has most
    const LayoutGroup* group = nullptr;
};

// Bytes [from, to) of a column.
void add_stripes(const LayoutGroup& group, uint64_t from, uint64_t to, Cell& cell)
{
    if (group.used_by_part.empty()) {  // not known by stripe
        cell.total += (to - from) * group.data_columns;
        cell.used += group.used_bytes / std::max<uint64_t>(group.column_bytes, 1) * (to - from);
        return;
    }
    while (from < to) {
        const uint64_t part = from / group.part_bytes;
        const uint64_t end = std::min(to, (part + 1) * group.part_bytes);
        const uint64_t share = end - from;
        cell.total += share * group.data_columns;
        if (part < group.used_by_part.size())
            cell.used += group.used_by_part[part] / kBlockBytes * share / (group.part_bytes / kBlockBytes);
        from = end;
    }
}

std::vector<Cell> cells_of(const VolumeLayout& layout, const LayoutMember& member, uint64_t cell_bytes)
{
    std::vector<Cell> cells((member.bytes() + cell_bytes - 1) / cell_bytes);
    for (const SlotPiece& piece : pieces_of(layout, member)) {
        const uint64_t end = piece.offset + piece.bytes;
        const LayoutGroup& group = layout.groups[piece.group];
        for (size_t index = piece.offset / cell_bytes; index < cells.size() && index * cell_bytes < end;
             ++index) {
            const uint64_t from = std::max<uint64_t>(piece.offset, index * cell_bytes);
            const uint64_t to = std::min(end, (index + 1) * cell_bytes);
            const uint64_t in_column = piece.column_offset - piece.offset;
            add_stripes(group, from + in_column, to + in_column, cells[index]);
            if (to - from > cells[index].most) {
                cells[index].most = to - from;
                cells[index].group = &group;
            }
        }
    }
    return cells;
}

std::string rectangle(size_t x, size_t y, size_t width, size_t height, const char* colour)
{
    return text_format("<rect x='%zu' y='%zu' width='%zu' height='%zu' fill='%s'/>\n", x, y, width, height,
                       colour);
}

std::string escaped(std::string_view text)
{
    std::string out;
    for (const char c : printable(text))
        out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    return out;
}

std::string words(size_t x, size_t y, std::string_view text)
{
    return text_format("<text x='%zu' y='%zu'>", x, y) + escaped(text) + "</text>\n";
}

// Neighbours of one colour are one rectangle.
std::string lane(size_t y, size_t height, const std::vector<const char*>& colours)
{
    std::string out;
    for (size_t first = 0; first < colours.size();) {
        size_t end = first + 1;
        while (end < colours.size() && std::string_view(colours[end]) == colours[first])
            ++end;
        out += rectangle(kLeft + first * kCellWidth, y, (end - first) * kCellWidth, height, colours[first]);
        first = end;
    }
    return out;
}

std::string draw_row(const std::vector<Cell>& cells, size_t y, bool ages, uint64_t now)
{
    std::vector<const char*> heat, contents, verified;
    for (const Cell& cell : cells) {
        const bool free = cell.group == nullptr;
        heat.push_back(free ? kUnallocated : heat_colour(cell.used, cell.total));
        contents.push_back(free ? kUnallocated : content_colour(*cell.group));
        verified.push_back(free ? kUnallocated : age_colour(*cell.group, now));
    }
    return lane(y, kHeat, heat) + lane(y + kHeat, kLane, contents) +
           (ages ? lane(y + kHeat + kLane, kLane, verified) : "") +
           text_format("<rect x='%zu' y='%zu' width='%zu' height='%zu' fill='none' stroke='#888'/>\n", kLeft,
                       y, cells.size() * kCellWidth, kHeat + kLane * (ages ? 2 : 1));
}

std::string legend(size_t y, bool ages)
{
    std::string out = words(kLeft, y + 11, "stripes in use: 0%");
    size_t x = kLeft + 115;
    for (const char* const colour : kHeatColours) {
        out += rectangle(x, y, kSwatch, 12, colour);
        x += kSwatch;
    }
    out += words(x + 6, y + 11, "100%, white: in no block group");
    x = kLeft;
    for (const Named& content : kContents) {
        out += rectangle(x, y + 20, kSwatch, 12, content.colour) + words(x + 30, y + 31, content.name);
        x += 110;
    }
    x = kLeft;
    for (const Named& age : kAgeLegend) {
        if (!ages)
            break;
        out += rectangle(x, y + 40, kSwatch, 12, age.colour) + words(x + 30, y + 51, age.name);
        x += 180;
    }
    return out;
}

}  // namespace

std::string draw_heat_map(const VolumeLayout& layout, uint64_t now)
{
    uint64_t longest = 1;
    for (const LayoutMember& member : layout.members)
        longest = std::max(longest, member.bytes());
    const uint64_t cell_bytes = (longest + kCells - 1) / kCells;
    const bool ages = std::any_of(layout.groups.begin(), layout.groups.end(),
                                  [](const LayoutGroup& group) { return group.verified != 0; });
    const size_t width = kLeft + kCells * kCellWidth + kRight;
    const size_t height = kTop + layout.members.size() * kRow + kLegend;
    std::string out =
        text_format("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %zu %zu' width='%zu' height='%zu' "
                    "font-family='sans-serif' font-size='12'>\n",
                    width, height, width, height) +
        rectangle(0, 0, width, height, "#ffffff") +
        words(kLeft, 24,
              (layout.label.empty() ? "" : layout.label + "  ") + uuid_text(layout.uuid) +
                  ": occupancy of stripes over the members");
    size_t y = kTop;
    for (const LayoutMember& member : layout.members) {
        out += words(12, y + 14,
                     "member " + std::to_string(member.id.value) + ", " + size_text(member.bytes())) +
               words(12, y + 29, member.path.empty() ? "missing" : member.path) +
               draw_row(cells_of(layout, member, cell_bytes), y, ages, now);
        y += kRow;
    }
    return out + legend(y + 8, ages) + "</svg>\n";
}

}  // namespace cowraid
