// SPDX-License-Identifier: MIT
#include "raid56/recovery_matrix.h"

#include <algorithm>

#include "base/assert.h"
#include "raid56/gf256.h"

namespace cowraid {

namespace {

using SmallMatrix = std::array<std::array<uint8_t, kMaxParity>, kMaxParity>;

uint8_t add(uint8_t a, uint8_t b)
{
    return static_cast<uint8_t>(a ^ b);
}

// Gauss-Jordan over the field. The matrices of P and Q have no singular square part while columns are
// distinct and fewer than 256, so that a pivot is always found.
SmallMatrix invert(SmallMatrix matrix, size_t size)
{
    CW_ASSERT(size <= kMaxParity);
    SmallMatrix inverse{};
    for (size_t i = 0; i < size; ++i)
        inverse[i][i] = 1;
    for (size_t column = 0; column < size; ++column) {
        size_t pivot = column;
        while (pivot < size && matrix[pivot][column] == 0)
            ++pivot;
        CW_ASSERT(pivot < size);
        std::swap(matrix[pivot], matrix[column]);
        std::swap(inverse[pivot], inverse[column]);
        const uint8_t scale = gf_inverse(matrix[column][column]);
        for (size_t i = 0; i < size; ++i) {
            matrix[column][i] = gf_multiply(matrix[column][i], scale);
            inverse[column][i] = gf_multiply(inverse[column][i], scale);
        }
        for (size_t row = 0; row < size; ++row) {
            const uint8_t factor = matrix[row][column];
            if (row == column || factor == 0)
                continue;
            for (size_t i = 0; i < size; ++i) {
                matrix[row][i] = add(matrix[row][i], gf_multiply(factor, matrix[column][i]));
                inverse[row][i] = add(inverse[row][i], gf_multiply(factor, inverse[column][i]));
            }
        }
    }
    return inverse;
}

bool contains(std::span<const uint32_t> set, uint32_t value)
{
    return std::find(set.begin(), set.end(), value) != set.end();
}

// The system to solve: the lost data columns and the surviving parities that stand in for them.
struct System {
    std::array<uint32_t, kMaxParity> lost{};
    std::array<uint32_t, kMaxParity> used{};  // parity numbers
    size_t size = 0;
    SmallMatrix inverse{};
};

System make_system(uint32_t k, uint32_t m, std::span<const uint32_t> erased)
{
    System system;
    for (const uint32_t column : erased)
        if (column < k)
            system.lost[system.size++] = column;
    size_t found = 0;
    for (uint32_t parity = 0; parity < m && found < system.size; ++parity)
        if (!contains(erased, k + parity))
            system.used[found++] = parity;
    CW_ASSERT(found == system.size);
    SmallMatrix matrix{};
    for (size_t i = 0; i < system.size; ++i)
        for (size_t j = 0; j < system.size; ++j)
            matrix[i][j] = parity_coefficient(system.used[i], system.lost[j]);
    system.inverse = invert(matrix, system.size);
    return system;
}

// Coefficient of `input` (a surviving column) in lost data column number `lost` of the system. A surviving
// data column enters through every parity used, the parity itself through the inverse alone.
uint8_t lost_coefficient(const System& system, uint32_t k, size_t lost, uint32_t input)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < system.size; ++i) {
        const uint8_t weight = system.inverse[lost][i];
        if (input < k)
            sum = add(sum, gf_multiply(weight, parity_coefficient(system.used[i], input)));
        else if (input - k == system.used[i])
            sum = add(sum, weight);
    }
    return sum;
}

uint8_t coefficient(const System& system, uint32_t k, uint32_t wanted, uint32_t input)
{
    if (wanted < k) {
        const auto* place = std::find(system.lost.begin(), system.lost.begin() + system.size, wanted);
        return lost_coefficient(system, k, static_cast<size_t>(place - system.lost.begin()), input);
    }
    // Erased parity: its own formula, with every lost data column replaced by its solution.
    uint8_t sum = input < k ? parity_coefficient(wanted - k, input) : uint8_t{0};
    for (size_t i = 0; i < system.size; ++i)
        sum = add(sum, gf_multiply(parity_coefficient(wanted - k, system.lost[i]),
                                   lost_coefficient(system, k, i, input)));
    return sum;
}

}  // namespace

uint8_t parity_coefficient(uint32_t parity, uint32_t column)
{
    return gf_power(parity * column);
}

RecoveryMatrix make_recovery_matrix(uint32_t k, uint32_t m, std::span<const uint32_t> erased,
                                    std::span<const uint32_t> wanted)
{
    const System system = make_system(k, m, erased);
    RecoveryMatrix matrix;
    for (uint32_t column = 0; column < k; ++column)
        if (!contains(erased, column))
            matrix.inputs.push_back(column);
    for (size_t i = 0; i < system.size; ++i)
        matrix.inputs.push_back(k + system.used[i]);
    for (const uint32_t column : wanted)
        for (const uint32_t input : matrix.inputs)
            matrix.coefficients.push_back(coefficient(system, k, column, input));
    return matrix;
}

}  // namespace cowraid
