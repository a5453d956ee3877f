// SPDX-License-Identifier: MIT
#include "tests/rowlog/log_image.h"

#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"
#include "format/intent_log.h"

namespace cowraid::test {

uint32_t ContentPool::intern(const std::byte* block)
{
    const auto [known, added] = by_hash_.emplace(checksum_of(block, kBlockBytes), blocks_.size());
    if (added) {
        blocks_.emplace_back(kBlockBytes);
        std::memcpy(blocks_.back().data(), block, kBlockBytes);
    }
    return known->second;
}

class ImageDevice final : public BlockDevice {
public:
    ImageDevice(ImageMembers& members, uint32_t member) : members_(members), member_(member) { }

    [[nodiscard]] uint64_t size_bytes() const override { return uint64_t{members_.blocks_} * kBlockBytes; }
    [[nodiscard]] const char* name() const override { return "image"; }
    void perform(IoRequest& request) override
    {
        request.result = Err::kOk;
        uint64_t block = request.offset.value / kBlockBytes;
        for (const iovec& vector : request.vectors) {
            auto* const memory = static_cast<std::byte*>(vector.iov_base);
            for (size_t at = 0; at < vector.iov_len; at += kBlockBytes, ++block) {
                const auto place = static_cast<uint32_t>(member_ * members_.blocks_ + block);
                if (request.kind == IoKind::kWrite)
                    write(place, memory + at);
                else if (!read(place, memory + at))
                    request.result = Err::kIo;
            }
        }
    }

private:
    bool read(uint32_t place, std::byte* out)
    {
        uint32_t content = (*members_.image_)[place];
        if (content == ContentPool::kUnreadable)
            return false;
        if (members_.mutant_ == RowMutant::kFloorIgnored)
            content = without_floor(content);
        std::memcpy(out, members_.pool_.block(content), kBlockBytes);
        return true;
    }
    void write(uint32_t place, const std::byte* block)
    {
        const uint32_t content = members_.pool_.intern(block);
        (*members_.image_)[place] = content;
        if (members_.writes_ != nullptr)
            members_.writes_->push_back({place, content});
    }
    uint32_t without_floor(uint32_t content)
    {
        const auto [known, added] = members_.floorless_.emplace(content, content);
        if (!added)
            return known->second;
        AlignedBuffer block(kBlockBytes);
        std::memcpy(block.data(), members_.pool_.block(content), kBlockBytes);
        DiskIntentHeader header;
        std::memcpy(&header, block.data(), sizeof header);
        if (header.magic != kIntentMagic)
            return content;
        header.floor = 0;
        std::memcpy(block.data(), &header, sizeof header);
        header.checksum = checksum_of(block.span().subspan(sizeof header.checksum));
        std::memcpy(block.data(), &header, sizeof header);
        return known->second = members_.pool_.intern(block.data());
    }

    ImageMembers& members_;
    const uint32_t member_;
};

ImageMembers::ImageMembers(ContentPool& pool, uint32_t members, uint32_t blocks, RowMutant mutant)
    : pool_(pool), members_(members), blocks_(blocks), mutant_(mutant)
{
}

MemberSet& ImageMembers::show(LogImage& image, uint32_t missing, std::vector<ImageWrite>* writes)
{
    CW_ASSERT(image.size() == size_t{members_} * blocks_);
    image_ = &image;
    writes_ = writes;
    std::unique_ptr<MemberSet>& set = sets_[missing];
    if (set == nullptr) {
        set = std::make_unique<MemberSet>();
        for (uint32_t member = 0; member < members_; ++member) {
            const bool away = (missing >> member & 1) != 0;
            set->add({member + 1}, away ? nullptr : std::make_unique<ImageDevice>(*this, member), {});
        }
    }
    return *set;
}

}  // namespace cowraid::test
