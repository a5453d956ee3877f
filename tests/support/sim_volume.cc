// SPDX-License-Identifier: MIT
#include "tests/support/sim_volume.h"

#include <algorithm>

#include "base/assert.h"
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
    cables_.push_back(std::make_unique<FaultDevice>(std::make_unique<BorrowedDevice>(*members_.back()), index,
                                                    SlowHook{be_slow, this}));
    return index;
}

void SimVolume::be_slow(void* self, uint64_t microseconds)
{
    if (const SlowHook& hook = static_cast<SimVolume*>(self)->slow_; hook.call != nullptr)
        hook.call(hook.context, microseconds);
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
    options.compress = shape_.compress;
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
    // Nothing is dirty: only what fallocate reserved, and what is being moved, has a place set aside.
    if (status.ok() && !fs_->store.service.read_only())
        CW_ASSERT(fs_->store.ledger.reserved_data() ==
                  static_cast<uint64_t>(fs_->files.reserved_blocks) + fs_->store.moving_blocks);
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

// One that tolerates so much and that the volume has members for; itself where there is no other.
ProfileId other_profile(const Volume& volume, ProfileId now, uint32_t tolerance, Prng& prng)
{
    std::vector<ProfileId> others;
    for (const Profile& profile : profiles())
        if (profile.id != now && profile.tolerance == tolerance &&
            profile.min_members <= volume.superblock().members.size())
            others.push_back(profile.id);
    return others.empty() ? now : others[prng.below(others.size())];
}

}  // namespace

Status begin_balance(Filesystem& fs, Prng& prng, size_t lacking)
{
    BalanceOptions options;
    options.profiles = fs.volume->profiles();
    options.convert = prng.chance(1, 2);
    options.force = true;  // an earlier one may have left groups that tolerate more
    options.content = kGroupData;
    if (!options.convert || prng.chance(1, 2))
        options.content |= kGroupMetadata | kGroupSystem;
    if (options.convert) {
        const auto choose = [&](ProfileId now, uint32_t wanted) {
            const uint32_t tolerance = find_profile(now)->tolerance;
            const bool crosses = (tolerance == 1 && wanted == 2) || (tolerance == 2 && wanted == 1);
            return other_profile(*fs.volume, now, crosses ? wanted : tolerance, prng);
        };
        const uint32_t now = find_profile(options.profiles.data)->tolerance;
        const bool crosses = (now == 1 || (now == 2 && lacking <= 1)) && prng.chance(1, 2);
        const uint32_t wanted = crosses ? 3 - now : 0;
        options.profiles.data = choose(options.profiles.data, wanted);
        if ((options.content & kGroupMetadata) != 0)
            options.profiles.metadata = choose(options.profiles.metadata, wanted);
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
