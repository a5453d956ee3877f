// SPDX-License-Identifier: MIT
#include "raid56/repair.h"

#include <algorithm>
#include <tuple>

#include "base/checksum.h"
#include "base/log_count.h"
#include "raid56/expectations.h"
#include "raid56/io_plan.h"
#include "raid56/row_set.h"

namespace cowraid {

namespace {

auto repair_order(const RepairItem& item)
{
    return std::tuple(item.group->record.address, item.place.stripe, item.place.column, item.copy,
                      item.place.row);
}

// Several pieces of one call may have met the same bad block.
void sort_and_drop_repeated(std::vector<RepairItem>& items)
{
    std::sort(items.begin(), items.end(),
              [](const RepairItem& a, const RepairItem& b) { return repair_order(a) < repair_order(b); });
    const auto end = std::unique(items.begin(), items.end(), [](const RepairItem& a, const RepairItem& b) {
        return repair_order(a) == repair_order(b);
    });
    items.erase(end, items.end());
}

// What the verifier's answer means for one block.
enum class Verdict : uint8_t { kWrite, kCountOnly, kOutdated };

Verdict examine(const RepairItem& item, const BlockExpectation& expected, bool has_verifier)
{
    if (item.authority == RepairItem::Authority::kReader)
        return Verdict::kWrite;
    if (expected.known)
        return expected.checksum == item.checksum ? Verdict::kWrite : Verdict::kOutdated;
    if (item.authority == RepairItem::Authority::kVerifierOrReader || !has_verifier)
        return Verdict::kWrite;
    return Verdict::kCountOnly;
}

// Drops what no longer matters and counts what may not be written.
void ask_verifier(ArrayState& state, std::vector<RepairItem>& items)
{
    BlockVerifier* verifier = state.verifier.load(std::memory_order_acquire);
    std::vector<BlockExpectation> expected(items.size());
    Expectations expectations;
    for (size_t i = 0; i < items.size(); ++i)
        if (items[i].authority != RepairItem::Authority::kReader)
            expectations.add(*items[i].group, items[i].place, &expected[i]);
    expectations.ask(verifier);
    const bool read_only = state.read_only.load(std::memory_order_acquire);
    size_t kept = 0;
    for (size_t i = 0; i < items.size(); ++i) {
        const RepairItem& item = items[i];
        const Verdict verdict = examine(item, expected[i], verifier != nullptr);
        if (verdict == Verdict::kWrite && !read_only)
            items[kept++] = item;
        else if (verdict != Verdict::kOutdated)
            count_fault(state, *item.group, item.place, item.copy, item.cause);
    }
    items.resize(kept);
}

// The repairs of one stripe, done while its lock is held.
class StripeRepair {
public:
    StripeRepair(ArrayState& state, std::span<RepairItem> items, Patience patience)
        : state_(state),
          items_(items),
          patience_(patience),
          loan_(state.buffers, items.size() * kBlockBytes),
          todo_(items.size(), true),
          cells_(items.size())
    {
        for (size_t i = 0; i < items.size(); ++i)
            todo_[i] = patience == Patience::kForAll || !slow(items[i]);
    }
    size_t run();

private:
    [[nodiscard]] bool slow(const RepairItem& item) const;
    void read_back();
    void confirm();
    void write();
    void verify();
    [[nodiscard]] std::byte* scratch(size_t index) { return loan_.data() + index * kBlockBytes; }

    ArrayState& state_;
    std::span<RepairItem> items_;
    const Patience patience_;
    BufferPool::Loan loan_;
    std::vector<bool> todo_;
    size_t confirmed_ = 0;
    std::vector<RowCell> cells_;
};

// Whom it is read from or written to does not answer: its member, or that one's successor.
bool StripeRepair::slow(const RepairItem& item) const
{
    const MemberSet& members = state_.members;
    const BlockLocation at = locate_block(state_, *item.group, item.place, item.copy);
    if (at.device == nullptr)
        return false;
    BlockDevice* const successor = members.mirror_of(at.member, at.device).device;
    return members.slow(*at.device) || (successor != nullptr && members.slow(*successor));
}

// Reads every block still to do into the scratch memory. What is late is away.
void StripeRepair::read_back()
{
    std::vector<PlacedCell> reads;
    for (size_t i = 0; i < items_.size(); ++i) {
        cells_[i] = {.state = RowCell::State::kAway, .memory = scratch(i)};
        if (todo_[i])
            reads.push_back({items_[i].group, items_[i].place, items_[i].copy, &cells_[i]});
    }
    read_cells(state_, reads, patience_ == Patience::kForAll ? nullptr : &loan_.buffer());
}

// A block that is right by now was repaired by another reader; one that holds something else again was
// written since. Only what is still as bad as it was seen is counted and goes on.
void StripeRepair::confirm()
{
    for (size_t i = 0; i < items_.size(); ++i) {
        RepairItem& item = items_[i];
        FaultCause cause = FaultCause::kReadError;
        if (cells_[i].usable()) {
            cause = FaultCause::kWrong;
            const Checksum now = checksum_of(scratch(i), kBlockBytes);
            item.right = now == item.checksum;
            todo_[i] = item.cause == FaultCause::kWrong && now == item.seen;
        } else {
            todo_[i] = cells_[i].state == RowCell::State::kBad;
        }
        if (!todo_[i])
            continue;
        item.cause = cause;
        item.counted =
            item.charged && count_fault(state_, *item.group, item.place, item.copy, cause);  // I-17
        ++confirmed_;
    }
}

void StripeRepair::write()
{
    IoPlan plan(IoKind::kWrite, state_.members);
    for (size_t i = 0; i < items_.size(); ++i) {
        const BlockLocation location =
            locate_block(state_, *items_[i].group, items_[i].place, items_[i].copy);
        // Hashed once more: nothing may reach a member by a repair but what was verified.
        todo_[i] = todo_[i] && location.device != nullptr &&
                   checksum_of(items_[i].content, kBlockBytes) == items_[i].checksum;
        if (!todo_[i])
            continue;
        // A write plan does not change the memory behind it.
        plan.add({location.member,
                  location.device,
                  location.offset,
                  const_cast<std::byte*>(items_[i].content),
                  kBlockBytes,
                  static_cast<uint32_t>(i),
                  {}});
    }
    plan.run();
    std::vector<MemberId> failed;
    for (const IoPart& part : plan.parts()) {
        if (part.result.ok())
            continue;
        todo_[part.owner] = false;
        // One that is being replaced stays: what it still has is copied.
        if (part.device == state_.members.device(part.member) &&
            state_.members.mirror_of(part.member, part.device).device == nullptr)
            failed.push_back(part.member);
    }
    // A member that cannot store a repair goes, unless that costs more than the bad block: its other blocks
    // are still worth having where redundancy is used up.
    if (!failed.empty() && !state_.members.fail_if_spared(failed))
        log_count(LogLevel::kError, state_.members.name(failed.front()),
                  "repairs it cannot store, but no redundancy is left to do without it", 1);
}

void StripeRepair::verify()
{
    size_t repaired = 0, away = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
        if (!todo_[i])
            continue;
        if (cells_[i].state == RowCell::State::kAway) {
            ++away;
            continue;
        }
        RepairItem& item = items_[i];
        const BlockLocation at = locate_block(state_, *item.group, item.place, item.copy);
        const bool holds = cells_[i].usable() && checksum_of(scratch(i), kBlockBytes) == items_[i].checksum;
        if (!at.stale && item.counted)
            state_.members.note_repair(at.member, at.offset,
                                       holds ? MemberSet::Repair::kHolds : MemberSet::Repair::kDoesNotHold);
        if (!holds)
            continue;
        if (!at.stale && item.counted)
            state_.members.count(at.member, MemberCounter::kRepaired);
        item.right = true;
        ++repaired;
    }
    bump(state_.counters.blocks_repaired, repaired);
    log_count(LogLevel::kError, "volume", "bad blocks whose repair could not be stored",
              confirmed_ - repaired - away);
}

size_t StripeRepair::run()
{
    read_back();
    confirm();
    if (confirmed_ > 0) {
        write();
        read_back();
        verify();
    }
    return static_cast<size_t>(
        std::count_if(items_.begin(), items_.end(), [](const RepairItem& item) { return item.right; }));
}

}  // namespace

RepairItem::Authority authority_for(const LostBlock& lost)
{
    const bool from_pointer = lost.source == ChecksumSource::kPointer;
    if (lost.group->geometry.parity == 0)
        return from_pointer ? RepairItem::Authority::kReader : RepairItem::Authority::kVerifierOrReader;
    return from_pointer ? RepairItem::Authority::kVerifierOrReader : RepairItem::Authority::kVerifier;
}

size_t repair_blocks(ArrayState& state, std::vector<RepairItem>& items, Stripes stripes, Patience patience)
{
    size_t repaired = 0;
    sort_and_drop_repeated(items);
    ask_verifier(state, items);
    for (size_t first = 0; first < items.size();) {
        const StripeKey key{items[first].group->record.address, items[first].place.stripe};
        size_t end = first + 1;
        while (end < items.size() && items[end].group->record.address == key.group &&
               items[end].place.stripe == key.stripe)
            ++end;
        const std::span<RepairItem> of_stripe = std::span(items).subspan(first, end - first);
        first = end;
        if (stripes == Stripes::kUnlocked)
            state.stripe_locks.lock(key);
        else if (stripes == Stripes::kIfFree && !state.stripe_locks.try_lock(key))
            continue;
        repaired += StripeRepair(state, of_stripe, patience).run();
        if (stripes != Stripes::kLocked)
            state.stripe_locks.unlock(key);
    }
    return repaired;
}

}  // namespace cowraid
