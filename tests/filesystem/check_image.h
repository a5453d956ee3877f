// SPDX-License-Identifier: MIT
// For tests of the offline check: members of an unmounted volume, and ways to damage them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fs/filesystem.h"
#include "tests/support/sim_volume.h"

namespace cowraid::test {

// Where one copy of a block lies.
struct StoredAt {
    uint32_t member = 0;  // index, from 0
    MemberId id;
    uint64_t offset = 0;
};

class Image {
public:
    // The members as they are; the volume is not mounted.
    static Image copy_of(SimVolume& volume);
    [[nodiscard]] Image clone() const;

    [[nodiscard]] std::vector<std::unique_ptr<BlockDevice>> borrow(const std::vector<uint32_t>& absent = {});
    [[nodiscard]] SimDevice& member(uint32_t index) { return *members_[index]; }
    [[nodiscard]] uint32_t member_count() const { return static_cast<uint32_t>(members_.size()); }

    // Aborts when the volume cannot be opened.
    CheckReport check(const CheckOptions& options = {}, const std::vector<uint32_t>& absent = {});
    CheckReport check_devices(std::vector<std::unique_ptr<BlockDevice>> devices);
    Status try_check(CheckReport& report, std::string& why, const std::vector<uint32_t>& absent = {});

    // Read-only, without a filesystem.
    std::unique_ptr<Volume> open_volume();
    // Writable, without threads; what the open transaction gets is committed by commit_now().
    std::unique_ptr<Filesystem> open_core(const std::vector<uint32_t>& absent = {});

    // `copy` counts copies of mirrored groups.
    StoredAt locate(Volume& volume, VolumeAddress address, uint32_t copy = 0);
    // Flips bits of one copy of a block.
    StoredAt rot(VolumeAddress address, uint32_t copy = 0);
    // The parity block `parity` of the row that holds a data block.
    VolumeAddress parity_of(VolumeAddress data, uint32_t parity);

    // Lets `change` edit the root node of a tree, and makes everything above agree: checksums, root tree,
    // superblocks. `tree_id` kRootTree edits the root tree itself.
    using Change = void (*)(void* context, std::span<std::byte> node);
    void edit_root_node(uint64_t tree_id, Change change, void* context);

private:
    void write_node(Volume& volume, const BlockRef& ref, std::span<const std::byte> content);
    void write_superblocks(Volume& volume, const BlockRef& root);

    std::vector<std::unique_ptr<SimDevice>> members_;
};

// Every item of the file tree of the last commit.
struct StoredItem {
    Key key;
    ItemBytes payload;
};
std::vector<StoredItem> file_tree_items(Image& image);

}  // namespace cowraid::test
