// SPDX-License-Identifier: MIT
// Reads every block that has a checksum, on every member, and parity against its data.
//
// Only rows that hold a referenced block: others are free, and a crash leaves there what a commit was about
// to refer to, without the checksums that it would have recorded.
#include <algorithm>

#include "alloc/row_mask.h"
#include "fs/check/check_bad_blocks.h"
#include "fs/check/check_passes.h"

namespace cowraid {

namespace {

// What one call looks at, all columns together.
constexpr uint64_t kPieceBytes = 32 * kMiB;

class GroupScrub {
public:
    GroupScrub(CheckContext& context, BlockCensus::Group& group)
        : context_(context), group_(group), geometry_(group.geometry())
    {
    }
    void run();
    // Of members, that run() reads.
    [[nodiscard]] uint64_t bytes() const;

private:
    [[nodiscard]] uint64_t stripe_bytes() const
    {
        return uint64_t{geometry_.columns()} * geometry_.chunk_bytes;
    }
    // Where redundancy is counted: a row under parity, else a block.
    [[nodiscard]] uint64_t unit_of(const BadBlock& bad) const;
    [[nodiscard]] bool row_in_use(const BadBlock& bad) const;
    void check_piece(uint64_t first_stripe, uint64_t stripe_count);
    void count(uint64_t stripe);
    void examine(std::vector<BadBlock>& found);
    [[nodiscard]] bool is_parity(const BadBlock& bad) const;
    [[nodiscard]] bool unused(const BadBlock& bad) const;
    void note_lost(const std::vector<ExaminedBlock>& examined);
    [[nodiscard]] std::vector<ExaminedBlock> take_unused(std::vector<ExaminedBlock>& examined);
    [[nodiscard]] bool no_entry(const BadBlock& bad) const;
    void note_gone(const BadBlock& bad);

    CheckContext& context_;
    BlockCensus::Group& group_;
    const Geometry& geometry_;
    std::vector<MemberId> gone_;  // present when the check began
};

bool GroupScrub::row_in_use(const BadBlock& bad) const
{
    const BlockPlace place = place_of(geometry_, bad.address - group_.address());
    const Bits256 rows = used_rows(group_.used, geometry_, place.stripe);
    return (rows.words[place.row / 64] >> place.row % 64 & 1) != 0;
}

uint64_t GroupScrub::unit_of(const BadBlock& bad) const
{
    const uint64_t offset = bad.address - group_.address();
    if (geometry_.parity == 0)
        return offset;
    const BlockPlace place = place_of(geometry_, offset);
    return place.stripe * geometry_.rows() + place.row;
}

// A member that was there when the check began.
void GroupScrub::note_gone(const BadBlock& bad)
{
    if (context_.volume.members().device(bad.member) == nullptr ||
        std::find(gone_.begin(), gone_.end(), bad.member) != gone_.end())
        return;
    gone_.push_back(bad.member);
    context_.findings.add({.kind = "member",
                           .text = "went away during the check",
                           .address = bad.address.value,
                           .member = bad.member.value});
}

bool GroupScrub::is_parity(const BadBlock& bad) const
{
    return bad.address - group_.address() >= group_.array_group->record.data_bytes();
}

// A data block that nothing refers to: the zeros that filled a row, and what was freed since.
bool GroupScrub::unused(const BadBlock& bad) const
{
    return !is_parity(bad) && !group_.used.test((bad.address - group_.address()) / kBlockBytes);
}

std::vector<ExaminedBlock> GroupScrub::take_unused(std::vector<ExaminedBlock>& examined)
{
    const auto at = std::stable_partition(examined.begin(), examined.end(),
                                          [&](const ExaminedBlock& bad) { return !unused(bad.block); });
    std::vector<ExaminedBlock> taken(at, examined.end());
    examined.erase(at, examined.end());
    return taken;
}

void GroupScrub::note_lost(const std::vector<ExaminedBlock>& examined)
{
    for (const ExaminedBlock& bad : examined) {
        if (bad.repairable || is_parity(bad.block))
            continue;
        if (group_.lost.bit_count() == 0)
            group_.lost = Bitmap(geometry_.data_blocks());
        group_.lost.set((bad.block.address - group_.address()) / kBlockBytes, 1);
    }
}

// Whether all parity of the row is stale: writes in place then had no log entry, or none that recovery found.
// What a crash left of them in blocks that nothing refers to is unknown, and part of what the stale columns
// stand for.
bool GroupScrub::no_entry(const BadBlock& bad) const
{
    const uint64_t stripe = place_of(geometry_, bad.address - group_.address()).stripe;
    for (uint32_t parity = 0; parity < geometry_.parity; ++parity) {
        const uint32_t column = group_column(geometry_, stripe, geometry_.data_columns + parity);
        if (!group_.array_group->record.columns[column].stale())
            return false;
    }
    return geometry_.parity > 0;
}

void GroupScrub::examine(std::vector<BadBlock>& found)
{
    std::erase_if(found, [&](const BadBlock& bad) { return !row_in_use(bad); });
    std::stable_sort(found.begin(), found.end(),
                     [&](const BadBlock& a, const BadBlock& b) { return unit_of(a) < unit_of(b); });
    std::vector<ExaminedBlock> examined;
    for (size_t first = 0; first < found.size();) {
        size_t end = first;
        uint32_t faults = 0;
        bool data_lost = false;
        for (; end < found.size() && unit_of(found[end]) == unit_of(found[first]); ++end) {
            // Parity that is not that of good data costs nothing: it can be computed again.
            faults += found[end].kind != BadBlock::Kind::kParityMismatch;
            data_lost = data_lost || (!unused(found[end]) && !is_parity(found[end]));
        }
        // A row whose blocks in use are all right can be made whole whatever the others hold.
        const bool repairable = faults <= group_.array_group->tolerance || !data_lost;
        for (; first < end; ++first) {
            if (found[first].kind == BadBlock::Kind::kMissing)
                note_gone(found[first]);
            examined.push_back({found[first], repairable});
        }
    }
    std::vector<ExaminedBlock> unused_blocks = take_unused(examined);
    context_.report().stale_blocks += std::erase_if(unused_blocks, [&](const ExaminedBlock& bad) {
        return bad.repairable && bad.block.kind == BadBlock::Kind::kData && no_entry(bad.block);
    });
    report_bad_blocks(context_, "pad", "unused", std::move(unused_blocks));
    note_lost(examined);
    if ((group_.content() & kGroupData) != 0)
        report_bad_blocks(context_, "checksum", "data", std::move(examined));
    else
        report_bad_blocks(context_, "tree", "tree node", std::move(examined));
}

// For the report: what check_piece() looked at.
void GroupScrub::count(uint64_t stripe)
{
    const Bits256 rows = used_rows(group_.used, geometry_, stripe);
    for (uint32_t column = 0; column < geometry_.data_columns + geometry_.parity; ++column) {
        const uint64_t first = offset_of(geometry_, {stripe, column, 0}) / kBlockBytes;
        for (uint32_t row = rows.next_set(0, geometry_.rows()); row < geometry_.rows();
             row = rows.next_set(row + 1, geometry_.rows())) {
            context_.report().checksums_verified += group_.checksums.test(first + row) * geometry_.copies;
            context_.report().parity_rows_verified += column == geometry_.data_columns;
        }
    }
}

void GroupScrub::check_piece(uint64_t first_stripe, uint64_t stripe_count)
{
    std::vector<BadBlock> found;
    const Status status =
        context_.volume.array().check_stripes(group_.address(), first_stripe, stripe_count, found);
    CW_ASSERT(status.ok());  // the group is the array's own
    for (uint64_t stripe = first_stripe; stripe < first_stripe + stripe_count; ++stripe)
        count(stripe);
    examine(found);
}

void GroupScrub::run()
{
    const uint64_t piece = std::max<uint64_t>(kPieceBytes / stripe_bytes(), 1);
    uint64_t next = 0;
    for (uint64_t stripe = group_.next_used_stripe(0); stripe < geometry_.stripe_count(); stripe = next) {
        uint64_t end = stripe;
        do
            next = group_.next_used_stripe(++end);
        while (next == end && end < geometry_.stripe_count() && end - stripe < piece);
        check_piece(stripe, end - stripe);
        context_.stored_bytes_done += (end - stripe) * stripe_bytes();
        if (context_.options.progress != nullptr)
            context_.options.progress->at(context_.stored_bytes_done, context_.stored_bytes);
    }
}

uint64_t GroupScrub::bytes() const
{
    uint64_t stripes = 0;
    for (uint64_t stripe = group_.next_used_stripe(0); stripe < geometry_.stripe_count();
         stripe = group_.next_used_stripe(stripe + 1))
        ++stripes;
    return stripes * stripe_bytes();
}

}  // namespace

void check_stored_blocks(CheckContext& context)
{
    for (BlockCensus::Group& group : context.census.groups())
        if (group.keeps_checksums())
            context.stored_bytes += GroupScrub(context, group).bytes();
    for (BlockCensus::Group& group : context.census.groups())
        if (group.keeps_checksums())
            GroupScrub(context, group).run();
}

}  // namespace cowraid
