// SPDX-License-Identifier: MIT
// Memory for large buffers in builds with the address sanitizer, whose own allocator maps and unmaps each of
// them: fresh pages take a tenth of the time of the tests. Here what was freed is poisoned and taken again
// after much other memory was freed.
#pragma once

#include <cstddef>

namespace cowraid {

// Sizes that poisoned_allocate() takes, in bytes: the sanitizer keeps smaller ones itself.
inline constexpr size_t kPoisonedBytesMin = 96 * 1024;
inline constexpr size_t kPoisonedBytesMax = 2 * 1024 * 1024;
// Freed memory of each size class that nobody is given yet.
inline constexpr size_t kPoisonedKeptBytes = 8 * 1024 * 1024;

// Aligned to 4096, content undefined, poison around it. Null when there is no memory. Thread-safe; takes only
// a lock of rank kMemory.
std::byte* poisoned_allocate(size_t bytes);
// `memory` is from poisoned_allocate(bytes) with the same size. Who touches it from now on is reported.
void poisoned_free(std::byte* memory, size_t bytes);

// Who touches these bytes from now on is reported; from now on nobody is. Nothing without the sanitizer.
void poison(const void* memory, size_t bytes);
void unpoison(const void* memory, size_t bytes);

}  // namespace cowraid
