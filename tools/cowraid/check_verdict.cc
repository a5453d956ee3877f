// SPDX-License-Identifier: MIT
#include "tools/cowraid/check_verdict.h"

#include <vector>

#include "base/text.h"

namespace cowraid {

namespace {

// Of one member.
struct Damage {
    uint64_t blocks = 0;
    uint64_t copies = 0;  // of superblock and block-group map
    bool away = false;
};

struct Sum {
    std::map<uint32_t, Damage> members;
    uint64_t files = 0;
    uint64_t lasting = 0;  // findings that redundancy does not heal, those of files and members left out
    uint64_t others = 0;  // that it does, and that are about no member
    bool no_mount = false;
};

Sum add_up(const CheckReport& report)
{
    Sum sum;
    for (const CheckFinding& finding : report.findings) {
        sum.files += finding.kind == "file";
        sum.lasting += !finding.repairable && finding.kind != "file" && finding.kind != "member";
        sum.others += finding.repairable && finding.member == 0;
        sum.no_mount = sum.no_mount || finding.kind == "mount";
        if (finding.member == 0)
            continue;
        Damage& damage = sum.members[finding.member];
        damage.blocks += finding.block_count;
        damage.copies += finding.kind == "superblock" || finding.kind == "map";
        damage.away = damage.away || finding.kind == "member";
    }
    return sum;
}

std::string damage_text(const Damage& damage)
{
    std::vector<std::string> parts;
    if (damage.away)
        parts.emplace_back("is missing or behind");
    if (damage.blocks > 0)
        parts.push_back("is damaged in " + count_text(damage.blocks, "block"));
    if (damage.copies > 0)
        parts.push_back("has " + std::to_string(damage.copies) +
                        (damage.copies == 1 ? " bad copy" : " bad copies") + " of the superblock or map");
    if (parts.empty())
        parts.emplace_back("is damaged");
    return join_words(parts);
}

// What that means, and the next step.
std::string outlook(const Sum& sum, bool mounted)
{
    const auto step = [=](const char* first, const char* then) {
        return std::string(mounted ? "" : first) + then;
    };
    if (sum.no_mount)
        return "the volume cannot be mounted as it is; its finding above names what to do";
    bool damaged = sum.others > 0;
    int away = 0;
    for (const auto& [id, damage] : sum.members) {
        damaged = damaged || damage.blocks + damage.copies > 0;
        away += damage.away;
    }
    // What they have may be all that is wanting.
    const std::string back = away == 0 ? "" : away == 1 ? "bring the member back" : "bring the members back";
    if (sum.files > 0)
        return count_text(sum.files, "file") + " lost data and " + (sum.files == 1 ? "is" : "are") +
               " named above; " +
               (back.empty()
                    ? step("mount the volume, ", "restore them from elsewhere, and run cowraid scrub")
                    : back + ", " +
                          step("mount the volume, ",
                               "run cowraid scrub, and check again: what is lost then is to be "
                               "restored from elsewhere"));
    if (sum.lasting > 0)
        return count_text(sum.lasting, "finding") + " cannot be repaired; " +
               (back.empty() ? "" : back + " and check again; if that does not help, ") +
               step("mount it with -o ro and ", "copy what is there");
    return std::string("nothing is lost; ") + (away > 0 ? step("mount it with -o degraded, or ", back.c_str())
                                               : damaged ? step("mount it and ", "run cowraid scrub")
                                                         : std::string("see above"));
}

}  // namespace

std::string check_verdict(const CheckReport& report, const std::map<uint32_t, std::string>& paths,
                          bool mounted)
{
    if (report.clean())
        return "clean";
    const Sum sum = add_up(report);
    std::string text;
    for (const auto& [id, damage] : sum.members) {
        const auto path = paths.find(id);
        text += "member " + std::to_string(id) + (path == paths.end() ? "" : " (" + path->second + ")") +
                " " + damage_text(damage) + "; ";
    }
    return text + outlook(sum, mounted);
}

}  // namespace cowraid
