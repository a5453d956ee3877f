// SPDX-License-Identifier: MIT
#include "tests/fileops/open_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <utility>

namespace cowraid::test {

OpenFile::OpenFile(std::string name, uint64_t base, History& history)
    : model(base), path(std::move(name)), history_(history)
{
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd.valid())
        history_.refused("open to create", -1);
    if (base != 0 && ftruncate(fd.get(), static_cast<off_t>(base)) != 0)
        history_.refused("ftruncate to the base", -1);
    handles_.push_back({Way::kBuffered, std::move(fd)});
}

// What has no name is opened through a descriptor.
void OpenFile::open(Way way)
{
    constexpr int kFlags[]{O_RDWR, O_RDWR | O_DIRECT, O_RDWR | O_APPEND};
    std::string from = path;
    if (path.empty())
        from = "/proc/self/fd/" + std::to_string(handles_.front().fd.get());
    UniqueFd fd(::open(from.c_str(), kFlags[static_cast<int>(way)] | O_CLOEXEC));
    if (!fd.valid())
        history_.refused("open", -1);
    handles_.push_back({way, std::move(fd)});
}

int OpenFile::descriptor(Way way, Prng& random)
{
    const size_t first = random.below(handles_.size());
    for (size_t i = 0; i < handles_.size(); ++i) {
        const Handle& handle = handles_[(first + i) % handles_.size()];
        if (handle.way == way)
            return handle.fd.get();
    }
    if (handles_.size() == kHandlesMax)
        handles_.erase(handles_.begin());
    open(way);
    return handles_.back().fd.get();
}

void OpenFile::reopen(Prng& random)
{
    const size_t closed = random.below(handles_.size());
    const auto way = static_cast<Way>(random.below(kWayCount));
    if (path.empty() || random.chance(1, 2)) {
        open(way);
        handles_.erase(handles_.begin() + static_cast<ptrdiff_t>(closed));
        return;
    }
    // Nothing of it is open for a moment, a mapping aside.
    handles_.clear();
    open(way);
}

std::span<std::byte> OpenFile::mapping(Prng& random)
{
    if (!mapping_.empty())
        return mapping_;
    void* memory = mmap(nullptr, kModelBytesMax, PROT_READ | PROT_WRITE, MAP_SHARED,
                        descriptor(Way::kBuffered, random), static_cast<off_t>(model.base()));
    if (memory == MAP_FAILED)
        history_.refused("mmap", -1);
    return mapping_ = std::span(static_cast<std::byte*>(memory), kModelBytesMax);
}

void OpenFile::unmap()
{
    if (!mapping_.empty())
        munmap(mapping_.data(), mapping_.size());
    mapping_ = {};
}

}  // namespace cowraid::test
