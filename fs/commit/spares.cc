// SPDX-License-Identifier: MIT
// Devices in reserve come, go, and take the place of members that failed.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "device/lineage.h"
#include "device/superblock_store.h"
#include "fs/commit/committer.h"
#include "fs/commit/member_orders.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

constexpr uint64_t kRefusedRestMs = 60'000;
constexpr const char* kNoPlace = "the volume has as many members and spares as it can";

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
        if (!volume_.plan_spare(device_->size_bytes(), own))
            return refuse(Err::kInvalid, why, kNoPlace);
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

// A device that says it is a spare. Whether it may be one again is found out between two commits, when
// nobody writes superblocks; none says anything new then.
class ReturnSpare final : public CommitOrder {
public:
    ReturnSpare(Volume& volume, const Superblock& own, std::unique_ptr<BlockDevice> device)
        : volume_(volume), own_(own), device_(std::move(device))
    {
    }

    Status apply(std::string& why) override
    {
        CW_TRY(check(why));
        CW_LOG_INFO("%s is back: %s", text().c_str(), device_->name());
        volume_.spares().add(id(), std::move(device_));
        return {};
    }
    [[nodiscard]] bool changes() const override { return false; }

private:
    [[nodiscard]] MemberId id() const { return own_.member_id; }
    [[nodiscard]] std::string text() const { return "spare " + std::to_string(id().value); }
    Status check(std::string& why) const
    {
        const Superblock& head = volume_.superblock();
        const MemberRecord* const line = head.spare(id());
        if (!device_ || line == nullptr || line->uuid != own_.spare(id())->uuid)
            return refuse(Err::kInvalid, why,
                          (device_ ? std::string(device_->name()) + " was " + text() : "it is a spare") +
                              " and is none of this volume; cowraid device add -f makes it a new member or "
                              "spare");
        if (!shares_epoch(head, own_))
            return refuse(Err::kInvalid, why, stranger_text(device_->name(), text()));
        if (newer_commit(own_, head))
            return refuse(Err::kInvalid, why,
                          std::string(device_->name()) + " " + kOfLaterCommit +
                              ", or is another device that says it is " + text() +
                              "; cowraid device remove " + std::to_string(id().value) +
                              ", then cowraid device add -f --spare, make it one again");
        const std::string there = volume_.spares().path(id());
        if (!there.empty())
            return refuse(Err::kInvalid, why, text() + " (" + there + ") is there");
        if (device_->size_bytes() < line->size_bytes)
            return refuse(Err::kInvalid, why,
                          std::string(device_->name()) + " is shrunken: it has " +
                              size_text(device_->size_bytes()) + ", " + text() + " had " +
                              size_text(line->size_bytes));
        return {};
    }

    Volume& volume_;
    const Superblock own_;
    std::unique_ptr<BlockDevice> device_;
};

// The smallest one that is there and large enough; null: none.
const MemberRecord* choose_spare(Volume& volume, const std::vector<MemberRecord>& spares, uint64_t size_bytes)
{
    const MemberRecord* best = nullptr;
    for (const MemberRecord& spare : spares)
        if (spare.size_bytes >= size_bytes && volume.spares().device(spare.id) != nullptr &&
            !volume.spares().useless(spare.id) && (best == nullptr || spare.size_bytes < best->size_bytes))
            best = &spare;
    return best;
}

}  // namespace

Status Committer::plan_spare(const std::string& name, uint64_t size_bytes, uint32_t others, std::string& why)
{
    CW_TRY(store.service.check_writable());
    const std::vector<MemberRecord> table = store.volume.member_table();
    if (table.size() + store.volume.spare_table().size() + others >= kMaxMembers)
        return refuse(Err::kInvalid, why, kNoPlace);
    const auto smallest =
        std::min_element(table.begin(), table.end(), [](const MemberRecord& a, const MemberRecord& b) {
            return a.size_bytes < b.size_bytes;
        });
    return check_spare_size(name, size_bytes, smallest->size_bytes, why);
}

Result<MemberId> Committer::add_spare(std::unique_ptr<BlockDevice> device, std::string& why)
{
    const std::string name = device->name();
    CW_TRY(plan_spare(name, device->size_bytes(), 0, why));
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
    MutexLock one_at_a_time(remount_mutex);
    CW_TRY(store.service.check_writable());
    return orders.carry_out(Ref<CommitOrder>(new RemoveSpare(store.volume, id)), why);
}

Result<MemberId> Committer::return_spare(const Superblock& own, std::unique_ptr<BlockDevice> device,
                                         std::string& why)
{
    CW_TRY(orders.carry_out(Ref<CommitOrder>(new ReturnSpare(store.volume, own, std::move(device))), why));
    return own.member_id;
}

// What says that the device is a spare must not lie where its first superblock as a member will be torn by a
// power cut: it moves to the slot of the last commit, which the next one does not overwrite.
Result<std::unique_ptr<BlockDevice>> take_spare(Volume& volume, MemberId spare, std::string& why)
{
    const Superblock& last = volume.superblock();
    BlockDevice* const device = volume.spares().device(spare);
    if (device == nullptr || last.spare(spare) == nullptr) {
        why = "spare " + std::to_string(spare.value) + " is none any more";
        return Err::kBusy;
    }
    if (is_mutant(CommitMutant::kSpareTorn) || move_spare(*device, last, spare).ok())
        return volume.spares().take(spare);
    why = std::string(device->name()) + " cannot be written; use another device";
    return Err::kIo;
}

bool Committer::wants_spare(const MemberRecord& member)
{
    MemberSet& members = store.volume.members();
    if (members.device(member.id) != nullptr)
        return members.doubtful(member.id) && !store.volume.replacing().active() &&
               !store.volume.degraded() && !replace.gave_up(member.id);
    // One that is good for being copied only, and is not to be copied.
    if (members.failure_reason(member.id) == MemberSet::kRepairsDoNotHold && replace.gave_up(member.id))
        return false;
    return !members.leaving(member.id) && is_given_up(member.id);
}

bool Committer::is_given_up(MemberId id)
{
    MemberSet& members = store.volume.members();
    const bool failed = members.failed(id);
    if (!failed && members.idle_device(id) != nullptr)
        return false;  // by order
    const uint64_t wait_ms = uint64_t{store.options.spare_seconds} * 1000;
    return awaited_ms(id) >= wait_ms * (failed ? 1 : kMissingPatience);
}

uint64_t Committer::awaited_ms(MemberId id) const
{
    return std::min(store.volume.members().away_ms(id), monotonic_ms() - writing_since_ms.load());
}

bool Committer::fail_over_budget()
{
    return store.volume.members().fail_over_budget(store.volume.replacing().source);
}

void Committer::use_spares()
{
    Volume& volume = store.volume;
    const std::vector<MemberRecord> spares = volume.spare_table();
    if (spares.empty() || monotonic_ms() < spares_rest_ms || !store.service.check_writable().ok() ||
        !remount_mutex.try_lock())
        return;
    for (const MemberRecord& member : volume.member_table()) {
        BalanceStatus emptying = balance.status();
        if (!emptying.active() || emptying.member != member.id)
            emptying = {};
        // Whoever takes one out meanwhile wants it back: only what was found out of service loses its place.
        const bool serves = volume.members().device(member.id) != nullptr;
        // Of a member that is being replaced the successor takes the place.
        const bool removed = emptying.active() && emptying.shrink_bytes == 0;
        if (removed || volume.replacing().names(member.id) || !wants_spare(member))
            continue;
        const MemberRecord* const spare = choose_spare(volume, spares, member.size_bytes);
        if (spare == nullptr)
            continue;
        const std::string text =
            "spare " + std::to_string(spare->id.value) + " (" + volume.spares().path(spare->id) + ")";
        CW_LOG_WARNING("%s takes the place of %s", text.c_str(), volume.members().name(member.id).c_str());
        std::string why;
        if (emptying.active() && balance.cancel(why).ok())
            CW_LOG_WARNING("%s is not made smaller: a spare is to take its place; begin that again",
                           volume.members().name(member.id).c_str());
        why.clear();
        const Status status = take_place(member.id, serves, nullptr, spare->id, why);
        if (status.ok())
            continue;
        CW_LOG_ERROR("%s is not used: %s", text.c_str(), why.c_str());
        if (status.err() != Err::kIo)
            spares_rest_ms = monotonic_ms() + kRefusedRestMs;
    }
    remount_mutex.unlock();
}

}  // namespace cowraid
