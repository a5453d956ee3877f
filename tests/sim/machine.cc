// SPDX-License-Identifier: MIT
#include "tests/sim/machine.h"

#include <algorithm>

#include "device/assembly.h"
#include "fs/make_volume.h"

namespace cowraid::test {

void PluggedDisk::perform(IoRequest& request)
{
    if (request.kind == IoKind::kWrite) {
        const uint64_t end = std::min(request.offset.value + request.bytes(), size_bytes());
        for (uint64_t unit = request.offset.value / kUnitBytes; unit * kUnitBytes < end; ++unit)
            if (!seen_[unit]) {
                seen_[unit] = true;
                written_.push_back(unit * kUnitBytes);
            }
    }
    request.device = &disk_;
    disk_.perform(request);
    request.device = this;
}

Machine::Machine(const MachineShape& shape, uint64_t seed) : shape_(shape), seed_(seed)
{
    for (uint32_t i = 0; i < shape.member_count(); ++i)
        members_.push_back({.now = make_disk("member" + std::to_string(i + 1), shape.member_bytes[i]),
                            .place = Place::kMember});
}

Machine::~Machine() = default;

Machine::Disk* Machine::make_disk(const std::string& name, uint64_t bytes)
{
    auto made = std::make_unique<Disk>();
    made->disk = std::make_unique<SimDevice>(name, bytes, &power_);
    auto plug = std::make_unique<PluggedDisk>(*made->disk);
    made->plug = plug.get();
    made->cable = std::make_unique<FaultDevice>(std::move(plug), seed_ + disks_.size());
    disks_.push_back(std::move(made));
    return disks_.back().get();
}

std::vector<uint32_t> Machine::members() const
{
    std::vector<uint32_t> indexes;
    for (uint32_t i = 0; i < members_.size(); ++i)
        if (members_[i].place == Place::kMember)
            indexes.push_back(i);
    return indexes;
}

std::optional<uint32_t> Machine::find(Place place) const
{
    for (uint32_t i = 0; i < members_.size(); ++i)
        if (members_[i].place == place)
            return i;
    return std::nullopt;
}

void Machine::add_disk(uint32_t index, uint64_t bytes)
{
    if (members_.size() <= index)
        members_.resize(index + 1);
    if (bytes > 0)
        members_[index].now = make_disk("disk" + std::to_string(disks_.size() + 1), bytes);
}

void Machine::exchange_disk(uint32_t index, uint64_t bytes)
{
    members_[index].old = members_[index].now;
    add_disk(index, bytes);
}

std::optional<uint32_t> Machine::holder_of(const std::string& name) const
{
    for (uint32_t i = 0; i < members_.size(); ++i)
        if (members_[i].now != nullptr && members_[i].now->disk->name() == name)
            return i;
    return std::nullopt;
}

void Machine::settle(uint32_t index, const std::string& name, Place place)
{
    add_disk(index, 0);
    members_[index].old = nullptr;
    members_[index].place = place;
    for (const std::unique_ptr<Disk>& one : disks_)
        if (one->disk->name() == name && members_[index].now != one.get()) {
            if (const std::optional<uint32_t> before = holder_of(name))
                members_[*before].now = nullptr;
            members_[index].now = one.get();
        }
}

std::unique_ptr<BlockDevice> Machine::borrow(uint32_t index)
{
    return std::make_unique<BorrowedDevice>(cable(index));
}

std::vector<const SimDevice*> Machine::disks() const
{
    std::vector<const SimDevice*> disks;
    for (const uint32_t index : members())
        disks.push_back(members_[index].now->disk.get());
    return disks;
}

std::vector<std::unique_ptr<BlockDevice>> Machine::plug_in(const std::vector<uint32_t>& absent)
{
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (uint32_t i = 0; i < disk_count(); ++i) {
        const Member& member = members_[i];
        if (member.place == Place::kNone)
            continue;
        if (member.now != nullptr && std::find(absent.begin(), absent.end(), i) == absent.end())
            devices.push_back(borrow(i));
        if (member.old != nullptr)
            devices.push_back(std::make_unique<BorrowedDevice>(*member.old->cable));
    }
    return devices;
}

// A disk without superblocks is one that power failed on before it was anything, or that was removed or
// replaced.
Strangers Machine::strangers() const
{
    const bool unsettled = std::any_of(members_.begin(), members_.end(), [](const Member& member) {
        return (member.place != Place::kNone && member.place != Place::kMember) || member.old != nullptr;
    });
    return unsettled || removing ? Strangers::kSkip : Strangers::kRefuse;
}

Status Machine::make(std::string& why)
{
    MakeOptions options;
    options.label = "sim";
    options.data_profile = shape_.data_profile;
    options.metadata_profile = shape_.metadata_profile;
    options.chunk_bytes = shape_.chunk_bytes;
    std::vector<std::unique_ptr<BlockDevice>> devices = plug_in({});
    return make_volume(devices, options, why).status();
}

Status Machine::mount(const MountOptions& options, std::string& why, const std::vector<uint32_t>& absent)
{
    why.clear();
    CW_ASSIGN(Assembly assembly, assemble(plug_in(absent), why, {.strangers = strangers(), .named = {}}));
    CW_ASSIGN(fs_, Filesystem::open(std::move(assembly), options, why));
    return {};
}

Status Machine::unmount()
{
    const Status status = fs_->close();
    fs_.reset();
    return status;
}

void Machine::power_cycle(Prng& prng, const PowerCutOptions& options)
{
    power_.turn_off();
    fs_.reset();
    for (const std::unique_ptr<Disk>& one : disks_)
        one->disk->power_cut(prng, options);
    power_.turn_on();
}

Status Machine::check(CheckReport& report, std::string& why)
{
    why.clear();
    CW_ASSIGN(Assembly assembly, assemble(plug_in({}), why, {.strangers = strangers(), .named = {}}));
    return check_volume(std::move(assembly), {}, report, why);
}

}  // namespace cowraid::test
