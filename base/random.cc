// SPDX-License-Identifier: MIT
#include "base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/assert.h"

namespace cowraid {

void random_bytes(void* out, size_t bytes)
{
    auto* at = static_cast<unsigned char*>(out);
    while (bytes > 0) {
        const ssize_t got = getrandom(at, bytes, 0);
        CW_ASSERT(got > 0 || errno == EINTR);
        if (got > 0) {
            at += got;
            bytes -= static_cast<size_t>(got);
        }
    }
}

uint64_t random_u64()
{
    uint64_t value;
    random_bytes(&value, sizeof value);
    return value;
}

uint64_t Prng::next()
{
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t Prng::below(uint64_t bound)
{
    CW_ASSERT(bound != 0);
    return next() % bound;
}

uint64_t Prng::between(uint64_t low, uint64_t high)
{
    CW_ASSERT(low <= high);
    return low + below(high - low + 1);
}

bool Prng::chance(uint64_t numerator, uint64_t denominator)
{
    return below(denominator) < numerator;
}

void Prng::fill(void* out, size_t bytes)
{
    auto* at = static_cast<unsigned char*>(out);
    // Whole words: memcpy() of a size that is not constant is a call, which a sanitizer checks each time.
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), at += sizeof(uint64_t)) {
        const uint64_t value = next();
        std::memcpy(at, &value, sizeof value);
    }
    if (bytes > 0) {
        const uint64_t value = next();
        std::memcpy(at, &value, bytes);
    }
}

}  // namespace cowraid
