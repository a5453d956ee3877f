// SPDX-License-Identifier: MIT
#include "raid56/io_plan.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "device/member_set.h"
#include "raid56/array_mutant.h"

namespace cowraid {

namespace {

bool in_order(const IoPart& a, const IoPart& b)
{
    return a.member != b.member ? a.member < b.member : a.offset < b.offset;
}

}  // namespace

void IoPlan::add(const IoPart& part)
{
    if (!parts_.empty()) {
        IoPart& last = parts_.back();
        if (last.member == part.member && last.owner == part.owner &&
            last.offset + last.bytes == part.offset && last.memory + last.bytes == part.memory) {
            last.bytes += part.bytes;
            return;
        }
    }
    parts_.push_back(part);
}

void IoPlan::sort_parts()
{
    if (!std::is_sorted(parts_.begin(), parts_.end(), in_order))
        std::sort(parts_.begin(), parts_.end(), in_order);
}

// Bytes to be skipped so that `next` continues the request that ends with `last`; UINT64_MAX when it cannot.
uint64_t IoPlan::bridge_to(const IoPart& last, const IoPart& next) const
{
    const DeviceOffset end = last.offset + last.bytes;
    if (last.member != next.member || last.device != next.device || next.offset < end)
        return UINT64_MAX;
    const uint64_t gap = next.offset.value - end.value;
    const bool bridge = kind_ == IoKind::kRead && may_bridge_ && gap <= kBridgeBytes;
    return gap == 0 || bridge ? gap : UINT64_MAX;
}

void IoPlan::add_vector(std::byte* memory, uint64_t bytes)
{
    vectors_.push_back({.iov_base = memory, .iov_len = bytes});
}

void IoPlan::build_runs()
{
    vectors_.reserve(parts_.size() * 2);  // never moved: requests point into it
    for (size_t i = first_; i < parts_.size(); ++i) {
        const IoPart& part = parts_[i];
        const uint64_t gap = i == first_ || one_by_one_ ? UINT64_MAX : bridge_to(parts_[i - 1], part);
        if (gap == UINT64_MAX) {
            runs_.push_back({i, 0, vectors_.size(), 0, false});
        } else if (gap > 0) {
            if (scratch_.size() == 0)
                scratch_ = AlignedBuffer(kBridgeBytes);
            add_vector(scratch_.data(), gap);
            runs_.back().bridged = true;
        }
        add_vector(part.memory, part.bytes);
        ++runs_.back().part_count;
        runs_.back().vector_count = vectors_.size() - runs_.back().first_vector;
    }
}

void IoPlan::make_requests()
{
    requests_.reserve(runs_.size());
    for (const Run& run : runs_) {
        const IoPart& first = parts_[run.first_part];
        requests_.push_back({
            .kind = kind_,
            .device = first.device,
            .offset = first.offset,
            .vectors = std::span(vectors_).subspan(run.first_vector, run.vector_count),
        });
    }
}

void IoPlan::submit()
{
    make_requests();
    if (kind_ == IoKind::kWrite)
        add_mirrors();
    const uint64_t deadline = lease_ == nullptr ? 0 : members_.read_deadline_ms() * lease_times_;
    if (deadline == 0)
        run_io(requests_);
    else if (auto late = run_io_for(requests_, deadline); late != nullptr)
        leave(std::move(late));
    leave_out_mirrors();
    for (size_t i = 0; i < runs_.size(); ++i)
        for (size_t part = 0; part < runs_[i].part_count; ++part)
            parts_[runs_[i].first_part + part].result = requests_[i].result;
}

// Everything is made anew but what the late requests use: that is theirs.
void IoPlan::leave(std::unique_ptr<LateIo> late)
{
    std::vector<Status> results;
    for (size_t i = 0; i < runs_.size(); ++i) {
        results.push_back(late->is_late(i) ? Err::kWouldWait : requests_[i].result);
        for (size_t part = 0; part < runs_[i].part_count; ++part)
            parts_[runs_[i].first_part + part].result = results[i];
    }
    late->requests = std::move(requests_);
    late->vectors = std::move(vectors_);
    move_to_fresh_memory(*late);
    late->memory.push_back(std::move(scratch_));
    leave_behind(std::move(late));
    requests_ = {};
    vectors_ = {};
    runs_.clear();
    build_runs();
    make_requests();
    for (size_t i = 0; i < runs_.size(); ++i)
        requests_[i].result = results[i];
}

void IoPlan::move_to_fresh_memory(LateIo& late)
{
    if (is_array_mutant(ArrayMutant::kLateMemoryReused))
        return;
    std::vector<const IoPart*> theirs;
    for (const IoPart& part : parts_)
        if (part.result == Status(Err::kWouldWait))
            theirs.push_back(&part);
    std::sort(theirs.begin(), theirs.end(),
              [](const IoPart* a, const IoPart* b) { return a->memory < b->memory; });
    AlignedBuffer fresh(lease_->size());
    const std::byte* const old = lease_->data();
    const std::byte* from = old;
    const auto copy_until = [&](const std::byte* end) {
        if (end > from)
            std::memcpy(fresh.data() + (from - old), from, static_cast<size_t>(end - from));
    };
    for (const IoPart* part : theirs) {
        copy_until(part->memory);
        from = part->memory + part->bytes;
    }
    copy_until(old + lease_->size());
    for (IoPart& part : parts_)
        part.memory = fresh.data() + (part.memory - old);
    std::swap(*lease_, fresh);
    late.memory.push_back(std::move(fresh));
}

void IoPlan::add_mirrors()
{
    for (size_t i = 0; i < runs_.size(); ++i) {
        const MemberId member = parts_[runs_[i].first_part].member;
        const MemberSet::Mirror mirror = members_.mirror_of(member, requests_[i].device);
        if (mirror.device == nullptr)
            continue;
        IoRequest request = requests_[i];
        request.device = mirror.device;
        requests_.push_back(request);
        mirrors_.push_back(i);
    }
}

// Before anything of the write is acknowledged. What it was written beside does not depend on it.
void IoPlan::leave_out_mirrors()
{
    for (size_t i = 0; i < mirrors_.size(); ++i) {
        const IoRequest& failed = requests_[runs_.size() + i];
        if (failed.result.ok())
            continue;
        // It may become another member's device at any time.
        const auto owner = [&, run = mirrors_[i]]() {
            const MemberSet::Mirror now =
                members_.mirror_of(parts_[runs_[run].first_part].member, requests_[run].device);
            return now.device == failed.device ? now.id : MemberId{};
        };
        members_.count(owner(), MemberCounter::kWriteErrors);
        for (MemberId id = owner(); id != MemberId{} && members_.fail({&id, 1}); id = owner())
            continue;
    }
    requests_.resize(runs_.size());
}

// Splits the parts of failed requests into blocks and reads each by itself.
void IoPlan::read_one_by_one()
{
    std::vector<IoPart> kept;
    std::vector<IoPart> blocks;
    std::vector<FailedRun> failed;
    for (size_t i = 0; i < runs_.size(); ++i) {
        const std::span<IoPart> parts = std::span(parts_).subspan(runs_[i].first_part, runs_[i].part_count);
        if (requests_[i].result != Status(Err::kIo) || requests_[i].bytes() == kBlockBytes) {
            kept.insert(kept.end(), parts.begin(), parts.end());
            continue;
        }
        const size_t first = blocks.size();
        for (const IoPart& part : parts)
            for (uint64_t at = 0; at < part.bytes; at += kBlockBytes)
                blocks.push_back({part.member,
                                  part.device,
                                  part.offset + at,
                                  part.memory + at,
                                  kBlockBytes,
                                  part.owner,
                                  {}});
        failed.push_back({first, blocks.size() - first, runs_[i].bridged});
    }
    if (blocks.empty())
        return;
    first_ = kept.size();
    one_by_one_ = true;
    parts_ = std::move(kept);
    parts_.insert(parts_.end(), blocks.begin(), blocks.end());
    runs_.clear();
    vectors_.clear();
    requests_.clear();
    build_runs();
    submit();
    for (const FailedRun& run : failed)
        count_if_gone(std::span(parts_).subspan(first_ + run.first_block, run.block_count), run.bridged);
}

// An error that the second read did not meet still happened. In a bridged gap nobody misses anything.
void IoPlan::count_if_gone(std::span<const IoPart> blocks, bool bridged)
{
    const bool gone =
        std::all_of(blocks.begin(), blocks.end(), [](const IoPart& block) { return block.result.ok(); });
    // Not on a device that has come in its place.
    if (gone && !bridged && blocks.front().device == members_.device(blocks.front().member))
        members_.count(blocks.front().member, MemberCounter::kReadErrors);
}

void IoPlan::leave_out_gone()
{
    std::vector<MemberId> gone;
    for (size_t i = 0; i < runs_.size(); ++i)
        // Another device may have come in its place meanwhile.
        if (const MemberId member = parts_[runs_[i].first_part].member;
            requests_[i].result == Status(Err::kMemberGone) && requests_[i].device == members_.device(member))
            gone.push_back(member);
    if (!gone.empty())
        members_.fail_if_spared(gone);
}

void IoPlan::count_failed_writes()
{
    for (size_t i = 0; i < runs_.size(); ++i)
        if (requests_[i].result == Status(Err::kIo))
            members_.count(parts_[runs_[i].first_part].member, MemberCounter::kWriteErrors);
}

void IoPlan::run()
{
    CW_ASSERT(runs_.empty() && (kind_ == IoKind::kRead || kind_ == IoKind::kWrite));
    if (parts_.empty())
        return;
    sort_parts();
    build_runs();
    submit();
    const bool any_failed = std::any_of(requests_.begin(), requests_.end(),
                                        [](const IoRequest& request) { return !request.result.ok(); });
    if (!any_failed)
        return;
    if (kind_ == IoKind::kRead) {
        leave_out_gone();
        read_one_by_one();
    } else {
        count_failed_writes();
    }
}

}  // namespace cowraid
