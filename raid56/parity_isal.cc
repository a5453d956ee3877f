// SPDX-License-Identifier: MIT
// The fast paths, by ISA-L: xor_gen and pq_gen to generate, ec_encode_data with an inverted matrix to
// recover. xor_gen and pq_gen refuse a single data column (every parity is then a copy of it), so that their
// return codes are checked and k = 1 never reaches them.
#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "raid56/gf256.h"
#include "raid56/parity.h"
#include "raid56/recovery_matrix.h"

namespace cowraid {

namespace {

constexpr size_t kVectorAlignment = 64;
constexpr size_t kMaxColumns = kMaxDataColumns + kMaxParity;

bool vector_ok(const std::byte* pointer)
{
    return pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % kVectorAlignment == 0;
}

void check_length(size_t bytes)
{
    CW_ASSERT(bytes % kVectorAlignment == 0 && bytes <= INT_MAX);
}

bool rising(std::span<const uint32_t> numbers)
{
    for (size_t i = 1; i < numbers.size(); ++i)
        if (numbers[i - 1] >= numbers[i])
            return false;
    return true;
}

// ISA-L takes pointers without const and does not write through those of its inputs.
void* input_pointer(const std::byte* pointer)
{
    CW_ASSERT(vector_ok(pointer));
    return const_cast<std::byte*>(pointer);
}

// One recovery, ready to run: what costs a microsecond to derive and is the same for every row of a stripe.
struct RecoveryPlan {
    uint32_t k = 0;
    uint32_t m = 0;
    std::array<uint32_t, kMaxParity> erased{};
    std::array<uint32_t, kMaxParity> wanted{};
    size_t erased_count = 0;
    size_t wanted_count = 0;
    std::vector<uint32_t> inputs;
    bool plain_xor = false;  // one wanted column and every coefficient 1
    std::vector<unsigned char> tables;  // ISA-L's expanded coefficients

    [[nodiscard]] bool serves(uint32_t k_wanted, uint32_t m_wanted, std::span<const uint32_t> erased_wanted,
                              std::span<const uint32_t> columns) const
    {
        return k == k_wanted && m == m_wanted && erased_count == erased_wanted.size() &&
               wanted_count == columns.size() &&
               std::equal(erased_wanted.begin(), erased_wanted.end(), erased.begin()) &&
               std::equal(columns.begin(), columns.end(), wanted.begin());
    }
};

void derive(RecoveryPlan& plan, uint32_t k, uint32_t m, std::span<const uint32_t> erased,
            std::span<const uint32_t> wanted)
{
    plan.k = k;
    plan.m = m;
    plan.erased_count = erased.size();
    plan.wanted_count = wanted.size();
    std::copy(erased.begin(), erased.end(), plan.erased.begin());
    std::copy(wanted.begin(), wanted.end(), plan.wanted.begin());
    RecoveryMatrix matrix = make_recovery_matrix(k, m, erased, wanted);
    plan.inputs = std::move(matrix.inputs);
    plan.plain_xor = wanted.size() == 1 && std::all_of(matrix.coefficients.begin(), matrix.coefficients.end(),
                                                       [](uint8_t c) { return c == 1; });
    plan.tables.resize(size_t{32} * k * wanted.size());
    ec_init_tables(static_cast<int>(k), static_cast<int>(wanted.size()), matrix.coefficients.data(),
                   plan.tables.data());
}

// A member that is away is another logical column in every stripe, so that a degraded reader meets as many
// erasure sets as the group has columns. Each thread keeps its latest ones; deriving one takes about as long
// as recovering a block.
const RecoveryPlan& plan_for(uint32_t k, uint32_t m, std::span<const uint32_t> erased,
                             std::span<const uint32_t> wanted)
{
    constexpr size_t kKept = 16;
    thread_local std::array<RecoveryPlan, kKept> kept;
    thread_local size_t next = 0;
    for (const RecoveryPlan& plan : kept)
        if (plan.serves(k, m, erased, wanted))
            return plan;
    RecoveryPlan& plan = kept[next];
    next = (next + 1) % kKept;
    derive(plan, k, m, erased, wanted);
    return plan;
}

void xor_vectors(std::span<void*> sources_and_target, size_t bytes)
{
    CW_ASSERT(xor_gen(static_cast<int>(sources_and_target.size()), static_cast<int>(bytes),
                      sources_and_target.data()) == 0);
}

void run_plan(const RecoveryPlan& plan, std::span<std::byte* const> columns, size_t bytes)
{
    std::array<void*, kMaxColumns> vectors;
    size_t count = 0;
    for (const uint32_t input : plan.inputs)
        vectors[count++] = input_pointer(columns[input]);
    for (size_t i = 0; i < plan.wanted_count; ++i)
        vectors[count++] = input_pointer(columns[plan.wanted[i]]);
    if (plan.k == 1) {
        // Every coefficient is 2^0 = 1: all columns are equal.
        for (size_t i = 0; i < plan.wanted_count; ++i)
            std::memcpy(vectors[1 + i], vectors[0], bytes);
        return;
    }
    if (plan.plain_xor) {
        xor_vectors({vectors.data(), count}, bytes);
        return;
    }
    auto** pointers = reinterpret_cast<unsigned char**>(vectors.data());
    ec_encode_data(static_cast<int>(bytes), static_cast<int>(plan.k), static_cast<int>(plan.wanted_count),
                   const_cast<unsigned char*>(plan.tables.data()), pointers, pointers + plan.k);
}

}  // namespace

void parity_generate(std::span<const std::byte* const> data, std::span<std::byte* const> parity, size_t bytes)
{
    CW_ASSERT(!data.empty() && data.size() <= kMaxDataColumns && parity.size() <= kMaxParity);
    check_length(bytes);
    if (parity.empty() || bytes == 0)
        return;
    std::array<void*, kMaxColumns> vectors;
    size_t count = 0;
    for (const std::byte* column : data)
        vectors[count++] = input_pointer(column);
    for (std::byte* column : parity)
        vectors[count++] = input_pointer(column);
    if (data.size() == 1) {
        for (std::byte* column : parity)
            std::memcpy(column, data[0], bytes);
    } else if (parity.size() == 1) {
        xor_vectors({vectors.data(), count}, bytes);
    } else {
        CW_ASSERT(pq_gen(static_cast<int>(count), static_cast<int>(bytes), vectors.data()) == 0);
    }
}

void parity_add(uint32_t column, const std::byte* data, std::span<std::byte* const> parity, size_t bytes)
{
    CW_ASSERT(column < kMaxDataColumns && parity.size() <= kMaxParity);
    check_length(bytes);
    auto* source = static_cast<unsigned char*>(input_pointer(data));
    for (uint32_t p = 0; p < parity.size() && bytes > 0; ++p) {
        if (parity[p] == nullptr)
            continue;
        auto* target = static_cast<unsigned char*>(input_pointer(parity[p]));
        unsigned char coefficient = gf_power(p * column);
        std::array<unsigned char, 32> table;
        ec_init_tables(1, 1, &coefficient, table.data());
        ec_encode_data_update(static_cast<int>(bytes), 1, 1, 0, table.data(), source, &target);
    }
}

void parity_recover_wanted(std::span<std::byte* const> columns, uint32_t k, std::span<const uint32_t> erased,
                           std::span<const uint32_t> wanted, size_t bytes)
{
    CW_ASSERT(k >= 1 && k <= kMaxDataColumns && columns.size() >= k && columns.size() - k <= kMaxParity);
    CW_ASSERT(erased.size() <= columns.size() - k);
    CW_ASSERT(rising(erased) && rising(wanted) && (erased.empty() || erased.back() < columns.size()));
    CW_ASSERT(std::includes(erased.begin(), erased.end(), wanted.begin(), wanted.end()));
    check_length(bytes);
    if (wanted.empty() || bytes == 0)
        return;
    run_plan(plan_for(k, static_cast<uint32_t>(columns.size()) - k, erased, wanted), columns, bytes);
}

void parity_recover(std::span<std::byte* const> columns, uint32_t k, std::span<const uint32_t> erased,
                    size_t bytes)
{
    parity_recover_wanted(columns, k, erased, erased, bytes);
}

}  // namespace cowraid
