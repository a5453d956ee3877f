// SPDX-License-Identifier: MIT
#include "sim/fault_device.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/buffer.h"

namespace cowraid {

namespace {

uint64_t request_bytes(const IoRequest& request)
{
    return request.kind == IoKind::kDiscard ? request.discard_bytes : request.bytes();
}

// The part of the device that both a request and a rule are about.
struct Range {
    uint64_t begin, end;
    [[nodiscard]] bool empty() const { return begin >= end; }
};

Range common_range(const FaultRule& rule, const IoRequest& request)
{
    return {std::max(rule.begin, request.offset.value),
            std::min(rule.end, request.offset.value + request_bytes(request))};
}

// The memory of a request that stands for device offset `at`.
std::byte* memory_at(const IoRequest& request, uint64_t at)
{
    uint64_t left = at - request.offset.value;
    for (const iovec& vector : request.vectors) {
        if (left < vector.iov_len)
            return static_cast<std::byte*>(vector.iov_base) + left;
        left -= vector.iov_len;
    }
    CW_ASSERT(left == 0);
    return nullptr;
}

void gather(const IoRequest& request, std::span<std::byte> out)
{
    for (const iovec& vector : request.vectors) {
        std::memcpy(out.data(), vector.iov_base, vector.iov_len);
        out = out.subspan(vector.iov_len);
    }
}

// Distinct bits of a range, as bit numbers of the device.
std::vector<uint64_t> choose_bits(Range range, uint32_t count, uint64_t seed)
{
    const uint64_t bits = (range.end - range.begin) * 8;
    CW_ASSERT(count <= bits);
    Prng prng(seed);
    std::vector<uint64_t> chosen;
    while (chosen.size() < count) {
        const uint64_t bit = range.begin * 8 + prng.below(bits);
        if (std::find(chosen.begin(), chosen.end(), bit) == chosen.end())
            chosen.push_back(bit);
    }
    return chosen;
}

std::byte bit_mask(uint64_t bit)
{
    return static_cast<std::byte>(1u << (bit % 8));
}

// A request for one piece of memory.
Status one_piece(BlockDevice& device, IoKind kind, uint64_t offset, std::span<std::byte> memory,
                 bool durable = false)
{
    const iovec vector{memory.data(), memory.size()};
    IoRequest request{
        .kind = kind, .device = &device, .offset = {offset}, .vectors = {&vector, 1}, .durable = durable};
    device.perform(request);
    return request.result;
}

}  // namespace

// Content of blocks before they were overwritten.
struct FaultDevice::Old {
    std::unordered_map<uint64_t, AlignedBuffer> blocks;  // by block number
};

struct FaultDevice::Rule {
    FaultRule rule;
    bool active = true;
    uint64_t seen = 0;
    uint64_t hits = 0;
    Old old;  // kStale
    std::unordered_set<uint64_t> rewritten;  // kLatent: block numbers that read well again
};

// What to do with one request, decided under the lock and carried out without it.
struct FaultDevice::Plan {
    bool faulty = false;
    bool gone = false;
    FaultRule rule;
    size_t number = 0;
    uint64_t seed = 0;
    uint64_t delay_microseconds = 0;
};

FaultDevice::FaultDevice(std::unique_ptr<BlockDevice> inner, uint64_t seed, SlowHook slow)
    : inner_(std::move(inner)), slow_(slow), prng_(seed)
{
}

FaultDevice::~FaultDevice() = default;

size_t FaultDevice::add_rule(const FaultRule& rule)
{
    CW_ASSERT(rule.unit_bytes == 512 || rule.unit_bytes == kBlockBytes);
    auto entry = std::make_unique<Rule>();
    entry->rule = rule;
    if (rule.action == FaultAction::kStale || rule.action == FaultAction::kLatent)
        entry->rule.kinds &= kFaultReads;
    if (rule.action == FaultAction::kTorn)
        entry->rule.kinds &= kFaultWrites;
    if (rule.action == FaultAction::kLost)
        entry->rule.kinds &= kFaultWrites | kFaultFlushes | kFaultDiscards;
    if (rule.action == FaultAction::kMisdirected || rule.action == FaultAction::kBitFlip ||
        rule.action == FaultAction::kRot)
        entry->rule.kinds &= kFaultReads | kFaultWrites;
    CW_ASSERT(entry->rule.kinds != 0);
    MutexLock lock(mutex_);
    rules_.push_back(std::move(entry));
    return rules_.size() - 1;
}

void FaultDevice::remove_rule(size_t number)
{
    MutexLock lock(mutex_);
    rules_[number]->active = false;
}

void FaultDevice::remove_all_rules()
{
    MutexLock lock(mutex_);
    for (auto& rule : rules_)
        rule->active = false;
}

uint64_t FaultDevice::hits(size_t number) const
{
    MutexLock lock(mutex_);
    return rules_[number]->hits;
}

uint64_t FaultDevice::hits(FaultAction action) const
{
    MutexLock lock(mutex_);
    uint64_t sum = 0;
    for (const auto& rule : rules_)
        sum += rule->rule.action == action ? rule->hits : 0;
    return sum;
}

bool FaultDevice::gone() const
{
    return std::any_of(rules_.begin(), rules_.end(), [](const auto& rule) {
        return rule->active && rule->rule.action == FaultAction::kGone && rule->hits > 0;
    });
}

bool FaultDevice::hit(Rule& rule, const IoRequest& request)
{
    if (!rule.active || (rule.rule.kinds & (1u << static_cast<uint32_t>(request.kind))) == 0)
        return false;
    if (request.kind != IoKind::kFlush) {
        const Range range = common_range(rule.rule, request);
        if (range.empty())
            return false;
        bool bad = rule.rule.action != FaultAction::kLatent;
        for (uint64_t block = range.begin / kBlockBytes; !bad && block * kBlockBytes < range.end; ++block)
            bad = !rule.rewritten.contains(block);
        if (!bad)
            return false;
    }
    if (rule.seen++ < rule.rule.skip || rule.hits >= rule.rule.limit)
        return false;
    if (rule.rule.permille < 1000 && !prng_.chance(rule.rule.permille, 1000))
        return false;
    ++rule.hits;
    return true;
}

FaultDevice::Plan FaultDevice::decide(const IoRequest& request)
{
    MutexLock lock(mutex_);
    Plan plan;
    plan.gone = gone();
    for (size_t number = 0; !plan.gone && !plan.faulty && number < rules_.size(); ++number) {
        Rule& rule = *rules_[number];
        if (!hit(rule, request))
            continue;
        if (rule.rule.action == FaultAction::kSlow) {
            plan.delay_microseconds += rule.rule.delay_microseconds;
            continue;
        }
        plan.faulty = true;
        plan.number = number;
        plan.rule = rule.rule;
        plan.seed = prng_.next();
    }
    return plan;
}

void FaultDevice::perform(IoRequest& request)
{
    request.result = Err::kOk;
    const uint64_t bytes = request_bytes(request);
    if (request.kind != IoKind::kFlush &&
        (bytes > size_bytes() || request.offset.value > size_bytes() - bytes)) {
        request.result = Err::kIo;
        return;
    }
    const Plan plan = decide(request);
    if (plan.delay_microseconds > 0 && slow_.call != nullptr)
        slow_.call(slow_.context, plan.delay_microseconds);
    const bool changes = request.kind == IoKind::kWrite || request.kind == IoKind::kDiscard;
    if (changes && !plan.gone)
        keep_old_content(request);
    if (plan.gone)
        request.result = Err::kMemberGone;
    else if (plan.faulty)
        carry_out(request, plan);
    else
        pass(request);
}

void FaultDevice::pass(IoRequest& request)
{
    IoRequest passed = request;
    passed.device = inner_.get();
    const Status flushed = request.kind == IoKind::kWrite && request.durable ? flush_of(passed) : Status();
    inner_->perform(passed);
    request.result = passed.result;
    if (request.kind == IoKind::kWrite && request.result.ok())
        note_rewritten(request);
    if (request.result.ok())
        request.result = flushed;
}

// A durable write is a flush of its own content: rules for flushes hit it, too.
Status FaultDevice::flush_of(IoRequest& write)
{
    const IoRequest flush{.kind = IoKind::kFlush, .device = write.device};
    const Plan plan = decide(flush);
    if (plan.delay_microseconds > 0 && slow_.call != nullptr)
        slow_.call(slow_.context, plan.delay_microseconds);
    const bool error = plan.faulty && plan.rule.action == FaultAction::kError;
    const bool gone = plan.gone || (plan.faulty && plan.rule.action == FaultAction::kGone);
    write.durable = !error && !gone && !(plan.faulty && plan.rule.action == FaultAction::kLost);
    if (gone)
        return Err::kMemberGone;
    return error ? Status(plan.rule.error) : Status();
}

void FaultDevice::carry_out(IoRequest& request, const Plan& plan)
{
    switch (plan.rule.action) {
    case FaultAction::kError:
        request.result = plan.rule.error;
        break;
    case FaultAction::kGone:
        request.result = Err::kMemberGone;
        break;
    case FaultAction::kTorn:
        torn(request, plan);
        break;
    case FaultAction::kLost:
        break;
    case FaultAction::kMisdirected:
        misdirected(request, plan);
        break;
    case FaultAction::kBitFlip:
        flipped(request, plan);
        break;
    case FaultAction::kRot:
        flip_on_device(request, plan);
        break;
    case FaultAction::kStale:
        stale(request, plan);
        break;
    case FaultAction::kLatent:
        request.result = Err::kIo;
        break;
    case FaultAction::kSlow:
        CW_ASSERT(plan.rule.action != FaultAction::kSlow);
    }
}

// The old content of blocks that rules still want to serve, before the request overwrites them.
void FaultDevice::keep_old_content(const IoRequest& request)
{
    std::vector<std::pair<size_t, uint64_t>> wanted;  // rule, block number
    {
        MutexLock lock(mutex_);
        for (size_t number = 0; number < rules_.size(); ++number) {
            const Rule& rule = *rules_[number];
            if (!rule.active || rule.rule.action != FaultAction::kStale)
                continue;
            const Range range = common_range(rule.rule, request);
            for (uint64_t block = range.begin / kBlockBytes; block * kBlockBytes < range.end; ++block) {
                if (!rule.old.blocks.contains(block))
                    wanted.emplace_back(number, block);
            }
        }
    }
    for (const auto& [number, block] : wanted) {
        AlignedBuffer content(kBlockBytes);
        if (!one_piece(*inner_, IoKind::kRead, block * kBlockBytes, content.span()).ok())
            continue;
        MutexLock lock(mutex_);
        rules_[number]->old.blocks.emplace(block, std::move(content));
    }
}

void FaultDevice::note_rewritten(const IoRequest& request)
{
    MutexLock lock(mutex_);
    for (auto& rule : rules_) {
        if (rule->rule.action != FaultAction::kLatent)
            continue;
        const Range range = common_range(rule->rule, request);
        for (uint64_t block = range.begin / kBlockBytes; block * kBlockBytes < range.end; ++block)
            rule->rewritten.insert(block);
    }
}

// Stores a random part of the write, never all of it, by way of what is there now.
void FaultDevice::torn(IoRequest& request, const Plan& plan)
{
    AlignedBuffer mixed(request.bytes());
    AlignedBuffer fresh(request.bytes());
    gather(request, fresh.span());
    Status status = one_piece(*inner_, IoKind::kRead, request.offset.value, mixed.span());
    if (status.ok()) {
        Prng prng(plan.seed);
        const uint64_t missing = prng.below(mixed.size() / plan.rule.unit_bytes) * plan.rule.unit_bytes;
        for (size_t at = 0; at < mixed.size(); at += plan.rule.unit_bytes) {
            if (prng.chance(1, 2) && at != missing)
                std::memcpy(mixed.data() + at, fresh.data() + at, plan.rule.unit_bytes);
        }
        status = one_piece(*inner_, IoKind::kWrite, request.offset.value, mixed.span(), request.durable);
    }
    request.result = status.ok() ? plan.rule.error : status;
}

void FaultDevice::misdirected(IoRequest& request, const Plan& plan)
{
    IoRequest passed = request;
    passed.device = plan.rule.target != nullptr ? plan.rule.target : inner_.get();
    passed.offset = {plan.rule.target_offset};
    passed.device->perform(passed);
    request.result = passed.result;
}

void FaultDevice::flip_on_device(IoRequest& request, const Plan& plan)
{
    // A write is stored first: rot comes after it.
    if (request.kind == IoKind::kWrite)
        pass(request);
    const Range range = common_range(plan.rule, request);
    AlignedBuffer content(kBlockBytes);
    for (const uint64_t bit : choose_bits(range, plan.rule.flip_bits, plan.seed)) {
        const uint64_t offset = round_down(bit / 8, kBlockBytes);
        if (!one_piece(*inner_, IoKind::kRead, offset, content.span()).ok())
            continue;
        content.data()[bit / 8 - offset] ^= bit_mask(bit);
        // A device that cannot store the flip is in worse trouble already.
        one_piece(*inner_, IoKind::kWrite, offset, content.span()).ignore();
    }
    if (request.kind != IoKind::kWrite)
        pass(request);
}

void FaultDevice::flipped(IoRequest& request, const Plan& plan)
{
    const auto bits = choose_bits(common_range(plan.rule, request), plan.rule.flip_bits, plan.seed);
    if (request.kind == IoKind::kRead) {
        pass(request);
        for (const uint64_t bit : bits)
            *memory_at(request, bit / 8) ^= bit_mask(bit);
        return;
    }
    // The caller's memory stays as it is.
    AlignedBuffer copy(request.bytes());
    gather(request, copy.span());
    for (const uint64_t bit : bits)
        copy.data()[bit / 8 - request.offset.value] ^= bit_mask(bit);
    request.result = one_piece(*inner_, IoKind::kWrite, request.offset.value, copy.span(), request.durable);
    if (request.result.ok())
        note_rewritten(request);
}

void FaultDevice::stale(IoRequest& request, const Plan& plan)
{
    pass(request);
    if (!request.result.ok())
        return;
    MutexLock lock(mutex_);
    const Range range = common_range(plan.rule, request);
    for (const auto& [block, content] : rules_[plan.number]->old.blocks) {
        const uint64_t at = block * kBlockBytes;
        if (at >= round_down(range.begin, kBlockBytes) && at < range.end)
            std::memcpy(memory_at(request, at), content.data(), kBlockBytes);
    }
}

}  // namespace cowraid
