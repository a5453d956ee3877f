// SPDX-License-Identifier: MIT
// Wrong commit protocols made by tampering with what one member is asked to do.
#pragma once

#include <memory>

#include "device/block_device.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid::test {

class MutantDevice final : public BlockDevice {
public:
    // `first`: this is the first member, the one that some mutants neglect.
    MutantDevice(std::unique_ptr<BlockDevice> inner, CommitMutant mutant, bool first)
        : inner_(std::move(inner)), mutant_(mutant), first_(first)
    {
    }
    [[nodiscard]] uint64_t size_bytes() const override { return inner_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return inner_->name(); }
    void perform(IoRequest& request) override;

private:
    [[nodiscard]] bool drops(const IoRequest& request);
    void pass(IoRequest& request);

    std::unique_ptr<BlockDevice> inner_;
    CommitMutant mutant_;
    bool first_;
    bool superblock_written_ = false;  // since the last flush
};

}  // namespace cowraid::test
