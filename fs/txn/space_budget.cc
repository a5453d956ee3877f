// SPDX-License-Identifier: MIT
#include "fs/txn/space_budget.h"

#include <algorithm>

#include "base/assert.h"

namespace cowraid {

namespace {

uint64_t left_of(uint64_t reserve, Leave leave, bool nodes_have_parity)
{
    if (leave == Leave::kReserve)
        return reserve;
    return leave == Leave::kMoves && nodes_have_parity ? reserve / 2 : 0;
}

bool has_room(const MetadataRoom& room, const NodeBound& bound, uint64_t returning, Leave leave)
{
    const uint64_t left = left_of(room.reserve_blocks, leave, room.nodes_have_parity);
    if (!room.system_apart)
        return bound.file_blocks + bound.system_blocks + std::max(left, bound.early_blocks) <=
               room.free_blocks + returning;
    const uint64_t system_left =
        std::max(left_of(room.system_reserve_blocks, leave, room.nodes_have_parity), bound.early_blocks);
    return bound.file_blocks + left <= room.free_blocks + returning &&
           bound.system_blocks + system_left <= room.system_free_blocks + returning;
}

}  // namespace

void SpaceBudget::set_metadata_room(const MetadataRoom& room)
{
    MutexLock lock(mutex_);
    room_ = room;
}

bool SpaceBudget::promise_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    if (promised_ + blocks > data_room_)
        return false;
    promised_ += blocks;
    return true;
}

void SpaceBudget::force_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    promised_ += blocks;
}

void SpaceBudget::return_data(uint64_t blocks)
{
    MutexLock lock(mutex_);
    CW_ASSERT(blocks <= promised_);
    promised_ -= blocks;
}

void SpaceBudget::data_taken(uint64_t blocks, uint64_t room)
{
    MutexLock lock(mutex_);
    CW_ASSERT(blocks <= promised_);
    promised_ -= blocks;
    data_room_ = room;
}

bool SpaceBudget::try_lower_room(uint64_t room)
{
    MutexLock lock(mutex_);
    if (promised_ > room)
        return false;
    data_room_ = std::min(data_room_, room);
    return true;
}

uint64_t SpaceBudget::data_available() const
{
    MutexLock lock(mutex_);
    return data_room_ > promised_ ? data_room_ - promised_ : 0;
}

SpaceBudget::ClaimMark SpaceBudget::claim_mark() const
{
    MutexLock lock(mutex_);
    return {given_up_};
}

bool SpaceBudget::fits(PendingChanges pending, const ClaimMark& mark, Leave leave) const
{
    pending += made_;
    pending -= mark.given_up;
    return has_room(room_, node_bound(room_, pending), 0, leave);
}

bool SpaceBudget::try_claim(const PendingChanges& own, const PendingChanges& pending, const ClaimMark& mark,
                            Leave leave)
{
    MutexLock lock(mutex_);
    PendingChanges all = pending;
    all += own;
    if (!fits(all, mark, leave))
        return false;
    made_ += own;
    return true;
}

void SpaceBudget::claim(const PendingChanges& own)
{
    MutexLock lock(mutex_);
    made_ += own;
}

void SpaceBudget::give_up(const PendingChanges& own)
{
    MutexLock lock(mutex_);
    given_up_ += own;
}

bool SpaceBudget::fits_alone(const PendingChanges& changes, uint64_t returning) const
{
    MutexLock lock(mutex_);
    return has_room(room_, node_bound(room_, changes), returning, Leave::kReserve);
}

MetadataRoom SpaceBudget::metadata_room() const
{
    MutexLock lock(mutex_);
    return room_;
}

bool SpaceClaim::take(const PendingChanges& own, const PendingChanges& pending,
                      const SpaceBudget::ClaimMark& mark, Leave leave)
{
    if (!budget_.try_claim(own, pending, mark, leave))
        return false;
    own_ = own;
    return true;
}

void RoomGate::wait_open()
{
    if (!closed_.load(std::memory_order_acquire))
        return;
    MutexLock lock(mutex_);
    while (closed_)
        opened_.wait(mutex_);
}

bool RoomGate::refused(uint64_t mark, uint64_t wanted) const
{
    return refused_closing_ > mark && wanted >= refused_wanted_;
}

bool RoomGate::refused_since(uint64_t mark, uint64_t wanted) const
{
    MutexLock lock(mutex_);
    return refused(mark, wanted);
}

bool RoomGate::close(uint64_t mark, uint64_t wanted)
{
    MutexLock lock(mutex_);
    while (closed_)
        opened_.wait(mutex_);
    if (refused(mark, wanted))
        return false;
    ++closings_;
    closed_ = true;
    return true;
}

void RoomGate::open()
{
    MutexLock lock(mutex_);
    closed_ = false;
    opened_.notify_all();
}

void RoomGate::open_refused(uint64_t wanted)
{
    MutexLock lock(mutex_);
    refused_closing_ = closings_;
    refused_wanted_ = wanted;
    closed_ = false;
    opened_.notify_all();
}

}  // namespace cowraid
