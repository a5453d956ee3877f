// SPDX-License-Identifier: MIT
// Finding the blocks of a piece that together satisfy its ContentCheck, when each block has several
// candidates (copies, or solutions of its row).
#pragma once

#include <cstdint>
#include <vector>

#include "raid56/array.h"

namespace cowraid {

class ContentSearch {
public:
    explicit ContentSearch(const ReadPiece& piece) : piece_(piece), candidates_(piece.block_count) { }

    // Offers content for one block; a repetition of what is offered already is dropped. It must stay
    // unchanged until run() returns.
    void offer(uint32_t block, const std::byte* content);
    // Tries the combinations, those of early offers first, and leaves the accepted one in the piece's
    // memory. Differing candidates multiply, so that it gives up after kMaxTrials.
    [[nodiscard]] bool run();

    // Tries exactly these contents, one per block.
    [[nodiscard]] bool accepts(const std::vector<const std::byte*>& contents);

    // A tree node of four blocks with three different copies each has 81 combinations.
    static constexpr uint32_t kMaxTrials = 1 << 14;

private:
    [[nodiscard]] bool next_choice();
    void place(uint32_t block, const std::byte* content);
    [[nodiscard]] bool matches() const;

    const ReadPiece& piece_;
    std::vector<std::vector<const std::byte*>> candidates_;
    std::vector<uint32_t> choice_;
};

}  // namespace cowraid
