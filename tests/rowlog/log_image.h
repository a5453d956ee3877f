// SPDX-License-Identifier: MIT
// Members of a few blocks, as indexes into a pool of contents: a crash state that is copied in no time.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "device/member_set.h"
#include "tests/rowlog/row_mutant.h"

namespace cowraid::test {

// By member, then block.
using LogImage = std::vector<uint32_t>;

class ContentPool {
public:
    static constexpr uint32_t kUnreadable = UINT32_MAX;  // reading it is an error, writing heals it

    uint32_t intern(const std::byte* block);
    [[nodiscard]] const std::byte* block(uint32_t index) const { return blocks_[index].data(); }
    [[nodiscard]] size_t size() const { return blocks_.size(); }

private:
    std::vector<AlignedBuffer> blocks_;
    std::unordered_map<uint64_t, uint32_t> by_hash_;
};

struct ImageWrite {
    uint32_t place;
    uint32_t content;
};

// Devices that show one image after another.
class ImageMembers {
public:
    ImageMembers(ContentPool& pool, uint32_t members, uint32_t blocks, RowMutant mutant);

    // A set in which the members of `missing` are away; they read and write `image`. Writes are noted in
    // `writes` as well. Valid until the next call.
    MemberSet& show(LogImage& image, uint32_t missing, std::vector<ImageWrite>* writes);

private:
    friend class ImageDevice;

    ContentPool& pool_;
    const uint32_t members_, blocks_;
    const RowMutant mutant_;
    std::unordered_map<uint32_t, std::unique_ptr<MemberSet>> sets_;  // by what is missing
    std::unordered_map<uint32_t, uint32_t> floorless_;  // descriptors as a scan sees them that ignores floors
    LogImage* image_ = nullptr;
    std::vector<ImageWrite>* writes_ = nullptr;
};

}  // namespace cowraid::test
