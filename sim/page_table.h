// SPDX-License-Identifier: MIT
// What a simulated member holds: pages, shared by whoever has the same, and tables of them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "base/ref.h"

namespace cowraid {

// From a pool of its own: with the address sanitizer malloc takes as long for one as all that is done with
// it.
struct SimPage : RefCounted<SimPage> {
    static constexpr uint32_t kBytes = 4 * 1024;  // what a write in place copies
    alignas(64) std::byte bytes[kBytes];

    static void* operator new(size_t bytes);
    static void operator delete(void* memory);
};

using SimPageRef = Ref<SimPage>;

// By number. A page that is in the table may be null.
class PageTable {
public:
    [[nodiscard]] size_t size() const { return size_; }
    // Null: not in the table.
    [[nodiscard]] const SimPageRef* find(uint64_t number) const
    {
        const auto found = chunks_.find(number / kChunkPages);
        return found == chunks_.end() ? nullptr : found->second.find(number);
    }
    SimPageRef* find(uint64_t number)
    {
        return const_cast<SimPageRef*>(static_cast<const PageTable*>(this)->find(number));
    }
    [[nodiscard]] bool contains(uint64_t number) const { return find(number) != nullptr; }
    // Adds it, null at first, where it is not in the table.
    SimPageRef& slot(uint64_t number)
    {
        Chunk& chunk = chunks_[number / kChunkPages];
        size_ += chunk.find(number) == nullptr ? 1 : 0;
        chunk.present |= chunk_bit(number);
        return chunk.pages[number % kChunkPages];
    }
    // Nothing changes where there is one.
    void add(uint64_t number, SimPageRef page)
    {
        Chunk& chunk = chunks_[number / kChunkPages];
        if (chunk.find(number) != nullptr)
            return;
        ++size_;
        chunk.present |= chunk_bit(number);
        chunk.pages[number % kChunkPages] = std::move(page);
    }
    void erase(uint64_t number)
    {
        const auto found = chunks_.find(number / kChunkPages);
        if (found == chunks_.end() || found->second.find(number) == nullptr)
            return;
        --size_;
        found->second.present &= ~chunk_bit(number);
        found->second.pages[number % kChunkPages].reset();
        if (found->second.present == 0)
            chunks_.erase(found);
    }
    void clear()
    {
        chunks_.clear();
        size_ = 0;
    }
    // Calls visit(number, page) for all, in any order.
    template <typename Visit> void for_each(Visit visit)
    {
        for (auto& [chunk_number, chunk] : chunks_)
            for (uint32_t rest = chunk.present; rest != 0; rest &= rest - 1) {
                const auto at = static_cast<uint32_t>(std::countr_zero(rest));
                visit(chunk_number * kChunkPages + at, chunk.pages[at]);
            }
    }

private:
    static constexpr uint32_t kChunkPages = 16;
    static uint32_t chunk_bit(uint64_t number) { return uint32_t{1} << number % kChunkPages; }
    struct Chunk {
        uint32_t present = 0;  // a bit for each page
        std::array<SimPageRef, kChunkPages> pages;
        [[nodiscard]] const SimPageRef* find(uint64_t number) const
        {
            return (present & chunk_bit(number)) != 0 ? &pages[number % kChunkPages] : nullptr;
        }
    };

    std::unordered_map<uint64_t, Chunk> chunks_;
    size_t size_ = 0;
};

}  // namespace cowraid
