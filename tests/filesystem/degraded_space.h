// SPDX-License-Identifier: MIT
// For tests of room while members are away: files whose every block is known, written until space is refused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/machine.h"

namespace cowraid::test {

// A volume of equal members with faults, and files of numbered blocks in it.
class SpaceWorld {
public:
    SpaceWorld(uint32_t member_count, uint64_t member_bytes, ProfileId data, ProfileId metadata);

    // mkfs and the first mount.
    void start();
    // Aborts the test when the mount fails; `absent`: indices of members left out.
    void mount(const std::vector<uint32_t>& absent = {});
    void unmount();
    void commit();
    // Commits until nothing that was freed is pinned and no empty group has slots to give back.
    void settle();
    // Every write of the member fails from now on.
    void fail_writes(uint32_t member);
    void end_faults();

    // Appends to new files until `blocks_max` blocks were taken or a single block is refused; how many were
    // taken. Anything but success and kNoSpace fails the test, and so does a refusal while space is reported.
    uint64_t write(uint64_t blocks_max);
    // As write(), each piece followed by fsync(): how many of `count` pieces of `blocks` blocks were refused.
    uint64_t write_synced(uint64_t count, uint64_t blocks);
    void remove_all();
    // Every block of every file.
    void require_content();

    [[nodiscard]] uint64_t available() { return fs().statistics().available_blocks; }
    [[nodiscard]] uint64_t total() { return fs().statistics().total_blocks; }
    [[nodiscard]] Filesystem& fs() { return machine_.fs(); }
    [[nodiscard]] Machine& machine() { return machine_; }
    // Data blocks of the largest group that the volume makes, all members present.
    [[nodiscard]] uint64_t group_blocks() const;

private:
    struct File {
        std::string name;
        uint64_t blocks = 0;
    };
    Err append(uint64_t blocks);

    Machine machine_;
    std::vector<File> files_;
    uint64_t next_file_ = 0;
    InodeNumber inode_;  // of the last file, while it grows
    std::vector<std::pair<uint32_t, size_t>> rules_;
};

}  // namespace cowraid::test
