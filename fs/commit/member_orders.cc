// SPDX-License-Identifier: MIT
// A device becomes a member of a mounted volume, or takes the place of one that is out of service.
#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/buffer.h"
#include "base/log.h"
#include "base/text.h"
#include "device/superblock_store.h"
#include "fs/commit/committer.h"
#include "fs/commit/member_orders.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

class MayAddMember final : public CommitOrder {
public:
    MayAddMember(Volume& volume, const MemberRecord& record, uint32_t others)
        : volume_(volume), record_(record), others_(others)
    {
    }

    Status apply(std::string& why) override
    {
        if (volume_.may_add_member(record_, others_))
            return {};
        why = "the volume has as many members as it can, or the device is too small for its map";
        return Err::kInvalid;
    }

    [[nodiscard]] bool changes() const override { return false; }

private:
    Volume& volume_;
    const MemberRecord record_;
    const uint32_t others_;
};

class AddMember final : public CommitOrder {
public:
    AddMember(Committer& committer, const MemberRecord& record, std::unique_ptr<BlockDevice> device)
        : committer_(committer), record_(record), device_(std::move(device))
    {
    }

    Status apply(std::string& why) override
    {
        Volume& volume = committer_.store.volume;
        CW_TRY(MayAddMember(volume, record_, 0).apply(why));
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

// The device that the member had is nobody's any more, and its columns lack everything.
class DisownMember final : public CommitOrder {
public:
    DisownMember(Volume& volume, MemberId id) : volume_(volume), id_(id) { }

    Status apply(std::string& why) override
    {
        if (volume_.members().device(id_) != nullptr || volume_.superblock().member(id_) == nullptr) {
            why = volume_.members().name(id_) + " is in service";
            return Err::kInvalid;
        }
        if (volume_.superblock().replace.names(id_)) {
            why = volume_.members().name(id_) + " is part of a replacement; cowraid replace cancel ends that";
            return Err::kBusy;
        }
        if (volume_.superblock().balance.member == id_)
            return refuse_emptied(volume_, id_, why);
        had_ = volume_.members().idle_device(id_);
        was_ = volume_.superblock().member(id_)->uuid;
        uuid_ = volume_.disown_member(id_, blank_);
        return {};
    }

    [[nodiscard]] Uuid was() const { return was_; }
    [[nodiscard]] const std::set<VolumeAddress>& blank() const { return blank_; }
    [[nodiscard]] const BlockDevice* had() const { return had_; }
    // Whether nobody else has done anything about the member since.
    [[nodiscard]] bool stands() const
    {
        const MemberRecord* const record = volume_.superblock().member(id_);
        return record != nullptr && record->uuid == uuid_ && volume_.members().device(id_) == nullptr &&
               volume_.superblock().balance.removed() != id_;
    }

private:
    Volume& volume_;
    const MemberId id_;
    Uuid was_, uuid_;
    std::set<VolumeAddress> blank_;  // groups that disowning changes nothing about
    const BlockDevice* had_ = nullptr;  // null: no device
};

// Nobody took its place in the end: the device that it had may come back. Its columns lack everything still.
class OwnAgain final : public CommitOrder {
public:
    OwnAgain(Volume& volume, MemberId id, Ref<DisownMember> disowned, MemberId spare)
        : volume_(volume), id_(id), disowned_(std::move(disowned)), spare_(spare)
    {
    }

    Status apply(std::string&) override
    {
        if (!disowned_->stands())
            return Err::kBusy;
        // What has failed may say that it is the member, and a mount would not know whom to believe.
        BlockDevice* const failed = volume_.members().idle_device(id_);
        const Superblock& last = volume_.superblock();
        if (failed != nullptr && failed != disowned_->had())
            (last.spare(spare_) != nullptr ? write_spare(*failed, last, spare_) : erase_rings(*failed))
                .ignore();
        volume_.own_again(id_, disowned_->was(), disowned_->blank());
        return {};
    }

    void applied() override { volume_.members().put_back(id_, disowned_->had()); }

private:
    Volume& volume_;
    const MemberId id_;
    const Ref<DisownMember> disowned_;
    const MemberId spare_;  // whose device has failed; 0: of none
};

// All that was written without it is committed, so that who catches up from now on sees it.
class ReplaceMember final : public CommitOrder {
public:
    ReplaceMember(Volume& volume, MemberId id, Ref<DisownMember> disowned,
                  std::unique_ptr<BlockDevice> device, MemberId spare)
        : CommitOrder(When::kAfter),
          volume_(volume),
          id_(id),
          disowned_(std::move(disowned)),
          device_(std::move(device)),
          spare_(spare)
    {
    }

    Status apply(std::string& why) override
    {
        if (!disowned_->stands()) {
            why = "the member was changed meanwhile; see cowraid status";
            return Err::kBusy;
        }
        if (spare_.value != 0) {
            CW_ASSIGN(device_, take_spare(volume_, spare_, why));
        }
        volume_.replace_member(id_, std::move(device_));
        if (spare_.value != 0)
            volume_.use_spare(spare_, id_);
        return {};
    }

    void applied() override
    {
        volume_.members().set_leaving(id_, false);
        if (volume_.superblock().spare(spare_) == nullptr)
            volume_.spares().remove(spare_);
    }

private:
    Volume& volume_;
    const MemberId id_;
    const Ref<DisownMember> disowned_;
    std::unique_ptr<BlockDevice> device_;  // null until then: that of the spare
    const MemberId spare_;  // 0: it is none
};

class GrowMember final : public CommitOrder {
public:
    // `plan`: it only looks.
    GrowMember(Volume& volume, MemberId id, uint64_t wanted_bytes, bool plan)
        : volume_(volume), id_(id), wanted_bytes_(wanted_bytes), plan_(plan)
    {
    }

    Status apply(std::string& why) override
    {
        BlockDevice* const device = volume_.members().device(id_);
        if (device == nullptr) {
            why = "member " + std::to_string(id_.value) + " is not in service";
            return Err::kInvalid;
        }
        if (volume_.superblock().replace.names(id_)) {
            why = volume_.members().name(id_) + " is part of a replacement; wait for its end";
            return Err::kBusy;
        }
        if (volume_.superblock().balance.member == id_)
            return refuse_emptied(volume_, id_, why);
        const uint64_t device_bytes = device->look_at_size();
        const std::string text = volume_.members().name(id_) + " has " + size_text(device_bytes);
        if (wanted_bytes_ > device_bytes && wanted_bytes_ != UINT64_MAX)
            return refuse(Err::kInvalid, why, text + ", which is less than that");
        const uint64_t size_bytes = std::min(wanted_bytes_, device_bytes);
        const MemberRecord* const now = volume_.superblock().member(id_);
        // As large as it is to be.
        if (now != nullptr && wanted_bytes_ == now->size_bytes) {
            size_bytes_ = wanted_bytes_;
            return {};
        }
        MemberRecord grown = now != nullptr ? *now : MemberRecord();
        const bool may = now != nullptr && grow_member_layout(grown, size_bytes).ok();
        size_bytes_ = grown.size_bytes;
        if (plan_ ? !may : !volume_.grow_member(id_, size_bytes))
            return refuse(Err::kInvalid, why,
                          text + ", of which it can use no more than before" + step_text());
        return {};
    }

    void applied() override { size_bytes_ = volume_.superblock().member(id_)->size_bytes; }
    [[nodiscard]] bool changes() const override { return !plan_; }
    [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }

private:
    // The next size that helps; empty: there is none.
    [[nodiscard]] std::string step_text() const
    {
        MemberRecord next = *volume_.superblock().member(id_);
        const uint64_t bytes = next.slots_offset + (next.slot_count + 1) * next.slot_bytes;
        if (!grow_member_layout(next, bytes).ok())
            return "";
        return "; it grows by steps of " + size_text(next.slot_bytes) + ", to " + size_text(bytes) + " next";
    }

    Volume& volume_;
    const MemberId id_;
    const uint64_t wanted_bytes_;
    const bool plan_;
    uint64_t size_bytes_ = 0;
};

}  // namespace

// What another volume, or this one in other days, left there must not look like a commit or an entry of this
// one.
Status erase_for(BlockDevice& device, const MemberRecord& record, MemberId spare)
{
    CW_TRY(erase_logs(device, record));
    if (spare.value == 0)
        return erase_rings(device);  // flushes
    IoRequest flush{.kind = IoKind::kFlush, .device = &device};
    run_io({&flush, 1});
    CW_TRY(flush.result);
    return read_rings(device).status();
}

Status erase_logs(BlockDevice& device, const MemberRecord& record)
{
    AlignedBuffer zeros = AlignedBuffer::zeroed(kMiB);
    for (const auto& [begin, bytes] : {std::pair(record.intent_log_offset, record.intent_log_bytes),
                                       std::pair(record.fsync_log_offset, record.fsync_log_bytes)})
        for (uint64_t done = 0; done < bytes; done += zeros.size())
            CW_TRY(write_device(device, {begin + done},
                                zeros.span().subspan(0, std::min<uint64_t>(zeros.size(), bytes - done))));
    return {};
}

Result<MemberRecord> Committer::plan_member(uint64_t size_bytes, uint32_t others, std::string& why)
{
    CW_TRY(store.service.check_writable());
    auto record = plan_member_layout(size_bytes);
    if (!record.ok()) {
        why = "the device has " + size_text(size_bytes) + "; members have " + size_text(kMinMemberBytes) +
              " to " + size_text(kMaxMemberBytes);
        return record.err();
    }
    CW_TRY(orders.carry_out(Ref<CommitOrder>(new MayAddMember(store.volume, *record, others)), why));
    return record;
}

Result<MemberId> Committer::add_member(std::unique_ptr<BlockDevice> device, std::string& why)
{
    const std::string name = device->name();
    const auto record = plan_member(device->size_bytes(), 0, why);
    if (!record.ok())
        return record.err();
    if (!erase_for(*device, *record).ok()) {
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

Status Committer::replace_member(MemberId id, std::unique_ptr<BlockDevice> device, std::string& why,
                                 MemberId spare)
{
    MutexLock one_at_a_time(remount_mutex);
    if (!device)
        CW_TRY(spare_device(spare, why).status());
    const bool serves = store.volume.members().device(id) != nullptr;
    return take_place(id, serves, std::move(device), spare, why);
}

Status Committer::take_place(MemberId id, bool serves, std::unique_ptr<BlockDevice> device, MemberId spare,
                             std::string& why)
{
    MemberSet& members = store.volume.members();
    const bool of_use = members.failure_reason(id) == MemberSet::kRepairsDoNotHold;
    bool returned = false;
    if (of_use && members.idle_device(id) != nullptr && !store.volume.replacing().active()) {
        const BlockDevice& coming = device ? *device : *store.volume.spares().device(spare);
        BalancePlan ignored;
        CW_TRY(may_replace(id, coming.name(), coming.size_bytes(), ignored, why).status());
        std::string text;
        serves = returned = bring_back(id, nullptr, text).ok();
        if (!serves)
            CW_LOG_WARNING("%s cannot be copied, others have what it had: %s", members.name(id).c_str(),
                           text.c_str());
    }
    const Status status = put_in_place(id, serves, std::move(device), spare, why);
    if (status.err() == Err::kIo && spare.value != 0)
        store.volume.spares().set_useless(spare);
    if (returned && status.ok())
        replace.note_brought_back(id);
    else if (returned)
        members.fail_for_repairs(id);
    return status;
}

Status Committer::put_in_place(MemberId id, bool serves, std::unique_ptr<BlockDevice> device, MemberId spare,
                               std::string& why)
{
    CW_TRY(store.service.check_writable());
    BlockDevice& coming = device ? *device : *store.volume.spares().device(spare);
    const std::string name = coming.name();
    BalancePlan ignored;
    CW_ASSIGN(const MemberRecord record, may_replace(id, name, coming.size_bytes(), ignored, why));
    if (!erase_for(coming, record, spare).ok()) {
        why = name + " cannot be written; use another device";
        return Err::kIo;
    }
    if (serves)
        return replace.start(record, std::move(device), why, spare);
    const Ref<DisownMember> disown = make_ref<DisownMember>(store.volume, id);
    CW_TRY(orders.carry_out(Ref<CommitOrder>(disown.get()), why));
    Status status = orders.carry_out(
        Ref<CommitOrder>(new ReplaceMember(store.volume, id, disown, std::move(device), spare)), why);
    if (status.ok() && store.volume.members().device(id) == nullptr) {
        why = name + " cannot be written; replace the member by another device";
        status = Err::kIo;
    }
    if (!status.ok()) {
        std::string nothing;
        orders.carry_out(Ref<CommitOrder>(new OwnAgain(store.volume, id, disown, spare)), nothing).ignore();
        return status;
    }
    replace.forget(id);
    if (!store.options.manual_commit) {
        catch_up.cancel().ignore();  // of other members: it begins again
        catch_up.start({}).ignore();  // perhaps there is nothing; a mount looks again
    }
    return {};
}

Result<uint64_t> Committer::plan_growth(MemberId id, std::string& why, uint64_t wanted_bytes)
{
    CW_TRY(store.service.check_writable());
    const Ref<GrowMember> order = make_ref<GrowMember>(store.volume, id, wanted_bytes, true);
    CW_TRY(orders.carry_out(Ref<CommitOrder>(order.get()), why));
    return order->size_bytes();
}

Result<uint64_t> Committer::grow_member(MemberId id, std::string& why, uint64_t wanted_bytes)
{
    CW_TRY(store.service.check_writable());
    const Ref<GrowMember> order = make_ref<GrowMember>(store.volume, id, wanted_bytes, false);
    CW_TRY(orders.carry_out(Ref<CommitOrder>(order.get()), why));
    return order->size_bytes();
}

}  // namespace cowraid
