// SPDX-License-Identifier: MIT
#include "tools/common/returning_member.h"

#include <algorithm>

#include "control/json.h"
#include "control/volume_json.h"
#include "device/loop_backing.h"
#include "device/scan.h"
#include "device/signature.h"
#include "tools/common/member_search.h"

namespace cowraid {

Result<UniqueFd> open_returning(const std::string& path, std::string& why)
{
    CW_ASSIGN(UniqueFd fd, open_exclusively(path, {}, why));
    const auto signature = probe_signature(fd.get());
    if (signature.ok() && !signature->empty() && *signature != kMemberSignature) {
        // It has superblocks of ours still: without the other signature it is a member with all that it
        // holds.
        const bool was_member = signature->starts_with(std::string(kMemberSignature) + ",");
        why = path + " holds " + *signature +
              (was_member ? "; if that is a mistake: wipefs -a " + path +
                                ", and run this again; cowraid replace start -f gives up what it holds"
                          : "; if it is to be a member, use cowraid replace start -f");
        return Err::kExists;
    }
    return fd;
}

namespace {

bool is_away(const MemberInfo& member)
{
    return !member.in_service();
}

bool is_away(const SpareInfo& spare)
{
    return spare.path.empty();
}

Result<VolumeReport> ask_report(ControlClient& client)
{
    std::string ignored;
    CW_ASSIGN(const Json answer, client.ask("info", ignored));
    return decode_report(answer.get());
}

bool is_away(const VolumeReport& report, const Superblock& own)
{
    const auto is_own = [&](const auto& one) {
        return one.id == own.member_id && is_away(one);
    };
    return own.on_spare() ? std::any_of(report.info.spares.begin(), report.info.spares.end(), is_own)
                          : std::any_of(report.info.members.begin(), report.info.members.end(), is_own);
}

bool lacks_any(const VolumeReport& report)
{
    const auto is_lacking = [](const auto& one) {
        return is_away(one);
    };
    return std::any_of(report.info.members.begin(), report.info.members.end(), is_lacking) ||
           std::any_of(report.info.spares.begin(), report.info.spares.end(), is_lacking);
}

// Nothing to be said where it is back, or where the daemon has it still.
std::string bring_back(ControlClient& client, const std::string& path)
{
    std::string why;
    const auto fd = open_returning(path, why);
    if (fd.err() == Err::kBusy)
        return {};
    const Json request = json_make_object();
    json_put_text(request.get(), "path", path);
    if (fd.ok() && client.call("device-online", request.get(), why, fd->get()).ok())
        return path + " is back in service; what it missed is written to it";
    return path + " stays away: " + why;
}

}  // namespace

bool is_away(ControlClient& client, const Superblock& own)
{
    const auto report = ask_report(client);
    return report.ok() && is_away(*report, own);
}

std::vector<std::string> bring_back_found(ControlClient& client, const Uuid& volume,
                                          const std::vector<std::string>& left_out)
{
    std::vector<std::string> lines;
    const auto report = ask_report(client);
    if (!report.ok() || !lacks_any(*report))
        return lines;
    std::string ignored;
    const auto scanned = scan_for("UUID=" + uuid_text(volume), {}, ignored);
    if (!scanned.ok())
        return lines;
    for (const FoundMember& one : scanned->members) {
        const auto is_alike = [&](const FoundMember& other) {
            return other.superblock.member_id == one.superblock.member_id;
        };
        // Of several that say they are the same member the user chooses.
        const bool alone = std::count_if(scanned->members.begin(), scanned->members.end(), is_alike) == 1;
        const bool wanted = std::find(left_out.begin(), left_out.end(), one.path) == left_out.end();
        if (!alone || !wanted || is_loop_of_another(one.path) || !is_away(*report, one.superblock))
            continue;
        if (std::string line = bring_back(client, one.path); !line.empty())
            lines.push_back(std::move(line));
    }
    return lines;
}

}  // namespace cowraid
