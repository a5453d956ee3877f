// SPDX-License-Identifier: MIT
#include "fs/volume/spares.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace cowraid {

Status check_spare_size(const std::string& name, uint64_t size_bytes, uint64_t least_bytes, std::string& why)
{
    const uint64_t least = std::max(least_bytes, kMinMemberBytes);
    if (size_bytes >= least && size_bytes <= kMaxMemberBytes)
        return {};
    why = name + " has " + size_text(size_bytes) + ", the smallest member has " + size_text(least) +
          "; a spare is not smaller than the member whose place it takes";
    return Err::kInvalid;
}

const Spares::Spare* Spares::find(MemberId id) const
{
    const auto found =
        std::find_if(spares_.begin(), spares_.end(), [=](const Spare& spare) { return spare.id == id; });
    return found == spares_.end() ? nullptr : &*found;
}

void Spares::add(MemberId id, std::unique_ptr<BlockDevice> device)
{
    MutexLock lock(mutex_);
    const std::string path = device->name();
    spares_.push_back({id, std::move(device), path});
}

std::unique_ptr<BlockDevice> Spares::take(MemberId id)
{
    MutexLock lock(mutex_);
    const Spare* const spare = find(id);
    return spare == nullptr ? nullptr : std::move(const_cast<Spare*>(spare)->device);
}

void Spares::set_useless(MemberId id)
{
    MutexLock lock(mutex_);
    if (const Spare* const spare = find(id); spare != nullptr)
        const_cast<Spare*>(spare)->useless = true;
}

std::unique_ptr<BlockDevice> Spares::remove(MemberId id)
{
    std::unique_ptr<BlockDevice> device = take(id);
    MutexLock lock(mutex_);
    std::erase_if(spares_, [=](const Spare& spare) { return spare.id == id; });
    return device;
}

std::string Spares::path(MemberId id) const
{
    MutexLock lock(mutex_);
    const Spare* const spare = find(id);
    return spare == nullptr ? "" : spare->path;
}

BlockDevice* Spares::device(MemberId id) const
{
    MutexLock lock(mutex_);
    const Spare* const spare = find(id);
    return spare == nullptr ? nullptr : spare->device.get();
}

bool Spares::useless(MemberId id) const
{
    MutexLock lock(mutex_);
    const Spare* const spare = find(id);
    return spare != nullptr && spare->useless;
}

}  // namespace cowraid
