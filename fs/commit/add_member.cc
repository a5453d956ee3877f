// SPDX-License-Identifier: MIT
// A device becomes a member of a mounted volume.
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/text.h"
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
            why = "the volume has as many members as it can, or the device is too small for its map";
            return Err::kInvalid;
        }
        record_.id = volume.add_member(record_, std::move(device_));
        return {};
    }

    void applied() override
    {
        if (committer_.store.volume.superblock().member(record_.id) == nullptr)
            return;
        added_ = true;
        if (committer_.fsync_log)
            committer_.fsync_log->add_member(record_);
        CW_LOG_INFO("%s is added", committer_.store.volume.members().name(record_.id).c_str());
    }

    [[nodiscard]] bool added() const { return added_; }
    [[nodiscard]] MemberId id() const { return record_.id; }

private:
    Committer& committer_;
    MemberRecord record_;
    std::unique_ptr<BlockDevice> device_;
    bool added_ = false;
};

}  // namespace

Result<MemberId> Committer::add_member(std::unique_ptr<BlockDevice> device, std::string& why)
{
    CW_TRY(store.service.check_writable());
    const std::string name = device->name();
    const auto record = plan_member_layout(device->size_bytes());
    if (!record.ok()) {
        why = name + " has " + size_text(device->size_bytes()) + "; members have " +
              size_text(kMinMemberBytes) + " to " + size_text(kMaxMemberBytes);
        return record.err();
    }
    // What an older volume left there must not look like a commit of this one.
    if (!erase_rings(*device).ok()) {
        why = name + " cannot be written; use another device";
        return Err::kIo;
    }
    const Ref<AddMember> order = make_ref<AddMember>(*this, *record, std::move(device));
    CW_TRY(orders.carry_out(Ref<CommitOrder>(order.get()), why));
    if (order->added())
        return order->id();
    why = name + " failed while it was added, or too many members did: it is no member; see the system log";
    return Err::kIo;
}

}  // namespace cowraid
