// SPDX-License-Identifier: MIT
#include "tests/sim/machine.h"

#include <algorithm>

#include "device/assembly.h"
#include "format/profile.h"
#include "fs/make_volume.h"

namespace cowraid::test {

uint32_t MachineShape::tolerance() const
{
    return std::min(find_profile(data_profile)->tolerance, find_profile(metadata_profile)->tolerance);
}

uint32_t MachineShape::writable_minimum() const
{
    return member_count() / 2 + 1;
}

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

Machine::Machine(const MachineShape& shape, uint64_t seed) : shape_(shape)
{
    for (uint32_t i = 0; i < shape.member_count(); ++i) {
        Member member;
        member.disk =
            std::make_unique<SimDevice>("member" + std::to_string(i + 1), shape.member_bytes[i], &power_);
        auto plug = std::make_unique<PluggedDisk>(*member.disk);
        member.plug = plug.get();
        member.cable = std::make_unique<FaultDevice>(std::move(plug), seed + i);
        members_.push_back(std::move(member));
    }
}

Machine::~Machine() = default;

std::vector<const SimDevice*> Machine::disks() const
{
    std::vector<const SimDevice*> disks;
    for (const Member& member : members_)
        disks.push_back(member.disk.get());
    return disks;
}

std::vector<std::unique_ptr<BlockDevice>> Machine::plug_in(const std::vector<uint32_t>& absent)
{
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (uint32_t i = 0; i < member_count(); ++i)
        if (std::find(absent.begin(), absent.end(), i) == absent.end())
            devices.push_back(std::make_unique<BorrowedDevice>(cable(i)));
    return devices;
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
    CW_ASSIGN(Assembly assembly, assemble(plug_in(absent), why));
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
    for (Member& member : members_)
        member.disk->power_cut(prng, options);
    power_.turn_on();
}

Status Machine::check(CheckReport& report, std::string& why)
{
    why.clear();
    CW_ASSIGN(Assembly assembly, assemble(plug_in({}), why));
    return check_volume(std::move(assembly), {}, report, why);
}

}  // namespace cowraid::test
