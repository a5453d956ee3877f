// SPDX-License-Identifier: MIT
#include "tools/mount/member_wait.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "device/lineage.h"
#include "tools/mount/mount_helper.h"

namespace cowraid {

namespace {

// A look reads a few blocks of every block device of the machine.
constexpr int kSearchMilliseconds = 500;

std::string awaited_text(const Result<VolumeMembers>& volume, const std::string& why)
{
    if (!volume.ok())
        return why;
    std::string ids;
    const std::vector<MemberId> awaited = awaited_members(*volume);
    for (const MemberId id : awaited)
        ids += (ids.empty() ? " " : ", ") + std::to_string(id.value);
    const std::string name =
        volume->label.empty() ? "volume " + uuid_text(volume->uuid) : "volume '" + volume->label + "'";
    return name + ": member" + (awaited.size() == 1 ? "" : "s") + ids +
           (awaited.size() == 1 ? " is" : " are") + " not there";
}

}  // namespace

std::vector<MemberId> awaited_members(const VolumeMembers& volume)
{
    // Where only spares are there, they say who the members were when they joined.
    const Superblock* head = nullptr;
    for (const FoundMember& member : volume.members) {
        const Superblock& own = member.superblock;
        if (head == nullptr || (head->on_spare() && !own.on_spare()) ||
            (head->on_spare() == own.on_spare() && newer_commit(own, *head)))
            head = &own;
    }
    std::vector<MemberId> awaited;
    for (const MemberRecord& line : head == nullptr ? std::vector<MemberRecord>() : head->members) {
        // Not a device that had the place before; one that was named is refused, whatever comes.
        const bool found =
            std::any_of(volume.members.begin(), volume.members.end(), [&](const FoundMember& member) {
                const Superblock& own = member.superblock;
                const MemberRecord* const said = own.on_spare() ? nullptr : own.member(own.member_id);
                return said != nullptr && said->id == line.id && (said->uuid == line.uuid || member.named);
            });
        const bool has_share = line.id != head->replace.target;
        if (line.state == MemberState::kPresent && has_share && !found)
            awaited.push_back(line.id);
    }
    return awaited;
}

uint32_t missing_seconds(const MountRequest& request, bool at_terminal)
{
    const bool all_named = request.volume.paths.size() > 1;
    return request.missing_seconds.value_or(at_terminal || all_named ? 0 : kMissingSecondsDefault);
}

Result<VolumeMembers> find_volume_in_time(const VolumeSpec& spec, Unusable unusable,
                                          const MountRequest& request, std::string& why)
{
    const uint32_t seconds = missing_seconds(request, isatty(STDERR_FILENO) == 1);
    // A path that is not there is a mistake, unless the user says that it comes.
    const bool waits_for_all = !request.volume.name.empty() || request.missing_seconds.has_value();
    const uint64_t end = monotonic_ns() + uint64_t{seconds} * 1'000'000'000;
    for (bool said = false;; said = true) {
        why.clear();
        auto volume = find_volume(spec, unusable, why);
        const bool silent = volume.err() == Err::kWouldWait;
        const bool comes = volume.ok() ? !awaited_members(*volume).empty()
                                       : silent || (volume.err() == Err::kNotFound && waits_for_all);
        if (!comes || monotonic_ns() >= end)
            return volume;
        if (!said)
            print_mount_message(awaited_text(volume, why) + "; waiting up to " +
                                count_text(seconds, "second") + " (missing_dev_timeout=0 does not)");
        poll(nullptr, 0, kSearchMilliseconds);
    }
}

}  // namespace cowraid
