// SPDX-License-Identifier: MIT
// What tests of scrubs share: files, and members that rot.
#pragma once

#include <sys/stat.h>

#include "tests/filesystem/volume_contents.h"

namespace cowraid::test {

inline InodeNumber make_file(Filesystem& fs, const char* name, const std::vector<std::byte>& content)
{
    const InodeNumber file = fs.names.make_node(kRoot, name, S_IFREG | 0644, 0, {})->inode;
    REQUIRE(fs.files.write(file, 0, content, {}, {}).ok());
    return file;
}

inline Status read_file(Filesystem& fs, InodeNumber file, std::vector<std::byte>& content)
{
    return fs.files.read(file, 0, content).status();
}

// A pass from begin to end, or what is left of one.
inline ScrubStatus scrub(Filesystem& fs)
{
    for (int step = 0; step < 1000; ++step)
        if (const ScrubStatus status = fs.scrub_step(); status.state == ScrubState::kFinished)
            return status;
    FAIL("the scrub does not end");
    return {};
}

inline void require_quiet(const ScrubStatus& status)
{
    CHECK(status.repaired == 0);
    CHECK(status.adopted == 0);
    CHECK_FALSE(status.damaged());
}

// What the scrub says of one member.
inline ScrubMemberNumbers found_on(const ScrubStatus& status, uint32_t member)
{
    const auto at = status.members.find({member + 1});
    return at == status.members.end() ? ScrubMemberNumbers() : at->second;
}

inline void rot(SimVolume& volume, Prng& prng, uint32_t member, uint64_t offset)
{
    volume.member(member).poke(offset, random_content(prng, kBlockBytes));
}

// Where block groups begin, on every member.
inline uint64_t slots_offset(Filesystem& fs)
{
    return fs.volume->member_table().front().slots_offset;
}

inline std::vector<uint64_t> verified_times(Filesystem& fs)
{
    std::vector<uint64_t> times;
    for (const GroupRecord& group : fs.volume->map().groups)
        times.push_back(group.verified_seconds);
    return times;
}

}  // namespace cowraid::test
