// SPDX-License-Identifier: MIT
#include "fs/commit/replace.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "fs/commit/committer.h"
#include "fs/commit/member_orders.h"
#include "fs/volume/commit_mutant.h"

namespace cowraid {

namespace {

using ReplaceState = ReplaceStatus::State;

// How often the thread looks that takes the steps, where something is awaited.
constexpr uint64_t kReplaceLookMs = 20;
// After so many passes in which no group could be copied there is no hope.
constexpr uint32_t kVainPassesMax = 3;

std::string numbered(MemberId id)
{
    return "member " + std::to_string(id.value);
}

// Asked before anything of the device is overwritten, and when it becomes the target.
Status check_source(Volume& volume, const std::vector<MemberRecord>& table, const ReplaceRecord& replace,
                    MemberId source, std::string& why)
{
    const bool known = std::any_of(table.begin(), table.end(),
                                   [=](const MemberRecord& record) { return record.id == source; });
    if (!known)
        return refuse(Err::kInvalid, why, "there is no " + numbered(source));
    if (replace.active())
        return refuse(Err::kBusy, why,
                      volume.members().name(replace.source) +
                          " is being replaced; wait for its end, or cowraid replace cancel");
    if (volume.members().device(source) == nullptr)
        return refuse(Err::kBusy, why, numbered(source) + " went out of service; start it again");
    return {};
}

// What was written before is committed, so that who copies from now on sees it.
class BeginReplace final : public CommitOrder {
public:
    BeginReplace(Volume& volume, MemberId source, std::unique_ptr<BlockDevice> device, MemberId spare)
        : CommitOrder(When::kAfter),
          volume_(volume),
          source_(source),
          device_(std::move(device)),
          spare_(spare)
    {
    }

    Status apply(std::string& why) override
    {
        const Superblock& head = volume_.superblock();
        CW_TRY(check_source(volume_, head.members, head.replace, source_, why));
        if (head.balance.member == source_)
            return refuse(Err::kBusy, why,
                          volume_.members().name(source_) +
                              " is being removed; cowraid balance cancel ends that");
        if (!volume_.may_add_member(*head.member(source_)))
            return refuse(Err::kInvalid, why, "the volume has as many members as it can");
        if (spare_.value != 0) {
            CW_ASSIGN(device_, take_spare(volume_, spare_, why));
        }
        volume_.begin_replace(source_, std::move(device_), static_cast<uint64_t>(std::time(nullptr)));
        if (spare_.value != 0)
            volume_.drop_spare(spare_);
        return {};
    }

    void applied() override { volume_.spares().remove(spare_); }

private:
    Volume& volume_;
    const MemberId source_;
    std::unique_ptr<BlockDevice> device_;
    const MemberId spare_;
};

// The target goes away, or takes the place of the source.
class EndReplace final : public CommitOrder {
public:
    EndReplace(Committer& committer, const ReplaceRecord& record, ReplaceStatus ended)
        : CommitOrder(ended.state == ReplaceState::kFinished ? When::kAfter : When::kBefore),
          replace_(committer.replace),
          volume_(committer.store.volume),
          record_(record),
          ended_(std::move(ended))
    {
    }

    Status apply(std::string& why) override
    {
        if (volume_.superblock().replace != record_)
            return refuse(Err::kInvalid, why, "no member is being replaced");
        const bool takes_over = ended_.state == ReplaceState::kFinished;
        if (takes_over ? volume_.take_over() : volume_.end_replace()) {
            replace_.note_end(ended_);
            return {};
        }
        return refuse(Err::kBusy, why,
                      "the new device is not in service, or not all is copied; see cowraid status");
    }

private:
    Replace& replace_;
    Volume& volume_;
    const ReplaceRecord record_;
    const ReplaceStatus ended_;
};

}  // namespace

const char* replace_state_name(ReplaceState state)
{
    constexpr const char* kNames[] = {"none", "running", "waiting", "finished", "cancelled", "failed"};
    return kNames[static_cast<size_t>(state)];
}

Replace::Replace(Committer& committer)
    : committer_(committer), copying_(committer.store, committer.orders, ScrubScope::kReplaced)
{
}

Status Replace::start(MemberId source, std::unique_ptr<BlockDevice> device, std::string& why, MemberId spare)
{
    Volume& volume = committer_.store.volume;
    BlockDevice& coming = device ? *device : *volume.spares().device(spare);
    const std::string name = coming.name();
    const std::vector<MemberRecord> table = volume.member_table();
    CW_TRY(check_source(volume, table, volume.replacing(), source, why));
    const MemberRecord line = *std::find_if(table.begin(), table.end(),
                                            [=](const MemberRecord& record) { return record.id == source; });
    if (coming.size_bytes() < line.size_bytes)
        return refuse(Err::kNoSpace, why,
                      name + " has " + size_text(coming.size_bytes()) + ", the member has " +
                          size_text(line.size_bytes) + "; use one that is not smaller");
    if (committer_.balance.status().active() && committer_.balance.status().member == source)
        return refuse(Err::kBusy, why,
                      volume.members().name(source) + " is being removed; cowraid balance cancel ends that");
    CW_TRY(committer_.orders.carry_out(may_add_order(volume, line), why));
    if (!erase_for(coming, line, spare).ok())
        return refuse(Err::kIo, why, name + " cannot be written; use another device");
    copying_.cancel().ignore();  // of one that ended meanwhile
    CW_TRY(committer_.orders.carry_out(
        Ref<CommitOrder>(new BeginReplace(volume, source, std::move(device), spare)), why));
    if (const ReplaceRecord record = volume.replacing(); record.source != source)
        return refuse(Err::kIo, why, name + " cannot be written; replace the member by another device");
    CW_LOG_INFO("%s is being replaced by %s", volume.members().name(source).c_str(), name.c_str());
    MutexLock lock(mutex_);
    last_ = {};
    passes_ = {};
    pass_begun_ = false;
    vain_passes_ = 0;
    copied_before_ = 0;
    idle_ = false;
    changed_.notify_all();
    return {};
}

Status Replace::cancel(std::string& why)
{
    CW_TRY(committer_.store.service.check_writable());
    const ReplaceRecord record = committer_.store.volume.replacing();
    if (!record.active())
        return refuse(Err::kInvalid, why, "no member is being replaced");
    return end(record, ReplaceState::kCancelled, "", why);
}

Status Replace::end(const ReplaceRecord& record, ReplaceState state, const std::string& text,
                    std::string& why)
{
    if (state != ReplaceState::kFinished)
        copying_.cancel().ignore();
    const ReplaceStatus ended{.state = state,
                              .source = record.source,
                              .target = record.target,
                              .started = record.started,
                              .ended = static_cast<uint64_t>(std::time(nullptr)),
                              .text = text,
                              .copy = so_far()};
    CW_TRY(committer_.orders.carry_out(Ref<CommitOrder>(new EndReplace(committer_, record, ended)), why));
    // The target may have failed with the last write.
    if (committer_.store.volume.replacing() == record)
        return Err::kIo;
    log_message(state == ReplaceState::kFailed ? LogLevel::kError : LogLevel::kInfo,
                "replacing %s %s%s%s: %llu blocks were had from others, %llu are lost",
                committer_.store.volume.members().name(record.source).c_str(), replace_state_name(state),
                text.empty() ? "" : ": ", text.c_str(), static_cast<unsigned long long>(ended.copy.repaired),
                static_cast<unsigned long long>(ended.copy.lost));
    return {};
}

void Replace::note_end(const ReplaceStatus& ended)
{
    MutexLock lock(mutex_);
    last_ = ended;
}

// Of this pass and those before it.
ScrubStatus Replace::so_far()
{
    ScrubStatus sum = copying_.status();
    MutexLock lock(mutex_);
    if (!pass_begun_)
        return passes_;
    for (uint64_t ScrubStatus::*number :
         {&ScrubStatus::run_ms, &ScrubStatus::bytes_done, &ScrubStatus::bytes_total,
          &ScrubStatus::data_blocks, &ScrubStatus::parity_blocks, &ScrubStatus::nodes, &ScrubStatus::repaired,
          &ScrubStatus::lost, &ScrubStatus::unreadable_nodes})
        sum.*number += passes_.*number;
    sum.lost_addresses.insert(sum.lost_addresses.begin(), passes_.lost_addresses.begin(),
                              passes_.lost_addresses.end());
    return sum;
}

void Replace::count_groups(ReplaceStatus& status)
{
    for (const Ref<const ArrayGroup>& group : committer_.store.volume.array().groups())
        for (const GroupColumn& column : group->record.columns)
            if (column.member == status.source) {
                ++status.groups_total;
                status.groups_copied += (group->record.flags & kGroupCopied) != 0 ? 1 : 0;
            }
}

bool Replace::all_copied(const ReplaceRecord& record)
{
    ReplaceStatus now{.source = record.source, .target = record.target};
    count_groups(now);
    return now.groups_copied == now.groups_total;
}

// Empty: for nothing. A member that did not fail may come back with all that is not copied yet.
const char* Replace::waits_for(const ReplaceRecord& record)
{
    Volume& volume = committer_.store.volume;
    if (volume.members().device(record.target) == nullptr)
        return "the new device is not there: attach it and run cowraid device online, or cowraid replace "
               "cancel";
    if (volume.members().device(record.source) != nullptr || all_copied(record))
        return "";
    const MountOptions& options = committer_.store.options;
    if (!volume.source_failed())
        return "the member is not there, and not all of it is copied: attach it and run cowraid device "
               "online, or give it up with cowraid replace cancel and another cowraid replace start";
    const bool patient = !options.manual_commit &&
                         volume.members().away_ms(record.source) < uint64_t{options.spare_seconds} * 1000;
    return patient ? "the member failed, and not all of it is copied: it may come back (spare_delay=); "
                     "cowraid device online brings it"
                   : "";
}

ReplaceStatus Replace::status()
{
    const ReplaceRecord record = committer_.store.volume.replacing();
    if (!record.active()) {
        MutexLock lock(mutex_);
        return last_;
    }
    const char* const text = waits_for(record);
    ReplaceStatus status{.state = *text == '\0' ? ReplaceState::kRunning : ReplaceState::kWaiting,
                         .source = record.source,
                         .target = record.target,
                         .started = record.started,
                         .text = text,
                         .copy = so_far()};
    count_groups(status);
    return status;
}

bool Replace::step()
{
    const ReplaceRecord record = committer_.store.volume.replacing();
    const bool writable = committer_.store.service.check_writable().ok();
    {
        MutexLock lock(mutex_);
        idle_ = !record.active();
        if (stopped_ || idle_ || !writable)
            return false;
    }
    return advance(record);
}

bool Replace::advance(const ReplaceRecord& record)
{
    MemberSet& members = committer_.store.volume.members();
    if (members.failed(record.target)) {
        std::string why;
        return end(record, ReplaceState::kFailed, members.name(record.target) + " failed", why).ok();
    }
    const bool waits = *waits_for(record) != '\0';
    if (!waits && members.device(record.source) != nullptr)
        return copying_.step() || copy_on();
    copying_.cancel().ignore();
    {
        MutexLock lock(mutex_);
        vain_passes_ = 0;
    }
    return !waits && take_over(record);  // catching up does the rest
}

// No piece is to be begun.
bool Replace::copy_on()
{
    Volume& volume = committer_.store.volume;
    if (copying_.status().state == ScrubState::kRunning)
        return false;  // others are at the last ones
    if (volume.has_caught_up()) {
        committer_.store.commits.request_commit();
        return committer_.store.options.manual_commit && committer_.commit().ok();
    }
    const ReplaceRecord record = volume.replacing();
    ReplaceStatus now{.source = record.source, .target = record.target};
    count_groups(now);
    if (now.groups_copied == now.groups_total || is_mutant(CommitMutant::kTakenOverEarly))
        return take_over(record);
    const ScrubStatus copied = so_far();
    bool hopeless;
    {
        MutexLock lock(mutex_);
        vain_passes_ = now.groups_copied > copied_before_ ? 0 : vain_passes_ + 1;
        copied_before_ = now.groups_copied;
        hopeless = vain_passes_ > kVainPassesMax;
        passes_ = copied;
        pass_begun_ = false;
    }
    if (!hopeless)
        return begin_pass();
    std::string why;
    return end(record, ReplaceState::kFailed, "what is in use cannot be found out; see the system log", why)
        .ok();
}

bool Replace::begin_pass()
{
    if (!copying_.start({}).ok())
        return false;
    MutexLock lock(mutex_);
    pass_begun_ = true;
    return true;
}

bool Replace::take_over(const ReplaceRecord& record)
{
    MemberSet& members = committer_.store.volume.members();
    // What was recorded there for fsync is in the commit that comes before.
    members.set_leaving(record.source, true);
    std::string why;
    const Status status = end(record, ReplaceState::kFinished, "", why);
    members.set_leaving(record.source, false);
    if (!status.ok())
        return members.failed(record.target);
    if (!committer_.store.options.manual_commit) {
        committer_.catch_up.cancel().ignore();  // it begins again, with what is there now
        committer_.catch_up.start({}).ignore();  // mostly there is nothing
    }
    return true;
}

bool Replace::wait()
{
    MutexLock lock(mutex_);
    if (!stopped_ && !idle_)
        changed_.wait_for(mutex_, kReplaceLookMs);
    while (!stopped_ && idle_)
        changed_.wait(mutex_);
    return !stopped_;
}

bool Replace::help()
{
    if (!copying_.wait())
        return false;
    copying_.step();
    return true;
}

void Replace::stop()
{
    copying_.stop();
    MutexLock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
}

void Replace::allow()
{
    copying_.allow();
    MutexLock lock(mutex_);
    stopped_ = idle_ = false;
}

}  // namespace cowraid
