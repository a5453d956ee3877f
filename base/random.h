// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

namespace cowraid {

// From the kernel's random source; aborts when that fails.
void random_bytes(void* out, size_t bytes);
uint64_t random_u64();

// A seeded generator for tests and simulations (splitmix64, Steele, Lea and Flood, OOPSLA 2014): the same
// seed gives the same sequence everywhere. Not for secrets.
class Prng {
public:
    explicit Prng(uint64_t seed) : state_(seed) { }

    uint64_t next();
    // Uniform in [0, bound); bound must not be 0.
    uint64_t below(uint64_t bound);
    // Uniform in [low, high].
    uint64_t between(uint64_t low, uint64_t high);
    // True with probability numerator/denominator.
    bool chance(uint64_t numerator, uint64_t denominator);
    void fill(void* out, size_t bytes);

private:
    uint64_t state_;
};

}  // namespace cowraid
