// SPDX-License-Identifier: MIT
#include "alloc/join_policy.h"

#include <algorithm>
#include <cmath>

namespace cowraid {

namespace {

// Length of requests that whole stripes are written and read with.
constexpr double kLongKib = 512;
// Log entries of one commit that share a request; more hardly matters.
constexpr double kEntriesPerWrite = 32;

}  // namespace

JoinPolicy::JoinPolicy(const MemberCost& cost, uint32_t data_columns, uint32_t parity, uint32_t chunk_bytes,
                       double join_above)
    : cost_(cost),
      data_columns_(data_columns),
      parity_(parity),
      chunk_bytes_(chunk_bytes),
      join_above_(join_above)
{
}

double JoinPolicy::join_us(double kib) const
{
    const double one = cost_.request_us + cost_.kib_us * kib;
    const double log = cost_.request_us / kEntriesPerWrite + cost_.kib_us * kib;
    return 2 * (1 + parity_) * one + parity_ * log;
}

double JoinPolicy::clean_us(double kib, double live) const
{
    const double per_kib = cost_.request_us / kLongKib + cost_.kib_us;
    const double parity_share = static_cast<double>(data_columns_ + parity_) / data_columns_;
    return kib * per_kib * (parity_share + live) / (1 - live);
}

double JoinPolicy::crossover(double kib) const
{
    double low = 0;
    double high = 1;
    for (int step = 0; step < 50; ++step) {
        const double live = (low + high) / 2;
        (clean_us(kib, live) < join_us(kib) ? low : high) = live;
    }
    return low <= 0 ? 0 : (1 - low) / -std::log(low);
}

uint64_t JoinPolicy::blocks_to_join(const SpaceNumbers& data, uint64_t unassigned_blocks,
                                    uint64_t block_count) const
{
    if (parity_ == 0 || data.partial_row_blocks == 0)
        return 0;
    const uint64_t stripe_blocks = uint64_t{chunk_bytes_ / kBlockBytes} * data_columns_;
    const uint64_t tail = block_count % stripe_blocks;
    const uint64_t free =
        data.free_row_blocks + data.partial_row_blocks + data.pinned_blocks + unassigned_blocks;
    const double used =
        static_cast<double>(data.used_blocks) / static_cast<double>(data.used_blocks + free + 1);
    const uint64_t run = std::min<uint64_t>(std::max<uint64_t>(tail, 1), chunk_bytes_ / kBlockBytes);
    const double kib = static_cast<double>(run * kBlockBytes) / 1024;
    const double above = join_above_ < 0 ? crossover(kib) : join_above_;
    return used < above ? 0 : std::min(tail, data.partial_row_blocks);
}

}  // namespace cowraid
