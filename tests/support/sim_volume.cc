// SPDX-License-Identifier: MIT
#include "tests/support/sim_volume.h"

#include <algorithm>

#include "device/assembly.h"

namespace cowraid::test {

MountOptions manual_options()
{
    MountOptions options;
    options.manual_commit = true;
    return options;
}

SimVolume::SimVolume(const VolumeShape& shape) : shape_(shape)
{
    while (members_.size() < shape.member_count)
        add_device(shape.member_bytes);
}

uint32_t SimVolume::add_device(uint64_t bytes)
{
    const auto index = static_cast<uint32_t>(members_.size());
    members_.push_back(std::make_unique<SimDevice>("member" + std::to_string(index + 1), bytes, &power_));
    const auto call_slow = [](void* self, uint64_t microseconds) {
        const SlowHook& hook = static_cast<SimVolume*>(self)->slow;
        if (hook.call != nullptr)
            hook.call(hook.context, microseconds);
    };
    cables_.push_back(std::make_unique<FaultDevice>(std::make_unique<BorrowedDevice>(*members_.back()), index,
                                                    SlowHook{call_slow, this}));
    return index;
}

std::unique_ptr<BlockDevice> SimVolume::borrow_one(uint32_t index)
{
    return std::make_unique<BorrowedDevice>(*cables_[index]);
}

SimVolume::~SimVolume() = default;

std::vector<const SimDevice*> SimVolume::members() const
{
    std::vector<const SimDevice*> members;
    for (const std::unique_ptr<SimDevice>& member : members_)
        members.push_back(member.get());
    return members;
}

std::vector<std::unique_ptr<BlockDevice>> SimVolume::borrow(const std::vector<uint32_t>& absent)
{
    std::vector<std::unique_ptr<BlockDevice>> devices;
    for (uint32_t i = 0; i < members_.size(); ++i)
        if (std::find(absent.begin(), absent.end(), i) == absent.end())
            devices.push_back(borrow_one(i));
    return devices;
}

Status SimVolume::make(std::string& why)
{
    MakeOptions options;
    options.label = "sim";
    options.data_profile = shape_.data_profile;
    options.metadata_profile = shape_.metadata_profile;
    options.chunk_bytes = shape_.chunk_bytes;
    options.intent_log_bytes = shape_.intent_log_bytes;
    std::vector<std::unique_ptr<BlockDevice>> devices = borrow({});
    return make_volume(devices, options, why).status();
}

Status SimVolume::mount(const MountOptions& options, std::string& why, const std::vector<uint32_t>& absent)
{
    CW_ASSIGN(Assembly assembly, assemble(borrow(absent), why));
    CW_ASSIGN(fs_, Filesystem::open(std::move(assembly), options, why));
    return {};
}

Status SimVolume::unmount()
{
    const Status status = fs_->close();
    fs_.reset();
    return status;
}

void SimVolume::power_cut(Prng& prng, const PowerCutOptions& options)
{
    fs_.reset();
    for (const std::unique_ptr<SimDevice>& member : members_)
        member->power_cut(prng, options);
}

namespace {

// One that tolerates as much and that the volume has members for; itself where there is no other.
ProfileId other_profile(const Volume& volume, ProfileId now, Prng& prng)
{
    std::vector<ProfileId> others;
    for (const Profile& profile : profiles())
        if (profile.id != now && profile.tolerance == find_profile(now)->tolerance &&
            profile.min_members <= volume.superblock().members.size())
            others.push_back(profile.id);
    return others.empty() ? now : others[prng.below(others.size())];
}

}  // namespace

Status begin_balance(Filesystem& fs, Prng& prng)
{
    BalanceOptions options;
    options.profiles = fs.volume->profiles();
    options.convert = prng.chance(1, 2);
    options.content = kGroupData;
    if (!options.convert || prng.chance(1, 2))
        options.content |= kGroupMetadata | kGroupSystem;
    if (options.convert) {
        options.profiles.data = other_profile(*fs.volume, options.profiles.data, prng);
        if ((options.content & kGroupMetadata) != 0)
            options.profiles.metadata = other_profile(*fs.volume, options.profiles.metadata, prng);
    }
    std::string why;
    return fs.committer.balance.start(options, why);
}

void continue_balance(Filesystem& fs, int steps, bool commits)
{
    while (steps-- > 0 && fs.committer.balance.status().state == BalanceStatus::State::kRunning) {
        const CleanProgress progress = fs.balance_step();
        if (progress == CleanProgress::kNothing || (progress == CleanProgress::kNeedsCommit && !commits))
            return;
        if (progress == CleanProgress::kNeedsCommit && !fs.step(true).ok())
            return;
    }
}

}  // namespace cowraid::test
