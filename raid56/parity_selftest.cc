// SPDX-License-Identifier: MIT
#include "raid56/parity_selftest.h"

#include <cstring>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "raid56/parity.h"

namespace cowraid {

namespace {

// The columns of one made-up stripe, twice: as they must be, and as the functions under test leave them.
class Trial {
public:
    Trial(uint32_t k, uint32_t m, size_t bytes)
        : k_(k), m_(m), bytes_(bytes), right_(size_t{k + m} * bytes), work_(size_t{k + m} * bytes)
    {
        Prng prng(k * 1000003u + m * 1009u + bytes);
        prng.fill(right_.data(), right_.size());
        for (size_t column = 0; column < size_t{k} + m; ++column)
            pointers_.push_back(work_.data() + column * bytes);
        std::vector<std::byte*> parity;
        for (uint32_t p = 0; p < m; ++p)
            parity.push_back(right_.data() + (size_t{k} + p) * bytes);
        parity_generate_reference(data_of(right_), parity, bytes);
    }

    bool generates(const ParityFunctions& functions)
    {
        std::memcpy(work_.data(), right_.data(), work_.size());
        scribble(k_, k_ + m_);
        functions.generate(data_of(work_), std::span(pointers_).subspan(k_), bytes_);
        return right();
    }

    bool recovers(const ParityFunctions& functions, std::span<const uint32_t> erased)
    {
        std::memcpy(work_.data(), right_.data(), work_.size());
        for (const uint32_t column : erased)
            scribble(column, column + 1);
        functions.recover(pointers_, k_, erased, bytes_);
        return right();
    }

    // Parity of nothing, then one column after the other.
    bool adds(const ParityFunctions& functions)
    {
        std::memcpy(work_.data(), right_.data(), work_.size());
        std::memset(work_.data() + size_t{k_} * bytes_, 0, size_t{m_} * bytes_);
        for (uint32_t column = 0; column < k_; ++column)
            functions.add(column, pointers_[column], std::span(pointers_).subspan(k_), bytes_);
        return right();
    }

private:
    [[nodiscard]] std::vector<const std::byte*> data_of(const AlignedBuffer& buffer) const
    {
        std::vector<const std::byte*> data;
        for (size_t column = 0; column < k_; ++column)
            data.push_back(buffer.data() + column * bytes_);
        return data;
    }
    void scribble(size_t first, size_t end)
    {
        std::memset(work_.data() + first * bytes_, 0xa5, (end - first) * bytes_);
    }
    // Inputs must have stayed as they were, too.
    [[nodiscard]] bool right() const { return std::memcmp(work_.data(), right_.data(), work_.size()) == 0; }

    uint32_t k_;
    uint32_t m_;
    size_t bytes_;
    AlignedBuffer right_;
    AlignedBuffer work_;
    std::vector<std::byte*> pointers_;
};

bool width_works(const ParityFunctions& functions, uint32_t k, uint32_t m, size_t bytes)
{
    Trial trial(k, m, bytes);
    if (!trial.generates(functions) || !trial.adds(functions))
        return false;
    for (uint32_t first = 0; first < k + m; ++first) {
        const uint32_t one[] = {first};
        if (!trial.recovers(functions, one))
            return false;
        for (uint32_t second = first + 1; m > 1 && second < k + m; ++second) {
            const uint32_t two[] = {first, second};
            if (!trial.recovers(functions, two))
                return false;
        }
    }
    return true;
}

}  // namespace

bool parity_selftest_of(const ParityFunctions& functions)
{
    constexpr uint32_t kWidths[] = {1, 2, 3, 6, 13};
    // One vector register, an odd number of them, and enough for every unrolled loop.
    constexpr size_t kLengths[] = {64, 448, 1024};
    for (const uint32_t k : kWidths)
        for (uint32_t m = 1; m <= kMaxParity; ++m)
            for (const size_t bytes : kLengths)
                if (!width_works(functions, k, m, bytes))
                    return false;
    return true;
}

bool parity_selftest()
{
    return parity_selftest_of({parity_generate, parity_recover, parity_add});
}

}  // namespace cowraid
