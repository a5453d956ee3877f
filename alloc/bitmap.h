// SPDX-License-Identifier: MIT
// A fixed number of bits, and 256 of them as a value. Not thread-safe: guarded by the owner.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace cowraid {

// Bits 0..255 of something small: the rows of one stripe, one leaf of a tree.
struct Bits256 {
    static constexpr uint32_t kBits = 256;
    std::array<uint64_t, 4> words{};

    // The first bit at or after `from` and below `end` that is set (clear); `end` when there is none.
    [[nodiscard]] uint32_t next_set(uint32_t from, uint32_t end) const;
    [[nodiscard]] uint32_t next_clear(uint32_t from, uint32_t end) const;
    Bits256& operator|=(const Bits256& other)
    {
        for (size_t word = 0; word < words.size(); ++word)
            words[word] |= other.words[word];
        return *this;
    }
};

class Bitmap {
public:
    Bitmap() = default;
    // All clear. Memory of parts that are never touched is not paid for, however large the bitmap.
    explicit Bitmap(uint64_t bit_count);

    [[nodiscard]] uint64_t bit_count() const { return bit_count_; }
    [[nodiscard]] bool test(uint64_t bit) const { return (words_[bit / 64] >> (bit % 64) & 1) != 0; }
    void set(uint64_t first, uint64_t count);
    void clear(uint64_t first, uint64_t count);
    // Whether every (no) bit of the range is set.
    [[nodiscard]] bool all(uint64_t first, uint64_t count) const;
    [[nodiscard]] bool none(uint64_t first, uint64_t count) const;
    [[nodiscard]] uint64_t count(uint64_t first, uint64_t count) const;
    // The first bit at or after `from` and below `end` that is set; `end` when there is none.
    [[nodiscard]] uint64_t next_set(uint64_t from, uint64_t end) const;
    // `count` (1..64) bits from `first` on, the first one lowest.
    [[nodiscard]] uint64_t bits(uint64_t first, uint32_t count) const;

    // Bit i of the range is bit i % 8 of byte i / 8. Bits of the last byte behind the range are zero when
    // stored and not looked at when loaded. `bytes` holds at least (count + 7) / 8.
    void store(uint64_t first, uint64_t count, std::span<uint8_t> bytes) const;
    void load(uint64_t first, uint64_t count, std::span<const uint8_t> bytes);

private:
    struct Free {
        uint64_t bytes;
        void operator()(uint64_t* words) const;
    };
    uint64_t bit_count_ = 0;
    std::unique_ptr<uint64_t[], Free> words_;  // one more than needed, so that bits() may read over the end
};

}  // namespace cowraid
