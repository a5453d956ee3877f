// SPDX-License-Identifier: MIT
#include "tools/cowraid/layout_text.h"

#include <algorithm>
#include <map>

#include "base/print.h"
#include "control/volume_json.h"

namespace cowraid {

namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
constexpr char kFree = '.';

char letter_of(size_t group)
{
    return kLetters[group % kLetters.size()];
}

std::string percent_text(uint64_t part, uint64_t whole)
{
    return whole == 0 ? "-"
                      : text_format("%.1f%%", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string path_text(const std::string& path)
{
    return path.empty() ? "missing" : path;
}

// One character for each cell: the group that has most of it.
std::string draw_member(const VolumeLayout& layout, const LayoutMember& member, uint64_t cell_bytes)
{
    const size_t cells = (member.bytes() + cell_bytes - 1) / cell_bytes;
    std::string line(cells, kFree);
    std::vector<uint64_t> most(cells, 0);
    for (const SlotPiece& piece : pieces_of(layout, member)) {
        const uint64_t end = piece.offset + piece.bytes;
        for (size_t cell = piece.offset / cell_bytes; cell < cells && cell * cell_bytes < end; ++cell) {
            const uint64_t share =
                std::min(end, (cell + 1) * cell_bytes) - std::max<uint64_t>(piece.offset, cell * cell_bytes);
            if (share > most[cell]) {
                most[cell] = share;
                line[cell] = letter_of(piece.group);
            }
        }
    }
    return line;
}

// A whole number of the smallest slots, so that the longest member fits.
uint64_t cell_bytes_for(const VolumeLayout& layout, size_t width)
{
    uint64_t slot = UINT64_MAX, longest = 0;
    for (const LayoutMember& member : layout.members) {
        slot = std::min(slot, member.slot_bytes);
        longest = std::max(longest, member.bytes());
    }
    const uint64_t slots = longest / std::max<uint64_t>(slot, 1);
    return slot * std::max<uint64_t>(1, (slots + width - 1) / width);
}

// Rows of words as lines of columns; the first `left` columns begin at the left, others end at the right.
std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows, size_t left)
{
    std::vector<size_t> widths;
    for (const std::vector<std::string>& row : rows) {
        widths.resize(std::max(widths.size(), row.size()), 0);
        for (size_t column = 0; column < row.size(); ++column)
            widths[column] = std::max(widths[column], row[column].size());
    }
    std::vector<std::string> lines;
    for (const std::vector<std::string>& row : rows) {
        std::string line;
        for (size_t column = 0; column < row.size(); ++column) {
            const std::string space(widths[column] - row[column].size(), ' ');
            line += (column == 0 ? "" : "  ") + (column < left ? row[column] + space : space + row[column]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        lines.push_back(std::move(line));
    }
    return lines;
}

std::string members_text(const LayoutGroup& group)
{
    std::string text;
    for (const GroupColumn& column : group.columns)
        text += (text.empty() ? "" : ",") + std::to_string(column.member.value) + (column.stale() ? "!" : "");
    return text;
}

std::vector<std::vector<std::string>> group_rows(const VolumeLayout& layout, SizeStyle sizes)
{
    std::vector<std::vector<std::string>> rows{
        {"GROUP", "CONTENT", "PROFILE", "WIDTH", "SIZE", "USED", "FULL", "ADDRESS", "ON MEMBERS"}};
    for (size_t index = 0; index < layout.groups.size(); ++index) {
        const LayoutGroup& group = layout.groups[index];
        rows.push_back({std::string(1, letter_of(index)), content_name(group.content),
                        profile_name(group.profile), std::to_string(group.columns.size()),
                        size_text(group.total_bytes, sizes), size_text(group.used_bytes, sizes),
                        percent_text(group.used_bytes, group.total_bytes),
                        std::to_string(group.address.value), members_text(group)});
    }
    return rows;
}

using Space = std::pair<uint32_t, ProfileId>;

uint64_t allocated_on(const VolumeLayout& layout, MemberId member, const Space& space)
{
    uint64_t bytes = 0;
    for (const LayoutGroup& group : layout.groups)
        if (group.content == space.first && group.profile == space.second)
            for (const GroupColumn& column : group.columns)
                bytes += column.member == member ? group.column_bytes : 0;
    return bytes;
}

uint64_t unallocated_on(const MemberInfo& member)
{
    return member.size_bytes - std::min(member.size_bytes, member.used_bytes);
}

}  // namespace

std::string space_title(uint32_t content, ProfileId profile, const char* between)
{
    std::string name = content_name(content);
    bool first = true;
    for (char& c : name) {
        if (first)
            c = static_cast<char>(toupper(c));
        first = c == '+';
    }
    return name + between + profile_title(profile);
}

std::vector<SlotPiece> pieces_of(const VolumeLayout& layout, const LayoutMember& member)
{
    std::vector<SlotPiece> pieces;
    for (size_t index = 0; index < layout.groups.size(); ++index)
        for (const GroupColumn& column : layout.groups[index].columns) {
            if (column.member != member.id)
                continue;
            uint64_t column_offset = 0;
            for (const SlotRun& run : column.runs) {
                const uint64_t bytes = run.slot_count * member.slot_bytes;
                pieces.push_back(
                    {run.first_slot * member.slot_bytes, bytes, index, column_offset, column.stale()});
                column_offset += bytes;
            }
        }
    std::sort(pieces.begin(), pieces.end(),
              [](const SlotPiece& a, const SlotPiece& b) { return a.offset < b.offset; });
    return pieces;
}

std::vector<std::string> draw_layout(const VolumeLayout& layout, SizeStyle sizes, size_t width)
{
    std::vector<std::string> lines;
    const uint64_t cell = cell_bytes_for(layout, width);
    for (const LayoutMember& member : layout.members) {
        lines.push_back(text_format("Member %u (%s): %s in slots of %s from offset %llu on", member.id.value,
                                    path_text(member.path).c_str(), size_text(member.bytes(), sizes).c_str(),
                                    size_text(member.slot_bytes, sizes).c_str(),
                                    static_cast<unsigned long long>(member.slots_offset)));
        lines.push_back("  " + draw_member(layout, member, cell));
    }
    lines.push_back("");
    lines.push_back("Each character is " + size_text(cell, sizes) +
                    " of a member: the block group that has " + "most of it, or " + kFree +
                    " where there is none.");
    lines.push_back("");
    const std::vector<std::string> groups = table_lines(group_rows(layout, sizes), 3);
    lines.insert(lines.end(), groups.begin(), groups.end());
    if (std::any_of(layout.groups.begin(), layout.groups.end(), [](const LayoutGroup& group) {
            return members_text(group).find('!') != std::string::npos;
        }))
        lines.push_back("! behind a member: it missed writes to the group.");
    if (layout.groups.size() > kLetters.size())
        lines.push_back("There are more groups than letters: every " + std::to_string(kLetters.size()) +
                        "th has the same.");
    return lines;
}

std::vector<std::string> draw_usage_list(const VolumeInfo& info, const VolumeLayout& layout, SizeStyle sizes)
{
    std::vector<std::string> lines;
    const auto add_member = [&](const MemberInfo& member, uint64_t bytes) {
        lines.push_back(
            text_format("   %s\t%10s", path_text(member.path).c_str(), size_text(bytes, sizes).c_str()));
    };
    for (const SpaceInfo& space : info.spaces) {
        lines.push_back(
            space_title(space.content, space.profile, ",") + ": Size:" + size_text(space.total_bytes, sizes) +
            ", Used:" + size_text(space.used_bytes, sizes) +
            text_format(" (%.2f%%)", space.total_bytes == 0 ? 0.0
                                                            : 100 * static_cast<double>(space.used_bytes) /
                                                                  static_cast<double>(space.total_bytes)));
        for (const MemberInfo& member : info.members)
            if (const uint64_t bytes = allocated_on(layout, member.id, {space.content, space.profile});
                bytes > 0)
                add_member(member, bytes);
        lines.push_back("");
    }
    lines.push_back("Unallocated:");
    for (const MemberInfo& member : info.members)
        add_member(member, unallocated_on(member));
    return lines;
}

std::vector<std::string> draw_usage_table(const VolumeInfo& info, const VolumeLayout& layout, SizeStyle sizes)
{
    const auto amount = [sizes](uint64_t bytes) {
        return bytes == 0 ? "-" : size_text(bytes, sizes);
    };
    std::vector<std::vector<std::string>> rows(1);
    rows[0] = {"Id", "Path"};
    std::vector<std::string> total{"", "Total"}, used{"", "Used"};
    for (const SpaceInfo& space : info.spaces) {
        rows[0].push_back(space_title(space.content, space.profile, ","));
        total.push_back(amount(space.total_bytes));
        used.push_back(amount(space.used_bytes));
    }
    rows[0].insert(rows[0].end(), {"Unallocated", "Size"});
    uint64_t size = 0;
    for (const MemberInfo& member : info.members) {
        std::vector<std::string> row{std::to_string(member.id.value), path_text(member.path)};
        for (const SpaceInfo& space : info.spaces)
            row.push_back(amount(allocated_on(layout, member.id, {space.content, space.profile})));
        row.push_back(amount(unallocated_on(member)));
        row.push_back(amount(member.size_bytes));
        size += member.size_bytes;
        rows.push_back(std::move(row));
    }
    total.insert(total.end(), {amount(info.unallocated_raw_bytes), amount(size)});
    rows.push_back(std::move(total));
    rows.push_back(std::move(used));
    return table_lines(rows, 2);
}

}  // namespace cowraid
