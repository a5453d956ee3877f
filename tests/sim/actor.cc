// SPDX-License-Identifier: MIT
#include "tests/sim/actor.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include "format/items.h"
#include "format/profile.h"

namespace cowraid::test {

namespace {

bool is_directory(const ModelInode& inode)
{
    return inode.is_directory() && inode.links > 0;
}

bool is_file(const ModelInode& inode)
{
    return inode.is_file();
}

}  // namespace

InodeNumber Actor::some_inode(Wanted wanted)
{
    InodeNumber chosen{0};
    uint64_t seen = 0;
    for (const auto& [number, shared] : model().inodes())
        if (wanted(shared->inode) && number != filler_.value && prng().below(++seen) == 0)
            chosen = {number};
    return chosen;
}

InodeNumber Actor::some_directory()
{
    // Now and then one that was removed while somebody still uses it.
    if (prng().chance(1, 40)) {
        const InodeNumber removed =
            some_inode([](const ModelInode& inode) { return inode.is_directory() && inode.links == 0; });
        if (removed.value != 0)
            return removed;
    }
    return some_inode(is_directory);
}

InodeNumber Actor::some_file()
{
    if (prng().chance(1, 10)) {
        const InodeNumber unlinked =
            some_inode([](const ModelInode& inode) { return inode.is_file() && inode.links == 0; });
        if (unlinked.value != 0) {
            world_.events.add(Event::kUseUnlinked);
            return unlinked;
        }
    }
    return some_inode(is_file);
}

// Few, so that they meet; of all lengths, the longest not allowed.
std::string Actor::some_name()
{
    const uint64_t choice = prng().below(60);
    if (choice == 0)
        return std::string(256, 'x');
    if (choice < 4)
        return std::string(choice < 3 ? 255 : 120, static_cast<char>('a' + choice));
    return "name" + std::to_string(prng().below(14));
}

// More often than not one that exists.
std::string Actor::some_name_in(InodeNumber directory)
{
    const std::map<std::string, InodeNumber>& children = model().at(directory).children;
    if (children.empty() || prng().chance(1, 3))
        return some_name();
    return std::next(children.begin(), static_cast<ptrdiff_t>(prng().below(children.size())))->first;
}

void Actor::receive_reference(InodeNumber inode)
{
    world_.hold(inode);
    if (!prng().chance(1, 4))
        world_.let_go(inode, 1);
}

void Actor::flush()
{
    world_.note("flush");
    const Status status = fs().step(false);
    if (world_.settle("flush", status.err(), Err::kOk))
        world_.events.add(Event::kFlush);
}

void Actor::commit()
{
    const bool by_sync = prng().chance(1, 2);
    world_.in_commit = true;
    world_.note(by_sync ? "sync" : "commit");
    const Status status = by_sync ? fs().committer.sync() : fs().step(true);
    if (!world_.returned(Event::kCommit))
        return;
    if (world_.settle("commit", status.err(), Err::kOk))
        world_.committed();
}

// fdatasync found nothing to do: a crash would leave the file as it is.
void Actor::check_data_durable(InodeNumber file)
{
    const auto found = world_.durable.inodes().find(file.value);
    const FileContent& now = model().at(file).content;
    bool same = found != world_.durable.inodes().end();
    if (same) {
        const FileContent& durable = found->second->inode.content;
        std::vector<std::byte> bytes(durable.size_bytes());
        durable.read(0, bytes);
        same = now.size_bytes() == durable.size_bytes() && now.holds(0, bytes);
    }
    if (!same)
        world_.violation("fdatasync of inode %llu did nothing, and its data is not durable",
                         static_cast<unsigned long long>(file.value));
}

void Actor::fsync()
{
    using What = Committer::SyncWhat;
    const bool data_only = prng().chance(1, 4);
    const InodeNumber file = some_file();
    const InodeNumber inode = file.value != 0 ? file : InodeNumber{kRootInode};
    world_.in_commit = true;
    world_.note("%s %llu", data_only ? "fdatasync" : "fsync", static_cast<unsigned long long>(inode.value));
    const VolumeInfo before = fs().info();
    const Status status = fs().committer.fsync(inode, data_only ? What::kData : What::kAll);
    const VolumeInfo after = fs().info();
    if (!world_.returned(Event::kFsyncCommit) || !world_.settle("fsync", status.err(), Err::kOk))
        return;
    const bool wrote = after.fsync_records != before.fsync_records || after.commits != before.commits;
    world_.events.add(Event::kFsyncRecord, after.fsync_records - before.fsync_records);
    if (!data_only || wrote)
        world_.committed();
    else if (file.value != 0)
        check_data_durable(file);
}

void Actor::fill_volume()
{
    const Result<Attributes> made = fs().names.make_node({kRootInode}, "filler", S_IFREG | 0600, 0, {});
    if (!world_.settle("create", made.err(), Err::kOk))
        return;
    filler_ = made->inode;
    fs().names.forget(filler_, 1);
    ModelInode inode;
    inode.mode = S_IFREG | 0600;
    inode.modified = made->modified;
    model().make({kRootInode}, "filler", filler_, std::move(inode));
    const uint64_t available = fs().statistics().available_blocks * kBlockBytes;
    const uint64_t spare = prng().between(512 * kKiB, 6 * kMiB);
    if (available <= spare)
        return;
    world_.note("reserve all but %llu of %llu bytes", static_cast<unsigned long long>(spare),
                static_cast<unsigned long long>(available));
    const Status status = fs().files.allocate_range(filler_, FALLOC_FL_KEEP_SIZE, 0, available - spare);
    world_.settle("fallocate", status.err(), Err::kOk, Growth::kSome);
}

// A few steps; groups go on where the last burst, or the last mount, stopped.
void Actor::clean()
{
    for (uint64_t count = prng().between(1, 6); count > 0; --count) {
        world_.note("clean");
        const CleanProgress progress = fs().clean_step(CleanWhen::kAny);
        if (!world_.returned())
            return;
        world_.events.add(Event::kCleanStep);
        if (progress != CleanProgress::kWorked)
            return;
    }
}

// Pauses it, resumes or cancels it. A pass that is paused stands still.
bool Actor::control_scrub()
{
    Scrub& work = fs().committer.scrub;
    const ScrubState state = work.status().state;
    const bool paused = state == ScrubState::kPaused;
    if (!paused && (state != ScrubState::kRunning || !prng().chance(1, 6)))
        return false;
    if (prng().chance(1, 3)) {
        world_.note("cancel the scrub");
        world_.events.add(Event::kScrubCancelled);
        world_.settle("cancelling a scrub", work.cancel().err(), Err::kOk);
    } else if (paused) {
        world_.note("resume the scrub");
        world_.settle("resuming a scrub", work.resume().err(), Err::kOk);
    } else {
        world_.note("pause the scrub");
        world_.events.add(Event::kScrubPaused);
        world_.settle("pausing a scrub", work.pause().err(), Err::kOk);
        const uint64_t before = work.status().bytes_done;
        const ScrubStatus after = fs().scrub_step();
        if (after.state != ScrubState::kPaused || after.bytes_done != before)
            world_.violation("a scrub goes on though it is paused");
    }
    return true;
}

// A few pieces; the pass ends in a later burst. What faults leave is within redundancy, or the volume stops.
void Actor::scrub()
{
    if (control_scrub())
        return;
    for (uint64_t count = prng().between(1, 4); count > 0; --count) {
        world_.note("scrub");
        const ScrubStatus status = fs().scrub_step();
        if (!world_.returned())
            return;
        world_.events.add(Event::kScrubStep);
        world_.events.add(Event::kScrubbed, status.state == ScrubState::kFinished ? 1 : 0);
        if (status.lost + status.unreadable_nodes > 0 && !fs().store.service.failed())
            world_.violation(
                "scrub: %llu blocks and %llu nodes lost, the first block at %llu",
                static_cast<unsigned long long>(status.lost),
                static_cast<unsigned long long>(status.unreadable_nodes),
                static_cast<unsigned long long>(status.lost > 0 ? status.lost_addresses.front().value : 0));
    }
}

// As scrub(), of what stale columns lack.
void Actor::catch_up()
{
    for (uint64_t count = prng().between(1, 6); count > 0; --count) {
        world_.note("catch up");
        const Result<ScrubStatus> status = fs().catch_up_step();
        if (!world_.returned() || !status.ok())
            return;
        world_.events.add(Event::kCatchUpStep);
        world_.events.add(Event::kCaughtUp, status->state == ScrubState::kFinished ? 1 : 0);
    }
}

// Pauses it, resumes or cancels it, each by a commit. One that is paused stands still.
bool Actor::control_balance()
{
    Balance& work = fs().committer.balance;
    const BalanceStatus before = work.status();
    const bool paused = before.state == BalanceStatus::State::kPaused;
    if (!before.active() || (!paused && !prng().chance(1, 8)))
        return false;
    world_.in_commit = true;
    const bool cancels = prng().chance(1, 3);
    world_.note("%s the balance", cancels ? "cancel" : paused ? "resume" : "pause");
    std::string why;
    const Status status = cancels ? work.cancel(why) : paused ? work.resume(why) : work.pause(why);
    if (!world_.returned(Event::kCommit))
        return true;
    // Meanwhile there may be no room for what is on a member, or too few members; or it had ended.
    const bool excused = (paused && status.err() == Err::kNoSpace) || status.err() == Err::kInvalid;
    if (!status.ok() && !excused)
        world_.settle("order to a balance", status.err(), Err::kOk);
    if (!status.ok())
        return true;
    world_.committed();
    world_.in_commit = false;
    if (cancels)
        world_.events.add(Event::kBalanceCancelled);
    else if (!paused) {
        world_.events.add(Event::kBalancePaused);
        if (fs().balance_step() != CleanProgress::kNothing)
            world_.violation("a balance goes on though it is paused");
    }
    return true;
}

// Its begin is a commit. It goes on, after mounts too, until it ends.
void Actor::balance()
{
    Balance& work = fs().committer.balance;
    if (control_balance())
        return;
    if (!work.status().active() && prng().chance(1, 2)) {
        world_.in_commit = true;
        world_.note("begin balance");
        const auto data_tolerates = [&] {
            return find_profile(fs().volume->profiles().data)->tolerance;
        };
        const uint32_t before = data_tolerates();
        const Status status = begin_balance(fs(), prng(), injector_.hurt().size());
        if (!world_.returned(Event::kCommit))
            return;
        // Where there is no room for it, and too few members, it is refused.
        if (!status.ok() && status.err() != Err::kNoSpace && status.err() != Err::kInvalid)
            world_.settle("begin of a balance", status.err(), Err::kOk);
        if (!status.ok())
            return;
        world_.committed();
        world_.events.add(Event::kBalanceBegun);
        world_.events.add(Event::kBalanceRaises, data_tolerates() > before ? 1 : 0);
        world_.events.add(Event::kBalanceLowers, data_tolerates() < before ? 1 : 0);
        world_.in_commit = false;
    }
    if (work.status().state != BalanceStatus::State::kRunning)
        return;
    world_.note("balance");
    continue_balance(fs(), static_cast<int>(prng().between(1, 8)), false);
    if (!world_.returned())
        return;
    world_.events.add(Event::kBalanceStep);
    world_.events.add(Event::kBalanced, work.status().state == BalanceStatus::State::kFinished ? 1 : 0);
}

void Actor::step_durability()
{
    const uint64_t choice = prng().below(6);
    if (choice == 0)
        flush();
    else if (choice == 1)
        commit();
    else if (choice == 2)
        clean();
    else if (choice == 3)
        catch_up();
    else if (choice == 4)
        balance();
    else
        scrub();
}

void Actor::step()
{
    world_.in_commit = false;
    const uint64_t choice = prng().below(100);
    if (choice < 34)
        step_names();
    else if (choice < 47)
        step_attributes();
    else if (choice < 90)
        step_data();
    else if (choice < 93)
        fsync();
    else
        step_durability();
}

}  // namespace cowraid::test
