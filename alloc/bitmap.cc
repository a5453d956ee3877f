// SPDX-License-Identifier: MIT
#include "alloc/bitmap.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/assert.h"
#include "base/out_of_memory.h"
#include "base/units.h"

namespace cowraid {

namespace {

constexpr uint64_t kMappedBytes = 128 * kKiB;

// Calls visit(word index, mask of the range's bits in it) until it returns false. True when it never did.
template <typename Visit> bool for_each_word(uint64_t first, uint64_t count, Visit visit)
{
    const uint64_t end = first + count;
    while (first < end) {
        const uint64_t index = first / 64;
        const uint64_t stop = std::min(end, (index + 1) * 64);
        const uint64_t width = stop - first;
        const uint64_t mask = (width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1) << (first % 64);
        if (!visit(index, mask))
            return false;
        first = stop;
    }
    return true;
}

template <bool kSet> uint32_t next_bit(const std::array<uint64_t, 4>& words, uint32_t from, uint32_t end)
{
    while (from < end) {
        const uint64_t word = kSet ? words[from / 64] : ~words[from / 64];
        const uint64_t rest = word >> (from % 64);
        if (rest != 0)
            return std::min(end, from + static_cast<uint32_t>(std::countr_zero(rest)));
        from = (from / 64 + 1) * 64;
    }
    return end;
}

}  // namespace

uint32_t Bits256::next_set(uint32_t from, uint32_t end) const
{
    return next_bit<true>(words, from, end);
}

uint32_t Bits256::next_clear(uint32_t from, uint32_t end) const
{
    return next_bit<false>(words, from, end);
}

// calloc() of the malloc in use writes zeros to all of it (decision 0010), so large ones come from the
// kernel.
Bitmap::Bitmap(uint64_t bit_count) : bit_count_(bit_count)
{
    const uint64_t bytes = (bit_count / 64 + 2) * sizeof(uint64_t);
    void* words = nullptr;
    if (bytes < kMappedBytes) {
        words = calloc(1, bytes);
    } else {
        words = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (words == MAP_FAILED)
            words = nullptr;
    }
    if (words == nullptr)
        out_of_memory();
    words_ = std::unique_ptr<uint64_t[], Free>(static_cast<uint64_t*>(words), Free{bytes});
}

void Bitmap::Free::operator()(uint64_t* words) const
{
    if (bytes < kMappedBytes)
        free(words);
    else
        munmap(words, bytes);
}

void Bitmap::set(uint64_t first, uint64_t count)
{
    CW_DEBUG_ASSERT(first <= bit_count_ && count <= bit_count_ - first);
    for_each_word(first, count, [&](uint64_t index, uint64_t mask) {
        words_[index] |= mask;
        return true;
    });
}

void Bitmap::clear(uint64_t first, uint64_t count)
{
    CW_DEBUG_ASSERT(first <= bit_count_ && count <= bit_count_ - first);
    for_each_word(first, count, [&](uint64_t index, uint64_t mask) {
        words_[index] &= ~mask;
        return true;
    });
}

bool Bitmap::all(uint64_t first, uint64_t count) const
{
    return for_each_word(first, count,
                         [&](uint64_t index, uint64_t mask) { return (words_[index] & mask) == mask; });
}

bool Bitmap::none(uint64_t first, uint64_t count) const
{
    return for_each_word(first, count,
                         [&](uint64_t index, uint64_t mask) { return (words_[index] & mask) == 0; });
}

uint64_t Bitmap::count(uint64_t first, uint64_t count) const
{
    uint64_t sum = 0;
    for_each_word(first, count, [&](uint64_t index, uint64_t mask) {
        sum += static_cast<uint64_t>(std::popcount(words_[index] & mask));
        return true;
    });
    return sum;
}

uint64_t Bitmap::next_set(uint64_t from, uint64_t end) const
{
    uint64_t found = end;
    for_each_word(from, from < end ? end - from : 0, [&](uint64_t index, uint64_t mask) {
        const uint64_t word = words_[index] & mask;
        if (word != 0)
            found = index * 64 + static_cast<uint64_t>(std::countr_zero(word));
        return word == 0;
    });
    return found;
}

uint64_t Bitmap::bits(uint64_t first, uint32_t count) const
{
    const uint64_t shift = first % 64;
    uint64_t value = words_[first / 64] >> shift;
    if (shift != 0)
        value |= words_[first / 64 + 1] << (64 - shift);
    return count == 64 ? value : value & ((uint64_t{1} << count) - 1);
}

void Bitmap::store(uint64_t first, uint64_t count, std::span<uint8_t> bytes) const
{
    CW_ASSERT(bytes.size() >= divide_up(count, 8));
    for (uint64_t done = 0; done < count; done += 64) {
        const uint64_t part = std::min<uint64_t>(64, count - done);
        const uint64_t value = bits(first + done, static_cast<uint32_t>(part));
        for (uint64_t bit = 0; bit < part; bit += 8)
            bytes[(done + bit) / 8] = static_cast<uint8_t>(value >> bit);
    }
}

void Bitmap::load(uint64_t first, uint64_t count, std::span<const uint8_t> bytes)
{
    CW_ASSERT(bytes.size() >= divide_up(count, 8));
    clear(first, count);
    for (uint64_t done = 0; done < count; done += 8) {
        const uint64_t part = std::min<uint64_t>(8, count - done);
        const uint64_t value = bytes[done / 8] & ((uint64_t{1} << part) - 1);
        const uint64_t at = first + done;
        words_[at / 64] |= value << (at % 64);
        if (at % 64 > 56)
            words_[at / 64 + 1] |= value >> (64 - at % 64);
    }
}

}  // namespace cowraid
