// SPDX-License-Identifier: MIT
// For tests of names and attributes: a volume on simulated members, and short forms of the facade's calls.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/items.h"
#include "fs/filesystem.h"
#include "sim/sim_device.h"

namespace cowraid {

class TestVolume {
public:
    // Makes a raid6 volume of four members and opens it. Aborts when that fails.
    explicit TestVolume(const MountOptions& options);
    ~TestVolume();
    TestVolume(const TestVolume&) = delete;
    TestVolume& operator=(const TestVolume&) = delete;

    Filesystem& fs() { return *fs_; }
    // Closes (which commits) and opens again.
    void reopen();
    void reopen(const MountOptions& options);
    // The daemon dies without closing; opens again.
    void crash();

private:
    void open();

    MountOptions options_;
    std::vector<std::unique_ptr<SimDevice>> members_;
    std::unique_ptr<Filesystem> fs_;
};

// A device for one owner more: `device` outlives it.
std::unique_ptr<BlockDevice> view_of(BlockDevice& device);

// No threads: commits happen where the test asks for them.
MountOptions manual_options();

inline constexpr InodeNumber kRoot{kRootInode};
inline const Caller kRootCaller{};
inline const Caller kUser{1000, 100, 022};

inline std::span<const std::byte> bytes_of(std::string_view text)
{
    return std::as_bytes(std::span(text));
}

inline std::string text_of(std::span<const std::byte> bytes)
{
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The inode of what was made, which must succeed.
InodeNumber make_file(Filesystem& fs, InodeNumber parent, std::string_view name, uint32_t mode = 0644);
InodeNumber make_directory(Filesystem& fs, InodeNumber parent, std::string_view name, uint32_t mode = 0755);
// Of an inode that is there.
Attributes attributes(Filesystem& fs, InodeNumber inode);
// A lookup whose reference is given back at once.
Err lookup_error(Filesystem& fs, InodeNumber parent, std::string_view name);

struct ListedEntry {
    std::string name;
    InodeNumber inode;
    uint32_t mode_type;
    uint64_t next_cursor;
    bool has_attributes;
};

// Collects entries, at most `entry_count_max` of them; references of entries with attributes are kept.
class ListSink final : public DirectorySink {
public:
    explicit ListSink(size_t entry_count_max = SIZE_MAX) : entry_count_max_(entry_count_max) { }

    bool entry(std::string_view name, InodeNumber inode, uint32_t mode_type, uint64_t next_cursor,
               const Attributes* attributes) override;

    std::vector<ListedEntry> entries;

private:
    const size_t entry_count_max_;
};

// The whole directory, in calls of `entry_count` entries each; references are given back.
std::vector<ListedEntry> list_all(Filesystem& fs, InodeNumber directory, size_t entry_count,
                                  const Names::ReadDirectory& how = {});

}  // namespace cowraid
