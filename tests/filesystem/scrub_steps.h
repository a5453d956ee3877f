// SPDX-License-Identifier: MIT
// What tests of scrubs share: files, and members that rot.
#pragma once

#include <sys/stat.h>

#include "tests/filesystem/volume_contents.h"
#include "tests/support/bytes.h"

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

inline std::vector<std::byte> image(SimVolume& volume, uint32_t member)
{
    std::vector<std::byte> bytes(volume.shape().member_bytes);
    volume.member(member).peek(0, bytes);
    return bytes;
}

// Blocks of members 0 and 1 that came with one file, and so many of one block, and what they held. Nodes have
// a third copy.
class Victim {
public:
    Victim(SimVolume& volume, Prng& prng, const char* name, size_t small_count = 0) : volume_(volume)
    {
        const std::vector<std::byte> before[] = {image(volume, 0), image(volume, 1)};
        content = random_content(prng, 300 * kKiB + 10);
        file = make_file(volume.fs(), name, content);
        for (size_t number = 0; number < small_count; ++number) {
            small.push_back(random_content(prng, kBlockBytes));
            make_file(volume.fs(), (name + std::to_string(number)).c_str(), small.back());
        }
        REQUIRE(volume.fs().step(true).ok());
        for (uint32_t member = 0; member < 2; ++member) {
            const std::vector<std::byte> after = image(volume, member);
            for (uint64_t at = slots_offset(volume.fs()); at < after.size(); at += kBlockBytes) {
                const std::span block = std::span(after).subspan(at, kBlockBytes);
                if (!same(block, std::span(before[member]).subspan(at, kBlockBytes)))
                    blocks_.push_back({member, at, {block.begin(), block.end()}});
            }
        }
        REQUIRE(blocks_.size() > 40);
    }
    void spoil(Prng& prng)
    {
        for (const Block& block : blocks_)
            rot(volume_, prng, block.member, block.offset);
    }
    void bring_back()
    {
        for (const Block& block : blocks_)
            volume_.member(block.member).poke(block.offset, block.content);
    }

    InodeNumber file;
    std::vector<std::byte> content;
    std::vector<std::vector<std::byte>> small;  // NAME0 and so on

private:
    struct Block {
        uint32_t member;
        uint64_t offset;
        std::vector<std::byte> content;
    };
    SimVolume& volume_;
    std::vector<Block> blocks_;
};

}  // namespace cowraid::test
