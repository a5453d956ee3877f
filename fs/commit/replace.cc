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
// After more passes in which no group could be copied, errors that may pass have had their time: what is in
// use below nodes that cannot be read is copied as it is. After as many that way there is no hope.
constexpr uint32_t kVainPassesMax = 3;

// What was written before is committed, so that who copies from now on sees it.
class BeginReplace final : public CommitOrder {
public:
    BeginReplace(Committer& committer, const MemberRecord& line, std::unique_ptr<BlockDevice> device,
                 MemberId spare)
        : CommitOrder(When::kAfter),
          replace_(committer.replace),
          volume_(committer.store.volume),
          source_(line.id),
          line_(line),
          device_(std::move(device)),
          spare_(spare)
    {
    }

    Status apply(std::string& why) override
    {
        // Since the device was found to do (Committer::may_replace()).
        const Superblock& head = volume_.superblock();
        const MemberRecord* const line = head.member(source_);
        if (line == nullptr || line->size_bytes != line_.size_bytes || head.replace.active() ||
            head.balance.member == source_ || volume_.members().device(source_) == nullptr ||
            !volume_.may_add_member(line_))
            return refuse(Err::kBusy, why, "the member was changed meanwhile; see cowraid status");
        if (spare_.value != 0) {
            CW_ASSIGN(device_, take_spare(volume_, spare_, why));
        }
        volume_.begin_replace(source_, std::move(device_), static_cast<uint64_t>(std::time(nullptr)), spare_);
        replace_.note_begin(source_);
        return {};
    }

    void applied() override
    {
        if (volume_.superblock().spare(spare_) == nullptr)
            volume_.spares().remove(spare_);
    }

private:
    Replace& replace_;
    Volume& volume_;
    const MemberId source_;
    const MemberRecord line_;
    std::unique_ptr<BlockDevice> device_;
    const MemberId spare_;
};

// The target goes away, or takes the place of the source.
class EndReplace final : public CommitOrder {
public:
    EndReplace(Committer& committer, const ReplaceRecord& record, ReplaceStatus ended,
               Volume::NotCopied not_copied)
        : CommitOrder(ended.state == ReplaceState::kFinished ? When::kAfter : When::kBefore),
          replace_(committer.replace),
          volume_(committer.store.volume),
          record_(record),
          ended_(std::move(ended)),
          not_copied_(not_copied)
    {
    }

    Status apply(std::string& why) override
    {
        if (volume_.superblock().replace != record_)
            return refuse(Err::kInvalid, why, "no member is being replaced");
        const bool takes_over = ended_.state == ReplaceState::kFinished;
        // One that others waited for may have come back.
        const bool in_service = volume_.members().device(record_.source) != nullptr;
        const auto not_copied = in_service ? Volume::NotCopied::kRefused : not_copied_;
        if (takes_over ? volume_.take_over(not_copied) : volume_.end_replace()) {
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
    const Volume::NotCopied not_copied_;
};

}  // namespace

const char* replace_state_name(ReplaceState state)
{
    constexpr const char* kNames[] = {"none",     "running",   "waiting", "paused",
                                      "finished", "cancelled", "failed"};
    return kNames[static_cast<size_t>(state)];
}

Replace::Replace(Committer& committer)
    : committer_(committer), copying_(committer.store, committer.orders, ScrubScope::kReplaced)
{
}

Status Replace::start(const MemberRecord& line, std::unique_ptr<BlockDevice> device, std::string& why,
                      MemberId spare)
{
    Volume& volume = committer_.store.volume;
    const MemberId source = line.id;
    const std::string name = (device ? device.get() : volume.spares().device(spare))->name();
    copying_.cancel().ignore();  // of one that ended meanwhile
    CW_TRY(committer_.orders.carry_out(
        Ref<CommitOrder>(new BeginReplace(committer_, line, std::move(device), spare)), why));
    if (const ReplaceRecord record = volume.replacing(); record.source != source)
        return refuse(Err::kIo, why, name + " cannot be written; replace the member by another device");
    CW_LOG_INFO("%s is being replaced by %s", volume.members().name(source).c_str(), name.c_str());
    MutexLock lock(mutex_);
    idle_ = false;
    changed_.notify_all();
    return {};
}

// Before anybody can see that there is one, and begin to copy.
void Replace::note_begin(MemberId source)
{
    MutexLock lock(mutex_);
    std::erase(gave_up_, source);
    brought_back_ = {};
    last_ = {};
    passes_ = {};
    pass_begun_ = false;
    vain_passes_ = 0;
    copied_before_ = 0;
}

Status Replace::cancel(std::string& why)
{
    CW_TRY(committer_.store.service.check_writable());
    const ReplaceRecord record = committer_.store.volume.replacing();
    if (!record.active())
        return refuse(
            Err::kInvalid, why,
            committer_.catch_up.status().state == ScrubState::kRunning
                ? "no member is being copied. A new device in the place of a lost one is a member from "
                  "the beginning, and is filled as long as it is there: cowraid device offline takes "
                  "it out of service"
                : "no member is being replaced");
    {
        MutexLock lock(mutex_);
        gave_up_.push_back(record.source);
    }
    const Status status = end(record, ReplaceState::kCancelled, "", why);
    if (!status.ok())
        forget(record.source);
    return status;
}

Status Replace::end(const ReplaceRecord& record, ReplaceState state, const std::string& text,
                    std::string& why, Volume::NotCopied not_copied)
{
    if (state != ReplaceState::kFinished)
        copying_.cancel().ignore();
    ReplaceStatus ended{.state = state,
                        .source = record.source,
                        .target = record.target,
                        .started = record.started,
                        .ended = static_cast<uint64_t>(std::time(nullptr)),
                        .text = text,
                        .copy = so_far()};
    ended.source_lost = ended.copy.lost_on[record.source];
    count_groups(ended);
    CW_TRY(committer_.orders.carry_out(
        Ref<CommitOrder>(new EndReplace(committer_, record, ended, not_copied)), why));
    // The target may have failed with the last write.
    if (committer_.store.volume.replacing() == record)
        return Err::kIo;
    log_message(text.empty() ? LogLevel::kInfo : LogLevel::kError,
                "replacing %s %s%s%s: %llu blocks were had from others, %llu of its blocks are lost",
                committer_.store.volume.members().name(record.source).c_str(), replace_state_name(state),
                text.empty() ? "" : ": ", text.c_str(), static_cast<unsigned long long>(ended.copy.repaired),
                static_cast<unsigned long long>(ended.source_lost));
    if (state == ReplaceState::kFinished)
        return {};
    bool was_out;  // in service only to be copied
    {
        MutexLock lock(mutex_);
        was_out = brought_back_ == record.source;
    }
    MemberSet& members = committer_.store.volume.members();
    if (was_out && members.device(record.source) != nullptr)
        members.fail_for_repairs(record.source);
    return {};
}

void Replace::note_end(const ReplaceStatus& ended)
{
    MutexLock lock(mutex_);
    last_ = ended;
    if (const uint64_t rate = measured_rate(ended.copy.bytes_done, ended.copy.run_ms); rate > 0)
        rate_ = rate;
}

uint64_t Replace::rate() const
{
    MutexLock lock(mutex_);
    return rate_;
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
    for (const auto& [member, blocks] : passes_.lost_on)
        sum.lost_on[member] += blocks;
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
        return "the new device is not there: it may come back for a while (spare_delay=, five times), unless "
               "it was taken offline; cowraid device online brings it, cowraid replace cancel gives it up";
    if (volume.members().device(record.source) != nullptr || all_copied(record))
        return "";
    const MountOptions& options = committer_.store.options;
    if (!volume.source_failed())
        return committer_.is_given_up(record.source)
                   ? ""
                   : "the member is not there, and not all of it is copied: it may come back for a while "
                     "(spare_delay=, five times), unless it was taken offline; cowraid device online brings "
                     "it";
    const bool patient = !options.manual_commit &&
                         committer_.awaited_ms(record.source) < uint64_t{options.spare_seconds} * 1000;
    return patient ? "the member failed, and not all of it is copied: it may come back (spare_delay=); "
                     "cowraid device online brings it"
                   : "";
}

ReplaceStatus Replace::status()
{
    const ReplaceRecord record = committer_.store.volume.replacing();
    if (!record.active()) {
        MutexLock lock(mutex_);
        ReplaceStatus ended = last_;
        ended.copy.listed_now = committer_.store.damage.block_count();
        return ended;
    }
    const char* text = waits_for(record);
    // The devices change places before the superblocks say so: then the target is no member any more.
    const std::vector<MemberId> known = committer_.store.volume.members().ids();
    if (std::find(known.begin(), known.end(), record.target) == known.end())
        text = "";
    ReplaceStatus status{.state = *text == '\0' ? ReplaceState::kRunning : ReplaceState::kWaiting,
                         .source = record.source,
                         .target = record.target,
                         .started = record.started,
                         .text = text,
                         .copy = so_far()};
    status.source_lost = status.copy.lost_on[record.source];
    count_groups(status);
    // The next mount that may write goes on with it.
    if (!committer_.store.service.writing()) {
        status.state = ReplaceState::kPaused;
        status.text = "nothing is written to the volume any more; see cowraid status";
    }
    return status;
}

bool Replace::step()
{
    {
        MutexLock lock(mutex_);
        idle_ = true;  // who begins one from now on says otherwise
    }
    const ReplaceRecord record = committer_.store.volume.replacing();
    const bool writable = committer_.store.service.check_writable().ok();
    if (!record.active())
        return false;
    {
        MutexLock lock(mutex_);
        idle_ = false;
        if (stopped_ || !writable)
            return false;
    }
    return advance(record);
}

bool Replace::advance(const ReplaceRecord& record)
{
    MemberSet& members = committer_.store.volume.members();
    if (members.device(record.target) != nullptr && members.device(record.source) != nullptr)
        return copying_.step() || copy_on();
    copying_.cancel().ignore();
    {
        MutexLock lock(mutex_);
        vain_passes_ = 0;
    }
    if (!committer_.remount_mutex.try_lock())
        return false;
    const bool given_up = give_up(record);
    committer_.remount_mutex.unlock();
    return given_up;
}

// Nobody who has the lock is bringing back one of the two.
bool Replace::give_up(const ReplaceRecord& record)
{
    MemberSet& members = committer_.store.volume.members();
    const bool failed = members.failed(record.target);
    const bool source_lost =
        members.device(record.source) == nullptr && committer_.is_given_up(record.source);
    // One that is out by order is waited for as long as the source serves.
    if (failed || (members.device(record.target) == nullptr &&
                   (source_lost || committer_.is_given_up(record.target)))) {
        std::string why;
        const std::string text = members.name(record.target) + (failed ? " failed" : " did not come back");
        return end(record, ReplaceState::kFailed, text, why).ok();
    }
    // Catching up does the rest.
    return members.device(record.source) == nullptr && *waits_for(record) == '\0' && take_over(record);
}

// No piece is to be begun.
bool Replace::copy_on()
{
    Volume& volume = committer_.store.volume;
    if (copying_.status().state == ScrubState::kRunning)
        return false;  // others are at the last ones
    if (volume.has_caught_up() || copying_.has_waiting()) {
        committer_.store.commits.request_commit();
        return committer_.store.options.manual_commit && committer_.commit().ok();
    }
    const ReplaceRecord record = volume.replacing();
    ReplaceStatus now{.source = record.source, .target = record.target};
    count_groups(now);
    if (now.groups_copied == now.groups_total || is_mutant(CommitMutant::kTakenOverEarly))
        return take_over(record);
    return note_pass(now.groups_copied) ? begin_pass() : end_vain(record);
}

bool Replace::lacks_nodes()
{
    const Groups groups = committer_.store.volume.array().groups();
    return std::any_of(groups.begin(), groups.end(), [&](const Ref<const ArrayGroup>& group) {
        return has_mirrored_nodes(*group) && in_scope(committer_.store, ScrubScope::kReplaced, *group);
    });
}

// What a pass found of groups that it did not copy the next one finds again. False: there is no hope.
bool Replace::note_pass(uint64_t groups_copied)
{
    const ScrubStatus copied = so_far();
    const bool nodes_again = lacks_nodes();
    MutexLock lock(mutex_);
    const bool vain = groups_copied <= copied_before_;
    vain_passes_ = vain ? vain_passes_ + 1 : 0;
    copied_before_ = groups_copied;
    pass_begun_ = false;
    if (groups_copied == 0) {
        passes_ = {};  // what was copied before does not count
    } else if (vain) {
        passes_.run_ms = copied.run_ms;
        passes_.bytes_done = passes_.bytes_total = copied.bytes_done;
    } else {
        passes_ = copied;
    }
    if (nodes_again)
        passes_.unreadable_nodes = 0;
    return vain_passes_ <= 2 * kVainPassesMax + 1;
}

// The target does not take it, or one of the two comes and goes. The source is not given away.
bool Replace::end_vain(const ReplaceRecord& record)
{
    {
        MutexLock lock(mutex_);
        gave_up_.push_back(record.source);
    }
    std::string why;
    return end(record, ReplaceState::kFailed,
               "pass after pass something could not be copied: see cowraid status, and the system log. "
               "The member stays: look at both devices, then cowraid replace start with another new one",
               why)
        .ok();
}

bool Replace::gave_up(MemberId source) const
{
    MutexLock lock(mutex_);
    return std::find(gave_up_.begin(), gave_up_.end(), source) != gave_up_.end();
}

void Replace::forget(MemberId source)
{
    MutexLock lock(mutex_);
    std::erase(gave_up_, source);
}

void Replace::note_brought_back(MemberId source)
{
    MutexLock lock(mutex_);
    brought_back_ = source;
}

bool Replace::begin_pass()
{
    ScrubOptions options;
    {
        MutexLock lock(mutex_);
        options.as_it_is = vain_passes_ > kVainPassesMax;
    }
    if (!copying_.start(options).ok())
        return false;
    if (options.as_it_is)
        CW_LOG_WARNING("tree nodes cannot be read: what the member that is replaced has of the block groups "
                       "that they may name is copied as it is");
    MutexLock lock(mutex_);
    pass_begun_ = true;
    return true;
}

bool Replace::take_over(const ReplaceRecord& record)
{
    MemberSet& members = committer_.store.volume.members();
    // Nobody waits any longer for a source that is out of service.
    const bool stale = members.device(record.source) == nullptr;
    // What was recorded there for fsync is in the commit that comes before.
    members.set_leaving(record.source, true);
    std::string why;
    const char* const text =
        all_copied(record) ? "" : "not all was copied; the rest is filled from the others";
    const Status status = end(record, ReplaceState::kFinished, text, why,
                              stale ? Volume::NotCopied::kStale : Volume::NotCopied::kRefused);
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
