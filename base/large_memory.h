// SPDX-License-Identifier: MIT
// Memory for large buffers, from huge pages and kept for the next user. Fresh pages cost a fault per 4 KiB,
// and the kernel walks as many to do I/O from them: per byte more than checksum and parity together.
#pragma once

#include <cstddef>

namespace cowraid {

// Sizes that large_allocate() takes, in bytes; smaller ones are malloc's business, larger ones mmap's.
inline constexpr size_t kLargeBytesMin = 64 * 1024 + 1;
inline constexpr size_t kLargeBytesMax = 1024 * 1024;

// At least `bytes`, aligned to 4096, content undefined. Null when the kernel has no memory. Thread-safe;
// takes only a lock of rank kMemory.
std::byte* large_allocate(size_t bytes);
// `memory` is from large_allocate(bytes) with the same size.
void large_free(std::byte* memory, size_t bytes);

// From this size on a buffer is mapped by itself.
inline constexpr size_t kHugeBytesMin = 2 * kLargeBytesMax;
// Whole huge pages, content zeros, for one buffer of at least that size. Null when the kernel has no memory.
std::byte* map_huge(size_t bytes);
// `memory` is from map_huge(bytes) with the same size.
void unmap_huge(std::byte* memory, size_t bytes);

// Gives back to the kernel what no allocation has needed since the last call; called now and then.
void large_trim();
// Bytes that both hold from the kernel, in use or kept.
size_t large_bytes_held();

}  // namespace cowraid
