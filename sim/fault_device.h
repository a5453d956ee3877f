// SPDX-License-Identifier: MIT
// A wrapper that lets a device misbehave by rules, repeatable from a seed (classes of docs/FAULT_MODEL.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "device/block_device.h"

namespace cowraid {

enum class FaultAction : uint8_t {
    kError,  // fails with `error`; nothing is read, stored or made durable
    kGone,  // this request and every later one of any kind fails with kMemberGone
    kTorn,  // write: each unit is stored or not by chance; result is `error` (kOk: acknowledged)
    kLost,  // write: acknowledged, not stored; flush: acknowledged, nothing made durable
    kMisdirected,  // read or write goes to `target` (null: same device) at `target_offset` instead
    kBitFlip,  // read: the answer has flipped bits, the device is fine; write: stored with flipped bits
    kRot,  // bits flip on the device within the request, then it is carried out
    kStale,  // read: content as it was when the rule was added
    kLatent,  // read fails with kIo until every block of it inside the range was written again
    kSlow,  // calls the slow hook, then goes on (with the next rules)
};

// Which requests, by kind. A durable write is a flush as well.
inline constexpr uint32_t kFaultReads = 1u << static_cast<uint32_t>(IoKind::kRead);
inline constexpr uint32_t kFaultWrites = 1u << static_cast<uint32_t>(IoKind::kWrite);
inline constexpr uint32_t kFaultFlushes = 1u << static_cast<uint32_t>(IoKind::kFlush);
inline constexpr uint32_t kFaultDiscards = 1u << static_cast<uint32_t>(IoKind::kDiscard);
inline constexpr uint32_t kFaultAll = kFaultReads | kFaultWrites | kFaultFlushes | kFaultDiscards;

struct FaultRule {
    FaultAction action = FaultAction::kError;
    // Kinds of request it may hit; kStale and kLatent hit reads only, kTorn writes only.
    uint32_t kinds = kFaultAll;
    // Bytes of the device it may hit; a request matches when it touches the range. Flushes always match.
    uint64_t begin = 0;
    uint64_t end = UINT64_MAX;
    // Of the matching requests it lets `skip` pass, then hits each with a chance of `permille`/1000, at most
    // `limit` times.
    uint64_t skip = 0;
    uint32_t permille = 1000;
    uint64_t limit = UINT64_MAX;

    Err error = Err::kIo;  // kError, kTorn
    uint32_t unit_bytes = 512;  // kTorn: 512 or 4096
    uint32_t flip_bits = 1;  // kBitFlip, kRot
    BlockDevice* target = nullptr;  // kMisdirected; must outlive the device
    uint64_t target_offset = 0;  // kMisdirected
    uint64_t delay_microseconds = 0;  // kSlow
};

// What kSlow calls: advance a simulated clock, or sleep.
struct SlowHook {
    void (*call)(void* context, uint64_t microseconds) = nullptr;
    void* context = nullptr;
};

// Thread-safe.
class FaultDevice final : public BlockDevice {
public:
    FaultDevice(std::unique_ptr<BlockDevice> inner, uint64_t seed, SlowHook slow = {});
    ~FaultDevice() override;

    [[nodiscard]] uint64_t size_bytes() const override { return inner_->size_bytes(); }
    [[nodiscard]] const char* name() const override { return inner_->name(); }
    void perform(IoRequest& request) override;
    [[nodiscard]] BlockDevice& inner() { return *inner_; }

    // Rules are tried in the order they were added; the first that hits (kSlow aside) decides. Returns the
    // number of the rule.
    size_t add_rule(const FaultRule& rule);
    // Ends a rule (its counter stays). For kGone this brings the device back.
    void remove_rule(size_t number);
    void remove_all_rules();
    // How often a rule has hit.
    [[nodiscard]] uint64_t hits(size_t number) const;
    // How often any rule with this action has hit.
    [[nodiscard]] uint64_t hits(FaultAction action) const;

private:
    struct Rule;
    struct Plan;
    struct Old;

    [[nodiscard]] bool gone() const CW_REQUIRES(mutex_);
    [[nodiscard]] bool hit(Rule& rule, const IoRequest& request) CW_REQUIRES(mutex_);
    Plan decide(const IoRequest& request);
    void carry_out(IoRequest& request, const Plan& plan);
    void keep_old_content(const IoRequest& request);
    void note_rewritten(const IoRequest& request);
    void torn(IoRequest& request, const Plan& plan);
    void misdirected(IoRequest& request, const Plan& plan);
    void flip_on_device(IoRequest& request, const Plan& plan);
    void flipped(IoRequest& request, const Plan& plan);
    void pass(IoRequest& request);
    Status flush_of(IoRequest& write);
    void stale(IoRequest& request, const Plan& plan);

    const std::unique_ptr<BlockDevice> inner_;
    const SlowHook slow_;
    mutable Mutex mutex_{LockRank::kDevice};
    Prng prng_ CW_GUARDED_BY(mutex_);
    std::vector<std::unique_ptr<Rule>> rules_ CW_GUARDED_BY(mutex_);
};

}  // namespace cowraid
