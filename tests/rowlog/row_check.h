// SPDX-License-Identifier: MIT
// Whether a recovered state still has every block that was promised, whatever is lost next.
#pragma once

#include <unordered_map>

#include "tests/rowlog/row_code.h"
#include "tests/rowlog/row_world.h"

namespace cowraid::test {

struct RowVerdict {
    uint64_t checks = 0;  // choices of members lost afterwards
    uint64_t losses = 0;  // ... of which lose a promised block
    uint64_t complaints = 0;  // rows that the offline check would name
    uint64_t last_resorts = 0;  // checks that needed blocks which are not what is recorded
    bool slow = false;  // every reconstruction was tried
    std::string loss;
};

class RowCheck {
public:
    explicit RowCheck(const RowWorld& world)
        : world_(world), losses_(small_sets(world.members(), world.run.parity))
    {
    }

    // Promised from now on: what was there before and was not written since, and `acknowledged` blocks.
    void want(uint32_t row, Mask acknowledged);
    // The promised data columns, by row.
    [[nodiscard]] const RowMasks& wanted() const { return wanted_; }
    // Up to `losses_left` members more are lost. Checksums decide: a block that is not what is recorded of it
    // is no input of a reader, except, with `last_resort`, where nothing else is left. Where a row is a code
    // word with the promised blocks in it, as recorded, any of them can be lost; else, and if `slow`, every
    // loss is tried the way a read would go. `untouched`: nothing is rotten, so that the offline check must
    // find nothing; it is silent about free blocks where all parity is away.
    struct How {
        bool last_resort = false, slow = false, untouched = false;
    };
    RowVerdict verify(const State& state, const Recorded& recorded, Mask missing, uint32_t losses_left,
                      const How& how);

private:
    [[nodiscard]] CodeRow load(const State& state, uint32_t row) const;
    [[nodiscard]] Mask unrecorded(const State& state, const Recorded& recorded, uint32_t row) const;
    [[nodiscard]] Mask columns_of(uint32_t row, Mask members) const;
    [[nodiscard]] bool closes(const State& state, uint32_t row, Mask away, const CodeRow& code);

    const RowWorld& world_;
    const std::vector<Mask> losses_;
    RowMasks wanted_{}, acknowledged_{};
    std::unordered_map<uint64_t, bool> closed_;  // by all that is_code_word() looks at
};

}  // namespace cowraid::test
