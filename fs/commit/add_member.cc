// SPDX-License-Identifier: MIT
// A device becomes a member of a mounted volume.
#include <memory>
#include <utility>

#include "base/log.h"
#include "device/superblock_store.h"
#include "fs/commit/committer.h"

namespace cowraid {

namespace {

class AddMember final : public CommitOrder {
public:
    AddMember(Committer& committer, const MemberRecord& record, std::unique_ptr<BlockDevice> device)
        : committer_(committer), record_(record), device_(std::move(device))
    {
    }

    Status apply(std::string& why) override
    {
        Volume& volume = committer_.store.volume;
        if (!volume.may_add_member(record_)) {
            why = "the volume has as many members as it can, or too few of them are in service";
            return Err::kInvalid;
        }
        record_.id = volume.add_member(record_, std::move(device_));
        return {};
    }

    void applied() override
    {
        if (committer_.fsync_log)
            committer_.fsync_log->add_member(record_);
        CW_LOG_INFO("%s is added", committer_.store.volume.members().name(record_.id).c_str());
    }

    [[nodiscard]] MemberId id() const { return record_.id; }

private:
    Committer& committer_;
    MemberRecord record_;
    std::unique_ptr<BlockDevice> device_;
};

std::string mebibytes(uint64_t bytes)
{
    return std::to_string(bytes / kMiB) + " MiB";
}

}  // namespace

Result<MemberId> Committer::add_member(std::unique_ptr<BlockDevice> device, std::string& why)
{
    CW_TRY(store.service.check_writable());
    const std::string name = device->name();
    const auto record = plan_member_layout(device->size_bytes());
    if (!record.ok()) {
        why = name + " has " + mebibytes(device->size_bytes()) + "; members have " +
              mebibytes(kMinMemberBytes) + " to " + mebibytes(kMaxMemberBytes);
        return record.err();
    }
    // What an older volume left there must not look like a commit of this one.
    if (!erase_rings(*device).ok()) {
        why = name + " cannot be written; use another device";
        return Err::kIo;
    }
    const Ref<AddMember> order = make_ref<AddMember>(*this, *record, std::move(device));
    CW_TRY(orders.carry_out(Ref<CommitOrder>(order.get()), why));
    if (store.volume.members().device(order->id()) != nullptr)
        return order->id();
    why = name + " failed while it was added; it is member " + std::to_string(order->id().value) +
          " now, failed: remove it with cowraid device remove";
    return Err::kIo;
}

}  // namespace cowraid
