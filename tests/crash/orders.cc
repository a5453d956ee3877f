// SPDX-License-Identifier: MIT
#include "tests/crash/orders.h"

#include <algorithm>
#include <utility>

#include "format/superblock.h"
#include "sim/borrowed_device.h"

namespace cowraid::test {

namespace {

constexpr MemberId kNobody{0};

constexpr uint64_t kRottenMax = 24;  // of a column

constexpr uint64_t kScrubStepsMax = 300;

// Of steps of a MiB, the least.
constexpr uint64_t kScrubLimit = 16 * kMiB;

}  // namespace

Orders::Orders(const CrashOptions& options, Prng& prng, Devices& devices, CrashReport& report)
    : options_(options), prng_(prng), devices_(devices), report_(report), device_of_{UINT32_MAX}
{
    for (uint32_t i = 0; i < options.shape.member_count; ++i)
        device_of_.push_back(i);
    if (devices.size() > options.shape.member_count)
        spare_ = options.shape.member_count;
}

MemberRecord Orders::some_member(Filesystem& fs)
{
    const std::vector<MemberRecord> table = fs.volume->member_table();
    return table[prng_.below(table.size())];
}

std::unique_ptr<BlockDevice> Orders::borrow(uint32_t device)
{
    return std::make_unique<BorrowedDevice>(*devices_[device]);
}

Status Orders::step(Filesystem& fs, Workload& workload)
{
    if (options_.balance)
        balance(fs);
    if (options_.change_members)
        change_table(fs, workload);
    if (options_.resize)
        resize(fs);
    if (options_.spares)
        use_spare(fs);
    if (options_.scrub)
        scrub(fs);
    workload.note_commit();
    return fs.store.service.check_writable();
}

void Orders::balance(Filesystem& fs)
{
    if (!fs.committer.balance.status().active())
        begin_balance(fs, prng_, options_.returning ? 1 : 0).ignore();  // there may be no room for it
    continue_balance(fs, 6, false);
    report_.balances += fs.committer.balance.status().state == BalanceStatus::State::kFinished ? 1 : 0;
}

// A member in service, by the device that is none.
void Orders::begin_replace(Filesystem& fs)
{
    std::string why;
    if (fs.committer.replace_member(some_member(fs).id, borrow(spare_), why).ok())
        device_of_.push_back(std::exchange(spare_, UINT32_MAX));
}

// Some steps are commits.
void Orders::continue_replace(Filesystem& fs, Workload& workload)
{
    const ReplaceRecord replace = fs.volume->replacing();
    for (uint64_t step = prng_.between(1, 8); step > 0 && fs.volume->replacing().active(); --step) {
        fs.replace_step();
        workload.note_commit();
    }
    if (fs.volume->replacing().active())
        return;
    spare_ = std::exchange(device_of_[replace.source.value], device_of_[replace.target.value]);
    ++report_.replaced;
}

// The device that is none takes a member's place, or becomes a member; then any member leaves, and its device
// is the one that is none.
void Orders::change_table(Filesystem& fs, Workload& workload)
{
    if (fs.volume->replacing().active())
        return continue_replace(fs, workload);
    std::string why;
    const BalanceStatus status = fs.committer.balance.status();
    if (status.state == BalanceStatus::State::kFinished && std::exchange(removes_, false)) {
        spare_ = device_of_[status.member.value];
        ++report_.balances;
    }
    if (status.active())
        return continue_balance(fs, 6, false);
    if (spare_ != UINT32_MAX && prng_.chance(1, 2))
        return begin_replace(fs);
    if (spare_ != UINT32_MAX) {
        if (fs.committer.add_member(borrow(spare_), why).ok())
            device_of_.push_back(std::exchange(spare_, UINT32_MAX));
        return;
    }
    removes_ =
        fs.committer.balance
            .start({.profiles = fs.volume->profiles(), .content = kAllContent, .member = some_member(fs).id},
                   why)
            .ok();
}

// Members become smaller and larger; balances in between leave groups everywhere.
void Orders::resize(Filesystem& fs)
{
    const BalanceStatus status = fs.committer.balance.status();
    if (status.active()) {
        continue_balance(fs, 6, false);
        const BalanceStatus now = fs.committer.balance.status();
        report_.resized += now.state == BalanceStatus::State::kFinished && now.shrink_bytes != 0 ? 1 : 0;
        return;
    }
    const MemberRecord member = some_member(fs);
    const uint64_t whole = devices_[device_of_[member.id.value]]->size_bytes();
    std::string why;
    if (member.size_bytes < whole && prng_.chance(1, 2))
        report_.resized += fs.committer.grow_member(member.id, why).ok() ? 1 : 0;
    else if (member.size_bytes > kMinMemberBytes && prng_.chance(2, 3))
        fs.committer.balance
            .start({.profiles = fs.volume->profiles(),
                    .content = kAllContent,
                    .member = member.id,
                    .shrink_bytes = prng_.between(kMinMemberBytes, member.size_bytes - 1)},
                   why)
            .ignore();  // there may be no room for it
    else
        begin_balance(fs, prng_, 0).ignore();
}

// A device waits, a member fails, the device takes its place and catches up, and what failed is the device
// that waits next.
void Orders::use_spare(Filesystem& fs)
{
    std::string why;
    if (failing_ != kNobody) {
        fs.committer.use_spares();
        if (fs.volume->members().device(failing_) == nullptr)
            return;
        devices_[device_of_[failing_.value]]->remove_all_rules();
        std::swap(device_of_[failing_.value], spare_);
        failing_ = kNobody;
        ++report_.replaced;
    } else if (stale_groups(fs) > 0) {
        catch_up(fs, 4);
    } else if (fs.volume->spare_table().empty()) {
        fs.committer.add_spare(borrow(spare_), why).status().ignore();
    } else {
        failing_ = some_member(fs).id;
        failed_.insert(failing_);
        const bool gone = prng_.chance(1, 2);
        devices_[device_of_[failing_.value]]->add_rule(
            {.action = gone ? FaultAction::kGone : FaultAction::kError,
             .kinds = gone ? kFaultAll : kFaultWrites | kFaultFlushes});
    }
}

// Blocks of its column, in stripes of which something is in use.
Status Orders::rot_column(Filesystem& fs, const ArrayGroup& group, uint32_t column)
{
    const Geometry& geometry = group.geometry;
    std::vector<BlockRun> live;
    fs.store.allocator.live_in({group.record.address, static_cast<uint32_t>(geometry.data_blocks())}, live)
        .ignore();
    std::vector<std::byte> block(kBlockBytes);
    for (uint64_t count = live.empty() ? 0 : prng_.below(kRottenMax); count > 0; --count) {
        prng_.fill(block.data(), block.size());
        const BlockRun& run = live[prng_.below(live.size())];
        const uint64_t index =
            (run.address - group.record.address) / kBlockBytes + prng_.below(run.block_count);
        const uint64_t chunk = index / geometry.stripe_data_blocks() / geometry.sets;
        const uint64_t offset = chunk * geometry.chunk_bytes + prng_.below(geometry.rows()) * kBlockBytes;
        BlockDevice& device = *devices_[device_of_[group.record.columns[column].member.value]];
        CW_TRY(write_device(device, group.extents[column].front().offset + offset, block));
    }
    return {};
}

Status Orders::rot(Filesystem& fs)
{
    if (std::exchange(mended_, false))
        rotten_ = false;
    if (rotten_ || !prng_.chance(1, 2))
        return {};
    const MemberId member = some_member(fs).id;
    for (const Ref<const ArrayGroup>& group : fs.volume->array().groups())
        for (uint32_t column = 0; column < group->record.columns.size(); ++column)
            if (group->record.columns[column].member == member)
                CW_TRY(rot_column(fs, *group, column));
    ever_rotten_.insert(member);
    rotten_ = true;
    return fs.committer.scrub.start({.limit = kScrubLimit});
}

// Some pieces of it, or many: most are of logs.
void Orders::scrub(Filesystem& fs)
{
    for (uint64_t step = prng_.between(1, prng_.chance(1, 2) ? 8 : kScrubStepsMax);
         step > 0 && rotten_ && !mended_; --step) {
        fs.committer.scrub.step();
        const ScrubStatus status = fs.committer.scrub.status();
        if (status.state != ScrubState::kFinished)
            continue;
        mended_ = true;
        report_.repaired += status.repaired;
        ++report_.scrubs;
    }
}

void catch_up(Filesystem& fs, int steps)
{
    while (steps-- > 0) {
        const Result<ScrubStatus> status = fs.catch_up_step();
        if (!status.ok() || status->state == ScrubState::kFinished)
            return;
    }
}

uint64_t stale_groups(Filesystem& fs)
{
    uint64_t groups = 0;
    for (const MemberInfo& member : fs.info().members)
        groups += member.stale_groups;
    return groups;
}

}  // namespace cowraid::test
