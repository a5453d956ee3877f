// SPDX-License-Identifier: MIT
#include "tests/sim/injector.h"

#include <algorithm>

#include "format/member_layout.h"
#include "format/superblock.h"

namespace cowraid::test {

namespace {

// Damage on the platters, and requests that go wrong. All leave the member in service: superblocks stay as
// they are, but for one ring.
constexpr Event kMild[] = {
    Event::kRotBits,      Event::kRotBlocks, Event::kRotWide,   Event::kRotRing,     Event::kRotMap,
    Event::kLatent,       Event::kReadError, Event::kLostWrite, Event::kMisdirected, Event::kFlippedRead,
    Event::kFlippedWrite, Event::kStaleRead, Event::kTornWrite,
};
// Of them those that a scrub mends.
constexpr size_t kRotKinds = 6;
// What may cost the member its place.
constexpr Event kGrave[] = {Event::kRotBothRings, Event::kGoneLive, Event::kWriteError, Event::kFlushError,
                            Event::kLostFlush};

constexpr Event kTooMany[] = {Event::kTooManyFlushErrors, Event::kTooManySuperblockErrors,
                              Event::kTooManyLogErrors, Event::kTooManyWriteErrors};

const char* text_of(Event kind)
{
    switch (kind) {
#define COWRAID_SIM_EVENT_TEXT(name, text, minimum)                                                          \
    case Event::name:                                                                                        \
        return text;
        COWRAID_SIM_EVENTS(COWRAID_SIM_EVENT_TEXT)
#undef COWRAID_SIM_EVENT_TEXT
    case Event::kCount:
        break;
    }
    return "?";
}

}  // namespace

// Or the device that is to take a member's place.
uint32_t Injector::some_member()
{
    std::vector<uint32_t> members = world_.machine.members();
    if (const std::optional<uint32_t> target = world_.machine.find(Place::kTarget))
        members.push_back(*target);
    return members[world_.prng.below(members.size())];
}

std::optional<uint32_t> Injector::choose_victim()
{
    const uint32_t tolerance = world_.machine.tolerance();
    if (tolerance == 0 || hurt_.size() > tolerance)
        return std::nullopt;
    if (hurt_.empty() || (hurt_.size() < tolerance && world_.prng.chance(1, 3))) {
        const uint32_t victim = some_member();
        hurt_.insert(victim);
        ever_hurt_.insert(victim);
        return victim;
    }
    return *std::next(hurt_.begin(), static_cast<ptrdiff_t>(world_.prng.below(hurt_.size())));
}

bool Injector::may_lose_more() const
{
    const size_t members = world_.machine.member_count() - (world_.machine.removing ? 1 : 0);
    return members - gone_.size() > members / 2 + 1;
}

std::optional<uint32_t> Injector::choose_victim_to_lose()
{
    if (!may_lose_more())
        return std::nullopt;
    const std::optional<uint32_t> victim = choose_victim();
    if (victim)
        gone_.insert(*victim);
    return victim;
}

std::vector<uint32_t> Injector::choose_absent(Absence how)
{
    std::vector<uint32_t> absent;
    const uint64_t wanted = world_.prng.between(1, std::max(1u, world_.machine.tolerance()));
    for (uint64_t i = 0; i < wanted; ++i) {
        const std::optional<uint32_t> victim =
            how == Absence::kWritable ? choose_victim_to_lose() : choose_victim();
        if (victim && std::find(absent.begin(), absent.end(), *victim) == absent.end())
            absent.push_back(*victim);
    }
    return absent;
}

void Injector::end_faults_of(uint32_t member)
{
    std::erase_if(rules_, [&](const ActiveRule& active) {
        if (active.member != member)
            return false;
        active.cable->remove_rule(active.number);
        return true;
    });
}

void Injector::removed(uint32_t member)
{
    end_faults_of(member);
    hurt_.erase(member);
    gone_.erase(member);
}

void Injector::moved(uint32_t from, uint32_t to)
{
    end_faults_of(from);
    end_faults_of(to);
    for (std::set<uint32_t>* members : {&hurt_, &ever_hurt_, &gone_})
        if (members->erase(from) > 0)
            members->insert(to);
}

void Injector::all_is_well()
{
    hurt_.clear();
    gone_.clear();
}

void Injector::end_faults()
{
    for (const ActiveRule& active : rules_) {
        world_.events.add(Event::kFaultHit, active.cable->hits(active.number));
        active.cable->remove_rule(active.number);
    }
    rules_.clear();
    overload_.clear();
}

std::set<uint32_t> Injector::overload_hits() const
{
    std::set<uint32_t> hit;
    for (const ActiveRule& active : overload_)
        if (active.cable->hits(active.number) > 0)
            hit.insert(active.member);
    return hit;
}

// All but the superblock's fail flushes as well, so that no member gets past the next commit: one that a log
// tries before the others may leave service, but no superblock says so.
void Injector::overload_member(Event kind, uint32_t victim)
{
    const MemberRecord* const line = world_.fs().volume->superblock().member({victim + 1});
    if (line == nullptr)
        return;  // it was removed just now
    const MemberRecord member = *line;
    FaultRule rule{.kinds = kFaultWrites | kFaultFlushes};
    const auto add = [&](uint64_t begin, uint64_t bytes) {
        rule.begin = begin;
        rule.end = begin + bytes;
        overload_.push_back(add_rule(victim, rule));
    };
    switch (kind) {
    case Event::kTooManyFlushErrors:
        rule.kinds = kFaultFlushes;
        return add(0, member.size_bytes);
    case Event::kTooManySuperblockErrors:
        rule.kinds = kFaultWrites;
        return add(kSuperblockRingOffset[1], uint64_t{kSuperblockSlotBytes} * kSuperblockSlotCount);
    case Event::kTooManyLogErrors:
        add(member.intent_log_offset, member.intent_log_bytes);
        return add(member.fsync_log_offset, member.fsync_log_bytes);
    default:
        return add(0, member.size_bytes);
    }
}

void Injector::left_service(uint32_t member)
{
    hurt_.insert(member);
    ever_hurt_.insert(member);
}

void Injector::overload()
{
    std::set<uint32_t> victims = hurt_;
    while (victims.size() <= world_.machine.tolerance())
        victims.insert(some_member());
    // By the others a member may leave beside one that is hurt, before the volume stops.
    const Event kind =
        hurt_.empty() ? kTooMany[world_.prng.below(std::size(kTooMany))] : Event::kTooManySuperblockErrors;
    for (const uint32_t victim : victims) {
        world_.note("%s, member %u", text_of(kind), victim + 1);
        overload_member(kind, victim);
    }
    world_.events.add(kind);
    rules_.insert(rules_.end(), overload_.begin(), overload_.end());
}

// Somewhere in use, behind the superblocks.
uint64_t Injector::used_offset(uint32_t victim)
{
    const std::vector<uint64_t>& written = world_.machine.written(victim);
    for (int attempt = 0; attempt < 50; ++attempt) {
        const uint64_t offset = written[world_.prng.below(written.size())];
        if (offset >= kMinHeadBytes)
            return offset;
    }
    return kMinHeadBytes;
}

void Injector::noise(uint32_t victim, uint64_t offset, uint64_t bytes)
{
    SimDevice& disk = world_.machine.disk(victim);
    std::vector<std::byte> content(std::min(bytes, disk.size_bytes() - offset));
    if (!world_.prng.chance(1, 4))
        world_.prng.fill(content.data(), content.size());
    disk.poke(offset, content);
}

void Injector::rot_bits(uint32_t victim)
{
    SimDevice& disk = world_.machine.disk(victim);
    for (uint64_t count = world_.prng.between(1, 30); count > 0; --count) {
        const uint64_t offset = used_offset(victim) + world_.prng.below(PluggedDisk::kUnitBytes);
        std::byte value;
        disk.peek(offset, {&value, 1});
        value ^= static_cast<std::byte>(1u << world_.prng.below(8));
        disk.poke(offset, {&value, 1});
    }
}

void Injector::rot_blocks(uint32_t victim)
{
    for (uint64_t count = world_.prng.between(1, 20); count > 0; --count)
        noise(victim, used_offset(victim), world_.prng.chance(1, 2) ? 512 : 32 * kKiB);
}

void Injector::rot_wide(uint32_t victim)
{
    for (const uint64_t offset : world_.machine.written(victim))
        if (offset >= kMinHeadBytes && world_.prng.chance(1, 10))
            noise(victim, offset, PluggedDisk::kUnitBytes);
}

void Injector::rot_ring(uint32_t victim, uint32_t ring)
{
    noise(victim, kSuperblockRingOffset[ring], uint64_t{kSuperblockSlotBytes} * kSuperblockSlotCount);
}

// The head holds rings and maps; all but the rings.
void Injector::rot_maps(uint32_t victim)
{
    for (const uint64_t offset : world_.machine.written(victim)) {
        const bool ring = std::any_of(
            std::begin(kSuperblockRingOffset), std::end(kSuperblockRingOffset), [&](uint64_t first) {
                return offset >= first &&
                       offset - first < uint64_t{kSuperblockSlotBytes} * kSuperblockSlotCount;
            });
        if (offset < kMinHeadBytes && !ring)
            noise(victim, offset, PluggedDisk::kUnitBytes);
    }
}

// What happens to which requests; the rest of the rule is chosen by chance.
FaultRule Injector::rule_for(Event kind, uint32_t victim)
{
    FaultRule rule;
    switch (kind) {
    case Event::kReadError:
        rule.action = FaultAction::kError;
        rule.kinds = kFaultReads;
        break;
    case Event::kLostWrite:
        rule.action = FaultAction::kLost;
        rule.kinds = kFaultWrites;
        break;
    case Event::kLostFlush:
        rule.action = FaultAction::kLost;
        rule.kinds = kFaultFlushes;
        break;
    case Event::kMisdirected:
        rule.action = FaultAction::kMisdirected;
        rule.kinds = kFaultWrites;
        rule.target_offset = std::min(used_offset(victim), world_.machine.disk(victim).size_bytes() / 2);
        break;
    case Event::kFlippedRead:
    case Event::kFlippedWrite:
        rule.action = FaultAction::kBitFlip;
        rule.kinds = kind == Event::kFlippedRead ? kFaultReads : kFaultWrites;
        break;
    case Event::kStaleRead:
        rule.action = FaultAction::kStale;
        break;
    case Event::kTornWrite:
        rule.action = FaultAction::kTorn;
        rule.error = Err::kOk;
        break;
    case Event::kGoneLive:
        rule.action = FaultAction::kGone;
        break;
    case Event::kWriteError:
        rule.action = world_.prng.chance(1, 2) ? FaultAction::kError : FaultAction::kTorn;
        rule.kinds = kFaultWrites;
        break;
    default:
        CW_ASSERT(kind == Event::kFlushError);
        rule.kinds = kFaultFlushes;
        break;
    }
    return rule;
}

void Injector::disturb(Event kind, uint32_t victim)
{
    Prng& prng = world_.prng;
    FaultRule rule;
    if (kind == Event::kLatent) {
        rule.action = FaultAction::kLatent;
        rule.begin = used_offset(victim);
        rule.end = rule.begin + prng.between(1, 200) * PluggedDisk::kUnitBytes;
    } else {
        const bool grave = std::find(std::begin(kGrave), std::end(kGrave), kind) != std::end(kGrave);
        rule = rule_for(kind, victim);
        rule.begin = grave ? 0 : kMinHeadBytes;
        rule.skip = prng.below(20);
        rule.permille = static_cast<uint32_t>(prng.chance(1, 2) ? 1000 : prng.between(20, 500));
        rule.limit = prng.chance(1, 2) ? prng.between(1, 5) : UINT64_MAX;
        rule.unit_bytes = prng.chance(1, 2) ? 512 : 4096;
        rule.flip_bits = static_cast<uint32_t>(prng.between(1, 8));
    }
    rules_.push_back(add_rule(victim, rule));
}

void Injector::hit(Event kind, uint32_t victim)
{
    switch (kind) {
    case Event::kRotBits:
        return rot_bits(victim);
    case Event::kRotBlocks:
        return rot_blocks(victim);
    case Event::kRotWide:
        return rot_wide(victim);
    case Event::kRotRing:
        // Always the same one of a member, so that the other carries it through.
        return rot_ring(victim, victim % kSuperblockRingCount);
    case Event::kRotBothRings:
        rot_ring(victim, 0);
        return rot_ring(victim, 1);
    case Event::kRotMap:
        return rot_maps(victim);
    default:
        return disturb(kind, victim);
    }
}

Injector::ActiveRule Injector::add_rule(uint32_t victim, const FaultRule& rule)
{
    FaultDevice& cable = world_.machine.cable(victim);
    return {victim, &cable, cable.add_rule(rule)};
}

void Injector::rot()
{
    const std::optional<uint32_t> victim = choose_victim();
    if (!victim)
        return;
    const Event kind = kMild[world_.prng.below(kRotKinds)];
    world_.note("%s on member %u", text_of(kind), *victim + 1);
    world_.events.add(Event::kRotBesideScrub);
    hit(kind, *victim);
}

void Injector::strike()
{
    const bool grave = world_.prng.chance(1, 4);
    std::optional<uint32_t> victim = grave ? choose_victim_to_lose() : std::nullopt;
    Event kind = kGrave[world_.prng.below(std::size(kGrave))];
    if (!victim) {
        victim = choose_victim();
        kind = kMild[world_.prng.below(std::size(kMild))];
    }
    if (!victim) {
        // No redundancy, or none left: superblocks have a second ring all the same.
        victim = world_.machine.members().front();
        kind = Event::kRotRing;
        hurt_.insert(*victim);
    }
    ever_hurt_.insert(*victim);
    world_.note("%s on member %u", text_of(kind), *victim + 1);
    world_.events.add(kind);
    hit(kind, *victim);
}

}  // namespace cowraid::test
