// SPDX-License-Identifier: MIT
// Devices in reserve come, go, and take the place of members that failed.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "device/superblock_store.h"
#include "fs/commit/committer.h"

namespace cowraid {

namespace {

class AddSpare final : public CommitOrder {
public:
    AddSpare(Volume& volume, std::unique_ptr<BlockDevice> device)
        : volume_(volume), device_(std::move(device))
    {
    }

    // The device first: no superblock names a spare that a mount does not find.
    Status apply(std::string& why) override
    {
        Superblock own;
        const std::string name = device_->name();
        if (!volume_.plan_spare(device_->size_bytes(), own)) {
            why = "the volume has as many members and spares as it can";
            return Err::kInvalid;
        }
        id_ = own.spares.back().id;
        if (!write_spare(*device_, own, id_).ok()) {
            why = name + " cannot be written; use another device";
            return Err::kIo;
        }
        volume_.add_spare(own);
        return {};
    }

    void applied() override
    {
        CW_LOG_INFO("%s is spare %u", device_->name(), id_.value);
        volume_.spares().add(id_, std::move(device_));
    }

    [[nodiscard]] MemberId id() const { return id_; }

private:
    Volume& volume_;
    std::unique_ptr<BlockDevice> device_;
    MemberId id_;
};

class RemoveSpare final : public CommitOrder {
public:
    RemoveSpare(Volume& volume, MemberId id) : volume_(volume), id_(id) { }

    Status apply(std::string& why) override
    {
        if (volume_.superblock().spare(id_) == nullptr) {
            why = "there is no spare " + std::to_string(id_.value);
            return Err::kInvalid;
        }
        volume_.drop_spare(id_);
        return {};
    }

    void applied() override
    {
        const std::unique_ptr<BlockDevice> device = volume_.spares().remove(id_);
        const bool erased = device && erase_rings(*device).ok();
        CW_LOG_INFO("spare %u is removed%s", id_.value, erased ? "; its superblocks are erased" : "");
    }

private:
    Volume& volume_;
    const MemberId id_;
};

// The smallest one that is there and large enough; null: none.
const MemberRecord* choose_spare(Volume& volume, const std::vector<MemberRecord>& spares, uint64_t size_bytes)
{
    const MemberRecord* best = nullptr;
    for (const MemberRecord& spare : spares)
        if (spare.size_bytes >= size_bytes && volume.spares().available(spare.id) &&
            (best == nullptr || spare.size_bytes < best->size_bytes))
            best = &spare;
    return best;
}

}  // namespace

Result<MemberId> Committer::add_spare(std::unique_ptr<BlockDevice> device, std::string& why)
{
    CW_TRY(store.service.check_writable());
    const std::string name = device->name();
    const std::vector<MemberRecord> table = store.volume.member_table();
    const auto smallest =
        std::min_element(table.begin(), table.end(), [](const MemberRecord& a, const MemberRecord& b) {
            return a.size_bytes < b.size_bytes;
        });
    const uint64_t least = std::max(smallest->size_bytes, kMinMemberBytes);
    if (device->size_bytes() < least || device->size_bytes() > kMaxMemberBytes) {
        why = name + " has " + size_text(device->size_bytes()) + ", the smallest member has " +
              size_text(least) + "; a spare is not smaller than the member whose place it takes";
        return Err::kInvalid;
    }
    if (!erase_rings(*device).ok()) {
        why = name + " cannot be written; use another device";
        return Err::kIo;
    }
    const Ref<AddSpare> order = make_ref<AddSpare>(store.volume, std::move(device));
    CW_TRY(orders.carry_out(Ref<CommitOrder>(order.get()), why));
    return order->id();
}

Status Committer::remove_spare(MemberId id, std::string& why)
{
    CW_TRY(store.service.check_writable());
    return orders.carry_out(Ref<CommitOrder>(new RemoveSpare(store.volume, id)), why);
}

bool Committer::wants_spare(const MemberRecord& member)
{
    MemberSet& members = store.volume.members();
    if (members.device(member.id) != nullptr || members.leaving(member.id))
        return false;
    if (members.failed(member.id) || member.state == MemberState::kFailed)
        return true;
    // Out by order it has its device still.
    return members.idle_device(member.id) == nullptr &&
           monotonic_ms() - begun_ms >= uint64_t{store.options.spare_seconds} * 1000;
}

void Committer::use_spares()
{
    Volume& volume = store.volume;
    const std::vector<MemberRecord> spares = volume.spare_table();
    if (spares.empty() || !store.service.check_writable().ok() || !remount_mutex.try_lock())
        return;
    for (const MemberRecord& member : volume.member_table()) {
        const BalanceStatus removal = balance.status();
        // Of a member that is being replaced the successor takes the place.
        const ReplaceRecord replacing = volume.replacing();
        const bool spoken_for =
            (removal.active() && removal.member == member.id) ||
            (replacing.active() && (replacing.source == member.id || replacing.target == member.id));
        if (spoken_for || !wants_spare(member))
            continue;
        const MemberRecord* const spare = choose_spare(volume, spares, member.size_bytes);
        std::unique_ptr<BlockDevice> device = spare == nullptr ? nullptr : volume.spares().take(spare->id);
        if (!device)
            continue;
        const std::string text = "spare " + std::to_string(spare->id.value) + " (" + device->name() + ")";
        CW_LOG_WARNING("%s takes the place of %s", text.c_str(), volume.members().name(member.id).c_str());
        std::string why;
        if (put_in_place(member.id, std::move(device), spare->id, why).ok())
            continue;
        volume.spares().set_useless(spare->id);
        CW_LOG_ERROR("%s is of no use: %s", text.c_str(), why.c_str());
    }
    remount_mutex.unlock();
}

}  // namespace cowraid
