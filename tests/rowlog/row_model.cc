// SPDX-License-Identifier: MIT
#include "tests/rowlog/row_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "base/assert.h"
#include "base/checksum.h"
#include "tests/rowlog/row_check.h"
#include "tests/rowlog/row_recover.h"

namespace cowraid::test {

namespace {

constexpr size_t kMaxSubsetBits = 12;
constexpr uint32_t kSampledSubsets = 2048;
constexpr uint32_t kAll = UINT32_MAX;

// Something wrong with one member that does not take it away.
struct Fault {
    uint32_t member = 0;
    uint32_t row = kAll;  // whose block is rotten; kAll: of the log
    uint32_t slot = kAll;  // whose descriptor is unreadable; kAll: the whole log
};

class Enumeration {
public:
    explicit Enumeration(const RowRun& run)
        : run_(run),
          world_(run),
          check_(world_),
          losses_(small_sets(world_.members(), run.parity)),
          prng_(run.seed + 1)
    {
    }
    RowReport go();

private:
    void list_faults();
    void crash_at(size_t event);
    void try_subsets(const State& durable, const std::vector<Event>& pending);
    void try_state(const State& state);
    void try_faults(const State& state, size_t next, uint32_t count);
    bool damage(State& state, const Fault& fault);
    void try_losses(const State& state);
    void try_recovery(const State& state, const Recorded& recorded, Mask missing, uint32_t depth);
    bool tried(const State& state, const Recorded& recorded, Mask missing, Mask unread, uint32_t depth);
    void verify(const State& recovered, const Recorded& recorded, Mask missing, uint32_t depth);
    void crash_in_recovery(const State& before, const State& after, const Recorded& recorded, Mask missing,
                           uint32_t depth);
    void crash_in_clearing(const State& after, const Recorded& recorded, Mask missing, uint32_t depth);
    void try_nested(const State& state, const Recorded& recorded, Mask missing, uint32_t depth);
    [[nodiscard]] uint32_t spent(Mask missing) const
    {
        return static_cast<uint32_t>(std::popcount(missing) + chosen_.size());
    }
    [[nodiscard]] bool mutant(RowMutant one) const { return run_.mutant == one; }
    [[nodiscard]] uint16_t cleared(uint32_t place);

    const RowRun& run_;
    RowWorld world_;
    RowCheck check_;
    const std::vector<Mask> losses_;
    Prng prng_;
    std::vector<Fault> faults_;
    std::vector<const Fault*> chosen_;
    std::array<Mask, kMaxRows> acknowledged_{};
    uint32_t recorded_ = 0;  // index into RowWorld::recorded
    std::unordered_set<uint64_t> seen_;
    std::unordered_set<uint64_t> tried_;
    RowReport report_;
};

void Enumeration::list_faults()
{
    for (uint32_t member = 0; member < world_.members(); ++member) {
        if ((run_.missing >> member & 1) != 0)
            continue;
        for (uint32_t row = 0; row < run_.rows; ++row)
            faults_.push_back({member, row, kAll});
        faults_.push_back({member, kAll, kAll});
        for (uint32_t slot = 0; slot < world_.slot_count() && run_.steps.size() > 1; ++slot)
            faults_.push_back({member, kAll, slot});
    }
}

// False: there is nothing to damage.
bool Enumeration::damage(State& state, const Fault& fault)
{
    if (fault.row != kAll) {
        uint16_t& place = state[fault.member * world_.cells() + fault.row];
        place = world_.intern(rotten(world_.value(place).content));
        return true;
    }
    bool any = false;
    for (uint32_t slot = 0; slot < world_.slot_count(); ++slot) {
        uint16_t& place = state[world_.log_place(fault.member, slot * world_.slot_cells())];
        if ((fault.slot != kAll && fault.slot != slot) || !world_.value(place).is_descriptor)
            continue;
        const bool unnoticed = mutant(RowMutant::kUncoveredSequence) && fault.slot != kAll;
        place = static_cast<uint16_t>(unnoticed ? world_.value(place).renumbered : 0);
        any = true;
    }
    return any;
}

// Every subset of the writes before `event` that no flush covers.
void Enumeration::crash_at(size_t event)
{
    State durable = world_.start;
    std::vector<Event> pending;
    acknowledged_ = {};
    recorded_ = 0;
    for (size_t index = 0; index < event; ++index) {
        const Event& one = world_.events[index];
        if (one.kind == Event::Kind::kAcknowledge) {
            for (uint32_t row = 0; row < run_.rows; ++row)
                acknowledged_[row] |= one.columns[row];
            recorded_ = one.recorded;
        } else if (one.kind == Event::Kind::kFlush) {
            for (const Event& write : pending)
                if (write.member == one.member)
                    durable[write.place] = write.value;
            std::erase_if(pending, [&](const Event& write) { return write.member == one.member; });
        } else {
            pending.push_back(one);
        }
    }
    for (uint32_t row = 0; row < run_.rows; ++row)
        check_.want(row, acknowledged_[row]);
    try_subsets(durable, pending);
}

void Enumeration::try_subsets(const State& durable, const std::vector<Event>& pending)
{
    const bool all = pending.size() <= kMaxSubsetBits;
    report_.sampled += all ? 0 : 1;
    const uint32_t subsets = all ? 1u << pending.size() : kSampledSubsets;
    for (uint32_t subset = 0; subset < subsets; ++subset) {
        const uint64_t kept = all ? subset : prng_.next();
        State state = durable;
        for (size_t index = 0; index < pending.size(); ++index)
            if ((kept >> index & 1) != 0)
                state[pending[index].place] = pending[index].value;
        try_state(state);
    }
}

void Enumeration::try_state(const State& state)
{
    const uint64_t acknowledged =
        uint64_t{recorded_} << 48 | uint64_t{acknowledged_[1]} << 24 | acknowledged_[0];
    if (!seen_.insert(seeded_hash(state.data(), state.size() * sizeof state[0], acknowledged)).second)
        return;
    ++report_.states;
    try_faults(state, 0, 0);
}

// This state, and with every further choice of faults from `next` on.
void Enumeration::try_faults(const State& state, size_t next, uint32_t count)
{
    try_losses(state);
    if (spent(run_.missing) >= run_.parity || count == run_.max_faults)
        return;
    for (; next < faults_.size(); ++next) {
        State damaged = state;
        if (!damage(damaged, faults_[next]))
            continue;
        chosen_.push_back(&faults_[next]);
        try_faults(damaged, next + 1, count + 1);
        chosen_.pop_back();
    }
}

void Enumeration::try_losses(const State& state)
{
    Mask faulty = run_.missing;
    for (const Fault* fault : chosen_)
        faulty |= 1u << fault->member;
    for (const Mask lost : losses_)
        if ((lost & faulty) == 0 && spent(lost | run_.missing) <= run_.parity)
            try_recovery(state, world_.recorded[recorded_], lost | run_.missing, 0);
}

// Whether recovery was tried on a state that differs in nothing but what the members `unread` hold.
bool Enumeration::tried(const State& state, const Recorded& recorded, Mask missing, Mask unread,
                        uint32_t depth)
{
    State read = state;
    for (uint32_t member = 0; member < world_.members(); ++member)
        if ((unread >> member & 1) != 0)
            std::fill_n(read.begin() + member * world_.cells(), world_.cells(), uint16_t{0});
    Mask faulty = 0;
    for (const Fault* fault : chosen_)
        faulty |= 1u << fault->member;
    const uint64_t rest[] = {uint64_t{acknowledged_[1]} << 32 | acknowledged_[0],
                             uint64_t{missing} << 32 | faulty, uint64_t{depth} << 32 | chosen_.size()};
    uint64_t key = seeded_hash(read.data(), read.size() * sizeof read[0], 0);
    key = seeded_hash(recorded.data(), sizeof recorded, key);
    return !tried_.insert(seeded_hash(rest, sizeof rest, key)).second;
}

void Enumeration::try_recovery(const State& state, const Recorded& recorded, Mask missing, uint32_t depth)
{
    const Mask unread = mutant(RowMutant::kStaleMember) ? missing & ~run_.missing : missing;
    if (tried(state, recorded, missing, unread, depth))
        return;
    State recovered = state;
    Recorded adopted = recorded;
    recover_state(world_, recovered, adopted, check_.wanted(), unread);
    verify(recovered, adopted, missing, depth);
    if (depth < run_.nested_depth) {
        crash_in_recovery(state, recovered, recorded, missing, depth);
        crash_in_clearing(recovered, adopted, missing, depth);
    }
}

void Enumeration::verify(const State& recovered, const Recorded& recorded, Mask missing, uint32_t depth)
{
    const bool slow = prng_.below(32) == 0;
    // Recovery that found rot and was cut short leaves parity of which nothing is recorded.
    const RowVerdict verdict =
        check_.verify(recovered, recorded, missing, run_.parity - spent(missing),
                      {.last_resort = depth > 0, .slow = slow, .untouched = chosen_.empty()});
    report_.last_resorts += verdict.last_resorts;
    report_.checks += verdict.checks;
    report_.losses += verdict.losses;
    report_.slow_checks += verdict.slow ? verdict.checks : 0;
    report_.nested_checks += depth > 0 ? verdict.checks : 0;
    for (const Fault* fault : chosen_)
        (fault->row != kAll ? report_.rot_checks : report_.log_checks) += verdict.checks;
    report_.complaints += verdict.complaints;
    std::string& first = verdict.losses > 0 ? report_.first_loss : report_.first_complaint;
    if (verdict.losses + verdict.complaints == 0 || !first.empty())
        return;
    first = describe(run_) + "; acknowledged " + std::to_string(acknowledged_[0]) + " " +
            std::to_string(acknowledged_[1]) + ", missing at recovery " + std::to_string(missing) +
            ", nested " + std::to_string(depth) + verdict.loss;
    for (const Fault* fault : chosen_)
        first += ", fault at member " + std::to_string(fault->member) + " row " +
                 std::to_string(static_cast<int>(fault->row)) + " slot " +
                 std::to_string(static_cast<int>(fault->slot));
}

void Enumeration::try_nested(const State& state, const Recorded& recorded, Mask missing, uint32_t depth)
{
    ++report_.nested_states;
    for (const Mask lost : losses_) {
        bool free = (lost & missing) == 0 && spent(lost | missing) <= run_.parity;
        for (const Fault* fault : chosen_)
            free = free && (lost >> fault->member & 1) == 0;
        if (free)
            try_recovery(state, recorded, lost | missing, depth + 1);
    }
}

uint16_t Enumeration::cleared(uint32_t place)
{
    const uint32_t member = place / world_.cells();
    const uint32_t cell = place % world_.cells() - run_.rows;
    return mutant(RowMutant::kEraseByZeros) ? uint16_t{0} : world_.dead_descriptor(member, cell);
}

// Any part of what recovery wrote; all of it, too: then the log is there still, and nothing is recorded.
void Enumeration::crash_in_recovery(const State& before, const State& after, const Recorded& recorded,
                                    Mask missing, uint32_t depth)
{
    std::vector<std::pair<uint32_t, uint16_t>> writes;
    for (uint32_t place = 0; place < after.size(); ++place)
        if (before[place] != after[place])
            writes.emplace_back(place, after[place]);
    if (mutant(RowMutant::kClearUnordered))
        for (const uint32_t place : descriptors_of(world_, before, missing))
            writes.emplace_back(place, cleared(place));
    CW_ASSERT(writes.size() < 16);
    for (uint32_t kept = 1; kept < 1u << writes.size(); ++kept) {
        State state = before;
        for (size_t index = 0; index < writes.size(); ++index)
            if ((kept >> index & 1) != 0)
                state[writes[index].first] = writes[index].second;
        try_nested(state, recorded, missing, depth);
    }
}

// What recovery wrote is flushed and recorded; any part of the log's clearing reached the members.
void Enumeration::crash_in_clearing(const State& after, const Recorded& recorded, Mask missing,
                                    uint32_t depth)
{
    const std::vector<uint32_t> places = descriptors_of(world_, after, missing);
    CW_ASSERT(places.size() < 16);
    for (uint32_t kept = 1; kept < 1u << places.size(); ++kept) {
        State state = after;
        for (size_t index = 0; index < places.size(); ++index)
            if ((kept >> index & 1) != 0)
                state[places[index]] = cleared(places[index]);
        try_nested(state, recorded, missing, depth);
    }
}

RowReport Enumeration::go()
{
    list_faults();
    // Between writes there is nothing that the subsets before the next flush do not hold.
    for (size_t event = 0; event <= world_.events.size(); ++event)
        if (event == world_.events.size() || world_.events[event].kind != Event::Kind::kWrite)
            crash_at(event);
    return report_;
}

}  // namespace

void RowReport::add(const RowReport& other)
{
    states += other.states;
    checks += other.checks;
    rot_checks += other.rot_checks;
    log_checks += other.log_checks;
    nested_states += other.nested_states;
    nested_checks += other.nested_checks;
    slow_checks += other.slow_checks;
    sampled += other.sampled;
    last_resorts += other.last_resorts;
    losses += other.losses;
    if (first_loss.empty())
        first_loss = other.first_loss;
    complaints += other.complaints;
    if (first_complaint.empty())
        first_complaint = other.first_complaint;
}

RowReport enumerate_row(const RowRun& run)
{
    return Enumeration(run).go();
}

}  // namespace cowraid::test
