// SPDX-License-Identifier: MIT
#include "fs/maintain/discards.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log_count.h"
#include "fs/maintain/group_leftovers.h"
#include "fs/txn/group_planning.h"
#include "fs/txn/store.h"

namespace cowraid {

namespace {

// What the devices discard at a time, one after the other: who wants to write there waits for it.
constexpr uint64_t kPartBytes = 128 * kMiB;
// How often stripes that came free are looked for.
constexpr uint64_t kWalkPauseMs = 10'000;
// The part of the free room that is out of use at a time, of a trim and else.
constexpr uint64_t kTrimShare = 4, kFreedShare = 16;
// After a part the thread rests so many times as long as that took, at most so long.
constexpr uint64_t kRestTimes = 3, kRestMsMax = 1000;
constexpr size_t kWindowsLeast = 64;
// Of each member: shorter runs that came free are not worth it.
constexpr uint64_t kFreedBytesMin = 64 * kKiB;

// Addresses of stripes: their data, then the chunks of each parity column.
template <typename Visit>
Status for_addresses(const ArrayGroup& group, const StripeRun& stripes, const Visit& visit)
{
    const Geometry& geometry = group.geometry;
    const auto address = [&](uint32_t column) {
        return group.record.address + offset_of(geometry, {stripes.first, column, 0});
    };
    CW_TRY(visit(address(0), stripes.count * geometry.stripe_data_bytes()));
    for (uint32_t parity = 0; parity < geometry.parity; ++parity)
        CW_TRY(visit(address(geometry.data_columns + parity), stripes.count * geometry.chunk_bytes));
    return {};
}

// `range` does not end before the group.
Allocator::HoldWalk stripes_within(const ArrayGroup& group, const TrimRange& range)
{
    const uint64_t address = group.record.address.value;
    const uint64_t stripe_bytes = group.geometry.stripe_data_bytes();
    return {.stripe = divide_up(range.first - std::min(range.first, address), stripe_bytes),
            .end = (range.end - address) / stripe_bytes};
}

// 0: there is none.
uint64_t end_of_groups(const Store& store)
{
    const Groups groups = store.volume.array().groups();
    if (groups.size() == 0)
        return 0;
    const GroupRecord& last = (*(groups.end() - 1))->record;
    return last.address.value + last.span_bytes();
}

}  // namespace

struct Discards::Batch {
    // Blocks with checksums.
    struct Recorded {
        VolumeAddress address;
        uint64_t count;
    };
    View view;
    std::vector<HeldStripes> held;
    std::vector<Recorded> recorded;  // each in one window of the checksum tree
    size_t windows_max = 0;  // of `recorded`
    // Windows of the stripes held, whether they have checksums or not: each is looked at again later.
    uint64_t windows_held = 0;

    // How many more windows with checksums it may hold. One without costs a small part of one with.
    [[nodiscard]] uint64_t windows_left() const
    {
        constexpr uint64_t kLooksPerWindow = 16;
        const uint64_t taken = recorded.size() + windows_held / kLooksPerWindow;
        return windows_max - std::min<uint64_t>(windows_max, taken);
    }
    uint64_t data_room = 0, node_room = 0;  // blocks that may still be taken out of use
};

// --- commit thread ---

void Discards::choose()
{
    store_.volume.commit_thread().assert_here();
    if (!store_.service.writing()) {
        end_trims();
        return;
    }
    if (hand_on()) {
        if (trimming_)
            go_on_with_trim();
        else if (monotonic_ms() >= next_walk_ms_ && any_takes_discards() &&
                 gather(freed_walk_, Allocator::Hold::kFreed, {}))
            next_walk_ms_ = store_.options.manual_commit ? 0 : monotonic_ms() + kWalkPauseMs;
    }
    MutexLock lock(mutex_);
    poked_ = true;
    changed_.notify_all();
}

// Whether nothing is out of use any more.
bool Discards::hand_on()
{
    if (!erased_.empty()) {
        if (store_.timeline.commit_view().committed->transaction < erased_with_)
            return false;
        std::vector<HeldStripes> stay, parts;
        for (const HeldStripes& held : std::exchange(erased_, {})) {
            if (recorded_again(held)) {
                stay.push_back(held);
                continue;
            }
            const Geometry& geometry = store_.volume.array().group_at(held.group)->geometry;
            const uint64_t most =
                std::max<uint64_t>(1, kPartBytes / geometry.columns() / geometry.chunk_bytes);
            for (uint64_t done = 0; done < held.stripes.count; done += most)
                parts.push_back(
                    {held.group, {held.stripes.first + done, std::min(most, held.stripes.count - done)}});
        }
        let_go(stay);
        MutexLock lock(mutex_);
        ready_.insert(ready_.end(), parts.begin(), parts.end());
    }
    MutexLock lock(mutex_);
    return ready_.empty() && !busy_;
}

void Discards::give_back()
{
    store_.volume.commit_thread().assert_here();
    std::vector<HeldStripes> held = std::exchange(erased_, {});
    {
        MutexLock lock(mutex_);
        held.insert(held.end(), ready_.begin(), ready_.end());
        ready_.clear();
        if (held.empty() && !busy_)
            return;
        while (busy_)
            changed_.wait(mutex_);
    }
    let_go(held);
    refresh_budget(store_);
}

void Discards::go_on_with_trim()
{
    Trim trim;
    bool wanted = true;
    {
        MutexLock lock(mutex_);
        trimming_ = !trims_.empty();
        if (trims_.empty())
            return;
        trim = trims_.front();
        wanted = trim.completion->wanted();
    }
    // A device may have said meanwhile that it takes none.
    const bool possible = any_takes_discards();
    if (!wanted || !possible || (trim.walked && !store_.volume.has_free_parts())) {
        {
            MutexLock lock(mutex_);
            if (trims_.empty() || trims_.front().number != trim.number)
                return;
            trims_.pop_front();
            trimming_ = !trims_.empty();
        }
        const Err err = !wanted ? Err::kInterrupted : possible ? Err::kOk : Err::kUnsupported;
        trim.completion->done(err, discarded_bytes_ - trim.bytes_before);
        store_.commits.request_commit();  // for the next one
        return;
    }
    if (!trim.begun) {
        trim.begun = true;
        trim.bytes_before = discarded_bytes_;
        if (trim.range.end > end_of_groups(store_))
            store_.volume.discard_free_slots(trim.range.bytes_min);
    }
    trim.walked = trim.walked || gather(trim.walk, Allocator::Hold::kAll, trim.range);
    if (!erased_.empty())
        store_.commits.request_commit();
    MutexLock lock(mutex_);
    if (!trims_.empty() && trims_.front().number == trim.number)
        trims_.front() = trim;
}

// Takes stripes of the groups from `walk` on out of use, as many as one commit has room for. True: that was
// the end of the walk.
bool Discards::gather(Walk& walk, Allocator::Hold which, const TrimRange& range)
{
    Batch batch{.view = store_.timeline.commit_view()};
    if (store_.data_turns.exclusive() || store_.node_turns.exclusive())
        return false;
    const uint64_t share = which == Allocator::Hold::kAll ? kTrimShare : kFreedShare;
    batch.windows_max = windows_max_ * kTrimShare / share;
    batch.data_room = store_.ledger.data_available() / share;
    batch.node_room = store_.allocator.numbers(kGroupMetadata).free_row_blocks / share;
    const Walk before = walk;
    bool is_all = true;
    for (const Ref<const ArrayGroup>& group : store_.volume.array().groups()) {
        const uint64_t address = group->record.address.value;
        if (address < walk.group || address >= range.end ||
            address + group->record.data_bytes() <= range.first)
            continue;
        if (address != walk.group || walk.stripes.stripe == 0)
            walk = {address, stripes_within(*group, range)};
        is_all = hold_in(*group, which, range, walk.stripes, batch);
        if (!is_all)
            break;
    }
    if (is_all)
        walk = {};
    erased_with_ = {};
    if (!batch.recorded.empty()) {
        ChangeReservation reservation(store_.ledger);
        if (!reservation.take({.checksum_windows = batch.recorded.size()}, Leave::kReserve)) {
            let_go(batch.held);
            refresh_budget(store_);
            // Without room for the fewest it is given up.
            const bool is_least =
                std::exchange(windows_max_, std::max(kWindowsLeast, windows_max_ / 2)) == kWindowsLeast;
            walk = is_least ? Walk() : before;
            return is_least || gather(walk, which, range);
        }
        const std::array<uint64_t, kChecksumWindowBlocks> zeros{};
        for (const Batch::Recorded& blocks : batch.recorded)
            batch.view.open->dropped.put(blocks.address, std::span(zeros).first(blocks.count));
        batch.view.open->dirty = true;
        erased_with_ = batch.view.open->id;
    }
    windows_max_ = std::min(kWindowsMost, windows_max_ * 2);
    erased_ = std::move(batch.held);
    refresh_budget(store_);
    return is_all;
}

// False: there may be more, when the batch has gone its way.
bool Discards::hold_in(const ArrayGroup& group, Allocator::Hold which, const TrimRange& range,
                       Allocator::HoldWalk& walk, Batch& batch)
{
    const GroupRecord& record = group.record;
    const Geometry& geometry = group.geometry;
    const uint64_t stripe_bytes =
        geometry.stripe_data_bytes() + uint64_t{geometry.parity} * geometry.chunk_bytes;
    const bool is_data = record.content == kGroupData;
    if (!is_data && (record.content & kGroupData) != 0)
        return true;  // none are both
    const uint64_t shortest =
        which == Allocator::Hold::kAll
            ? divide_up(std::max<uint64_t>(1, range.bytes_min), geometry.stripe_data_bytes())
            : divide_up(kFreedBytesMin, geometry.chunk_bytes) * geometry.sets;
    uint64_t& room = is_data ? batch.data_room : batch.node_room;
    while (walk.stripe != UINT64_MAX) {
        const uint64_t by_windows = batch.windows_left() * kChecksumWindowBytes / stripe_bytes;
        const uint64_t by_room = room / geometry.stripe_data_blocks();
        if (by_windows == 0 && !batch.held.empty())
            return false;
        if (by_room == 0)
            return batch.held.empty();
        std::vector<StripeRun> runs;
        if (!store_.allocator
                 .hold_stripes(record.address, which, shortest,
                               std::min(std::max<uint64_t>(1, by_windows), by_room), walk, runs)
                 .ok() ||
            !keep(group, runs, batch))
            return true;
    }
    return true;
}

// These stripes are out of use, and are to be discarded. False: they are let go, and so should others of the
// group be.
bool Discards::keep(const ArrayGroup& group, const std::vector<StripeRun>& runs, Batch& batch)
{
    const GroupRecord& record = group.record;
    std::vector<HeldStripes> held;
    uint64_t blocks = 0;
    for (const StripeRun& run : runs) {
        held.push_back({record.address, run});
        blocks += run.count * group.geometry.stripe_data_blocks();
    }
    const bool is_data = record.content == kGroupData;
    bool good =
        is_data ? store_.ledger.try_give_up_room(blocks) : give_up_node_room(store_, record.content, blocks);
    const size_t recorded_before = batch.recorded.size();
    std::vector<Key> windows;
    for (const HeldStripes& one : held)
        good = good && for_addresses(group, one.stripes, [&](VolumeAddress first, uint64_t bytes) -> Status {
                           windows.clear();
                           batch.windows_held += divide_up(bytes, kChecksumWindowBytes);
                           CW_TRY(find_checksums(store_, batch.view, first, first + bytes, windows));
                           for (const Key& window : windows) {
                               const uint64_t begin = std::max(first.value, window.object);
                               const uint64_t end =
                                   std::min(first.value + bytes, window.object + kChecksumWindowBytes);
                               batch.recorded.push_back({{begin}, (end - begin) / kBlockBytes});
                           }
                           return Status();
                       }).ok();
    if (!good) {
        batch.recorded.resize(recorded_before);
        let_go(held);
        return false;
    }
    uint64_t& room = is_data ? batch.data_room : batch.node_room;
    room -= std::min(room, blocks);
    batch.held.insert(batch.held.end(), held.begin(), held.end());
    return true;
}

// Of some of its blocks; or that cannot be told.
bool Discards::recorded_again(const HeldStripes& held) const
{
    const View view = store_.timeline.commit_view();
    std::vector<BlockExpectation> blocks;
    const Ref<const ArrayGroup> group = store_.volume.array().group_at(held.group);
    const Status status = for_addresses(*group, held.stripes, [&](VolumeAddress first, uint64_t bytes) {
        const size_t before = blocks.size();
        blocks.resize(before + bytes / kBlockBytes);
        return store_.checksums.lookup(view, first, std::span(blocks).subspan(before));
    });
    return !status.ok() || std::any_of(blocks.begin(), blocks.end(),
                                       [](const BlockExpectation& block) { return block.known; });
}

void Discards::let_go(std::vector<HeldStripes>& held)
{
    for (const HeldStripes& one : held)
        store_.allocator.let_go(one.group, one.stripes, Allocator::LetGo::kFreed);
    held.clear();
}

// --- any thread ---

// Behind the last group all of the members has room.
uint64_t Discards::end_of_positions() const
{
    uint64_t end = end_of_groups(store_);
    for (const MemberRecord& record : store_.volume.member_table())
        end += record.size_bytes;
    return end;
}

void Discards::trim(const TrimRange& range, TrimCompletion* completion)
{
    if (range.first >= end_of_positions()) {
        completion->done(Err::kInvalid, 0);
        return;
    }
    {
        MutexLock lock(mutex_);
        if (!stopping_ && store_.service.writing()) {
            trims_.push_back({.range = range, .completion = completion, .number = ++last_trim_, .walk = {}});
            trimming_ = true;
            completion = nullptr;
        }
    }
    if (completion != nullptr)
        completion->done(Err::kShutdown, 0);
    else
        store_.commits.request_commit();
}

void Discards::end_trims()
{
    std::deque<Trim> trims;
    {
        MutexLock lock(mutex_);
        trims.swap(trims_);
        trimming_ = false;
    }
    for (const Trim& trim : trims)
        trim.completion->done(Err::kShutdown, 0);
}

// --- the thread that discards ---

void Discards::allow()
{
    MutexLock lock(mutex_);
    stopping_ = false;
}

void Discards::stop()
{
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
}

void Discards::finish()
{
    end_trims();
    give_back();
}

bool Discards::wait()
{
    MutexLock lock(mutex_);
    while (!poked_ && !stopping_)
        changed_.wait(mutex_);
    poked_ = false;
    return !stopping_;
}

bool Discards::step()
{
    const uint64_t began_ms = monotonic_ms();
    HeldStripes held{};
    bool is_held = false;
    {
        MutexLock lock(mutex_);
        if (stopping_)
            return false;
        if (!ready_.empty()) {
            held = ready_.front();
            ready_.pop_front();
            busy_ = is_held = true;
        }
    }
    if (is_held) {
        std::vector<MemberPart> parts;
        store_.volume.array()
            .group_at(held.group)
            ->locate_stripes(held.stripes.first, held.stripes.count, parts);
        discard(parts);
        store_.allocator.let_go(held.group, held.stripes, Allocator::LetGo::kDiscarded);
        MutexLock lock(mutex_);
        busy_ = false;
        changed_.notify_all();
    } else {
        const std::optional<MemberPart> part = store_.volume.begin_discard(kPartBytes);
        if (part)
            discard({*part});
        store_.volume.end_discard();
        if (!part) {
            if (trimming_)
                store_.commits.request_commit();
            return false;
        }
    }
    if (!trimming_ && !store_.options.manual_commit)
        rest(monotonic_ms() - began_ms);
    return true;
}

// Users first.
void Discards::rest(uint64_t part_ms)
{
    const uint64_t until_ms = monotonic_ms() + std::min(kRestMsMax, kRestTimes * part_ms);
    MutexLock lock(mutex_);
    for (uint64_t now = monotonic_ms(); now < until_ms && !stopping_ && !trimming_; now = monotonic_ms())
        changed_.wait_for(mutex_, until_ms - now);
}

bool Discards::takes_discards(const BlockDevice& device) const
{
    const DiscardMode mode = store_.live.discard;
    return device.discards() &&
           (trimming_ || mode == DiscardMode::kAsync || (mode == DiscardMode::kAuto && !device.rotational()));
}

bool Discards::any_takes_discards() const
{
    const MemberSet& members = store_.volume.members();
    const std::vector<MemberId> ids = members.ids();
    return std::any_of(ids.begin(), ids.end(), [&](MemberId id) {
        const BlockDevice* const device = members.device(id);
        return device != nullptr && takes_discards(*device);
    });
}

void Discards::discard(const std::vector<MemberPart>& parts)
{
    MemberSet& members = store_.volume.members();
    std::vector<IoRequest> requests;
    for (const MemberPart& part : parts) {
        BlockDevice* const device = members.device(part.member);
        if (device == nullptr)
            continue;
        for (BlockDevice* const one : {device, members.mirror_of(part.member, device).device})
            if (one != nullptr && takes_discards(*one))
                requests.push_back({.kind = IoKind::kDiscard,
                                    .device = one,
                                    .offset = part.offset,
                                    .vectors = {},
                                    .discard_bytes = part.bytes});
    }
    run_io(requests);
    // A hint: the member has lost nothing.
    for (const IoRequest& request : requests) {
        if (!request.result.ok())
            log_count(LogLevel::kWarning, request.device->name(), "parts that it did not discard", 1);
        else if (request.device->discards())
            discarded_bytes_ += request.discard_bytes;
    }
}

}  // namespace cowraid
