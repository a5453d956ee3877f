// SPDX-License-Identifier: MIT
// Which parts of members may be discarded because no block group has their slots.
#include <algorithm>

#include "base/assert.h"
#include "fs/volume/volume.h"

namespace cowraid {

// The target of a replacement has what its source has, at the same places.
bool Volume::is_free_slot(MemberId member, uint64_t slot) const
{
    return member != shown_.replace.target && slots_.is_free(member, slot);
}

void Volume::discard_free_slots(uint64_t bytes_min)
{
    MutexLock lock(mutex_);
    if (bytes_min == 0)
        freed_.clear();  // they are among all
    for (const MemberRecord& record : shown_.members)
        for (uint64_t first = 0, slot = 0; slot <= record.slot_count; ++slot) {
            if (slot < record.slot_count && is_free_slot(record.id, slot))
                continue;
            if (slot > first && (slot - first) * record.slot_bytes >= bytes_min)
                freed_.push_back({record.id, first, slot - first});
            first = slot + 1;
        }
}

bool Volume::has_free_parts() const
{
    MutexLock lock(mutex_);
    return !freed_.empty() || discarding_;
}

std::optional<MemberPart> Volume::begin_discard(uint64_t bytes_max)
{
    MutexLock lock(mutex_);
    CW_ASSERT(!discarding_);
    for (; !freed_.empty(); freed_.pop_front()) {
        FreedSlots& slots = freed_.front();
        const MemberRecord* const record = shown_.member(slots.member);
        const auto is_free = [&](uint64_t slot) CW_REQUIRES(mutex_) {
            return is_free_slot(slots.member, slot);
        };
        if (record == nullptr || members_.device(slots.member) == nullptr)
            continue;
        for (; slots.count > 0 && !is_free(slots.first); --slots.count, slots.done_bytes = 0)
            ++slots.first;
        if (slots.count == 0)
            continue;
        // To the end of its slot, and with small slots those behind it.
        MemberPart part{slots.member, DeviceOffset{record->slots_offset} + slots.first * record->slot_bytes,
                        std::min(bytes_max, record->slot_bytes - slots.done_bytes)};
        part.offset = part.offset + slots.done_bytes;
        uint64_t taken = 1;
        while (taken < slots.count && part.bytes + record->slot_bytes <= bytes_max &&
               is_free(slots.first + taken)) {
            part.bytes += record->slot_bytes;
            ++taken;
        }
        discarding_ = {slots.member, slots.first, taken, 0};
        const uint64_t end = slots.done_bytes + part.bytes;
        slots.first += end / record->slot_bytes;
        slots.count -= end / record->slot_bytes;
        slots.done_bytes = end % record->slot_bytes;
        return part;
    }
    return {};
}

void Volume::end_discard()
{
    MutexLock lock(mutex_);
    discarding_.reset();
    discarded_.notify_all();
}

void Volume::await_discard()
{
    MutexLock lock(mutex_);
    const auto taken = [&]() CW_REQUIRES(mutex_) {
        for (uint64_t slot = 0; discarding_ && slot < discarding_->count; ++slot)
            if (!is_free_slot(discarding_->member, discarding_->first + slot))
                return true;
        return false;
    };
    while (taken())
        discarded_.wait(mutex_);
}

}  // namespace cowraid
