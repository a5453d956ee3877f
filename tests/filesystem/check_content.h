// SPDX-License-Identifier: MIT
// For tests of the offline check: volumes with varied content, and what a report must say.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "format/items.h"
#include "fs/files/extents.h"
#include "tests/filesystem/check_image.h"
#include "tests/filesystem/volume_steps.h"

#define REQUIRE_CLEAN(report) REQUIRE_MESSAGE((report).clean(), text_of(report))

namespace cowraid::test {

std::string text_of(const CheckReport& report);

inline const VolumeShape kCheckedRaid6{4, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3,
                                       kDefaultChunkBytes};
inline const VolumeShape kCheckedShapes[] = {
    kCheckedRaid6,
    {1, 96 * kMiB, ProfileId::kSingle, ProfileId::kSingle, 64 * 1024},
    {2, 96 * kMiB, ProfileId::kRaid1, ProfileId::kRaid1, 64 * 1024},
    {3, 96 * kMiB, ProfileId::kRaid5, ProfileId::kRaid1, 64 * 1024},
    {4, 160 * kMiB, ProfileId::kRaid5, ProfileId::kRaid5, 4 * 1024},
    {5, 160 * kMiB, ProfileId::kRaid6, ProfileId::kRaid6, 16 * 1024},
    {6, 96 * kMiB, ProfileId::kRaid6, ProfileId::kRaid1c3, 1024 * 1024},
    {5, 96 * kMiB, ProfileId::kRaid0, ProfileId::kRaid0, 16 * 1024},
    {5, 96 * kMiB, ProfileId::kRaid10, ProfileId::kRaid10, 4 * 1024},
    {5, 96 * kMiB, ProfileId::kRaid1c4, ProfileId::kRaid1c4, 64 * 1024},
};

// Puts varied content into a volume over several commits.
class Filler {
public:
    explicit Filler(SimVolume& volume) : volume_(volume), prng_(seed()) { }

    void run();

    // What the volume holds afterwards; removed files that are still open count as inodes only.
    uint64_t inodes = 1, directories = 1, files = 0;

private:
    Filesystem& fs() { return volume_.fs(); }
    InodeNumber make(InodeNumber parent, const std::string& name, uint32_t mode, bool remembered = false);
    void write(InodeNumber inode, uint64_t offset, size_t bytes);
    void make_names();
    void make_data();
    void change_things();
    void leave_orphans();

    SimVolume& volume_;
    Prng prng_;
    InodeNumber directory_, other_directory_;
};

// A filled volume, unmounted.
Image filled_image(const VolumeShape& shape);
// A copy of one filled raid6 volume, made once.
Image raid6_image();
// Extents of that commit that hold data; at least one.
std::vector<FileExtent> stored_extents(Image& image);

struct Expected {
    const char* kind;
    uint64_t address;
    uint32_t member;
    bool repairable;
};

// The report has these findings and no others.
void require_findings(CheckReport report, const std::vector<Expected>& expected);

}  // namespace cowraid::test
