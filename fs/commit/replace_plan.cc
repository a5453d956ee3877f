// SPDX-License-Identifier: MIT
// Whether another device may take the place of a member, and what that would take.
#include <algorithm>

#include "base/text.h"
#include "fs/commit/committer.h"
#include "fs/commit/member_orders.h"

namespace cowraid {

namespace {

// Of the groups with a column on the member: what of it is in use, and how many more devices may be lost
// before and after. What is there tolerates as much on the way as before.
void plan_columns(Store& store, MemberId id, BalancePlan& plan)
{
    uint32_t before = UINT32_MAX, after = UINT32_MAX;
    for (const GroupNumbers& numbers : store.allocator.group_numbers(kAllContent)) {
        const Ref<const ArrayGroup> group = store.volume.array().group_at(numbers.address);
        if (!group)
            continue;
        const Geometry& geometry = group->geometry;
        const uint32_t missing = store.volume.array().missing_columns(*group);
        const uint32_t left = group->tolerance - std::min(group->tolerance, missing);
        uint32_t mended = 0;
        for (const GroupColumn& column : group->record.columns) {
            if (column.member != id)
                continue;
            plan.moved_bytes += numbers.live_blocks * kBlockBytes / geometry.data_columns / geometry.sets;
            ++plan.group_count;
            mended = column.stale() || store.volume.members().device(id) == nullptr ? 1 : 0;
        }
        before = std::min(before, left);
        after = std::min(after,
                         group->tolerance - std::min(group->tolerance, missing - std::min(missing, mended)));
    }
    plan.tolerance_before = plan.tolerance_meanwhile = before;
    plan.tolerance_after = after;
}

// Changes nothing.
class MayReplace final : public CommitOrder {
public:
    MayReplace(Committer& committer, MemberId id, std::string name, uint64_t size_bytes)
        : committer_(committer), id_(id), name_(std::move(name)), size_bytes_(size_bytes)
    {
    }

    Status apply(std::string& why) override
    {
        Volume& volume = committer_.store.volume;
        const MemberRecord* const record = volume.superblock().member(id_);
        if (record == nullptr)
            return refuse(Err::kInvalid, why, "there is no member " + std::to_string(id_.value));
        const std::string text = volume.members().name(id_);
        const bool in_service = volume.members().device(id_) != nullptr;
        const ReplaceRecord& replace = volume.superblock().replace;
        if (in_service && replace.active())
            return refuse(Err::kBusy, why,
                          volume.members().name(replace.source) +
                              " is being replaced; wait for its end, or cowraid replace cancel");
        if (replace.names(id_))
            return refuse(Err::kBusy, why,
                          text + " is part of a replacement; cowraid replace cancel ends that");
        if (volume.superblock().balance.member == id_)
            return refuse_emptied(volume, id_, why);
        if (size_bytes_ < record->size_bytes)
            return refuse(Err::kNoSpace, why,
                          name_ + " has " + size_text(size_bytes_) + ", the member " +
                              (in_service ? "has " : "had ") + size_text(record->size_bytes) +
                              "; use one that is not smaller");
        if (in_service && !volume.may_add_member(*record))
            return refuse(Err::kInvalid, why, "the volume has as many members as it can");
        plan_.device = {record->size_bytes, size_bytes_};
        plan_columns(committer_.store, id_, plan_);
        line_ = *record;
        return {};
    }

    [[nodiscard]] bool changes() const override { return false; }
    [[nodiscard]] const BalancePlan& plan() const { return plan_; }
    [[nodiscard]] const MemberRecord& line() const { return line_; }

private:
    Committer& committer_;
    const MemberId id_;
    const std::string name_;
    const uint64_t size_bytes_;
    BalancePlan plan_;
    MemberRecord line_;
};

}  // namespace

Result<MemberRecord> Committer::may_replace(MemberId id, const std::string& name, uint64_t size_bytes,
                                            BalancePlan& plan, std::string& why)
{
    const Ref<MayReplace> order = make_ref<MayReplace>(*this, id, name, size_bytes);
    // Who only looks at a volume that nobody else uses has no commits.
    const bool alone = store.options.manual_commit && store.service.read_only();
    CW_TRY(alone ? order->apply(why) : orders.carry_out(Ref<CommitOrder>(order.get()), why));
    plan = order->plan();
    plan.rate = replace.rate();
    return order->line();
}

Status Committer::plan_replacement(MemberId id, const std::string& name, uint64_t size_bytes, MemberId spare,
                                   BalancePlan& plan, std::string& why)
{
    if (spare.value == 0)
        return may_replace(id, name, size_bytes, plan, why).status();
    MutexLock one_at_a_time(remount_mutex);
    CW_ASSIGN(BlockDevice* const device, spare_device(spare, why));
    return may_replace(id, device->name(), device->size_bytes(), plan, why).status();
}

Result<BlockDevice*> Committer::spare_device(MemberId spare, std::string& why)
{
    BlockDevice* const device = store.volume.spares().device(spare);
    if (device != nullptr)
        return device;
    why = "there is no spare " + std::to_string(spare.value) + ", or it is not there; see cowraid status";
    return Err::kInvalid;
}

}  // namespace cowraid
