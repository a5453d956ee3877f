// SPDX-License-Identifier: MIT
// A member that was away comes back into service, or is taken out of it, by order of a user.
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

std::string member_text(MemberId id)
{
    return "member " + std::to_string(id.value);
}

// From which commit on a device with that superblock lacks writes that the map knows nothing of; none when
// the map says it all. What a member had when it left service is at most one commit older than what its
// superblocks say: data is flushed before them. One that is further behind is a copy of older days.
Generation lacks_beside_map(const Superblock& head, const Superblock& newest)
{
    if (is_mutant(CommitMutant::kOlderCopyTrusted))
        return {};
    const MemberRecord& line = *head.member(newest.member_id);
    const bool known = std::any_of(head.epochs.begin(), head.epochs.end(), [&](const EpochRecord& record) {
        return record.epoch == newest.epochs.front().epoch;
    });
    // It may hold writes of a commit of its own, which nobody was promised.
    if (!known || newest.generation >= line.missing_since)
        return {1};
    return newest.generation.value + 2 < line.missing_since.value ? newest.generation.next() : Generation{};
}

// A device that says it is a member. Whether it may be one again is found out between two commits, when all
// superblocks rest.
class VetMember final : public CommitOrder {
public:
    VetMember(Volume& volume, RingReading own, std::string name, uint64_t size_bytes)
        : volume_(volume), own_(std::move(own)), name_(std::move(name)), size_bytes_(size_bytes)
    {
    }

    Status apply(std::string& why) override
    {
        forget_take_over(own_, volume_.superblock());
        CW_TRY(check_place(why));
        return check_lineage(why);
    }

    // Again, when the table says since when it was away.
    Status check_place(std::string& why) const
    {
        const Superblock& head = volume_.superblock();
        const MemberRecord* const line = head.member(id());
        const std::string was = name_ + " was " + member_text(id());
        if (line == nullptr)
            return refuse(Err::kInvalid, why,
                          was + " and has been removed; cowraid device add -f makes it a new member");
        if (line->uuid != newest().member(id())->uuid)
            return refuse(Err::kInvalid, why,
                          was + " and has been replaced; cowraid device add -f makes it a new member");
        if (volume_.members().device(id()) != nullptr)
            return refuse(Err::kInvalid, why, volume_.members().name(id()) + " is in service");
        if (head.balance.removed() == id())
            return refuse_emptied(volume_, id(), why);
        if (size_bytes_ < line->size_bytes)
            return refuse(Err::kNoSpace, why,
                          name_ + " is shrunken: it has " + size_text(size_bytes_) + ", " +
                              member_text(id()) + " had " + size_text(line->size_bytes));
        return {};
    }

    [[nodiscard]] MemberId id() const { return newest().member_id; }
    [[nodiscard]] const Superblock& newest() const { return own_.valid.front(); }

private:
    Status check_lineage(std::string& why) const
    {
        std::vector<RingReading> readings;
        std::string in_service;
        for (const MemberId member : volume_.members().ids())
            if (BlockDevice* const device = volume_.members().device(member); device != nullptr)
                if (Result<RingReading> reading = read_rings(*device); reading.ok()) {
                    readings.push_back(reading.take());
                    in_service += std::string(in_service.empty() ? "" : " ") + device->name();
                }
        if (readings.empty())
            return refuse(Err::kIo, why, "no superblock of the mounted members can be read");
        std::vector<const RingReading*> all{&own_};
        for (const RingReading& reading : readings)
            all.push_back(&reading);
        const auto head = std::max_element(readings.begin(), readings.end(),
                                           [](const RingReading& one, const RingReading& other) {
                                               return newer_commit(other.valid.front(), one.valid.front());
                                           });
        if (!shares_epoch(head->valid.front(), newest()))
            return refuse(Err::kInvalid, why, stranger_text(name_, member_text(id())));
        if (follows(*head, own_, all))
            return {};
        return refuse(Err::kInvalid, why,
                      "split brain: " + name_ + " and " + in_service +
                          " were each written without the other. To keep what is mounted: cowraid replace "
                          "start -f " +
                          std::to_string(id().value) + " " + name_ + ", or cowraid device remove " +
                          std::to_string(id().value) + ". To keep the other: unmount, and mount only " +
                          name_ + " and its side with -o degraded, or degraded=force where they are half");
    }

    Volume& volume_;
    RingReading own_;
    const std::string name_;
    const uint64_t size_bytes_;
};

// All that was written without it is committed, so that who catches up from now on sees it.
class ReturnMember final : public CommitOrder {
public:
    ReturnMember(Volume& volume, Ref<VetMember> vetted, std::unique_ptr<BlockDevice> device)
        : CommitOrder(When::kAfter), volume_(volume), vetted_(std::move(vetted)), device_(std::move(device))
    {
    }

    Status apply(std::string& why) override
    {
        CW_TRY(vetted_->check_place(why));
        const MemberId id = vetted_->id();
        if (!device_ && volume_.members().idle_device(id) == nullptr)
            return refuse(Err::kBusy, why, "the member was changed meanwhile; see cowraid status");
        volume_.return_member(id, std::move(device_),
                              lacks_beside_map(volume_.superblock(), vetted_->newest()));
        return {};
    }

    // The target of a replacement stays one.
    void applied() override
    {
        const MemberId id = vetted_->id();
        volume_.members().set_leaving(id, volume_.superblock().replace.target == id);
    }

private:
    Volume& volume_;
    const Ref<VetMember> vetted_;
    std::unique_ptr<BlockDevice> device_;
};

class OfflineMember final : public CommitOrder {
public:
    OfflineMember(Volume& volume, MemberId id) : volume_(volume), id_(id) { }

    Status apply(std::string& why) override
    {
        MemberSet& members = volume_.members();
        if (volume_.superblock().member(id_) == nullptr)
            return refuse(Err::kInvalid, why, "there is no " + member_text(id_));
        if (members.device(id_) == nullptr)
            return refuse(Err::kInvalid, why, members.name(id_) + " is out of service already");
        if (!members.take_offline(id_))
            return refuse(Err::kInvalid, why,
                          "the volume cannot do without " + members.name(id_) +
                              ": see \"May still fail\" in cowraid status");
        CW_LOG_INFO("%s is taken out of service by order", members.name(id_).c_str());
        return {};
    }

private:
    Volume& volume_;
    const MemberId id_;
};

Result<RingReading> read_identity(BlockDevice& device, const Uuid& volume, std::string& why)
{
    const std::string name = device.name();
    Result<RingReading> own = read_rings(device);
    if (own.err() == Err::kNotFound)
        return refuse(Err::kInvalid, why, name + " carries no superblock of a cowraid volume").err();
    if (own.err() == Err::kUnsupported)
        return refuse(Err::kUnsupported, why, name + " needs " + unsupported_reason(device)).err();
    if (!own.ok())
        return refuse(Err::kIo, why, name + " cannot be read; check the device and its cable").err();
    if (own->valid.front().volume_uuid != volume)
        return refuse(Err::kInvalid, why,
                      name + " belongs to volume " + uuid_text(own->valid.front().volume_uuid))
            .err();
    return own;
}

}  // namespace

Result<MemberId> Committer::online_member(MemberId id, std::unique_ptr<BlockDevice> device, std::string& why)
{
    MutexLock one_at_a_time(remount_mutex);
    return bring_back(id, std::move(device), why);
}

Result<MemberId> Committer::bring_back(MemberId id, std::unique_ptr<BlockDevice> device, std::string& why)
{
    CW_TRY(store.service.check_writable());
    Volume& volume = store.volume;
    BlockDevice* const come = device ? device.get() : volume.members().idle_device(id);
    if (come == nullptr) {
        const bool in_service = volume.members().device(id) != nullptr;
        return refuse(Err::kInvalid, why,
                      in_service ? volume.members().name(id) + " is in service"
                                 : member_text(id) + " has no device; attach it and name its device")
            .err();
    }
    const std::string name = come->name();
    CW_ASSIGN(RingReading own, read_identity(*come, volume.identity().uuid, why));
    if (own.valid.front().on_spare())
        return return_spare(own.valid.front(), std::move(device), why);
    const Ref<VetMember> vetted = make_ref<VetMember>(volume, std::move(own), name, come->look_at_size());
    // Then the table says that it is away, and no entry in its logs is needed any more.
    CW_TRY(orders.carry_out(Ref<CommitOrder>(vetted.get()), why));
    CW_TRY(store.service.check_writable());  // its commit may have failed all the same
    id = vetted->id();
    const MemberRecord* const record = vetted->newest().member(id);
    const std::vector<MemberRecord> table = volume.member_table();
    const auto line =
        std::find_if(table.begin(), table.end(), [=](const MemberRecord& have) { return have.id == id; });
    if (line == table.end() || line->uuid != record->uuid)
        return refuse(Err::kBusy, why, "the member was changed meanwhile; see cowraid status").err();
    if (!erase_logs(*come, *line).ok())
        return refuse(Err::kIo, why, name + " cannot be written; check the device, or replace the member")
            .err();
    CW_TRY(orders.carry_out(Ref<CommitOrder>(new ReturnMember(volume, vetted, std::move(device))), why));
    if (volume.members().device(id) == nullptr)
        return refuse(Err::kIo, why, name + " failed again; see the system log").err();
    CW_LOG_INFO("%s is back in service", volume.members().name(id).c_str());
    if (!store.options.manual_commit) {
        catch_up.cancel().ignore();  // of other members: it begins again
        catch_up.start({}).ignore();  // perhaps there is nothing; a mount looks again
    }
    return id;
}

Status Committer::offline_member(MemberId id, std::string& why)
{
    CW_TRY(store.service.check_writable());
    return orders.carry_out(Ref<CommitOrder>(new OfflineMember(store.volume, id)), why);
}

}  // namespace cowraid
