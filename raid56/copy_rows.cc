// SPDX-License-Identifier: MIT
// A member's blocks go to the one that will take its place: by large requests from the member itself,
// verified; what it does not have is solved stripe by stripe. The member may be failing, so nobody waits for
// what is read of it. Writers of the stripes wait from then on, so that nothing older than what is recorded
// passes for right, nor overtakes what they write to both.

#include <algorithm>

#include "base/checksum.h"
#include "raid56/io_plan.h"
#include "raid56/scrub_stripe.h"

namespace cowraid {

namespace {

// Of one member, read and written at a time; all these stripes are locked while it is written.
constexpr uint64_t kCopyBytesMax = 2 * kMiB;

// A run of rows, with the source's blocks of it.
struct CopiedRun {
    StripeRows rows;
    uint32_t cell = 0;  // of a row: that of the source
    size_t first = 0;  // block of the batch
};

class RowCopy {
public:
    RowCopy(ScrubCall& call, std::vector<CopiedRun> runs, uint64_t block_count)
        : call_(call),
          geometry_(call.group.geometry),
          runs_(std::move(runs)),
          expected_(block_count),
          good_(block_count, false),
          loan_(call.state.buffers, block_count * kBlockBytes)
    {
    }
    void run();

private:
    [[nodiscard]] std::byte* block(size_t index) { return loan_.data() + index * kBlockBytes; }
    [[nodiscard]] BlockLocation locate(const CopiedRun& run) const
    {
        return locate_block(call_.state, call_.group, place(run), run.cell % geometry_.copies);
    }
    [[nodiscard]] BlockPlace place(const CopiedRun& run) const
    {
        return {run.rows.stripe, run.cell / geometry_.copies, run.rows.first_row};
    }
    [[nodiscard]] bool read(uint32_t times);
    [[nodiscard]] bool await();
    void verify();
    void write();
    void solve_others();

    ScrubCall& call_;
    const Geometry& geometry_;
    const std::vector<CopiedRun> runs_;
    std::vector<BlockExpectation> expected_;
    std::vector<bool> good_;
    BufferPool::Loan loan_;
};

// False: the source was late.
bool RowCopy::read(uint32_t times)
{
    IoPlan plan(IoKind::kRead, call_.state.members);
    plan.forbid_bridges();
    plan.may_leave(loan_.buffer(), times);
    for (size_t index = 0; index < runs_.size(); ++index) {
        const CopiedRun& run = runs_[index];
        const BlockLocation at = locate(run);
        if (at.device != nullptr)
            plan.add({at.member,
                      at.device,
                      at.offset,
                      block(run.first),
                      uint64_t{run.rows.row_count} * kBlockBytes,
                      static_cast<uint32_t>(index),
                      {}});
    }
    plan.run();
    bool late = false;
    for (const IoPart& part : plan.parts()) {
        late = late || part.result == Status(Err::kWouldWait);
        if (part.result.ok())
            std::fill_n(good_.begin() + (part.memory - loan_.data()) / static_cast<ptrdiff_t>(kBlockBytes),
                        part.bytes / kBlockBytes, true);
    }
    return !late;
}

// Readers may need stripes that are locked: none is while one of the two members is known not to answer.
bool RowCopy::await()
{
    return call_.await(call_.copy->source) && call_.await(call_.copy->target);
}

// What is recorded of no block is left to who looks at the whole row.
void RowCopy::verify()
{
    if (BlockVerifier* const verifier = call_.state.verifier.load(std::memory_order_acquire);
        verifier != nullptr)
        for (const CopiedRun& run : runs_)
            verifier->expect(address_of(call_.group, place(run)),
                             std::span(expected_).subspan(run.first, run.rows.row_count));
    for (size_t index = 0; index < good_.size(); ++index)
        good_[index] = good_[index] && expected_[index].known &&
                       checksum_of(block(index), kBlockBytes) == expected_[index].checksum;
}

void RowCopy::write()
{
    TargetWrites writes(call_.state, *call_.copy);
    for (const CopiedRun& run : runs_) {
        const DeviceOffset offset = locate(run).offset;
        uint64_t& count = run.cell < geometry_.data_columns * geometry_.copies ? call_.report.data_blocks
                                                                               : call_.report.parity_blocks;
        count += run.rows.row_count;
        for (uint32_t row = 0; row < run.rows.row_count; ++row)
            if (good_[run.first + row])
                writes.add(offset + uint64_t{row} * kBlockBytes, block(run.first + row), kBlockBytes);
    }
    call_.report.unsettled += writes.run() ? 0 : 1;
}

void RowCopy::solve_others()
{
    for (size_t index = 0; index < runs_.size() && !call_.report.given_up;) {
        RowsOfStripe rows;
        const uint64_t stripe = runs_[index].rows.stripe;
        for (; index < runs_.size() && runs_[index].rows.stripe == stripe; ++index)
            for (uint32_t row = 0; row < runs_[index].rows.row_count; ++row)
                if (!good_[runs_[index].first + row])
                    rows[runs_[index].rows.first_row + row] = true;
        if (rows.none())
            continue;
        ScrubReport found;
        ScrubCall call{call_.state, call_.group, ScrubMode::kLook, call_.sink, found, call_.copy};
        if (!await())
            return;
        scrub_stripe(call, stripe, rows);
        call_.report.given_up = found.given_up;
        call_.report.lost.insert(call_.report.lost.end(), found.lost.begin(), found.lost.end());
        call_.report.lost_on[call_.copy->source] += found.lost_on[call_.copy->source];
        call_.report.repaired += found.repaired;
        call_.report.unsettled += found.unsettled;
    }
}

void RowCopy::run()
{
    std::vector<StripeKey> keys;
    for (const CopiedRun& run : runs_)
        if (const StripeKey key{call_.group.record.address, run.rows.stripe};
            keys.empty() || keys.back() != key)
            keys.push_back(key);
    if (!read_until_on_time([&](uint32_t times) { return read(times); }, [&] { return await(); }) || !await())
        return;
    {
        const StripeLockSet lock(call_.state.stripe_locks, keys);
        verify();
        write();
    }
    solve_others();
}

// What the source could not give may be there when it comes back: that nobody calls copied.
void note_gone(const ArrayState& state, const MemberCopy& copy, ScrubReport& report)
{
    if (state.members.device(copy.source) == nullptr || state.members.device(copy.target) == nullptr)
        ++report.unsettled;
}

}  // namespace

Status Array::copy_rows(VolumeAddress group_address, std::span<const StripeRows> rows, const MemberCopy& copy,
                        ScrubSink& sink, ScrubReport& report)
{
    const Ref<const GroupList> list = state_->groups.list();
    const ArrayGroup* group = list->find(group_address);
    if (group == nullptr || group->record.address != group_address || !rows_valid(group->geometry, rows))
        return Err::kInvalid;
    ScrubCall call{*state_, *group, ScrubMode::kLook, sink, report, &copy};
    for (size_t next = 0; next < rows.size() && !report.given_up;) {
        std::vector<CopiedRun> runs;
        uint64_t blocks = 0;
        for (; next < rows.size(); ++next) {
            const StripeRows& run = rows[next];
            const std::optional<uint32_t> cell = find_source_cell(*group, run.stripe, copy.source);
            if (!cell)
                continue;
            if (blocks > 0 && (blocks + run.row_count) * kBlockBytes > kCopyBytesMax)
                break;
            runs.push_back({run, *cell, blocks});
            blocks += run.row_count;
        }
        if (blocks > 0)
            RowCopy(call, std::move(runs), blocks).run();
    }
    note_gone(*state_, copy, report);
    return {};
}

Status Array::copy_copies(std::span<CopiedBlocks> pieces, const MemberCopy& copy, uint32_t times,
                          ScrubReport& report)
{
    const CopyBatch batch(*state_, pieces, times);
    if (batch.late())
        return Err::kWouldWait;
    TargetWrites writes(*state_, copy);
    for (const CopyBatch::Block& block : batch.blocks()) {
        const auto is_good = [](const PlacedCell& at) {
            return at.cell->state == RowCell::State::kGood;
        };
        const auto good = std::find_if(block.copies.begin(), block.copies.end(), is_good);
        if (good == block.copies.end()) {
            // The source may have it, and did not answer.
            for (const PlacedCell& at : block.copies)
                if (at.cell->state == RowCell::State::kAway &&
                    locate_block(*state_, *at.group, at.place, at.copy).member == copy.source)
                    ++report.unsettled;
            report.lost.push_back(address_of(*block.copies.front().group, block.copies.front().place));
            ++report.lost_on[copy.source];
            block.piece->result = Err::kTooManyFaults;
            continue;
        }
        for (const PlacedCell& at : block.copies) {
            const BlockLocation where = locate_block(*state_, *at.group, at.place, at.copy);
            if (where.member != copy.source)
                continue;
            writes.add(where.offset, good->cell->memory, kBlockBytes);
            ++report.data_blocks;
            report.repaired += is_good(at) ? 0 : 1;
        }
    }
    report.unsettled += writes.run() ? 0 : 1;
    note_gone(*state_, copy, report);
    return {};
}

}  // namespace cowraid
