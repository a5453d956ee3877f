// SPDX-License-Identifier: MIT
#include "device/member_set.h"

#include <algorithm>

#include "base/assert.h"

namespace cowraid {

struct MemberSet::Member {
    MemberId id;
    std::unique_ptr<BlockDevice> device;  // kept after a failure: others may still be inside perform()
    std::atomic<BlockDevice*> in_service{nullptr};
    std::atomic<bool> failed{false};
    std::array<std::atomic<uint64_t>, kMemberCounterCount> counters{};
};

const char* member_counter_name(MemberCounter counter)
{
    switch (counter) {
    case MemberCounter::kWriteErrors:
        return "write_errors";
    case MemberCounter::kReadErrors:
        return "read_errors";
    case MemberCounter::kFlushErrors:
        return "flush_errors";
    case MemberCounter::kCorruption:
        return "corruption_errors";
    case MemberCounter::kGeneration:
        return "generation_errors";
    case MemberCounter::kParity:
        return "parity_errors";
    case MemberCounter::kSuperblock:
        return "superblock_errors";
    case MemberCounter::kRepaired:
        return "repaired_blocks";
    }
    return "unknown";
}

MemberSet::MemberSet() = default;
MemberSet::~MemberSet() = default;

void MemberSet::add(MemberId id, std::unique_ptr<BlockDevice> device, const MemberCounters& counters)
{
    CW_ASSERT(id.value != 0 && find(id) == nullptr);
    auto member = std::make_unique<Member>();
    member->id = id;
    member->in_service.store(device.get(), std::memory_order_release);
    member->device = std::move(device);
    for (size_t index = 0; index < counters.size(); ++index)
        member->counters[index].store(counters[index], std::memory_order_relaxed);
    const auto place = std::lower_bound(members_.begin(), members_.end(), id,
                                        [](const auto& have, MemberId want) { return have->id < want; });
    members_.insert(place, std::move(member));
}

MemberSet::Member* MemberSet::find(MemberId id) const
{
    const auto place = std::lower_bound(members_.begin(), members_.end(), id,
                                        [](const auto& have, MemberId want) { return have->id < want; });
    return place != members_.end() && (*place)->id == id ? place->get() : nullptr;
}

BlockDevice* MemberSet::device(MemberId id) const
{
    const Member* member = find(id);
    return member == nullptr ? nullptr : member->in_service.load(std::memory_order_acquire);
}

bool MemberSet::mark_failed(MemberId id)
{
    Member* member = find(id);
    if (member == nullptr || member->device == nullptr)
        return false;
    const bool first = !member->failed.exchange(true, std::memory_order_acq_rel);
    member->in_service.store(nullptr, std::memory_order_release);
    return first;
}

bool MemberSet::failed(MemberId id) const
{
    const Member* member = find(id);
    return member != nullptr && member->failed.load(std::memory_order_acquire);
}

std::vector<MemberId> MemberSet::ids() const
{
    std::vector<MemberId> all;
    all.reserve(members_.size());
    for (const auto& member : members_)
        all.push_back(member->id);
    return all;
}

void MemberSet::count(MemberId id, MemberCounter counter, uint64_t amount)
{
    if (Member* member = find(id); member != nullptr)
        member->counters[static_cast<size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
}

MemberCounters MemberSet::counters(MemberId id) const
{
    MemberCounters now{};
    if (const Member* member = find(id); member != nullptr) {
        for (size_t index = 0; index < now.size(); ++index)
            now[index] = member->counters[index].load(std::memory_order_relaxed);
    }
    return now;
}

void MemberSet::reset_counters(MemberId id)
{
    if (Member* member = find(id); member != nullptr) {
        for (auto& counter : member->counters)
            counter.store(0, std::memory_order_relaxed);
    }
}

}  // namespace cowraid
