// SPDX-License-Identifier: MIT
// Deliberately wrong protocols of the array, for tests that must catch them: as fs/volume/commit_mutant.h.
#pragma once

#include <atomic>
#include <cstdint>

namespace cowraid {

enum class ArrayMutant : uint32_t {
    kNone = 0,
    kLateMemoryReused,  // a reader goes on in the memory that requests it gave up still write to
};

#ifdef COWRAID_MUTANTS
// Of this process.
inline std::atomic<ArrayMutant> chosen_array_mutant{ArrayMutant::kNone};

inline bool is_array_mutant(ArrayMutant mutant)
{
    return chosen_array_mutant.load(std::memory_order_relaxed) == mutant;
}
#else
constexpr bool is_array_mutant(ArrayMutant)
{
    return false;
}
#endif

}  // namespace cowraid
